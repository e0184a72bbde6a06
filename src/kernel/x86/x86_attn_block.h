/* x86_attn_block.h: attention of the AVX2 and AVX-512 sets; x86_avx2_attn.c and x86_avx512_attn.c
 * compile it with vectors of different width. Such a file first includes its vector operations
 * (x86_avx2_vec16.h or x86_avx512_vec16.h), defines the operations of q8_0, and defines:
 *
 *   GROUP_HEADS           query heads that share loaded keys and values
 *   HEAD_VECTORS          vectors of 16 sums per head in registers, 1 or 2
 *   EACH_HEAD_COUNT(F)    F(1) .. F(GROUP_HEADS)
 *   PREFETCHES_PAGE       1: 16-bit values of the next page are prefetched before a page is read,
 *                         0: line by line while the page is read
 *   SCORE_KEYS            keys per vector in scores of q8_0 pages, 8 or 16 */
#pragma once

#include "kernel/x86/x86_attn_16bit.h"
#include "kernel/x86/x86_attn_append.h"
#include "kernel/x86/x86_attn_latent.h"
#include "kernel/x86/x86_attn_q8_values.h"
#include "kernel/x86/x86_attn_state.h"

#ifdef GROUP_HEADS
static void append(const struct kv_slot *slot, const float *k, const float *v)
{
    (slot->layout->type == KV_Q8_0 ? append_q8 : append_16bit)(slot, k, v);
}

INLINE void attend_16bit(enum kv_type type, int heads, const struct head_group *g, int from, int to)
{
    compute_scores_16bit(type, heads, g, from, to);
    softmax_heads(g, from, to);
    add_values_16bit(type, heads, g, from, to);
}

INLINE void attend_latent(
    enum kv_type type, int heads, const struct head_group *g, int from, int to)
{
    compute_scores_latent(type, heads, g, from, to);
    softmax_heads(g, from, to);
    add_values_latent(type, heads, g, from, to);
}

INLINE void attend_q8(int heads, const struct head_group *g, int from, int to)
{
    compute_scores_q8(heads, g, from, to);
    softmax_heads(g, from, to);
    add_values_q8(heads, g, from, to);
}

#define FOR_HEADS(n)                                                                               \
    static void f16_##n(const struct head_group *g, int from, int to)                              \
    {                                                                                              \
        attend_16bit(KV_F16, n, g, from, to);                                                      \
    }                                                                                              \
    static void bf16_##n(const struct head_group *g, int from, int to)                             \
    {                                                                                              \
        attend_16bit(KV_BF16, n, g, from, to);                                                     \
    }                                                                                              \
    static void latent_f16_##n(const struct head_group *g, int from, int to)                       \
    {                                                                                              \
        attend_latent(KV_F16, n, g, from, to);                                                     \
    }                                                                                              \
    static void latent_bf16_##n(const struct head_group *g, int from, int to)                      \
    {                                                                                              \
        attend_latent(KV_BF16, n, g, from, to);                                                    \
    }                                                                                              \
    static void q8_0_##n(const struct head_group *g, int from, int to)                             \
    {                                                                                              \
        attend_q8(n, g, from, to);                                                                 \
    }
#define F16_ENTRY(n)         f16_##n,
#define BF16_ENTRY(n)        bf16_##n,
#define LATENT_F16_ENTRY(n)  latent_f16_##n,
#define LATENT_BF16_ENTRY(n) latent_bf16_##n,
#define Q8_0_ENTRY(n)        q8_0_##n,

EACH_HEAD_COUNT(FOR_HEADS)

typedef void (*block_fn)(const struct head_group *g, int from, int to);

static const block_fn block_fns[N_KV_TYPES][GROUP_HEADS] = {
    { EACH_HEAD_COUNT(F16_ENTRY) },
    { EACH_HEAD_COUNT(BF16_ENTRY) },
    { EACH_HEAD_COUNT(Q8_0_ENTRY) },
};

static const block_fn latent_block_fns[N_KV_TYPES][GROUP_HEADS] = {
    { EACH_HEAD_COUNT(LATENT_F16_ENTRY) },
    { EACH_HEAD_COUNT(LATENT_BF16_ENTRY) },
    { EACH_HEAD_COUNT(Q8_0_ENTRY) },
};

static void attend_block(const struct head_group *g, int from, int to)
{
    const struct kv_layout *l = g->a->layout;

    (l->is_latent ? latent_block_fns : block_fns)[l->type][g->n - 1](g, from, to);
}

static float *set_queries(
    struct head_group *g, const struct attn_args *a, const struct query_range *range, float *at)
{
    return (a->layout->type == KV_Q8_0 ? set_queries_q8 : set_queries_16bit)(g, a, range, at);
}

static void write_output(struct attn_state total, float *out, int dim)
{
    for (int d = 0; d < dim; d += 16)
        store_first16(out + d, dim - d, mul16(load16(total.out + d), all16(1.0f / *total.sum)));
}

static void attend(const struct attn_args *a)
{
    static const struct attn_set set = { .max_heads = GROUP_HEADS,
        .set_queries = set_queries,
        .attend_block = attend_block,
        .merge = merge_states,
        .finish = write_output };
    struct block_work *work = attn_align(a->scratch);

    attn_attend(&set, a, work, (float *)(void *)(work + 1));
}
#endif
