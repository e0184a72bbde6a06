/* x86_avx512_attn.c: attention of the AVX-512 set; int8 and int16 dot products use VNNI. */
#ifndef __AVX512F__
#error "compile with the AVX-512 flags of the Makefile"
#endif

#include "kernel/acts.h"
#include "kernel/x86/x86_avx512_vec.h"

#define GROUP_HEADS        8
#define HEAD_VECTORS       2
#define EACH_HEAD_COUNT(F) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8)
#define PREFETCHES_PAGE    0
#define SCORE_KEYS         16

/* ---- q8_0 scores: operations on SCORE_KEYS keys */

typedef __m512 score_vec;
typedef __m512i score_ivec;

/* Four consecutive dimensions of each key, as bytes plus 128. */
struct key_bytes {
    __m512i x;
};

INLINE struct key_bytes load_key_bytes(const uint8_t *q)
{
    return (struct key_bytes){ _mm512_loadu_si512(q) };
}

INLINE __m512i start_key_dot(const struct act_q8_0 *q)
{
    return _mm512_set1_epi32(16 * q->minus8);
}

/* Adds the products of each key and four dimensions of the query. */
INLINE __m512i add_key_dot(__m512i sum, struct key_bytes k, int32_t four)
{
    return _mm512_dpbusd_epi32(sum, k.x, _mm512_set1_epi32(four));
}

INLINE __m512 load_key_scales(const uint16_t *d)
{
    return load_f16x16(d);
}

INLINE __m512 no_scores(void)
{
    return _mm512_setzero_ps();
}

INLINE __m512 add_scaled_dot(__m512 acc, __m512 dk, float d, __m512i sum)
{
    return _mm512_fmadd_ps(_mm512_mul_ps(dk, _mm512_set1_ps(d)), _mm512_cvtepi32_ps(sum), acc);
}

INLINE void store_scores(float *w, int n, __m512 acc, float scale)
{
    store_first16(w, n, _mm512_mul_ps(acc, _mm512_set1_ps(scale)));
}

/* ---- q8_0 values: operations on 16 int32 */

INLINE ivec16 all_int16(int x)
{
    return _mm512_set1_epi32(x);
}

INLINE vec16 to_float16(ivec16 v)
{
    return _mm512_cvtepi32_ps(v);
}

/* The larger of `most` and the bits of |v|, as unsigned integers. */
INLINE ivec16 max_magnitude16(ivec16 most, vec16 v)
{
    const __m512i no_sign = _mm512_set1_epi32(0x7fffffff);

    return _mm512_max_epu32(most, _mm512_and_si512(_mm512_castps_si512(v), no_sign));
}

INLINE float top_magnitude16(ivec16 v)
{
    uint32_t bits = _mm512_reduce_max_epu32(v);
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

/* Rounds v to int16; lanes from n >= 0 on become 0. */
INLINE void store_first_int16(int16_t *u, int n, vec16 v)
{
    __m256i packed = _mm512_maskz_cvtepi32_epi16(first_lanes(MIN(16, n)), _mm512_cvtps_epi32(v));

    _mm256_storeu_si256((__m256i *)(void *)u, packed);
}

/* The values of two tokens and 16 dimensions. */
INLINE ivec16 load_int8_as_int16(const uint8_t *line)
{
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)line));
}

/* Adds the products of two tokens and their weights. */
INLINE ivec16 add_pair_dot(ivec16 sum, ivec16 x, int32_t two)
{
    return _mm512_dpwssd_epi32(sum, x, _mm512_set1_epi32(two));
}

INLINE void quantise_q8_0(const float *x, int n, struct act_q8_0 *out)
{
    kernels_avx512.q8_0(x, n, out);
}

#include "kernel/x86/x86_attn_block.h"

void avx512_kv_append(const struct kv_slot *slot, const float *k, const float *v)
{
    append(slot, k, v);
}

void avx512_attend(const struct attn_args *a)
{
    attend(a);
}

void avx512_attend_merge(const struct attn_args *a)
{
    attn_merge_splits(a, merge_states, write_output);
}
