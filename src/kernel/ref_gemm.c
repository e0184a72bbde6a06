/* ref_gemm.c: the definition of packed weights times activations, one output at a time.
 *
 * An output is one chain: from 0, k or blocks in order. Float weights: one fma per k. Blocks of
 * 32: one fma, of the rounded product of both scales and the exact integer dot. Blocks of 256: the
 * integer sum over sub-blocks of scale x dot is exact; one fma for it and, where a type has
 * minimums, one more for theirs. An integer beyond 2^24 is rounded to nearest when it becomes a
 * float. */
#include "kernel/acts.h"
#include "kernel/blocks.h"
#include "kernel/half.h"
#include "kernel/ref.h"

#include <math.h>

/* One row (0 .. 15) of a panel times one row of activations. */
typedef float (*dot_fn)(const void *panel, int r, const void *x, int n_cols);

static void gemm(const struct gemm_args *g, dot_fn dot)
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

/* Element k of 32 whose nibbles lie as in p16_q4_0. */
static int nibble(const uint8_t q[4][16][4], int r, int k)
{
    return q[k % 16 / 4][r][k % 4] >> (k / 16 * 4) & 15;
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

struct scale_min {
    int scale, min;
};

static struct scale_min sub_scales(
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
            struct scale_min s = sub_scales(w->scale_lo, w->scale_hi, r, j);
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
            struct scale_min s = sub_scales(w->scale_lo, w->scale_hi, r, j);
            int32_t dot = 0;
            for (int k = 0; k < 32; k++) {
                int fifth = w->high[j][r][k % 4] >> (k / 4) & 1;
                dot += (nibble(w->q[j], r, k) | fifth << 4) * a->q[32 * j + k];
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

void ref_gemm_f32(const struct gemm_args *g)
{
    gemm(g, dot_f32);
}

void ref_gemm_f16(const struct gemm_args *g)
{
    gemm(g, dot_f16);
}

void ref_gemm_bf16(const struct gemm_args *g)
{
    gemm(g, dot_bf16);
}

void ref_gemm_q8_0(const struct gemm_args *g)
{
    gemm(g, dot_q8_0);
}

void ref_gemm_q4_0(const struct gemm_args *g)
{
    gemm(g, dot_q4_0);
}

void ref_gemm_q4_k(const struct gemm_args *g)
{
    gemm(g, dot_q4_k);
}

void ref_gemm_q5_k(const struct gemm_args *g)
{
    gemm(g, dot_q5_k);
}

void ref_gemm_q6_k(const struct gemm_args *g)
{
    gemm(g, dot_q6_k);
}
