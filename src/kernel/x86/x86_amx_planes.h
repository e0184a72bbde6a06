/* x86_amx_planes.h: floats as two planes of bf16, whose sum has 16 bits of mantissa or more. For
 * x86_amx_*.c alone.
 *
 * hi = round(x), lo = round(x - hi), to nearest, ties to even. What is subnormal, before or after,
 * is zero, as it is to the tiles. What is not finite has no lower plane. */
#pragma once

#include "kernel/unroll.h"
#include "kernel/x86/x86_avx512.h"

#ifdef __AVX512BF16__
INLINE __m512i narrow32(__m512 low, __m512 high)
{
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

INLINE __m512 wide16(__m256i h)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

/* x - hi, 0 where hi is not finite. */
INLINE __m512 rest(__m512 x, __m512 hi)
{
    __mmask16 odd = _mm512_fpclass_ps_mask(hi, 0x99); /* NaN, infinities */

    return _mm512_maskz_sub_ps((__mmask16)~odd, x, hi);
}

/* 32 floats as two planes. */
INLINE void split(__m512 a, __m512 b, uint8_t *hi, uint8_t *lo)
{
    __m512i h = narrow32(a, b);
    __m512 ah = wide16(_mm512_castsi512_si256(h)), bh = wide16(_mm512_extracti64x4_epi64(h, 1));

    _mm512_store_si512(hi, h);
    _mm512_store_si512(lo, narrow32(rest(a, ah), rest(b, bh)));
}
#endif
