/* x86_avx2_unpack_k.c: unpacking of Q2_K, Q3_K, TQ1_0 and TQ2_0 to bytes, in vectors of eight
 * rows. */
#ifndef __AVX2__
#error "compile with the AVX2 flags of the Makefile"
#endif

#include "kernel/x86/x86_avx2_gemm_unpacked.h"
#include "kernel/x86/x86_avx2_unpack.h"

void avx2_unpack_q2_k(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)
{
    const struct p16_q2_k *p = (const void *)w;
    const __m128i low4 = _mm_set1_epi8(15);

    prefetch_ahead(w, sizeof(*p));
    for (int s = 0; s < 16; s++)
        UNROLL for (int half = 0; half < 2; half++) UNROLL for (int i = 0; i < 4; i++)
            put_half(u->q[4 * s + i], half, q2_quad(p->q[s], i, half));
    UNROLL for (int i = 0; i < 8; i++) UNROLL for (int half = 0; half < 2; half++)
    {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p->scale[i][8 * half]);
        u->pair[i][half] = _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16(v, 4), low4));
        put_scale_pair(u, i, half, _mm256_cvtepu8_epi16(_mm_and_si128(v, low4)));
    }
    put_f16_scales(u->d[0], p->d);
    put_f16_scales(u->d[1], p->dmin);
}

void avx2_unpack_q3_k(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)
{
    const struct p16_q3_k *p = (const void *)w;

    prefetch_ahead(w, sizeof(*p));
    for (int s = 0; s < 8; s++)
        UNROLL for (int half = 0; half < 2; half++) UNROLL for (int i = 0; i < 8; i++)
            put_half(u->q[8 * s + i], half, q3_quad(p->q[s], i, half));
    UNROLL for (int i = 0; i < 8; i++) UNROLL for (int half = 0; half < 2; half++)
    {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p->scale[i][8 * half]);
        u->pair[i][half] = _mm256_cvtepi8_epi16(v);
        put_scale_pair(u, i, half, u->pair[i][half]);
    }
    put_f16_scales(u->d[0], p->d);
}

/* Two bits per element, and one scale. */
INLINE void unpack_ternary(
    struct unpacked_kblock *u, const uint8_t q[16][16][4], const uint16_t d[16])
{
    const __m256i one = _mm256_set1_epi16(1);

    for (int s = 0; s < 16; s++)
        UNROLL for (int half = 0; half < 2; half++)
        {
            UNROLL for (int i = 0; i < 4; i++)
                put_half(u->q[4 * s + i], half, q2_quad(q[s], i, half));
            u->scale[s][half] = u->pair[s / 2][half] = one;
        }
    put_f16_scales(u->d[0], d);
}

void avx2_unpack_tq1_0(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)
{
    const struct p16_tq1_0 *p = (const void *)w;

    prefetch_ahead(w, sizeof(*p));
    unpack_ternary(u, p->q, p->d);
}

void avx2_unpack_tq2_0(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)
{
    const struct p16_tq2_0 *p = (const void *)w;

    prefetch_ahead(w, sizeof(*p));
    unpack_ternary(u, p->q, p->d);
}
