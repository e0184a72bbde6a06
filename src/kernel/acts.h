/* acts.h: activation rows as GEMM reads them (the right-hand side of the dot products): F32,
 * quantised per block (activation quantisation), or split into two bf16 numbers. A row is an
 * array of blocks.
 *
 * The quantised kinds have the semantics of GGUF's Q8_0 and Q8_K: symmetric, the largest magnitude
 * becomes 127, round to nearest with ties to even. Only the scale of Q8_0 is rounded to f16, as
 * that format does.
 *
 *   Q8_0, 32 elements    a = max |x|, d = a / 127 (0 if that underflows), q = rint(x * (1 / d)),
 *                        then d is rounded to f16
 *   Q8_K, 256 elements   a = max |x|, s = 127 / a (0 if a is 0), q = rint(x * s), d = 1 / s
 *
 * q is clamped to -127 .. 127; a NaN gives -127. A NaN or infinity in a block makes d a NaN or
 * infinity, so no result computed from the block looks finite. The stored sums of q spare the
 * kernels an offset per weight: sum of (u - o) * q = sum of u * q - o * sum of q.
 *
 * BF16X2, 32 elements: hi = bf16(x), lo = bf16(x - hi), to nearest, ties to even: at least 16 bits
 * of mantissa. A number that is subnormal before or after rounding becomes zero, as it does in
 * AMX bf16 tiles; a number that is not finite has lo = 0. A 64-byte line of hi or lo is a row of a
 * tile. Plain data; any thread. */
#pragma once

#include "base/base.h"

enum { Q8_0_BLOCK = 32, Q8_K_BLOCK = 256, BF16X2_BLOCK = 32 };

struct act_q8_0 {
    float d; /* always an exact f16 value */
    /* -8 * sum of q: initial value of a dot product with Q4_0's q + 8; times 16 for Q8_0 */
    int32_t minus8;
    int8_t q[Q8_0_BLOCK];
};

struct act_q8_k { /* 320 bytes, so that a 64-byte tile row never crosses a cache line */
    ALIGNED(64) int8_t q[Q8_K_BLOCK];
    int16_t sum16[16]; /* sums of 16 consecutive q */
    int16_t sum32[8];  /* sums of 32 consecutive q */
    float d;
};

struct act_bf16x2 {
    ALIGNED(64) uint16_t hi[BF16X2_BLOCK];
    uint16_t lo[BF16X2_BLOCK];
};
