/* ref_recurrent.c: definition of the operations of recurrent layers. */
#include "kernel/numerics.h"
#include "kernel/recurrent.h"
#include "kernel/ref/ref.h"

#include <math.h>

void ref_sigmoid_mul(float *out, const float *gate, const float *x, int n)
{
    for (int i = 0; i < n; i++)
        out[i] = x[i] / (1.0f + ref_exp(-gate[i]));
}

static float softplus(float x)
{
    float t = ref_exp(-fabsf(x)), s = t / (t + 2.0f), z = s * s;
    float p = fmaf(SOFTPLUS_C7, z, SOFTPLUS_C6);

    p = fmaf(p, z, SOFTPLUS_C5);
    p = fmaf(p, z, SOFTPLUS_C4);
    p = fmaf(p, z, SOFTPLUS_C3);
    p = fmaf(p, z, SOFTPLUS_C2);
    p = fmaf(p, z, SOFTPLUS_C1);
    p = fmaf(p, z, 1.0f);
    return fmaf(s + s, p, x > 0.0f ? x : 0.0f);
}

void ref_softplus(float *out, const float *x, const float *bias, int n)
{
    for (int i = 0; i < n; i++)
        out[i] = softplus(x[i] + bias[i]);
}

/* Sum of products in 16 lanes, as in rms_norm. A sum of -0 is 0. */
static float dot(const float *x, const float *y, int n)
{
    float lane[LANES] = { 0 };

    for (int i = 0; i < n; i++)
        lane[i % LANES] = fmaf(x[i], y[i], lane[i % LANES]);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0] + 0.0f;
}

void ref_l2_norm(float *out, const float *x, int n, float eps, float factor)
{
    float scale = factor / sqrtf(dot(x, x, n) + eps);

    for (int i = 0; i < n; i++)
        out[i] = x[i] * scale;
}

void ref_conv(float *out, const struct conv_row *c, int n)
{
    for (int i = 0; i < n; i++) {
        float sum = c->bias ? c->bias[i] : 0.0f;
        for (int t = 0; t < c->n_taps; t++)
            sum = fmaf(c->w[(size_t)t * c->w_stride + (size_t)i], c->x[t][i], sum);
        out[i] = c->has_silu ? sum / (1.0f + ref_exp(-sum)) : sum;
    }
}

/* Applies the updates to element (j, c) of S. The padding of a row has u = 0. */
static float updated(const struct state_row *s, int j, int c)
{
    float x = s->from[j * state_stride(s->n_cols) + c];

    for (int i = 0; i < s->n_updates; i++) {
        const struct state_update *up = &s->updates[i];
        x = fmaf(up->k[j], c < s->n_cols ? up->u[c] : 0.0f, up->g * x);
    }
    return x;
}

/* kq: k . q */
static void state_column(const struct state_row *s, int c, bool is_delta, float kq)
{
    float with_k = 0.0f, with_q = 0.0f;

    for (int j = 0; j < s->n_keys; j++) {
        float x = updated(s, j, c);
        if (s->to)
            s->to[j * state_stride(s->n_cols) + c] = x;
        with_k = fmaf(x, s->k[j], with_k);
        with_q = fmaf(x, s->q[j], with_q);
    }
    if (c >= s->n_cols)
        return;
    if (is_delta)
        s->u[c] = s->beta * (s->v[c] - s->g * with_k);
    s->out[c] = fmaf(kq, s->u[c], s->g * with_q);
}

void ref_delta_rule(const struct state_row *s)
{
    const float kq = dot(s->k, s->q, s->n_keys);

    for (int c = 0; c < state_stride(s->n_cols); c++)
        state_column(s, c, true, kq);
}

void ref_state_row(const struct state_row *s)
{
    const float kq = dot(s->k, s->q, s->n_keys);

    for (int c = 0; c < state_stride(s->n_cols); c++)
        state_column(s, c, false, kq);
}
