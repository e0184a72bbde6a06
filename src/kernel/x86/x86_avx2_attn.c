/* x86_avx2_attn.c: attention with lanes of 16 keys for scores and 16 dimensions for outputs, each
 * as two vectors of eight. The same walk as x86_avx512_attn.c, with half the registers: HEADS
 * query heads share what is read, one unit of keys at a time. */
#ifndef __AVX2__
#error "compile with the AVX2 flags of the Makefile"
#endif

#include "kernel/x86/x86_avx2_attn.h"

#include <math.h>

/* ---- appending */

static inline __m128i narrow8(enum kv_type type, __m256 v)
{
    if (type == KV_F16)
        return _mm256_cvtps_ph(v, 0);
    __m256i u = _mm256_castps_si256(v);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    __m256 is_nan = _mm256_cmp_ps(v, v, _CMP_UNORD_Q);
    rounded = _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(is_nan));
    rounded = _mm256_srli_epi32(rounded, 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
}

void avx2_kv_append(const struct kv_slot *slot, const float *k, const float *v)
{
    const struct kv_layout *l = slot->layout;
    int dim = l->head_dim, token = slot->token;
    size_t groups = (size_t)(dim + 31) / 32;
    uint8_t *to_k = slot->k + (size_t)(token / 16) * groups * 1024 + (size_t)(token % 16) * 4;
    uint8_t *to_v = slot->v + (size_t)(token / 2) * 64 + (size_t)(token % 2) * 2;
    uint16_t h[8];

    if (l->type == KV_Q8_0) {
        avx2_q8_append(slot, k, v);
        return;
    }
    for (int d = 0; d < dim; d += 8) {
        _mm_storeu_si128((__m128i *)(void *)h, narrow8(l->type, load_upto(k, d, dim)));
        for (int i = 0; i < MIN(8, dim - d); i += 2) /* a pair of d is a line */
            memcpy(to_k + (size_t)(d + i) * 32, h + i, 4);
        _mm_storeu_si128((__m128i *)(void *)h, narrow8(l->type, load_upto(v, d, dim)));
        for (int i = 0; i < MIN(8, dim - d); i++)
            memcpy(to_v + (size_t)(d / 16) * V_PAIRS * 64 + (size_t)(d % 16 + i) * 4, h + i, 2);
    }
}

/* ---- reading */

struct two { /* 16 lanes of each: low and high eight */
    __m256 even[2], odd[2];
};

INLINE __m256i load_half(const uint8_t *line, int half)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)(line + 32 * half));
}

/* The low 16 bits of the 16 dwords of a and b, in order, as floats. */
INLINE void floats_of_halves(__m256 out[2], __m256i a, __m256i b)
{
    __m256i h = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);

    out[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(h));
    out[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1));
}

/* 16 pairs of 16-bit floats, the first and the second of each apart. */
INLINE struct two widen(enum kv_type type, const uint8_t *line)
{
    __m256i a = load_half(line, 0), b = load_half(line, 1);
    struct two t;

    if (type == KV_BF16) {
        const __m256i upper = _mm256_set1_epi32((int)0xffff0000);
        t.even[0] = _mm256_castsi256_ps(_mm256_slli_epi32(a, 16));
        t.even[1] = _mm256_castsi256_ps(_mm256_slli_epi32(b, 16));
        t.odd[0] = _mm256_castsi256_ps(_mm256_and_si256(a, upper));
        t.odd[1] = _mm256_castsi256_ps(_mm256_and_si256(b, upper));
        return t;
    }
    const __m256i lower = _mm256_set1_epi32(0xffff);
    floats_of_halves(t.even, _mm256_and_si256(a, lower), _mm256_and_si256(b, lower));
    floats_of_halves(t.odd, _mm256_srli_epi32(a, 16), _mm256_srli_epi32(b, 16));
    return t;
}

static const uint8_t *k_of(const struct attn_args *a, int pos)
{
    size_t group = (size_t)(a->layout->head_dim + 31) / 32 * 1024;

    return attn_block_of(a, pos) + (size_t)(pos % PAGE_TOKENS / KV_GROUP) * group;
}

static const uint8_t *v_of(const struct attn_args *a, int pos)
{
    return attn_block_of(a, pos) + a->layout->k_bytes;
}

/* As many lines of the values of a unit's page as the unit has lines of keys. */
static const uint8_t *v_share(const struct attn_args *a, int pos)
{
    size_t unit = (size_t)(pos % PAGE_TOKENS / KV_GROUP);

    return v_of(a, pos) + unit * (((size_t)a->layout->head_dim + 15) / 16 * 16 * 32);
}

/* What is fetched meanwhile: as with AVX-512 (x86_avx512_attn.c). */
INLINE void scores(enum kv_type type, int heads, const struct group *g, int from, int to)
{
    const __m256 scale = _mm256_set1_ps(g->a->scale);

    for (int pos = from; pos < to; pos += UNIT) {
        const uint8_t *k = k_of(g->a, pos), *next = k_of(g->a, MIN(pos + UNIT, to - 1));
        const uint8_t *v = v_share(g->a, pos);
        __m256 s[HEADS][2];

        UNROLL for (int h = 0; h < heads; h++) s[h][0] = s[h][1] = _mm256_setzero_ps();
        for (int d = 0; d < g->dim; d += 2) {
            struct two x = widen(type, k + (size_t)d * 32);
            _mm_prefetch((const char *)next + (size_t)d * 32, _MM_HINT_T0);
            _mm_prefetch((const char *)v + (size_t)d * 32, _MM_HINT_T1);
            UNROLL for (int h = 0; h < heads; h++)
            {
                const float *q = g->q + (size_t)h * (size_t)g->dim + d;
                s[h][0] = _mm256_fmadd_ps(_mm256_set1_ps(q[0]), x.even[0], s[h][0]);
                s[h][1] = _mm256_fmadd_ps(_mm256_set1_ps(q[0]), x.even[1], s[h][1]);
                s[h][0] = _mm256_fmadd_ps(_mm256_set1_ps(q[1]), x.odd[0], s[h][0]);
                s[h][1] = _mm256_fmadd_ps(_mm256_set1_ps(q[1]), x.odd[1], s[h][1]);
            }
        }
        UNROLL for (int h = 0; h < heads; h++)
        {
            float *w = g->w + (size_t)h * KV_BLOCK + (pos - from);
            int n = MIN(UNIT, to - pos);
            store_upto(w, 0, n, _mm256_mul_ps(s[h][0], scale));
            store_upto(w, 8, n, _mm256_mul_ps(s[h][1], scale));
        }
    }
}

static float exp1(float x)
{
    return _mm256_cvtss_f32(exp8(_mm256_set1_ps(x)));
}

/* Weights of eight scores in place; lanes beyond n are 0. */
static inline __m256 weigh8(float *w, int i, int n, __m256 max)
{
    __m256 v = exp8(_mm256_sub_ps(load_upto(w, i, n), max));

    store_upto(w, i, n, v);
    return _mm256_and_ps(v, _mm256_castsi256_ps(first_lanes(n - i)));
}

/* Scores become weights; what was summed before is scaled to the new maximum. */
static void weigh(const struct group *g, int h, int n, bool is_first)
{
    float *w = g->w + (size_t)h * KV_BLOCK, *out = g->out + (size_t)h * (size_t)g->dim16;
    float old = is_first ? -INFINITY : g->max[h], max;
    __m256 top = _mm256_set1_ps(old), low = _mm256_setzero_ps(), high = low;
    int whole = n / 8 * 8;

    for (int i = 0; i < whole; i += 8)
        top = _mm256_max_ps(_mm256_loadu_ps(w + i), top);
    max = max8(top);
    for (int i = whole; i < n; i++)
        max = w[i] > max ? w[i] : max;
    for (int i = 0; i < n; i += 16) {
        low = _mm256_add_ps(low, weigh8(w, i, n, _mm256_set1_ps(max)));
        high = _mm256_add_ps(high, weigh8(w, i + 8, n, _mm256_set1_ps(max)));
    }
    g->max[h] = max;
    if (is_first) {
        g->sum[h] = fold16(low, high);
        memset(out, 0, (size_t)g->dim16 * sizeof(float));
        return;
    }
    float shrink = exp1(old - max);
    g->sum[h] = fmaf(g->sum[h], shrink, fold16(low, high));
    for (int d = 0; d < g->dim16; d += 8)
        _mm256_storeu_ps(out + d, _mm256_mul_ps(_mm256_loadu_ps(out + d), _mm256_set1_ps(shrink)));
}

/* One page's values of 16 dimensions to the sums. */
INLINE void add_page(
    enum kv_type type, int heads, const float *w, const uint8_t *v, int n, __m256 sums[HEADS][2])
{
    for (int t = 0; t < n; t += 2) {
        struct two x = widen(type, v + (size_t)t * 32);
        UNROLL for (int h = 0; h < heads; h++)
        {
            __m256 p = _mm256_set1_ps(w[h * KV_BLOCK + t]);
            sums[h][0] = _mm256_fmadd_ps(p, x.even[0], sums[h][0]);
            sums[h][1] = _mm256_fmadd_ps(p, x.even[1], sums[h][1]);
        }
        if (t + 1 == n)
            break;
        UNROLL for (int h = 0; h < heads; h++)
        {
            __m256 p = _mm256_set1_ps(w[h * KV_BLOCK + t + 1]);
            sums[h][0] = _mm256_fmadd_ps(p, x.odd[0], sums[h][0]);
            sums[h][1] = _mm256_fmadd_ps(p, x.odd[1], sums[h][1]);
        }
    }
}

INLINE void values(enum kv_type type, int heads, const struct group *g, int from, int to)
{
    const int last = g->a->n_keys - 1;

    for (int d = 0; d < g->dim16; d += 16) {
        __m256 sums[HEADS][2];

        UNROLL for (int h = 0; h < heads; h++)
        {
            const float *out = g->out + (size_t)h * (size_t)g->dim16 + d;
            sums[h][0] = _mm256_loadu_ps(out);
            sums[h][1] = _mm256_loadu_ps(out + 8);
        }
        for (int pos = from; pos < to; pos += PAGE_TOKENS) {
            size_t at = (size_t)d * V_PAIRS * 4;
            const uint8_t *next = v_of(g->a, MIN(pos + PAGE_TOKENS, to - 1)) + at;
            const uint8_t *keys = k_of(g->a, MIN(pos + KV_BLOCK, last)) + at;
            for (size_t i = 0; i < V_PAIRS; i++) {
                _mm_prefetch((const char *)next + 64 * i, _MM_HINT_T0);
                _mm_prefetch((const char *)keys + 64 * i, _MM_HINT_T1);
            }
            add_page(type, heads, g->w + (pos - from), v_of(g->a, pos) + at,
                MIN(PAGE_TOKENS, to - pos), sums);
        }
        UNROLL for (int h = 0; h < heads; h++)
        {
            float *out = g->out + (size_t)h * (size_t)g->dim16 + d;
            _mm256_storeu_ps(out, sums[h][0]);
            _mm256_storeu_ps(out + 8, sums[h][1]);
        }
    }
}

INLINE void block(enum kv_type type, int heads, const struct group *g, int from, int to)
{
    scores(type, heads, g, from, to);
    for (int h = 0; h < heads; h++)
        weigh(g, h, to - from, from % KV_SPLIT == 0);
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

typedef void (*block_fn)(const struct group *g, int from, int to);

static void q8_0_n(const struct group *g, int from, int to)
{
    avx2_q8_scores(g, from, to);
    for (int h = 0; h < g->n; h++)
        weigh(g, h, to - from, from % KV_SPLIT == 0);
    avx2_q8_values(g, from, to);
}

static const block_fn block_fns[N_KV_TYPES][HEADS] = {
    { f16_1, f16_2, f16_3, f16_4 },
    { bf16_1, bf16_2, bf16_3, bf16_4 },
    { q8_0_n, q8_0_n, q8_0_n, q8_0_n },
};

static struct attn_state state_of(const struct group *g, int h)
{
    return (struct attn_state){ g->max + h, g->sum + h, g->out + (size_t)h * (size_t)g->dim16 };
}

/* Of two splits, the earlier first, into it. */
static void merge(struct attn_state total, struct attn_state split, int dim)
{
    float a = *total.max, b = *split.max, max = b > a ? b : a;
    float mine = exp1(a - max), theirs = exp1(b - max);

    *total.max = max;
    *total.sum = fmaf(*split.sum, theirs, *total.sum * mine);
    for (int d = 0; d < dim; d += 8) {
        __m256 v = _mm256_mul_ps(_mm256_loadu_ps(total.out + d), _mm256_set1_ps(mine));
        v = _mm256_fmadd_ps(_mm256_loadu_ps(split.out + d), _mm256_set1_ps(theirs), v);
        _mm256_storeu_ps(total.out + d, v);
    }
}

static void finish(struct attn_state total, float *out, int dim)
{
    for (int d = 0; d < dim; d += 8) {
        __m256 v = _mm256_loadu_ps(total.out + d);
        store_upto(out, d, dim, _mm256_mul_ps(v, _mm256_set1_ps(1.0f / *total.sum)));
    }
}

static void attend_split(const struct group *g, int split)
{
    const block_fn fn = block_fns[g->a->layout->type][g->n - 1];
    const int from = split * KV_SPLIT, to = MIN(from + KV_SPLIT, g->a->n_keys);

    for (int b = from; b < to; b += KV_BLOCK)
        fn(g, b, MIN(b + KV_BLOCK, to));
}

/* A group with its two states: of the splits so far, and of the one under way. */
struct pair {
    struct group total, split;
};

static void open_pair(struct pair *g, const struct attn_args *a, int first, int n)
{
    int dim = a->layout->head_dim, dim16 = (dim + 15) / 16 * 16;
    float *at = (float *)(void *)(((uintptr_t)a->scratch + 63) & ~(uintptr_t)63);
    struct group *total = &g->total, *split = &g->split;

    *total = (struct group){ .a = a,
        .n = n,
        .dim = dim,
        .dim16 = dim16,
        .q = a->q + (size_t)first * (size_t)dim,
        .w = at,
        .out = at + (size_t)n * KV_BLOCK };
    *split = *total;
    split->out = total->out + (size_t)n * (size_t)dim16;
    total->max = split->out + (size_t)n * (size_t)dim16;
    total->sum = total->max + n;
    split->max = total->sum + n;
    split->sum = split->max + n;
    if (a->layout->type == KV_Q8_0) {
        total->u = split->u = (void *)(split->sum + n);
        total->q8 = split->q8 = (void *)(total->u + (size_t)n * KV_BLOCK);
        avx2_q8_queries(total);
    }
}

static void attend_group(const struct attn_args *a, int first, int n)
{
    struct pair g;

    open_pair(&g, a, first, n);
    attend_split(&g.total, 0);
    for (int i = 1; i < attn_splits(a->n_keys); i++) {
        attend_split(&g.split, i);
        for (int h = 0; h < n; h++)
            merge(state_of(&g.total, h), state_of(&g.split, h), g.total.dim);
    }
    for (int h = 0; h < n; h++)
        finish(
            state_of(&g.total, h), a->out + (size_t)(first + h) * (size_t)g.total.dim, g.total.dim);
}

/* Each split has its state where attend_merge looks for it. */
static void attend_splits(const struct attn_args *a, int first, int n)
{
    struct pair g;

    open_pair(&g, a, first, n);
    for (int i = a->split_from; i < a->split_to; i++) {
        struct attn_state at = attn_state_at(a, i, first);
        g.split.max = at.max;
        g.split.sum = at.sum;
        g.split.out = at.out;
        attend_split(&g.split, i);
    }
}

static void attend_row(const struct attn_args *a)
{
    if (a->n_keys <= 0) {
        memset(a->out, 0, (size_t)a->n_q * (size_t)a->layout->head_dim * sizeof(float));
        return;
    }
    for (int h = 0; h < a->n_q; h += HEADS)
        (a->states ? attend_splits : attend_group)(a, h, MIN(HEADS, a->n_q - h));
}

/* Rows of a list come one after the other: what they share is in the cache from the second on. */
void avx2_attend(const struct attn_args *a)
{
    struct attn_args row = *a;

    for (int i = 0; i < a->n_rows; i++) {
        if (a->rows) {
            row.pages = a->rows[i].pages;
            row.n_keys = a->rows[i].n_keys;
            row.q = a->q + (size_t)a->rows[i].at * a->q_stride;
            row.out = a->out + (size_t)a->rows[i].at * a->out_stride;
            attend_row(&row);
            continue;
        }
        attend_row(&row);
        row.n_keys++;
        row.q += a->q_stride;
        row.out += a->out_stride;
    }
}

void avx2_attend_merge(const struct attn_args *a)
{
    attn_merge_splits(a, merge, finish);
}
