/* x86_avx2_gemm_k.h: scales and quads of the K-quants, eight rows at a time. Included only by
 * x86_avx2_gemm*.c and x86_avx2_unpack*.c. Pure; any thread. */
#pragma once

#include "kernel/x86/x86_avx2_gemm.h"

#ifdef __AVX2__

/* Quad i of a sub-block of Q2_K. */
INLINE __m256i q2_quad(const uint8_t q[16][4], int i, int half)
{
    __m256i v = load_256(q[8 * half]);

    return _mm256_and_si256(i ? _mm256_srli_epi16(v, 2 * i) : v, _mm256_set1_epi8(3));
}

/* Quad i of 32 elements of Q3_K. */
INLINE __m256i q3_quad(const uint8_t q[3][16][4], int i, int half)
{
    __m256i v = load_256(q[i < 6 ? i / 2 : i - 6][8 * half]);

    if (i < 6)
        return _mm256_and_si256(i % 2 ? _mm256_srli_epi16(v, 3) : v, _mm256_set1_epi8(7));
    __m256i third = _mm256_srli_epi16(load_256(q[2][8 * half]), i - 2);
    return _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(v, 6), _mm256_set1_epi8(3)),
        _mm256_and_si256(third, _mm256_set1_epi8(4)));
}

/* 6-bit scales and minimums of eight rows of a Q4_K or Q5_K block, as pairs of int16: sub-blocks 2p
 * and 2p + 1. */
struct sub_scales {
    __m256i scale[4], min[4];
};

INLINE void load_scales(
    struct sub_scales *s, const uint8_t lo[4][16][2], const uint8_t hi[2][16][2], int half)
{
    const __m128i low4 = _mm_set1_epi8(15), bits45 = _mm_set1_epi8(0x30);

    UNROLL for (int p = 0; p < 4; p++)
    {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)lo[p][8 * half]);
        __m128i h = _mm_loadu_si128((const __m128i *)(const void *)hi[p % 2][8 * half]);
        if (p >= 2)
            h = _mm_srli_epi16(h, 4);
        s->scale[p] = _mm256_cvtepu8_epi16(
            _mm_or_si128(_mm_and_si128(v, low4), _mm_and_si128(_mm_slli_epi16(h, 4), bits45)));
        s->min[p] = _mm256_cvtepu8_epi16(_mm_or_si128(_mm_and_si128(_mm_srli_epi16(v, 4), low4),
            _mm_and_si128(_mm_slli_epi16(h, 2), bits45)));
    }
}
#endif
