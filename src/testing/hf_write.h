/* hf_write.h: writes a model as a directory in the layout of Hugging Face or of MLX, for tests: the
 * inverse of format/hf, for the families of its table.
 *
 * Matrices keep their type (F32, F16, BF16, MXFP4, NVFP4). In the layout of MLX, the matrices of
 * experts are stacked, and matrices of type Q4_1 become affine codes of 4 bits in groups of 32, of
 * which both formats have the same value. Matrices in MXFP4 become blocks and scales, as in
 * gpt-oss, whose rows of gate and up alternate; those in NVFP4 and their factors have the layout of
 * ModelOpt.
 *
 * Owner: the caller; one thread. */
#pragma once

#include "base/err.h"
#include "format/gguf.h"

/* F32 matrices of layers, except those of the routers, are rounded to E4M3 numbers. */
enum hf_write_quant {
    HF_WRITE_NO_QUANT,
    HF_WRITE_FP8,        /* a scale per 128 x 128 elements */
    HF_WRITE_FP8_ROWS,   /* a scale per row, in the layout of compressed-tensors */
    HF_WRITE_FP8_MATRIX, /* a scale per matrix, in the layout of ModelOpt */
    HF_WRITE_MXFP8,      /* MLX mode mxfp8 */
};

struct hf_write_options {
    bool is_mlx;
    int n_shards;        /* 0 or 1: one file without an index */
    bool stacks_experts; /* families with both layouts: one tensor for all experts */
    enum hf_write_quant quant;
    bool writes_values; /* with `quant`: the rounded values, in F32 */
};

/* Writes into an existing directory. ERR_UNSUPPORTED, ERR_IO, ERR_MEMORY. */
int hf_write(
    const struct gguf *g, const char *dir, const struct hf_write_options *o, struct err *e);
