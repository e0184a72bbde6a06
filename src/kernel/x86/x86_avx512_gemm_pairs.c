/* x86_avx512_gemm_pairs.c: microkernels of x86_avx512_gemm.c for two panels and GROUP_ROWS rows. */
#ifndef __AVX512VNNI__
#error "compile with the AVX-512 flags of the Makefile"
#endif

#include "kernel/x86/x86_avx512_gemm_pairs.h"
#include "kernel/x86/x86_avx512_gemm_block32.h"

/* Prefetches `bytes` of each panel of the next pair, from offset `at` on. */
INLINE void prefetch_next(const struct panel_pair *pair, size_t at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64) {
        _mm_prefetch((const char *)pair->next[0] + at + i, _MM_HINT_T1);
        _mm_prefetch((const char *)pair->next[1] + at + i, _MM_HINT_T1);
    }
}

/* Dot products of a block of 32 with two panels, added to `to`. In assembly, since gcc would load
 * each dword of q twice, as an operand of both instructions. */
INLINE void dot_two_panels(__m512i to[2], const __m512i w0[8], const __m512i w1[8], const int8_t *q)
{
    typedef int32_t __attribute__((may_alias)) quad;

    UNROLL for (int i = 0; i < 8; i++)
    {
        __m512i x = _mm512_set1_epi32(*(const quad *)(const void *)(q + 4 * i));
        __asm__("vpdpbusd %2, %1, %0" : "+v"(to[0]) : "v"(w0[i]), "v"(x));
        __asm__("vpdpbusd %2, %1, %0" : "+v"(to[1]) : "v"(w1[i]), "v"(x));
    }
}

#define PAIR(type, start)                                                                          \
    void avx512_pair_##type(                                                                       \
        const struct panel_pair *pair, const uint8_t *const *xp, int n, __m512 out[2][GROUP_ROWS]) \
    {                                                                                              \
        const struct p16_##type *p0 = (const void *)pair->panel[0],                                \
                                *p1 = (const void *)pair->panel[1];                                \
        __m512 acc0[GROUP_ROWS], acc1[GROUP_ROWS];                                                 \
        struct block_32 s0, s1;                                                                    \
                                                                                                   \
        UNROLL for (int m = 0; m < GROUP_ROWS; m++) acc0[m] = acc1[m] = _mm512_setzero_ps();       \
        for (int b = 0; b < n; b++, p0++, p1++) {                                                  \
            prefetch_next(pair, (size_t)b * sizeof(*p0), sizeof(*p0));                             \
            load_##type(&s0, p0);                                                                  \
            load_##type(&s1, p1);                                                                  \
            UNROLL for (int m = 0; m < GROUP_ROWS; m++)                                            \
            {                                                                                      \
                const struct act_q8_0 *x = (const struct act_q8_0 *)(const void *)xp[m] + b;       \
                __m512i sum[2] = { start(x), start(x) };                                           \
                dot_two_panels(sum, s0.w, s1.w, x->q);                                             \
                acc0[m] = fma_dot(acc0[m], s0.d, x->d, sum[0]);                                    \
                acc1[m] = fma_dot(acc1[m], s1.d, x->d, sum[1]);                                    \
            }                                                                                      \
        }                                                                                          \
        memcpy(out[0], acc0, sizeof(acc0));                                                        \
        memcpy(out[1], acc1, sizeof(acc1));                                                        \
    }

PAIR(q4_0, start_8)
PAIR(q8_0, start_128)
PAIR(q5_0, start_16)

/* ---- sub-blocks of 16, each with its own scale */

#define START                                                                                      \
    "vpbroadcastd %[start], %[d0]\n"                                                               \
    "vmovdqa64 %[d0], %[d1]\n"

/* Broadcasts four bytes of q to the rows and multiplies them with one quad of each panel. */
#define DOTS(at, a, b)                                                                             \
    "vpbroadcastd " #at "(%[q]), %[x]\n"                                                           \
    "vpdpbusd %[x], %[" #a "], %[d0]\n"                                                            \
    "vpdpbusd %[x], %[" #b "], %[d1]\n"

#define ADD                                                                                        \
    "vpmulld %[s0], %[d0], %[d0]\n"                                                                \
    "vpmulld %[s1], %[d1], %[d1]\n"                                                                \
    "vpaddd %[d0], %[sum0], %[sum0]\n"                                                             \
    "vpaddd %[d1], %[sum1], %[sum1]\n"

struct sub_block_pair { /* sub-block of both panels */
    __m512i w0[4], w1[4], scale0, scale1;
};

/* For each panel, sum += scale x (start + dot product with the 16 bytes at q). Each row is one
 * piece of assembly: gcc would interleave the rows and spill half of the sums to the stack (1.18
 * times the time). */
INLINE void add_sub_block(__m512i *sum0, __m512i *sum1, const struct sub_block_pair *s,
    const int32_t *start, const int8_t *q)
{
    struct bytes {
        int8_t q[16];
    };
    __m512i d0, d1, x;

    __asm__(START DOTS(0, a0, b0) DOTS(4, a1, b1) DOTS(8, a2, b2) DOTS(12, a3, b3) ADD
            : [sum0] "+v"(*sum0), [sum1] "+v"(*sum1), [d0] "=&v"(d0), [d1] "=&v"(d1), [x] "=&v"(x)
            : [a0] "v"(s->w0[0]), [a1] "v"(s->w0[1]), [a2] "v"(s->w0[2]), [a3] "v"(s->w0[3]),
            [b0] "v"(s->w1[0]), [b1] "v"(s->w1[1]), [b2] "v"(s->w1[2]), [b3] "v"(s->w1[3]),
            [s0] "v"(s->scale0), [s1] "v"(s->scale1), [start] "m"(*start), [q] "r"(q),
            "m"(*(const struct bytes *)(const void *)q));
}

void avx512_pair_q6_k(
    const struct panel_pair *pair, const uint8_t *const *xp, int n, __m512 out[2][GROUP_ROWS])
{
    enum { SUB_BLOCKS = 16 };
    const struct p16_q6_k *p0 = (const void *)pair->panel[0], *p1 = (const void *)pair->panel[1];
    ALIGNED(64) int32_t start[GROUP_ROWS][SUB_BLOCKS];
    __m512i sum0[GROUP_ROWS], sum1[GROUP_ROWS];
    struct sub_block_pair s;

    UNROLL for (int m = 0; m < GROUP_ROWS; m++) out[0][m] = out[1][m] = _mm512_setzero_ps();
    for (int b = 0; b < n; b++, p0++, p1++) {
        UNROLL for (int m = 0; m < GROUP_ROWS; m++)
        {
            q6_dot_starts(start[m], ((const struct act_q8_k *)(const void *)xp[m] + b)->sum16);
            sum0[m] = sum1[m] = _mm512_setzero_si512();
        }
        for (int j = 0; j < SUB_BLOCKS; j++) {
            const size_t part = sizeof(*p0) / SUB_BLOCKS;
            prefetch_next(pair, (size_t)b * sizeof(*p0) + (size_t)j * part, part);
            load_q6_quads(s.w0, p0->sub[j].low, p0->sub[j].high);
            load_q6_quads(s.w1, p1->sub[j].low, p1->sub[j].high);
            s.scale0 = signed_of_pair(p0->scale[j / 2], j % 2);
            s.scale1 = signed_of_pair(p1->scale[j / 2], j % 2);
            UNROLL for (int m = 0; m < GROUP_ROWS; m++)
            {
                const struct act_q8_k *x = (const struct act_q8_k *)(const void *)xp[m] + b;
                add_sub_block(&sum0[m], &sum1[m], &s, &start[m][j], x->q + 16 * j);
            }
        }
        __m512 d0 = f16_to_f32_x16(p0->d), d1 = f16_to_f32_x16(p1->d);
        UNROLL for (int m = 0; m < GROUP_ROWS; m++)
        {
            float dx = ((const struct act_q8_k *)(const void *)xp[m] + b)->d;
            out[0][m] = fma_dot(out[0][m], d0, dx, sum0[m]);
            out[1][m] = fma_dot(out[1][m], d1, dx, sum1[m]);
        }
        __asm__("" ::: "memory"); /* keeps `out` in memory: the sums need the registers */
    }
}
