/* x86_avx2_attn.c: attention with lanes of 16 keys for scores and of 16 dimensions for outputs,
 * each in two vectors of eight. The algorithm is that of x86_avx512_attn.c with half the registers:
 * GROUP_HEADS query heads share what is loaded, one unit of keys at a time. */
#ifndef __AVX2__
#error "compile with the AVX2 flags of the Makefile"
#endif

#include "kernel/x86/x86_avx2_attn.h"

#include <math.h>

/* ---- KV append */

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
        _mm_storeu_si128((__m128i *)(void *)h, narrow8(l->type, load_partial(k, d, dim)));
        for (int i = 0; i < MIN(8, dim - d); i += 2) /* each pair of d has its own line */
            memcpy(to_k + (size_t)(d + i) * 32, h + i, 4);
        _mm_storeu_si128((__m128i *)(void *)h, narrow8(l->type, load_partial(v, d, dim)));
        for (int i = 0; i < MIN(8, dim - d); i++)
            memcpy(to_v + (size_t)(d / 16) * V_PAIRS * 64 + (size_t)(d % 16 + i) * 4, h + i, 2);
    }
}

/* ---- loading */

struct even_odd { /* 16 lanes each: [0] the low eight, [1] the high eight */
    __m256 even[2], odd[2];
};

INLINE __m256i load_half(const uint8_t *line, int half)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)(line + 32 * half));
}

/* Converts the low 16 bits of the 16 dwords of a and b, in order, from f16 to float. */
INLINE void f16_dwords_to_f32(__m256 out[2], __m256i a, __m256i b)
{
    __m256i h = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);

    out[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(h));
    out[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1));
}

/* Loads 16 pairs of 16-bit floats and separates the first and second elements. */
INLINE struct even_odd widen(enum kv_type type, const uint8_t *line)
{
    __m256i a = load_half(line, 0), b = load_half(line, 1);
    struct even_odd t;

    if (type == KV_BF16) {
        const __m256i upper = _mm256_set1_epi32((int)0xffff0000);
        t.even[0] = _mm256_castsi256_ps(_mm256_slli_epi32(a, 16));
        t.even[1] = _mm256_castsi256_ps(_mm256_slli_epi32(b, 16));
        t.odd[0] = _mm256_castsi256_ps(_mm256_and_si256(a, upper));
        t.odd[1] = _mm256_castsi256_ps(_mm256_and_si256(b, upper));
        return t;
    }
    const __m256i lower = _mm256_set1_epi32(0xffff);
    f16_dwords_to_f32(t.even, _mm256_and_si256(a, lower), _mm256_and_si256(b, lower));
    f16_dwords_to_f32(t.odd, _mm256_srli_epi32(a, 16), _mm256_srli_epi32(b, 16));
    return t;
}

static const uint8_t *keys_of_unit(const struct attn_args *a, int pos)
{
    size_t group = (size_t)(a->layout->head_dim + 31) / 32 * 1024;

    return attn_block_of(a, pos) + (size_t)(pos % PAGE_TOKENS / KV_GROUP) * group;
}

static const uint8_t *values_of_page(const struct attn_args *a, int pos)
{
    return attn_block_of(a, pos) + a->layout->k_bytes;
}

/* The unit's share of the values of its page: as many lines as the unit has lines of keys. */
static const uint8_t *values_share_of_unit(const struct attn_args *a, int pos)
{
    size_t unit = (size_t)(pos % PAGE_TOKENS / KV_GROUP);

    return values_of_page(a, pos) + unit * (((size_t)a->layout->head_dim + 15) / 16 * 16 * 32);
}

/* Computes the scores of keys [from, to). Prefetches like x86_avx512_attn.c. */
INLINE void compute_scores(
    enum kv_type type, int heads, const struct head_group *g, int from, int to)
{
    const __m256 scale = _mm256_set1_ps(g->a->scale);

    for (int pos = from; pos < to; pos += UNIT_KEYS) {
        const uint8_t *k = keys_of_unit(g->a, pos),
                      *next = keys_of_unit(g->a, MIN(pos + UNIT_KEYS, to - 1));
        const uint8_t *v = values_share_of_unit(g->a, pos);
        __m256 s[GROUP_HEADS][2];

        UNROLL for (int h = 0; h < heads; h++) s[h][0] = s[h][1] = _mm256_setzero_ps();
        for (int d = 0; d < g->dim; d += 2) {
            struct even_odd x = widen(type, k + (size_t)d * 32);
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
            int n = MIN(UNIT_KEYS, to - pos);
            store_partial(w, 0, n, _mm256_mul_ps(s[h][0], scale));
            store_partial(w, 8, n, _mm256_mul_ps(s[h][1], scale));
        }
    }
}

static float exp1(float x)
{
    return _mm256_cvtss_f32(exp8(_mm256_set1_ps(x)));
}

/* Replaces eight scores by softmax weights; lanes beyond n are 0. */
static inline __m256 softmax8(float *w, int i, int n, __m256 max)
{
    __m256 v = exp8(_mm256_sub_ps(load_partial(w, i, n), max));

    store_partial(w, i, n, v);
    return _mm256_and_ps(v, _mm256_castsi256_ps(first_lanes(n - i)));
}

/* Replaces scores by softmax weights, and scales the previous sums to the new maximum. */
static void softmax_block(const struct head_group *g, int h, int n, bool is_first)
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
        low = _mm256_add_ps(low, softmax8(w, i, n, _mm256_set1_ps(max)));
        high = _mm256_add_ps(high, softmax8(w, i + 8, n, _mm256_set1_ps(max)));
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

/* Adds one page's weighted values of 16 dimensions to the sums. */
INLINE void add_page_values(enum kv_type type, int heads, const float *w, const uint8_t *v, int n,
    __m256 sums[GROUP_HEADS][2])
{
    for (int t = 0; t < n; t += 2) {
        struct even_odd x = widen(type, v + (size_t)t * 32);
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

INLINE void add_values(enum kv_type type, int heads, const struct head_group *g, int from, int to)
{
    const int last = g->a->n_keys - 1;

    for (int d = 0; d < g->dim16; d += 16) {
        __m256 sums[GROUP_HEADS][2];

        UNROLL for (int h = 0; h < heads; h++)
        {
            const float *out = g->out + (size_t)h * (size_t)g->dim16 + d;
            sums[h][0] = _mm256_loadu_ps(out);
            sums[h][1] = _mm256_loadu_ps(out + 8);
        }
        for (int pos = from; pos < to; pos += PAGE_TOKENS) {
            size_t at = (size_t)d * V_PAIRS * 4;
            const uint8_t *next = values_of_page(g->a, MIN(pos + PAGE_TOKENS, to - 1)) + at;
            const uint8_t *keys = keys_of_unit(g->a, MIN(pos + KV_BLOCK, last)) + at;
            for (size_t i = 0; i < V_PAIRS; i++) {
                _mm_prefetch((const char *)next + 64 * i, _MM_HINT_T0);
                _mm_prefetch((const char *)keys + 64 * i, _MM_HINT_T1);
            }
            add_page_values(type, heads, g->w + (pos - from), values_of_page(g->a, pos) + at,
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

INLINE void attend_block(enum kv_type type, int heads, const struct head_group *g, int from, int to)
{
    compute_scores(type, heads, g, from, to);
    for (int h = 0; h < heads; h++)
        softmax_block(g, h, to - from, from % KV_SPLIT == 0);
    add_values(type, heads, g, from, to);
}

#define FOR_HEADS(n)                                                                               \
    static void f16_##n(const struct head_group *g, int from, int to)                              \
    {                                                                                              \
        attend_block(KV_F16, n, g, from, to);                                                      \
    }                                                                                              \
    static void bf16_##n(const struct head_group *g, int from, int to)                             \
    {                                                                                              \
        attend_block(KV_BF16, n, g, from, to);                                                     \
    }
FOR_HEADS(1)
FOR_HEADS(2)
FOR_HEADS(3)
FOR_HEADS(4)

typedef void (*block_fn)(const struct head_group *g, int from, int to);

static void q8_0_n(const struct head_group *g, int from, int to)
{
    avx2_q8_scores(g, from, to);
    for (int h = 0; h < g->n; h++)
        softmax_block(g, h, to - from, from % KV_SPLIT == 0);
    avx2_q8_values(g, from, to);
}

static const block_fn block_fns[N_KV_TYPES][GROUP_HEADS] = {
    { f16_1, f16_2, f16_3, f16_4 },
    { bf16_1, bf16_2, bf16_3, bf16_4 },
    { q8_0_n, q8_0_n, q8_0_n, q8_0_n },
};

static struct attn_state state_of(const struct head_group *g, int h)
{
    return (struct attn_state){ g->max + h, g->sum + h, g->out + (size_t)h * (size_t)g->dim16 };
}

/* Merges the later split into the earlier one (total). */
static void merge_states(struct attn_state total, struct attn_state split, int dim)
{
    float a = *total.max, b = *split.max, max = b > a ? b : a;
    float total_factor = exp1(a - max), split_factor = exp1(b - max);

    *total.max = max;
    *total.sum = fmaf(*split.sum, split_factor, *total.sum * total_factor);
    for (int d = 0; d < dim; d += 8) {
        __m256 v = _mm256_mul_ps(_mm256_loadu_ps(total.out + d), _mm256_set1_ps(total_factor));
        v = _mm256_fmadd_ps(_mm256_loadu_ps(split.out + d), _mm256_set1_ps(split_factor), v);
        _mm256_storeu_ps(total.out + d, v);
    }
}

static void write_output(struct attn_state total, float *out, int dim)
{
    for (int d = 0; d < dim; d += 8) {
        __m256 v = _mm256_loadu_ps(total.out + d);
        store_partial(out, d, dim, _mm256_mul_ps(v, _mm256_set1_ps(1.0f / *total.sum)));
    }
}

static void attend_split(const struct head_group *g, int split)
{
    const block_fn fn = block_fns[g->a->layout->type][g->n - 1];
    const int from = split * KV_SPLIT, to = MIN(from + KV_SPLIT, g->a->n_keys);

    for (int b = from; b < to; b += KV_BLOCK)
        fn(g, b, MIN(b + KV_BLOCK, to));
}

/* Group with two states: the merged previous splits (total), and the current split. */
struct split_states {
    struct head_group total, split;
};

static void init_split_states(struct split_states *g, const struct attn_args *a, int first, int n)
{
    int dim = a->layout->head_dim, dim16 = (dim + 15) / 16 * 16;
    float *at = (float *)(void *)(((uintptr_t)a->scratch + 63) & ~(uintptr_t)63);
    struct head_group *total = &g->total, *split = &g->split;

    *total = (struct head_group){ .a = a,
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

static void attend_heads(const struct attn_args *a, int first, int n)
{
    struct split_states g;

    init_split_states(&g, a, first, n);
    attend_split(&g.total, 0);
    for (int i = 1; i < attn_n_splits(a->n_keys); i++) {
        attend_split(&g.split, i);
        for (int h = 0; h < n; h++)
            merge_states(state_of(&g.total, h), state_of(&g.split, h), g.total.dim);
    }
    for (int h = 0; h < n; h++)
        write_output(
            state_of(&g.total, h), a->out + (size_t)(first + h) * (size_t)g.total.dim, g.total.dim);
}

/* The state of each split is stored where attend_merge reads it. */
static void attend_splits(const struct attn_args *a, int first, int n)
{
    struct split_states g;

    init_split_states(&g, a, first, n);
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
    for (int h = 0; h < a->n_q; h += GROUP_HEADS)
        (a->states ? attend_splits : attend_heads)(a, h, MIN(GROUP_HEADS, a->n_q - h));
}

/* Rows of a list are processed one after the other: from the second row on, their shared keys are
 * in the cache. */
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
    attn_merge_splits(a, merge_states, write_output);
}
