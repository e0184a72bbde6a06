/* gemm.h: packed weights times prepared activations.
 *
 * Weights are packed once, when a model is loaded, into P16: panels of 16 rows; inside a panel
 * K in blocks; inside a block the 16 rows' values interleaved in "quad rows" (64 bytes = 16 rows
 * x 4 consecutive k), the 16 rows' scales contiguous. One vector register is 16 outputs: no
 * horizontal sums, the same order of additions for every number of rows. The last panel is
 * padded with zero rows. pack.c documents the bytes of each type.
 *
 * F32, F16 and BF16 weights multiply float activations, one fma per k in order (tiles of bf16,
 * which read activations in planes, in an order of their own: x86_amx_float.c); the others multiply
 * activations quantised per block (Q8_0: 32, Q8_K: 256) by exact integer dots, and add block
 * results in block order with fma. types.def lists them all. */
#pragma once

#include "base/err.h"
#include "format/qtype.h"

enum { PANEL = 16 };

enum act_kind { ACT_F32, ACT_Q8_0, ACT_Q8_K, ACT_PLANES, N_ACT_KINDS }; /* acts.h */

struct packed {
    enum qtype type;
    int n_rows; /* outputs */
    int n_cols; /* K */
    int n_panels;
    size_t panel_bytes;
    uint8_t *data; /* [n_panels][panel_bytes], 64-byte aligned */
};

/* Activations of M rows in the form that a weight type wants. */
struct acts {
    enum act_kind kind;
    int n_rows, n_cols;
    size_t stride; /* bytes from row to row: act_row_bytes() */
    void *data;
    const int *pick; /* row m is stored row pick[m]; NULL: row m */
};

static inline const uint8_t *acts_row(const struct acts *x, int m)
{
    return (const uint8_t *)x->data + (size_t)(x->pick ? x->pick[m] : m) * x->stride;
}

struct gemm_args {
    const struct packed *w;
    const struct acts *x;
    int panel_from, panel_to;
    float *y;        /* y[m * y_stride + row] */
    size_t y_stride; /* floats */
    /* A hint, for many rows: weights that the thread will probably read next, to be fetched towards
     * the end; NULL: the panels behind these. */
    const uint8_t *next;
};

typedef void (*gemm_fn)(const struct gemm_args *g);

enum gemm_slot {
#define WEIGHT(TYPE, name, act, block) GEMM_##TYPE,
#include "kernel/types.def"
#undef WEIGHT
    N_GEMM_SLOTS
};
int gemm_slot(enum qtype type); /* one of these, or -1 for a type that is not served */

enum act_kind act_kind_for(enum qtype weight_type); /* but see kernels_acts() */
int act_block(enum act_kind kind);                  /* elements */
/* Up to `col`, a multiple of act_block(). */
size_t act_offset(enum act_kind kind, int col);
/* A whole row, a last block that is not whole included, and what is behind it up to an odd multiple
 * of 64: so rows below one another are in different sets of a cache. */
size_t act_row_bytes(enum act_kind kind, int n_cols);

/* ---- pack.c */

size_t pack_bytes(enum qtype type, int n_rows, int n_cols);
/* Fills w (whose data points to pack_bytes() of memory, 64-byte aligned) with panels
 * [panel_from, panel_to) of a tensor stored row by row as in GGUF. Threads may share the work. */
void pack_panels(struct packed *w, const uint8_t *rows, int panel_from, int panel_to);
int pack_init(
    struct packed *w, enum qtype type, int n_rows, int n_cols, uint8_t *data, struct err *e);

/* ---- unpack.c: one row back as floats, exactly as the file's block says (for embeddings) */

void pack_get_row(const struct packed *w, int row, float *out);
