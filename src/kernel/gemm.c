#include "kernel/gemm.h"
#include "kernel/acts.h"

int gemm_slot(enum qtype type)
{
    switch ((int)type) {
    case Q_F32:
        return 0;
    case Q_F16:
        return 1;
    case Q_BF16:
        return 2;
    case Q_Q8_0:
        return 3;
    case Q_Q4_0:
        return 4;
    case Q_Q4_K:
        return 5;
    case Q_Q5_K:
        return 6;
    case Q_Q6_K:
        return 7;
    default:
        return -1;
    }
}

enum act_kind act_kind_for(enum qtype weight_type)
{
    switch ((int)weight_type) {
    case Q_Q8_0:
    case Q_Q4_0:
        return ACT_Q8_0;
    case Q_Q4_K:
    case Q_Q5_K:
    case Q_Q6_K:
        return ACT_Q8_K;
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
