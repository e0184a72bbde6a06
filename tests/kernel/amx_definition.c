/* The unit in software is not asked here: a step of it is written down once more. */
#include "amx_definition.h"
#include "kernel/half.h"

#include <float.h>
#include <math.h>

enum { STEP = 32 };

/* Two bf16 that are a float, or nearly. */
struct planes {
    float hi, lo;
};

static float flushed(float v)
{
    return fabsf(v) < FLT_MIN ? 0 : v;
}

static float bf16(float v)
{
    return bf16_to_f32(bf16_of_f32(flushed(v)));
}

static struct planes planes_of(float v)
{
    struct planes p = { bf16(v), 0 };

    if (isfinite(p.hi))
        p.lo = bf16(v - p.hi);
    return p;
}

/* fma as MXCSR's FTZ has it: what is below FLT_MIN when rounded to 24 bits is zero. All terms are
 * normal or zero; times 2^64, the sum is normal where it matters. */
static float fma_flushed(float a, float b, float c)
{
    float r = fmaf(a, b, c);

    if (fabsf(r) > FLT_MIN || r != r)
        return r;
    bool swap = fabsf(a) > fabsf(b); /* the smaller one is scaled, and stays finite */
    float scaled = fmaf((swap ? b : a) * 0x1p64f, swap ? a : b, c * 0x1p64f);
    return fabsf(scaled) < FLT_MIN * 0x1p64f ? 0 : r;
}

/* What one product of tiles does to one number. */
static float step(float acc, const float a[STEP], const float b[STEP])
{
    float even = 0, odd = 0;

    for (int k = 0; k < STEP; k += 2) {
        even = fma_flushed(flushed(a[k]), flushed(b[k]), even);
        odd = fma_flushed(flushed(a[k + 1]), flushed(b[k + 1]), odd);
    }
    return flushed(flushed(acc) + flushed(even + odd));
}

static float weight(const struct packed *w, int row, int k)
{
    const uint16_t *p =
        (const uint16_t *)(const void *)(w->data + (size_t)(row / PANEL) * w->panel_bytes);
    int r = row % PANEL;

    return w->type == Q_BF16 ? bf16_to_f32(p[k / 2 * 32 + r * 2 + k % 2])
                             : f16_to_f32(p[k * PANEL + r]);
}

static float dot(const struct packed *w, int row, const float *x)
{
    const bool is_f16 = w->type == Q_F16;
    float acc = 0;

    for (int k = 0; k < w->n_cols; k += STEP) {
        float x_hi[STEP] = { 0 }, x_lo[STEP] = { 0 }, w_hi[STEP] = { 0 }, w_lo[STEP] = { 0 };
        for (int i = 0; i < MIN(STEP, w->n_cols - k); i++) {
            float f = weight(w, row, k + i);
            struct planes px = planes_of(x[k + i]), pw = planes_of(f);
            x_hi[i] = px.hi;
            x_lo[i] = px.lo;
            w_hi[i] = is_f16 ? pw.hi : f;
            w_lo[i] = pw.lo;
        }
        acc = step(acc, x_lo, w_hi);
        acc = step(acc, x_hi, w_hi);
        if (is_f16)
            acc = step(acc, x_hi, w_lo);
    }
    return acc;
}

static void gemm(const struct gemm_args *g)
{
    for (int row = g->panel_from * PANEL; row < MIN(g->panel_to * PANEL, g->w->n_rows); row++)
        for (int m = 0; m < g->x->n_rows; m++)
            g->y[(size_t)m * g->y_stride + (size_t)row] =
                dot(g->w, row, (const float *)(const void *)acts_row(g->x, m));
}

void amx_definition_gemm_bf16(const struct gemm_args *g)
{
    gemm(g);
}

void amx_definition_gemm_f16(const struct gemm_args *g)
{
    gemm(g);
}
