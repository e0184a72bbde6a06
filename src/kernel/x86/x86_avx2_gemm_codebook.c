/* x86_avx2_gemm_codebook.c: GEMV with codebook types (IQ4_NL, IQ4_XS) without VNNI.
 *
 * With the offset, a codebook entry has eight bits, and its products are too large for 16-bit sums.
 * The entry is split, w + 128 = 16 * high + low, with one codebook for each part, and the parts are
 * multiplied separately: 15 * 127 * 2 * 8 fits, so a block of 32 is widened once. Nothing is
 * spilled to memory. GEMM is in x86_avx2_gemm_int16.c. */
#ifndef __AVX2__
#error "compile with the AVX2 flags of the Makefile"
#endif

#include "kernel/x86/x86_avx2_gemm.h"

/* Dot products with the low and the high parts, for the halves of the panel that are processed
 * together: one half if the sums of both do not fit into registers. */
struct nibble_sums {
    __m256i low[2], high[2];
};

struct codebook_nibbles {
    __m256i low, high;
};

/* Register block: number of rows, and halves of the panel from .. from + halves - 1. */
struct register_block {
    int rows, from, halves;
};

INLINE struct codebook_nibbles load_codebook_nibbles(void)
{
    static const int8_t codebook[16] = { IQ4_CODEBOOK };
    const __m256i low = _mm256_set1_epi8(15);
    __m256i v =
        _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)codebook));

    v = _mm256_add_epi8(v, _mm256_set1_epi8((char)IQ4_OFFSET));
    return (struct codebook_nibbles){ _mm256_and_si256(v, low),
        _mm256_and_si256(_mm256_srli_epi16(v, 4), low) };
}

/* Multiplies a quad of codebook indices with the four bytes at q[m] + at of every row. */
INLINE void add_quad(const struct register_block c, struct codebook_nibbles codebook,
    const __m256i *index, const int8_t *const *q, int at, struct nibble_sums *sums)
{
    __m256i low[2], high[2];

    UNROLL for (int h = 0; h < c.halves; h++)
    {
        low[h] = _mm256_shuffle_epi8(codebook.low, index[h]);
        high[h] = _mm256_shuffle_epi8(codebook.high, index[h]);
    }
    UNROLL for (int m = 0; m < c.rows; m++)
    {
        __m256i x = broadcast4(q[m] + at);
        UNROLL for (int h = 0; h < c.halves; h++)
        {
            sums[m].low[h] = dot_bytes(sums[m].low[h], low[h], x);
            sums[m].high[h] = dot_bytes(sums[m].high[h], high[h], x);
        }
    }
}

/* 32 elements */
INLINE void add_block_dots(const struct register_block c, struct codebook_nibbles codebook,
    const uint8_t w[4][16][4], const int8_t *const *q, struct nibble_sums *sums)
{
    const __m256i low = _mm256_set1_epi8(15);

    UNROLL for (int m = 0; m < c.rows; m++) UNROLL for (int h = 0; h < c.halves; h++) sums[m]
        .low[h] = sums[m].high[h] = _mm256_setzero_si256();
    UNROLL for (int i = 0; i < 4; i++)
    {
        __m256i v[2], index[2];
        UNROLL for (int h = 0; h < c.halves; h++)
        {
            v[h] = load_256(w[i][8 * (c.from + h)]);
            index[h] = _mm256_and_si256(v[h], low);
        }
        add_quad(c, codebook, index, q, 4 * i, sums);
        UNROLL for (int h = 0; h < c.halves; h++) index[h] =
            _mm256_and_si256(_mm256_srli_epi16(v[h], 4), low);
        add_quad(c, codebook, index, q, 4 * i + 16, sums);
    }
}

INLINE void microkernel_iq4_nl(
    int rows, int halves, const uint8_t *wp, const uint8_t *const *xp, int n, struct panel_acc *out)
{
    const struct p16_iq4_nl *p = (const void *)wp;
    const struct codebook_nibbles codebook = load_codebook_nibbles();
    const __m256i one = _mm256_set1_epi16(1), sixteen = _mm256_set1_epi16(16);
    const struct act_q8_0 *x[GROUP_ROWS];
    struct nibble_sums sums[GROUP_ROWS];
    const int8_t *q[GROUP_ROWS];

    for (int from = 0; from < 2; from += halves)
        for (int b = 0; b < n; b++) {
            if (from == 0)
                prefetch_ahead((const uint8_t *)(p + b), sizeof(*p));
            UNROLL for (int m = 0; m < rows; m++)
            {
                x[m] = (const struct act_q8_0 *)(const void *)xp[m] + b;
                q[m] = x[m]->q;
            }
            add_block_dots(
                (struct register_block){ rows, from, halves }, codebook, p[b].q, q, sums);
            UNROLL for (int h = 0; h < halves; h++)
            {
                __m256 dw = f16_to_f32_x8(p[b].d + 8 * (from + h));
                UNROLL for (int m = 0; m < rows; m++)
                {
                    __m256i sum = _mm256_slli_epi32(_mm256_set1_epi32(x[m]->minus8), 4);
                    sum = add_madd(sum, sums[m].low[h], one);
                    sum = add_madd(sum, sums[m].high[h], sixteen);
                    out[m].half[from + h] = fma_dot(out[m].half[from + h], dw, x[m]->d, sum);
                }
            }
        }
}

/* Scales of sub-blocks 2i and 2i + 1 of eight rows, as pairs. */
INLINE __m256i scale_pair(const struct p16_iq4_xs *p, int i, int half)
{
    return _mm256_cvtepi8_epi16(
        _mm_loadu_si128((const __m128i *)(const void *)p->scale[i][8 * half]));
}

/* -128 * (scales . sum32): corrects for the offset of the codebook */
INLINE __m256i iq4_xs_offset(const struct p16_iq4_xs *p, const struct act_q8_k *x, int half)
{
    __m256i sum = _mm256_setzero_si256();

    UNROLL for (int i = 0; i < 4; i++) sum =
        add_madd(sum, scale_pair(p, i, half), broadcast4(x->sum32 + 2 * i));
    return _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32(sum, 7));
}

INLINE void add_scaled_sums(
    int rows, int h, const struct nibble_sums *sums, __m256i scale, __m256i total[GROUP_ROWS][2])
{
    __m256i scale16 = _mm256_slli_epi16(scale, 4);

    UNROLL for (int m = 0; m < rows; m++)
    {
        total[m][h] = add_madd(total[m][h], sums[m].low[h], scale);
        total[m][h] = add_madd(total[m][h], sums[m].high[h], scale16);
    }
}

INLINE void microkernel_iq4_xs(
    int rows, int halves, const uint8_t *wp, const uint8_t *const *xp, int n, struct panel_acc *out)
{
    const struct p16_iq4_xs *p = (const void *)wp;
    const struct codebook_nibbles codebook = load_codebook_nibbles();
    __m256i total[GROUP_ROWS][2];
    struct nibble_sums sums[GROUP_ROWS];
    const struct act_q8_k *x[GROUP_ROWS];
    const int8_t *q[GROUP_ROWS];

    for (int b = 0; b < n; b++, p++) {
        UNROLL for (int m = 0; m < rows; m++) x[m] =
            (const struct act_q8_k *)(const void *)xp[m] + b;
        for (int from = 0; from < 2; from += halves) {
            UNROLL for (int m = 0; m < rows; m++) UNROLL for (int h = 0; h < halves; h++)
                total[m][h] = iq4_xs_offset(p, x[m], from + h);
            for (int j = 0; j < 8; j++) {
                if (from == 0)
                    prefetch_ahead((const uint8_t *)p + (size_t)j * sizeof(*p) / 8, sizeof(*p) / 8);
                UNROLL for (int m = 0; m < rows; m++) q[m] = x[m]->q + 32 * j;
                add_block_dots(
                    (struct register_block){ rows, from, halves }, codebook, p->q[j], q, sums);
                UNROLL for (int h = 0; h < halves; h++)
                {
                    __m256i scale = scale_of_pair(scale_pair(p, j / 2, from + h), j % 2);
                    add_scaled_sums(rows, h, sums, scale, total);
                }
            }
            UNROLL for (int h = 0; h < halves; h++)
            {
                __m256 dw = f16_to_f32_x8(p->d + 8 * (from + h));
                UNROLL for (int m = 0; m < rows; m++) out[m].half[from + h] =
                    fma_dot(out[m].half[from + h], dw, x[m]->d, total[m][h]);
            }
        }
    }
}

/* ---- one function per type and number of rows, one table per type */

#define MICROKERNEL(type, rows, halves)                                                            \
    static void type##_##rows(                                                                     \
        const uint8_t *w, const uint8_t *const *x, int n, struct panel_acc *acc)                   \
    {                                                                                              \
        microkernel_##type(rows, halves, w, x, n, acc);                                            \
    }

#define CODEBOOK_FORMAT(type, block, act, two)                                                     \
    MICROKERNEL(type, 1, 2)                                                                        \
    MICROKERNEL(type, 2, two)                                                                      \
    MICROKERNEL(type, 3, 1)                                                                        \
    MICROKERNEL(type, 4, 1)                                                                        \
    const struct gemv_format avx2_gemv_format_##type = { { NULL, type##_1, type##_2, type##_3,     \
                                                             type##_4 },                           \
        block, sizeof(struct p16_##type), sizeof(act), 0 };

CODEBOOK_FORMAT(iq4_nl, 32, struct act_q8_0, 2)
CODEBOOK_FORMAT(iq4_xs, 256, struct act_q8_k, 1)
