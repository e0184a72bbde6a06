/* kernels.h: the table of compute kernels, chosen once at start.
 *
 * Sets, slowest to fastest: ref, avx2, avxvnni, avx512, amx. An entry that a set leaves NULL is
 * filled from a lower set that runs on every machine of this set; kernels_choose() does that. Pure
 * functions; any thread. */
#pragma once

#include "base/err.h"
#include "kernel/attn.h"
#include "kernel/gemm.h"
#include "kernel/recurrent.h"

struct kernels {
    const char *name;
    /* 0: all sums have the order of ref.c. Otherwise GEMM with F16 and BF16 weights and attention
     * over bf16 pages have another order, and this number identifies it. It changes whenever that
     * order changes. */
    unsigned numerics_id;
    /* activations that GEMM with F16 and BF16 weights reads: ACT_F32 or ACT_BF16X2 */
    enum act_kind f16_acts;
#define KERNEL(op, ret, params) ret(*op) params;
#include "kernel/kernels.def"
#undef KERNEL
    gemm_fn gemm[N_GEMM_SLOTS];
};

/* Selects a set by name; NULL or "auto" selects the fastest that this machine can run.
 * ERR_UNSUPPORTED names the missing feature. The result is valid for the life of the process. On a
 * machine with AMX this requests tiles from the system for the whole process: call it before the
 * compute threads start. */
int kernels_choose(const struct kernels **out, const char *name, struct err *e);

/* The kind of activations that the set's GEMM reads for a weight type. */
enum act_kind kernels_act_kind(const struct kernels *k, enum qtype weight_type);

/* Destination of kernels_quantise_acts: columns [col, col + n) of an activation row. col and n are
 * multiples of act_block(), except an n that ends at the end of the row. */
struct act_cols {
    enum act_kind kind;
    void *row;
    int col;
};
void kernels_quantise_acts(const struct kernels *k, struct act_cols to, const float *x, int n);
