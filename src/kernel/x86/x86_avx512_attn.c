/* x86_avx512_attn.c: attention with lanes of 16 keys for scores and of 16 dimensions for outputs.
 *
 * All query heads of a GQA group, of several batch rows if the group is small (up to GROUP_HEADS),
 * share every key and value that is loaded: a 64-byte line is widened to two vectors once and
 * multiplied with the numbers of each head. The chains are those of ref_attn.c, one per lane; 2 x
 * GROUP_HEADS independent chains in parallel make them fast. Rows that share a group end in the
 * same key block: the values after the last key of the first row are added head by head, to the
 * heads that attend to them.
 *
 * A unit is 16 consecutive positions, or fewer if a page holds fewer. */
#ifndef __AVX512F__
#error "compile with the AVX-512 flags of the Makefile"
#endif

#include "kernel/x86/x86_avx512_attn.h"

#include <math.h>

/* ---- KV append */

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
        for (int i = 0; i < MIN(16, dim - d); i += 2) /* each pair of d has its own line */
            memcpy(to_k + (size_t)(d + i) * 32, h + i, 4);
        _mm256_storeu_si256(at, narrow16(l->type, _mm512_maskz_loadu_ps(here, v + d)));
        for (int i = 0; i < MIN(16, dim - d); i++)
            memcpy(to_v + (size_t)(d / 16) * V_PAIRS * 64 + (size_t)i * 4, h + i, 2);
    }
}

/* ---- loading */

struct even_odd {
    __m512 even, odd;
};

/* Loads 16 pairs of 16-bit floats and separates the first and second elements. */
INLINE struct even_odd widen(enum kv_type type, const uint8_t *line)
{
    __m512i v = _mm512_loadu_si512(line);

    if (type == KV_BF16)
        return (struct even_odd){ _mm512_castsi512_ps(_mm512_slli_epi32(v, 16)),
            _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32((int)0xffff0000))) };
    const __m512i apart = _mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3,
        1, 30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    v = _mm512_permutexvar_epi16(apart, v);
    return (struct even_odd){ _mm512_cvtph_ps(_mm512_castsi512_si256(v)),
        _mm512_cvtph_ps(_mm512_extracti64x4_epi64(v, 1)) };
}

/* Computes scores, two units at a time. Pages are not adjacent, so the hardware prefetcher does not
 * find the next one; software prefetch keeps memory busy: the keys of the next two units into L1,
 * and the values of these two, which are read after the key block, into L2. */
INLINE void compute_scores(
    enum kv_type type, int heads, const struct head_group *g, int from, int to)
{
    const struct attn_args *a = g->a;

    for (int pos = from; pos < to; pos += 2 * UNIT_KEYS) {
        int second = MIN(pos + UNIT_KEYS, (to - 1) / UNIT_KEYS * UNIT_KEYS);
        const uint8_t *k0 = attn_keys_of(a, pos), *k1 = attn_keys_of(a, second);
        const uint8_t *v0 = attn_values_share(a, pos), *v1 = attn_values_share(a, second);
        const uint8_t *next0 = attn_keys_of(a, MIN(pos + 2 * UNIT_KEYS, to - 1));
        const uint8_t *next1 = attn_keys_of(a, MIN(pos + 3 * UNIT_KEYS, to - 1));
        __m512 s0[GROUP_HEADS], s1[GROUP_HEADS];

        UNROLL for (int h = 0; h < heads; h++) s0[h] = s1[h] = _mm512_setzero_ps();
        for (int d = 0; d < g->dim; d += 2) {
            size_t at = (size_t)d * 32;
            struct even_odd x = widen(type, k0 + at), y = widen(type, k1 + at);
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
            _mm512_mask_storeu_ps(
                w, first_lanes(MIN(UNIT_KEYS, to - pos)), _mm512_mul_ps(s0[h], scale));
            if (second > pos)
                _mm512_mask_storeu_ps(w + UNIT_KEYS, first_lanes(MIN(UNIT_KEYS, to - second)),
                    _mm512_mul_ps(s1[h], scale));
        }
    }
}

/* Replaces scores by softmax weights, and scales the previous sums to the new maximum. */
static void softmax_block(const struct head_group *g, int h, int n, bool is_first)
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

struct tail_position { /* a position, and the lines with its values */
    int pos;
    const uint8_t *v[2];
};

/* One page's values of 32 dimensions, and prefetch targets, two lines per two tokens: the values of
 * the next page, and keys of the next block. */
struct page_values {
    const uint8_t *v[2]; /* dimensions d .. d + 15, and d + 16 .. d + 31 */
    int n;               /* number of tokens */
    const uint8_t *next, *keys;
};

INLINE void add_page_values(enum kv_type type, int heads, const float *w,
    const struct page_values *p, __m512 sums[2][GROUP_HEADS])
{
    const int n = p->n;

    for (int t = 0; t < n; t += 2) {
        struct even_odd x = widen(type, p->v[0] + (size_t)t * 32);
        struct even_odd y = widen(type, p->v[1] + (size_t)t * 32);
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

/* Adds the values of one position to the heads that attend to it. */
INLINE void add_tail_values(enum kv_type type, int heads, const struct head_group *g,
    const struct tail_position *at, __m512 sums[2][GROUP_HEADS])
{
    struct even_odd x = widen(type, at->v[0]), y = widen(type, at->v[1]);
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

INLINE void add_values(enum kv_type type, int heads, const struct head_group *g, int from, int end)
{
    int to = MIN(end, g->n_keys[0]); /* all heads attend to these keys */
    int last = g->n_keys[g->n - 1] - 1;

    for (int d = 0; d < g->dim16; d += 32) {
        /* the same dimensions twice if there are no others */
        int second = MIN(d + 16, g->dim16 - 16);
        __m512 sums[2][GROUP_HEADS];

        UNROLL for (int h = 0; h < heads; h++)
        {
            sums[0][h] = _mm512_loadu_ps(g->out + (size_t)h * (size_t)g->dim16 + d);
            sums[1][h] = _mm512_loadu_ps(g->out + (size_t)h * (size_t)g->dim16 + second);
        }
        for (int pos = from; pos < to; pos += PAGE_TOKENS) {
            const size_t at = (size_t)d * V_PAIRS * 4;
            const uint8_t *v = attn_values_of(g->a, pos);
            struct page_values p = { { v + at, v + (size_t)second * V_PAIRS * 4 },
                MIN(PAGE_TOKENS, to - pos),
                attn_values_of(g->a, MIN(pos + PAGE_TOKENS, to - 1)) + at,
                attn_keys_of(g->a, MIN(pos + KV_BLOCK, last)) + at };
            add_page_values(type, heads, g->w + (pos - from), &p, sums);
        }
        for (int pos = to; pos < end; pos++) {
            const uint8_t *line = attn_values_of(g->a, pos) + (size_t)(pos % PAGE_TOKENS / 2) * 64;
            struct tail_position at = { pos,
                { line + (size_t)d * V_PAIRS * 4, line + (size_t)second * V_PAIRS * 4 } };
            add_tail_values(type, heads, g, &at, sums);
        }
        UNROLL for (int h = 0; h < heads; h++)
        {
            _mm512_storeu_ps(g->out + (size_t)h * (size_t)g->dim16 + d, sums[0][h]);
            _mm512_storeu_ps(g->out + (size_t)h * (size_t)g->dim16 + second, sums[1][h]);
        }
    }
}

INLINE void attend_block(enum kv_type type, int heads, const struct head_group *g, int from, int to)
{
    compute_scores(type, heads, g, from, to);
    for (int h = 0; h < heads; h++)
        softmax_block(g, h, MIN(to, g->n_keys[h]) - from, from % KV_SPLIT == 0);
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
FOR_HEADS(5)
FOR_HEADS(6)
FOR_HEADS(7)
FOR_HEADS(8)

typedef void (*block_fn)(const struct head_group *g, int from, int to);

static void q8_0_n(const struct head_group *g, int from, int to)
{
    avx512_q8_scores(g, from, to);
    for (int h = 0; h < g->n; h++)
        softmax_block(g, h, MIN(to, g->n_keys[h]) - from, from % KV_SPLIT == 0);
    avx512_q8_values(g, from, to);
}

static const block_fn block_fns[N_KV_TYPES][GROUP_HEADS] = {
    { f16_1, f16_2, f16_3, f16_4, f16_5, f16_6, f16_7, f16_8 },
    { bf16_1, bf16_2, bf16_3, bf16_4, bf16_5, bf16_6, bf16_7, bf16_8 },
    { q8_0_n, q8_0_n, q8_0_n, q8_0_n, q8_0_n, q8_0_n, q8_0_n, q8_0_n },
};

static struct attn_state state_of(const struct head_group *g, int h)
{
    return (struct attn_state){ g->max + h, g->sum + h, g->out + (size_t)h * (size_t)g->dim16 };
}

static void merge_head_states(const struct head_group *total, const struct head_group *current)
{
    for (int h = 0; h < total->n; h++)
        attn_merge(state_of(total, h), state_of(current, h), total->dim);
}

static void write_head_output(struct attn_state total, float *out, int dim)
{
    for (int d = 0; d < dim; d += 16) {
        __m512 v = _mm512_loadu_ps(total.out + d);
        v = _mm512_mul_ps(v, _mm512_set1_ps(1.0f / *total.sum));
        _mm512_mask_storeu_ps(out + d, first_lanes(MIN(16, dim - d)), v);
    }
}

/* Range of rows and of query heads of a GQA group. */
struct query_range {
    int row, n_rows, head, n_heads;
};

/* Group with two states: the merged previous splits, and the current split. */
struct split_states {
    struct head_group total, current;
};

static size_t row_index(const struct attn_args *a, int row)
{
    return a->rows ? (size_t)a->rows[row].at : (size_t)row;
}

static void write_outputs(
    const struct head_group *g, const struct attn_args *a, const struct query_range *p)
{
    for (int i = 0; i < g->n; i++) {
        float *out = a->out + row_index(a, p->row + i / p->n_heads) * a->out_stride +
                     (size_t)(p->head + i % p->n_heads) * (size_t)g->dim;
        write_head_output(state_of(g, i), out, g->dim);
    }
}

/* Returns the queries of the range in adjacent memory: those of one row already are, those of
 * several rows are copied. */
static const float *gather_queries(
    const struct attn_args *a, const struct query_range *p, float *to)
{
    const float *q = a->q + (size_t)p->head * (size_t)a->layout->head_dim;
    size_t n = (size_t)p->n_heads * (size_t)a->layout->head_dim;

    if (p->n_rows == 1)
        return q + row_index(a, p->row) * a->q_stride;
    for (int i = 0; i < p->n_rows; i++)
        memcpy(to + (size_t)i * n, q + row_index(a, p->row + i) * a->q_stride, n * sizeof(float));
    return to;
}

/* Start of the scratch: scores and weights of GROUP_HEADS heads, which the groups use one after the
 * other. */
static float *scratch_of(const struct attn_args *a)
{
    return (float *)(void *)(((uintptr_t)a->scratch + 63) & ~(uintptr_t)63);
}

static float *states_of(const struct attn_args *a)
{
    return scratch_of(a) + GROUP_HEADS * (KV_BLOCK + KV_BLOCK / 2);
}

/* Initialises a group with states at `at`; returns the first free float after them. */
static float *init_split_states(
    struct split_states *g, const struct attn_args *a, const struct query_range *p, float *at)
{
    int dim = a->layout->head_dim, dim16 = (dim + 15) / 16 * 16, n = p->n_rows * p->n_heads;
    size_t n_out = (size_t)n * (size_t)dim16;
    float *w = scratch_of(a);

    at = (float *)(void *)(((uintptr_t)at + 63) & ~(uintptr_t)63);
    g->total = (struct head_group){ .a = a, .n = n, .dim = dim, .dim16 = dim16, .w = w };
    g->total.u = (int16_t *)(void *)(w + GROUP_HEADS * KV_BLOCK);
    g->current = g->total;
    g->total.out = at;
    g->current.out = at + n_out;
    g->total.max = g->current.out + n_out;
    g->total.sum = g->total.max + n;
    g->current.max = g->total.sum + n;
    g->current.sum = g->current.max + n;
    at = g->current.sum + n;
    g->total.q = g->current.q = gather_queries(a, p, at);
    at += (size_t)n * (size_t)dim;
    if (a->layout->type == KV_Q8_0) {
        g->total.q8 = g->current.q8 = (struct act_q8_0 *)(void *)at;
        avx512_q8_queries(&g->total);
        at = (float *)(void *)(g->total.q8 + n * ((dim + Q8_0_BLOCK - 1) / Q8_0_BLOCK));
    }
    return at;
}

/* Attends to keys [from, to); `from` begins a block; is_end: no keys follow. */
static void attend_keys(const struct split_states *g, int from, int to, bool is_end)
{
    const struct head_group *total = &g->total, *current = &g->current;
    const block_fn fn = block_fns[total->a->layout->type][total->n - 1];

    for (int b = from; b < to; b += KV_BLOCK) {
        fn(b < KV_SPLIT ? total : current, b, MIN(b + KV_BLOCK, to));
        bool ends = (b + KV_BLOCK) % KV_SPLIT == 0 || (is_end && b + KV_BLOCK >= to);
        if (b >= KV_SPLIT && ends)
            merge_head_states(total, current);
    }
}

static void set_keys(struct split_states *g, int i, int n_keys)
{
    g->total.n_keys[i] = g->current.n_keys[i] = n_keys;
}

static void attend_query_range(const struct attn_args *a, const struct query_range *p)
{
    struct split_states g;

    init_split_states(&g, a, p, states_of(a));
    for (int i = 0; i < g.total.n; i++)
        set_keys(&g, i, a->n_keys + p->row + i / p->n_heads);
    attend_keys(&g, 0, a->n_keys + p->row + p->n_rows - 1, true);
    write_outputs(&g.total, a, p);
}

/* One row: the state of each split is stored where attend_merge reads it. */
static void attend_splits(const struct attn_args *a, const struct query_range *p)
{
    const block_fn fn = block_fns[a->layout->type][p->n_heads - 1];
    struct split_states g;

    init_split_states(&g, a, p, states_of(a));
    for (int i = 0; i < g.total.n; i++)
        set_keys(&g, i, a->n_keys);
    for (int i = a->split_from; i < a->split_to; i++) {
        const int to = MIN((i + 1) * KV_SPLIT, a->n_keys);
        struct attn_state at = attn_state_at(a, i, p->head);
        g.current.max = at.max;
        g.current.sum = at.sum;
        g.current.out = at.out;
        for (int b = i * KV_SPLIT; b < to; b += KV_BLOCK)
            fn(&g.current, b, MIN(b + KV_BLOCK, to));
    }
}

/* Number of rows from `row` on that are processed together; 5 rows are divided into 3 and 2, not 4
 * and 1. */
static int rows_together(const struct attn_args *a, int row)
{
    int n_keys = a->n_keys + row;
    int to_block_end = (n_keys + KV_BLOCK - 1) / KV_BLOCK * KV_BLOCK - n_keys + 1;
    int left = MIN(a->n_rows - row, to_block_end), most = MAX(GROUP_HEADS / a->n_q, 1);
    int n_parts = (left + most - 1) / most;

    return (left + n_parts - 1) / n_parts;
}

static void attend_sequence_rows(const struct attn_args *a)
{
    int n;

    for (int row = 0; row < a->n_rows; row += n) {
        n = rows_together(a, row);
        if (a->n_keys + row <= 0) {
            memset(a->out + (size_t)row * a->out_stride, 0,
                (size_t)a->n_q * (size_t)a->layout->head_dim * sizeof(float));
            continue;
        }
        for (int h = 0; h < a->n_q; h += GROUP_HEADS)
            (a->states ? attend_splits : attend_query_range)(
                a, &(struct query_range){ row, n, h, MIN(GROUP_HEADS, a->n_q - h) });
    }
}

/* ---- rows of several sequences */

/* Attends to the keys of one row after the shared prefix, with the states of the group. */
static void attend_own_keys(const struct attn_args *a, const struct split_states *shared_states,
    const struct query_range *p, int i)
{
    const struct attn_row *row = &a->rows[p->row + i];
    struct attn_args own_args = *a;
    struct split_states g = *shared_states;
    struct head_group *states[] = { &g.total, &g.current };

    own_args.pages = row->pages;
    for (int j = 0; j < 2; j++) {
        struct head_group *one = states[j];
        int first = i * p->n_heads, n_blocks = (one->dim + Q8_0_BLOCK - 1) / Q8_0_BLOCK;
        one->a = &own_args;
        one->n = p->n_heads;
        one->q += first * one->dim;
        one->out += first * one->dim16;
        one->max += first;
        one->sum += first;
        one->q8 += one->q8 ? first * n_blocks : 0;
    }
    for (int h = 0; h < p->n_heads; h++)
        set_keys(&g, h, row->n_keys);
    attend_keys(&g, a->n_shared, row->n_keys, true);
    write_outputs(&g.total, a, &(struct query_range){ p->row + i, 1, p->head, p->n_heads });
}

/* Attends to the shared prefix split by split, so that a split stays in the cache until all groups
 * have read it, and then to each row's own keys. */
static void attend_group_rows(const struct attn_args *a)
{
    enum { MAX_RANGES = KV_MAX_ROW_HEADS / 4 }; /* seven rows of nine heads are 14 ranges */
    const int together = MAX(GROUP_HEADS / a->n_q, 1);
    struct attn_args shared = *a;
    struct query_range ranges[MAX_RANGES];
    struct split_states groups[MAX_RANGES];
    float *at = states_of(a);
    int n = 0;

    shared.pages = a->rows[0].pages;
    for (int row = 0; row < a->n_rows; row += together)
        for (int h = 0; h < a->n_q; h += GROUP_HEADS, n++) {
            CHECK(n < MAX_RANGES);
            ranges[n] = (struct query_range){ row, MIN(together, a->n_rows - row), h,
                MIN(GROUP_HEADS, a->n_q - h) };
            at = init_split_states(&groups[n], &shared, &ranges[n], at);
            for (int i = 0; i < groups[n].total.n; i++)
                set_keys(&groups[n], i, a->n_shared);
        }
    for (int from = 0; from < a->n_shared; from += KV_SPLIT)
        for (int i = 0; i < n; i++)
            attend_keys(&groups[i], from, MIN(from + KV_SPLIT, a->n_shared), false);
    for (int i = 0; i < n; i++)
        for (int r = 0; r < ranges[i].n_rows; r++)
            attend_own_keys(a, &groups[i], &ranges[i], r);
}

void avx512_attend(const struct attn_args *a)
{
    if (!a->rows) {
        attend_sequence_rows(a);
    } else if (a->n_rows > 1) {
        attend_group_rows(a);
    } else {
        struct attn_args one = *a;
        one.pages = a->rows->pages;
        one.n_keys = a->rows->n_keys;
        one.q = a->q + (size_t)a->rows->at * a->q_stride;
        one.out = a->out + (size_t)a->rows->at * a->out_stride;
        one.rows = NULL;
        attend_sequence_rows(&one);
    }
}

void avx512_attend_merge(const struct attn_args *a)
{
    attn_merge_splits(a, attn_merge, write_head_output);
}
