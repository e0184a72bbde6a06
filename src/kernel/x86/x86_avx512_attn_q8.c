/* x86_avx512_attn_q8.c: the parts of attention that differ for q8_0 pages.
 *
 * Sixteen keys are a panel of Q8_0 weights, and a query is an activation row: a score is one int8
 * dot product (VNNI) per four dimensions and one fma per 32. The weights of a key block are 16-bit
 * integers, so the values of two positions and sixteen dimensions are one int16 dot product. The
 * sums are exact, so positions that a row does not attend to are included with weight zero. */
#ifndef __AVX512F__
#error "compile with the AVX-512 flags of the Makefile"
#endif

#include "kernel/x86/x86_avx512_attn.h"
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

    kernels_avx512.q8_0(x, whole, out);
    if (whole == dim)
        return;
    memcpy(rest, x + whole, (size_t)(dim - whole) * sizeof(float));
    kernels_avx512.q8_0(rest, Q8_0_BLOCK, out + whole / Q8_0_BLOCK);
}

static uint16_t f32_to_f16_bits(float f)
{
    return (uint16_t)_mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(f), 0));
}

void avx512_q8_append(const struct kv_slot *slot, const float *k, const float *v)
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
        __m256i u = _mm256_loadu_si256((const __m256i *)(const void *)key[b].q);
        _mm256_storeu_si256((__m256i *)(void *)q, _mm256_xor_si256(u, top));
        for (int i = 0; i < Q8_0_BLOCK / 4; i++)
            memcpy(kp[b].q[i][row], q + 4 * i, 4);
        kp[b].d[row] = f32_to_f16_bits(key[b].d);
        scales[b * 2 * V_PAIRS + token] = f32_to_f16_bits(value[b].d);
    }
    for (int d = 0; d < dim; d++)
        vp[(size_t)(d / 16) * V_PAIRS * 32 + (size_t)(d % 16) * 2] =
            (uint8_t)value[d / Q8_0_BLOCK].q[d % Q8_0_BLOCK];
}

void avx512_q8_queries(const struct head_group *g)
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

INLINE __m512 f16_to_f32_x16(const uint16_t *h)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)h));
}

/* Prefetch targets: the keys of the next unit, and the values of this unit, which are read after
 * the key block. */
struct prefetch_targets {
    const struct p16_q8_0 *k;
    const uint8_t *v;
};

INLINE void score_block(int heads, const struct p16_q8_0 *k, struct prefetch_targets next,
    const struct act_q8_0 *q, int n_blocks, __m512 acc[GROUP_HEADS])
{
    __m512i sum[GROUP_HEADS];
    __m512 dk = f16_to_f32_x16(k->d);

    UNROLL for (int h = 0; h < heads; h++) sum[h] = _mm512_set1_epi32(16 * q[h * n_blocks].minus8);
    UNROLL for (int i = 0; i < 8; i++)
    {
        __m512i x = _mm512_loadu_si512(k->q[i]);
        _mm_prefetch((const char *)next.k->q[i], _MM_HINT_T0);
        _mm_prefetch((const char *)next.v + 64 * i, _MM_HINT_T1);
        UNROLL for (int h = 0; h < heads; h++)
        {
            int32_t four;
            memcpy(&four, q[h * n_blocks].q + 4 * i, 4);
            sum[h] = _mm512_dpbusd_epi32(sum[h], x, _mm512_set1_epi32(four));
        }
    }
    UNROLL for (int h = 0; h < heads; h++) acc[h] = _mm512_fmadd_ps(
        _mm512_mul_ps(dk, _mm512_set1_ps(q[h * n_blocks].d)), _mm512_cvtepi32_ps(sum[h]), acc[h]);
}

INLINE void compute_scores(int heads, const struct head_group *g, int from, int to)
{
    const int n = n_blocks_of(g->dim);
    const __m512 scale = _mm512_set1_ps(g->a->scale);

    for (int pos = from; pos < to; pos += UNIT_KEYS) {
        const struct p16_q8_0 *k = keys_of(g, pos);
        struct prefetch_targets next = { keys_of(g, MIN(pos + UNIT_KEYS, to - 1)),
            values_of(g, pos) + pos % PAGE_TOKENS / KV_GROUP * n * 512 };
        __mmask16 here = first_lanes(MIN(UNIT_KEYS, to - pos));
        __m512 acc[GROUP_HEADS];

        UNROLL for (int h = 0; h < heads; h++) acc[h] = _mm512_setzero_ps();
        for (int b = 0; b < n; b++, next.k++, next.v += 512)
            score_block(heads, k + b, next, g->q8 + b, n, acc);
        UNROLL for (int h = 0; h < heads; h++) _mm512_mask_storeu_ps(
            g->w + (size_t)h * KV_BLOCK + (pos - from), here, _mm512_mul_ps(acc[h], scale));
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
        __mmask16 here = first_lanes(MIN(UNIT_KEYS, to - pos));
        _mm512_mask_storeu_ps(out + (pos - from), here, f16_to_f32_x16(scales + pos % PAGE_TOKENS));
    }
}

/* Converts n products of weights and scales to integers; the rest, to a whole vector and to `end`,
 * is zero. Returns the factor that converts them back. */
static float weights_to_int16(const float *w, const float *scales, int n, int end, int16_t *u)
{
    const __m512i no_sign = _mm512_set1_epi32(0x7fffffff);
    const __m512 top = _mm512_set1_ps(KV_Q8_MAX_WEIGHT);
    __m512i most = _mm512_setzero_si512();
    __m512 p[KV_BLOCK / 16];

    for (int i = 0; i < n; i += 16) {
        __mmask16 here = first_lanes(MIN(16, n - i));
        p[i / 16] = _mm512_mul_ps(
            _mm512_maskz_loadu_ps(here, w + i), _mm512_maskz_loadu_ps(here, scales + i));
        most = _mm512_max_epu32(most, _mm512_and_si512(_mm512_castps_si512(p[i / 16]), no_sign));
    }
    uint32_t bits = _mm512_reduce_max_epu32(most);
    float factor;
    memcpy(&factor, &bits, sizeof(factor));
    factor /= (float)KV_Q8_MAX_WEIGHT;
    __m512 by = _mm512_set1_ps(factor != 0.0f ? 1.0f / factor : 0.0f);
    for (int i = 0; i < end; i += 16) {
        __mmask16 here = i < n ? first_lanes(MIN(16, n - i)) : 0;
        __m512 v = i < n ? _mm512_mul_ps(p[i / 16], by) : _mm512_setzero_ps();
        /* if one operand is NaN, the result is the second operand */
        v = _mm512_max_ps(v, _mm512_set1_ps(-KV_Q8_MAX_WEIGHT));
        v = _mm512_min_ps(v, top);
        __m256i packed = _mm512_maskz_cvtepi32_epi16(here, _mm512_cvtps_epi32(v));
        _mm256_storeu_si256((__m256i *)(void *)(u + i), packed);
    }
    return factor;
}

INLINE __m512i load_int8_as_int16(const uint8_t *line)
{
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)line));
}

/* Adds one page's weighted values of 32 dimensions to the sums. */
INLINE void add_page_values(
    int heads, const int16_t *u, const uint8_t *v[2], int n, __m512i sums[][GROUP_HEADS])
{
    for (int t = 0; t < n; t += 2) {
        __m512i x = load_int8_as_int16(v[0] + (size_t)t * 16),
                y = load_int8_as_int16(v[1] + (size_t)t * 16);
        UNROLL for (int h = 0; h < heads; h++)
        {
            int32_t two;
            memcpy(&two, u + h * KV_BLOCK + t, 4);
            sums[0][h] = _mm512_dpwssd_epi32(sums[0][h], x, _mm512_set1_epi32(two));
            sums[1][h] = _mm512_dpwssd_epi32(sums[1][h], y, _mm512_set1_epi32(two));
        }
    }
}

INLINE void add_dims(
    int heads, const struct head_group *g, int d, int from, int to, const float *factor)
{
    /* the same dimensions twice if there are no others */
    const int second = MIN(d + 16, g->dim16 - 16);
    const int last = g->n_keys[g->n - 1] - 1;
    __m512i sums[2][GROUP_HEADS];
    __m512 out[2];

    UNROLL for (int h = 0; h < heads; h++) sums[0][h] = sums[1][h] = _mm512_setzero_si512();
    for (int pos = from; pos < to; pos += PAGE_TOKENS) {
        const uint8_t *page = values_of(g, pos);
        const uint8_t *v[2] = { page + (size_t)d * V_PAIRS * 2,
            page + (size_t)second * V_PAIRS * 2 };
        const char *next =
            (const char *)values_of(g, MIN(pos + PAGE_TOKENS, to - 1)) + (size_t)d * V_PAIRS * 2;
        const char *keys = (const char *)(keys_of(g, MIN(pos + KV_BLOCK, last)) +
                                          d / Q8_0_BLOCK * (V_PAIRS * 2 / KV_GROUP));
        for (size_t i = 0; i < (size_t)V_PAIRS; i++) {
            _mm_prefetch(next + 64 * i, _MM_HINT_T0);
            _mm_prefetch(keys + 64 * i, _MM_HINT_T1);
        }
        add_page_values(heads, g->u + (pos - from), v, MIN(PAGE_TOKENS, to - pos), sums);
    }
    UNROLL for (int h = 0; h < heads; h++)
    {
        float *a = g->out + (size_t)h * (size_t)g->dim16 + d, *b = a + (second - d);
        __m512 by = _mm512_set1_ps(factor[h]);
        out[0] = _mm512_fmadd_ps(by, _mm512_cvtepi32_ps(sums[0][h]), _mm512_loadu_ps(a));
        out[1] = _mm512_fmadd_ps(by, _mm512_cvtepi32_ps(sums[1][h]), _mm512_loadu_ps(b));
        _mm512_storeu_ps(a, out[0]);
        _mm512_storeu_ps(b, out[1]);
    }
}

INLINE void add_values(int heads, const struct head_group *g, int from, int to)
{
    float scales[KV_BLOCK], factor[GROUP_HEADS];

    for (int d = 0; d < g->dim16; d += Q8_0_BLOCK) {
        read_scales(g, d / Q8_0_BLOCK, from, to, scales);
        for (int h = 0; h < heads; h++)
            factor[h] = weights_to_int16(g->w + (size_t)h * KV_BLOCK, scales,
                MIN(to, g->n_keys[h]) - from, to - from, g->u + (size_t)h * KV_BLOCK);
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
FOR_HEADS(5)
FOR_HEADS(6)
FOR_HEADS(7)
FOR_HEADS(8)

typedef void (*heads_fn)(const struct head_group *g, int from, int to);

static const heads_fn score_fns[GROUP_HEADS] = { scores_1, scores_2, scores_3, scores_4, scores_5,
    scores_6, scores_7, scores_8 };
static const heads_fn value_fns[GROUP_HEADS] = { values_1, values_2, values_3, values_4, values_5,
    values_6, values_7, values_8 };

void avx512_q8_scores(const struct head_group *g, int from, int to)
{
    score_fns[g->n - 1](g, from, to);
}

void avx512_q8_values(const struct head_group *g, int from, int to)
{
    value_fns[g->n - 1](g, from, to);
}
