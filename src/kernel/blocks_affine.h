/* blocks_affine.h: bytes of the affine types (MLX), as blocks.h: unsigned codes of 2 to 8 bits with
 * a scale and an offset per group of 32 or 64. Both are stored as f32, which represents every f16
 * and bf16. Data only; included by blocks.h. */
#pragma once

#include "base/base.h"

enum { QK_AFFINE_64 = 64 };

/* ---- file: w = d * q + m */

struct file_affine4_32 { /* q: per 32 elements as in file_q4_0 */
    float d, m;
    uint8_t q[1][16];
};

struct file_affine4_64 {
    float d, m;
    uint8_t q[2][16];
};

struct file_affine8_32 {
    float d, m;
    uint8_t q[1][32];
};

struct file_affine8_64 {
    float d, m;
    uint8_t q[2][32];
};

/* Codes of 2, 3, 5 and 6 bits: element i is bits [i * bits, (i + 1) * bits) of a little-endian bit
 * stream. Per 32 elements q has 4 * bits bytes. */
#define FILE_AFFINE(bits)                                                                          \
    struct file_affine##bits##_32 {                                                                \
        float d, m;                                                                                \
        uint8_t q[1][4 * bits];                                                                    \
    };                                                                                             \
    struct file_affine##bits##_64 {                                                                \
        float d, m;                                                                                \
        uint8_t q[2][4 * bits];                                                                    \
    };
FILE_AFFINE(2)
FILE_AFFINE(3)
FILE_AFFINE(5)
FILE_AFFINE(6)
#undef FILE_AFFINE

/* ---- packed */

struct p16_affine4_32 {
    uint8_t q[1][4][16][4]; /* per 32 elements as in p16_q4_0 */
    float d[16], m[16];
};

struct p16_affine4_64 {
    uint8_t q[2][4][16][4];
    float d[16], m[16];
};

struct p16_affine8_32 {
    uint8_t q[1][8][16][4];
    float d[16], m[16];
};

struct p16_affine8_64 {
    uint8_t q[2][8][16][4];
    float d[16], m[16];
};

/* Per 32 elements `bits` arrays of 64 bytes. Low bits: four arrays of nibbles as in p16_q4_0 (5 and
 * 6 bits), or two arrays of which each has two bits of 16 elements as in p16_q2_k (2 and 3 bits).
 * High bits: an array with one bit per element as `high` in p16_q5_0 (3 and 5 bits), or two arrays
 * with two bits (6 bits). */
#define P16_AFFINE(bits)                                                                           \
    struct p16_affine##bits##_32 {                                                                 \
        uint8_t q[1][bits][16][4];                                                                 \
        float d[16], m[16];                                                                        \
    };                                                                                             \
    struct p16_affine##bits##_64 {                                                                 \
        uint8_t q[2][bits][16][4];                                                                 \
        float d[16], m[16];                                                                        \
    };
P16_AFFINE(2)
P16_AFFINE(3)
P16_AFFINE(5)
P16_AFFINE(6)
#undef P16_AFFINE
