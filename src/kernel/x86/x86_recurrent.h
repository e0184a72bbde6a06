/* x86_recurrent.h: operations of recurrent layers of the AVX2 and AVX-512 sets;
 * x86_avx2_recurrent.c and x86_avx512_recurrent.c compile it with vectors of different width. Such
 * a file first includes its vector operations (x86_avx2_vec16.h or x86_avx512_vec16.h) and defines:
 *
 *   STATE_VECTORS         vectors of 16 columns whose sums are in registers, 2 or 4
 *   EACH_VECTOR_COUNT(F)  F(1) .. F(STATE_VECTORS)
 *   SET_NAME(op)          name of an operation of the set */
#pragma once

#include "kernel/numerics.h"
#include "kernel/recurrent.h"

#ifdef STATE_VECTORS
INLINE vec16 sigmoid_divisor16(vec16 x)
{
    return add16(all16(1), exp16(mul16(all16(-1), x)));
}

void SET_NAME(sigmoid_mul)(float *out, const float *gate, const float *x, int n)
{
    for (int i = 0; i < n; i += 16) {
        vec16 d = sigmoid_divisor16(load_first16(gate + i, n - i));
        store_first16(out + i, n - i, div16(load_first16(x + i, n - i), d));
    }
}

/* min16 and max16 return the second operand if one is NaN. */
INLINE vec16 softplus16(vec16 x)
{
    vec16 minus = mul16(all16(-1), x), positive = max16(x, all16(0));
    vec16 t = exp16(min16(minus, x)), s = div16(t, add16(t, all16(2))), z = mul16(s, s);
    vec16 p = fma16(all16(SOFTPLUS_C7), z, all16(SOFTPLUS_C6));

    p = fma16(p, z, all16(SOFTPLUS_C5));
    p = fma16(p, z, all16(SOFTPLUS_C4));
    p = fma16(p, z, all16(SOFTPLUS_C3));
    p = fma16(p, z, all16(SOFTPLUS_C2));
    p = fma16(p, z, all16(SOFTPLUS_C1));
    p = fma16(p, z, all16(1));
    return fma16(add16(s, s), p, positive);
}

void SET_NAME(softplus)(float *out, const float *x, const float *bias, int n)
{
    for (int i = 0; i < n; i += 16) {
        vec16 v = add16(load_first16(x + i, n - i), load_first16(bias + i, n - i));
        store_first16(out + i, n - i, softplus16(v));
    }
}

INLINE float dot16(const float *x, const float *y, int n)
{
    vec16 lanes = all16(0);

    for (int i = 0; i < n; i += 16)
        lanes = fma16(load_first16(x + i, n - i), load_first16(y + i, n - i), lanes);
    return sum16(lanes) + 0.0f; /* the absent lanes may have turned -0 into 0 */
}

void SET_NAME(l2_norm)(float *out, const float *x, int n, float eps, float factor)
{
    const vec16 scale = all16(factor / sqrtf(dot16(x, x, n) + eps));

    for (int i = 0; i < n; i += 16)
        store_first16(out + i, n - i, mul16(load_first16(x + i, n - i), scale));
}

void SET_NAME(conv)(float *out, const struct conv_row *c, int n)
{
    for (int i = 0; i < n; i += 16) {
        vec16 sum = c->bias ? load_first16(c->bias + i, n - i) : all16(0);
        for (int t = 0; t < c->n_taps; t++) {
            const float *w = c->w + (size_t)t * c->w_stride + (size_t)i;
            sum = fma16(load_first16(w, n - i), load_first16(c->x[t] + i, n - i), sum);
        }
        store_first16(out + i, n - i, c->has_silu ? div16(sum, sigmoid_divisor16(sum)) : sum);
    }
}

/* ---- state: columns [at, at + 16 * n_vec) of a slice */

INLINE vec16 load_columns(const float *x, int n, int at, int i)
{
    return load_first16(x + at + 16 * i, MAX(n - at - 16 * i, 0));
}

/* Applies one update, which is not the last one. */
static void apply_update(
    const struct state_row *s, const float *from, const struct state_update *up)
{
    const int stride = state_stride(s->n_cols);

    for (int at = 0; at < stride; at += 16) {
        const vec16 u = load_columns(up->u, s->n_cols, at, 0), g = all16(up->g);
        for (int j = 0; j < s->n_keys; j++) {
            vec16 x = mul16(g, load16(from + j * stride + at));
            store16(s->to + j * stride + at, fma16(all16(up->k[j]), u, x));
        }
    }
}

struct state_pass {
    const struct state_row *s;
    const float *from;               /* S before `last` */
    const struct state_update *last; /* NULL: no update */
    float kq;
};

INLINE void pass_columns(
    const struct state_pass *p, int n_vec, int at, bool has_update, bool is_stored, bool is_delta)
{
    const struct state_row *s = p->s;
    const int stride = state_stride(s->n_cols);
    const vec16 decay = all16(has_update ? p->last->g : 1);
    vec16 with_k[4], with_q[4], u[4];

    UNROLL
    for (int i = 0; i < n_vec; i++) {
        with_k[i] = with_q[i] = all16(0);
        u[i] = has_update ? load_columns(p->last->u, s->n_cols, at, i) : all16(0);
    }
    for (int j = 0; j < s->n_keys; j++) {
        const vec16 k = all16(s->k[j]), q = all16(s->q[j]);
        const vec16 last_k = all16(has_update ? p->last->k[j] : 0);
        const float *from = p->from + j * stride + at;
        UNROLL
        for (int i = 0; i < n_vec; i++) {
            vec16 x = load16(from + 16 * i);
            if (has_update)
                x = fma16(last_k, u[i], mul16(decay, x));
            if (is_stored)
                store16(s->to + j * stride + at + 16 * i, x);
            if (is_delta)
                with_k[i] = fma16(x, k, with_k[i]);
            with_q[i] = fma16(x, q, with_q[i]);
        }
    }
    const vec16 g = all16(s->g);
    UNROLL
    for (int i = 0; i < n_vec; i++) {
        const int n = MAX(s->n_cols - at - 16 * i, 0);
        vec16 new_u;
        if (is_delta) {
            new_u = sub16(load_columns(s->v, s->n_cols, at, i), mul16(g, with_k[i]));
            new_u = mul16(all16(s->beta), new_u);
            store_first16(s->u + at + 16 * i, n, new_u);
        } else {
            new_u = load_columns(s->u, s->n_cols, at, i);
        }
        store_first16(s->out + at + 16 * i, n, fma16(all16(p->kq), new_u, mul16(g, with_q[i])));
    }
}

INLINE void pass_with(const struct state_pass *p, int n_vec, int at, bool is_delta)
{
    if (!p->last)
        pass_columns(p, n_vec, at, false, p->s->to, is_delta);
    else if (p->s->to)
        pass_columns(p, n_vec, at, true, true, is_delta);
    else
        pass_columns(p, n_vec, at, true, false, is_delta);
}

#define FOR_VECTORS(n)                                                                             \
    static void pass_##n(const struct state_pass *p, int at, bool is_delta)                        \
    {                                                                                              \
        if (is_delta)                                                                              \
            pass_with(p, n, at, true);                                                             \
        else                                                                                       \
            pass_with(p, n, at, false);                                                            \
    }
#define PASS_ENTRY(n) pass_##n,
EACH_VECTOR_COUNT(FOR_VECTORS)

typedef void (*pass_fn)(const struct state_pass *p, int at, bool is_delta);

static const pass_fn pass_fns[STATE_VECTORS] = { EACH_VECTOR_COUNT(PASS_ENTRY) };

static void run_state_row(const struct state_row *s, bool is_delta)
{
    const int n = s->n_updates, n_vec = state_stride(s->n_cols) / 16;
    struct state_pass p = { s, s->from, n ? &s->updates[n - 1] : NULL,
        dot16(s->k, s->q, s->n_keys) };

    for (int i = 0; i + 1 < n; i++, p.from = s->to)
        apply_update(s, p.from, &s->updates[i]);
    for (int i = 0; i < n_vec; i += STATE_VECTORS)
        pass_fns[MIN(n_vec - i, STATE_VECTORS) - 1](&p, 16 * i, is_delta);
}

void SET_NAME(delta_rule)(const struct state_row *s)
{
    run_state_row(s, true);
}

void SET_NAME(state_row)(const struct state_row *s)
{
    run_state_row(s, false);
}
#endif
