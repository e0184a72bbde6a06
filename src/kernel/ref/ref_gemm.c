/* ref_gemm.c: definition of GEMM with packed weights, one output at a time.
 *
 * An output is one chain from 0, over k or blocks in ascending order. Float weights: one fma per k.
 * Blocks of 32: one fma of the rounded product of both scales and the exact integer dot product.
 * Types with a minimum add another fma, of the rounded product of the minimum and the activation
 * scale, and the sum of the activations. Blocks of 256: the integer sum over sub-blocks of scale x
 * dot product is exact; one fma adds it, and types with minimums add another fma for them. An
 * integer beyond 2^24 is rounded to nearest when it is converted to float. */
#include "kernel/acts.h"
#include "kernel/affine_codes.h"
#include "kernel/blocks.h"
#include "kernel/row_codes.h"
#include "base/half.h"
#include "kernel/ref/ref.h"

#include <math.h>

/* Dot product of one row (0 .. 15) of a panel with one activation row. */
typedef float (*dot_fn)(const void *panel, int r, const void *x, int n_cols);

static void gemm_by_output(const struct gemm_args *g, dot_fn dot)
{
    const struct packed *w = g->w;

    DCHECK(g->x->n_cols == w->n_cols && g->x->kind == act_kind_for(w->type));
    for (int row = g->panel_from * PANEL; row < MIN(g->panel_to * PANEL, w->n_rows); row++)
        for (int m = 0; m < g->x->n_rows; m++) {
            const uint8_t *panel = w->data + (size_t)(row / PANEL) * w->panel_bytes;
            const uint8_t *x = acts_row(g->x, m);
            g->y[(size_t)m * g->y_stride + (size_t)row] = dot(panel, row % PANEL, x, w->n_cols);
        }
}

static float dot_f32(const void *panel, int r, const void *x, int n_cols)
{
    const float *w = panel, *v = x;
    float acc = 0;

    for (int k = 0; k < n_cols; k++)
        acc = fmaf(w[k * 16 + r], v[k], acc);
    return acc;
}

static float dot_f16(const void *panel, int r, const void *x, int n_cols)
{
    const uint16_t *w = panel;
    const float *v = x;
    float acc = 0;

    for (int k = 0; k < n_cols; k++)
        acc = fmaf(f16_to_f32(w[k * 16 + r]), v[k], acc);
    return acc;
}

static float dot_bf16(const void *panel, int r, const void *x, int n_cols)
{
    const uint16_t *w = panel;
    const float *v = x;
    float acc = 0;

    for (int k = 0; k < n_cols; k++)
        acc = fmaf(bf16_to_f32(w[k / 2 * 32 + r * 2 + k % 2]), v[k], acc);
    return acc;
}

static float dot_q8_0(const void *panel, int r, const void *x, int n_cols)
{
    const struct p16_q8_0 *w = panel;
    const struct act_q8_0 *a = x;
    float acc = 0;

    for (int b = 0; b < n_cols / 32; b++, w++, a++) {
        int32_t sum = 0;
        for (int k = 0; k < 32; k++)
            sum += (w->q[k / 4][r][k % 4] - 128) * a->q[k];
        acc = fmaf(f16_to_f32(w->d[r]) * a->d, (float)sum, acc);
    }
    return acc;
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

static float dot_q4_0(const void *panel, int r, const void *x, int n_cols)
{
    const struct p16_q4_0 *w = panel;
    const struct act_q8_0 *a = x;
    float acc = 0;

    for (int b = 0; b < n_cols / 32; b++, w++, a++) {
        int32_t sum = 0;
        for (int k = 0; k < 32; k++)
            sum += (nibble(w->q, r, k) - 8) * a->q[k];
        acc = fmaf(f16_to_f32(w->d[r]) * a->d, (float)sum, acc);
    }
    return acc;
}

/* Adds the term of a type with a minimum per 32: the minimum times the sum of the activations. */
static float add_min(float acc, uint16_t m, const struct act_q8_0 *a)
{
    return fmaf(f16_to_f32(m) * a->d, (float)(a->minus8 / -8), acc);
}

static float dot_q4_1(const void *panel, int r, const void *x, int n_cols)
{
    const struct p16_q4_1 *w = panel;
    const struct act_q8_0 *a = x;
    float acc = 0;

    for (int b = 0; b < n_cols / 32; b++, w++, a++) {
        int32_t sum = 0;
        for (int k = 0; k < 32; k++)
            sum += nibble(w->q, r, k) * a->q[k];
        acc = add_min(fmaf(f16_to_f32(w->d[r]) * a->d, (float)sum, acc), w->m[r], a);
    }
    return acc;
}

static float dot_q5_0(const void *panel, int r, const void *x, int n_cols)
{
    const struct p16_q5_0 *w = panel;
    const struct act_q8_0 *a = x;
    float acc = 0;

    for (int b = 0; b < n_cols / 32; b++, w++, a++) {
        int32_t sum = 0;
        for (int k = 0; k < 32; k++)
            sum += ((nibble(w->q, r, k) | fifth_bit(w->high, r, k)) - 16) * a->q[k];
        acc = fmaf(f16_to_f32(w->d[r]) * a->d, (float)sum, acc);
    }
    return acc;
}

static float dot_q5_1(const void *panel, int r, const void *x, int n_cols)
{
    const struct p16_q5_1 *w = panel;
    const struct act_q8_0 *a = x;
    float acc = 0;

    for (int b = 0; b < n_cols / 32; b++, w++, a++) {
        int32_t sum = 0;
        for (int k = 0; k < 32; k++)
            sum += (nibble(w->q, r, k) | fifth_bit(w->high, r, k)) * a->q[k];
        acc = add_min(fmaf(f16_to_f32(w->d[r]) * a->d, (float)sum, acc), w->m[r], a);
    }
    return acc;
}

/* Exact dot product of 32 codebook entries with 32 activations. */
static int32_t codebook_dot(
    const int8_t codebook[16], const uint8_t q[4][16][4], int r, const int8_t *x)
{
    int32_t sum = 0;

    for (int k = 0; k < 32; k++)
        sum += codebook[nibble(q, r, k)] * x[k];
    return sum;
}

static const int8_t iq4_codebook[16] = { IQ4_CODEBOOK }, mxfp4_codebook[16] = { MXFP4_CODEBOOK };

static float dot_iq4_nl(const void *panel, int r, const void *x, int n_cols)
{
    const struct p16_iq4_nl *w = panel;
    const struct act_q8_0 *a = x;
    float acc = 0;

    for (int b = 0; b < n_cols / 32; b++, w++, a++) {
        int32_t sum = codebook_dot(iq4_codebook, w->q, r, a->q);
        acc = fmaf(f16_to_f32(w->d[r]) * a->d, (float)sum, acc);
    }
    return acc;
}

static float dot_mxfp4(const void *panel, int r, const void *x, int n_cols)
{
    const struct p16_mxfp4 *w = panel;
    const struct act_q8_0 *a = x;
    float acc = 0;

    for (int b = 0; b < n_cols / 32; b++, w++, a++) {
        int32_t sum = codebook_dot(mxfp4_codebook, w->q, r, a->q);
        acc = fmaf(e8m0_half(w->e[r]) * a->d, (float)sum, acc);
    }
    return acc;
}

struct scale_min {
    int scale, min;
};

static struct scale_min scale_min_of(
    const uint8_t lo[4][16][2], const uint8_t hi[2][16][2], int r, int j)
{
    int l = lo[j / 2][r][j % 2], h = hi[j / 2 & 1][r][j % 2] >> (j / 4 * 4);

    return (struct scale_min){ (l & 15) | (h & 3) << 4, l >> 4 | (h >> 2 & 3) << 4 };
}

static float dot_q4_k(const void *panel, int r, const void *x, int n_cols)
{
    const struct p16_q4_k *w = panel;
    const struct act_q8_k *a = x;
    float acc = 0;

    for (int b = 0; b < n_cols / 256; b++, w++, a++) {
        int32_t sum = 0, mins = 0;
        for (int j = 0; j < 8; j++) {
            struct scale_min s = scale_min_of(w->scale_lo, w->scale_hi, r, j);
            int32_t dot = 0;
            for (int k = 0; k < 32; k++)
                dot += nibble(w->q[j], r, k) * a->q[32 * j + k];
            sum += s.scale * dot;
            mins += s.min * a->sum32[j];
        }
        acc = fmaf(f16_to_f32(w->d[r]) * a->d, (float)sum, acc);
        acc = fmaf(-(f16_to_f32(w->dmin[r]) * a->d), (float)mins, acc);
    }
    return acc;
}

static float dot_q5_k(const void *panel, int r, const void *x, int n_cols)
{
    const struct p16_q5_k *w = panel;
    const struct act_q8_k *a = x;
    float acc = 0;

    for (int b = 0; b < n_cols / 256; b++, w++, a++) {
        int32_t sum = 0, mins = 0;
        for (int j = 0; j < 8; j++) {
            struct scale_min s = scale_min_of(w->scale_lo, w->scale_hi, r, j);
            int32_t dot = 0;
            for (int k = 0; k < 32; k++) {
                int q = nibble(w->q[j], r, k) | fifth_bit(w->high[j], r, k);
                dot += q * a->q[32 * j + k];
            }
            sum += s.scale * dot;
            mins += s.min * a->sum32[j];
        }
        acc = fmaf(f16_to_f32(w->d[r]) * a->d, (float)sum, acc);
        acc = fmaf(-(f16_to_f32(w->dmin[r]) * a->d), (float)mins, acc);
    }
    return acc;
}

static float dot_q6_k(const void *panel, int r, const void *x, int n_cols)
{
    const struct p16_q6_k *w = panel;
    const struct act_q8_k *a = x;
    float acc = 0;

    for (int b = 0; b < n_cols / 256; b++, w++, a++) {
        int32_t sum = 0;
        for (int s = 0; s < 16; s++) {
            int32_t dot = 0;
            for (int k = 0; k < 16; k++) {
                int quad = k / 4, i = k % 4;
                int low = w->sub[s].low[quad & 1][r][i] >> (quad / 2 * 4) & 15;
                int high = w->sub[s].high[r][i] >> (2 * quad) & 3;
                dot += ((low | high << 4) - 32) * a->q[16 * s + k];
            }
            sum += w->scale[s / 2][r][s % 2] * dot;
        }
        acc = fmaf(f16_to_f32(w->d[r]) * a->d, (float)sum, acc);
    }
    return acc;
}

static float dot_iq4_xs(const void *panel, int r, const void *x, int n_cols)
{
    const struct p16_iq4_xs *w = panel;
    const struct act_q8_k *a = x;
    float acc = 0;

    for (int b = 0; b < n_cols / 256; b++, w++, a++) {
        int32_t sum = 0;
        for (int j = 0; j < 8; j++)
            sum +=
                w->scale[j / 2][r][j % 2] * codebook_dot(iq4_codebook, w->q[j], r, a->q + 32 * j);
        acc = fmaf(f16_to_f32(w->d[r]) * a->d, (float)sum, acc);
    }
    return acc;
}

/* A scale per 16 elements: one fma for each. */
static float dot_nvfp4(const void *panel, int r, const void *x, int n_cols)
{
    const struct p16_nvfp4 *w = panel;
    const struct act_q8_0 *a = x;
    float acc = 0;

    for (int s = 0; s < n_cols / 16; s++) {
        const struct p16_nvfp4 *block = w + s / 4;
        const struct act_q8_0 *b = a + s / 2;
        int32_t sum = 0;
        for (int k = s % 2 * 16; k < s % 2 * 16 + 16; k++)
            sum += mxfp4_codebook[nibble(block->q[s / 2 % 2], r, k)] * b->q[k];
        acc = fmaf(ue4m3_half(block->e[s % 4][r]) * b->d, (float)sum, acc);
    }
    return acc;
}

static float dot_q1_0(const void *panel, int r, const void *x, int n_cols)
{
    const struct p16_q1_0 *w = panel;
    const struct act_q8_0 *a = x;
    float acc = 0;

    for (int b = 0; b < n_cols / 32; b++, a++) {
        const struct p16_q1_0 *block = w + b / 4;
        int32_t sum = 0;
        for (int k = 0; k < 32; k++)
            sum += block->q[b % 4][r][k % 4] >> (k / 4) & 1 ? a->q[k] : -a->q[k];
        acc = fmaf(f16_to_f32(block->d[r]) * a->d, (float)sum, acc);
    }
    return acc;
}

static float dot_q2_0(const void *panel, int r, const void *x, int n_cols)
{
    const struct p16_q2_0 *w = panel;
    const struct act_q8_0 *a = x;
    float acc = 0;

    for (int b = 0; b < n_cols / 32; b++, a++) {
        const struct p16_q2_0 *block = w + b / 2;
        int32_t sum = 0;
        for (int k = 0; k < 32; k++)
            sum += ((block->q[b % 2 * 2 + k / 16][r][k % 4] >> (k % 16 / 4 * 2) & 3) - 1) * a->q[k];
        acc = fmaf(f16_to_f32(block->d[r]) * a->d, (float)sum, acc);
    }
    return acc;
}

/* Types of blocks_affine.h: per 32 elements as Q4_1, also if 64 have the same scale. */
#define DOT_AFFINE(name, code)                                                                     \
    static float dot_##name(const void *panel, int r, const void *x, int n_cols)                   \
    {                                                                                              \
        const struct p16_##name *w = panel;                                                        \
        const struct act_q8_0 *a = x;                                                              \
        const int parts = (int)ARRAY_LEN(w->q);                                                    \
        float acc = 0;                                                                             \
                                                                                                   \
        for (int b = 0; b < n_cols / 32; b++, a++) {                                               \
            const struct p16_##name *block = w + b / parts;                                        \
            int32_t sum = 0;                                                                       \
            for (int k = 0; k < 32; k++)                                                           \
                sum += code(block->q[b % parts], r, k) * a->q[k];                                  \
            acc = fmaf(block->d[r] * a->d, (float)sum, acc);                                       \
            acc = fmaf(block->m[r] * a->d, (float)(a->minus8 / -8), acc);                          \
        }                                                                                          \
        return acc;                                                                                \
    }

#define DOT_AFFINE_CODES(bits)                                                                     \
    DOT_AFFINE(affine##bits##_32, affine##bits##_code)                                             \
    DOT_AFFINE(affine##bits##_64, affine##bits##_code)
DOT_AFFINE_CODES(2)
DOT_AFFINE_CODES(3)
DOT_AFFINE_CODES(4)
DOT_AFFINE_CODES(5)
DOT_AFFINE_CODES(6)
DOT_AFFINE_CODES(8)

/* E4M3 numbers: one fma per k with the weight, which is rounded to f32, as with F32 weights. */
#define DOT_FP8(name, scale)                                                                       \
    static float dot_##name(const void *panel, int r, const void *x, int n_cols)                   \
    {                                                                                              \
        const struct p16_##name *w = panel;                                                        \
        const float *v = x;                                                                        \
        float acc = 0;                                                                             \
                                                                                                   \
        for (int k = 0; k < n_cols; k++) {                                                         \
            const struct p16_##name *block = w + k / (int)ARRAY_LEN(w->q);                         \
            float d = (scale);                                                                     \
            acc = fmaf(e4m3_to_f32(block->q[k % (int)ARRAY_LEN(w->q)][r]) * d, v[k], acc);         \
        }                                                                                          \
        return acc;                                                                                \
    }

/* Types of row_codes.h: `bytes` per packed block of 256. */
static float row_codes_dot(
    row_codes_fn row_codes, size_t bytes, const void *panel, int r, const void *x, int n_cols)
{
    const struct act_q8_k *a = x;
    const uint8_t *w = panel;
    struct row_codes c;
    float acc = 0;

    for (int b = 0; b < n_cols / 256; b++, w += bytes, a++) {
        int32_t sum = 0, mins = 0;
        row_codes(&c, w, r);
        for (int s = 0; s < QK_SUPER / ROW_SUB_BLOCK; s++) {
            int32_t dot = 0;
            for (int k = ROW_SUB_BLOCK * s; k < ROW_SUB_BLOCK * (s + 1); k++)
                dot += c.code[k] * a->q[k];
            sum += c.scale[s] * dot;
            mins += c.has_mins ? c.min[s] * a->sum16[s] : 0;
        }
        acc = fmaf(c.d * a->d, (float)sum, acc);
        if (c.has_mins)
            acc = fmaf(-(c.dmin * a->d), (float)mins, acc);
    }
    return acc;
}

#define DOT_ROW_CODES(name)                                                                        \
    static float dot_##name(const void *panel, int r, const void *x, int n_cols)                   \
    {                                                                                              \
        return row_codes_dot(row_codes_##name, sizeof(struct p16_##name), panel, r, x, n_cols);    \
    }
DOT_ROW_CODES(q2_k)
DOT_ROW_CODES(q3_k)
DOT_ROW_CODES(iq2_xxs)
DOT_ROW_CODES(iq2_xs)
DOT_ROW_CODES(iq2_s)
DOT_ROW_CODES(iq3_xxs)
DOT_ROW_CODES(iq3_s)
DOT_ROW_CODES(iq1_s)
DOT_ROW_CODES(iq1_m)
DOT_ROW_CODES(tq1_0)
DOT_ROW_CODES(tq2_0)
DOT_FP8(fp8_32, block->d[r])
DOT_FP8(fp8_128, block->d[r])
DOT_FP8(mxfp8, e8m0_to_f32(block->e[r]))

#define WEIGHT(TYPE, name, act, block)                                                             \
    void ref_gemm_##name(const struct gemm_args *g)                                                \
    {                                                                                              \
        gemm_by_output(g, dot_##name);                                                             \
    }
#include "kernel/types.def"
#undef WEIGHT
