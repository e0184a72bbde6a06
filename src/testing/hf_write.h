/* hf_write.h: writes a model as a directory in the layout of Hugging Face or of MLX, for tests: the
 * inverse of format/hf, for the families of its table.
 *
 * Matrices keep their type (F32, F16, BF16). In the layout of MLX, the matrices of experts are
 * stacked, and matrices of type Q4_1 become affine codes of 4 bits in groups of 32, of which both
 * formats have the same value. The experts of gpt-oss in MXFP4 become blocks and scales.
 *
 * Owner: the caller; one thread. */
#pragma once

#include "base/err.h"
#include "format/gguf.h"

struct hf_write_options {
    bool is_mlx;
    int n_shards; /* 0 or 1: one file without an index */
};

/* Writes into an existing directory. ERR_UNSUPPORTED, ERR_IO, ERR_MEMORY. */
int hf_write(
    const struct gguf *g, const char *dir, const struct hf_write_options *o, struct err *e);
