/* x86_avx2.c: table of the AVX2 set, and its operations on plain vectors. The orders of additions
 * are those of ref.c: element i is added to lane i % 16, so a step is two vectors. */
#ifndef __AVX2__
#error "compile with the AVX2 flags of the Makefile"
#endif

#include "kernel/x86/x86_avx2.h"
#include "kernel/acts.h"

#include <math.h>

static inline __m256i magnitude_bits(const float *x)
{
    return _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(x)), _mm256_set1_epi32(0x7fffffff));
}

static float max_magnitude(const float *x, int n)
{
    __m256i most = _mm256_setzero_si256();
    int32_t lane[8];
    float top;

    for (int i = 0; i < n; i += 8)
        most = _mm256_max_epi32(most, magnitude_bits(x + i));
    _mm256_storeu_si256((__m256i *)(void *)lane, most);
    for (int i = 1; i < 8; i++)
        lane[0] = MAX(lane[0], lane[i]);
    memcpy(&top, &lane[0], sizeof(top));
    return top;
}

/* x * by, rounded and clamped as in acts.h */
static inline __m256i to_int(const float *x, __m256 by)
{
    __m256 v = _mm256_mul_ps(_mm256_loadu_ps(x), by);

    /* if one operand is NaN, the result is the second operand */
    v = _mm256_max_ps(v, _mm256_set1_ps(-127));
    return _mm256_cvtps_epi32(_mm256_min_ps(v, _mm256_set1_ps(127)));
}

/* converts 32 floats to bytes */
static inline __m256i to_int8(const float *x, float by)
{
    __m256 b = _mm256_set1_ps(by);
    __m256i low = _mm256_packs_epi32(to_int(x, b), to_int(x + 8, b));
    __m256i high = _mm256_packs_epi32(to_int(x + 16, b), to_int(x + 24, b));

    /* packs works within 128-bit halves: restore the order of the groups of four */
    return _mm256_permutevar8x32_epi32(
        _mm256_packs_epi16(low, high), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Sums the bytes of each 128-bit half. */
static inline void half_sums(__m256i q, int32_t *low, int32_t *high)
{
    __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);
    __m256i quads = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    int32_t s[8];

    _mm256_storeu_si256((__m256i *)(void *)s, quads);
    *low = s[0] + s[1] + s[2] + s[3];
    *high = s[4] + s[5] + s[6] + s[7];
}

static void q8_0(const float *x, int n, void *out)
{
    struct act_q8_0 *b = out;

    for (int i = 0; i < n / Q8_0_BLOCK; i++, b++, x += Q8_0_BLOCK) {
        float d = max_magnitude(x, Q8_0_BLOCK) / 127.0f;
        int32_t low, high;
        __m256i q = to_int8(x, d != 0.0f ? 1.0f / d : 0.0f);
        half_sums(q, &low, &high);
        b->d = _cvtsh_ss(_cvtss_sh(d, 0));
        b->minus8 = -8 * (low + high);
        _mm256_storeu_si256((__m256i *)(void *)b->q, q);
    }
}

static void q8_k(const float *x, int n, void *out)
{
    struct act_q8_k *b = out;

    for (int i = 0; i < n / Q8_K_BLOCK; i++, b++, x += Q8_K_BLOCK) {
        float top = max_magnitude(x, Q8_K_BLOCK);
        float scale = top != 0.0f ? 127.0f / top : 0.0f;
        b->d = top != 0.0f ? 1.0f / scale : 0.0f;
        for (int j = 0; j < 8; j++) {
            int32_t low, high;
            __m256i q = to_int8(x + 32 * j, scale);
            half_sums(q, &low, &high);
            b->sum16[2 * j] = (int16_t)low;
            b->sum16[2 * j + 1] = (int16_t)high;
            b->sum32[j] = (int16_t)(low + high);
            _mm256_storeu_si256((__m256i *)(void *)(b->q + 32 * j), q);
        }
    }
}

static void rms_norm(float *out, const float *x, const float *w, int n, float eps)
{
    __m256 low = _mm256_setzero_ps(), high = low;

    for (int i = 0; i < n; i += 16) { /* absent elements add 0 * 0 to a sum of squares */
        __m256 a = load_partial(x, i, n), b = load_partial(x, i + 8, n);
        low = _mm256_fmadd_ps(a, a, low);
        high = _mm256_fmadd_ps(b, b, high);
    }
    __m256 scale = _mm256_set1_ps(1.0f / sqrtf(fold16(low, high) / (float)n + eps));
    for (int i = 0; i < n; i += 8) {
        __m256 v = _mm256_mul_ps(load_partial(x, i, n), scale);
        store_partial(out, i, n, _mm256_mul_ps(v, load_partial(w, i, n)));
    }
}

static inline void rotate(float *a, float *b, float cos, float sin)
{
    float va = *a, vb = *b;

    *a = fmaf(va, cos, -(vb * sin));
    *b = fmaf(va, sin, vb * cos);
}

/* rotates pairs (i, i + n) */
static void rope_halves(float *x, const float *cs, int n)
{
    int i = 0;

    for (; i + 8 <= n; i += 8) {
        __m256 p = _mm256_loadu_ps(cs + 2 * i), q = _mm256_loadu_ps(cs + 2 * i + 8);
        __m256 cos = _mm256_shuffle_ps(p, q, 0x88), sin = _mm256_shuffle_ps(p, q, 0xdd);
        cos = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(cos), 0xd8));
        sin = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(sin), 0xd8));
        __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + n + i);
        _mm256_storeu_ps(x + i, _mm256_fmsub_ps(a, cos, _mm256_mul_ps(b, sin)));
        _mm256_storeu_ps(x + n + i, _mm256_fmadd_ps(a, sin, _mm256_mul_ps(b, cos)));
    }
    for (; i < n; i++)
        rotate(x + i, x + n + i, cs[2 * i], cs[2 * i + 1]);
}

/* rotates pairs (2i, 2i + 1) */
static void rope_neighbours(float *x, const float *cs, int n)
{
    int i = 0;

    for (; i + 4 <= n; i += 4) {
        __m256 v = _mm256_loadu_ps(x + 2 * i), c = _mm256_loadu_ps(cs + 2 * i);
        __m256 cos = _mm256_moveldup_ps(c), sin = _mm256_movehdup_ps(c);
        __m256 swapped = _mm256_permute_ps(v, 0xb1);
        __m256 a = _mm256_fmsub_ps(v, cos, _mm256_mul_ps(swapped, sin));
        __m256 b = _mm256_fmadd_ps(swapped, sin, _mm256_mul_ps(v, cos));
        _mm256_storeu_ps(x + 2 * i, _mm256_blend_ps(a, b, 0xaa));
    }
    for (; i < n; i++)
        rotate(x + 2 * i, x + 2 * i + 1, cs[2 * i], cs[2 * i + 1]);
}

static void rope(float *x, int n_heads, int head_dim, const float *cs, int n_rot, bool is_neox)
{
    for (int h = 0; h < n_heads; h++)
        (is_neox ? rope_halves : rope_neighbours)(x + (size_t)h * (size_t)head_dim, cs, n_rot / 2);
}

static void silu_mul(float *out, const float *gate, const float *up, int n)
{
    const __m256 one = _mm256_set1_ps(1), sign = _mm256_set1_ps(-0.0f);

    for (int i = 0; i < n; i += 8) {
        __m256 g = load_partial(gate, i, n);
        __m256 v = _mm256_div_ps(g, _mm256_add_ps(one, exp8(_mm256_xor_ps(g, sign))));
        store_partial(out, i, n, _mm256_mul_ps(v, load_partial(up, i, n)));
    }
}

static void gelu_mul(float *out, const float *gate, const float *up, int n)
{
    const __m256 one = _mm256_set1_ps(1), cube = _mm256_set1_ps(GELU_CUBE);
    const __m256 scale = _mm256_set1_ps(-2.0f * GELU_SCALE);

    for (int i = 0; i < n; i += 8) {
        __m256 x = load_partial(gate, i, n);
        __m256 inner = _mm256_mul_ps(x, _mm256_fmadd_ps(_mm256_mul_ps(x, x), cube, one));
        __m256 v = _mm256_div_ps(x, _mm256_add_ps(one, exp8(_mm256_mul_ps(inner, scale))));
        store_partial(out, i, n, _mm256_mul_ps(v, load_partial(up, i, n)));
    }
}

/* min and max return the second operand if one is NaN. */
static void swiglu_oai(float *out, const float *gate, const float *up, int n)
{
    const __m256 one = _mm256_set1_ps(1), alpha = _mm256_set1_ps(-OAI_ALPHA);
    const __m256 most = _mm256_set1_ps(OAI_LIMIT), least = _mm256_set1_ps(-OAI_LIMIT);

    for (int i = 0; i < n; i += 8) {
        __m256 g = _mm256_min_ps(most, load_partial(gate, i, n));
        __m256 u = _mm256_max_ps(least, _mm256_min_ps(most, load_partial(up, i, n)));
        __m256 v = _mm256_div_ps(g, _mm256_add_ps(one, exp8(_mm256_mul_ps(g, alpha))));
        store_partial(out, i, n, _mm256_mul_ps(v, _mm256_add_ps(u, one)));
    }
}

/* max returns the second operand if one is NaN. */
static void relu_sqr(float *out, const float *x, int n)
{
    const __m256 zero = _mm256_setzero_ps();

    for (int i = 0; i < n; i += 8) {
        __m256 v = _mm256_max_ps(load_partial(x, i, n), zero);
        store_partial(out, i, n, _mm256_mul_ps(v, v));
    }
}

static void add(float *x, const float *y, int n)
{
    for (int i = 0; i < n; i += 8)
        store_partial(x, i, n, _mm256_add_ps(load_partial(x, i, n), load_partial(y, i, n)));
}

static void add_scaled(float *x, float a, const float *y, int n)
{
    __m256 all = _mm256_set1_ps(a);

    for (int i = 0; i < n; i += 8)
        store_partial(x, i, n, _mm256_fmadd_ps(all, load_partial(y, i, n), load_partial(x, i, n)));
}

struct softmax_params {
    __m256 max, t;
    bool is_one; /* t == 1: the division changes nothing and is skipped */
};

/* Computes the softmax weights of eight elements; lanes beyond n are 0. */
static inline __m256 softmax8(float *out, const float *x, int i, int n, struct softmax_params h)
{
    __m256 v = _mm256_sub_ps(load_partial(x, i, n), h.max);

    v = exp8(h.is_one ? v : _mm256_div_ps(v, h.t));
    store_partial(out, i, n, v);
    return _mm256_and_ps(v, _mm256_castsi256_ps(first_lanes(n - i)));
}

static double softmax(float *out, const float *x, int n, float max, float t)
{
    __m256d lane[4] = { _mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd(),
        _mm256_setzero_pd() };
    const struct softmax_params h = { _mm256_set1_ps(max), _mm256_set1_ps(t), t == 1 };

    for (int i = 0; i < n; i += 16) {
        __m256 a = softmax8(out, x, i, n, h), b = softmax8(out, x, i + 8, n, h);
        lane[0] = _mm256_add_pd(lane[0], _mm256_cvtps_pd(_mm256_castps256_ps128(a)));
        lane[1] = _mm256_add_pd(lane[1], _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1)));
        lane[2] = _mm256_add_pd(lane[2], _mm256_cvtps_pd(_mm256_castps256_ps128(b)));
        lane[3] = _mm256_add_pd(lane[3], _mm256_cvtps_pd(_mm256_extractf128_ps(b, 1)));
    }
    __m256d four = _mm256_add_pd(_mm256_add_pd(lane[0], lane[2]), _mm256_add_pd(lane[1], lane[3]));
    __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(two) + _mm_cvtsd_f64(_mm_unpackhi_pd(two, two));
}

static float max(const float *x, int n)
{
    float top = -INFINITY;
    __m256 t = _mm256_set1_ps(top);
    int i = 0;

    for (; i + 8 <= n; i += 8)
        t = _mm256_max_ps(_mm256_loadu_ps(x + i), t); /* skips NaN */
    top = max8(t);
    for (; i < n; i++)
        top = x[i] > top ? x[i] : top;
    return top + 0.0f;
}

const struct kernels kernels_avx2 = {
    .name = "avx2",
    .q8_0 = q8_0,
    .q8_k = q8_k,
    .rms_norm = rms_norm,
    .rope = rope,
    .silu_mul = silu_mul,
    .gelu_mul = gelu_mul,
    .swiglu_oai = swiglu_oai,
    .relu_sqr = relu_sqr,
    .sigmoid_mul = avx2_sigmoid_mul,
    .softplus = avx2_softplus,
    .l2_norm = avx2_l2_norm,
    .conv = avx2_conv,
    .delta_rule = avx2_delta_rule,
    .state_row = avx2_state_row,
    .add = add,
    .add_scaled = add_scaled,
    .kv_append = avx2_kv_append,
    .attend = avx2_attend,
    .attend_merge = avx2_attend_merge,
    .softmax = softmax,
    .max = max,
    .gemm = {
#define WEIGHT(TYPE, name, act, block) [GEMM_##TYPE] = avx2_gemm_##name,
#include "kernel/types.def"
#undef WEIGHT
    },
};
