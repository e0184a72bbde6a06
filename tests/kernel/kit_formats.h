/* kit_formats.h: for tests: random blocks of every file format, and independent decoders in double
 * precision, written after the format specifications. */
#pragma once

#include "base/mem.h"
#include "base/rng.h"
#include "format/qtype.h"
#include "base/half.h"
#include "kit_low_bits.h"
#include "kit_mlx.h"
#include "kit_types.h"

#include <math.h>

static inline float kit_normal(struct rng *r)
{
    double u = rng_next_unit(r), v = rng_next_unit(r);

    return (float)(sqrt(-2 * log(u + 1e-300)) * cos(6.283185307179586 * v));
}

static inline void kit_fill(struct rng *r, float *x, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++)
        x[i] = kit_normal(r) * scale;
}

static inline void kit_put_half(uint8_t *at, float f)
{
    uint16_t h = f32_to_f16(f);
    memcpy(at, &h, 2);
}

/* Fills one block with random bits; the scales are small f16 numbers of either sign. */
static inline void kit_random_block(struct rng *r, const struct kit_type *t, uint8_t *out)
{
    for (size_t i = 0; i < t->bytes; i++)
        out[i] = (uint8_t)rng_next(r);
    for (size_t i = 0; i < t->bytes && (kit_is_fp8(t->type) || t->type == Q_MXFP8); i++)
        out[i] ^= (out[i] & 0x7f) == 0x7f; /* not NaN */
    float f = kit_normal(r) * 0.1f;
    switch ((int)t->type) {
    case Q_F32:
        memcpy(out, &f, 4);
        break;
    case Q_BF16: {
        uint16_t h = f32_to_bf16(f);
        memcpy(out, &h, 2);
        break;
    }
    case Q_MXFP4:
        out[0] = (uint8_t)(120 + rng_below(r, 8));
        break;
    case Q_NVFP4: /* every byte is a scale */
        break;
    case Q_FP8_32:
    case Q_FP8_128:
        f *= 0.1f;
        memcpy(out, &f, 4);
        break;
    case Q_MXFP8:
        out[0] = (uint8_t)(116 + rng_below(r, 8));
        break;
    default:
        if (kit_is_affine(t->type)) {
            kit_put_affine(out, f * 0.1f, kit_normal(r) * 0.1f);
            break;
        }
        if (t->min_at)
            kit_put_half(out + t->min_at, kit_normal(r) * 0.01f);
        kit_put_scale(t, out, f32_to_f16(t->type == Q_Q6_K ? f * 0.01f : f));
    }
}

static inline uint8_t *kit_random_rows(
    struct rng *r, const struct kit_type *t, int n_rows, int n_cols)
{
    size_t n = (size_t)n_rows * (size_t)(n_cols / t->block);
    uint8_t *rows = xmalloc(n * t->bytes + 1);

    for (size_t b = 0; b < n; b++)
        kit_random_block(r, t, rows + b * t->bytes);
    return rows;
}

/* Returns the 6-bit scale (want_min 0) or minimum (1) of sub-block j from 12 bytes. */
static inline int kit_six_bits(const uint8_t *s, int j, int want_min)
{
    if (j < 4)
        return s[j + 4 * want_min] & 0x3f;
    int low = want_min ? s[j + 4] / 16 : s[j + 4] % 16;
    return low + 16 * (s[j - 4 + 4 * want_min] >> 6);
}

/* Formats with blocks of 32: a nibble; kit_five_bits() adds the fifth bit. */
static inline int kit_nibble(const uint8_t *q, int i)
{
    return i < 16 ? q[i] % 16 : q[i - 16] / 16;
}

static inline int kit_five_bits(const uint8_t *high, const uint8_t *q, int i)
{
    return kit_nibble(q, i) + 16 * (high[i / 8] >> (i % 8) & 1);
}

static inline double kit_iq4(int i)
{
    static const int list[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69,
        89, 113 };
    return list[i];
}

/* E2M1: a sign bit, two exponent bits and one mantissa bit. */
static inline double kit_e2m1(int i)
{
    double v = i & 6 ? ldexp(1 + (i & 1) / 2.0, (i >> 1 & 3) - 1) : (i & 1) / 2.0;
    return i & 8 ? -v : v;
}

/* Returns the value of element i of a block. */
static inline double kit_element(const struct kit_type *t, const uint8_t *b, int i)
{
    float f;
    if (kit_is_affine(t->type))
        return kit_affine(t, b, i);
    switch ((int)t->type) {
    case Q_F32:
        memcpy(&f, b, 4);
        return f;
    case Q_F16:
        return kit_half(b);
    case Q_BF16:
        return bf16_to_f32((uint16_t)(b[0] | b[1] << 8));
    case Q_Q8_0:
        return kit_half(b) * (int8_t)b[2 + i];
    case Q_Q4_0:
        return kit_half(b) * (kit_nibble(b + 2, i) - 8);
    case Q_Q4_1:
        return kit_half(b) * kit_nibble(b + 4, i) + kit_half(b + 2);
    case Q_FP8_32:
    case Q_FP8_128:
        memcpy(&f, b, 4);
        return (double)f * kit_e4m3(b[4 + i]);
    case Q_MXFP8:
        return ldexp(kit_e4m3(b[1 + i]), b[0] - 127);
    case Q_Q5_0:
        return kit_half(b) * (kit_five_bits(b + 2, b + 6, i) - 16);
    case Q_Q5_1:
        return kit_half(b) * kit_five_bits(b + 4, b + 8, i) + kit_half(b + 2);
    case Q_IQ4_NL:
        return kit_half(b) * kit_iq4(kit_nibble(b + 2, i));
    case Q_MXFP4:
        return ldexp(kit_e2m1(kit_nibble(b + 1, i)), b[0] - 127);
    case Q_IQ4_XS: {
        int j = i / 32, high = (b[2] | b[3] << 8) >> (2 * j) & 3;
        int scale = (b[4 + j / 2] >> (j % 2 * 4)) % 16 + 16 * high - 32;
        return kit_half(b) * scale * kit_iq4(kit_nibble(b + 8 + 16 * j, i % 32));
    }
    case Q_Q4_K:
    case Q_Q5_K: {
        bool five = t->type == Q_Q5_K;
        int j = i / 32, pos = i % 32;
        uint8_t byte = b[(five ? 48 : 16) + i / 64 * 32 + pos];
        int q = j % 2 ? byte / 16 : byte % 16;
        if (five)
            q += (b[16 + pos] >> j) % 2 * 16;
        return kit_half(b) * kit_six_bits(b + 4, j, 0) * q -
               kit_half(b + 2) * kit_six_bits(b + 4, j, 1);
    }
    case Q_Q6_K: {
        int half = i / 128, quarter = i / 32 % 4, l = i % 32;
        uint8_t low = b[64 * half + l + (quarter % 2 ? 32 : 0)];
        int q = (quarter < 2 ? low % 16 : low / 16) +
                16 * ((b[128 + 32 * half + l] >> (2 * quarter)) % 4) - 32;
        return kit_half(b + 208) * (int8_t)b[192 + i / 16] * q;
    }
    }
    return kit_low_bits_element(t->type, b, i);
}

static inline double kit_weight(
    const struct kit_type *t, const uint8_t *rows, int n_cols, int row, int k)
{
    size_t b = (size_t)row * (size_t)(n_cols / t->block) + (size_t)(k / t->block);

    return kit_element(t, rows + b * t->bytes, k % t->block);
}
