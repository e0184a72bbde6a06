/* kit_low_bits.h: for tests: independent decoders of the file formats in blocks_low_bits.h, in
 * double precision, written after the format specifications. */
#pragma once

#include "format/qtype.h"
#include "base/half.h"
#include "kernel/iq_grids.h"

#include <math.h>

static inline double kit_half(const uint8_t *at)
{
    return f16_to_f32((uint16_t)(at[0] | at[1] << 8));
}

/* Seven bits from bit `at` on of a little-endian word, and the eighth sign: their parity. */
static inline bool kit_is_minus(const uint8_t *word, int at, int i)
{
    uint32_t bits = (word[0] | word[1] << 8 | word[2] << 16 | (uint32_t)word[3] << 24) >> at & 127;
    int n = 0;

    for (int k = 0; k < 7; k++)
        n += (int)(bits >> k & 1);
    return i < 7 ? (bits >> i & 1) != 0 : n % 2;
}

static inline int kit_nibble_at(const uint8_t *p, int i)
{
    return p[i / 2] >> (i % 2 * 4) & 15;
}

/* Returns the value of element i of an IQ2 or IQ3 block, but for d. */
static inline double kit_iq_element(enum qtype type, const uint8_t *b, int i)
{
    int j = i / 32, g = i / 8, q = i / 4, v;

    switch ((int)type) {
    case Q_IQ2_XXS: {
        const uint8_t *sub = b + 2 + 8 * j;
        v = iq2_xxs_grid[sub[g % 4]][i % 8];
        v = kit_is_minus(sub + 4, g % 4 * 7, i % 8) ? -v : v;
        return (0.5 + sub[7] / 16) / 4 * v;
    }
    case Q_IQ2_XS: {
        const uint8_t *at = b + 2 + 2 * g, word[4] = { at[0], at[1] };
        v = iq2_xs_grid[(at[0] | at[1] << 8) % 512][i % 8];
        v = kit_is_minus(word, 9, i % 8) ? -v : v;
        return (0.5 + kit_nibble_at(b + 66, i / 16)) / 4 * v;
    }
    case Q_IQ2_S:
        v = iq2_s_grid[b[2 + g] + 256 * (b[66 + g / 4] >> (g % 4 * 2) & 3)][i % 8];
        v = b[34 + g] >> (i % 8) & 1 ? -v : v;
        return (0.5 + kit_nibble_at(b + 74, i / 16)) / 4 * v;
    case Q_IQ3_XXS:
        v = 2 * iq3_xxs_grid[b[2 + q]][i % 4];
        v = kit_is_minus(b + 66 + 4 * j, g % 4 * 7, i % 8) ? -v : v;
        return (0.5 + b[66 + 4 * j + 3] / 16) / 2 * v;
    case Q_IQ3_S:
        v = 2 * iq3_s_grid[b[2 + q] + 256 * (b[66 + q / 8] >> (q % 8) & 1)][i % 4] - 15;
        v = b[74 + g] >> (i % 8) & 1 ? -v : v;
        return (1 + 2 * kit_nibble_at(b + 106, j)) * v;
    }
    return NAN;
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
    return kit_half(b) * kit_iq_element(type, b, i);
}
