/* x86_avx2_unpack_iq.c: unpacking of the IQ types to bytes.
 *
 * Entries of the grids are loaded one by one, eight or four elements at a time, and arranged as
 * quad rows; signs and offsets are applied to vectors of eight rows. */
#ifndef __AVX2__
#error "compile with the AVX2 flags of the Makefile"
#endif

#include "kernel/iq_grids.h"
#include "kernel/x86/x86_avx2_gemm_unpacked.h"
#include "kernel/x86/x86_avx2_unpack.h"

/* ---- scales */

/* Eight bytes as int32. */
INLINE __m256i load_8_bytes(const uint8_t *p)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}

/* Scales 2 * s + 1 of 32 elements, in the weights multiplied by `factor`. */
INLINE void put_scales_32(struct unpacked_kblock *u, const uint8_t scale[4][16], int factor)
{
    UNROLL for (int j = 0; j < 8; j++) UNROLL for (int half = 0; half < 2; half++)
    {
        __m256i v = load_8_bytes(scale[j / 2] + 8 * half);
        v = _mm256_and_si256(j % 2 ? _mm256_srli_epi32(v, 4) : v, _mm256_set1_epi32(15));
        v = _mm256_add_epi32(_mm256_slli_epi32(v, 1), _mm256_set1_epi32(1));
        v = _mm256_or_si256(v, _mm256_slli_epi32(v, 16));
        u->pair[j][half] = v;
        u->scale[2 * j][half] = u->scale[2 * j + 1][half] =
            factor == 2 ? _mm256_slli_epi16(v, 1) : v;
    }
}

/* Scales 2 * s + 1 of 16 elements. */
INLINE void put_scales_16(struct unpacked_kblock *u, const uint8_t scale[8][16])
{
    UNROLL for (int p = 0; p < 8; p++) UNROLL for (int half = 0; half < 2; half++)
    {
        __m256i v = load_8_bytes(scale[p] + 8 * half);
        v = _mm256_and_si256(
            _mm256_or_si256(v, _mm256_slli_epi32(v, 12)), _mm256_set1_epi32(0x000f000f));
        u->pair[p][half] = _mm256_add_epi16(_mm256_slli_epi16(v, 1), _mm256_set1_epi16(1));
        put_scale_pair(u, p, half, u->pair[p][half]);
    }
}

INLINE void put_d(struct unpacked_kblock *u, const uint16_t d[16], float factor)
{
    put_f16_scales(u->d[0], d);
    UNROLL for (int half = 0; half < 2; half++) u->d[0][half] =
        _mm256_mul_ps(u->d[0][half], _mm256_set1_ps(factor));
}

/* ---- signs */

/* A byte of each of eight rows, repeated for the four elements of a quad. */
INLINE __m256i repeat_4_times(const uint8_t *bytes)
{
    const __m256i rows = _mm256_setr_epi8(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4,
        4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7);
    int64_t v;

    memcpy(&v, bytes, sizeof(v));
    return _mm256_shuffle_epi8(_mm256_set1_epi64x(v), rows);
}

/* All ones for the negative elements of quad 0 or 1 of a group, from repeated signs. */
INLINE __m256i sign_mask(__m256i signs, int quad)
{
    const __m256i bits = _mm256_set1_epi32(quad ? (int)0x80402010 : 0x08040201);

    return _mm256_cmpeq_epi8(_mm256_and_si256(signs, bits), bits);
}

/* offset + magnitude, or offset - magnitude where the mask is set */
INLINE __m256i with_sign(__m256i magnitude, __m256i mask, int offset)
{
    const __m256i v = _mm256_sub_epi8(mask, _mm256_set1_epi8((char)offset));

    return _mm256_sub_epi8(_mm256_xor_si256(magnitude, mask), v);
}

/* ---- groups of eight elements */

/* Entries of four rows: a, b in the lower and c, d in the upper half. */
INLINE __m256i four_entries(const uint8_t *a, const uint8_t *b, const uint8_t *c, const uint8_t *d)
{
    __m128i low = _mm_loadl_epi64((const __m128i *)(const void *)a);
    __m128i high = _mm_loadl_epi64((const __m128i *)(const void *)c);

    low = _mm_castpd_si128(_mm_loadh_pd(_mm_castsi128_pd(low), (const double *)(const void *)b));
    high = _mm_castpd_si128(_mm_loadh_pd(_mm_castsi128_pd(high), (const double *)(const void *)d));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

/* Two quads of eight rows. */
struct quad_pair {
    __m256i first, second;
};

/* at: indices of eight rows */
#define LOAD_GROUP(grid, at)                                                                       \
    separate_quads(                                                                                \
        four_entries((grid)[(at)[0]], (grid)[(at)[1]], (grid)[(at)[4]], (grid)[(at)[5]]),          \
        four_entries((grid)[(at)[2]], (grid)[(at)[3]], (grid)[(at)[6]], (grid)[(at)[7]]))

/* a: rows 0, 1, 4, 5; b: rows 2, 3, 6, 7 */
INLINE struct quad_pair separate_quads(__m256i a, __m256i b)
{
    __m256 x = _mm256_castsi256_ps(a), y = _mm256_castsi256_ps(b);

    return (struct quad_pair){ _mm256_castps_si256(_mm256_shuffle_ps(x, y, 0x88)),
        _mm256_castps_si256(_mm256_shuffle_ps(x, y, 0xdd)) };
}

enum { IQ2_OFFSET = 43, IQ3_XXS_OFFSET = 31 };

/* Stores the quads of group g of eight rows, with their signs. */
INLINE void put_group(
    struct unpacked_kblock *u, int g, int half, struct quad_pair q, const uint8_t *signs)
{
    __m256i s = repeat_4_times(signs);

    put_half(u->q[2 * g], half, with_sign(q.first, sign_mask(s, 0), IQ2_OFFSET));
    put_half(u->q[2 * g + 1], half, with_sign(q.second, sign_mask(s, 1), IQ2_OFFSET));
}

void avx2_unpack_iq2_xxs(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)
{
    const struct p16_iq2_xxs *p = (const void *)w;

    prefetch_ahead(w, sizeof(*p));
    for (int g = 0; g < 32; g++)
        UNROLL for (int half = 0; half < 2; half++)
        {
            const uint8_t *at = p->index[g] + 8 * half;
            put_group(u, g, half, LOAD_GROUP(iq2_xxs_grid, at), p->sign[g] + 8 * half);
        }
    put_scales_32(u, p->scale, 1);
    put_d(u, p->d, 0.125f);
}

/* Indices of n groups of 16 rows: low bytes, and `bits` bits per group of high above them. */
INLINE void load_indices(
    uint16_t (*out)[16], int n, const uint8_t (*low)[16], const uint8_t (*high)[16], int bits)
{
    const __m256i mask = _mm256_set1_epi16((int16_t)(((1 << bits) - 1) << 8));

    for (int i = 0; i < n * bits / 8; i++) {
        __m256i h = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)high[i]));
        h = _mm256_slli_epi16(h, 8);
        UNROLL for (int g = 0; g < 8; g++)
        {
            if (g * bits >= 8) /* a bound that a sanitizer build does not fold prevents UNROLL */
                break;
            const __m128i *at = (const __m128i *)(const void *)low[i * (8 / bits) + g];
            __m256i v = _mm256_or_si256(_mm256_cvtepu8_epi16(_mm_loadu_si128(at)),
                _mm256_and_si256(_mm256_srli_epi16(h, g * bits), mask));
            _mm256_storeu_si256((__m256i *)(void *)out[i * (8 / bits) + g], v);
        }
    }
}

void avx2_unpack_iq2_xs(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)
{
    const struct p16_iq2_xs *p = (const void *)w;
    uint16_t at[32][16];

    prefetch_ahead(w, sizeof(*p));
    load_indices(at, 32, p->index, p->high, 1);
    for (int g = 0; g < 32; g++)
        UNROLL for (int half = 0; half < 2; half++)
            put_group(u, g, half, LOAD_GROUP(iq2_xs_grid, at[g] + 8 * half), p->sign[g] + 8 * half);
    put_scales_16(u, p->scale);
    put_d(u, p->d, 0.125f);
}

void avx2_unpack_iq2_s(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)
{
    const struct p16_iq2_s *p = (const void *)w;
    uint16_t at[32][16];

    prefetch_ahead(w, sizeof(*p));
    load_indices(at, 32, p->index, p->high, 2);
    for (int g = 0; g < 32; g++)
        UNROLL for (int half = 0; half < 2; half++)
            put_group(u, g, half, LOAD_GROUP(iq2_s_grid, at[g] + 8 * half), p->sign[g] + 8 * half);
    put_scales_16(u, p->scale);
    put_d(u, p->d, 0.125f);
}

/* ---- groups of four elements */

INLINE int32_t load_4(const uint8_t entry[4])
{
    int32_t v;

    memcpy(&v, entry, sizeof(v));
    return v;
}

/* Quads of eight rows at the indices `at`. Single loads: a gather takes twice as long on Zen 4. */
#define LOAD_QUAD(grid, at)                                                                        \
    _mm256_setr_epi32(load_4((grid)[(at)[0]]), load_4((grid)[(at)[1]]), load_4((grid)[(at)[2]]),   \
        load_4((grid)[(at)[3]]), load_4((grid)[(at)[4]]), load_4((grid)[(at)[5]]),                 \
        load_4((grid)[(at)[6]]), load_4((grid)[(at)[7]]))

void avx2_unpack_iq3_xxs(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)
{
    const struct p16_iq3_xxs *p = (const void *)w;

    prefetch_ahead(w, sizeof(*p));
    for (int g = 0; g < 32; g++)
        UNROLL for (int half = 0; half < 2; half++)
        {
            __m256i signs = repeat_4_times(p->sign[g] + 8 * half);
            UNROLL for (int i = 0; i < 2; i++)
            {
                const uint8_t *at = p->index[2 * g + i] + 8 * half;
                put_half(u->q[2 * g + i], half,
                    with_sign(LOAD_QUAD(iq3_xxs_grid, at), sign_mask(signs, i), IQ3_XXS_OFFSET));
            }
        }
    put_scales_32(u, p->scale, 1);
    put_d(u, p->d, 0.5f);
}

/* The weight is 2 * q - 15, and the grid contains q of the positive weights: the others are 15 - q,
 * the complement of four bits. The factor 2 is in the scales. */
void avx2_unpack_iq3_s(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)
{
    const struct p16_iq3_s *p = (const void *)w;
    const __m256i low4 = _mm256_set1_epi8(15);
    uint16_t at[64][16];

    prefetch_ahead(w, sizeof(*p));
    load_indices(at, 64, p->index, p->high, 1);
    for (int g = 0; g < 32; g++)
        UNROLL for (int half = 0; half < 2; half++)
        {
            __m256i signs = repeat_4_times(p->sign[g] + 8 * half);
            UNROLL for (int i = 0; i < 2; i++)
            {
                __m256i v = LOAD_QUAD(iq3_s_grid, at[2 * g + i] + 8 * half);
                put_half(u->q[2 * g + i], half,
                    _mm256_xor_si256(v, _mm256_and_si256(sign_mask(signs, i), low4)));
            }
        }
    put_scales_32(u, p->scale, 2);
    put_d(u, p->d, 1);
}

/* ---- IQ1: the grid contains 8 * (w + 1), to which 1 + delta is added */

/* 2 or, for rows whose bit is set, 0, in all bytes of eight rows. */
INLINE __m256i one_plus_delta(__m256i bits)
{
    __m256i v = _mm256_sub_epi32(_mm256_set1_epi32(2), _mm256_slli_epi32(bits, 1));

    return _mm256_mullo_epi32(v, _mm256_set1_epi32(0x01010101));
}

INLINE void put_ternary_group(
    struct unpacked_kblock *u, int g, int half, struct quad_pair q, __m256i delta)
{
    put_half(u->q[2 * g], half, _mm256_add_epi8(q.first, delta));
    put_half(u->q[2 * g + 1], half, _mm256_add_epi8(q.second, delta));
}

/* Scales from two numbers of three bits per lane, 16 bits apart. */
INLINE void put_scales_3_bits(struct unpacked_kblock *u, int i, int half, __m256i two)
{
    __m256i v = _mm256_and_si256(two, _mm256_set1_epi16(7));

    u->pair[i][half] = _mm256_add_epi16(_mm256_slli_epi16(v, 1), _mm256_set1_epi16(1));
    put_scale_pair(u, i, half, u->pair[i][half]);
}

INLINE __m256i load_8_uint16(const uint16_t *p)
{
    return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}

void avx2_unpack_iq1_s(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)
{
    const struct p16_iq1_s *p = (const void *)w;
    uint16_t at[8];

    prefetch_ahead(w, sizeof(*p));
    for (int j = 0; j < 8; j++)
        UNROLL for (int half = 0; half < 2; half++)
        {
            __m256i high = load_8_uint16(p->high[j] + 8 * half), s = _mm256_srli_epi32(high, 12);
            __m256i delta = one_plus_delta(_mm256_srli_epi32(high, 15));
            UNROLL for (int g = 4 * j; g < 4 * j + 4; g++)
            {
                for (int r = 0; r < 8; r++)
                    at[r] = (uint16_t)(p->index[g][8 * half + r] |
                                       (p->high[j][8 * half + r] >> (g % 4 * 3) & 7) << 8);
                put_ternary_group(u, g, half, LOAD_GROUP(iq1_grid, at), delta);
            }
            put_scales_3_bits(u, j, half, _mm256_or_si256(s, _mm256_slli_epi32(s, 16)));
        }
    put_d(u, p->d, 0.125f);
}

void avx2_unpack_iq1_m(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)
{
    const struct p16_iq1_m *p = (const void *)w;
    uint16_t at[8];

    prefetch_ahead(w, sizeof(*p));
    for (int g = 0; g < 32; g++)
        UNROLL for (int half = 0; half < 2; half++)
        {
            __m256i high = load_8_bytes(p->high[g / 2] + 8 * half);
            __m256i bit = _mm256_srl_epi32(high, _mm_cvtsi32_si128(g % 2 * 4 + 3));
            for (int r = 0; r < 8; r++)
                at[r] = (uint16_t)(p->index[g][8 * half + r] |
                                   (p->high[g / 2][8 * half + r] >> (g % 2 * 4) & 7) << 8);
            put_ternary_group(u, g, half, LOAD_GROUP(iq1_grid, at),
                one_plus_delta(_mm256_and_si256(bit, _mm256_set1_epi32(1))));
        }
    UNROLL for (int i = 0; i < 8; i++) UNROLL for (int half = 0; half < 2; half++)
    {
        __m256i s = _mm256_srli_epi32(load_8_uint16(p->scale[i / 2] + 8 * half), i % 2 * 6);
        put_scales_3_bits(u, i, half,
            _mm256_or_si256(_mm256_and_si256(s, _mm256_set1_epi32(7)), _mm256_slli_epi32(s, 13)));
    }
    put_d(u, p->d, 0.125f);
}
