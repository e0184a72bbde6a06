/* x86_avx2.h: functions shared by the files of the AVX2 set. Included only by these files and
 * kernels.c, which needs the name of the set. Pure; any thread. */
#pragma once

#include "kernel/kernels.h"

extern const struct kernels kernels_avx2;

#define WEIGHT(TYPE, name, act, block) void avx2_gemm_##name(const struct gemm_args *g);
#include "kernel/types.def"
#undef WEIGHT

void avx2_sigmoid_mul(float *out, const float *gate, const float *x, int n);
void avx2_softplus(float *out, const float *x, const float *bias, int n);
void avx2_l2_norm(float *out, const float *x, int n, float eps, float factor);
void avx2_conv(float *out, const struct conv_row *c, int n);
void avx2_delta_rule(const struct state_row *s);
void avx2_state_row(const struct state_row *s);

void avx2_kv_append(const struct kv_slot *slot, const float *k, const float *v);
void avx2_attend(const struct attn_args *a);
void avx2_attend_merge(const struct attn_args *a);

#ifdef __AVX2__
#include "kernel/numerics.h"

#include <immintrin.h>

/* 2^n for n in -126 .. 127 */
static inline __m256 exp2_int(__m256i n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

/* exp as defined in numerics.h. The operand order of min and max preserves a NaN. 2^n is multiplied
 * in two factors: the first product is exact, so only the second one rounds, even if the result is
 * subnormal. */
static inline __m256 exp8(__m256 x)
{
    x = _mm256_min_ps(_mm256_set1_ps(EXP_HI), x);
    x = _mm256_max_ps(_mm256_set1_ps(EXP_LO), x);
    __m256i whole = _mm256_cvtps_epi32(_mm256_mul_ps(x, _mm256_set1_ps(LOG2_E)));
    __m256 n = _mm256_cvtepi32_ps(whole);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(LN2_HI), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(LN2_LO), r);
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(EXP_C6), r, _mm256_set1_ps(EXP_C5));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_C4));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_C3));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_C2));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1));
    __m256i half = _mm256_srai_epi32(whole, 1);
    p = _mm256_mul_ps(p, exp2_int(half));
    return _mm256_mul_ps(p, exp2_int(_mm256_sub_epi32(whole, half)));
}

/* Sum of 16 lanes: lanes 0-7 (low) and 8-15 (high) are reduced 8, 4, 2, 1. */
static inline float fold16(__m256 low, __m256 high)
{
    __m256 a = _mm256_add_ps(low, high);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));

    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

static inline float max8(__m256 v)
{
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

/* Mask of eight lanes, of which the first n are all ones. */
static inline __m256i first_lanes(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* Loads eight floats from x[i] on, or the remaining n - i (possibly none), with zeros in the other
 * lanes. */
static inline __m256 load_partial(const float *x, int i, int n)
{
    return n - i >= 8 ? _mm256_loadu_ps(x + i) : _mm256_maskload_ps(x + i, first_lanes(n - i));
}

static inline void store_partial(float *x, int i, int n, __m256 v)
{
    if (n - i >= 8)
        _mm256_storeu_ps(x + i, v);
    else
        _mm256_maskstore_ps(x + i, first_lanes(n - i), v);
}
#endif
