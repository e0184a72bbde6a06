/* x86_avx2_attn_q8.c: the parts of attention that differ for q8_0 pages. The arithmetic is that of
 * x86_avx512_attn_q8.c, with multiply-add of pairs instead of VNNI dot products. */
#ifndef __AVX2__
#error "compile with the AVX2 flags of the Makefile"
#endif

#include "kernel/x86/x86_avx2_attn.h"
#include "kernel/blocks.h"

static int n_blocks_of(int dim)
{
    return (dim + Q8_0_BLOCK - 1) / Q8_0_BLOCK;
}

/* Quantises one head; the last block is padded with zeros. */
static void quantise_head(const float *x, int dim, struct act_q8_0 *out)
{
    int whole = dim / Q8_0_BLOCK * Q8_0_BLOCK;
    float rest[Q8_0_BLOCK] = { 0 };

    kernels_avx2.q8_0(x, whole, out);
    if (whole == dim)
        return;
    memcpy(rest, x + whole, (size_t)(dim - whole) * sizeof(float));
    kernels_avx2.q8_0(rest, Q8_0_BLOCK, out + whole / Q8_0_BLOCK);
}

static uint16_t f32_to_f16_bits(float f)
{
    return (uint16_t)_mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(f), 0));
}

INLINE __m256i load_256(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

void avx2_q8_append(const struct kv_slot *slot, const float *k, const float *v)
{
    const struct kv_layout *l = slot->layout;
    const __m256i top = _mm256_set1_epi8((char)0x80);
    int dim = l->head_dim, n = n_blocks_of(dim), token = slot->token, row = token % KV_GROUP;
    struct p16_q8_0 *kp = (struct p16_q8_0 *)(void *)slot->k + token / KV_GROUP * n;
    uint8_t *vp = slot->v + token / 2 * 32 + token % 2;
    uint16_t *scales = (uint16_t *)(void *)(slot->v + l->v_scales);
    struct act_q8_0 key[KV_Q8_MAX_DIM / Q8_0_BLOCK], value[KV_Q8_MAX_DIM / Q8_0_BLOCK];
    uint8_t q[Q8_0_BLOCK];

    quantise_head(k, dim, key);
    quantise_head(v, dim, value);
    for (int b = 0; b < n; b++) {
        _mm256_storeu_si256((__m256i *)(void *)q, _mm256_xor_si256(load_256(key[b].q), top));
        for (int i = 0; i < Q8_0_BLOCK / 4; i++)
            memcpy(kp[b].q[i][row], q + 4 * i, 4);
        kp[b].d[row] = f32_to_f16_bits(key[b].d);
        scales[b * 2 * V_PAIRS + token] = f32_to_f16_bits(value[b].d);
    }
    for (int d = 0; d < dim; d++)
        vp[(size_t)(d / 16) * V_PAIRS * 32 + (size_t)(d % 16) * 2] =
            (uint8_t)value[d / Q8_0_BLOCK].q[d % Q8_0_BLOCK];
}

void avx2_q8_queries(const struct head_group *g)
{
    for (int h = 0; h < g->n; h++)
        quantise_head(g->q + (size_t)h * (size_t)g->dim, g->dim, g->q8 + h * n_blocks_of(g->dim));
}

/* ---- scores */

static const struct p16_q8_0 *keys_of(const struct head_group *g, int pos)
{
    return (const struct p16_q8_0 *)(const void *)attn_block_of(g->a, pos) +
           pos % PAGE_TOKENS / KV_GROUP * n_blocks_of(g->dim);
}

static const uint8_t *values_of(const struct head_group *g, int pos)
{
    return attn_block_of(g->a, pos) + g->a->layout->k_bytes;
}

INLINE __m256 f16_to_f32_x8(const uint16_t *h)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)h));
}

/* Adds the products of eight keys (half 0 or 1 of 16) and one block of each head's query. */
INLINE void score_block(int heads, const struct p16_q8_0 *k, int half, const struct act_q8_0 *q,
    int n_blocks, __m256 acc[GROUP_HEADS])
{
    const __m256i ones = _mm256_set1_epi16(1), top = _mm256_set1_epi8((char)0x80);
    __m256 dk = f16_to_f32_x8(k->d + 8 * half);
    __m256i sum[GROUP_HEADS];

    UNROLL for (int h = 0; h < heads; h++) sum[h] = _mm256_setzero_si256();
    UNROLL for (int i = 0; i < 8; i++)
    {
        __m256i x = _mm256_xor_si256(load_256(k->q[i][8 * half]), top), size = _mm256_abs_epi8(x);
        UNROLL for (int h = 0; h < heads; h++)
        {
            int32_t four;
            memcpy(&four, q[h * n_blocks].q + 4 * i, 4);
            __m256i s = _mm256_sign_epi8(_mm256_set1_epi32(four), x);
            s = _mm256_madd_epi16(_mm256_maddubs_epi16(size, s), ones);
            sum[h] = _mm256_add_epi32(sum[h], s);
        }
    }
    UNROLL for (int h = 0; h < heads; h++) acc[h] = _mm256_fmadd_ps(
        _mm256_mul_ps(dk, _mm256_set1_ps(q[h * n_blocks].d)), _mm256_cvtepi32_ps(sum[h]), acc[h]);
}

INLINE void compute_scores(int heads, const struct head_group *g, int from, int to)
{
    const int n = n_blocks_of(g->dim);
    const __m256 scale = _mm256_set1_ps(g->a->scale);

    for (int pos = from; pos < to; pos += UNIT_KEYS) {
        const struct p16_q8_0 *k = keys_of(g, pos);
        const char *next = (const char *)keys_of(g, MIN(pos + UNIT_KEYS, to - 1));
        const char *v = (const char *)values_of(g, pos) + pos % PAGE_TOKENS / KV_GROUP * n * 512;
        for (size_t i = 0; i < (size_t)n * sizeof(*k); i += 64) {
            _mm_prefetch(next + i, _MM_HINT_T0);
            _mm_prefetch(v + i, _MM_HINT_T1); /* the values are read after the key block */
        }
        for (int half = 0; half < 2 && pos + 8 * half < to && 8 * half < UNIT_KEYS; half++) {
            __m256 acc[GROUP_HEADS];
            UNROLL for (int h = 0; h < heads; h++) acc[h] = _mm256_setzero_ps();
            for (int b = 0; b < n; b++)
                score_block(heads, k + b, half, g->q8 + b, n, acc);
            UNROLL for (int h = 0; h < heads; h++)
                store_partial(g->w + (size_t)h * KV_BLOCK + (pos - from), 8 * half,
                    MIN(UNIT_KEYS, to - pos), _mm256_mul_ps(acc[h], scale));
        }
    }
}

/* ---- values */

/* Reads the value scales of keys [from, to) for the 32 dimensions of a block. */
static void read_scales(const struct head_group *g, int block, int from, int to, float *out)
{
    for (int pos = from; pos < to; pos += UNIT_KEYS) {
        const struct kv_layout *l = g->a->layout;
        const uint8_t *v = attn_block_of(g->a, pos) + l->k_bytes + l->v_scales;
        const uint16_t *scales = (const uint16_t *)(const void *)v + block * 2 * V_PAIRS;
        int n = MIN(UNIT_KEYS, to - pos);
        store_partial(out + (pos - from), 0, n, f16_to_f32_x8(scales + pos % PAGE_TOKENS));
        if (n > 8)
            store_partial(out + (pos - from), 8, n, f16_to_f32_x8(scales + pos % PAGE_TOKENS + 8));
    }
}

static __m128i to_int16_x8(__m256 p, __m256 by)
{
    __m256 v = _mm256_mul_ps(p, by);

    /* if one operand is NaN, the result is the second operand */
    v = _mm256_max_ps(v, _mm256_set1_ps(-KV_Q8_MAX_WEIGHT));
    v = _mm256_min_ps(v, _mm256_set1_ps(KV_Q8_MAX_WEIGHT));
    __m256i i = _mm256_cvtps_epi32(v);
    return _mm_packs_epi32(_mm256_castsi256_si128(i), _mm256_extracti128_si256(i, 1));
}

static uint32_t max_of(__m256i v)
{
    __m128i b = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));

    b = _mm_max_epu32(b, _mm_shuffle_epi32(b, 0x4e));
    b = _mm_max_epu32(b, _mm_shuffle_epi32(b, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(b);
}

/* Converts n products of weights and scales to integers, padded with zeros to a whole vector.
 * Returns the factor that converts them back. */
static float weights_to_int16(const float *w, const float *scales, int n, int16_t *u)
{
    const __m256i no_sign = _mm256_set1_epi32(0x7fffffff);
    __m256i most = _mm256_setzero_si256();
    __m256 p[KV_BLOCK / 8];

    for (int i = 0; i < n; i += 8) {
        p[i / 8] = _mm256_mul_ps(load_partial(w, i, n), load_partial(scales, i, n));
        most = _mm256_max_epu32(most, _mm256_and_si256(_mm256_castps_si256(p[i / 8]), no_sign));
    }
    uint32_t bits = max_of(most);
    float factor;
    memcpy(&factor, &bits, sizeof(factor));
    factor /= (float)KV_Q8_MAX_WEIGHT;
    __m256 by = _mm256_set1_ps(factor != 0.0f ? 1.0f / factor : 0.0f);
    for (int i = 0; i < n; i += 8) {
        __m128i packed = to_int16_x8(p[i / 8], by);
        if (n - i < 8) /* a padding lane times a NaN factor would not be zero */
            packed =
                _mm_and_si128(packed, _mm_packs_epi32(_mm256_castsi256_si128(first_lanes(n - i)),
                                          _mm256_extracti128_si256(first_lanes(n - i), 1)));
        _mm_storeu_si128((__m128i *)(void *)(u + i), packed);
    }
    return factor;
}

INLINE __m256i load_int8_as_int16(const uint8_t *line, int half)
{
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)line + half));
}

/* Adds one page's weighted values of 16 dimensions to the sums. */
INLINE void add_page_values(
    int heads, const int16_t *u, const uint8_t *v, int n, __m256i sums[GROUP_HEADS][2])
{
    for (int t = 0; t < n; t += 2) {
        __m256i x = load_int8_as_int16(v + (size_t)t * 16, 0),
                y = load_int8_as_int16(v + (size_t)t * 16, 1);
        UNROLL for (int h = 0; h < heads; h++)
        {
            int32_t two;
            memcpy(&two, u + h * KV_BLOCK + t, 4);
            __m256i p = _mm256_set1_epi32(two);
            sums[h][0] = _mm256_add_epi32(sums[h][0], _mm256_madd_epi16(x, p));
            sums[h][1] = _mm256_add_epi32(sums[h][1], _mm256_madd_epi16(y, p));
        }
    }
}

INLINE void add_dims(
    int heads, const struct head_group *g, int d, int from, int to, const float *factor)
{
    const size_t at = (size_t)d * V_PAIRS * 2;
    const int last = g->a->n_keys - 1;
    __m256i sums[GROUP_HEADS][2];

    UNROLL for (int h = 0; h < heads; h++) sums[h][0] = sums[h][1] = _mm256_setzero_si256();
    for (int pos = from; pos < to; pos += PAGE_TOKENS) {
        const uint8_t *next = values_of(g, MIN(pos + PAGE_TOKENS, to - 1)) + at;
        const uint8_t *keys = attn_block_of(g->a, MIN(pos + KV_BLOCK, last)) + at;
        for (size_t i = 0; i < (size_t)V_PAIRS * 32; i += 64) {
            _mm_prefetch((const char *)next + i, _MM_HINT_T0);
            _mm_prefetch((const char *)keys + i, _MM_HINT_T1);
        }
        add_page_values(
            heads, g->u + (pos - from), values_of(g, pos) + at, MIN(PAGE_TOKENS, to - pos), sums);
    }
    UNROLL for (int h = 0; h < heads; h++) UNROLL for (int half = 0; half < 2; half++)
    {
        float *out = g->out + (size_t)h * (size_t)g->dim16 + d + 8 * half;
        __m256 sum = _mm256_cvtepi32_ps(sums[h][half]);
        _mm256_storeu_ps(
            out, _mm256_fmadd_ps(_mm256_set1_ps(factor[h]), sum, _mm256_loadu_ps(out)));
    }
}

INLINE void add_values(int heads, const struct head_group *g, int from, int to)
{
    float scales[KV_BLOCK], factor[GROUP_HEADS];

    for (int d = 0; d < g->dim16; d += 16) {
        if (d % Q8_0_BLOCK == 0) {
            read_scales(g, d / Q8_0_BLOCK, from, to, scales);
            for (int h = 0; h < heads; h++)
                factor[h] = weights_to_int16(
                    g->w + (size_t)h * KV_BLOCK, scales, to - from, g->u + (size_t)h * KV_BLOCK);
        }
        add_dims(heads, g, d, from, to, factor);
    }
}

/* ---- one function per number of heads */

#define FOR_HEADS(n)                                                                               \
    static void scores_##n(const struct head_group *g, int from, int to)                           \
    {                                                                                              \
        compute_scores(n, g, from, to);                                                            \
    }                                                                                              \
    static void values_##n(const struct head_group *g, int from, int to)                           \
    {                                                                                              \
        add_values(n, g, from, to);                                                                \
    }
FOR_HEADS(1)
FOR_HEADS(2)
FOR_HEADS(3)
FOR_HEADS(4)

typedef void (*heads_fn)(const struct head_group *g, int from, int to);

static const heads_fn score_fns[GROUP_HEADS] = { scores_1, scores_2, scores_3, scores_4 };
static const heads_fn value_fns[GROUP_HEADS] = { values_1, values_2, values_3, values_4 };

void avx2_q8_scores(const struct head_group *g, int from, int to)
{
    score_fns[g->n - 1](g, from, to);
}

void avx2_q8_values(const struct head_group *g, int from, int to)
{
    value_fns[g->n - 1](g, from, to);
}
