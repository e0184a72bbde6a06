/* x86_avx512_attn.c: attention with lanes of 16 keys for scores and 16 dimensions for outputs.
 *
 * All query heads of a group, of some rows where the group is small (HEADS together), share every
 * key and value that is read: a 64-byte line is widened to two vectors once and multiplied by each
 * head's numbers. The chains are those of ref_attn.c, one per lane; what makes them fast is that
 * 2 x HEADS of them run side by side. Rows that go together end in the same block of keys: there
 * the values behind the first row's last key are added head by head, to those that see them.
 *
 * A unit is the 16 positions of a group, fewer where a page holds fewer. */
#ifndef __AVX512F__
#error "compile with the AVX-512 flags of the Makefile"
#endif

#include "kernel/x86/x86_avx512_attn.h"

#include <math.h>

/* ---- appending */

static inline __m256i narrow16(enum kv_type type, __m512 v)
{
    if (type == KV_F16)
        return _mm512_cvtps_ph(v, 0);
    __m512i u = _mm512_castps_si512(v);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    rounded = _mm512_mask_or_epi32(rounded, nan, u, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}

void avx512_kv_append(const struct kv_slot *slot, const float *k, const float *v)
{
    const struct kv_layout *l = slot->layout;
    int dim = l->head_dim, token = slot->token;
    size_t groups = (size_t)(dim + 31) / 32;
    uint8_t *to_k = slot->k + (size_t)(token / 16) * groups * 1024 + (size_t)(token % 16) * 4;
    uint8_t *to_v = slot->v + (size_t)(token / 2) * 64 + (size_t)(token % 2) * 2;
    uint16_t h[16];

    if (l->type == KV_Q8_0) {
        avx512_q8_append(slot, k, v);
        return;
    }
    for (int d = 0; d < dim; d += 16) {
        __mmask16 here = first_lanes(MIN(16, dim - d));
        __m256i *at = (__m256i *)(void *)h;
        _mm256_storeu_si256(at, narrow16(l->type, _mm512_maskz_loadu_ps(here, k + d)));
        for (int i = 0; i < MIN(16, dim - d); i += 2) /* a pair of d is a line */
            memcpy(to_k + (size_t)(d + i) * 32, h + i, 4);
        _mm256_storeu_si256(at, narrow16(l->type, _mm512_maskz_loadu_ps(here, v + d)));
        for (int i = 0; i < MIN(16, dim - d); i++)
            memcpy(to_v + (size_t)(d / 16) * V_PAIRS * 64 + (size_t)i * 4, h + i, 2);
    }
}

/* ---- reading */

struct two {
    __m512 even, odd;
};

/* 16 pairs of 16-bit floats, the first and the second of each apart. */
INLINE struct two widen(enum kv_type type, const uint8_t *line)
{
    __m512i v = _mm512_loadu_si512(line);

    if (type == KV_BF16)
        return (struct two){ _mm512_castsi512_ps(_mm512_slli_epi32(v, 16)),
            _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32((int)0xffff0000))) };
    const __m512i apart = _mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3,
        1, 30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    v = _mm512_permutexvar_epi16(apart, v);
    return (struct two){ _mm512_cvtph_ps(_mm512_castsi512_si256(v)),
        _mm512_cvtph_ps(_mm512_extracti64x4_epi64(v, 1)) };
}

/* Scores of two units at a time. Pages lie anywhere, where the hardware does not look, and memory
 * should never have nothing to do: meanwhile the keys of the units after them are fetched into the
 * first cache, and the values of these two, whose turn comes behind the block, into the second. */
INLINE void scores(enum kv_type type, int heads, const struct group *g, int from, int to)
{
    const struct attn_args *a = g->a;

    for (int pos = from; pos < to; pos += 2 * UNIT) {
        int second = MIN(pos + UNIT, (to - 1) / UNIT * UNIT);
        const uint8_t *k0 = attn_keys_of(a, pos), *k1 = attn_keys_of(a, second);
        const uint8_t *v0 = attn_values_beside(a, pos), *v1 = attn_values_beside(a, second);
        const uint8_t *next0 = attn_keys_of(a, MIN(pos + 2 * UNIT, to - 1));
        const uint8_t *next1 = attn_keys_of(a, MIN(pos + 3 * UNIT, to - 1));
        __m512 s0[HEADS], s1[HEADS];

        UNROLL for (int h = 0; h < heads; h++) s0[h] = s1[h] = _mm512_setzero_ps();
        for (int d = 0; d < g->dim; d += 2) {
            size_t at = (size_t)d * 32;
            struct two x = widen(type, k0 + at), y = widen(type, k1 + at);
            _mm_prefetch((const char *)next0 + at, _MM_HINT_T0);
            _mm_prefetch((const char *)next1 + at, _MM_HINT_T0);
            _mm_prefetch((const char *)v0 + at, _MM_HINT_T1);
            _mm_prefetch((const char *)v1 + at, _MM_HINT_T1);
            UNROLL for (int h = 0; h < heads; h++)
            {
                const float *q = g->q + (size_t)h * (size_t)g->dim + d;
                s0[h] = _mm512_fmadd_ps(_mm512_set1_ps(q[0]), x.even, s0[h]);
                s1[h] = _mm512_fmadd_ps(_mm512_set1_ps(q[0]), y.even, s1[h]);
                s0[h] = _mm512_fmadd_ps(_mm512_set1_ps(q[1]), x.odd, s0[h]);
                s1[h] = _mm512_fmadd_ps(_mm512_set1_ps(q[1]), y.odd, s1[h]);
            }
        }
        __m512 scale = _mm512_set1_ps(a->scale);
        UNROLL for (int h = 0; h < heads; h++)
        {
            float *w = g->w + (size_t)h * KV_BLOCK + (pos - from);
            _mm512_mask_storeu_ps(w, first_lanes(MIN(UNIT, to - pos)), _mm512_mul_ps(s0[h], scale));
            if (second > pos)
                _mm512_mask_storeu_ps(
                    w + UNIT, first_lanes(MIN(UNIT, to - second)), _mm512_mul_ps(s1[h], scale));
        }
    }
}

/* Scores become weights; what was summed before is scaled to the new maximum. */
static void weigh(const struct group *g, int h, int n, bool is_first)
{
    const __m512 lowest = _mm512_set1_ps(-INFINITY);
    float *w = g->w + (size_t)h * KV_BLOCK, *out = g->out + (size_t)h * (size_t)g->dim16;
    float old = is_first ? -INFINITY : g->max[h];
    __m512 top = _mm512_set1_ps(old), lanes = _mm512_setzero_ps();

    for (int i = 0; i < n; i += 16)
        top = _mm512_max_ps(_mm512_mask_loadu_ps(lowest, first_lanes(MIN(16, n - i)), w + i), top);
    float max = _mm512_reduce_max_ps(top);
    for (int i = 0; i < n; i += 16) {
        __mmask16 here = first_lanes(MIN(16, n - i));
        __m512 v = _mm512_sub_ps(_mm512_maskz_loadu_ps(here, w + i), _mm512_set1_ps(max));
        v = _mm512_maskz_mov_ps(here, exp16(v));
        _mm512_mask_storeu_ps(w + i, here, v);
        lanes = _mm512_add_ps(lanes, v);
    }
    g->max[h] = max;
    if (is_first) {
        g->sum[h] = fold16(lanes);
        memset(out, 0, (size_t)g->dim16 * sizeof(float));
        return;
    }
    __m512 shrink = exp16(_mm512_set1_ps(old - max));
    g->sum[h] = fmaf(g->sum[h], _mm512_cvtss_f32(shrink), fold16(lanes));
    for (int d = 0; d < g->dim16; d += 16)
        _mm512_storeu_ps(out + d, _mm512_mul_ps(_mm512_loadu_ps(out + d), shrink));
}

struct tail { /* a position, and the lines that hold its values */
    int pos;
    const uint8_t *v[2];
};

/* One page's values of 32 dimensions, and what is fetched meanwhile, two lines for two tokens: the
 * next page's values, and keys of the next block. */
struct page {
    const uint8_t *v[2]; /* dimensions d .. d + 15 and (second) d + 16 .. d + 31 */
    int n;               /* tokens */
    const uint8_t *next, *keys;
};

INLINE void add_page(
    enum kv_type type, int heads, const float *w, const struct page *p, __m512 sums[2][HEADS])
{
    const int n = p->n;

    for (int t = 0; t < n; t += 2) {
        struct two x = widen(type, p->v[0] + (size_t)t * 32);
        struct two y = widen(type, p->v[1] + (size_t)t * 32);
        UNROLL for (int i = 0; i < 2; i++)
        {
            _mm_prefetch((const char *)p->next + (t + i) * 64, _MM_HINT_T0);
            _mm_prefetch((const char *)p->keys + (t + i) * 64, _MM_HINT_T1);
        }
        UNROLL for (int h = 0; h < heads; h++)
        {
            __m512 weight = _mm512_set1_ps(w[h * KV_BLOCK + t]);
            sums[0][h] = _mm512_fmadd_ps(weight, x.even, sums[0][h]);
            sums[1][h] = _mm512_fmadd_ps(weight, y.even, sums[1][h]);
        }
        if (t + 1 == n)
            break;
        UNROLL for (int h = 0; h < heads; h++)
        {
            __m512 weight = _mm512_set1_ps(w[h * KV_BLOCK + t + 1]);
            sums[0][h] = _mm512_fmadd_ps(weight, x.odd, sums[0][h]);
            sums[1][h] = _mm512_fmadd_ps(weight, y.odd, sums[1][h]);
        }
    }
}

/* The values of one position, to the heads that attend to it. */
INLINE void add_one(enum kv_type type, int heads, const struct group *g, const struct tail *at,
    __m512 sums[2][HEADS])
{
    struct two x = widen(type, at->v[0]), y = widen(type, at->v[1]);
    bool is_odd = at->pos % 2;
    __m512 v0 = is_odd ? x.odd : x.even, v1 = is_odd ? y.odd : y.even;

    UNROLL for (int h = 0; h < heads; h++)
    {
        if (at->pos >= g->n_keys[h])
            continue;
        __m512 p = _mm512_set1_ps(g->w[h * KV_BLOCK + at->pos % KV_BLOCK]);
        sums[0][h] = _mm512_fmadd_ps(p, v0, sums[0][h]);
        sums[1][h] = _mm512_fmadd_ps(p, v1, sums[1][h]);
    }
}

INLINE void values(enum kv_type type, int heads, const struct group *g, int from, int end)
{
    int to = MIN(end, g->n_keys[0]); /* all attend to these */
    int last = g->n_keys[g->n - 1] - 1;

    for (int d = 0; d < g->dim16; d += 32) {
        int second = MIN(d + 16, g->dim16 - 16); /* the same again where there is no other */
        __m512 sums[2][HEADS];

        UNROLL for (int h = 0; h < heads; h++)
        {
            sums[0][h] = _mm512_loadu_ps(g->out + (size_t)h * (size_t)g->dim16 + d);
            sums[1][h] = _mm512_loadu_ps(g->out + (size_t)h * (size_t)g->dim16 + second);
        }
        for (int pos = from; pos < to; pos += PAGE_TOKENS) {
            const size_t at = (size_t)d * V_PAIRS * 4;
            const uint8_t *v = attn_values_of(g->a, pos);
            struct page p = { { v + at, v + (size_t)second * V_PAIRS * 4 },
                MIN(PAGE_TOKENS, to - pos),
                attn_values_of(g->a, MIN(pos + PAGE_TOKENS, to - 1)) + at,
                attn_keys_of(g->a, MIN(pos + KV_BLOCK, last)) + at };
            add_page(type, heads, g->w + (pos - from), &p, sums);
        }
        for (int pos = to; pos < end; pos++) {
            const uint8_t *line = attn_values_of(g->a, pos) + (size_t)(pos % PAGE_TOKENS / 2) * 64;
            struct tail at = { pos,
                { line + (size_t)d * V_PAIRS * 4, line + (size_t)second * V_PAIRS * 4 } };
            add_one(type, heads, g, &at, sums);
        }
        UNROLL for (int h = 0; h < heads; h++)
        {
            _mm512_storeu_ps(g->out + (size_t)h * (size_t)g->dim16 + d, sums[0][h]);
            _mm512_storeu_ps(g->out + (size_t)h * (size_t)g->dim16 + second, sums[1][h]);
        }
    }
}

INLINE void block(enum kv_type type, int heads, const struct group *g, int from, int to)
{
    scores(type, heads, g, from, to);
    for (int h = 0; h < heads; h++)
        weigh(g, h, MIN(to, g->n_keys[h]) - from, from % KV_SPLIT == 0);
    values(type, heads, g, from, to);
}

#define BLOCK(n)                                                                                   \
    static void f16_##n(const struct group *g, int from, int to)                                   \
    {                                                                                              \
        block(KV_F16, n, g, from, to);                                                             \
    }                                                                                              \
    static void bf16_##n(const struct group *g, int from, int to)                                  \
    {                                                                                              \
        block(KV_BF16, n, g, from, to);                                                            \
    }
BLOCK(1)
BLOCK(2)
BLOCK(3)
BLOCK(4)
BLOCK(5)
BLOCK(6)
BLOCK(7)
BLOCK(8)

typedef void (*block_fn)(const struct group *g, int from, int to);

static void q8_0_n(const struct group *g, int from, int to)
{
    avx512_q8_scores(g, from, to);
    for (int h = 0; h < g->n; h++)
        weigh(g, h, MIN(to, g->n_keys[h]) - from, from % KV_SPLIT == 0);
    avx512_q8_values(g, from, to);
}

static const block_fn block_fns[N_KV_TYPES][HEADS] = {
    { f16_1, f16_2, f16_3, f16_4, f16_5, f16_6, f16_7, f16_8 },
    { bf16_1, bf16_2, bf16_3, bf16_4, bf16_5, bf16_6, bf16_7, bf16_8 },
    { q8_0_n, q8_0_n, q8_0_n, q8_0_n, q8_0_n, q8_0_n, q8_0_n, q8_0_n },
};

static struct attn_state state_of(const struct group *g, int h)
{
    return (struct attn_state){ g->max + h, g->sum + h, g->out + (size_t)h * (size_t)g->dim16 };
}

static void merge(const struct group *total, const struct group *split)
{
    for (int h = 0; h < total->n; h++)
        attn_merge(state_of(total, h), state_of(split, h), total->dim);
}

static void finish_head(struct attn_state total, float *out, int dim)
{
    for (int d = 0; d < dim; d += 16) {
        __m512 v = _mm512_loadu_ps(total.out + d);
        v = _mm512_mul_ps(v, _mm512_set1_ps(1.0f / *total.sum));
        _mm512_mask_storeu_ps(out + d, first_lanes(MIN(16, dim - d)), v);
    }
}

/* `part` says which rows and heads the group has. */
struct part {
    int row, n_rows, head, n_heads;
};

/* A group with its two states: of the splits so far, and of the one under way. */
struct pair {
    struct group total, split;
};

static size_t at_row(const struct attn_args *a, int row)
{
    return a->rows ? (size_t)a->rows[row].at : (size_t)row;
}

static void finish(const struct group *g, const struct attn_args *a, const struct part *p)
{
    for (int i = 0; i < g->n; i++) {
        float *out = a->out + at_row(a, p->row + i / p->n_heads) * a->out_stride +
                     (size_t)(p->head + i % p->n_heads) * (size_t)g->dim;
        finish_head(state_of(g, i), out, g->dim);
    }
}

/* The queries side by side: those of one row are, several rows' are copied. */
static const float *gather(const struct attn_args *a, const struct part *p, float *to)
{
    const float *q = a->q + (size_t)p->head * (size_t)a->layout->head_dim;
    size_t n = (size_t)p->n_heads * (size_t)a->layout->head_dim;

    if (p->n_rows == 1)
        return q + at_row(a, p->row) * a->q_stride;
    for (int i = 0; i < p->n_rows; i++)
        memcpy(to + (size_t)i * n, q + at_row(a, p->row + i) * a->q_stride, n * sizeof(float));
    return to;
}

/* The scratch begins with what groups use in turns: scores and weights of HEADS heads. */
static float *scratch_of(const struct attn_args *a)
{
    return (float *)(void *)(((uintptr_t)a->scratch + 63) & ~(uintptr_t)63);
}

static float *states_of(const struct attn_args *a)
{
    return scratch_of(a) + HEADS * (KV_BLOCK + KV_BLOCK / 2);
}

/* Sets a group up, its states at `at`; returns where the next may have theirs. */
static float *open_pair(struct pair *g, const struct attn_args *a, const struct part *p, float *at)
{
    int dim = a->layout->head_dim, dim16 = (dim + 15) / 16 * 16, n = p->n_rows * p->n_heads;
    size_t n_out = (size_t)n * (size_t)dim16;
    float *w = scratch_of(a);

    at = (float *)(void *)(((uintptr_t)at + 63) & ~(uintptr_t)63);
    g->total = (struct group){ .a = a, .n = n, .dim = dim, .dim16 = dim16, .w = w };
    g->total.u = (int16_t *)(void *)(w + HEADS * KV_BLOCK);
    g->split = g->total;
    g->total.out = at;
    g->split.out = at + n_out;
    g->total.max = g->split.out + n_out;
    g->total.sum = g->total.max + n;
    g->split.max = g->total.sum + n;
    g->split.sum = g->split.max + n;
    at = g->split.sum + n;
    g->total.q = g->split.q = gather(a, p, at);
    at += (size_t)n * (size_t)dim;
    if (a->layout->type == KV_Q8_0) {
        g->total.q8 = g->split.q8 = (struct act_q8_0 *)(void *)at;
        avx512_q8_queries(&g->total);
        at = (float *)(void *)(g->total.q8 + n * ((dim + Q8_0_BLOCK - 1) / Q8_0_BLOCK));
    }
    return at;
}

/* Keys [from, to), of which `from` begins a block; is_end: there are no more. */
static void walk(const struct pair *g, int from, int to, bool is_end)
{
    const struct group *total = &g->total, *split = &g->split;
    const block_fn fn = block_fns[total->a->layout->type][total->n - 1];

    for (int b = from; b < to; b += KV_BLOCK) {
        fn(b < KV_SPLIT ? total : split, b, MIN(b + KV_BLOCK, to));
        bool ends = (b + KV_BLOCK) % KV_SPLIT == 0 || (is_end && b + KV_BLOCK >= to);
        if (b >= KV_SPLIT && ends)
            merge(total, split);
    }
}

static void set_keys(struct pair *g, int i, int n_keys)
{
    g->total.n_keys[i] = g->split.n_keys[i] = n_keys;
}

static void attend_part(const struct attn_args *a, const struct part *p)
{
    struct pair g;

    open_pair(&g, a, p, states_of(a));
    for (int i = 0; i < g.total.n; i++)
        set_keys(&g, i, a->n_keys + p->row + i / p->n_heads);
    walk(&g, 0, a->n_keys + p->row + p->n_rows - 1, true);
    finish(&g.total, a, p);
}

/* Of one row: each split has its state where attend_merge looks for it. */
static void attend_splits(const struct attn_args *a, const struct part *p)
{
    const block_fn fn = block_fns[a->layout->type][p->n_heads - 1];
    struct pair g;

    open_pair(&g, a, p, states_of(a));
    for (int i = 0; i < g.total.n; i++)
        set_keys(&g, i, a->n_keys);
    for (int i = a->split_from; i < a->split_to; i++) {
        const int to = MIN((i + 1) * KV_SPLIT, a->n_keys);
        struct attn_state at = attn_state_at(a, i, p->head);
        g.split.max = at.max;
        g.split.sum = at.sum;
        g.split.out = at.out;
        for (int b = i * KV_SPLIT; b < to; b += KV_BLOCK)
            fn(&g.split, b, MIN(b + KV_BLOCK, to));
    }
}

/* How many rows from this one on go together: 5 are better 3 and 2 than 4 and 1. */
static int rows_together(const struct attn_args *a, int row)
{
    int n_keys = a->n_keys + row;
    int to_block_end = (n_keys + KV_BLOCK - 1) / KV_BLOCK * KV_BLOCK - n_keys + 1;
    int left = MIN(a->n_rows - row, to_block_end), most = MAX(HEADS / a->n_q, 1);
    int n_parts = (left + most - 1) / most;

    return (left + n_parts - 1) / n_parts;
}

static void attend_run(const struct attn_args *a)
{
    int n;

    for (int row = 0; row < a->n_rows; row += n) {
        n = rows_together(a, row);
        if (a->n_keys + row <= 0) {
            memset(a->out + (size_t)row * a->out_stride, 0,
                (size_t)a->n_q * (size_t)a->layout->head_dim * sizeof(float));
            continue;
        }
        for (int h = 0; h < a->n_q; h += HEADS)
            (a->states ? attend_splits : attend_part)(
                a, &(struct part){ row, n, h, MIN(HEADS, a->n_q - h) });
    }
}

/* ---- rows of several sequences */

/* The heads of one row of a group, with the same states and the keys of its own sequence. */
static void finish_row(
    const struct attn_args *a, const struct pair *of, const struct part *p, int i)
{
    const struct attn_row *row = &a->rows[p->row + i];
    struct attn_args own = *a;
    struct pair g = *of;
    struct group *both[] = { &g.total, &g.split };

    own.pages = row->pages;
    for (int j = 0; j < 2; j++) {
        struct group *one = both[j];
        int first = i * p->n_heads, n_blocks = (one->dim + Q8_0_BLOCK - 1) / Q8_0_BLOCK;
        one->a = &own;
        one->n = p->n_heads;
        one->q += first * one->dim;
        one->out += first * one->dim16;
        one->max += first;
        one->sum += first;
        one->q8 += one->q8 ? first * n_blocks : 0;
    }
    for (int h = 0; h < p->n_heads; h++)
        set_keys(&g, h, row->n_keys);
    walk(&g, a->n_shared, row->n_keys, true);
    finish(&g.total, a, &(struct part){ p->row + i, 1, p->head, p->n_heads });
}

/* What they share, split by split, so that a split stays in the cache until all have seen it; then
 * each row's own. */
static void attend_rows(const struct attn_args *a)
{
    enum { MOST = KV_ROW_HEADS / 4 }; /* nine heads of seven rows are 14 parts */
    const int together = MAX(HEADS / a->n_q, 1);
    struct attn_args shared = *a;
    struct part parts[MOST];
    struct pair groups[MOST];
    float *at = states_of(a);
    int n = 0;

    shared.pages = a->rows[0].pages;
    for (int row = 0; row < a->n_rows; row += together)
        for (int h = 0; h < a->n_q; h += HEADS, n++) {
            CHECK(n < MOST);
            parts[n] =
                (struct part){ row, MIN(together, a->n_rows - row), h, MIN(HEADS, a->n_q - h) };
            at = open_pair(&groups[n], &shared, &parts[n], at);
            for (int i = 0; i < groups[n].total.n; i++)
                set_keys(&groups[n], i, a->n_shared);
        }
    for (int from = 0; from < a->n_shared; from += KV_SPLIT)
        for (int i = 0; i < n; i++)
            walk(&groups[i], from, MIN(from + KV_SPLIT, a->n_shared), false);
    for (int i = 0; i < n; i++)
        for (int r = 0; r < parts[i].n_rows; r++)
            finish_row(a, &groups[i], &parts[i], r);
}

void avx512_attend(const struct attn_args *a)
{
    if (!a->rows) {
        attend_run(a);
    } else if (a->n_rows > 1) {
        attend_rows(a);
    } else {
        struct attn_args one = *a;
        one.pages = a->rows->pages;
        one.n_keys = a->rows->n_keys;
        one.q = a->q + (size_t)a->rows->at * a->q_stride;
        one.out = a->out + (size_t)a->rows->at * a->out_stride;
        one.rows = NULL;
        attend_run(&one);
    }
}

void avx512_attend_merge(const struct attn_args *a)
{
    attn_merge_splits(a, attn_merge, finish_head);
}
