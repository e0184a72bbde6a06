/* gemm.h: GEMM and GEMV with packed weights and quantised activations.
 *
 * Weights are packed once, when a model is loaded, into the format P16: panels of 16 matrix rows,
 * as in BLIS. A panel is a sequence of quantisation blocks in the order of k. In a block, the
 * values of the 16 rows are interleaved in "quad rows" (64 bytes = 16 rows x 4 consecutive k), and
 * the 16 scales are contiguous. A vector register holds 16 outputs, so there are no horizontal
 * sums, and the order of additions is the same for every number of activation rows. The last panel
 * is padded with zero rows. blocks.h documents the bytes of each type.
 *
 * F32, F16, BF16 and FP8 weights are multiplied with float activations, one fma per k in order. The
 * exception is AMX bf16 tiles, which read BF16X2 activations and have their own order
 * (x86_amx_float.c). The other types are multiplied with activations quantised per block (Q8_0: 32,
 * Q8_K: 256) by exact int8 dot products, and the block results are added in block order with fma.
 * types.def lists all types. Pure functions on memory of the caller; any thread. */
#pragma once

#include "base/err.h"
#include "format/qtype.h"

enum { PANEL = 16 };

enum act_kind { ACT_F32, ACT_Q8_0, ACT_Q8_K, ACT_BF16X2, N_ACT_KINDS }; /* defined in acts.h */

struct packed {
    enum qtype type;
    int n_rows; /* number of outputs */
    int n_cols; /* K, the number of inputs */
    int n_panels;
    size_t panel_bytes;
    uint8_t *data; /* [n_panels][panel_bytes], 64-byte aligned */
    /* Factors of the outputs of panels_per_scale panels each, which the caller of GEMM applies; or
     * NULL. */
    const float *scales;
    int panels_per_scale;
};

/* Activation rows of a GEMM, in the kind that the weight type requires. */
struct acts {
    enum act_kind kind;
    int n_rows, n_cols;
    size_t stride; /* bytes from row to row: act_row_bytes() */
    void *data;
    const int *gather; /* row m is stored row gather[m]; NULL: row m */
};

static inline const uint8_t *acts_row(const struct acts *x, int m)
{
    return (const uint8_t *)x->data + (size_t)(x->gather ? x->gather[m] : m) * x->stride;
}

struct gemm_args {
    const struct packed *w;
    const struct acts *x;
    int panel_from, panel_to;
    float *y;        /* output of activation row m and matrix row r: y[m * y_stride + r] */
    size_t y_stride; /* in floats */
    /* Hint for GEMM: weights that the thread will probably read next, to be prefetched during the
     * last panels. NULL: the panels after panel_to. */
    const uint8_t *next;
};

typedef void (*gemm_fn)(const struct gemm_args *g);

enum gemm_slot {
#define WEIGHT(TYPE, name, act, block) GEMM_##TYPE,
#include "kernel/types.def"
#undef WEIGHT
    N_GEMM_SLOTS
};
int gemm_slot(enum qtype type); /* a slot index, or -1 if kernels do not support the type */

/* Kind by weight type alone; kernels_act_kind() also considers the kernel set. */
enum act_kind act_kind_for(enum qtype weight_type);
int act_block(enum act_kind kind); /* elements per block */
/* Bytes before column `col`, a multiple of act_block(). */
size_t act_offset(enum act_kind kind, int col);
/* Bytes of a whole row: all blocks, including a partial last one, padded to an odd multiple of 64,
 * so that consecutive rows map to different cache sets. */
size_t act_row_bytes(enum act_kind kind, int n_cols);

/* ---- pack.c: weight packing */

size_t pack_bytes(enum qtype type, int n_rows, int n_cols);
/* Fills panels [panel_from, panel_to) of w from a tensor stored row by row as in GGUF. w->data
 * points to pack_bytes() bytes, 64-byte aligned. Threads may pack different panels of one tensor
 * concurrently. */
void pack_panels(struct packed *w, const uint8_t *rows, int panel_from, int panel_to);
int pack_init(
    struct packed *w, enum qtype type, int n_rows, int n_cols, uint8_t *data, struct err *e);

/* ---- unpack.c: one matrix row as floats, exactly as GGUF defines the block (for embeddings) */

void pack_get_row(const struct packed *w, int row, float *out);
