/* half.h: conversion between 16-bit and 32-bit floats in integer arithmetic, with the same result
 * on every machine.
 *
 * f16 is IEEE 754 binary16, bf16 the upper half of a binary32. Conversion to 16 bits rounds to
 * nearest, ties to even; a number that is too large becomes infinity; subnormals are kept; a NaN
 * stays a NaN and becomes quiet. The results equal those of vcvtph2ps and vcvtps2ph. Pure; any
 * thread. */
#pragma once

#include "base/base.h"

static inline float f32_from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof(f));
    return f;
}

static inline uint32_t f32_to_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof(u));
    return u;
}

float f16_to_f32_slow(uint16_t h); /* handles subnormals, infinities and NaN */

static inline float f16_to_f32(uint16_t h)
{
    uint32_t exponent = (h >> 10) & 31;

    if (exponent == 0 || exponent == 31)
        return f16_to_f32_slow(h);
    return f32_from_bits(
        (uint32_t)(h & 0x8000) << 16 | ((uint32_t)(h & 0x7fff) + (112 << 10)) << 13);
}

uint16_t f32_to_f16(float f);

/* Half of the scale 2^(e - 127) that an MXFP4 exponent byte encodes: 2^(e - 128). The results for e
 * = 0 and e = 1 are subnormal. */
static inline float e8m0_half(uint8_t e)
{
    return f32_from_bits(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

/* Half of the unsigned E4M3 number that an NVFP4 scale encodes; 0x7f is 0. */
static inline float ue4m3_half(uint8_t e)
{
    uint32_t exponent = e >> 3 & 15, mantissa = e & 7;

    if (e == 0x7f)
        return 0;
    return exponent ? f32_from_bits((exponent + 127 - 8) << 23 | mantissa << 20)
                    : (float)mantissa * 0x1p-10f;
}

/* An E4M3 number (OCP 8-bit floating point 1.0): a sign, four bits of exponent, three of mantissa;
 * no infinities; 0x7f and 0xff are NaN. */
static inline float e4m3_to_f32(uint8_t e)
{
    uint32_t sign = (uint32_t)(e & 0x80) << 24, rest = e & 0x7f;

    if (rest == 0x7f)
        return f32_from_bits(sign | 0x7fc00000);
    if (rest < 8)
        return f32_from_bits(sign | f32_to_bits((float)rest * 0x1p-9f));
    return f32_from_bits(sign | (rest + (120 << 3)) << 20);
}

/* The scale 2^(e - 127) of an E8M0 byte. The result for e = 0 is subnormal, 255 is infinite. */
static inline float e8m0_to_f32(uint8_t e)
{
    return f32_from_bits(e ? (uint32_t)e << 23 : 0x00400000u);
}

static inline float bf16_to_f32(uint16_t h)
{
    return f32_from_bits((uint32_t)h << 16);
}

static inline uint16_t f32_to_bf16(float f)
{
    uint32_t u = f32_to_bits(f);

    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
