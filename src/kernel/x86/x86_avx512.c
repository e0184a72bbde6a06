/* x86_avx512.c: table of the AVX-512 set, and its operations on plain vectors. The orders of
 * additions are those of ref.c: element i is added to lane i % 16. RoPE is left to the AVX2 set:
 * its shuffles within 128 bits are faster than permutations across 512 (68 compared with 28 GB/s,
 * EPYC 9004). */
#ifndef __AVX512F__
#error "compile with the AVX-512 flags of the Makefile"
#endif

#include "kernel/x86/x86_avx512.h"
#include "kernel/acts.h"

#include <math.h>

/* Loads sixteen floats from x[i] on, or the remaining n - i, with zeros in the other lanes. */
static inline __m512 load_partial(const float *x, int i, int n)
{
    return n - i >= 16 ? _mm512_loadu_ps(x + i) : _mm512_maskz_loadu_ps(first_lanes(n - i), x + i);
}

static inline void store_partial(float *x, int i, int n, __m512 v)
{
    if (n - i >= 16)
        _mm512_storeu_ps(x + i, v);
    else
        _mm512_mask_storeu_ps(x + i, first_lanes(n - i), v);
}

static inline __m512i magnitude_bits(__m512 v)
{
    return _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7fffffff));
}

/* x * by, rounded and clamped as in acts.h */
static inline __m128i to_int8(__m512 x, __m512 by)
{
    __m512 v = _mm512_mul_ps(x, by);

    /* if one operand is NaN, the result is the second operand */
    v = _mm512_max_ps(v, _mm512_set1_ps(-127));
    v = _mm512_min_ps(v, _mm512_set1_ps(127));
    return _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v));
}

static float float_from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof(f));
    return f;
}

static void q8_0(const float *x, int n, void *out)
{
    struct act_q8_0 *b = out;
    const __m256i ones = _mm256_set1_epi8(1);

    for (int i = 0; i < n / Q8_0_BLOCK; i++, b++, x += Q8_0_BLOCK) {
        __m512 low = _mm512_loadu_ps(x), high = _mm512_loadu_ps(x + 16);
        float d = float_from_bits(_mm512_reduce_max_epu32(
                      _mm512_max_epu32(magnitude_bits(low), magnitude_bits(high)))) /
                  127.0f;
        __m512 by = _mm512_set1_ps(d != 0.0f ? 1.0f / d : 0.0f);
        __m256i q = _mm256_set_m128i(to_int8(high, by), to_int8(low, by));
        b->d = _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtps_ph(_mm_set_ss(d), 0)));
        __m256i sums = _mm256_dpbusd_epi32(_mm256_setzero_si256(), ones, q);
        b->minus8 = -8 * _mm512_reduce_add_epi32(_mm512_zextsi256_si512(sums));
        _mm256_storeu_si256((__m256i *)(void *)b->q, q);
    }
}

static void q8_k(const float *x, int n, void *out)
{
    struct act_q8_k *b = out;

    for (int i = 0; i < n / Q8_K_BLOCK; i++, b++, x += Q8_K_BLOCK) {
        __m512i most = _mm512_setzero_si512();
        for (int j = 0; j < Q8_K_BLOCK; j += 16)
            most = _mm512_max_epu32(most, magnitude_bits(_mm512_loadu_ps(x + j)));
        float top = float_from_bits(_mm512_reduce_max_epu32(most));
        float scale = top != 0.0f ? 127.0f / top : 0.0f;
        b->d = top != 0.0f ? 1.0f / scale : 0.0f;
        for (int j = 0; j < 16; j++) {
            __m128i q = to_int8(_mm512_loadu_ps(x + 16 * j), _mm512_set1_ps(scale));
            __m512i wide = _mm512_cvtepi8_epi32(q);
            _mm_storeu_si128((__m128i *)(void *)(b->q + 16 * j), q);
            b->sum16[j] = (int16_t)_mm512_reduce_add_epi32(wide);
        }
        for (int j = 0; j < 8; j++)
            b->sum32[j] = (int16_t)(b->sum16[2 * j] + b->sum16[2 * j + 1]);
    }
}

static void rms_norm(float *out, const float *x, const float *w, int n, float eps)
{
    __m512 lanes = _mm512_setzero_ps();

    for (int i = 0; i < n; i += 16) {
        __m512 v = load_partial(x, i, n);
        lanes = _mm512_fmadd_ps(v, v, lanes); /* absent elements add 0 * 0 to a sum of squares */
    }
    float scale = 1.0f / sqrtf(fold16(lanes) / (float)n + eps);
    for (int i = 0; i < n; i += 16) {
        __m512 v = _mm512_mul_ps(load_partial(x, i, n), _mm512_set1_ps(scale));
        store_partial(out, i, n, _mm512_mul_ps(v, load_partial(w, i, n)));
    }
}

static void silu_mul(float *out, const float *gate, const float *up, int n)
{
    const __m512 one = _mm512_set1_ps(1), sign = _mm512_set1_ps(-0.0f);

    for (int i = 0; i < n; i += 16) {
        __m512 g = load_partial(gate, i, n);
        __m512 e = exp16(_mm512_xor_ps(g, sign));
        __m512 v = _mm512_div_ps(g, _mm512_add_ps(one, e));
        store_partial(out, i, n, _mm512_mul_ps(v, load_partial(up, i, n)));
    }
}

static void gelu_mul(float *out, const float *gate, const float *up, int n)
{
    const __m512 one = _mm512_set1_ps(1), cube = _mm512_set1_ps(GELU_CUBE);
    const __m512 scale = _mm512_set1_ps(-2.0f * GELU_SCALE);

    for (int i = 0; i < n; i += 16) {
        __m512 x = load_partial(gate, i, n);
        __m512 inner = _mm512_mul_ps(x, _mm512_fmadd_ps(_mm512_mul_ps(x, x), cube, one));
        __m512 v = _mm512_div_ps(x, _mm512_add_ps(one, exp16(_mm512_mul_ps(inner, scale))));
        store_partial(out, i, n, _mm512_mul_ps(v, load_partial(up, i, n)));
    }
}

/* min and max return the second operand if one is NaN. */
static void swiglu_oai(float *out, const float *gate, const float *up, int n)
{
    const __m512 one = _mm512_set1_ps(1), alpha = _mm512_set1_ps(-OAI_ALPHA);
    const __m512 most = _mm512_set1_ps(OAI_LIMIT), least = _mm512_set1_ps(-OAI_LIMIT);

    for (int i = 0; i < n; i += 16) {
        __m512 g = _mm512_min_ps(most, load_partial(gate, i, n));
        __m512 u = _mm512_max_ps(least, _mm512_min_ps(most, load_partial(up, i, n)));
        __m512 v = _mm512_div_ps(g, _mm512_add_ps(one, exp16(_mm512_mul_ps(g, alpha))));
        store_partial(out, i, n, _mm512_mul_ps(v, _mm512_add_ps(u, one)));
    }
}

/* max returns the second operand if one is NaN. */
static void relu_sqr(float *out, const float *x, int n)
{
    const __m512 zero = _mm512_setzero_ps();

    for (int i = 0; i < n; i += 16) {
        __m512 v = _mm512_max_ps(load_partial(x, i, n), zero);
        store_partial(out, i, n, _mm512_mul_ps(v, v));
    }
}

static void add(float *x, const float *y, int n)
{
    for (int i = 0; i < n; i += 16)
        store_partial(x, i, n, _mm512_add_ps(load_partial(x, i, n), load_partial(y, i, n)));
}

static void add_scaled(float *x, float a, const float *y, int n)
{
    __m512 all = _mm512_set1_ps(a);

    for (int i = 0; i < n; i += 16)
        store_partial(x, i, n, _mm512_fmadd_ps(all, load_partial(y, i, n), load_partial(x, i, n)));
}

static double softmax(float *out, const float *x, int n, float max, float t)
{
    const __m512 top = _mm512_set1_ps(max), temperature = _mm512_set1_ps(t);
    __m512d low = _mm512_setzero_pd(), high = low;

    for (int i = 0; i < n; i += 16) {
        __mmask16 here = first_lanes(MIN(16, n - i));
        __m512 v = _mm512_sub_ps(load_partial(x, i, n), top);
        /* division is slow, and division by 1 changes nothing */
        v = exp16(t != 1 ? _mm512_div_ps(v, temperature) : v);
        store_partial(out, i, n, v);
        v = _mm512_maskz_mov_ps(here, v);
        low = _mm512_add_pd(low, _mm512_cvtps_pd(_mm512_castps512_ps256(v)));
        high = _mm512_add_pd(high, _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1)));
    }
    low = _mm512_add_pd(low, high);
    __m256d four = _mm256_add_pd(_mm512_castpd512_pd256(low), _mm512_extractf64x4_pd(low, 1));
    __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(two) + _mm_cvtsd_f64(_mm_unpackhi_pd(two, two));
}

static float max(const float *x, int n)
{
    const __m512 lowest = _mm512_set1_ps(-INFINITY);
    __m512 top = lowest;

    for (int i = 0; i < n; i += 16) {
        __mmask16 here = first_lanes(MIN(16, n - i));
        top = _mm512_max_ps(_mm512_mask_loadu_ps(lowest, here, x + i), top); /* skips NaN */
    }
    return _mm512_reduce_max_ps(top) + 0.0f;
}

const struct kernels kernels_avx512 = {
    .name = "avx512",
    .q8_0 = q8_0,
    .q8_k = q8_k,
    .rms_norm = rms_norm,
    .silu_mul = silu_mul,
    .gelu_mul = gelu_mul,
    .swiglu_oai = swiglu_oai,
    .relu_sqr = relu_sqr,
    .sigmoid_mul = avx512_sigmoid_mul,
    .softplus = avx512_softplus,
    .l2_norm = avx512_l2_norm,
    .conv = avx512_conv,
    .delta_rule = avx512_delta_rule,
    .state_row = avx512_state_row,
    .add = add,
    .add_scaled = add_scaled,
    .kv_append = avx512_kv_append,
    .attend = avx512_attend,
    .attend_merge = avx512_attend_merge,
    .softmax = softmax,
    .max = max,
    .gemm = {
#define WEIGHT(TYPE, name, act, block) [GEMM_##TYPE] = avx512_gemm_##name,
#include "kernel/types.def"
#undef WEIGHT
    },
};
