/* kit_mlx.h: for tests: independent decoders, in double precision, of the types that are not in
 * GGUF files: affine codes and E4M3 numbers. */
#pragma once

#include "kit_types.h"

#include <math.h>

/* E4M3: a sign bit, four exponent bits and three mantissa bits. */
static inline double kit_e4m3(int i)
{
    int e = i >> 3 & 15;
    double v = e ? ldexp(8 + (i & 7), e - 10) : ldexp(i & 7, -9);

    return (i & 127) == 127 ? NAN : i & 128 ? -v : v;
}

/* Value of element i of an affine block. */
static inline double kit_affine(const struct kit_type *t, const uint8_t *b, int i)
{
    const size_t bits = (t->bytes - 8) * 8 / (size_t)t->block;
    float scale_offset[2];
    int q = 0;

    memcpy(scale_offset, b, 8);
    if (bits == 4)
        q = b[8 + i / 32 * 16 + i % 16] >> (i % 32 / 16 * 4) & 15;
    for (size_t k = 0; bits != 4 && k < bits; k++) {
        size_t at = (size_t)i * bits + k;
        q |= (b[8 + at / 8] >> (at % 8) & 1) << k;
    }
    return (double)scale_offset[0] * q + (double)scale_offset[1];
}
