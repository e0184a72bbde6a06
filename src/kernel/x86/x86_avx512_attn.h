/* x86_avx512_attn.h: declarations shared by x86_avx512_attn.c, the q8_0 arithmetic
 * (x86_avx512_attn_q8.c) and attention with AMX tiles (x86_amx_attn.c). Included only by these
 * files. */
#pragma once

#include "kernel/acts.h"
#include "kernel/unroll.h"
#include "kernel/x86/x86_avx512.h"

#include <math.h>

enum {
    GROUP_HEADS = 8, /* query heads, of one or several rows, that share loaded keys and values */
    UNIT_KEYS = (int)PAGE_TOKENS < (int)KV_GROUP ? (int)PAGE_TOKENS : (int)KV_GROUP,
    /* pairs of tokens in the layout of a page */
    V_PAIRS = ((int)PAGE_TOKENS + KV_GROUP - 1) / KV_GROUP * KV_GROUP / 2,
};

/* Group of query heads, row by row: pointers into the caller's scratch. */
struct head_group {
    const struct attn_args *a;
    int n;                   /* heads, 1 .. GROUP_HEADS */
    int n_keys[GROUP_HEADS]; /* number of keys of each head; ascending */
    int dim, dim16;          /* head dimension, and rounded up to 16 */
    const float *q;          /* [n][dim] */
    float *w;                /* [n][KV_BLOCK] scores, then weights */
    float *max, *sum;
    float *out; /* [n][dim16] */

    /* only for q8_0 */
    struct act_q8_0 *q8; /* [n][n_blocks]: quantised queries */
    int16_t *u;          /* [n][KV_BLOCK]: weights as integers */
};

/* q8_0: functions on keys [from, to) of one key block. n_blocks: blocks of 32 dimensions per
 * head. */
void avx512_q8_append(const struct kv_slot *slot, const float *k, const float *v);
void avx512_q8_queries(const struct head_group *g);
void avx512_q8_scores(const struct head_group *g, int from, int to);
void avx512_q8_values(const struct head_group *g, int from, int to);

#ifdef __AVX512F__
static inline const uint8_t *attn_block_of(const struct attn_args *a, int pos)
{
    const struct kv_layout *l = a->layout;
    size_t block = (size_t)a->layer * (size_t)l->n_kv_heads + (size_t)a->kv_head;

    return a->arena + a->pages[pos / PAGE_TOKENS].i * l->page_bytes +
           block * (l->k_bytes + l->v_bytes);
}

/* Keys of the group of 16 tokens that contains `pos`. */
static inline const uint8_t *attn_keys_of(const struct attn_args *a, int pos)
{
    size_t group = (size_t)(a->layout->head_dim + 31) / 32 * 1024;

    return attn_block_of(a, pos) + (size_t)(pos % PAGE_TOKENS / KV_GROUP) * group;
}

/* Values of the page that contains `pos`. */
static inline const uint8_t *attn_values_of(const struct attn_args *a, int pos)
{
    return attn_block_of(a, pos) + a->layout->k_bytes;
}

/* The share of a key group in the values of its page, as many lines as the group has lines of keys:
 * it is prefetched while the scores are computed. */
static inline const uint8_t *attn_values_share(const struct attn_args *a, int pos)
{
    size_t lines = ((size_t)a->layout->head_dim + 15) / 16 * 16 / 2;

    return attn_values_of(a, pos) + (size_t)(pos % PAGE_TOKENS / KV_GROUP) * lines * 64;
}

static inline float attn_exp(float x)
{
    return _mm512_cvtss_f32(exp16(_mm512_set1_ps(x)));
}

/* Merges the later split into the earlier one (total). */
static inline void attn_merge(struct attn_state total, struct attn_state split, int dim)
{
    float a = *total.max, b = *split.max, max = b > a ? b : a;
    float total_factor = attn_exp(a - max), split_factor = attn_exp(b - max);

    *total.max = max;
    *total.sum = fmaf(*split.sum, split_factor, *total.sum * total_factor);
    for (int d = 0; d < dim; d += 16) {
        __m512 v = _mm512_mul_ps(_mm512_loadu_ps(total.out + d), _mm512_set1_ps(total_factor));
        v = _mm512_fmadd_ps(_mm512_loadu_ps(split.out + d), _mm512_set1_ps(split_factor), v);
        _mm512_storeu_ps(total.out + d, v);
    }
}
#endif
