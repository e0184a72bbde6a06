/* half.h: 16-bit floats to 32-bit ones and back, in integer arithmetic, the same on every machine.
 *
 * f16 is IEEE 754 binary16, bf16 the upper half of a binary32. To 16 bits: round to nearest, ties
 * to even; too large becomes infinity; subnormals are kept; a NaN stays one and becomes quiet.
 * Exactly what vcvtph2ps and vcvtps2ph do. Pure; any thread. */
#pragma once

#include "base/base.h"

static inline float float_of_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof(f));
    return f;
}

static inline uint32_t bits_of_float(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof(u));
    return u;
}

float f16_to_f32_slow(uint16_t h); /* subnormals, infinities, NaN */

static inline float f16_to_f32(uint16_t h)
{
    uint32_t exponent = (h >> 10) & 31;

    if (exponent == 0 || exponent == 31)
        return f16_to_f32_slow(h);
    return float_of_bits(
        (uint32_t)(h & 0x8000) << 16 | ((uint32_t)(h & 0x7fff) + (112 << 10)) << 13);
}

uint16_t f16_of_f32(float f);

/* Half of the scale 2^(e - 127) that a byte of MXFP4 stands for: 2^(e - 128). Two are subnormal. */
static inline float e8m0_half(uint8_t e)
{
    return float_of_bits(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

static inline float bf16_to_f32(uint16_t h)
{
    return float_of_bits((uint32_t)h << 16);
}

static inline uint16_t bf16_of_f32(float f)
{
    uint32_t u = bits_of_float(f);

    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
