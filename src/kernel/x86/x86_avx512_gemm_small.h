/* x86_avx512_gemm_block32.h: loads one block of the types with blocks of 32: unsigned weights,
 * initial value of the dot products (start_N for a weight offset of N: -N * sum of q), scales, and
 * minimums for some types. Included by the microkernels for one panel (x86_avx512_gemm.c) and two
 * (x86_avx512_gemm_pairs.c). */
#pragma once

#include "kernel/x86/x86_avx512_gemm.h"

#ifdef __AVX512VNNI__

/* Keeps v in a register: gcc would load it again for each row, and every second block crosses cache
 * lines (three rows took as long as four). */
INLINE __m512i kept(__m512i v)
{
    __asm__("" : "+v"(v));
    return v;
}

struct small {
    __m512i w[8];
    __m512 d, m;
};

INLINE __m512i start_plain(const struct act_q8_0 *x)
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

INLINE void load_q4_0(struct small *s, const struct p16_q4_0 *p)
{
    load_nibbles(s->w, p->q);
    s->d = half16(p->d);
}

INLINE void load_q8_0(struct small *s, const struct p16_q8_0 *p)
{
    UNROLL for (int i = 0; i < 8; i++) s->w[i] = kept(_mm512_loadu_si512(p->q[i]));
    s->d = half16(p->d);
}

INLINE void load_q4_1(struct small *s, const struct p16_q4_1 *p)
{
    load_nibbles(s->w, p->q);
    s->d = half16(p->d);
    s->m = half16(p->m);
}

INLINE void load_q5_0(struct small *s, const struct p16_q5_0 *p)
{
    load_nibbles(s->w, p->q);
    add_fifth(s->w, p->high);
    s->d = half16(p->d);
}

INLINE void load_q5_1(struct small *s, const struct p16_q5_1 *p)
{
    load_nibbles(s->w, p->q);
    add_fifth(s->w, p->high);
    s->d = half16(p->d);
    s->m = half16(p->m);
}

INLINE void load_iq4_nl(struct small *s, const struct p16_iq4_nl *p)
{
    load_nibbles(s->w, p->q);
    look_up(s->w, iq4_list(IQ4_OFFSET));
    s->d = half16(p->d);
}

INLINE void load_mxfp4(struct small *s, const struct p16_mxfp4 *p)
{
    load_nibbles(s->w, p->q);
    look_up(s->w, mxfp4_list(MXFP4_OFFSET));
    s->d = e8m0_half16(p->e);
}
#endif
