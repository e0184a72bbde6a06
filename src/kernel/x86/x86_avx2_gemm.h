/* x86_avx2_gemm.h: declarations shared by the AVX2 GEMM files: vectors of eight lanes, int8 dot
 * products, and GEMV. Included only by x86_avx2_gemm*.c. x86_avxvnni_gemm*.c compile two of these
 * files a second time with BYTE_DOTS and their own GEMM_SET. */
#pragma once

#include "kernel/acts.h"
#include "kernel/blocks.h"
#include "kernel/cpu.h"
#include "kernel/unroll.h"
#include "kernel/x86/x86_avx2.h"

#ifndef BYTE_DOTS
#define BYTE_DOTS      0 /* 1: int8 dot products of four bytes with VNNI (vpdpbusd) */
#define GEMM_SET(name) avx2_##name
#endif

#ifdef __AVX2__

enum {
    GROUP_ROWS = 4,        /* activation rows at a time */
    PREFETCH_AHEAD = 6144, /* bytes that a stream prefetches ahead, into L2 */
};

/* Accumulators of the 16 rows of a panel. */
struct panel_acc {
    __m256 half[2];
};

/* Microkernel: multiplies n blocks at w with n blocks at x[m] and adds the products to acc[m]. */
typedef void (*microkernel_fn)(
    const uint8_t *w, const uint8_t *const *x, int n, struct panel_acc *acc);

/* GEMV with one weight type: microkernels and sizes. */
struct gemv_format {
    microkernel_fn microkernel[GROUP_ROWS + 1]; /* indexed by the number of rows */
    int block;                                  /* elements of k per block */
    size_t w_bytes, x_bytes;                    /* bytes of a block, of the panel and of a row */
    int max_blocks; /* most blocks per microkernel call; 0: any number */
};

void GEMM_SET(set_row_pointers)(const struct gemm_args *g, int m, int n, const uint8_t *x[]);
void GEMM_SET(store_outputs)(
    const struct gemm_args *g, int panel, int m, int n, const struct panel_acc *acc);
/* Multiplies all rows (1 .. GROUP_ROWS) with the panels; several streams of panels are
 * interleaved. */
void GEMM_SET(gemv)(const struct gemm_args *g, const struct gemv_format *f);

extern const struct gemv_format avx2_gemv_format_iq4_nl, avx2_gemv_format_iq4_xs;

/* GEMM that unpacks a K block first, for many rows. */
void GEMM_SET(gemm_unpacked_q8_0)(const struct gemm_args *g); /* only with VNNI */
void GEMM_SET(gemm_unpacked_q4_0)(const struct gemm_args *g);
void GEMM_SET(gemm_unpacked_q4_k)(const struct gemm_args *g);
void GEMM_SET(gemm_unpacked_q5_k)(const struct gemm_args *g);
void GEMM_SET(gemm_unpacked_q6_k)(const struct gemm_args *g);
void GEMM_SET(gemm_unpacked_q2_k)(const struct gemm_args *g);
void GEMM_SET(gemm_unpacked_q3_k)(const struct gemm_args *g);

INLINE void prefetch_ahead(const uint8_t *w, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)w + PREFETCH_AHEAD + i, _MM_HINT_T1);
}

INLINE __m256i load_256(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

INLINE __m256 f16_to_f32_x8(const uint16_t *h)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)h));
}

/* Broadcasts four bytes to all rows. */
INLINE __m256i broadcast4(const void *q)
{
    int32_t v;
    memcpy(&v, q, sizeof(v));
    return _mm256_set1_epi32(v);
}

INLINE __m256i add_madd(__m256i sum, __m256i a, __m256i b)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}

INLINE __m256 fma_dot(__m256 acc, __m256 dw, float dx, __m256i sum)
{
    return _mm256_fmadd_ps(_mm256_mul_ps(dw, _mm256_set1_ps(dx)), _mm256_cvtepi32_ps(sum), acc);
}

/* Forces v to be computed here and in this order: gcc would add the products of a row as a tree,
 * computing all of them first and spilling them to memory (one third slower). */
INLINE __m256i keep_in_register(__m256i v)
{
    __asm__("" : "+x"(v));
    return v;
}

/* ---- int8 dot products: 32 bytes of weights times four bytes of activations at a time
 *
 * The sums are 32-bit integers with vpdpbusd. Without it they are pairs of 16 bits (vpmaddubsw),
 * which must be widened before they overflow. */

#if BYTE_DOTS
#ifndef DOT_ENCODING
#define DOT_ENCODING "%{vex%}"
#endif

/* assembly, since the encoding must be VEX; the other one belongs to AVX-512 */
INLINE __m256i dot_bytes(__m256i sums, __m256i w, __m256i x)
{
    __asm__(DOT_ENCODING " vpdpbusd %2, %1, %0" : "+x"(sums) : "x"(w), "x"(x));
    return sums;
}

/* Initial accumulator of a dot product to which dot_widen() adds `start`. */
INLINE __m256i dot_init(int32_t start)
{
    return _mm256_set1_epi32(start);
}

/* dot_bytes() with sums of 0 */
INLINE __m256i dot_first(__m256i w, __m256i x)
{
    return dot_bytes(_mm256_setzero_si256(), w, x);
}

INLINE __m256i dot_widen(__m256i sums, int32_t start)
{
    return sums;
}

INLINE __m256i accumulate_scaled(__m256i total, __m256i sums, __m256i scale)
{
    return _mm256_add_epi32(total, _mm256_mullo_epi32(sums, scale));
}

/* Element i (0 or 1) of each pair of int16, in the form that accumulate_scaled() needs. */
INLINE __m256i scale_of_pair(__m256i pair, int i)
{
    return _mm256_srai_epi32(i ? pair : _mm256_slli_epi32(pair, 16), 16);
}
#else
INLINE __m256i dot_bytes(__m256i sums, __m256i w, __m256i x)
{
    return keep_in_register(_mm256_add_epi16(sums, _mm256_maddubs_epi16(w, x)));
}

INLINE __m256i dot_init(int32_t start)
{
    return _mm256_setzero_si256();
}

INLINE __m256i dot_first(__m256i w, __m256i x)
{
    return keep_in_register(_mm256_maddubs_epi16(w, x));
}

INLINE __m256i dot_widen(__m256i sums, int32_t start)
{
    return add_madd(_mm256_set1_epi32(start), sums, _mm256_set1_epi16(1));
}

INLINE __m256i accumulate_scaled(__m256i total, __m256i sums, __m256i scale)
{
    return add_madd(total, sums, scale);
}

INLINE __m256i scale_of_pair(__m256i pair, int i) /* duplicated */
{
    const __m256i lane = i ? _mm256_set1_epi32(0x03020302) : _mm256_set1_epi32(0x01000100);
    const __m256i first = _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c, 0, 0x04040404,
        0x08080808, 0x0c0c0c0c); /* byte of each lane */

    return _mm256_shuffle_epi8(pair, _mm256_add_epi8(lane, first));
}
#endif
#endif
