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

/* -1, 0 or 1 of IQ1, plus or minus 1/8. */
static inline double kit_iq1(int index, int i, bool is_minus)
{
    return iq1_grid[index][i] / 8 - 1 + (is_minus ? -0.125 : 0.125);
}

/* Digit of base 3 of element i of TQ1_0. */
static inline int kit_digit(const uint8_t *b, int i)
{
    int at = i < 160 ? i % 32 : i < 240 ? 32 + i % 16 : 48 + i % 4;
    int n = i < 160 ? i / 32 : i < 240 ? (i - 160) / 16 : (i - 240) / 4, v = b[at];

    for (; n; n--)
        v = v * 3 % 256;
    return v * 3 / 256;
}

/* Returns the value of element i of a block of IQ1, TQ, Q1_0, Q2_0 or NVFP4. */
static inline double kit_ternary_element(enum qtype type, const uint8_t *b, int i)
{
    static const int e2m1[8] = { 0, 1, 2, 3, 4, 6, 8, 12 };
    int g = i / 8;

    switch ((int)type) {
    case Q_IQ1_S: {
        int high = b[34 + 2 * (i / 32)] | b[35 + 2 * (i / 32)] << 8;
        int index = b[2 + g] + 256 * (high >> (g % 4 * 3) & 7);
        return kit_half(b) * (2 * (high >> 12 & 7) + 1) * kit_iq1(index, i % 8, high >> 15);
    }
    case Q_IQ1_M: {
        int high = kit_nibble_at(b + 32, g), at = 48 + i / 64 * 2;
        int s = (b[at] | b[at + 1] << 8) >> (i / 16 % 4 * 3) & 7;
        uint8_t d[2] = { (uint8_t)(b[49] / 16 + b[51] / 16 * 16),
            (uint8_t)(b[53] / 16 + b[55] / 16 * 16) };
        return kit_half(d) * (2 * s + 1) * kit_iq1(b[g] + 256 * (high & 7), i % 8, high >> 3);
    }
    case Q_TQ1_0:
        return kit_half(b + 52) * (kit_digit(b, i) - 1);
    case Q_TQ2_0:
        return kit_half(b + 64) * ((b[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3) - 1);
    case Q_Q1_0:
        return kit_half(b) * (b[2 + i / 8] >> (i % 8) & 1 ? 1 : -1);
    case Q_Q2_0:
        return kit_half(b) * ((b[2 + i / 4] >> (i % 4 * 2) & 3) - 1);
    case Q_NVFP4: {
        int e = b[i / 16], byte = b[4 + i / 16 * 8 + i % 8];
        int code = i % 16 < 8 ? byte % 16 : byte / 16, exponent = e / 8 % 16;
        double scale = exponent ? ldexp(8 + e % 8, exponent - 10) : ldexp(e % 8, -9);
        return (e == 0x7f ? 0 : scale / 2) * (code < 8 ? e2m1[code] : -e2m1[code - 8]);
    }
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
    double v = kit_ternary_element(type, b, i);
    return v != v ? kit_half(b) * kit_iq_element(type, b, i) : v;
}
