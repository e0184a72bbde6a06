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

size_t act_row_bytes(enum act_kind kind, int n_cols)
{
    size_t n = (size_t)n_cols, bytes = 0;

    switch (kind) {
    case ACT_F32:
        bytes = n * sizeof(float);
        break;
    case ACT_Q8_0:
        bytes = n / Q8_0_BLOCK * sizeof(struct act_q8_0);
        break;
    case ACT_Q8_K:
        bytes = n / Q8_K_BLOCK * sizeof(struct act_q8_k);
        break;
    }
    return (bytes + 63) / 64 * 64;
}
