/* x86_avx2_gemm_low_bits.c: GEMM and GEMV with the types of blocks_low_bits.h, without VNNI or,
 * compiled by x86_avxvnni_gemm_low_bits.c, with it.
 *
 * A type consists of a function that unpacks a block of 256 to bytes and scales
 * (x86_avx2_unpack*.c) and of a line in x86_low_bits.def; the dot products are the same for all
 * types. */
#ifndef __AVX2__
#error "compile with the AVX2 flags of the Makefile"
#endif

#include "kernel/x86/x86_avx2_gemm_unpacked.h"
#include "kernel/x86/x86_avx2_unpack.h"

enum { SUB_BLOCKS = 16, SUB_QUADS = 4 };

/* -offset x (pair . sums of activations) */
INLINE __m256i offset_dot(
    int offset, const struct unpacked_kblock *u, int half, const struct act_q8_k *x)
{
    if (offset == 0)
        return _mm256_setzero_si256();
    return _mm256_mullo_epi32(pairs_dot(u, half, x->sum16, 8), _mm256_set1_epi32(-offset));
}

/* Scale of sub-block j, in the form that accumulate_scaled() needs. */
INLINE __m256i sub_block_scale(const struct unpacked_kblock *u, int j, int half)
{
    return BYTE_DOTS ? _mm256_srai_epi32(u->scale[j][half], 16) : u->scale[j][half];
}

INLINE void multiply(const struct type_traits k, int rows, const struct unpacked_kblock *u,
    const uint8_t *const *xp, struct panel_acc *acc)
{
    const struct act_q8_k *x[GROUP_ROWS];
    struct sub_block s = { .start = { 0 } };
    row_sums total;

    UNROLL for (int m = 0; m < rows; m++) x[m] = (const struct act_q8_k *)(const void *)xp[m];
    for (int h = 0; h < 2; h += k.halves) {
        UNROLL for (int m = 0; m < rows; m++) UNROLL for (int i = 0; i < k.halves; i++)
            total[m][i] = offset_dot(k.offset, u, h + i, x[m]);
        for (int j = 0; j < SUB_BLOCKS; j++) {
            UNROLL for (int i = 0; i < k.halves; i++) s.scale[i] = sub_block_scale(u, j, h + i);
            UNROLL for (int m = 0; m < rows; m++) s.q[m] = x[m]->q + 4 * SUB_QUADS * j;
            s.w = u->q[SUB_QUADS * j] + 32 * h;
            add_sub_block(k, rows, &s, total);
        }
        UNROLL for (int m = 0; m < rows; m++) UNROLL for (int i = h; i < h + k.halves; i++)
        {
            __m256 sum = fma_dot(acc[m].half[i], u->d[0][i], x[m]->d, total[m][i - h]);
            if (k.has_mins)
                sum = _mm256_fnmadd_ps(_mm256_mul_ps(u->d[1][i], _mm256_set1_ps(x[m]->d)),
                    _mm256_cvtepi32_ps(pairs_dot(u, i, x[m]->sum16, 8)), sum);
            acc[m].half[i] = sum;
        }
    }
}

/* ---- two functions per type and number of rows, one entry per type */

#define ROWS(type, rows, offset, quads, has_mins)                                                  \
    static void type##_##rows(                                                                     \
        const struct unpacked_kblock *u, const uint8_t *const *x, int n, struct panel_acc *acc)    \
    {                                                                                              \
        const struct type_traits k = { 2, BYTE_DOTS ? SUB_QUADS : quads, SUB_QUADS, offset,        \
            has_mins };                                                                            \
        multiply(k, rows, u, x, acc);                                                              \
    }                                                                                              \
    static void type##_gemv_##rows(                                                                \
        const uint8_t *w, const uint8_t *const *x, int n, struct panel_acc *acc)                   \
    {                                                                                              \
        struct unpacked_kblock u;                                                                  \
                                                                                                   \
        avx2_unpack_##type(&u, w, n);                                                              \
        type##_##rows(&u, x, n, acc);                                                              \
    }

#define LOW_BITS(entry, type, offset, quads, has_mins)                                             \
    ROWS(type, 1, offset, quads, has_mins)                                                         \
    ROWS(type, 2, offset, quads, has_mins)                                                         \
    ROWS(type, 3, offset, quads, has_mins)                                                         \
    ROWS(type, 4, offset, quads, has_mins)                                                         \
    void GEMM_SET(entry##_##type)(const struct gemm_args *g)                                       \
    {                                                                                              \
        static const struct unpacked_format f = {                                                  \
            { { NULL, type##_gemv_1, type##_gemv_2, type##_gemv_3, type##_gemv_4 }, KBLOCK,        \
                sizeof(struct p16_##type), sizeof(struct act_q8_k), 1 },                           \
            avx2_unpack_##type,                                                                    \
            { NULL, type##_1, type##_2, type##_3, type##_4 },                                      \
        };                                                                                         \
        GEMM_SET(gemm_with_unpacking)(g, &f);                                                      \
    }
#include "kernel/x86/x86_low_bits.def"
#undef LOW_BITS
