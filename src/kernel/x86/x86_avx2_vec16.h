/* x86_avx2_vec16.h: operations on 16 floats or int32 for the sources that the AVX2 and AVX-512 sets
 * share; x86_avx512_vec16.h has the same functions. Here 16 lanes are two vectors of eight.
 * Functions with a number of lanes n treat n > 16 as 16. Included only by files of the AVX2 set. */
#pragma once

#include "kernel/attn.h"
#include "kernel/unroll.h"
#include "kernel/x86/x86_avx2.h"

#ifdef __AVX2__
typedef struct {
    __m256 low, high;
} vec16;

typedef struct {
    __m256i low, high;
} ivec16;

INLINE vec16 all16(float x)
{
    return (vec16){ _mm256_set1_ps(x), _mm256_set1_ps(x) };
}

INLINE vec16 load16(const float *x)
{
    return (vec16){ _mm256_loadu_ps(x), _mm256_loadu_ps(x + 8) };
}

/* Loads the first n >= 0 floats; the other lanes are 0. */
INLINE vec16 load_first16(const float *x, int n)
{
    return (vec16){ load_partial(x, 0, n), load_partial(x, 8, n) };
}

INLINE void store16(float *x, vec16 v)
{
    _mm256_storeu_ps(x, v.low);
    _mm256_storeu_ps(x + 8, v.high);
}

INLINE void store_first16(float *x, int n, vec16 v)
{
    store_partial(x, 0, n, v.low);
    store_partial(x, 8, n, v.high);
}

/* Replaces all lanes but the first n by 0. */
INLINE vec16 keep_first16(vec16 v, int n)
{
    return (vec16){ _mm256_and_ps(v.low, _mm256_castsi256_ps(first_lanes(n))),
        _mm256_and_ps(v.high, _mm256_castsi256_ps(first_lanes(n - 8))) };
}

INLINE vec16 add16(vec16 a, vec16 b)
{
    return (vec16){ _mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high) };
}

INLINE vec16 sub16(vec16 a, vec16 b)
{
    return (vec16){ _mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high) };
}

INLINE vec16 mul16(vec16 a, vec16 b)
{
    return (vec16){ _mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high) };
}

INLINE vec16 div16(vec16 a, vec16 b)
{
    return (vec16){ _mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high) };
}

/* a * b + c, rounded once */
INLINE vec16 fma16(vec16 a, vec16 b, vec16 c)
{
    return (vec16){ _mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high) };
}

/* In min16 and max16 the result is b if a or b is NaN. */
INLINE vec16 min16(vec16 a, vec16 b)
{
    return (vec16){ _mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high) };
}

INLINE vec16 max16(vec16 a, vec16 b)
{
    return (vec16){ _mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high) };
}

/* The larger of the first n floats and the lanes of top; NaN is skipped. */
INLINE vec16 max_first16(vec16 top, const float *x, int n)
{
    if (n >= 16)
        return max16(load16(x), top);
    vec16 t = max16(load_first16(x, n), top);
    return (vec16){ _mm256_blendv_ps(top.low, t.low, _mm256_castsi256_ps(first_lanes(n))),
        _mm256_blendv_ps(top.high, t.high, _mm256_castsi256_ps(first_lanes(n - 8))) };
}

INLINE float top16(vec16 v)
{
    return max8(_mm256_max_ps(v.low, v.high));
}

INLINE float sum16(vec16 v)
{
    return fold16(v.low, v.high);
}

INLINE vec16 exp16(vec16 x)
{
    return (vec16){ exp8(x.low), exp8(x.high) };
}

INLINE float exp1(float x)
{
    return _mm256_cvtss_f32(exp8(_mm256_set1_ps(x)));
}

/* ---- 16-bit floats */

INLINE vec16 load_f16x16(const uint16_t *h)
{
    const __m128i *at = (const __m128i *)(const void *)h;

    return (
        vec16){ _mm256_cvtph_ps(_mm_loadu_si128(at)), _mm256_cvtph_ps(_mm_loadu_si128(at + 1)) };
}

INLINE __m128i narrow8(enum kv_type type, __m256 v)
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

/* Stores v as F16 or BF16. */
INLINE void store_narrow16(uint16_t h[16], enum kv_type type, vec16 v)
{
    __m128i *at = (__m128i *)(void *)h;

    _mm_storeu_si128(at, narrow8(type, v.low));
    _mm_storeu_si128(at + 1, narrow8(type, v.high));
}

struct even_odd {
    vec16 even, odd;
};

/* Converts the low 16 bits of the 16 dwords of a and b, in order, from f16 to float. */
INLINE vec16 f16_dwords_to_f32(__m256i a, __m256i b)
{
    __m256i h = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);

    return (vec16){ _mm256_cvtph_ps(_mm256_castsi256_si128(h)),
        _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1)) };
}

/* Loads 16 pairs of 16-bit floats and separates the first and second elements. */
INLINE struct even_odd widen(enum kv_type type, const uint8_t *line)
{
    const __m256i *at = (const __m256i *)(const void *)line;
    __m256i a = _mm256_loadu_si256(at), b = _mm256_loadu_si256(at + 1);

    if (type == KV_BF16) {
        const __m256i upper = _mm256_set1_epi32((int)0xffff0000);
        return (struct even_odd){ { _mm256_castsi256_ps(_mm256_slli_epi32(a, 16)),
                                      _mm256_castsi256_ps(_mm256_slli_epi32(b, 16)) },
            { _mm256_castsi256_ps(_mm256_and_si256(a, upper)),
                _mm256_castsi256_ps(_mm256_and_si256(b, upper)) } };
    }
    const __m256i lower = _mm256_set1_epi32(0xffff);
    return (
        struct even_odd){ f16_dwords_to_f32(_mm256_and_si256(a, lower), _mm256_and_si256(b, lower)),
        f16_dwords_to_f32(_mm256_srli_epi32(a, 16), _mm256_srli_epi32(b, 16)) };
}
#endif
