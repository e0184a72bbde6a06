/* x86_avx2_attn.h: declarations shared by x86_avx2_attn.c and the q8_0 arithmetic
 * (x86_avx2_attn_q8.c). Included only by these two files. */
#pragma once

#include "kernel/acts.h"
#include "kernel/unroll.h"
#include "kernel/x86/x86_avx2.h"

enum {
    GROUP_HEADS = 4, /* query heads that share loaded keys and values */
    UNIT_KEYS = (int)PAGE_TOKENS < (int)KV_GROUP ? (int)PAGE_TOKENS : (int)KV_GROUP,
    /* pairs of tokens in the layout of a page */
    V_PAIRS = ((int)PAGE_TOKENS + KV_GROUP - 1) / KV_GROUP * KV_GROUP / 2,
};

/* Group of query heads: pointers into the caller's scratch. */
struct head_group {
    const struct attn_args *a;
    int n;          /* heads, 1 .. GROUP_HEADS */
    int dim, dim16; /* head dimension, and rounded up to 16 */
    const float *q; /* [n][dim] */
    float *w;       /* [n][KV_BLOCK] scores, then weights */
    float *max, *sum;
    float *out; /* [n][dim16] */

    /* only for q8_0 */
    struct act_q8_0 *q8; /* [n][n_blocks]: quantised queries */
    int16_t *u;          /* [n][KV_BLOCK]: weights as integers */
};

/* q8_0: functions on keys [from, to) of one key block. */
void avx2_q8_append(const struct kv_slot *slot, const float *k, const float *v);
void avx2_q8_queries(const struct head_group *g);
void avx2_q8_scores(const struct head_group *g, int from, int to);
void avx2_q8_values(const struct head_group *g, int from, int to);

#ifdef __AVX2__
static inline const uint8_t *attn_block_of(const struct attn_args *a, int pos)
{
    const struct kv_layout *l = a->layout;
    size_t block = (size_t)a->layer * (size_t)l->n_kv_heads + (size_t)a->kv_head;

    return a->arena + a->pages[pos / PAGE_TOKENS].i * l->page_bytes +
           block * (l->k_bytes + l->v_bytes);
}
#endif
