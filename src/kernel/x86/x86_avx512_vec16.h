/* x86_avx512_vec16.h: operations on 16 floats or int32 for the sources that the AVX2 and AVX-512
 * sets share; x86_avx2_vec16.h has the same functions. Functions with a number of lanes n treat
 * n > 16 as 16. Included only by files of the AVX-512 and AMX sets. */
#pragma once

#include "kernel/attn.h"
#include "kernel/unroll.h"
#include "kernel/x86/x86_avx512.h"

#include <math.h>

#ifdef __AVX512F__
typedef __m512 vec16;
typedef __m512i ivec16;

INLINE vec16 all16(float x)
{
    return _mm512_set1_ps(x);
}

INLINE vec16 load16(const float *x)
{
    return _mm512_loadu_ps(x);
}

/* Loads the first n >= 0 floats; the other lanes are 0. */
INLINE vec16 load_first16(const float *x, int n)
{
    return _mm512_maskz_loadu_ps(first_lanes(MIN(16, n)), x);
}

INLINE void store16(float *x, vec16 v)
{
    _mm512_storeu_ps(x, v);
}

INLINE void store_first16(float *x, int n, vec16 v)
{
    _mm512_mask_storeu_ps(x, first_lanes(MIN(16, n)), v);
}

/* Replaces all lanes but the first n by 0. */
INLINE vec16 keep_first16(vec16 v, int n)
{
    return _mm512_maskz_mov_ps(first_lanes(MIN(16, n)), v);
}

INLINE vec16 add16(vec16 a, vec16 b)
{
    return _mm512_add_ps(a, b);
}

INLINE vec16 sub16(vec16 a, vec16 b)
{
    return _mm512_sub_ps(a, b);
}

INLINE vec16 mul16(vec16 a, vec16 b)
{
    return _mm512_mul_ps(a, b);
}

INLINE vec16 div16(vec16 a, vec16 b)
{
    return _mm512_div_ps(a, b);
}

/* a * b + c, rounded once */
INLINE vec16 fma16(vec16 a, vec16 b, vec16 c)
{
    return _mm512_fmadd_ps(a, b, c);
}

/* In min16 and max16 the result is b if a or b is NaN. */
INLINE vec16 min16(vec16 a, vec16 b)
{
    return _mm512_min_ps(a, b);
}

INLINE vec16 max16(vec16 a, vec16 b)
{
    return _mm512_max_ps(a, b);
}

/* The larger of the first n floats and the lanes of top; NaN is skipped. */
INLINE vec16 max_first16(vec16 top, const float *x, int n)
{
    const __m512 lowest = _mm512_set1_ps(-INFINITY);

    return _mm512_max_ps(_mm512_mask_loadu_ps(lowest, first_lanes(MIN(16, n)), x), top);
}

INLINE float top16(vec16 v)
{
    return _mm512_reduce_max_ps(v);
}

INLINE float sum16(vec16 v)
{
    return fold16(v);
}

INLINE float exp1(float x)
{
    return _mm512_cvtss_f32(exp16(_mm512_set1_ps(x)));
}

/* ---- 16-bit floats */

INLINE vec16 load_f16x16(const uint16_t *h)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)h));
}

/* Stores v as F16 or BF16. */
INLINE void store_narrow16(uint16_t h[16], enum kv_type type, vec16 v)
{
    __m256i *at = (__m256i *)(void *)h;

    if (type == KV_F16) {
        _mm256_storeu_si256(at, _mm512_cvtps_ph(v, 0));
        return;
    }
    __m512i u = _mm512_castps_si512(v);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    rounded = _mm512_mask_or_epi32(rounded, nan, u, _mm512_set1_epi32(0x400000));
    _mm256_storeu_si256(at, _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
}

struct even_odd {
    vec16 even, odd;
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
#endif
