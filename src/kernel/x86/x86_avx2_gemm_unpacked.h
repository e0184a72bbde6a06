/* x86_avx2_gemm_unpacked.h: declarations shared by the AVX2 GEMM files that unpack a K block of a
 * panel to bytes before they multiply it: the driver and parts of the dot products. Included only
 * by x86_avx2_gemm_unpacked.c, x86_avx2_gemm_low_bits.c and x86_avx2_unpack*.c. */
#pragma once

#include "kernel/x86/x86_avx2_gemm_k.h"
#include "kernel/x86/x86_unpacked_kblock.h"

#ifdef __AVX2__

/* Multiplies n_blocks of u with the blocks at x[m] and adds the products to acc[m]. */
typedef void (*multiply_fn)(
    const struct unpacked_kblock *u, const uint8_t *const *x, int n_blocks, struct panel_acc *acc);

struct unpacked_format {
    struct gemv_format gemv_format;
    unpack_fn unpack;
    multiply_fn multiply[GROUP_ROWS + 1]; /* indexed by the number of rows */
};

/* GEMM for more than GROUP_ROWS rows, otherwise GEMV. */
void GEMM_SET(gemm_with_unpacking)(const struct gemm_args *g, const struct unpacked_format *f);

/* Differences between types, as compile-time constants. */
struct type_traits {
    int halves;          /* halves of a panel at a time, limited by the registers for sums */
    int quads_per_widen; /* quads that may be added before they are widened; with VNNI: all */
    int sub_quads;       /* quads per sub-block */
    int offset; /* subtracted from the weights: 0, 12, 16, 128; for blocks of 256: 0, 32, 128 */
    bool has_mins;
};

/* ---- parts of unpacking */

INLINE void put_half(uint8_t to[64], int half, __m256i v)
{
    _mm256_store_si256((__m256i *)(void *)(to + 32 * half), v);
}

/* Scales of sub-blocks 2i and 2i + 1 of eight rows, as pairs of int16. */
INLINE void put_scale_pair(struct unpacked_kblock *u, int i, int half, __m256i pair)
{
    u->scale[2 * i][half] = scale_of_pair(pair, 0);
    u->scale[2 * i + 1][half] = scale_of_pair(pair, 1);
}

INLINE void put_f16_scales(__m256 to[2], const uint16_t h[16])
{
    to[0] = f16_to_f32_x8(h);
    to[1] = f16_to_f32_x8(h + 8);
}

/* ---- parts of dot products */

/* Sums of up to four rows and both halves of the panel, of which type_traits.halves are used at a
 * time. */
typedef __m256i row_sums[GROUP_ROWS][2];

/* Sub-block: its weights from a quad and a half on, the activations of every row, the initial value
 * of the dot products (with VNNI), and the scale of each half. */
struct sub_block {
    const uint8_t *w;
    const int8_t *q[GROUP_ROWS];
    int32_t start[GROUP_ROWS];
    __m256i scale[2];
};

/* Adds the products of quads from .. to - 1, for `halves` halves of the panel. */
INLINE void add_quads(
    int halves, int rows, const struct sub_block *s, int from, int to, row_sums out)
{
    UNROLL for (int i = from; i < to; i++) UNROLL for (int m = 0; m < rows; m++)
    {
        __m256i x = broadcast4(s->q[m] + 4 * i);
        UNROLL for (int n = 0; n < halves; n++) out[m][n] =
            dot_bytes(out[m][n], load_256(s->w + 64 * i + 32 * n), x);
    }
}

INLINE void add_sub_block(
    const struct type_traits k, int rows, const struct sub_block *s, row_sums total)
{
    row_sums part;

    UNROLL for (int i = 0; i < k.sub_quads; i += k.quads_per_widen)
    {
        UNROLL for (int m = 0; m < rows; m++) UNROLL for (int n = 0; n < k.halves; n++) part[m][n] =
            dot_init(s->start[m]);
        add_quads(k.halves, rows, s, i, i + k.quads_per_widen, part);
        UNROLL for (int m = 0; m < rows; m++) UNROLL for (int n = 0; n < k.halves; n++)
            total[m][n] = accumulate_scaled(total[m][n], part[m][n], s->scale[n]);
    }
}

/* Dot product of the pairs with n_pairs pairs of activation sums. */
INLINE __m256i pairs_dot(const struct unpacked_kblock *u, int half, const int16_t *of, int n_pairs)
{
    __m256i sum = _mm256_setzero_si256();

    UNROLL for (int p = 0; p < n_pairs; p++) sum =
        add_madd(sum, u->pair[p][half], broadcast4(of + 2 * p));
    return sum;
}
#endif
