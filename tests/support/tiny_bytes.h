/* tiny_bytes.h: numbers, strings and random blocks of weights in GGUF encoding.
 *
 * The bytes of quantised blocks are random, with scales that keep activations near 1: tests of
 * arithmetic do not need trained weights. */
#pragma once

#include "base/buf.h"
#include "base/rng.h"
#include "format/qtype.h"

static inline void tiny_u32(struct buf *b, uint32_t v)
{
    buf_put(b, &v, 4);
}
static inline void tiny_u64(struct buf *b, uint64_t v)
{
    buf_put(b, &v, 8);
}
static inline void tiny_str(struct buf *b, const char *z)
{
    tiny_u64(b, strlen(z));
    buf_putz(b, z);
}

static inline uint16_t tiny_f16(float f) /* normal numbers and zero only, truncated */
{
    uint32_t u;
    memcpy(&u, &f, 4);
    int exp = (int)(u >> 23 & 255) - 127 + 15;
    return exp <= 0 ? 0 : (uint16_t)((u >> 16 & 0x8000) | (unsigned)exp << 10 | (u >> 13 & 0x3ff));
}

/* Writes the scales of a type of blocks_low_bits.h, blocks_ternary.h or NVFP4. */
static inline void tiny_low_bits_scales(uint8_t *p, enum qtype type, float scale)
{
    uint16_t d, dmin;
    uint32_t bits;

    switch ((int)type) {
    case Q_Q2_K:
        d = tiny_f16(scale / 24), dmin = tiny_f16(scale / 16);
        memcpy(p + 80, &d, 2), memcpy(p + 82, &dmin, 2);
        break;
    case Q_Q3_K:
        d = tiny_f16(scale / 60);
        memcpy(p + 108, &d, 2);
        break;
    case Q_IQ2_XXS:
    case Q_IQ2_XS:
    case Q_IQ2_S:
        d = tiny_f16(scale / 250);
        memcpy(p, &d, 2);
        break;
    case Q_IQ1_S:
        d = tiny_f16(scale / 6);
        memcpy(p, &d, 2);
        break;
    case Q_IQ1_M:
        d = tiny_f16(scale / 6);
        for (int i = 0; i < 4; i++)
            p[49 + 2 * i] = (uint8_t)((p[49 + 2 * i] & 15) | (d >> (4 * i) & 15) << 4);
        break;
    case Q_TQ1_0:
    case Q_TQ2_0:
        d = tiny_f16(scale / 3);
        memcpy(p + qtype_info(type)->block_bytes - 2, &d, 2);
        break;
    case Q_Q1_0:
    case Q_Q2_0:
        d = tiny_f16(scale / 8);
        memcpy(p, &d, 2);
        break;
    case Q_NVFP4:
        memcpy(&bits, &scale, 4);
        /* an eighth of the power of two, times numbers with a root mean square of 2.9 */
        memset(p, (int)MAX((int)(bits >> 23) - 127 - 3 + 7, 0) << 3, 4);
        break;
    case Q_IQ3_XXS:
    case Q_IQ3_S:
        d = tiny_f16(scale / 150);
        memcpy(p, &d, 2);
        break;
    }
}

/* Writes one block of random weights with a magnitude of about amp. */
static inline void tiny_block(struct buf *b, enum qtype type, float amp, struct rng *r)
{
    const struct qtype_info *q = qtype_info(type);
    uint8_t p[256];
    for (uint32_t i = 0; i < q->block_bytes; i++)
        p[i] = (uint8_t)rng_next(r);

    float x = (float)(rng_next_unit(r) * 2 - 1) * amp;
    float scale = amp * (float)(0.5 + rng_next_unit(r));
    uint32_t bits;
    uint16_t d = tiny_f16(scale / 8), d_q8 = tiny_f16(scale / 128),
             d_k = tiny_f16(scale / (type == Q_Q5_K ? 1000 : 500)), dmin = tiny_f16(scale / 60),
             d_6 = tiny_f16(scale / 2000), d_5 = tiny_f16(scale / 16), d_iq = tiny_f16(scale / 127),
             d_xs = tiny_f16(scale / 800), x16 = tiny_f16(x);
    memcpy(&bits, &x, 4);
    uint16_t bf = (uint16_t)(bits >> 16);

    switch ((int)type) {
    case Q_F32:
        memcpy(p, &x, 4);
        break;
    case Q_F16:
        memcpy(p, &x16, 2);
        break;
    case Q_BF16:
        memcpy(p, &bf, 2);
        break;
    case Q_Q4_0:
        memcpy(p, &d, 2);
        break;
    case Q_Q8_0:
        memcpy(p, &d_q8, 2);
        break;
    case Q_Q4_K:
    case Q_Q5_K:
        memcpy(p, &d_k, 2), memcpy(p + 2, &dmin, 2);
        break;
    case Q_Q6_K:
        memcpy(p + 208, &d_6, 2);
        break;
    case Q_Q4_1:
    case Q_Q5_1:
        d = tiny_f16(scale / (type == Q_Q4_1 ? 8 : 16)), dmin = tiny_f16(-scale);
        memcpy(p, &d, 2), memcpy(p + 2, &dmin, 2);
        break;
    case Q_Q5_0:
        memcpy(p, &d_5, 2);
        break;
    case Q_IQ4_NL:
        memcpy(p, &d_iq, 2);
        break;
    case Q_IQ4_XS: /* scales of -16 .. 15, otherwise d would be subnormal */
        memcpy(p, &d_xs, 2);
        p[2] = (uint8_t)((p[2] & 0x55) | (~p[2] & 0x55) << 1);
        p[3] = (uint8_t)((p[3] & 0x55) | (~p[3] & 0x55) << 1);
        break;
    case Q_MXFP4:
        memcpy(&bits, &scale, 4);
        /* 12 times half of that scale is about the desired magnitude */
        p[0] = (uint8_t)((bits >> 23) - 3);
        break;
    default:
        tiny_low_bits_scales(p, type, scale);
    }
    buf_put(b, p, q->block_bytes);
}
