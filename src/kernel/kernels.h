/* kernels.h: the arithmetic, as one table of functions chosen at start.
 *
 * Sets, worst to best: ref, avx2, avxvnni, avx512, amx. A set leaves NULL where it is no better
 * than one below that runs wherever it does; kernels_choose() fills the gaps. Pure functions; any
 * thread. */
#pragma once

#include "base/err.h"
#include "kernel/attn.h"
#include "kernel/gemm.h"

struct kernels {
    const char *name;
    /* 0: all sums have the order of ref.c. Else products of F16 and BF16 weights and attention over
     * bf16 pages have another, and this is its number, which changes when it does. */
    unsigned own_sums;
    enum act_kind half_acts; /* what products of F16 and BF16 weights read: ACT_F32 or ACT_PLANES */
#define KERNEL(op, ret, params) ret(*op) params;
#include "kernel/kernels.def"
#undef KERNEL
    gemm_fn gemm[N_GEMM_SLOTS];
};

/* NULL or "auto" = the best this machine can run. ERR_UNSUPPORTED names what is missing. The
 * result lives for ever. Where there is AMX this asks the system for its tiles, for the whole
 * process: choose before the threads that compute are started. */
int kernels_choose(const struct kernels **out, const char *name, struct err *e);

/* The activations that the set's product with weights of a type reads. */
enum act_kind kernels_acts(const struct kernels *k, enum qtype weight_type);

/* Columns [col, col + n) of a row of activations, from floats. Both are multiples of act_block(),
 * but for an n that ends the row. */
struct act_cols {
    enum act_kind kind;
    void *row;
    int col;
};
void kernels_put_acts(const struct kernels *k, struct act_cols to, const float *x, int n);
