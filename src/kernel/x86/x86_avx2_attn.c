/* x86_avx2_attn.c: attention of the AVX2 set. 16 lanes are two vectors of eight, so a head has half
 * as many sums in registers as with AVX-512, and a group half as many heads. Int8 dot products are
 * multiply-adds of pairs. */
#ifndef __AVX2__
#error "compile with the AVX2 flags of the Makefile"
#endif

#include "kernel/acts.h"
#include "kernel/x86/x86_avx2_vec.h"

#define GROUP_HEADS        4
#define HEAD_VECTORS       1
#define EACH_HEAD_COUNT(F) F(1) F(2) F(3) F(4)
#define PREFETCHES_PAGE    1
#define SCORE_KEYS         8

/* ---- q8_0 scores: operations on SCORE_KEYS keys */

typedef __m256 score_vec;
typedef __m256i score_ivec;

/* Four consecutive dimensions of each key, as signed bytes, and their magnitudes. */
struct key_bytes {
    __m256i x, size;
};

INLINE struct key_bytes load_key_bytes(const uint8_t *q)
{
    __m256i biased = _mm256_loadu_si256((const __m256i *)(const void *)q);
    __m256i x = _mm256_xor_si256(biased, _mm256_set1_epi8((char)0x80));

    return (struct key_bytes){ x, _mm256_abs_epi8(x) };
}

INLINE __m256i start_key_dot(const struct act_q8_0 *q)
{
    return _mm256_setzero_si256();
}

/* Adds the products of each key and four dimensions of the query. */
INLINE __m256i add_key_dot(__m256i sum, struct key_bytes k, int32_t four)
{
    __m256i s = _mm256_sign_epi8(_mm256_set1_epi32(four), k.x);

    s = _mm256_madd_epi16(_mm256_maddubs_epi16(k.size, s), _mm256_set1_epi16(1));
    return _mm256_add_epi32(sum, s);
}

INLINE __m256 load_key_scales(const uint16_t *d)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)d));
}

INLINE __m256 no_scores(void)
{
    return _mm256_setzero_ps();
}

INLINE __m256 add_scaled_dot(__m256 acc, __m256 dk, float d, __m256i sum)
{
    return _mm256_fmadd_ps(_mm256_mul_ps(dk, _mm256_set1_ps(d)), _mm256_cvtepi32_ps(sum), acc);
}

INLINE void store_scores(float *w, int n, __m256 acc, float scale)
{
    store_partial(w, 0, n, _mm256_mul_ps(acc, _mm256_set1_ps(scale)));
}

/* ---- q8_0 values: operations on 16 int32 */

INLINE ivec16 all_int16(int x)
{
    return (ivec16){ _mm256_set1_epi32(x), _mm256_set1_epi32(x) };
}

INLINE vec16 to_float16(ivec16 v)
{
    return (vec16){ _mm256_cvtepi32_ps(v.low), _mm256_cvtepi32_ps(v.high) };
}

/* The larger of `most` and the bits of |v|, as unsigned integers. */
INLINE ivec16 max_magnitude16(ivec16 most, vec16 v)
{
    const __m256i no_sign = _mm256_set1_epi32(0x7fffffff);

    return (ivec16){
        _mm256_max_epu32(most.low, _mm256_and_si256(_mm256_castps_si256(v.low), no_sign)),
        _mm256_max_epu32(most.high, _mm256_and_si256(_mm256_castps_si256(v.high), no_sign)),
    };
}

INLINE float top_magnitude16(ivec16 v)
{
    __m256i a = _mm256_max_epu32(v.low, v.high);
    __m128i b = _mm_max_epu32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));

    b = _mm_max_epu32(b, _mm_shuffle_epi32(b, 0x4e));
    b = _mm_max_epu32(b, _mm_shuffle_epi32(b, 0xb1));
    return _mm_cvtss_f32(_mm_castsi128_ps(b));
}

/* Rounds v to int16; lanes from n >= 0 on become 0. */
INLINE void store_first_int16(int16_t *u, int n, vec16 v)
{
    __m256i *at = (__m256i *)(void *)u;
    __m256i low = _mm256_cvtps_epi32(v.low), high = _mm256_cvtps_epi32(v.high);

    if (n < 16) {
        low = _mm256_and_si256(low, first_lanes(n));
        high = _mm256_and_si256(high, first_lanes(n - 8));
    }
    /* packs works within 128-bit halves: restore the order of the groups of four */
    _mm256_storeu_si256(at, _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8));
}

/* The values of two tokens and 16 dimensions. */
INLINE ivec16 load_int8_as_int16(const uint8_t *line)
{
    const __m128i *at = (const __m128i *)(const void *)line;

    return (ivec16){ _mm256_cvtepi8_epi16(_mm_loadu_si128(at)),
        _mm256_cvtepi8_epi16(_mm_loadu_si128(at + 1)) };
}

/* Adds the products of two tokens and their weights. */
INLINE ivec16 add_pair_dot(ivec16 sum, ivec16 x, int32_t two)
{
    __m256i p = _mm256_set1_epi32(two);

    return (ivec16){ _mm256_add_epi32(sum.low, _mm256_madd_epi16(x.low, p)),
        _mm256_add_epi32(sum.high, _mm256_madd_epi16(x.high, p)) };
}

INLINE void quantise_q8_0(const float *x, int n, struct act_q8_0 *out)
{
    kernels_avx2.q8_0(x, n, out);
}

#include "kernel/x86/x86_attn_block.h"

void avx2_kv_append(const struct kv_slot *slot, const float *k, const float *v)
{
    append(slot, k, v);
}

void avx2_attend(const struct attn_args *a)
{
    attend(a);
}

void avx2_attend_merge(const struct attn_args *a)
{
    attn_merge_splits(a, merge_states, write_output);
}
