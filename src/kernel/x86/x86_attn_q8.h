/* x86_attn_q8.h: keys and scores of q8_0 pages for the AVX2 and AVX-512 sets. Sixteen keys are a
 * panel of Q8_0 weights, and a query is an activation row: a score is one int8 dot product per four
 * dimensions and one fma per 32.
 *
 * Included only by x86_attn_block.h, which documents the definitions that it requires. */
#pragma once

#include "kernel/acts.h"
#include "kernel/blocks.h"
#include "kernel/unroll.h"
#include "kernel/x86/x86_attn_softmax.h"

#ifdef GROUP_HEADS
INLINE int n_blocks_of(int dim)
{
    return (dim + Q8_0_BLOCK - 1) / Q8_0_BLOCK;
}

/* Quantises one head; the last block is padded with zeros. */
static void quantise_head(const float *x, int dim, struct act_q8_0 *out)
{
    int whole = dim / Q8_0_BLOCK * Q8_0_BLOCK;
    float rest[Q8_0_BLOCK] = { 0 };

    quantise_q8_0(x, whole, out);
    if (whole == dim)
        return;
    memcpy(rest, x + whole, (size_t)(dim - whole) * sizeof(float));
    quantise_q8_0(rest, Q8_0_BLOCK, out + whole / Q8_0_BLOCK);
}

static uint16_t f32_to_f16_bits(float f)
{
    return (uint16_t)_mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(f), 0));
}

static void append_q8(const struct kv_slot *slot, const float *k, const float *v)
{
    const struct kv_layout *l = slot->layout;
    const __m256i top = _mm256_set1_epi8((char)0x80);
    int dim = l->head_dim, n = n_blocks_of(dim), token = slot->token, row = token % KV_GROUP;
    struct p16_q8_0 *kp = (struct p16_q8_0 *)(void *)slot->k + token / KV_GROUP * n;
    uint8_t *vp = slot->v + token / 2 * 32 + token % 2;
    uint16_t *scales = (uint16_t *)(void *)(slot->v + l->v_scales);
    struct act_q8_0 key[KV_MAX_DIM / Q8_0_BLOCK], value[KV_MAX_DIM / Q8_0_BLOCK];
    uint8_t q[Q8_0_BLOCK];

    quantise_head(k, dim, key);
    for (int b = 0; b < n; b++) {
        __m256i u = _mm256_loadu_si256((const __m256i *)(const void *)key[b].q);
        _mm256_storeu_si256((__m256i *)(void *)q, _mm256_xor_si256(u, top));
        for (int i = 0; i < Q8_0_BLOCK / 4; i++)
            memcpy(kp[b].q[i][row], q + 4 * i, 4);
        kp[b].d[row] = f32_to_f16_bits(key[b].d);
    }
    if (l->is_latent)
        return;
    quantise_head(v, l->value_dim, value);
    for (int b = 0; b < n_blocks_of(l->value_dim); b++)
        scales[b * 2 * V_PAIRS + token] = f32_to_f16_bits(value[b].d);
    for (int d = 0; d < l->value_dim; d++)
        vp[(size_t)(d / 16) * V_PAIRS * 32 + (size_t)(d % 16) * 2] =
            (uint8_t)value[d / Q8_0_BLOCK].q[d % Q8_0_BLOCK];
}

static float *set_queries_q8(
    struct head_group *g, const struct attn_args *a, const struct query_range *range, float *at)
{
    int n = n_blocks_of(g->dim);
    struct act_q8_0 *to = (struct act_q8_0 *)(void *)at;

    g->q = to;
    g->q_head_bytes = (size_t)n * sizeof(*to);
    for (int i = 0; i < g->n; i++, to += n)
        quantise_head(
            attn_query(a, range->row + i / range->n_heads, range->head + i % range->n_heads),
            g->dim, to);
    return (float *)(void *)to;
}

/* ---- scores */

INLINE const struct p16_q8_0 *q8_keys_of(const struct head_group *g, int pos)
{
    return (const struct p16_q8_0 *)(const void *)attn_block_of(g->a, pos) +
           pos % PAGE_TOKENS / KV_GROUP * n_blocks_of(g->dim);
}

/* One block of 16 keys, and prefetch targets: keys of the next unit, and values of this unit, which
 * are read after the key block; in latent attention keys of the unit after the next one. */
struct score_block {
    const struct p16_q8_0 *k, *next_k;
    const uint8_t *v;
};

/* Adds the products of SCORE_KEYS keys (part 0 or 1 of 16) and one block of each head's query. */
INLINE void add_score_block(int heads, struct score_block b, int part, const struct act_q8_0 *q,
    int n_blocks, score_vec acc[GROUP_HEADS])
{
    score_ivec sum[GROUP_HEADS];
    score_vec dk = load_key_scales(b.k->d + part * SCORE_KEYS);

    UNROLL for (int h = 0; h < heads; h++) sum[h] = start_key_dot(&q[h * n_blocks]);
    UNROLL for (int i = 0; i < 8; i++)
    {
        struct key_bytes x = load_key_bytes(b.k->q[i][part * SCORE_KEYS]);
        if (part == 0) {
            _mm_prefetch((const char *)b.next_k->q[i], _MM_HINT_T0);
            _mm_prefetch((const char *)b.v + 64 * i, _MM_HINT_T1);
        }
        UNROLL for (int h = 0; h < heads; h++)
        {
            int32_t four;
            memcpy(&four, q[h * n_blocks].q + 4 * i, 4);
            sum[h] = add_key_dot(sum[h], x, four);
        }
    }
    UNROLL for (int h = 0; h < heads; h++) acc[h] =
        add_scaled_dot(acc[h], dk, q[h * n_blocks].d, sum[h]);
}

INLINE void compute_scores_q8(int heads, const struct head_group *g, int from, int to)
{
    const int n = n_blocks_of(g->dim);
    const struct act_q8_0 *q = g->q;
    struct block_work *work = g->work;

    for (int pos = from; pos < to; pos += UNIT_KEYS) {
        UNROLL for (int part = 0; part < KV_GROUP / SCORE_KEYS; part++)
        {
            struct score_block b = { q8_keys_of(g, pos),
                q8_keys_of(g, MIN(pos + UNIT_KEYS, to - 1)),
                g->a->layout->is_latent
                    ? q8_keys_of(g, MIN(pos + 2 * UNIT_KEYS, to - 1))->q[0][0]
                    : attn_values_of(g->a, pos) + pos % PAGE_TOKENS / KV_GROUP * n * 512 };
            int first = part * SCORE_KEYS, n_keys = MIN(UNIT_KEYS, to - pos) - first;
            score_vec acc[GROUP_HEADS];
            if (n_keys <= 0)
                break;
            UNROLL for (int h = 0; h < heads; h++) acc[h] = no_scores();
            for (int i = 0; i < n; i++, b.k++, b.next_k++, b.v += 512)
                add_score_block(heads, b, part, q + i, n, acc);
            UNROLL for (int h = 0; h < heads; h++)
                store_scores(&work->w[h][pos + first - from], n_keys, acc[h], g->a->scale);
        }
    }
}
#endif
