/* x86_attn_16bit.h: attention over F16 and BF16 pages for the AVX2 and AVX-512 sets, with lanes of
 * 16 keys for scores and of 16 dimensions for outputs.
 *
 * A 64-byte line is widened to two vectors once and multiplied with the numbers of each head. The
 * chains are those of ref_attn.c, one per lane; HEAD_VECTORS x GROUP_HEADS independent vectors of
 * chains make them fast. The values after the last key of the first head are added head by head,
 * to the heads that attend to them. A unit is 16 consecutive positions, or fewer if a page holds
 * fewer.
 *
 * Included only by x86_attn_block.h, which documents the definitions that it requires. */
#pragma once

#include "kernel/unroll.h"
#include "kernel/x86/x86_attn_softmax.h"

#ifdef GROUP_HEADS
/* Returns the queries of the range in adjacent memory: those of one row already are, those of
 * several rows are copied. */
static float *set_queries_16bit(
    struct head_group *g, const struct attn_args *a, const struct query_range *range, float *at)
{
    size_t n = (size_t)range->n_heads * (size_t)g->dim;

    g->q = at;
    g->q_head_bytes = (size_t)g->dim * sizeof(float);
    if (range->n_rows == 1) {
        g->q = attn_query(a, range->row, range->head);
        return at;
    }
    for (int i = 0; i < range->n_rows; i++, at += n)
        memcpy(at, attn_query(a, range->row + i, range->head), n * sizeof(float));
    return at;
}

/* ---- scores */

/* Computes scores, HEAD_VECTORS units at a time. Pages are not adjacent, so the hardware prefetcher
 * does not find the next one; software prefetch keeps memory busy: the keys of the next units into
 * L1, and the values of these units, which are read after the key block, into L2. */
INLINE void compute_scores_16bit(
    enum kv_type type, int heads, const struct head_group *g, int from, int to)
{
    const struct attn_args *a = g->a;
    const int last = (to - 1) / UNIT_KEYS * UNIT_KEYS;
    struct block_work *work = g->work;

    for (int pos = from; pos < to; pos += HEAD_VECTORS * UNIT_KEYS) {
        const uint8_t *k[HEAD_VECTORS], *v[HEAD_VECTORS], *next[HEAD_VECTORS];
        vec16 s[HEAD_VECTORS][GROUP_HEADS];

        UNROLL for (int i = 0; i < HEAD_VECTORS; i++)
        {
            /* the last unit twice if there is no other */
            int unit = MIN(pos + i * UNIT_KEYS, last);
            k[i] = attn_keys_of(a, unit);
            v[i] = attn_values_share(a, unit);
            next[i] = attn_keys_of(a, MIN(pos + (HEAD_VECTORS + i) * UNIT_KEYS, to - 1));
            UNROLL for (int h = 0; h < heads; h++) s[i][h] = all16(0);
        }
        for (int d = 0; d < g->dim; d += 2) {
            struct even_odd x[HEAD_VECTORS];
            UNROLL for (int i = 0; i < HEAD_VECTORS; i++)
            {
                x[i] = widen(type, k[i] + (size_t)d * 32);
                _mm_prefetch((const char *)next[i] + (size_t)d * 32, _MM_HINT_T0);
                _mm_prefetch((const char *)v[i] + (size_t)d * 32, _MM_HINT_T1);
            }
            UNROLL for (int h = 0; h < heads; h++)
            {
                const float *q = (const float *)g->q + (size_t)h * (size_t)g->dim + d;
                UNROLL for (int i = 0; i < HEAD_VECTORS; i++) s[i][h] =
                    fma16(all16(q[0]), x[i].even, s[i][h]);
                UNROLL for (int i = 0; i < HEAD_VECTORS; i++) s[i][h] =
                    fma16(all16(q[1]), x[i].odd, s[i][h]);
            }
        }
        UNROLL for (int h = 0; h < heads; h++) UNROLL for (int i = 0; i < HEAD_VECTORS; i++)
        {
            int unit = pos + i * UNIT_KEYS;
            if (unit < to)
                store_first16(&work->w[h][unit - from], MIN(UNIT_KEYS, to - unit),
                    mul16(s[i][h], all16(a->scale)));
        }
    }
}

/* ---- values */

/* One page's values of HEAD_VECTORS x 16 dimensions, and prefetch targets, one line per vector and
 * two tokens: the values of the next page, and keys of the next block. */
struct page_values {
    const uint8_t *v[HEAD_VECTORS];
    int n; /* number of tokens */
    const uint8_t *next, *keys;
};

/* Prefetches n lines of each target. */
INLINE void prefetch_lines(const struct page_values *p, int first, int n)
{
    UNROLL for (int i = first; i < first + n; i++)
    {
        _mm_prefetch((const char *)p->next + (size_t)i * 64, _MM_HINT_T0);
        _mm_prefetch((const char *)p->keys + (size_t)i * 64, _MM_HINT_T1);
    }
}

INLINE void add_page_values_16bit(enum kv_type type, int heads, const float *w,
    const struct page_values *p, vec16 sums[HEAD_VECTORS][GROUP_HEADS])
{
    if (PREFETCHES_PAGE)
        prefetch_lines(p, 0, HEAD_VECTORS * V_PAIRS);
    for (int t = 0; t < p->n; t += 2) {
        struct even_odd x[HEAD_VECTORS];
        UNROLL for (int i = 0; i < HEAD_VECTORS; i++) x[i] = widen(type, p->v[i] + (size_t)t * 32);
        if (!PREFETCHES_PAGE)
            prefetch_lines(p, t / 2 * HEAD_VECTORS, HEAD_VECTORS);
        UNROLL for (int h = 0; h < heads; h++) UNROLL for (int i = 0; i < HEAD_VECTORS; i++)
            sums[i][h] = fma16(all16(w[h * KV_BLOCK + t]), x[i].even, sums[i][h]);
        if (t + 1 == p->n)
            break;
        UNROLL for (int h = 0; h < heads; h++) UNROLL for (int i = 0; i < HEAD_VECTORS; i++)
            sums[i][h] = fma16(all16(w[h * KV_BLOCK + t + 1]), x[i].odd, sums[i][h]);
    }
}

/* Adds the values of one position, with lines v, to the heads that attend to it. */
INLINE void add_tail_values(enum kv_type type, int heads, const struct head_group *g, int pos,
    const uint8_t *v[HEAD_VECTORS], vec16 sums[HEAD_VECTORS][GROUP_HEADS])
{
    const struct block_work *work = g->work;
    vec16 x[HEAD_VECTORS];

    UNROLL for (int i = 0; i < HEAD_VECTORS; i++)
    {
        struct even_odd both = widen(type, v[i]);
        x[i] = pos % 2 ? both.odd : both.even;
    }
    UNROLL for (int h = 0; h < heads; h++)
    {
        if (pos >= g->n_keys[h])
            continue;
        UNROLL for (int i = 0; i < HEAD_VECTORS; i++) sums[i][h] =
            fma16(all16(work->w[h][pos % KV_BLOCK]), x[i], sums[i][h]);
    }
}

/* Adds the values of keys [from, end) to HEAD_VECTORS x 16 dimensions, which begin at dim[i]. */
INLINE void add_dims_16bit(enum kv_type type, int heads, const struct head_group *g,
    const int dim[HEAD_VECTORS], int from, int end)
{
    const struct block_work *work = g->work;
    int to = MIN(end, g->n_keys[0]); /* all heads attend to these keys */
    int last = g->n_keys[g->n - 1] - 1;
    const size_t at = (size_t)dim[0] * V_PAIRS * 4;
    vec16 sums[HEAD_VECTORS][GROUP_HEADS];

    UNROLL for (int h = 0; h < heads; h++) UNROLL for (int i = 0; i < HEAD_VECTORS; i++)
        sums[i][h] = load16(g->out + (size_t)h * (size_t)g->value_dim16 + dim[i]);
    for (int pos = from; pos < to; pos += PAGE_TOKENS) {
        const uint8_t *v = attn_values_of(g->a, pos);
        struct page_values p = { .n = MIN(PAGE_TOKENS, to - pos),
            .next = attn_values_of(g->a, MIN(pos + PAGE_TOKENS, to - 1)) + at,
            .keys = attn_keys_of(g->a, MIN(pos + KV_BLOCK, last)) + at };
        UNROLL for (int i = 0; i < HEAD_VECTORS; i++) p.v[i] = v + (size_t)dim[i] * V_PAIRS * 4;
        add_page_values_16bit(type, heads, work->w[0] + (pos - from), &p, sums);
    }
    for (int pos = to; pos < end; pos++) {
        const uint8_t *line = attn_values_of(g->a, pos) + (size_t)(pos % PAGE_TOKENS / 2) * 64;
        const uint8_t *v[HEAD_VECTORS];
        UNROLL for (int i = 0; i < HEAD_VECTORS; i++) v[i] = line + (size_t)dim[i] * V_PAIRS * 4;
        add_tail_values(type, heads, g, pos, v, sums);
    }
    UNROLL for (int h = 0; h < heads; h++) UNROLL for (int i = 0; i < HEAD_VECTORS; i++)
        store16(g->out + (size_t)h * (size_t)g->value_dim16 + dim[i], sums[i][h]);
}

INLINE void add_values_16bit(
    enum kv_type type, int heads, const struct head_group *g, int from, int end)
{
    for (int d = 0; d < g->value_dim16; d += 16 * HEAD_VECTORS) {
        int dim[HEAD_VECTORS];
        /* the last dimensions twice if there are no others */
        UNROLL for (int i = 0; i < HEAD_VECTORS; i++) dim[i] = MIN(d + 16 * i, g->value_dim16 - 16);
        add_dims_16bit(type, heads, g, dim, from, end);
    }
}
#endif
