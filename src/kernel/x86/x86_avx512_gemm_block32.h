/* x86_avx512_gemm_block32.h: loads one block of the types with blocks of 32: unsigned weights,
 * initial value of the dot products (start_N for a weight offset of N: -N * sum of q), scales, and
 * minimums for some types. Included by the microkernels for one panel (x86_avx512_gemm.c) and two
 * (x86_avx512_gemm_pairs.c). */
#pragma once

#include "kernel/x86/x86_avx512_gemm.h"

#ifdef __AVX512VNNI__

/* Keeps v in a register: gcc would load it again for each row, and every second block crosses cache
 * lines (three rows took as long as four). */
INLINE __m512i keep_in_register(__m512i v)
{
    __asm__("" : "+v"(v));
    return v;
}

struct block_32 {
    __m512i w[8];
    __m512 d, m;
};

INLINE __m512i start_0(const struct act_q8_0 *x)
{
    return _mm512_setzero_si512();
}

INLINE __m512i start_8(const struct act_q8_0 *x)
{
    return _mm512_set1_epi32(x->minus8);
}

INLINE __m512i start_16(const struct act_q8_0 *x)
{
    return _mm512_set1_epi32(x->minus8 * 2);
}

INLINE __m512i start_128(const struct act_q8_0 *x)
{
    return _mm512_set1_epi32(x->minus8 * 16);
}

INLINE __m512i start_12(const struct act_q8_0 *x)
{
    return _mm512_set1_epi32(x->minus8 / 2 * 3);
}

INLINE void load_q4_0(struct block_32 *s, const struct p16_q4_0 *p)
{
    load_nibbles(s->w, p->q);
    s->d = f16_to_f32_x16(p->d);
}

INLINE void load_q8_0(struct block_32 *s, const struct p16_q8_0 *p)
{
    UNROLL for (int i = 0; i < 8; i++) s->w[i] = keep_in_register(_mm512_loadu_si512(p->q[i]));
    s->d = f16_to_f32_x16(p->d);
}

INLINE void load_q4_1(struct block_32 *s, const struct p16_q4_1 *p)
{
    load_nibbles(s->w, p->q);
    s->d = f16_to_f32_x16(p->d);
    s->m = f16_to_f32_x16(p->m);
}

/* 32 elements of an affine block of 32 or 64. */
INLINE void load_affine4(
    struct block_32 *s, const uint8_t q[4][16][4], const float d[16], const float m[16])
{
    load_nibbles(s->w, q);
    s->d = _mm512_loadu_ps(d);
    s->m = _mm512_loadu_ps(m);
}

INLINE void load_affine8(
    struct block_32 *s, const uint8_t q[8][16][4], const float d[16], const float m[16])
{
    UNROLL for (int i = 0; i < 8; i++) s->w[i] = keep_in_register(_mm512_loadu_si512(q[i]));
    s->d = _mm512_loadu_ps(d);
    s->m = _mm512_loadu_ps(m);
}

/* Adds two bits per element, shifted by `shift`: quads 4 * i .. 4 * i + 3 have them in array i. */
INLINE void add_two_bits(__m512i w[8], const uint8_t q[2][16][4], int shift)
{
    const __m512i mask = _mm512_set1_epi8((char)(3 << shift));

    UNROLL for (int i = 0; i < 8; i++)
    {
        __m512i v = _mm512_loadu_si512(q[i / 4]);
        int right = i % 4 * 2 - shift;
        v = right < 0 ? _mm512_slli_epi16(v, (unsigned)-right)
                      : _mm512_srli_epi16(v, (unsigned)right);
        w[i] = _mm512_or_si512(w[i], _mm512_and_si512(v, mask));
    }
}

INLINE void load_affine_scales(struct block_32 *s, const float d[16], const float m[16])
{
    s->d = _mm512_loadu_ps(d);
    s->m = _mm512_loadu_ps(m);
}

INLINE void load_affine2(
    struct block_32 *s, const uint8_t q[2][16][4], const float d[16], const float m[16])
{
    UNROLL for (int i = 0; i < 8; i++) s->w[i] = _mm512_setzero_si512();
    add_two_bits(s->w, q, 0);
    load_affine_scales(s, d, m);
}

INLINE void load_affine3(
    struct block_32 *s, const uint8_t q[3][16][4], const float d[16], const float m[16])
{
    const __m512i bit2 = _mm512_set1_epi8(4);
    __m512i v = _mm512_loadu_si512(q[2]);

    load_affine2(s, q, d, m);
    UNROLL for (int i = 0; i < 8; i++)
    {
        __m512i at2 = i < 2 ? _mm512_slli_epi16(v, 2 - i) : _mm512_srli_epi16(v, i - 2);
        s->w[i] = _mm512_or_si512(s->w[i], _mm512_and_si512(at2, bit2));
    }
}

INLINE void load_affine5(
    struct block_32 *s, const uint8_t q[5][16][4], const float d[16], const float m[16])
{
    load_nibbles(s->w, q);
    add_fifth_bits(s->w, q[4]);
    load_affine_scales(s, d, m);
}

INLINE void load_affine6(
    struct block_32 *s, const uint8_t q[6][16][4], const float d[16], const float m[16])
{
    load_nibbles(s->w, q);
    add_two_bits(s->w, q + 4, 4);
    load_affine_scales(s, d, m);
}

INLINE void load_q5_0(struct block_32 *s, const struct p16_q5_0 *p)
{
    load_nibbles(s->w, p->q);
    add_fifth_bits(s->w, p->high);
    s->d = f16_to_f32_x16(p->d);
}

INLINE void load_q5_1(struct block_32 *s, const struct p16_q5_1 *p)
{
    load_nibbles(s->w, p->q);
    add_fifth_bits(s->w, p->high);
    s->d = f16_to_f32_x16(p->d);
    s->m = f16_to_f32_x16(p->m);
}

INLINE void load_iq4_nl(struct block_32 *s, const struct p16_iq4_nl *p)
{
    load_nibbles(s->w, p->q);
    codebook_lookup(s->w, iq4_codebook(IQ4_OFFSET));
    s->d = f16_to_f32_x16(p->d);
}

INLINE void load_mxfp4(struct block_32 *s, const struct p16_mxfp4 *p)
{
    load_nibbles(s->w, p->q);
    codebook_lookup(s->w, mxfp4_codebook(MXFP4_OFFSET));
    s->d = e8m0_half16(p->e);
}
#endif
