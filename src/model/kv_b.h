/* kv_b.h: the matrix attn_kv_b of older files with latent attention, which contains for each query
 * head the rows of k_b, transposed, and those of v_b.
 *
 * k_b is multiplied from the other side than it is stored: it is converted to floats and
 * transposed, which is exact. The rows of v_b are copied as they are.
 *
 * Pure; any thread. */
#pragma once

#include "base/err.h"
#include "kernel/gemm.h"

struct kv_b {
    enum qtype type;
    int n_heads, nope_dim, value_dim, kv_rank;
    const uint8_t *rows; /* [n_heads][nope_dim + value_dim] rows of kv_rank elements */
    size_t row_bytes;
};

/* Allocates and writes *k: F32 [n_heads][kv_rank][nope_dim], and *v: [n_heads][value_dim] rows of
 * the file's type. The caller frees both with mem_free. ERR_MEMORY, or the errors of pack_init. */
int kv_b_split(const struct kv_b *w, float **k, uint8_t **v, struct err *e);
