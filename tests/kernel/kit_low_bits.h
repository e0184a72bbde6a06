/* kit_low_bits.h: for tests: independent decoders of the file formats in blocks_low_bits.h, in
 * double precision, written after the format specifications. */
#pragma once

#include "format/qtype.h"
#include "base/half.h"

#include <math.h>

static inline double kit_half(const uint8_t *at)
{
    return f16_to_f32((uint16_t)(at[0] | at[1] << 8));
}

/* Returns the value of element i of a block; NaN for other types. */
static inline double kit_low_bits_element(enum qtype type, const uint8_t *b, int i)
{
    switch ((int)type) {
    case Q_Q2_K: {
        int q = b[16 + i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
        return kit_half(b + 80) * (b[i / 16] % 16) * q - kit_half(b + 82) * (b[i / 16] / 16);
    }
    case Q_Q3_K: {
        int q = b[32 + i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3, s = i / 16;
        int scale = (s < 8 ? b[96 + s] % 16 : b[88 + s] / 16) +
                    16 * (b[104 + s % 4] >> (s / 4 * 2) & 3) - 32;
        return kit_half(b + 108) * scale * (q - (b[i % 32] >> (i / 32) & 1 ? 0 : 4));
    }
    }
    return NAN;
}
