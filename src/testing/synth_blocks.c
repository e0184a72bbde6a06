/* synth_blocks.c: quantised values are uniform, so their bytes are random bits; only the scales are
 * computed. The standard deviation of a uniform q over n values is sqrt((n^2 - 1) / 12): 4.61 for
 * 16, 9.23 for 32, 18.47 for 64, 73.9 for 256. That of the codebook of IQ4_NL is 67.2, of MXFP4
 * 5.85. */
#include "testing/synth_blocks.h"

#include "base/half.h"
#include "base/hash.h"

#include <math.h>

struct random_source {
    uint64_t key, at;
};

static uint64_t next_bits(struct random_source *s)
{
    return hash_mix(s->key + ++s->at * HASH_GOLDEN);
}

static void fill_random(struct random_source *s, uint8_t *out, size_t n)
{
    for (; n; out += MIN(n, (size_t)8), n -= MIN(n, (size_t)8)) {
        uint64_t v = next_bits(s);
        memcpy(out, &v, MIN(n, (size_t)8));
    }
}

static uint8_t *put16(uint8_t *out, uint16_t v)
{
    out[0] = (uint8_t)v;
    out[1] = (uint8_t)(v >> 8);
    return out + 2;
}

/* Scales vary by up to a quarter; half of them are negative, so that the mean of q - 8, which is
 * -0.5, cancels out. */
static float scale(struct random_source *s, float d)
{
    uint64_t v = next_bits(s);
    float variation = 0.75f + (float)(v >> 40) / (float)(1 << 25);

    return v & 1 ? d * variation : -d * variation;
}

static void block_q4_0(struct random_source *s, float sigma, uint8_t *out)
{
    fill_random(s, put16(out, f32_to_f16(scale(s, sigma / 4.61f))), 16);
}

static void block_q8_0(struct random_source *s, float sigma, uint8_t *out)
{
    fill_random(s, put16(out, f32_to_f16(scale(s, sigma / 73.9f))), 32);
}

static void block_q5_0(struct random_source *s, float sigma, uint8_t *out)
{
    fill_random(s, put16(out, f32_to_f16(scale(s, sigma / 9.23f))), 20);
}

/* Q4_1 and Q5_1: the minimum centres the values at 0. */
static void block_with_min(struct random_source *s, float sigma, int n_bits, uint8_t *out)
{
    float d = scale(s, sigma / (n_bits == 4 ? 4.61f : 9.23f));
    float m = -d * (n_bits == 4 ? 7.5f : 15.5f);

    fill_random(s, put16(put16(out, f32_to_f16(d)), f32_to_f16(m)), n_bits == 4 ? 16 : 20);
}

static void block_iq4_nl(struct random_source *s, float sigma, uint8_t *out)
{
    fill_random(s, put16(out, f32_to_f16(scale(s, sigma / 67.2f))), 16);
}

/* The MX formats have only powers of two as scales: chooses one of the two next to d at random,
 * such that the mean square is d squared. Returns its E8M0 byte. */
static int random_exponent(struct random_source *s, float d)
{
    float low = 1;
    int e = 127;

    for (; low > d && e > 2; e--)
        low /= 2;
    for (; low * 2 <= d && e < 254; e++)
        low *= 2;
    float part = (d * d / (low * low) - 1) / 3; /* 0 .. 1 */
    return e + ((float)(next_bits(s) >> 40) < part * (float)(1 << 24));
}

static void block_mxfp4(struct random_source *s, float sigma, uint8_t *out)
{
    out[0] = (uint8_t)(random_exponent(s, sigma / 5.85f) + 1); /* the codebook is doubled */
    fill_random(s, out + 1, 16);
}

/* A scale is -32 to -17 or 16 to 31: root mean square 24.4. */
static void block_iq4_xs(struct random_source *s, float sigma, uint8_t *out)
{
    uint64_t v = next_bits(s);
    uint16_t high = 0;

    for (int i = 0; i < 8; i++)
        high |= (uint16_t)((v >> (32 + i) & 1 ? 3 : 0) << (2 * i));
    uint8_t *p = put16(put16(out, f32_to_f16(sigma / (24.4f * 67.2f))), high);
    memcpy(p, &v, 4);
    fill_random(s, p + 4, 128);
}

/* Q4_K and Q5_K: the minimum of a sub-block centres its values at 0: the same six bits m = sc, and
 * dmin = d * the middle of q. A scale is 32 to 63 (root mean square 48.4). */
static void block_k(struct random_source *s, float sigma, int n_bits, uint8_t *out)
{
    float spread = n_bits == 4 ? 4.61f : 9.23f, middle = n_bits == 4 ? 7.5f : 15.5f;
    float d = scale(s, sigma / (48.4f * spread));
    uint8_t sc[8], *p = put16(put16(out, f32_to_f16(d)), f32_to_f16(d * middle));
    uint64_t v = next_bits(s);

    for (int i = 0; i < 8; i++)
        sc[i] = (uint8_t)(32 | (v >> 5 * i & 31));
    for (int i = 0; i < 4; i++) {
        p[i] = (uint8_t)(sc[i] | (sc[i + 4] >> 4) << 6);
        p[i + 4] = p[i];
        p[i + 8] = (uint8_t)((sc[i + 4] & 15) | (sc[i + 4] & 15) << 4);
    }
    fill_random(s, p + 12, n_bits == 4 ? 128 : 160);
}

static void block_q6_k(struct random_source *s, float sigma, uint8_t *out)
{
    fill_random(s, out, 192);
    uint64_t lo = next_bits(s), hi = next_bits(s);
    for (int i = 0; i < 16; i++) { /* 64 to 127, either sign: root mean square 97 */
        uint64_t v = (i < 8 ? lo : hi) >> 8 * (i & 7);
        int magnitude = 64 | (int)(v & 63);
        out[192 + i] = (uint8_t)(v & 64 ? -magnitude : magnitude);
    }
    (void)put16(out + 208, f32_to_f16(sigma / (97 * 18.47f)));
}

/* The minimum of a sub-block centres its values at 0, as in block_k(). A scale is 8 to 15 (root
 * mean square 11.7); q has a standard deviation of 1.12. */
static void block_q2_k(struct random_source *s, float sigma, uint8_t *out)
{
    float d = scale(s, sigma / (11.7f * 1.12f));
    uint64_t v = next_bits(s);

    for (int i = 0; i < 16; i++)
        out[i] = (uint8_t)((8 | (v >> 3 * i & 7)) * 17);
    fill_random(s, out + 16, 64);
    (void)put16(put16(out + 80, f32_to_f16(d)), f32_to_f16(d * 1.5f));
}

/* A scale is -32 to -17 or 16 to 31, as in block_iq4_xs(): root mean square 24.4. q has a standard
 * deviation of 2.29. */
static void block_q3_k(struct random_source *s, float sigma, uint8_t *out)
{
    fill_random(s, out, 104);
    for (int i = 104; i < 108; i++) {
        uint64_t v = next_bits(s);
        out[i] = (uint8_t)((v & 0x55) * 3);
    }
    (void)put16(out + 108, f32_to_f16(sigma / (24.4f * 2.29f)));
}

/* The IQ types: indices and signs are random. s of a sub-block is 8 to 15, so its scale is 17 to
 * 31: root mean square 24.4. That of the grids is about 23.9 (IQ2), 30 (IQ3_XXS) and 8 (IQ3_S). */
static void block_iq(struct random_source *s, float d, uint8_t *out, size_t bytes)
{
    fill_random(s, put16(out, f32_to_f16(d)), bytes - 2);
}

static void block_iq2_xxs(struct random_source *s, float sigma, uint8_t *out)
{
    block_iq(s, sigma / (24.4f * 23.9f / 8), out, 66);
    for (int j = 0; j < 8; j++)
        out[2 + 8 * j + 7] |= 0x80;
}

static void block_iq2_xs(struct random_source *s, float sigma, uint8_t *out)
{
    block_iq(s, sigma / (24.4f * 23.9f / 8), out, 74);
    for (int i = 66; i < 74; i++)
        out[i] |= 0x88;
}

static void block_iq2_s(struct random_source *s, float sigma, uint8_t *out)
{
    block_iq(s, sigma / (24.4f * 23.9f / 8), out, 82);
    for (int i = 74; i < 82; i++)
        out[i] |= 0x88;
}

static void block_iq3_xxs(struct random_source *s, float sigma, uint8_t *out)
{
    block_iq(s, sigma / (24.4f * 30.0f / 4), out, 98);
    for (int j = 0; j < 8; j++)
        out[66 + 4 * j + 3] |= 0x80;
}

static void block_iq3_s(struct random_source *s, float sigma, uint8_t *out)
{
    block_iq(s, sigma / (24.4f * 8.0f), out, 110);
    for (int i = 106; i < 110; i++)
        out[i] |= 0x88;
}

/* s is 4 to 7, so a scale is 9 to 15: root mean square 12.2. That of the grid is about 0.76. */
static void block_iq1_s(struct random_source *s, float sigma, uint8_t *out)
{
    block_iq(s, scale(s, sigma / (12.2f * 0.76f)), out, 50);
    for (int j = 0; j < 8; j++)
        out[35 + 2 * j] |= 0x40;
}

static void block_iq1_m(struct random_source *s, float sigma, uint8_t *out)
{
    uint16_t d = f32_to_f16(scale(s, sigma / (12.2f * 0.76f)));

    fill_random(s, out, 56);
    for (int i = 0; i < 4; i++) {
        unsigned word = out[48 + 2 * i] | (out[49 + 2 * i] & 15u) << 8;
        (void)put16(out + 48 + 2 * i, (uint16_t)(word | 0x924 | (d >> (4 * i) & 15u) << 12));
    }
}

/* Digits of base 3 from random bytes are uniform but for 1 of 256: standard deviation 0.82. */
static void block_tq1_0(struct random_source *s, float sigma, uint8_t *out)
{
    fill_random(s, out, 52);
    (void)put16(out + 52, f32_to_f16(scale(s, sigma / 0.82f)));
}

/* q - 1 is -1 to 2: mean 0.5, which the signs of the scales cancel out, root mean square 1.22. */
static void block_tq2_0(struct random_source *s, float sigma, uint8_t *out)
{
    fill_random(s, out, 64);
    (void)put16(out + 64, f32_to_f16(scale(s, sigma / 1.22f)));
}

static void block_q2_0(struct random_source *s, float sigma, uint8_t *out)
{
    fill_random(s, put16(out, f32_to_f16(scale(s, sigma / 1.22f))), 16);
}

static void block_q1_0(struct random_source *s, float sigma, uint8_t *out)
{
    fill_random(s, put16(out, f32_to_f16(scale(s, sigma))), 16);
}

/* The scales of a block are equal, as near to the required one as UE4M3 permits. */
static void block_nvfp4(struct random_source *s, float sigma, uint8_t *out)
{
    float d = sigma / 5.85f;
    int e = 1;

    while (e < 0x7e && ue4m3_half((uint8_t)(e + 1)) <= d)
        e++;
    memset(out, e, 4);
    fill_random(s, out + 4, 32);
}

/* Uniform distribution, for the formats without blocks. */
static float number(struct random_source *s, float sigma)
{
    return ((float)(next_bits(s) >> 40) / (float)(1 << 23) - 1) * sigma * 1.7320508f;
}

static void block_f32(struct random_source *s, float sigma, uint8_t *out)
{
    float f = number(s, sigma);

    memcpy(out, &f, 4);
}

static void block_f16(struct random_source *s, float sigma, uint8_t *out)
{
    (void)put16(out, f32_to_f16(number(s, sigma)));
}

static void block_bf16(struct random_source *s, float sigma, uint8_t *out)
{
    (void)put16(out, (uint16_t)(f32_to_bits(number(s, sigma)) >> 16)); /* truncated */
}

static void block_q4_1(struct random_source *s, float sigma, uint8_t *out)
{
    block_with_min(s, sigma, 4, out);
}

static void block_q5_1(struct random_source *s, float sigma, uint8_t *out)
{
    block_with_min(s, sigma, 5, out);
}

static void block_q4_k(struct random_source *s, float sigma, uint8_t *out)
{
    block_k(s, sigma, 4, out);
}

static void block_q5_k(struct random_source *s, float sigma, uint8_t *out)
{
    block_k(s, sigma, 5, out);
}

/* Codes of `bits` bits with a mean of (2^bits - 1) / 2, which the offset removes. */
static void block_affine(struct random_source *s, float sigma, int bits, uint8_t *out, size_t n)
{
    const float levels = (float)((1 << bits) - 1);
    float deviation = sqrtf(levels * (levels + 2) / 12);
    float d = scale(s, sigma / deviation), m = d * levels * -0.5f;

    memcpy(out, &d, 4);
    memcpy(out + 4, &m, 4);
    fill_random(s, out + 8, n * (size_t)bits / 8);
}

static void block_affine4_32(struct random_source *s, float sigma, uint8_t *out)
{
    block_affine(s, sigma, 4, out, 32);
}

static void block_affine4_64(struct random_source *s, float sigma, uint8_t *out)
{
    block_affine(s, sigma, 4, out, 64);
}

static void block_affine8_32(struct random_source *s, float sigma, uint8_t *out)
{
    block_affine(s, sigma, 8, out, 32);
}

static void block_affine8_64(struct random_source *s, float sigma, uint8_t *out)
{
    block_affine(s, sigma, 8, out, 64);
}

static void block_affine2_32(struct random_source *s, float sigma, uint8_t *out)
{
    block_affine(s, sigma, 2, out, 32);
}

static void block_affine2_64(struct random_source *s, float sigma, uint8_t *out)
{
    block_affine(s, sigma, 2, out, 64);
}

static void block_affine3_32(struct random_source *s, float sigma, uint8_t *out)
{
    block_affine(s, sigma, 3, out, 32);
}

static void block_affine3_64(struct random_source *s, float sigma, uint8_t *out)
{
    block_affine(s, sigma, 3, out, 64);
}

static void block_affine5_32(struct random_source *s, float sigma, uint8_t *out)
{
    block_affine(s, sigma, 5, out, 32);
}

static void block_affine5_64(struct random_source *s, float sigma, uint8_t *out)
{
    block_affine(s, sigma, 5, out, 64);
}

static void block_affine6_32(struct random_source *s, float sigma, uint8_t *out)
{
    block_affine(s, sigma, 6, out, 32);
}

static void block_affine6_64(struct random_source *s, float sigma, uint8_t *out)
{
    block_affine(s, sigma, 6, out, 64);
}

/* Numbers of 1 to 1.875 of either sign: root mean square 1.466. */
#define E4M3_DEVIATION 1.466f

static void fill_e4m3(struct random_source *s, uint8_t *out, size_t n)
{
    fill_random(s, out, n);
    for (size_t i = 0; i < n; i++)
        out[i] = (uint8_t)((out[i] & 0x87) | 0x38);
}

static void block_fp8(struct random_source *s, float sigma, uint8_t *out, size_t n)
{
    float d = scale(s, sigma / E4M3_DEVIATION);

    memcpy(out, &d, 4);
    fill_e4m3(s, out + 4, n);
}

static void block_fp8_32(struct random_source *s, float sigma, uint8_t *out)
{
    block_fp8(s, sigma, out, 32);
}

static void block_fp8_128(struct random_source *s, float sigma, uint8_t *out)
{
    block_fp8(s, sigma, out, 128);
}

static void block_mxfp8(struct random_source *s, float sigma, uint8_t *out)
{
    out[0] = (uint8_t)random_exponent(s, sigma / E4M3_DEVIATION);
    fill_e4m3(s, out + 1, 32);
}

typedef void (*block_fn)(struct random_source *s, float sigma, uint8_t *out);

static block_fn block_of_type(enum qtype type)
{
    static const struct {
        enum qtype type;
        block_fn fn;
    } by_type[] = {
        { Q_F32, block_f32 },
        { Q_F16, block_f16 },
        { Q_BF16, block_bf16 },
        { Q_Q8_0, block_q8_0 },
        { Q_Q4_0, block_q4_0 },
        { Q_Q4_1, block_q4_1 },
        { Q_Q5_0, block_q5_0 },
        { Q_Q5_1, block_q5_1 },
        { Q_Q2_K, block_q2_k },
        { Q_Q3_K, block_q3_k },
        { Q_Q4_K, block_q4_k },
        { Q_Q5_K, block_q5_k },
        { Q_Q6_K, block_q6_k },
        { Q_IQ4_NL, block_iq4_nl },
        { Q_IQ4_XS, block_iq4_xs },
        { Q_MXFP4, block_mxfp4 },
        { Q_IQ2_XXS, block_iq2_xxs },
        { Q_IQ2_XS, block_iq2_xs },
        { Q_IQ2_S, block_iq2_s },
        { Q_IQ3_XXS, block_iq3_xxs },
        { Q_IQ3_S, block_iq3_s },
        { Q_IQ1_S, block_iq1_s },
        { Q_IQ1_M, block_iq1_m },
        { Q_TQ1_0, block_tq1_0 },
        { Q_TQ2_0, block_tq2_0 },
        { Q_Q1_0, block_q1_0 },
        { Q_Q2_0, block_q2_0 },
        { Q_NVFP4, block_nvfp4 },
        { Q_AFFINE4_32, block_affine4_32 },
        { Q_AFFINE4_64, block_affine4_64 },
        { Q_AFFINE8_32, block_affine8_32 },
        { Q_AFFINE8_64, block_affine8_64 },
        { Q_FP8_32, block_fp8_32 },
        { Q_FP8_128, block_fp8_128 },
        { Q_MXFP8, block_mxfp8 },
        { Q_AFFINE2_32, block_affine2_32 },
        { Q_AFFINE2_64, block_affine2_64 },
        { Q_AFFINE3_32, block_affine3_32 },
        { Q_AFFINE3_64, block_affine3_64 },
        { Q_AFFINE5_32, block_affine5_32 },
        { Q_AFFINE5_64, block_affine5_64 },
        { Q_AFFINE6_32, block_affine6_32 },
        { Q_AFFINE6_64, block_affine6_64 },
    };

    for (size_t i = 0; i < ARRAY_LEN(by_type); i++)
        if (by_type[i].type == type)
            return by_type[i].fn;
    return NULL;
}

bool synth_has_type(enum qtype type)
{
    return block_of_type(type) != NULL;
}

void synth_blocks(
    enum qtype type, float sigma, uint64_t key, uint64_t first, uint8_t *out, size_t n)
{
    const size_t bytes = qtype_info((uint32_t)type)->block_bytes;
    const block_fn block = block_of_type(type);

    CHECK(block && "a type of synth_has_type");
    for (size_t i = 0; i < n; i++) {
        /* A block draws fewer than 64 numbers. */
        struct random_source s = { key * 0xd6e8feb86659fd93ull, (first + i) * 64 };
        block(&s, sigma, out + i * bytes);
    }
}
