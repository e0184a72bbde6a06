#include "testing/quant.h"
#include "kernel/blocks.h"
#include "base/half.h"

#include <math.h>

static int clamp_round(float v, int low, int high)
{
    int i = (int)rintf(v);

    return MIN(MAX(i, low), high);
}

static float max_magnitude(const float *x, int n)
{
    float top = 0;

    for (int i = 0; i < n; i++)
        top = fmaxf(top, fabsf(x[i]));
    return top;
}

/* Returns the element of largest magnitude, with its sign. */
static float signed_max_magnitude(const float *x, int n)
{
    float top = x[0];

    for (int i = 1; i < n; i++)
        if (fabsf(x[i]) > fabsf(top))
            top = x[i];
    return top;
}

static float inverse(float d)
{
    return d != 0 ? 1 / d : 0;
}

static void quant_q8_0(const float *x, uint8_t *out)
{
    struct file_q8_0 b = { .d = f32_to_f16(max_magnitude(x, 32) / 127) };
    float inverse_scale = inverse(f16_to_f32(b.d));

    for (int i = 0; i < 32; i++)
        b.q[i] = (int8_t)clamp_round(x[i] * inverse_scale, -127, 127);
    memcpy(out, &b, sizeof(b));
}

/* Codes are -8 .. 7, so the element of largest magnitude is encoded as -8. */
static void quant_q4_0(const float *x, uint8_t *out)
{
    struct file_q4_0 b = { .d = f32_to_f16(signed_max_magnitude(x, 32) / -8) };
    float inverse_scale = inverse(f16_to_f32(b.d));
    for (int i = 0; i < 16; i++)
        b.q[i] = (uint8_t)((clamp_round(x[i] * inverse_scale, -8, 7) + 8) |
                           (clamp_round(x[i + 16] * inverse_scale, -8, 7) + 8) << 4);
    memcpy(out, &b, sizeof(b));
}

/* Quantisation to the codes 0 .. `levels` between the smallest and the largest element. */
struct value_range {
    uint16_t d, m;
    uint8_t q[32];
};

static struct value_range quant_range(const float *x, int levels)
{
    float low = x[0], high = x[0];
    struct value_range a;

    for (int i = 1; i < 32; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    a.d = f32_to_f16((high - low) / (float)levels);
    a.m = f32_to_f16(low);
    float inverse_scale = inverse(f16_to_f32(a.d)), m = f16_to_f32(a.m);
    for (int i = 0; i < 32; i++)
        a.q[i] = (uint8_t)clamp_round((x[i] - m) * inverse_scale, 0, levels);
    return a;
}

/* Writes the low four bits of 32 elements as in file_q4_0, put_fifth_bits the fifth bits as in
 * file_q5_0. */
static void put_low_nibbles(uint8_t out[16], const uint8_t q[32])
{
    for (int i = 0; i < 16; i++)
        out[i] = (uint8_t)((q[i] & 15) | (q[i + 16] & 15) << 4);
}

static void put_fifth_bits(uint8_t out[4], const uint8_t q[32])
{
    memset(out, 0, 4);
    for (int i = 0; i < 32; i++)
        out[i / 8] |= (uint8_t)((q[i] >> 4 & 1) << (i % 8));
}

static void quant_q4_1(const float *x, uint8_t *out)
{
    struct value_range a = quant_range(x, 15);
    struct file_q4_1 b = { .d = a.d, .m = a.m };

    put_low_nibbles(b.q, a.q);
    memcpy(out, &b, sizeof(b));
}

static void quant_q5_1(const float *x, uint8_t *out)
{
    struct value_range a = quant_range(x, 31);
    struct file_q5_1 b = { .d = a.d, .m = a.m };

    put_low_nibbles(b.q, a.q);
    put_fifth_bits(b.high, a.q);
    memcpy(out, &b, sizeof(b));
}

static void quant_q5_0(const float *x, uint8_t *out)
{
    struct file_q5_0 b = { .d = f32_to_f16(signed_max_magnitude(x, 32) / -16) };
    float inverse_scale = inverse(f16_to_f32(b.d));
    uint8_t q[32];

    for (int i = 0; i < 32; i++)
        q[i] = (uint8_t)(clamp_round(x[i] * inverse_scale, -16, 15) + 16);
    put_low_nibbles(b.q, q);
    put_fifth_bits(b.high, q);
    memcpy(out, &b, sizeof(b));
}

/* Returns the index of the nearest codebook entry. */
static uint8_t nearest_code(const int8_t codebook[16], float v)
{
    int best = 0;

    for (int i = 1; i < 16; i++)
        if (fabsf(v - codebook[i]) < fabsf(v - codebook[best]))
            best = i;
    return (uint8_t)best;
}

static void quant_to_codebook(
    uint8_t out[16], const int8_t codebook[16], const float *x, float inverse_scale)
{
    uint8_t q[32];

    for (int i = 0; i < 32; i++)
        q[i] = nearest_code(codebook, x[i] * inverse_scale);
    put_low_nibbles(out, q);
}

static const int8_t iq4_codebook[16] = { IQ4_CODEBOOK }, mxfp4_codebook[16] = { MXFP4_CODEBOOK };

/* The codebook is -127 .. 113, so the element of largest magnitude is encoded as -127. */
static void quant_iq4_nl(const float *x, uint8_t *out)
{
    struct file_iq4_nl b = { .d = f32_to_f16(signed_max_magnitude(x, 32) / -127) };

    quant_to_codebook(b.q, iq4_codebook, x, inverse(f16_to_f32(b.d)));
    memcpy(out, &b, sizeof(b));
}

/* The exponent of the largest power of two becomes the largest exponent of E2M1, 2^2 (OCP
 * Microscaling Formats 1.0, section 6.3). */
static void quant_mxfp4(const float *x, uint8_t *out)
{
    struct file_mxfp4 b = { .e = 1 }; /* the smallest exponent whose inverse is a float */
    int exponent;
    float top = max_magnitude(x, 32);

    if (top > 0) {
        frexpf(top, &exponent); /* top = 0.5 .. 1 * 2^exponent */
        b.e = (uint8_t)MIN(MAX(exponent - 1 - 2 + 127, 1), 254);
    }
    quant_to_codebook(b.q, mxfp4_codebook, x, 1 / e8m0_half(b.e));
    memcpy(out, &b, sizeof(b));
}

static void quant_iq4_xs(const float *x, uint8_t *out)
{
    struct file_iq4_xs b = { 0 };
    float step[8];

    for (int j = 0; j < 8; j++)
        step[j] = signed_max_magnitude(x + 32 * j, 32) / -127;
    b.d = f32_to_f16(signed_max_magnitude(step, 8) / -32);
    float d = f16_to_f32(b.d);
    for (int j = 0; j < 8; j++) {
        int scale = clamp_round(step[j] * inverse(d), -32, 31);
        quant_to_codebook(b.q[j], iq4_codebook, x + 32 * j, inverse(d * (float)scale));
        b.scale_lo[j / 2] |= (uint8_t)(((scale + 32) & 15) << (j % 2 * 4));
        b.scale_hi |= (uint16_t)((scale + 32) >> 4 << (2 * j));
    }
    memcpy(out, &b, sizeof(b));
}

/* Common part of Q4_K and Q5_K: scales, minimums, and the elements as 0 .. levels. */
struct affine {
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t q[256];
};

static void pack_scales(uint8_t out[12], const int sc[8], const int m[8])
{
    for (int i = 0; i < 4; i++) {
        out[i] = (uint8_t)(sc[i] | sc[i + 4] >> 4 << 6);
        out[i + 4] = (uint8_t)(m[i] | m[i + 4] >> 4 << 6);
        out[i + 8] = (uint8_t)((sc[i + 4] & 15) | (m[i + 4] & 15) << 4);
    }
}

static struct affine quant_affine(const float *x, int levels)
{
    struct affine a = { 0 };
    float step[8], min[8], top_step = 0, top_min = 0;
    int sc[8], m[8];

    for (int j = 0; j < 8; j++) {
        float low = 0, high = 0; /* the minimum is never positive: w = step * q - min */
        for (int i = 0; i < 32; i++) {
            low = fminf(low, x[32 * j + i]);
            high = fmaxf(high, x[32 * j + i]);
        }
        step[j] = (high - low) / (float)levels;
        min[j] = -low;
        top_step = fmaxf(top_step, step[j]);
        top_min = fmaxf(top_min, min[j]);
    }
    a.d = f32_to_f16(top_step / 63);
    a.dmin = f32_to_f16(top_min / 63);
    float d = f16_to_f32(a.d), dmin = f16_to_f32(a.dmin);
    for (int j = 0; j < 8; j++) {
        sc[j] = clamp_round(step[j] * inverse(d), 0, 63);
        m[j] = clamp_round(min[j] * inverse(dmin), 0, 63);
        float inverse_scale = inverse(d * (float)sc[j]), offset = dmin * (float)m[j];
        for (int i = 32 * j; i < 32 * j + 32; i++)
            a.q[i] = (uint8_t)clamp_round((x[i] + offset) * inverse_scale, 0, levels);
    }
    pack_scales(a.scales, sc, m);
    return a;
}

static void nibbles_by_64(uint8_t out[128], const uint8_t q[256])
{
    for (int i = 0; i < 128; i++) {
        const uint8_t *from = q + i / 32 * 64 + i % 32;
        out[i] = (uint8_t)((from[0] & 15) | (from[32] & 15) << 4);
    }
}

static void quant_q4_k(const float *x, uint8_t *out)
{
    struct affine a = quant_affine(x, 15);
    struct file_q4_k b = { .d = a.d, .dmin = a.dmin };

    memcpy(b.scales, a.scales, sizeof(b.scales));
    nibbles_by_64(b.q, a.q);
    memcpy(out, &b, sizeof(b));
}

static void quant_q5_k(const float *x, uint8_t *out)
{
    struct affine a = quant_affine(x, 31);
    struct file_q5_k b = { .d = a.d, .dmin = a.dmin };

    memcpy(b.scales, a.scales, sizeof(b.scales));
    nibbles_by_64(b.q, a.q);
    for (int i = 0; i < 256; i++)
        b.high[i % 32] |= (uint8_t)((a.q[i] >> 4) << (i / 32));
    memcpy(out, &b, sizeof(b));
}

static void quant_q6_k(const float *x, uint8_t *out)
{
    struct file_q6_k b = { .d = f32_to_f16(max_magnitude(x, 256) / (31 * 127)) };
    float d = f16_to_f32(b.d);

    for (int s = 0; s < 16; s++) {
        float want = max_magnitude(x + 16 * s, 16) / 31;
        b.scale[s] = (int8_t)clamp_round(want * inverse(d), 0, 127);
        float inverse_scale = inverse(d * (float)b.scale[s]);
        for (int k = 16 * s; k < 16 * s + 16; k++) {
            int u = clamp_round(x[k] * inverse_scale, -32, 31) + 32;
            int half = k / 128, g = k % 128 / 32, l = k % 32;
            b.low[64 * half + 32 * (g & 1) + l] |= (uint8_t)((u & 15) << (g / 2 * 4));
            b.high[32 * half + l] |= (uint8_t)((u >> 4) << (2 * g));
        }
    }
    memcpy(out, &b, sizeof(b));
}

/* Writes the lowest two bits of 256 codes in the order of file_q2_k. */
static void put_two_bits(uint8_t out[64], const uint8_t q[256])
{
    memset(out, 0, 64);
    for (int i = 0; i < 256; i++)
        out[i / 128 * 32 + i % 32] |= (uint8_t)((q[i] & 3) << (i % 128 / 32 * 2));
}

static void quant_q2_k(const float *x, uint8_t *out)
{
    struct file_q2_k b = { 0 };
    float low[16] = { 0 }, high[16] = { 0 }, top_step = 0, top_min = 0;
    uint8_t q[256];

    for (int i = 0; i < 256; i++) {
        low[i / 16] = fminf(low[i / 16], x[i]);
        high[i / 16] = fmaxf(high[i / 16], x[i]);
    }
    for (int s = 0; s < 16; s++) {
        top_step = fmaxf(top_step, (high[s] - low[s]) / 3);
        top_min = fmaxf(top_min, -low[s]);
    }
    b.d = f32_to_f16(top_step / 15);
    b.dmin = f32_to_f16(top_min / 15);
    float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
    for (int s = 0; s < 16; s++) {
        int scale = clamp_round((high[s] - low[s]) / 3 * inverse(d), 0, 15);
        int min = clamp_round(-low[s] * inverse(dmin), 0, 15);
        b.scale[s] = (uint8_t)(scale | min << 4);
        for (int i = 16 * s; i < 16 * s + 16; i++)
            q[i] =
                (uint8_t)clamp_round((x[i] + dmin * (float)min) * inverse(d * (float)scale), 0, 3);
    }
    put_two_bits(b.q, q);
    memcpy(out, &b, sizeof(b));
}

/* Codes are -4 .. 3, so the element of largest magnitude is encoded as -4. */
static void quant_q3_k(const float *x, uint8_t *out)
{
    struct file_q3_k b = { 0 };
    float step[16];
    uint8_t q[256];

    for (int s = 0; s < 16; s++)
        step[s] = signed_max_magnitude(x + 16 * s, 16) / -4;
    b.d = f32_to_f16(signed_max_magnitude(step, 16) / -32);
    float d = f16_to_f32(b.d);
    for (int s = 0; s < 16; s++) {
        int scale = clamp_round(step[s] * inverse(d), -32, 31);
        b.scale[s % 8] |= (uint8_t)(((scale + 32) & 15) << (s / 8 * 4));
        b.scale[8 + s % 4] |= (uint8_t)((scale + 32) >> 4 << (s / 4 * 2));
        for (int i = 16 * s; i < 16 * s + 16; i++)
            q[i] = (uint8_t)(clamp_round(x[i] * inverse(d * (float)scale), -4, 3) + 4);
    }
    put_two_bits(b.q, q);
    for (int i = 0; i < 256; i++)
        b.high[i % 32] |= (uint8_t)(q[i] >> 2 << (i / 32));
    memcpy(out, &b, sizeof(b));
}

static void quant_half(enum qtype type, const float *x, int n, uint8_t *out)
{
    for (int i = 0; i < n; i++) {
        uint16_t h = type == Q_F16 ? f32_to_f16(x[i]) : f32_to_bf16(x[i]);
        memcpy(out + 2 * (size_t)i, &h, 2);
    }
}

struct block_quantiser {
    enum qtype type;
    int block;
    size_t bytes;
    void (*fn)(const float *x, uint8_t *out);
};

static const struct block_quantiser *quantiser_of(enum qtype type)
{
    static const struct block_quantiser by_type[] = {
        { Q_Q8_0, QK_SMALL, sizeof(struct file_q8_0), quant_q8_0 },
        { Q_Q4_0, QK_SMALL, sizeof(struct file_q4_0), quant_q4_0 },
        { Q_Q4_K, QK_SUPER, sizeof(struct file_q4_k), quant_q4_k },
        { Q_Q5_K, QK_SUPER, sizeof(struct file_q5_k), quant_q5_k },
        { Q_Q6_K, QK_SUPER, sizeof(struct file_q6_k), quant_q6_k },
        { Q_Q4_1, QK_SMALL, sizeof(struct file_q4_1), quant_q4_1 },
        { Q_Q5_0, QK_SMALL, sizeof(struct file_q5_0), quant_q5_0 },
        { Q_Q5_1, QK_SMALL, sizeof(struct file_q5_1), quant_q5_1 },
        { Q_IQ4_NL, QK_SMALL, sizeof(struct file_iq4_nl), quant_iq4_nl },
        { Q_MXFP4, QK_SMALL, sizeof(struct file_mxfp4), quant_mxfp4 },
        { Q_IQ4_XS, QK_SUPER, sizeof(struct file_iq4_xs), quant_iq4_xs },
        { Q_Q2_K, QK_SUPER, sizeof(struct file_q2_k), quant_q2_k },
        { Q_Q3_K, QK_SUPER, sizeof(struct file_q3_k), quant_q3_k },
    };

    for (size_t t = 0; t < ARRAY_LEN(by_type); t++)
        if (by_type[t].type == type)
            return &by_type[t];
    return NULL;
}

bool quant_has_type(enum qtype type)
{
    return type == Q_F32 || type == Q_F16 || type == Q_BF16 || quantiser_of(type);
}

void quant_row(enum qtype type, const float *x, int n, uint8_t *out)
{
    const struct block_quantiser *q = quantiser_of(type);

    CHECK(quant_has_type(type));
    if (type == Q_F32)
        memcpy(out, x, (size_t)n * sizeof(float));
    else if (!q)
        quant_half(type, x, n, out);
    else {
        CHECK(n % q->block == 0);
        for (int b = 0; b < n / q->block; b++)
            q->fn(x + b * q->block, out + (size_t)b * q->bytes);
    }
}
