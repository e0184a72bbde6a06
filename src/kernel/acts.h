/* acts.h: activations as products read them, the right-hand side of dots: floats, quantised per
 * block, or in planes of bf16. A row is its blocks one after the other.
 *
 * Quantised, the semantics of GGUF's Q8_0 and Q8_K: symmetric, largest magnitude to 127, round to
 * nearest with ties to even. Only the scale of Q8_0 is rounded to f16, as that format does.
 *
 *   Q8_0, 32 elements    a = max |x|, d = a / 127 (0 when that underflows), q = rint(x * (1 / d)),
 *                        then d is rounded to f16
 *   Q8_K, 256 elements   a = max |x|, s = 127 / a (0 when a is 0), q = rint(x * s), d = 1 / s
 *
 * q is clamped to -127 .. 127, a NaN gives -127. A NaN or infinity in a block makes its d one:
 * nothing that was computed from it looks finite. The sums spare the kernels an offset per
 * weight: sum of (u - o) * q = sum of u * q - o * sum of q.
 *
 * Planes, 32 elements: hi = bf16(x), lo = bf16(x - hi), to nearest, ties to even; 16 bits of
 * mantissa or more. What is subnormal, before or after, is zero, as it is to tiles of bf16; what is
 * not finite has no lower plane. A line of each plane is a row of a tile. */
#pragma once

#include "base/base.h"

enum { Q8_0_BLOCK = 32, Q8_K_BLOCK = 256, PLANES_BLOCK = 32 };

struct act_q8_0 {
    float d;        /* exactly an f16 */
    int32_t minus8; /* -8 * sum of q: where a dot with Q4_0's q + 8 begins; x 16 for Q8_0's */
    int8_t q[Q8_0_BLOCK];
};

struct act_q8_k { /* 320 bytes: a tile's row of 64 never lies across cache lines */
    ALIGNED(64) int8_t q[Q8_K_BLOCK];
    int16_t sum16[16]; /* of 16 consecutive q */
    int16_t sum32[8];  /* of 32 consecutive q */
    float d;
};

struct act_planes {
    ALIGNED(64) uint16_t hi[PLANES_BLOCK];
    uint16_t lo[PLANES_BLOCK];
};
