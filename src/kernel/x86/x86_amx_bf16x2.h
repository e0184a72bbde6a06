/* x86_amx_bf16x2.h: splits floats into two bf16 numbers hi and lo, whose sum has at least 16 bits
 * of mantissa. Included only by x86_amx_*.c.
 *
 * hi = round(x), lo = round(x - hi), to nearest, ties to even. A number that is subnormal before or
 * after rounding becomes zero, as it does in the tiles. A number that is not finite has lo = 0. */
#pragma once

#include "kernel/unroll.h"
#include "kernel/x86/x86_avx512.h"

#ifdef __AVX512BF16__
INLINE __m512i f32_to_bf16_x32(__m512 low, __m512 high)
{
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

INLINE __m512 bf16_to_f32_x16(__m256i h)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

/* x - hi; 0 if hi is not finite */
INLINE __m512 bf16_remainder(__m512 x, __m512 hi)
{
    __mmask16 odd = _mm512_fpclass_ps_mask(hi, 0x99); /* NaN, infinities */

    return _mm512_maskz_sub_ps((__mmask16)~odd, x, hi);
}

/* Splits 32 floats. */
INLINE void split_bf16x2(__m512 a, __m512 b, uint8_t *hi, uint8_t *lo)
{
    __m512i h = f32_to_bf16_x32(a, b);
    __m512 ah = bf16_to_f32_x16(_mm512_castsi512_si256(h)),
           bh = bf16_to_f32_x16(_mm512_extracti64x4_epi64(h, 1));

    _mm512_store_si512(hi, h);
    _mm512_store_si512(lo, f32_to_bf16_x32(bf16_remainder(a, ah), bf16_remainder(b, bh)));
}
#endif
