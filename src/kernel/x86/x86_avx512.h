/* x86_avx512.h: functions shared by the files of the AVX-512 set. Included only by these files, the
 * AMX files and kernels.c, which needs the name of the set. Pure; any thread. */
#pragma once

#include "kernel/kernels.h"

extern const struct kernels kernels_avx512;

#define WEIGHT(TYPE, name, act, block) void avx512_gemm_##name(const struct gemm_args *g);
#include "kernel/types.def"
#undef WEIGHT

void avx512_sigmoid_mul(float *out, const float *gate, const float *x, int n);
void avx512_softplus(float *out, const float *x, const float *bias, int n);
void avx512_l2_norm(float *out, const float *x, int n, float eps, float factor);
void avx512_conv(float *out, const struct conv_row *c, int n);
void avx512_delta_rule(const struct state_row *s);
void avx512_state_row(const struct state_row *s);

void avx512_kv_append(const struct kv_slot *slot, const float *k, const float *v);
void avx512_attend(const struct attn_args *a);
void avx512_attend_merge(const struct attn_args *a);

#ifdef __AVX512F__
#include "kernel/numerics.h"

#include <immintrin.h>

static inline __mmask16 first_lanes(int n)
{
    return (__mmask16)((1u << n) - 1); /* n: 0 .. 16 */
}

/* exp as defined in numerics.h. The operand order of min and max preserves a NaN; scalef rounds
 * once. */
static inline __m512 exp16(__m512 x)
{
    x = _mm512_min_ps(_mm512_set1_ps(EXP_HI), x);
    x = _mm512_max_ps(_mm512_set1_ps(EXP_LO), x);
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(LOG2_E)), 0);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(LN2_HI), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(LN2_LO), r);
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(EXP_C6), r, _mm512_set1_ps(EXP_C5));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_C4));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_C3));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_C2));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1));
    return _mm512_scalef_ps(p, n);
}

/* Sum of 16 lanes, reduced 8, 4, 2, 1. */
static inline float fold16(__m512 v)
{
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));

    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
#endif
