/* Definition of the sums that only AMX has. It does not use the emulated tiles: the step of a tile
 * is written here independently. */
#include "x86_amx_definition.h"
#include "kernel/acts.h"
#include "base/half.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

enum { STEP = 32 };

/* two bf16 numbers whose sum is a float, exactly or approximately */
struct hi_lo {
    float hi, lo;
};

static float flushed(float v)
{
    return fabsf(v) < FLT_MIN ? 0 : v;
}

static float bf16(float v)
{
    return bf16_to_f32(f32_to_bf16(flushed(v)));
}

static struct hi_lo split_bf16x2(float v)
{
    struct hi_lo p = { bf16(v), 0 };

    if (isfinite(p.hi))
        p.lo = bf16(v - p.hi);
    return p;
}

/* fma with flush-to-zero as in MXCSR: a result below FLT_MIN when rounded to 24 bits is zero. All
 * terms are normal or zero; scaled by 2^64, the sum is normal wherever the rounding matters. */
static float fma_flushed(float a, float b, float c)
{
    float r = fmaf(a, b, c);

    if (fabsf(r) > FLT_MIN || r != r)
        return r;
    bool swap = fabsf(a) > fabsf(b); /* the smaller factor is scaled, so it stays finite */
    float scaled = fmaf((swap ? b : a) * 0x1p64f, swap ? a : b, c * 0x1p64f);
    return fabsf(scaled) < FLT_MIN * 0x1p64f ? 0 : r;
}

/* Effect of one tile dot product on one number. */
static float tile_step(float acc, const float a[STEP], const float b[STEP])
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

static float dot(const struct packed *w, int row, const struct act_bf16x2 *x)
{
    const bool is_f16 = w->type == Q_F16;
    float acc = 0;

    for (int k = 0; k < w->n_cols; k += STEP) {
        float x_hi[STEP] = { 0 }, x_lo[STEP] = { 0 }, w_hi[STEP] = { 0 }, w_lo[STEP] = { 0 };
        for (int i = 0; i < MIN(STEP, w->n_cols - k); i++) {
            float f = weight(w, row, k + i);
            struct hi_lo pw = split_bf16x2(f);
            x_hi[i] = bf16_to_f32(x[k / STEP].hi[i]);
            x_lo[i] = bf16_to_f32(x[k / STEP].lo[i]);
            w_hi[i] = is_f16 ? pw.hi : f;
            w_lo[i] = pw.lo;
        }
        acc = tile_step(acc, x_lo, w_hi);
        acc = tile_step(acc, x_hi, w_hi);
        if (is_f16)
            acc = tile_step(acc, x_hi, w_lo);
    }
    return acc;
}

static void gemm(const struct gemm_args *g)
{
    for (int row = g->panel_from * PANEL; row < MIN(g->panel_to * PANEL, g->w->n_rows); row++)
        for (int m = 0; m < g->x->n_rows; m++)
            g->y[(size_t)m * g->y_stride + (size_t)row] =
                dot(g->w, row, (const struct act_bf16x2 *)(const void *)acts_row(g->x, m));
}

void amx_definition_gemm_bf16(const struct gemm_args *g)
{
    gemm(g);
}

void amx_definition_gemm_f16(const struct gemm_args *g)
{
    gemm(g);
}

/* ---- attention over bf16 pages; ref_attn.c computes what the AMX set leaves to AVX-512 */

enum { TOKENS = ((int)PAGE_TOKENS + KV_GROUP - 1) / KV_GROUP * KV_GROUP };

struct softmax_state { /* state so far, relative to exp(max) */
    float max, sum;
    float *out;
};

static const struct kernels *ref_set(void)
{
    const struct kernels *k;
    struct err e;

    if (kernels_choose(&k, "ref", &e))
        abort();
    return k;
}

static const uint16_t *page_of(const struct attn_args *a, int pos, bool want_values)
{
    const struct kv_layout *l = a->layout;
    size_t at = l->offset + (size_t)a->kv_head * (l->k_bytes + l->v_bytes);
    const uint8_t *page = a->arena + a->pages[pos / PAGE_TOKENS].i * l->page_bytes + at;

    return (const uint16_t *)(const void *)(page + (want_values ? l->k_bytes : 0));
}

static float key(const struct attn_args *a, int pos, int d)
{
    int token = pos % PAGE_TOKENS, tiles = (a->layout->head_dim + 31) / 32;

    return bf16_to_f32(page_of(a, pos,
        false)[(token / 16 * tiles + d / 32) * 512 + d % 32 / 2 * 32 + token % 16 * 2 + d % 2]);
}

static float value(const struct attn_args *a, int pos, int d)
{
    int token = pos % PAGE_TOKENS;

    return bf16_to_f32(
        page_of(a, pos, true)[(d / 16 * TOKENS / 2 + token / 2) * 32 + d % 16 * 2 + token % 2]);
}

/* acc + lo * y, then + hi * y, where x is split into hi and lo */
static float add_lo_hi(float acc, const float x[STEP], const float y[STEP])
{
    float hi[STEP], lo[STEP];

    for (int i = 0; i < STEP; i++) {
        struct hi_lo p = split_bf16x2(x[i]);
        hi[i] = p.hi;
        lo[i] = p.lo;
    }
    return tile_step(tile_step(acc, lo, y), hi, y);
}

static float score(const struct attn_args *a, const float *q, int pos)
{
    int dim = a->layout->head_dim;
    float acc = 0;

    for (int d = 0; d < dim; d += STEP) {
        float x[STEP] = { 0 }, y[STEP] = { 0 };
        for (int i = 0; i < MIN(STEP, dim - d); i++) {
            x[i] = q[d + i];
            y[i] = key(a, pos, d + i);
        }
        acc = add_lo_hi(acc, x, y);
    }
    return acc * a->scale;
}

static float output(const struct attn_args *a, const float *w, int from, int to, int d, float acc)
{
    for (int pos = from; pos < to; pos += STEP) {
        float x[STEP] = { 0 }, y[STEP] = { 0 };
        for (int i = 0; i < MIN(STEP, to - pos); i++) {
            x[i] = w[pos - from + i];
            y[i] = value(a, pos + i, d);
        }
        acc = add_lo_hi(acc, x, y);
    }
    return acc;
}

static float exp_of(float x)
{
    ref_set()->softmax(&x, &x, 1, 0, 1);
    return x;
}

static void attend_block(
    const struct attn_args *a, const float *q, int from, int to, struct softmax_state *s)
{
    float w[KV_BLOCK], lane[16] = { 0 }, max = s->max;

    for (int pos = from; pos < to; pos++) {
        w[pos - from] = score(a, q, pos);
        max = w[pos - from] > max ? w[pos - from] : max;
    }
    ref_set()->softmax(w, w, to - from, max, 1);
    for (int i = 0; i < to - from; i++)
        lane[i % 16] += w[i];
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    float shrink = exp_of(s->max - max);
    s->sum = fmaf(s->sum, shrink, lane[0]);
    s->max = max;
    for (int d = 0; d < a->layout->head_dim; d++)
        s->out[d] = output(a, w, from, to, d, s->out[d] * shrink);
}

static void attend_head(const struct attn_args *a, const float *q, float *out)
{
    const int dim = a->layout->head_dim;
    float buffer[2][512];
    struct softmax_state total = { 0, 0, buffer[0] };

    CHECK(dim <= 512);
    for (int from = 0; from < a->n_keys; from += KV_SPLIT) {
        struct softmax_state s = { -INFINITY, 0, buffer[from > 0] };
        memset(s.out, 0, sizeof(buffer[0]));
        for (int b = from; b < MIN(from + KV_SPLIT, a->n_keys); b += KV_BLOCK)
            attend_block(a, q, b, MIN(b + KV_BLOCK, a->n_keys), &s);
        if (from == 0) {
            total = s;
            continue;
        }
        float max = s.max > total.max ? s.max : total.max;
        float total_factor = exp_of(total.max - max), split_factor = exp_of(s.max - max);
        total.max = max;
        total.sum = fmaf(s.sum, split_factor, total.sum * total_factor);
        for (int d = 0; d < dim; d++)
            total.out[d] = fmaf(s.out[d], split_factor, total.out[d] * total_factor);
    }
    for (int d = 0; d < dim; d++)
        out[d] = a->n_keys > 0 ? total.out[d] * (1.0f / total.sum) + 0.0f : 0.0f;
}

void amx_definition_attend(const struct attn_args *a)
{
    const struct kv_layout *l = a->layout;
    const int dim = l->head_dim;

    if (l->type != KV_BF16 || l->value_dim != dim || l->is_latent || a->window || a->soft_cap > 0 ||
        a->sinks) {
        ref_set()->attend(a);
        return;
    }
    for (int i = 0; i < a->n_rows; i++) {
        struct attn_args row = *a;
        int at = a->rows ? a->rows[i].at : i;
        row.pages = a->rows ? a->rows[i].pages : a->pages;
        row.n_keys = a->rows ? a->rows[i].n_keys : a->n_keys + i;
        for (int h = 0; h < a->n_q; h++)
            attend_head(&row, a->q + (size_t)at * a->q_stride + (size_t)h * (size_t)dim,
                a->out + (size_t)at * a->out_stride + (size_t)h * (size_t)dim);
    }
}
