/* x86_avx2_vec.h: operations on single vectors for the sources that the AVX2 and AVX-512 sets
 * share, where 16 lanes at once would need too many registers. Sixteen lanes are N_VECS vectors.
 * x86_avx512_vec.h has the same functions. Included only by files of the AVX2 set. */
#pragma once

#include "kernel/x86/x86_avx2_vec16.h"

#ifdef __AVX2__
enum { VEC_LANES = 8, N_VECS = 2 };

typedef __m256 vec;

INLINE vec zero_vec(void)
{
    return _mm256_setzero_ps();
}

INLINE vec load_vec(const float *x)
{
    return _mm256_loadu_ps(x);
}

INLINE void store_vec(float *x, vec v)
{
    _mm256_storeu_ps(x, v);
}

INLINE vec fma_vec(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}

/* Loads F16 or BF16. */
INLINE vec widen_vec(enum kv_type type, const uint8_t *h)
{
    __m128i v = _mm_loadu_si128((const __m128i *)(const void *)h);

    if (type == KV_F16)
        return _mm256_cvtph_ps(v);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
}

INLINE vec16 widen16(enum kv_type type, const uint8_t *h)
{
    return (vec16){ widen_vec(type, h), widen_vec(type, h + 16) };
}
#endif
