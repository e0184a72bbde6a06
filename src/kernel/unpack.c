/* unpack.c: single matrix rows from panels, as the floats that the file's blocks define, in the
 * order of operations of GGUF's reference dequantisation. Used for embedding rows. blocks.h
 * documents the layouts. Any thread. */
#include "kernel/affine_codes.h"
#include "kernel/blocks.h"
#include "kernel/gemm.h"
#include "kernel/row_codes.h"
#include "base/half.h"

static const float iq4_codebook[16] = { IQ4_CODEBOOK }, mxfp4_codebook[16] = { MXFP4_CODEBOOK };

static void get_f32(float *out, const uint8_t *panel, size_t b, int r)
{
    memcpy(out, panel + b * 64 + (size_t)r * 4, 4);
}

static void get_f16(float *out, const uint8_t *panel, size_t b, int r)
{
    uint16_t h;

    memcpy(&h, panel + b * 32 + (size_t)r * 2, 2);
    *out = f16_to_f32(h);
}

static void get_bf16(float *out, const uint8_t *panel, size_t b, int r)
{
    uint16_t h;

    memcpy(&h, panel + b / 2 * 64 + (size_t)r * 4 + b % 2 * 2, 2);
    *out = bf16_to_f32(h);
}

/* Element k of 32 in the nibble order of p16_q4_0. */
static int nibble(const uint8_t q[4][16][4], int r, int k)
{
    return q[k % 16 / 4][r][k % 4] >> (k / 16 * 4) & 15;
}

/* Fifth bit of element k, shifted to bit 4, in the order of p16_q5_0. */
static int fifth_bit(const uint8_t plane[16][4], int r, int k)
{
    return (plane[r][k % 4] >> (k / 4) & 1) << 4;
}

static void get_q4_0(float *out, const uint8_t *panel, size_t b, int r)
{
    const struct p16_q4_0 *p = (const struct p16_q4_0 *)(const void *)panel + b;
    float d = f16_to_f32(p->d[r]);

    for (int k = 0; k < 32; k++)
        out[k] = (float)(nibble(p->q, r, k) - 8) * d;
}

static void get_q4_1(float *out, const uint8_t *panel, size_t b, int r)
{
    const struct p16_q4_1 *p = (const struct p16_q4_1 *)(const void *)panel + b;
    float d = f16_to_f32(p->d[r]), m = f16_to_f32(p->m[r]);

    for (int k = 0; k < 32; k++)
        out[k] = (float)nibble(p->q, r, k) * d + m;
}

static void get_q5_0(float *out, const uint8_t *panel, size_t b, int r)
{
    const struct p16_q5_0 *p = (const struct p16_q5_0 *)(const void *)panel + b;
    float d = f16_to_f32(p->d[r]);

    for (int k = 0; k < 32; k++)
        out[k] = (float)((nibble(p->q, r, k) | fifth_bit(p->high, r, k)) - 16) * d;
}

static void get_q5_1(float *out, const uint8_t *panel, size_t b, int r)
{
    const struct p16_q5_1 *p = (const struct p16_q5_1 *)(const void *)panel + b;
    float d = f16_to_f32(p->d[r]), m = f16_to_f32(p->m[r]);

    for (int k = 0; k < 32; k++)
        out[k] = (float)(nibble(p->q, r, k) | fifth_bit(p->high, r, k)) * d + m;
}

static void get_iq4_nl(float *out, const uint8_t *panel, size_t b, int r)
{
    const struct p16_iq4_nl *p = (const struct p16_iq4_nl *)(const void *)panel + b;
    float d = f16_to_f32(p->d[r]);

    for (int k = 0; k < 32; k++)
        out[k] = d * iq4_codebook[nibble(p->q, r, k)];
}

static void get_mxfp4(float *out, const uint8_t *panel, size_t b, int r)
{
    const struct p16_mxfp4 *p = (const struct p16_mxfp4 *)(const void *)panel + b;
    float d = e8m0_half(p->e[r]);

    for (int k = 0; k < 32; k++)
        out[k] = d * mxfp4_codebook[nibble(p->q, r, k)];
}

static void get_q8_0(float *out, const uint8_t *panel, size_t b, int r)
{
    const struct p16_q8_0 *p = (const struct p16_q8_0 *)(const void *)panel + b;
    float d = f16_to_f32(p->d[r]);

    for (int k = 0; k < 32; k++)
        out[k] = (float)(p->q[k / 4][r][k % 4] - 128) * d;
}

struct scale_min {
    int scale, min; /* 6 bits each */
};

/* Scale and minimum of sub-block j in the layout of p16_q4_k. */
static struct scale_min scale_min_of(
    const uint8_t lo[4][16][2], const uint8_t hi[2][16][2], int r, int j)
{
    int low = lo[j / 2][r][j % 2], high = hi[j / 2 & 1][r][j % 2] >> (j / 4 * 4);

    return (struct scale_min){ (low & 15) | (high & 3) << 4, low >> 4 | (high >> 2 & 3) << 4 };
}

static void get_q4_k(float *out, const uint8_t *panel, size_t b, int r)
{
    const struct p16_q4_k *p = (const struct p16_q4_k *)(const void *)panel + b;
    float d = f16_to_f32(p->d[r]), dmin = f16_to_f32(p->dmin[r]);

    for (int j = 0; j < 8; j++) {
        struct scale_min scale_min = scale_min_of(p->scale_lo, p->scale_hi, r, j);
        float scale = d * (float)scale_min.scale, min = dmin * (float)scale_min.min;
        for (int k = 0; k < 32; k++)
            out[32 * j + k] = scale * (float)nibble(p->q[j], r, k) - min;
    }
}

static void get_q5_k(float *out, const uint8_t *panel, size_t b, int r)
{
    const struct p16_q5_k *p = (const struct p16_q5_k *)(const void *)panel + b;
    float d = f16_to_f32(p->d[r]), dmin = f16_to_f32(p->dmin[r]);

    for (int j = 0; j < 8; j++) {
        struct scale_min scale_min = scale_min_of(p->scale_lo, p->scale_hi, r, j);
        float scale = d * (float)scale_min.scale, min = dmin * (float)scale_min.min;
        for (int k = 0; k < 32; k++) {
            int q = nibble(p->q[j], r, k) | fifth_bit(p->high[j], r, k);
            out[32 * j + k] = scale * (float)q - min;
        }
    }
}

static void get_q6_k(float *out, const uint8_t *panel, size_t b, int r)
{
    const struct p16_q6_k *p = (const struct p16_q6_k *)(const void *)panel + b;
    float d = f16_to_f32(p->d[r]);

    for (int k = 0; k < QK_SUPER; k++) {
        int s = k / 16, quad = k % 16 / 4, i = k % 4;
        int low = p->sub[s].low[quad & 1][r][i] >> (quad / 2 * 4) & 15;
        int high = p->sub[s].high[r][i] >> (2 * quad) & 3;
        float scale = d * (float)p->scale[s / 2][r][s % 2];
        out[k] = scale * (float)((low | high << 4) - 32);
    }
}

static void get_iq4_xs(float *out, const uint8_t *panel, size_t b, int r)
{
    const struct p16_iq4_xs *p = (const struct p16_iq4_xs *)(const void *)panel + b;
    float d = f16_to_f32(p->d[r]);

    for (int j = 0; j < 8; j++) {
        float scale = d * (float)p->scale[j / 2][r][j % 2];
        for (int k = 0; k < 32; k++)
            out[32 * j + k] = scale * iq4_codebook[nibble(p->q[j], r, k)];
    }
}

static void get_nvfp4(float *out, const uint8_t *panel, size_t b, int r)
{
    const struct p16_nvfp4 *p = (const struct p16_nvfp4 *)(const void *)panel + b;

    for (int k = 0; k < QK_NVFP4; k++)
        out[k] = ue4m3_half(p->e[k / 16][r]) * mxfp4_codebook[nibble(p->q[k / 32], r, k % 32)];
}

static void get_q1_0(float *out, const uint8_t *panel, size_t b, int r)
{
    const struct p16_q1_0 *p = (const struct p16_q1_0 *)(const void *)panel + b;
    float d = f16_to_f32(p->d[r]);

    for (int k = 0; k < QK_Q1_0; k++)
        out[k] = p->q[k / 32][r][k % 4] >> (k % 32 / 4) & 1 ? d : -d;
}

static void get_q2_0(float *out, const uint8_t *panel, size_t b, int r)
{
    const struct p16_q2_0 *p = (const struct p16_q2_0 *)(const void *)panel + b;
    float d = f16_to_f32(p->d[r]);

    for (int k = 0; k < QK_Q2_0; k++)
        out[k] = (float)((p->q[k / 16][r][k % 4] >> (k % 16 / 4 * 2) & 3) - 1) * d;
}

#define GET_AFFINE(name, code)                                                                     \
    static void get_##name(float *out, const uint8_t *panel, size_t b, int r)                      \
    {                                                                                              \
        const struct p16_##name *p = (const struct p16_##name *)(const void *)panel + b;           \
                                                                                                   \
        for (int k = 0; k < 32 * (int)ARRAY_LEN(p->q); k++)                                        \
            out[k] = (float)code(p->q[k / 32], r, k % 32) * p->d[r] + p->m[r];                     \
    }

#define GET_AFFINE_CODES(bits)                                                                     \
    GET_AFFINE(affine##bits##_32, affine##bits##_code)                                             \
    GET_AFFINE(affine##bits##_64, affine##bits##_code)
GET_AFFINE_CODES(2)
GET_AFFINE_CODES(3)
GET_AFFINE_CODES(4)
GET_AFFINE_CODES(5)
GET_AFFINE_CODES(6)
GET_AFFINE_CODES(8)

#define GET_FP8(name, scale)                                                                       \
    static void get_##name(float *out, const uint8_t *panel, size_t b, int r)                      \
    {                                                                                              \
        const struct p16_##name *p = (const struct p16_##name *)(const void *)panel + b;           \
                                                                                                   \
        for (size_t k = 0; k < ARRAY_LEN(p->q); k++)                                               \
            out[k] = e4m3_to_f32(p->q[k][r]) * (scale);                                            \
    }
GET_FP8(fp8_32, p->d[r])
GET_FP8(fp8_128, p->d[r])
GET_FP8(mxfp8, e8m0_to_f32(p->e[r]))

/* Types of row_codes.h */
static void get_row_codes(float *out, const struct row_codes *c)
{
    for (int s = 0; s < QK_SUPER / ROW_SUB_BLOCK; s++) {
        float scale = c->d * (float)c->scale[s], min = c->has_mins ? c->dmin * (float)c->min[s] : 0;
        for (int k = ROW_SUB_BLOCK * s; k < ROW_SUB_BLOCK * (s + 1); k++)
            out[k] = c->has_mins ? scale * (float)c->code[k] - min : scale * (float)c->code[k];
    }
}

#define GET_ROW_CODES(name)                                                                        \
    static void get_##name(float *out, const uint8_t *panel, size_t b, int r)                      \
    {                                                                                              \
        struct row_codes c;                                                                        \
                                                                                                   \
        row_codes_##name(&c, panel + b * sizeof(struct p16_##name), r);                            \
        get_row_codes(out, &c);                                                                    \
    }
GET_ROW_CODES(q2_k)
GET_ROW_CODES(q3_k)
GET_ROW_CODES(iq2_xxs)
GET_ROW_CODES(iq2_xs)
GET_ROW_CODES(iq2_s)
GET_ROW_CODES(iq3_xxs)
GET_ROW_CODES(iq3_s)
GET_ROW_CODES(iq1_s)
GET_ROW_CODES(iq1_m)
GET_ROW_CODES(tq1_0)
GET_ROW_CODES(tq2_0)

void pack_get_row(const struct packed *w, int row, float *out)
{
    static const struct {
        int block;
        void (*get)(float *out, const uint8_t *panel, size_t b, int r);
    } by_slot[N_GEMM_SLOTS] = {
#define WEIGHT(TYPE, name, act, block) [GEMM_##TYPE] = { block, get_##name },
#include "kernel/types.def"
#undef WEIGHT
    };
    const uint8_t *panel = w->data + (size_t)(row / PANEL) * w->panel_bytes;
    int slot = gemm_slot(w->type), block = by_slot[slot].block;

    DCHECK(row >= 0 && row < w->n_rows);
    for (int b = 0; b < w->n_cols / block; b++)
        by_slot[slot].get(out + (size_t)b * (size_t)block, panel, (size_t)b, row % PANEL);
}
