/* blocks_affine.h: bytes of the affine types (MLX), as blocks.h: unsigned codes of 4 or 8 bits with
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
