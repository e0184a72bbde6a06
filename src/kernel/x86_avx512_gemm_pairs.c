/* x86_avx512_gemm_pairs.c: the turns of x86_avx512_gemm.c for two panels and GROUP rows. */
#ifndef __AVX512VNNI__
#error "compile with the AVX-512 flags of the Makefile"
#endif

#include "kernel/x86_avx512_gemm_pairs.h"
#include "kernel/x86_avx512_gemm_small.h"

/* From the next pair, `bytes` at each panel. */
INLINE void fetch_next(const uint8_t *p0, const uint8_t *p1, size_t bytes)
{
    const size_t pair = 2 * (size_t)(p1 - p0);

    for (size_t i = 0; i < bytes; i += 64) {
        _mm_prefetch((const char *)p0 + pair + i, _MM_HINT_T1);
        _mm_prefetch((const char *)p1 + pair + i, _MM_HINT_T1);
    }
}

/* Dots of `quads` x 4 bytes with two panels, added to `to`. In assembly, since gcc would read each
 * word of q twice, as part of the products. */
INLINE void dots(__m512i to[2], const __m512i *w0, const __m512i *w1, const int8_t *q, int quads)
{
    typedef int32_t __attribute__((may_alias)) quad;

    UNROLL for (int i = 0; i < quads; i++)
    {
        __m512i x = _mm512_set1_epi32(*(const quad *)(const void *)(q + 4 * i));
        __asm__("vpdpbusd %2, %1, %0" : "+v"(to[0]) : "v"(w0[i]), "v"(x));
        __asm__("vpdpbusd %2, %1, %0" : "+v"(to[1]) : "v"(w1[i]), "v"(x));
    }
}

#define PAIR(type, start)                                                                          \
    void avx512_pair_##type(                                                                       \
        const uint8_t *const w[2], const uint8_t *const *xp, int n, __m512 out[2][GROUP])          \
    {                                                                                              \
        const struct p16_##type *p0 = (const void *)w[0], *p1 = (const void *)w[1];                \
        __m512 acc0[GROUP], acc1[GROUP];                                                           \
        struct small s0, s1;                                                                       \
                                                                                                   \
        UNROLL for (int m = 0; m < GROUP; m++) acc0[m] = acc1[m] = _mm512_setzero_ps();            \
        for (int b = 0; b < n; b++, p0++, p1++) {                                                  \
            fetch_next((const uint8_t *)p0, (const uint8_t *)p1, sizeof(*p0));                     \
            load_##type(&s0, p0);                                                                  \
            load_##type(&s1, p1);                                                                  \
            UNROLL for (int m = 0; m < GROUP; m++)                                                 \
            {                                                                                      \
                const struct act_q8_0 *x = (const struct act_q8_0 *)(const void *)xp[m] + b;       \
                __m512i sum[2] = { start(x), start(x) };                                           \
                dots(sum, s0.w, s1.w, x->q, 8);                                                    \
                acc0[m] = scaled(acc0[m], s0.d, x->d, sum[0]);                                     \
                acc1[m] = scaled(acc1[m], s1.d, x->d, sum[1]);                                     \
            }                                                                                      \
        }                                                                                          \
        memcpy(out[0], acc0, sizeof(acc0));                                                        \
        memcpy(out[1], acc1, sizeof(acc1));                                                        \
    }

PAIR(q4_0, start_8)
PAIR(q8_0, start_128)
PAIR(q5_0, start_16)

/* Sub-blocks of 16, which have a scale each. */
void avx512_pair_q6_k(
    const uint8_t *const w[2], const uint8_t *const *xp, int n, __m512 out[2][GROUP])
{
    enum { SUBS = 16 };
    const struct p16_q6_k *p0 = (const void *)w[0], *p1 = (const void *)w[1];
    ALIGNED(64) int32_t start[GROUP][SUBS];
    __m512i w0[4], w1[4], sum0[GROUP], sum1[GROUP];

    UNROLL for (int m = 0; m < GROUP; m++) out[0][m] = out[1][m] = _mm512_setzero_ps();
    for (int b = 0; b < n; b++, p0++, p1++) {
        UNROLL for (int m = 0; m < GROUP; m++)
        {
            minus32(start[m], ((const struct act_q8_k *)(const void *)xp[m] + b)->sum16);
            sum0[m] = sum1[m] = _mm512_setzero_si512();
        }
        for (int j = 0; j < SUBS; j++) {
            const size_t at = (size_t)j * sizeof(*p0) / SUBS;
            fetch_next((const uint8_t *)p0 + at, (const uint8_t *)p1 + at, sizeof(*p0) / SUBS);
            load_q6(w0, p0->sub[j].low, p0->sub[j].high);
            load_q6(w1, p1->sub[j].low, p1->sub[j].high);
            __m512i scale0 = signed_of_pair(p0->scale[j / 2], j % 2);
            __m512i scale1 = signed_of_pair(p1->scale[j / 2], j % 2);
            UNROLL for (int m = 0; m < GROUP; m++)
            {
                const struct act_q8_k *x = (const struct act_q8_k *)(const void *)xp[m] + b;
                __m512i first = _mm512_set1_epi32(start[m][j]), d[2] = { first, first };
                dots(d, w0, w1, x->q + 16 * j, 4);
                sum0[m] = _mm512_add_epi32(sum0[m], _mm512_mullo_epi32(d[0], scale0));
                sum1[m] = _mm512_add_epi32(sum1[m], _mm512_mullo_epi32(d[1], scale1));
            }
        }
        __m512 d0 = half16(p0->d), d1 = half16(p1->d);
        UNROLL for (int m = 0; m < GROUP; m++)
        {
            float dx = ((const struct act_q8_k *)(const void *)xp[m] + b)->d;
            out[0][m] = scaled(out[0][m], d0, dx, sum0[m]);
            out[1][m] = scaled(out[1][m], d1, dx, sum1[m]);
        }
    }
}
