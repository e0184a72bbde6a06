/* x86_attn_latent.h: latent attention over F16 and BF16 pages for the AVX2 and AVX-512 sets, with
 * lanes of dimensions for scores and outputs. The 16 lanes of a score are N_VECS vectors; the score
 * of a head and position is a vector of chains, which is folded at the end.
 *
 * Included only by x86_attn_block.h, which documents the definitions that it requires. */
#pragma once

#include "kernel/unroll.h"
#include "kernel/x86/x86_attn_16bit.h"

#ifdef GROUP_HEADS
enum { SCORE_TOKENS = 2 }; /* positions whose scores are computed together, of one page */

/* The scores of two keys of a page. Reads the vector `part` of the 16 lanes of all dimensions. */
INLINE void add_latent_lanes(enum kv_type type, int heads, const struct head_group *g,
    const uint8_t *const k[SCORE_TOKENS], int part, float lanes[GROUP_HEADS][SCORE_TOKENS][16])
{
    vec s[SCORE_TOKENS][GROUP_HEADS];

    UNROLL for (int h = 0; h < heads; h++) UNROLL for (int i = 0; i < SCORE_TOKENS; i++) s[i][h] =
        zero_vec();
    for (int d = part * VEC_LANES; d < g->dim; d += 16) {
        vec x[SCORE_TOKENS];
        UNROLL for (int i = 0; i < SCORE_TOKENS; i++) x[i] = widen_vec(type, k[i] + (size_t)d * 2);
        UNROLL for (int h = 0; h < heads; h++)
        {
            vec q = load_vec((const float *)g->q + (size_t)h * (size_t)g->dim + d);
            UNROLL for (int i = 0; i < SCORE_TOKENS; i++) s[i][h] = fma_vec(q, x[i], s[i][h]);
        }
    }
    UNROLL for (int h = 0; h < heads; h++) UNROLL for (int i = 0; i < SCORE_TOKENS; i++)
        store_vec(lanes[h][i] + part * VEC_LANES, s[i][h]);
}

INLINE void compute_scores_latent(
    enum kv_type type, int heads, const struct head_group *g, int from, int to)
{
    const struct attn_args *a = g->a;
    struct block_work *work = g->work;
    ALIGNED(64) float lanes[GROUP_HEADS][SCORE_TOKENS][16];

    for (int pos = from; pos < to; pos += SCORE_TOKENS) {
        const uint8_t *k[SCORE_TOKENS];
        UNROLL for (int i = 0; i < SCORE_TOKENS; i++) k[i] =
            attn_latent_key(a, MIN(pos + i, to - 1));
        UNROLL for (int part = 0; part < N_VECS; part++)
            add_latent_lanes(type, heads, g, k, part, lanes);
        for (int h = 0; h < heads; h++)
            for (int i = 0; i < MIN(SCORE_TOKENS, to - pos); i++)
                work->w[h][pos + i - from] = sum16(load16(lanes[h][i])) * a->scale;
    }
}

/* Adds the values of keys [from, end) to HEAD_VECTORS x 16 dimensions, which begin at dim[i]. */
INLINE void add_dims_latent(enum kv_type type, int heads, const struct head_group *g,
    const int dim[HEAD_VECTORS], int from, int end)
{
    const struct block_work *work = g->work;
    const size_t key_bytes = (size_t)g->dim * 2;
    const int to = MIN(end, g->n_keys[0]); /* all heads attend to these keys */
    vec16 sums[HEAD_VECTORS][GROUP_HEADS];

    UNROLL for (int h = 0; h < heads; h++) UNROLL for (int i = 0; i < HEAD_VECTORS; i++)
        sums[i][h] = load16(g->out + (size_t)h * (size_t)g->value_dim16 + dim[i]);
    for (int pos = from; pos < to; pos += PAGE_TOKENS) {
        const uint8_t *key = attn_latent_key(g->a, pos);
        const float *w = work->w[0] + (pos - from);
        const int n = MIN(PAGE_TOKENS, to - pos);
        for (int t = 0; t < n; t++, key += key_bytes) {
            vec16 x[HEAD_VECTORS];
            UNROLL for (int i = 0; i < HEAD_VECTORS; i++) x[i] =
                widen16(type, key + (size_t)dim[i] * 2);
            UNROLL for (int h = 0; h < heads; h++) UNROLL for (int i = 0; i < HEAD_VECTORS; i++)
                sums[i][h] = fma16(all16(w[h * KV_BLOCK + t]), x[i], sums[i][h]);
        }
    }
    for (int pos = to; pos < end; pos++) {
        const uint8_t *key = attn_latent_key(g->a, pos);
        UNROLL for (int h = 0; h < heads; h++)
        {
            if (pos >= g->n_keys[h])
                continue;
            UNROLL for (int i = 0; i < HEAD_VECTORS; i++) sums[i][h] = fma16(
                all16(work->w[h][pos - from]), widen16(type, key + (size_t)dim[i] * 2), sums[i][h]);
        }
    }
    UNROLL for (int h = 0; h < heads; h++) UNROLL for (int i = 0; i < HEAD_VECTORS; i++)
        store16(g->out + (size_t)h * (size_t)g->value_dim16 + dim[i], sums[i][h]);
}

INLINE void add_values_latent(
    enum kv_type type, int heads, const struct head_group *g, int from, int end)
{
    for (int d = 0; d < g->value_dim16; d += 16 * HEAD_VECTORS) {
        int dim[HEAD_VECTORS];
        /* the last dimensions twice if there are no others */
        UNROLL for (int i = 0; i < HEAD_VECTORS; i++) dim[i] = MIN(d + 16 * i, g->value_dim16 - 16);
        add_dims_latent(type, heads, g, dim, from, end);
    }
}
#endif
