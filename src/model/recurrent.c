/* recurrent.c: see recurrent.h. kernel/recurrent.h defines a row of a state, state_slot.h a slot.
 *
 * A run resumes from a slot at its first position: S at the slot's base, and the rows of its log up
 * to that position, which the first pass over S applies. The run stores S as it is before its last
 * rows, at most STATE_LOG_ROWS, in the slot `state_out`; these rows are its log. The arithmetic of
 * an element of S is that of one update after the other, wherever S is stored in between.
 *
 * Work is divided by parts of rows, and for S by value heads and slices of STATE_COLS columns, so
 * that a slice stays in a thread's cache for all rows of a run.
 *
 * Owner: the thread pool. */
#include "model/recurrent.h"

#include <math.h>

enum { TASKS_PER_THREAD = 2 };

struct part_range {
    int from, to;
};

/* Part `part` of n_parts of n elements. */
static struct part_range part_of(int n, int part, int n_parts)
{
    return (struct part_range){ (int)((int64_t)n * part / n_parts),
        (int)((int64_t)n * (part + 1) / n_parts) };
}

/* Parts of each of n things (rows, runs), so that all threads have work. */
static int parts_for(const struct thread_ctx *s, int n, int most)
{
    return MAX(MIN((TASKS_PER_THREAD * s->n_threads + n - 1) / n, most), 1);
}

static int n_keys_of(const struct recurrent_params *p)
{
    return p->n_key_heads * p->key_dim;
}

/* The slot from which a run resumes, or to which it is written, in a recurrent layer. */
static struct state_layer slot_layer(const struct thread_ctx *s, state_id id)
{
    const struct llama *m = s->m;

    return state_layer_at(
        &m->state, m->state_arena + (size_t)id.i * m->state.bytes, s->params->recurrent_index);
}

static bool is_resumed(const struct state_run *run)
{
    return run->pos > 0;
}

/* ---- projections, convolution, gates */

static void project(const struct thread_ctx *s, const struct layer *l, const struct inputs *in)
{
    const struct llama *m = s->m;
    const struct gemm_out to[] = {
        { &l->recurrent.in, m->recurrent.conv_in, m->recurrent.conv_stride },
        { &l->mix_gate, m->mix_gate, m->q_stride },
        { &l->recurrent.alpha, m->recurrent.g, m->recurrent.head_stride },
        { &l->recurrent.beta, m->recurrent.beta, m->recurrent.head_stride },
    };

    forward_gemms(s, in, to, (int)ARRAY_LEN(to));
}

/* Input of the convolution at a position up to that of row r, which belongs to `run`. */
static const float *conv_input(const struct thread_ctx *s, const struct state_run *run,
    const struct state_layer *from, int pos)
{
    const struct llama *m = s->m;

    if (pos >= run->pos)
        return m->recurrent.conv_in +
               (size_t)(run->row + pos - run->pos) * m->recurrent.conv_stride;
    return pos >= 0 ? state_conv_row(&m->state, from, pos) : m->recurrent.zeros;
}

/* First channel of head h: the heads are those of q, those of k, then the value heads. */
static int channel_of(const struct recurrent_params *p, int h)
{
    const int n = 2 * p->n_key_heads;

    return h < n ? h * p->key_dim : n * p->key_dim + (h - n) * p->value_dim;
}

/* The convolution of row r, from channel `at` on. */
static struct conv_row conv_row_of(const struct thread_ctx *s, const struct layer *l, int r, int at)
{
    const struct llama *m = s->m;
    const struct recurrent_params *p = &m->h.recurrent;
    const struct state_run *run = &m->state_runs[m->rows[r].run];
    struct state_layer from = { 0 };
    struct conv_row c = { .w = l->recurrent.conv + at,
        .w_stride = (size_t)p->n_channels,
        .bias = l->recurrent.conv_bias ? l->recurrent.conv_bias + at : NULL,
        .n_taps = p->n_taps };

    if (is_resumed(run))
        from = slot_layer(s, run->state);
    for (int t = 0; t < p->n_taps; t++)
        c.x[t] = conv_input(s, run, &from, m->rows[r].pos + t - (p->n_taps - 1)) + at;
    return c;
}

/* Convolution of some heads of row r, and the norms of q and k. */
static void conv_heads(
    const struct thread_ctx *s, const struct layer *l, int r, struct part_range heads)
{
    const struct llama *m = s->m;
    const struct recurrent_params *p = &m->h.recurrent;
    const int at = channel_of(p, heads.from), n = channel_of(p, heads.to) - at;
    float *out = m->recurrent.conv + (size_t)r * m->recurrent.conv_stride;
    struct conv_row c = conv_row_of(s, l, r, at);

    c.has_silu = true;
    m->kernels->conv(out + at, &c, n);
    for (int h = heads.from; h < MIN(heads.to, 2 * p->n_key_heads); h++) {
        const float factor = h < p->n_key_heads ? (float)(1 / sqrt(p->key_dim)) : 1;
        float *x = out + channel_of(p, h);
        m->kernels->l2_norm(x, x, p->key_dim, m->h.eps, factor);
    }
}

/* g = exp(a * softplus(alpha + bias)), beta = sigmoid(beta) */
static void gates(const struct thread_ctx *s, const struct layer *l, int r)
{
    const struct llama *m = s->m;
    const int n = m->h.recurrent.n_value_heads;
    float *g = m->recurrent.g + (size_t)r * m->recurrent.head_stride;
    float *beta = m->recurrent.beta + (size_t)r * m->recurrent.head_stride;

    m->kernels->softplus(g, g, l->recurrent.dt_bias, n);
    for (int h = 0; h < n; h++) {
        g[h] *= l->recurrent.a[h];
        beta[h] = -beta[h];
    }
    m->kernels->softmax(g, g, n, 0, 1); /* exp */
    m->kernels->softmax(beta, beta, n, 0, 1);
    for (int h = 0; h < n; h++)
        beta[h] = 1 / (1 + beta[h]);
}

static void convolve(const struct thread_ctx *s, const struct layer *l)
{
    const struct recurrent_params *p = &s->m->h.recurrent;
    const int n_heads = 2 * p->n_key_heads + p->n_value_heads;
    const int n_parts = parts_for(s, s->n_rows, n_heads);

    for (int i; (i = thread_pool_next_task(s->m->thread_pool)) < s->n_rows * n_parts;) {
        const int r = i / n_parts, part = i % n_parts;
        conv_heads(s, l, r, part_of(n_heads, part, n_parts));
        if (part == 0)
            gates(s, l, r);
    }
}

/* ---- state */

static int key_head_of(const struct llama *m, int value_head)
{
    const struct recurrent_params *p = &m->h.recurrent;

    return m->h.family->has_tiled_value_heads ? value_head % p->n_key_heads
                                              : value_head / (p->n_value_heads / p->n_key_heads);
}

/* The rows of the log of `from` before the run, in their order; returns their number. */
static int logged_updates(const struct thread_ctx *s, const struct state_run *run,
    const struct state_layer *from, int head, int column, struct state_update out[STATE_LOG_ROWS])
{
    const struct llama *m = s->m;
    const int base = from->header->base, key = key_head_of(m, head) * m->h.recurrent.key_dim;

    CHECK(base >= 0 && base <= run->pos && run->pos - base <= from->header->n_log);
    for (int i = 0; i < run->pos - base; i++) {
        const size_t row = state_log_row(base + i);
        out[i] = (struct state_update){ from->k + row * m->state.keys + key,
            from->u + row * m->state.values + column,
            from->g[row * m->state.heads + (size_t)head] };
    }
    return run->pos - base;
}

/* One row in a slice of a state. Mamba2: u is the value times the time step, which is in beta. */
static void run_row(const struct thread_ctx *s, const struct state_row *x)
{
    if (s->params->mixer == MIXER_DELTA_NET) {
        s->m->kernels->delta_rule(x);
        return;
    }
    for (int i = 0; i < x->n_cols; i++)
        x->u[i] = x->beta * x->v[i];
    s->m->kernels->state_row(x);
}

/* All rows of a run in one slice of the state of a value head. The first rows leave S in the slot;
 * from the row on with which the log begins, S is in the thread's memory. */
static void run_slice(const struct thread_ctx *s, const struct state_run *run, int head, int slice)
{
    const struct llama *m = s->m;
    const struct recurrent_params *p = &m->h.recurrent;
    const int n_before_log = MAX(run->n - STATE_LOG_ROWS, 0);
    const int column = head * p->value_dim + slice * STATE_COLS;
    const size_t at = state_slice_at(p, head, slice);
    struct state_layer to = slot_layer(s, run->state_out);
    struct state_update updates[STATE_LOG_ROWS];
    struct state_row x = { .n_keys = p->key_dim,
        .n_cols = MIN(p->value_dim - slice * STATE_COLS, STATE_COLS),
        .from = to.s + at,
        .to = to.s + at,
        .updates = updates };

    if (is_resumed(run)) {
        struct state_layer from = slot_layer(s, run->state);
        x.from = from.s + at;
        x.n_updates = logged_updates(s, run, &from, head, column, updates);
    } else {
        memset(x.to, 0, (size_t)(p->key_dim * state_stride(x.n_cols)) * sizeof(*x.to));
    }
    for (int i = 0; i < run->n; i++) {
        const size_t r = (size_t)(run->row + i);
        const float *channels = m->recurrent.conv + r * m->recurrent.conv_stride;
        x.q = channels + p->query_channel + key_head_of(m, head) * p->key_dim;
        x.k = channels + p->key_channel + key_head_of(m, head) * p->key_dim;
        x.v = channels + p->value_channel + column;
        x.g = m->recurrent.g[r * m->recurrent.head_stride + (size_t)head];
        x.beta = m->recurrent.beta[r * m->recurrent.head_stride + (size_t)head];
        x.u = m->recurrent.u + r * m->recurrent.value_stride + column;
        x.out = m->recurrent.out + r * m->recurrent.value_stride + column;
        if (i > n_before_log)
            x.to = i + 1 < run->n ? s->thread_mem->state : NULL;
        run_row(s, &x);
        x.from = x.to;
        updates[0] = (struct state_update){ x.k, x.u, x.g };
        x.n_updates = 1;
    }
}

/* The runs are the first ones of the step: those of the rows that pass this layer. */
static int n_runs_of(const struct thread_ctx *s)
{
    return s->m->rows[s->n_rows - 1].run + 1;
}

static void run_states(const struct thread_ctx *s)
{
    const struct recurrent_params *p = &s->m->h.recurrent;
    const int n_slices = state_n_slices(p), per_run = p->n_value_heads * n_slices;
    const int n_tasks = n_runs_of(s) * per_run;

    for (int i; (i = thread_pool_next_task(s->m->thread_pool)) < n_tasks;)
        run_slice(s, &s->m->state_runs[i / per_run], i % per_run / n_slices, i % n_slices);
}

/* ---- output, log */

static void copy_part(float *to, const float *from, struct part_range r)
{
    memcpy(to + r.from, from + r.from, (size_t)(r.to - r.from) * sizeof(*to));
}

/* Inputs of the convolution from the first one on that a row of the log reads. Those before the run
 * are already in the slot if the run resumed from the same one. */
static void store_conv_inputs(
    const struct thread_ctx *s, const struct state_run *run, int part, int n_parts)
{
    const struct llama *m = s->m;
    const struct part_range range = part_of((int)m->state.channels, part, n_parts);
    const int end = run->pos + run->n, base = end - MIN(run->n, STATE_LOG_ROWS);
    const bool is_in_place = run->state.i == run->state_out.i;
    const int first = MAX(base - (m->h.recurrent.n_taps - 1), is_in_place ? run->pos : 0);
    struct state_layer to = slot_layer(s, run->state_out), from = { 0 };

    if (is_resumed(run))
        from = slot_layer(s, run->state);
    for (int pos = first; pos < end; pos++)
        copy_part(state_conv_row(&m->state, &to, pos), conv_input(s, run, &from, pos), range);
}

/* Stores a part of the last rows of a run in the slot. */
static void store_log(
    const struct thread_ctx *s, const struct state_run *run, int part, int n_parts)
{
    const struct llama *m = s->m;
    const struct recurrent_params *p = &m->h.recurrent;
    const int n_log = MIN(run->n, STATE_LOG_ROWS);
    struct state_layer to = slot_layer(s, run->state_out);

    store_conv_inputs(s, run, part, n_parts);
    for (int i = run->n - n_log; i < run->n; i++) {
        const size_t r = (size_t)(run->row + i), row = state_log_row(run->pos + i);
        const float *k = m->recurrent.conv + r * m->recurrent.conv_stride + p->key_channel;
        copy_part(to.k + row * m->state.keys, k, part_of(n_keys_of(p), part, n_parts));
        copy_part(to.u + row * m->state.values, m->recurrent.u + r * m->recurrent.value_stride,
            part_of(p->n_value_heads * p->value_dim, part, n_parts));
        copy_part(to.g + row * m->state.heads, m->recurrent.g + r * m->recurrent.head_stride,
            part_of(p->n_value_heads, part, n_parts));
    }
    if (part == 0)
        *to.header = (struct state_header){ .base = run->pos + run->n - n_log, .n_log = n_log };
}

/* out = RMSNorm(o) * silu(gate), for some value heads of output row r. */
static void gated_norm(const struct thread_ctx *s, const struct layer *l, const struct act_out *to,
    int r, struct part_range heads)
{
    const struct llama *m = s->m;
    const int d = m->h.recurrent.value_dim;
    const size_t row = (size_t)picked_row(s, r);

    for (int h = heads.from; h < heads.to; h++) {
        const float *o = m->recurrent.out + row * m->recurrent.value_stride + h * d;
        const float *gate = m->mix_gate + row * m->q_stride + h * d;
        float *out = to->floats + (size_t)r * to->stride + h * d;
        m->kernels->rms_norm(out, o, l->recurrent.norm, d, m->h.eps);
        m->kernels->silu_mul(out, gate, out, d);
    }
    forward_quantise_tile(s, to, r, heads.from * d, (heads.to - heads.from) * d);
}

/* out = RMSNorm((o + d * value) * silu(gate)), for some groups of value heads of output row r. The
 * heads of a group have the same key, and are normalised together. */
static void gated_group_norm(const struct thread_ctx *s, const struct layer *l,
    const struct act_out *to, int r, struct part_range groups)
{
    const struct llama *m = s->m;
    const struct recurrent_params *p = &m->h.recurrent;
    const int d = p->value_dim, n_heads = p->n_value_heads / p->n_key_heads, width = n_heads * d;
    const size_t row = (size_t)picked_row(s, r);
    const float *o = m->recurrent.out + row * m->recurrent.value_stride;
    const float *value = m->recurrent.conv + row * m->recurrent.conv_stride + p->value_channel;
    const float *gate = m->mix_gate + row * m->q_stride;
    float *out = to->floats + (size_t)r * to->stride;

    for (int h = groups.from * n_heads; h < groups.to * n_heads; h++) {
        memcpy(out + h * d, o + h * d, (size_t)d * sizeof(*out));
        m->kernels->add_scaled(out + h * d, l->recurrent.d[h], value + h * d, d);
        m->kernels->silu_mul(out + h * d, gate + h * d, out + h * d, d);
    }
    for (int at = groups.from * width; at < groups.to * width; at += width)
        m->kernels->rms_norm(out + at, out + at, l->recurrent.norm + at, width, m->h.eps);
    forward_quantise_tile(s, to, r, groups.from * width, (groups.to - groups.from) * width);
}

/* Stores the log of all runs, and computes the output of the rows that are needed, in parts. */
static void finish_rows(struct thread_ctx *s, const struct layer *l, struct act_out *out,
    int most_parts,
    void (*output)(const struct thread_ctx *s, const struct layer *l, const struct act_out *to,
        int r, struct part_range part))
{
    const int n_runs = n_runs_of(s);
    const int n_log_parts = parts_for(s, n_runs, most_parts), n_log_tasks = n_runs * n_log_parts;

    if (l == &s->m->w.layers[s->m->h.n_layers - 1])
        keep_logit_rows(s);
    const int n_parts = parts_for(s, MAX(s->n_rows, 1), most_parts);
    *out = forward_recurrent_out(s, l, n_parts, l->o.n_cols / most_parts);
    const int n_tasks = n_log_tasks + s->n_rows * n_parts;
    for (int i; (i = thread_pool_next_task(s->m->thread_pool)) < n_tasks;)
        if (i < n_log_tasks)
            store_log(s, &s->m->state_runs[i / n_log_parts], i % n_log_parts, n_log_parts);
        else
            output(s, l, out, (i - n_log_tasks) / n_parts,
                part_of(most_parts, (i - n_log_tasks) % n_parts, n_parts));
    barrier(s);
}

bool delta_net_forward(struct thread_ctx *s, int index, struct act_out *out)
{
    const struct llama *m = s->m;
    const struct layer *l = &m->w.layers[index];
    const struct recurrent_weights *w = &l->recurrent;
    struct inputs in = { 0 };

    rms_norm(s, l->attn_norm,
        act_kinds(m, &w->in, &w->alpha, &w->beta) | act_kind_bit(m, &l->mix_gate), &in);
    project(s, l, &in); /* in -> conv_in, gate, alpha, beta */
    barrier(s);
    convolve(s, l); /* conv_in -> q, k [key heads][key_dim], v [value heads][value_dim]; g, beta */
    barrier(s);
    run_states(s); /* q, k, v, g, beta -> u, o [value heads][value_dim]; S in the slots */
    barrier(s);
    finish_rows(s, l, out, m->h.recurrent.n_value_heads, gated_norm); /* o, gate -> attn_out */
    return s->n_rows > 0;
}

/* ---- Mamba2 */

/* dt = softplus(alpha + bias), g = exp(a * dt) */
static void time_steps(const struct thread_ctx *s, const struct layer *l, int r)
{
    const struct llama *m = s->m;
    const int n = m->h.recurrent.n_value_heads;
    float *g = m->recurrent.g + (size_t)r * m->recurrent.head_stride;
    float *dt = m->recurrent.beta + (size_t)r * m->recurrent.head_stride;

    m->kernels->softplus(dt, g, l->recurrent.dt_bias, n);
    for (int h = 0; h < n; h++)
        g[h] = dt[h] * l->recurrent.a[h];
    m->kernels->softmax(g, g, n, 0, 1); /* exp */
}

static void mamba2_convolve(const struct thread_ctx *s, const struct layer *l)
{
    enum { BLOCK = 64 };
    const struct llama *m = s->m;
    const int n_channels = m->h.recurrent.n_channels, n_blocks = (n_channels + BLOCK - 1) / BLOCK;
    const int n_parts = parts_for(s, s->n_rows, n_blocks);

    for (int i; (i = thread_pool_next_task(m->thread_pool)) < s->n_rows * n_parts;) {
        const int r = i / n_parts, part = i % n_parts;
        const struct part_range blocks = part_of(n_blocks, part, n_parts);
        const int at = blocks.from * BLOCK, end = MIN(blocks.to * BLOCK, n_channels);
        struct conv_row c = conv_row_of(s, l, r, at);
        c.has_silu = true;
        m->kernels->conv(
            m->recurrent.conv + (size_t)r * m->recurrent.conv_stride + at, &c, end - at);
        if (part == 0)
            time_steps(s, l, r);
    }
}

bool mamba2_forward(struct thread_ctx *s, int index, struct act_out *out)
{
    const struct llama *m = s->m;
    const struct layer *l = &m->w.layers[index];
    const struct recurrent_weights *w = &l->recurrent;
    const struct gemm_out to[] = {
        { &w->in, m->recurrent.conv_in, m->recurrent.conv_stride },
        { &l->mix_gate, m->mix_gate, m->q_stride },
        { &w->alpha, m->recurrent.g, m->recurrent.head_stride },
    };
    struct inputs in = { 0 };

    rms_norm(s, l->attn_norm, act_kinds(m, &w->in, &l->mix_gate, &w->alpha), &in);
    forward_gemms(s, &in, to, (int)ARRAY_LEN(to)); /* in -> conv_in, gate, alpha */
    barrier(s);
    mamba2_convolve(s, l); /* conv_in -> values x, keys B and queries C of all heads; g, dt */
    barrier(s);
    run_states(s); /* x, B, C, g, dt -> o [value heads][value_dim]; S in the slots */
    barrier(s);
    finish_rows(s, l, out, m->h.recurrent.n_key_heads, gated_group_norm); /* o, gate -> attn_out */
    return s->n_rows > 0;
}

/* ---- short convolution: out = gate * conv(factor * in) */

/* Channels are divided into blocks that can be quantised independently, or not at all. */
static int short_conv_block(const struct llama *m)
{
    const int n = m->h.recurrent.n_channels;

    return n % act_block(ACT_Q8_K) == 0 ? act_block(ACT_Q8_K) : n;
}

static void multiply_inputs(const struct thread_ctx *s)
{
    const struct llama *m = s->m;
    int from, to;

    forward_thread_range(s, s->n_rows, &from, &to);
    for (int r = from; r < to; r++) {
        float *x = m->recurrent.conv_in + (size_t)r * m->recurrent.conv_stride;
        const float *factor = m->recurrent.conv + (size_t)r * m->recurrent.conv_stride;
        for (int i = 0; i < m->h.recurrent.n_channels; i++)
            x[i] *= factor[i];
    }
}

static void gated_conv(const struct thread_ctx *s, const struct layer *l, const struct act_out *to,
    int r, struct part_range blocks)
{
    const struct llama *m = s->m;
    const int at = blocks.from * short_conv_block(m), n = blocks.to * short_conv_block(m) - at;
    const size_t row = (size_t)picked_row(s, r);
    const float *gate = m->mix_gate + row * m->q_stride + at;
    float *out = to->floats + (size_t)r * to->stride + at;
    struct conv_row c = conv_row_of(s, l, (int)row, at);

    m->kernels->conv(out, &c, n);
    for (int i = 0; i < n; i++)
        out[i] *= gate[i];
    forward_quantise_tile(s, to, r, at, n);
}

bool short_conv_forward(struct thread_ctx *s, int index, struct act_out *out)
{
    const struct llama *m = s->m;
    const struct layer *l = &m->w.layers[index];
    const struct gemm_out to[] = {
        { &l->recurrent.in, m->recurrent.conv_in, m->recurrent.conv_stride },
        { &l->recurrent.factor, m->recurrent.conv, m->recurrent.conv_stride },
        { &l->mix_gate, m->mix_gate, m->q_stride },
    };
    struct inputs in = { 0 };

    rms_norm(
        s, l->attn_norm, act_kinds(m, &l->recurrent.in, &l->recurrent.factor, &l->mix_gate), &in);
    forward_gemms(s, &in, to, (int)ARRAY_LEN(to)); /* in -> conv_in, factor, gate */
    barrier(s);
    multiply_inputs(s); /* conv_in *= factor */
    barrier(s);
    finish_rows(s, l, out, m->h.recurrent.n_channels / short_conv_block(m), gated_conv);
    return s->n_rows > 0;
}
