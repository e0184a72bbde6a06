/* x86_avx512_vec.h: operations on single vectors for the sources that the AVX2 and AVX-512 sets
 * share, where 16 lanes at once would need too many registers. Sixteen lanes are N_VECS vectors.
 * x86_avx2_vec.h has the same functions. Included only by files of the AVX-512 set. */
#pragma once

#include "kernel/x86/x86_avx512_vec16.h"

#ifdef __AVX512F__
enum { VEC_LANES = 16, N_VECS = 1 };

typedef __m512 vec;

INLINE vec zero_vec(void)
{
    return _mm512_setzero_ps();
}

INLINE vec load_vec(const float *x)
{
    return _mm512_loadu_ps(x);
}

INLINE void store_vec(float *x, vec v)
{
    _mm512_storeu_ps(x, v);
}

INLINE vec fma_vec(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}

/* Loads F16 or BF16. */
INLINE vec widen_vec(enum kv_type type, const uint8_t *h)
{
    __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)h);

    if (type == KV_F16)
        return _mm512_cvtph_ps(v);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
}

INLINE vec16 widen16(enum kv_type type, const uint8_t *h)
{
    return widen_vec(type, h);
}
#endif
