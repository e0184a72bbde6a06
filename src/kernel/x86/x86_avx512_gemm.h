/* x86_avx512_gemm.h: unpacking of packed weights and accumulation of block results, in vectors of
 * 16 rows. Included only by files with the AVX-512 compiler flags: x86_avx512_gemm*.c and
 * x86_amx*.c. Pure; any thread. */
#pragma once

#include "kernel/acts.h"
#include "kernel/blocks.h"
#include "kernel/cpu.h"
#include "kernel/unroll.h"
#include "kernel/x86/x86_avx512.h"

#ifdef __AVX512VNNI__

/* GEMM that unpacks a block first, for many rows. */
void avx512_gemm_unpacked_q2_k(const struct gemm_args *g);
void avx512_gemm_unpacked_q3_k(const struct gemm_args *g);

enum { PREFETCH_AHEAD = 6144 }; /* bytes that a stream prefetches ahead, into L2 */

INLINE void prefetch_ahead(const uint8_t *w, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)w + PREFETCH_AHEAD + i, _MM_HINT_T1);
}

/* ---- blocks of 32 */

INLINE __m512 f16_to_f32_x16(const uint16_t *h)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)h));
}

/* Unpacks nibbles in the order of p16_q4_0 to 8 quads. */
INLINE void load_nibbles(__m512i w[8], const uint8_t q[4][16][4])
{
    const __m512i low = _mm512_set1_epi8(15);

    UNROLL for (int i = 0; i < 4; i++)
    {
        __m512i v = _mm512_loadu_si512(q[i]);
        w[i] = _mm512_and_si512(v, low);
        w[i + 4] = _mm512_and_si512(_mm512_srli_epi16(v, 4), low);
    }
}

/* Replaces nibbles by codebook entries (with an offset that makes them unsigned, or 0). */
INLINE void codebook_lookup(__m512i w[8], __m128i list)
{
    const __m512i table = _mm512_broadcast_i32x4(list);

    UNROLL for (int i = 0; i < 8; i++) w[i] = _mm512_shuffle_epi8(table, w[i]);
}

INLINE __m128i codebook_with_offset(const int8_t list[16], int offset)
{
    __m128i v = _mm_loadu_si128((const __m128i *)(const void *)list);

    return _mm_add_epi8(v, _mm_set1_epi8((char)offset));
}

INLINE __m128i iq4_codebook(int offset)
{
    static const int8_t list[16] = { IQ4_CODEBOOK };

    return codebook_with_offset(list, offset);
}

INLINE __m128i mxfp4_codebook(int offset)
{
    static const int8_t list[16] = { MXFP4_CODEBOOK };

    return codebook_with_offset(list, offset);
}

/* e8m0_half of 16 bytes */
INLINE __m512 e8m0_half16(const uint8_t e[16])
{
    __m512i v = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)e));
    __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(v, _mm512_set1_epi32(1)), 23);
    __mmask16 small = _mm512_cmplt_epi32_mask(v, _mm512_set1_epi32(2));

    return _mm512_castsi512_ps(
        _mm512_mask_sllv_epi32(normal, small, _mm512_set1_epi32(0x00200000), v));
}

INLINE __m512 fma_dot(__m512 acc, __m512 dw, float dx, __m512i sum)
{
    return _mm512_fmadd_ps(_mm512_mul_ps(dw, _mm512_set1_ps(dx)), _mm512_cvtepi32_ps(sum), acc);
}

/* acc + m * dx * (sum of q) */
INLINE __m512 fma_min(__m512 acc, __m512 m, const struct act_q8_0 *x)
{
    __m512 sum = _mm512_set1_ps((float)(x->minus8 / -8));

    return _mm512_fmadd_ps(_mm512_mul_ps(m, _mm512_set1_ps(x->d)), sum, acc);
}

/* ---- blocks of 256 */

/* 6-bit scales and minimums of a Q4_K or Q5_K block, as pairs of int16: sub-blocks 2p and 2p + 1 of
 * a row. */
struct sub_scales {
    __m512i scale[4], min[4];
};

INLINE void load_scales(
    struct sub_scales *s, const uint8_t lo[4][16][2], const uint8_t hi[2][16][2])
{
    const __m512i low4 = _mm512_set1_epi8(15), bits45 = _mm512_set1_epi8(0x30);
    __m512i high = _mm512_loadu_si512(hi);

    UNROLL for (int i = 0; i < 2; i++)
    {
        __m512i v = _mm512_loadu_si512(lo[2 * i]);
        __m512i h = i ? _mm512_srli_epi16(high, 4) : high;
        __m512i scale = _mm512_or_si512(
            _mm512_and_si512(v, low4), _mm512_and_si512(_mm512_slli_epi16(h, 4), bits45));
        __m512i min = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(v, 4), low4),
            _mm512_and_si512(_mm512_slli_epi16(h, 2), bits45));
        s->scale[2 * i] = _mm512_cvtepu8_epi16(_mm512_castsi512_si256(scale));
        s->scale[2 * i + 1] = _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(scale, 1));
        s->min[2 * i] = _mm512_cvtepu8_epi16(_mm512_castsi512_si256(min));
        s->min[2 * i + 1] = _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(min, 1));
    }
}

/* Element i (0 or 1) of each pair, as int32. */
INLINE __m512i unsigned_of_pair(__m512i pair, int i)
{
    return i ? _mm512_srli_epi32(pair, 16) : _mm512_and_si512(pair, _mm512_set1_epi32(0xffff));
}

INLINE __m512i broadcast_pair(const int16_t *pair)
{
    int32_t v;
    memcpy(&v, pair, sizeof(v));
    return _mm512_set1_epi32(v);
}

/* acc + d[0] * dx * sum - d[1] * dx * (mins . sum32) */
INLINE __m512 fma_dot_min(
    __m512 acc, const __m512 d[2], const struct act_q8_k *x, __m512i sum, const __m512i min[4])
{
    __m512i mins = _mm512_setzero_si512();
    __m512 dx = _mm512_set1_ps(x->d);

    UNROLL for (int p = 0; p < 4; p++) mins =
        _mm512_dpwssd_epi32(mins, min[p], broadcast_pair(x->sum32 + 2 * p));
    acc = _mm512_fmadd_ps(_mm512_mul_ps(d[0], dx), _mm512_cvtepi32_ps(sum), acc);
    return _mm512_fnmadd_ps(_mm512_mul_ps(d[1], dx), _mm512_cvtepi32_ps(mins), acc);
}

/* Adds the fifth bits of a sub-block: bit i of the plane belongs to quad i. */
INLINE void add_fifth_bits(__m512i w[8], const uint8_t plane[16][4])
{
    const __m512i bit4 = _mm512_set1_epi8(16);
    __m512i v = _mm512_loadu_si512(plane);

    UNROLL for (int i = 0; i < 8; i++)
    {
        __m512i at4 = i < 4 ? _mm512_slli_epi16(v, 4 - i) : _mm512_srli_epi16(v, i - 4);
        w[i] = _mm512_or_si512(w[i], _mm512_and_si512(at4, bit4));
    }
}

INLINE void load_q6_quads(__m512i w[4], const uint8_t low[2][16][4], const uint8_t high[16][4])
{
    const __m512i low4 = _mm512_set1_epi8(15), bits45 = _mm512_set1_epi8(0x30);
    __m512i a = _mm512_loadu_si512(low[0]), b = _mm512_loadu_si512(low[1]);
    __m512i h = _mm512_loadu_si512(high);

    w[0] = _mm512_or_si512(
        _mm512_and_si512(a, low4), _mm512_and_si512(_mm512_slli_epi16(h, 4), bits45));
    w[1] = _mm512_or_si512(
        _mm512_and_si512(b, low4), _mm512_and_si512(_mm512_slli_epi16(h, 2), bits45));
    w[2] = _mm512_or_si512(
        _mm512_and_si512(_mm512_srli_epi16(a, 4), low4), _mm512_and_si512(h, bits45));
    w[3] = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(b, 4), low4),
        _mm512_and_si512(_mm512_srli_epi16(h, 2), bits45));
}

/* Initial values of dot products with unsigned weights that have an offset of 32: -32 * sums. */
INLINE void q6_dot_starts(int32_t out[16], const int16_t sums[16])
{
    __m512i v = _mm512_cvtepi16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)sums));

    _mm512_store_si512(out, _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(v, 5)));
}

/* Scale i (0 or 1) of each row's pair, as int32. */
INLINE __m512i signed_of_pair(const int8_t pairs[16][2], int i)
{
    __m512i v = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)pairs));

    return _mm512_srai_epi32(i ? v : _mm512_slli_epi32(v, 16), 16);
}
#endif
