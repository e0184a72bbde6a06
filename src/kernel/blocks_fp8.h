/* blocks_fp8.h: bytes of the types with E4M3 numbers, as blocks.h. A weight is the number times the
 * scale of its block, rounded once to f32. Data only; included by blocks.h. */
#pragma once

#include "base/base.h"

enum { QK_FP8_128 = 128 };

/* ---- file: w = e4m3(q) * d; MXFP8: w = e4m3(q) * 2^(e - 127) */

struct file_fp8_32 {
    float d;
    uint8_t q[32];
};

struct file_fp8_128 {
    float d;
    uint8_t q[QK_FP8_128];
};

struct file_mxfp8 {
    uint8_t e;
    uint8_t q[32];
};

/* ---- packed: per k the numbers of the 16 rows */

struct p16_fp8_32 {
    uint8_t q[32][16];
    float d[16];
};

struct p16_fp8_128 {
    uint8_t q[QK_FP8_128][16];
    float d[16];
};

struct p16_mxfp8 {
    uint8_t q[32][16];
    uint8_t e[16];
};
