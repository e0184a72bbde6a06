/* recurrent.h: operations of recurrent layers: the causal convolution, and one row of a state.
 *
 * The state S of a value head is [n_keys][columns]. A row has a key k, a query q, and per column an
 * update u. S decays by g and gets the outer product of k and u:
 *
 *     S <- g S + k u^T
 *
 * Gated DeltaNet computes u from the state before the row; Mamba2 has u = dt x, k = B, q = C. The
 * output of a row is that of the state after it, g (S^T q) + (k . q) u, so one pass over S suffices
 * for a row: the pass applies the updates of earlier rows, stores S, and forms the products with k
 * and q. A head is divided into slices of STATE_COLS columns, so that a slice stays in the L1 or L2
 * cache for all rows of a run. The bits of a column do not depend on the division.
 *
 * Pure functions on memory of the caller; any thread. */
#pragma once

#include "base/base.h"

enum {
    STATE_COLS = 64,       /* most columns of a slice */
    STATE_LANES = 16,      /* columns of a stored row are padded to a multiple of it */
    STATE_MAX_UPDATES = 8, /* most updates that one pass applies */
    CONV_MAX_TAPS = 4,
};

/* Length of a stored row of S, in floats. */
static inline int state_stride(int n_cols)
{
    return (n_cols + STATE_LANES - 1) / STATE_LANES * STATE_LANES;
}

struct state_update {
    const float *k; /* [n_keys] */
    const float *u; /* [n_cols] */
    float g;
};

struct state_row {
    /* [n_keys][state_stride(n_cols)]: S before the updates, and S after them. to == NULL: not
     * stored, with at most one update. to == from is allowed. */
    const float *from;
    float *to;
    int n_keys, n_cols;                 /* n_cols: 1 .. STATE_COLS */
    const struct state_update *updates; /* [n_updates]: of earlier rows, in their order */
    int n_updates;                      /* 0 .. STATE_MAX_UPDATES */
    const float *k, *q;                 /* [n_keys] */
    const float *v;                     /* [n_cols]: value (delta rule) */
    float g, beta;                      /* decay; factor of the correction (delta rule) */
    float *u;                           /* [n_cols]: update; output of the delta rule */
    float *out;                         /* [n_cols] */
};

struct conv_row {
    const float *x[CONV_MAX_TAPS]; /* [n_taps][n]: inputs of the last rows, oldest first */
    const float *w;                /* [n_taps][w_stride] */
    size_t w_stride;
    const float *bias; /* [n], or NULL */
    int n_taps;        /* 1 .. CONV_MAX_TAPS */
    bool has_silu;
};
