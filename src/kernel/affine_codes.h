/* affine_codes.h: codes of packed affine blocks (blocks_affine.h), one at a
 * time. unpack.c computes floats from them, ref_gemm.c dot products, pack.c writes them. Pure; any
 * thread. */
#pragma once

#include "kernel/blocks_affine.h"

/* Position of some bits of element k (0 .. 31) of a row: byte [array][row][column], from bit
 * `shift` on. */
struct affine_bits {
    int array, column, shift;
};

static inline struct affine_bits affine_nibble(int k)
{
    return (struct affine_bits){ k % 16 / 4, k % 4, k / 16 * 4 };
}

static inline struct affine_bits affine_two_bits(int k)
{
    return (struct affine_bits){ k / 16, k % 4, k % 16 / 4 * 2 };
}

static inline struct affine_bits affine_one_bit(int k)
{
    return (struct affine_bits){ 0, k % 4, k / 4 };
}

static inline int affine_get(const uint8_t (*q)[16][4], int r, struct affine_bits b, int mask)
{
    return q[b.array][r][b.column] >> b.shift & mask;
}

/* Code of element k of row r; q: the arrays of 32 elements. */
static inline int affine2_code(const uint8_t q[2][16][4], int r, int k)
{
    return affine_get(q, r, affine_two_bits(k), 3);
}

static inline int affine3_code(const uint8_t q[3][16][4], int r, int k)
{
    return affine2_code(q, r, k) | affine_get(q + 2, r, affine_one_bit(k), 1) << 2;
}

static inline int affine4_code(const uint8_t q[4][16][4], int r, int k)
{
    return affine_get(q, r, affine_nibble(k), 15);
}

static inline int affine5_code(const uint8_t q[5][16][4], int r, int k)
{
    return affine4_code(q, r, k) | affine_get(q + 4, r, affine_one_bit(k), 1) << 4;
}

static inline int affine6_code(const uint8_t q[6][16][4], int r, int k)
{
    return affine4_code(q, r, k) | affine2_code(q + 4, r, k) << 4;
}

static inline int affine8_code(const uint8_t q[8][16][4], int r, int k)
{
    return q[k / 4][r][k % 4];
}
