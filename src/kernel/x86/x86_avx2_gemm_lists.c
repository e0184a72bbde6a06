/* x86_avx2_gemm_lists.c: nibbles that are an index into a list of bytes (IQ4_NL, IQ4_XS) times few
 * rows, without VNNI.
 *
 * With the offset, a number of the list has eight bits, whose products are too large for sums of
 * 16. It is taken apart, w + 128 = 16 * high + low, by a list for each, and high and low are
 * multiplied apart: 15 * 127 * 2 * 8 fits, so that a block of 32 is widened once. Nothing is put
 * aside in memory. Many rows are in x86_avx2_gemm_words.c. */
#ifndef __AVX2__
#error "compile with the AVX2 flags of the Makefile"
#endif

#include "kernel/x86/x86_avx2_gemm.h"

/* Sums of products with the low and with the high parts, of as many halves of the panel as go
 * through at a time: one, where sums of both would not fit into registers. */
struct parts {
    __m256i low[2], high[2];
};

struct lists {
    __m256i low, high;
};

/* How many rows, and which halves of the panel: from .. from + halves - 1. */
struct cut {
    int rows, from, halves;
};

INLINE struct lists set_lists(void)
{
    static const int8_t list[16] = { IQ4_LIST };
    const __m256i low = _mm256_set1_epi8(15);
    __m256i v = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)list));

    v = _mm256_add_epi8(v, _mm256_set1_epi8((char)IQ4_OFFSET));
    return (
        struct lists){ _mm256_and_si256(v, low), _mm256_and_si256(_mm256_srli_epi16(v, 4), low) };
}

/* Numbers of a quad, given as indices, times the four bytes at q[m] + at of every row. */
INLINE void add_quad(const struct cut c, struct lists list, const __m256i *index,
    const int8_t *const *q, int at, struct parts *sums)
{
    __m256i low[2], high[2];

    UNROLL for (int h = 0; h < c.halves; h++)
    {
        low[h] = _mm256_shuffle_epi8(list.low, index[h]);
        high[h] = _mm256_shuffle_epi8(list.high, index[h]);
    }
    UNROLL for (int m = 0; m < c.rows; m++)
    {
        __m256i x = spread4(q[m] + at);
        UNROLL for (int h = 0; h < c.halves; h++)
        {
            sums[m].low[h] = sum_bytes(sums[m].low[h], low[h], x);
            sums[m].high[h] = sum_bytes(sums[m].high[h], high[h], x);
        }
    }
}

/* 32 elements. */
INLINE void add_block(const struct cut c, struct lists list, const uint8_t w[4][16][4],
    const int8_t *const *q, struct parts *sums)
{
    const __m256i low = _mm256_set1_epi8(15);

    UNROLL for (int m = 0; m < c.rows; m++) UNROLL for (int h = 0; h < c.halves; h++) sums[m]
        .low[h] = sums[m].high[h] = _mm256_setzero_si256();
    UNROLL for (int i = 0; i < 4; i++)
    {
        __m256i v[2], index[2];
        UNROLL for (int h = 0; h < c.halves; h++)
        {
            v[h] = load(w[i][8 * (c.from + h)]);
            index[h] = _mm256_and_si256(v[h], low);
        }
        add_quad(c, list, index, q, 4 * i, sums);
        UNROLL for (int h = 0; h < c.halves; h++) index[h] =
            _mm256_and_si256(_mm256_srli_epi16(v[h], 4), low);
        add_quad(c, list, index, q, 4 * i + 16, sums);
    }
}

INLINE void turn_iq4_nl(
    int rows, int halves, const uint8_t *wp, const uint8_t *const *xp, int n, struct lanes *out)
{
    const struct p16_iq4_nl *p = (const void *)wp;
    const struct lists list = set_lists();
    const __m256i one = _mm256_set1_epi16(1), sixteen = _mm256_set1_epi16(16);
    const struct act_q8_0 *x[GROUP];
    struct parts sums[GROUP];
    const int8_t *q[GROUP];

    for (int from = 0; from < 2; from += halves)
        for (int b = 0; b < n; b++) {
            if (from == 0)
                fetch_ahead((const uint8_t *)(p + b), sizeof(*p));
            UNROLL for (int m = 0; m < rows; m++)
            {
                x[m] = (const struct act_q8_0 *)(const void *)xp[m] + b;
                q[m] = x[m]->q;
            }
            add_block((struct cut){ rows, from, halves }, list, p[b].q, q, sums);
            UNROLL for (int h = 0; h < halves; h++)
            {
                __m256 dw = half8(p[b].d + 8 * (from + h));
                UNROLL for (int m = 0; m < rows; m++)
                {
                    __m256i sum = _mm256_slli_epi32(_mm256_set1_epi32(x[m]->minus8), 4);
                    sum = add_madd(sum, sums[m].low[h], one);
                    sum = add_madd(sum, sums[m].high[h], sixteen);
                    out[m].half[from + h] = scaled(out[m].half[from + h], dw, x[m]->d, sum);
                }
            }
        }
}

/* Scales of sub-blocks 2p, 2p + 1 of eight rows, as pairs. */
INLINE __m256i scale_pair(const struct p16_iq4_xs *p, int i, int half)
{
    return _mm256_cvtepi8_epi16(
        _mm_loadu_si128((const __m128i *)(const void *)p->scale[i][8 * half]));
}

/* -128 * (scales . sum32): what the offset added too much. */
INLINE __m256i xs_offset(const struct p16_iq4_xs *p, const struct act_q8_k *x, int half)
{
    __m256i sum = _mm256_setzero_si256();

    UNROLL for (int i = 0; i < 4; i++) sum =
        add_madd(sum, scale_pair(p, i, half), spread4(x->sum32 + 2 * i));
    return _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32(sum, 7));
}

INLINE void add_scaled(
    int rows, int h, const struct parts *sums, __m256i scale, __m256i total[GROUP][2])
{
    __m256i scale16 = _mm256_slli_epi16(scale, 4);

    UNROLL for (int m = 0; m < rows; m++)
    {
        total[m][h] = add_madd(total[m][h], sums[m].low[h], scale);
        total[m][h] = add_madd(total[m][h], sums[m].high[h], scale16);
    }
}

INLINE void turn_iq4_xs(
    int rows, int halves, const uint8_t *wp, const uint8_t *const *xp, int n, struct lanes *out)
{
    const struct p16_iq4_xs *p = (const void *)wp;
    const struct lists list = set_lists();
    __m256i total[GROUP][2];
    struct parts sums[GROUP];
    const struct act_q8_k *x[GROUP];
    const int8_t *q[GROUP];

    for (int b = 0; b < n; b++, p++) {
        UNROLL for (int m = 0; m < rows; m++) x[m] =
            (const struct act_q8_k *)(const void *)xp[m] + b;
        for (int from = 0; from < 2; from += halves) {
            UNROLL for (int m = 0; m < rows; m++) UNROLL for (int h = 0; h < halves; h++)
                total[m][h] = xs_offset(p, x[m], from + h);
            for (int j = 0; j < 8; j++) {
                if (from == 0)
                    fetch_ahead((const uint8_t *)p + (size_t)j * sizeof(*p) / 8, sizeof(*p) / 8);
                UNROLL for (int m = 0; m < rows; m++) q[m] = x[m]->q + 32 * j;
                add_block((struct cut){ rows, from, halves }, list, p->q[j], q, sums);
                UNROLL for (int h = 0; h < halves; h++)
                {
                    __m256i scale = of_pair(scale_pair(p, j / 2, from + h), j % 2);
                    add_scaled(rows, h, sums, scale, total);
                }
            }
            UNROLL for (int h = 0; h < halves; h++)
            {
                __m256 dw = half8(p->d + 8 * (from + h));
                UNROLL for (int m = 0; m < rows; m++) out[m].half[from + h] =
                    scaled(out[m].half[from + h], dw, x[m]->d, total[m][h]);
            }
        }
    }
}

/* ---- one function per type and number of rows, one table per type */

#define TURN(type, rows, halves)                                                                   \
    static void type##_##rows(const uint8_t *w, const uint8_t *const *x, int n, struct lanes *acc) \
    {                                                                                              \
        turn_##type(rows, halves, w, x, n, acc);                                                   \
    }

#define LISTS(type, block, act, two)                                                               \
    TURN(type, 1, 2)                                                                               \
    TURN(type, 2, two)                                                                             \
    TURN(type, 3, 1)                                                                               \
    TURN(type, 4, 1)                                                                               \
    const struct format avx2_few_##type = { { NULL, type##_1, type##_2, type##_3, type##_4 },      \
        block, sizeof(struct p16_##type), sizeof(act), 0 };

LISTS(iq4_nl, 32, struct act_q8_0, 2)
LISTS(iq4_xs, 256, struct act_q8_k, 1)
