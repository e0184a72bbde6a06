#include "kernel/gemm.h"
#include "kernel/acts.h"

int gemm_slot(enum qtype type)
{
    switch ((int)type) {
#define WEIGHT(TYPE, name, act, block)                                                             \
    case Q_##TYPE:                                                                                 \
        return GEMM_##TYPE;
#include "kernel/types.def"
#undef WEIGHT
    default:
        return -1;
    }
}

enum act_kind act_kind_for(enum qtype weight_type)
{
    switch ((int)weight_type) {
#define WEIGHT(TYPE, name, act, block)                                                             \
    case Q_##TYPE:                                                                                 \
        return act;
#include "kernel/types.def"
#undef WEIGHT
    default:
        return ACT_F32;
    }
}

static const struct {
    int n; /* elements */
    size_t bytes;
} blocks[N_ACT_KINDS] = {
    [ACT_F32] = { 1, sizeof(float) },
    [ACT_Q8_0] = { Q8_0_BLOCK, sizeof(struct act_q8_0) },
    [ACT_Q8_K] = { Q8_K_BLOCK, sizeof(struct act_q8_k) },
    [ACT_BF16X2] = { BF16X2_BLOCK, sizeof(struct act_bf16x2) },
};

int act_block(enum act_kind kind)
{
    return blocks[kind].n;
}

size_t act_offset(enum act_kind kind, int col)
{
    DCHECK(col % blocks[kind].n == 0);
    return (size_t)(col / blocks[kind].n) * blocks[kind].bytes;
}

size_t act_row_bytes(enum act_kind kind, int n_cols)
{
    size_t n_blocks = (size_t)((n_cols + blocks[kind].n - 1) / blocks[kind].n);

    return ((n_blocks * blocks[kind].bytes + 63) / 64 | 1) * 64;
}
