/* layer.c: one layer of the transformer, in the order of the paper. attention.c contains the
 * attention step and its division into units of work, ffn.c and moe.c the second half.
 *
 * Owner: the thread pool. All threads call layer_forward at once. */
#include "model/attention.h"
#include "model/ffn.h"
#include "model/forward_in.h"
#include "model/latent.h"
#include "model/layer_input.h"
#include "model/moe_forward.h"
#include "model/recurrent.h"

#include <math.h>

/* ---- steps of all rows: the threads share the columns of the output */

enum { MAX_QKV = 4 };

/* Q, K, V, and the gate of the output; a layer may lack those of keys, values and the gate. Returns
 * the number. */
static int qkv_outputs(const struct llama *m, const struct layer *l, struct gemm_out to[MAX_QKV])
{
    int n = 0;

    to[n++] = (struct gemm_out){ &l->q, m->q, m->q_stride };
    if (l->k.n_rows)
        to[n++] = (struct gemm_out){ &l->k, m->k, m->kv_stride };
    if (l->v.n_rows)
        to[n++] = (struct gemm_out){ &l->v, m->v, m->kv_stride };
    if (l->mix_gate.n_rows)
        to[n++] = (struct gemm_out){ &l->mix_gate, m->mix_gate, m->q_stride };
    return n;
}

static void qkv_proj(const struct thread_ctx *s, const struct layer *l, const struct inputs *in)
{
    struct gemm_out to[MAX_QKV];
    const int n_outputs = qkv_outputs(s->m, l, to);

    forward_gemms(s, in, to, n_outputs);
}

/* The columns of some KV heads and of their query heads. */
static void qkv_proj_heads(const struct thread_ctx *s, const struct layer *l,
    const struct inputs *in, struct head_range heads)
{
    struct gemm_out to[MAX_QKV];
    const int n_outputs = qkv_outputs(s->m, l, to);

    for (int i = 0; i < n_outputs; i++) {
        int n = to[i].w->n_panels / s->params->n_kv_heads;
        forward_gemm(s, to[i].w, in,
            (struct gemm_args){ .panel_from = heads.from * n,
                .panel_to = heads.to * n,
                .y = to[i].y + (size_t)heads.from * (size_t)n * PANEL,
                .y_stride = to[i].stride });
    }
}

static void o_proj(
    const struct thread_ctx *s, const struct layer *l, const struct act_out *attn_out)
{
    struct residual to = { .bias = l->o_bias, .norm = l->post_attn_norm };
    struct inputs in;

    forward_load_act(s, attn_out, &in);
    forward_gemm_residual(s, &l->o, &in, &to);
}

/* Families with one QK-norm over all heads: the threads share the rows. */
static void qk_norm_rows(const struct thread_ctx *s, const struct layer *l)
{
    const struct llama *m = s->m;
    const struct layer_params *p = s->params;
    int from, to;

    forward_thread_range(s, s->n_rows, &from, &to);
    for (int r = from; r < to; r++) {
        float *q = m->q + (size_t)r * m->q_stride, *k = m->k + (size_t)r * m->kv_stride;
        m->kernels->rms_norm(q, q, l->q_norm, p->n_heads * p->head_dim, m->h.eps);
        m->kernels->rms_norm(k, k, l->k_norm, p->n_kv_heads * p->head_dim, m->h.eps);
    }
}

/* ---- steps of one row and one KV head, in place. x->k and x->v are NULL if another thread appends
 * them. */

static void qkv_bias(const struct thread_ctx *s, const struct layer *l, const struct head_row *x)
{
    const struct kernels *kernels = s->m->kernels;
    const int d = s->params->head_dim, group = layer_q_per_kv_head(s->params);

    if (l->q_bias)
        kernels->add(x->q, l->q_bias + x->head * group * d, group * d);
    if (l->k_bias && x->k)
        kernels->add(x->k, l->k_bias + x->head * d, d);
    if (l->v_bias && x->k)
        kernels->add(x->v, l->v_bias + x->head * d, d);
}

/* A layer without a value projection uses the projected keys, before their norm. */
static void values(const struct thread_ctx *s, const struct layer *l, const struct head_row *x)
{
    const struct llama *m = s->m;
    const int d = s->params->head_dim;

    if (!x->k)
        return;
    if (!l->v.n_rows)
        memcpy(x->v, x->k, (size_t)d * sizeof(float));
    if (m->ones)
        m->kernels->rms_norm(x->v, x->v, m->ones, d, m->h.eps);
}

static void qk_norm(const struct thread_ctx *s, const struct layer *l, const struct head_row *x)
{
    const struct llama *m = s->m;
    const int d = s->params->head_dim;

    if (m->h.family->norms_whole_qk)
        return;
    for (int i = 0; l->q_norm && i < layer_q_per_kv_head(s->params); i++)
        m->kernels->rms_norm(x->q + i * d, x->q + i * d, l->q_norm, d, m->h.eps);
    if (l->k_norm && x->k)
        m->kernels->rms_norm(x->k, x->k, l->k_norm, d, m->h.eps);
}

float attn_query_factor(const struct thread_ctx *s, int row)
{
    const struct hparams *h = &s->m->h;
    const double turns = floor(s->m->rows[row].pos / h->query_scale_length);

    return (float)(1 + (double)h->query_scale_slope * log(1 + turns));
}

static void scale_queries(const struct thread_ctx *s, const struct head_row *x)
{
    if (s->m->h.query_scale_slope == 0)
        return;
    const float factor = attn_query_factor(s, x->row);
    for (int i = 0; i < layer_q_per_kv_head(s->params) * s->params->head_dim; i++)
        x->q[i] *= factor;
}

static void rope(const struct thread_ctx *s, const struct head_row *x)
{
    const struct llama *m = s->m;
    const bool is_window = m->window_cs && s->params->has_window;
    const int d = s->params->head_dim;
    const int n_rot = is_window ? m->h.window_rope.n_rot : m->h.rope.n_rot;
    const float *cs = (is_window ? m->window_cs : m->cs) + (size_t)x->row * (size_t)n_rot;
    const bool is_neox = m->h.family->is_rope_neox;

    if (!s->params->has_rope)
        return;
    m->kernels->rope(x->q, layer_q_per_kv_head(s->params), d, cs, n_rot, is_neox);
    if (x->k)
        m->kernels->rope(x->k, 1, d, cs, n_rot, is_neox);
}

struct kv_slot attn_kv_slot(const struct thread_ctx *s, int layer, int row, int head)
{
    const struct llama *m = s->m;
    const struct batch_row *b = &m->rows[row];
    const page_id *pages = s->params->has_window ? b->window_pages : b->pages;
    uint8_t *page = attn_arena(s) + pages[b->pos / PAGE_TOKENS].i * m->kv[layer].page_bytes;

    return kv_slot_at(&m->kv[layer], page, head, b->pos % PAGE_TOKENS);
}

static void kv_append(const struct thread_ctx *s, int layer, const struct head_row *x)
{
    if (!x->k)
        return;
    struct kv_slot slot = attn_kv_slot(s, layer, x->row, x->head);
    s->m->kernels->kv_append(&slot, x->k, x->v);
}

/* ---- the layer */

/* The forms of the input that the matrices of the feed-forward network and the router read. */
static unsigned act_kinds_of_ffn(const struct llama *m, const struct layer *l)
{
    return act_kinds(m, &l->ffn.gate, &l->ffn.up, &l->router) |
           act_kinds(m, &l->shared.gate, &l->shared.up, &l->shared_router) |
           act_kind_bit(m, &l->latent_down);
}

/* The factor of the layer's output, if the feed-forward network is the last step of the layer. */
static const float *scale_after_ffn(const struct layer *l)
{
    return l->input_gate.n_rows ? NULL : l->out_scale;
}

/* x [n_rows][d_model] += feed-forward network */
static void feed_forward(const struct thread_ctx *s, const struct layer *l)
{
    struct act_out hidden = forward_hidden_out(s, &l->ffn.down, s->n_rows);
    struct residual to = { .norm = l->post_ffn_norm, .scale = scale_after_ffn(l) };
    struct inputs in = { 0 };

    rms_norm(s, l->ffn_norm, act_kinds_of_ffn(s->m, l), &in);
    ffn_gate_up(s, &l->ffn, &in, &hidden); /* in -> hidden [n_rows][d_ff] */
    barrier(s);
    ffn_down(s, &l->ffn.down, &hidden, &to); /* x [n_rows][d_model] += W_down * hidden */
}

/* x [n_rows][d_model] += experts, and the shared expert if there is one */
static void experts(const struct thread_ctx *s, const struct layer *l)
{
    const bool has_shared = l->shared.up.n_rows > 0, is_latent = l->latent_down.n_rows > 0;
    struct act_out hidden = forward_hidden_out(s, &l->ffn.down, s->n_rows * s->m->h.n_experts_used);
    struct act_out shared_hidden = forward_shared_hidden_out(s, &l->shared.down);
    struct residual to = residual_of_shared(s, l);
    struct inputs in = { 0 };

    rms_norm(s, l->ffn_norm, act_kinds_of_ffn(s->m, l), &in);
    moe_router(s, l, &in); /* in -> scores [n_rows][n_experts]; latent [n_rows][d_latent] */
    barrier(s);
    if (s->thread == 0)
        moe_select(s, l); /* scores -> topk, weights [n_rows][n_used]; sorted entries */
    if (has_shared)       /* in -> shared_hidden [n_rows][d_ff_shared] */
        ffn_gate_up(s, &l->shared, &in, &shared_hidden);
    barrier(s);
    if (is_latent)
        moe_latent_in(s, l, &in);    /* latent -> in */
    moe_gate_up(s, l, &in, &hidden); /* in -> hidden [n_entries][d_ff] */
    barrier(s);
    moe_down(s, l, &hidden); /* hidden -> expert_out [n_entries][d_model or d_latent] */
    barrier(s);
    if (is_latent)
        moe_combine_latent(s, l); /* x [n_rows][d_model] += W_up * sum of weight * expert_out */
    else
        moe_combine(s, l); /* x [n_rows][d_model] += sum of weight * expert_out */
    if (has_shared) {
        barrier(s);
        ffn_down(s, &l->shared.down, &shared_hidden, &to); /* x += factor * shared expert */
    }
}

/* x [n_rows][d_model] += norm(norm(dense network) + norm(experts)). The router, the dense network
 * and the experts read different norms of x. `in` is computed again for each of them, after a
 * barrier that follows the last read. */
static void dense_with_experts(const struct thread_ctx *s, const struct layer *l)
{
    struct llama *m = s->m;
    struct act_out hidden = forward_hidden_out(s, &l->ffn.down, s->n_rows * m->h.n_experts_used);
    struct act_out dense_hidden = forward_shared_hidden_out(s, &l->shared.down);
    const struct gemm_out dense_out = { &l->shared.down, m->y, m->d_stride };
    struct residual to = { .norm = l->post_ffn_norm, .scale = scale_after_ffn(l) };
    struct inputs in = { 0 };

    rms_norm(s, l->router_norm, act_kind_bit(m, &l->router), &in);
    moe_router(s, l, &in); /* in -> scores [n_rows][n_experts] */
    barrier(s);
    if (s->thread == 0)
        moe_select(s, l); /* scores -> topk, weights [n_rows][n_used]; sorted entries */
    rms_norm(
        s, l->ffn_norm, act_kind_bit(m, &l->shared.gate) | act_kind_bit(m, &l->shared.up), &in);
    ffn_gate_up(s, &l->shared, &in, &dense_hidden); /* in -> dense_hidden [n_rows][d_ff] */
    barrier(s);
    rms_norm(s, l->expert_norm, act_kind_bit(m, &l->ffn.gate) | act_kind_bit(m, &l->ffn.up), &in);
    moe_gate_up(s, l, &in, &hidden); /* in -> hidden [n_entries][d_ff_expert] */
    barrier(s);
    moe_down(s, l, &hidden); /* hidden -> expert_out [n_entries][d_model] */
    barrier(s);
    forward_load_act(s, &dense_hidden, &in);
    forward_gemms(s, &in, &dense_out, 1); /* dense_hidden -> y [n_rows][d_model] */
    barrier(s);
    moe_combine_with_dense(s, l, &to); /* y, expert_out -> x */
}

/* Grouped-query attention. x [n_rows][d_model] -> attn_out [n_rows][q]. Returns false if no row is
 * needed after the KV append.
 *
 * From qkv_proj to attention, a thread works on units: some rows and some KV heads. A barrier
 * separates two steps of a unit only if the second one reads what other threads compute:
 *
 *     prefill rows:  qkv_proj | qkv_bias, qk_norm, rope, kv_append | attention |
 *     decode rows:   qkv_proj | qkv_bias, qk_norm, rope, kv_append, attention |
 *     by head:       qkv_proj, qkv_bias, qk_norm, rope, kv_append, attention |
 *
 * A prefill row attends to keys that other threads append. By head: all rows are decode rows, and
 * the KV heads divide evenly over the threads. forward.h counts the barriers. */
static bool attention_mixer(struct thread_ctx *s, int index, struct act_out *out)
{
    const struct llama *m = s->m;
    const struct layer *l = &m->w.layers[index];
    struct attn_work work = attn_work_for(s, index);
    struct inputs in = { 0 };

    rms_norm(s, l->attn_norm, act_kinds(m, &l->q, &l->k, &l->v), &in);
    if (!work.is_by_head) {
        qkv_proj(s, l, &in); /* in -> q and its gate [n_rows][q], k and v [n_rows][kv] */
        barrier(s);
    }
    if (l->q_norm && m->h.family->norms_whole_qk) {
        qk_norm_rows(s, l); /* q [n_rows][q], k [n_rows][kv] */
        barrier(s);
    }
    for (int phase = work.first_phase; phase <= ATTN_ATTEND; phase++) {
        if (phase == ATTN_ATTEND && index == m->h.n_layers - 1)
            keep_logit_rows(s); /* the last layer: n_rows = n_logit_rows */
        if (s->n_rows == 0)
            return false;
        attn_phase_begin(s, &work, phase);
        for (struct attn_unit u; attn_next_unit(s, &work, &u);) {
            if (work.is_by_head)
                qkv_proj_heads(s, l, &in, u.heads); /* in -> the heads' columns of q, k, v */
            for (int i = 0; i < u.n_append; i++) {
                struct head_row r = attn_head_row(s, &u, i);
                qkv_bias(s, l, &r); /* q [n_heads / n_kv_heads][head_dim], k and v [head_dim] */
                values(s, l, &r);
                qk_norm(s, l, &r);
                rope(s, &r);
                scale_queries(s, &r);
                kv_append(s, index, &r); /* k, v -> KV page of the row */
            }
            if (phase == ATTN_ATTEND)
                attention(s, &work, &u); /* q, KV pages -> attn_out [n_rows][q] */
        }
        barrier(s);
    }
    *out = forward_attn_out(s, l);
    return true;
}

/* Latent attention. x [n_rows][d_model] -> attn_out [n_rows][n_heads][value_dim]. The keys of all
 * rows are in the KV pages before any row attends, so there is one phase. Returns false if no row
 * is needed after the KV append. */
static bool latent_mixer(struct thread_ctx *s, int index, struct act_out *out)
{
    const struct llama *m = s->m;
    const struct layer *l = &m->w.layers[index];
    struct attn_work work = attn_work_for(s, index);
    struct inputs in = { 0 };

    rms_norm(s, l->attn_norm, act_kinds(m, l->q_a.n_rows ? &l->q_a : &l->q, &l->k, &l->k), &in);
    latent_project(s, l, &in);  /* in -> query heads and keys [n_rows][kv_rank + n_rot] */
    latent_absorb(s, l, index); /* -> q [n_rows][n_heads][kv_rank + n_rot]; keys -> KV pages */
    barrier(s);
    if (index == m->h.n_layers - 1)
        keep_logit_rows(s); /* the last layer: n_rows = n_logit_rows */
    if (s->n_rows == 0)
        return false;
    attn_phase_begin(s, &work, ATTN_ATTEND);
    for (struct attn_unit u; attn_next_unit(s, &work, &u);) {
        if (u.piece >= 0)
            attn_head_row(s, &u, 0); /* copies the queries for a split-KV piece */
        attention(s, &work, &u);     /* q, KV pages -> latent.out [n_rows][n_heads][kv_rank] */
    }
    barrier(s);
    latent_values(s, l); /* -> attn_out [n_rows][n_heads][value_dim] */
    barrier(s);
    *out = forward_attn_out(s, l);
    return true;
}

/* x [n_rows][d_model] += Wo * mixer(x). Returns false if no row is needed after it. */
static bool add_mixer(struct thread_ctx *s, int index)
{
    static bool (*const mixers[])(struct thread_ctx *, int, struct act_out *) = {
        [MIXER_ATTENTION] = attention_mixer,
        [MIXER_LATENT] = latent_mixer,
        [MIXER_DELTA_NET] = delta_net_forward,
        [MIXER_SHORT_CONV] = short_conv_forward,
        [MIXER_MAMBA2] = mamba2_forward,
    };
    struct act_out mixed;

    if (s->params->mixer == MIXER_NONE) {
        if (index == s->m->h.n_layers - 1)
            keep_logit_rows(s);
        return s->n_rows > 0;
    }
    if (!mixers[s->params->mixer](s, index, &mixed))
        return false;
    o_proj(s, &s->m->w.layers[index], &mixed);
    return true;
}

/* x [n_rows][d_model] += feed-forward network, or mixture of experts, or both */
static void add_network(struct thread_ctx *s, int index)
{
    const struct layer *l = &s->m->w.layers[index];

    if (!hparams_has_experts(&s->m->h, index))
        feed_forward(s, l);
    else if (s->m->h.family->has_dense_with_experts)
        dense_with_experts(s, l);
    else
        experts(s, l);
}

/* Shapes: x is the residual stream; q stands for n_heads * head_dim, kv for n_kv_heads * head_dim,
 * values for n_value_heads * value_dim. `in` is the input of the next GEMMs, quantised as they read
 * it. In some families a layer has only one of the two halves. */
void layer_forward(struct thread_ctx *s, int index)
{
    struct llama *m = s->m;
    const struct layer *l = &m->w.layers[index];

    s->params = &m->h.layers[index];
    s->has_kv = hparams_has_kv(&m->h, index);
    if (!add_mixer(s, index))
        return;
    if (s->params->has_ffn) {
        if (s->params->mixer != MIXER_NONE)
            barrier(s);
        add_network(s, index);
    }
    if (l->input_gate.n_rows) {
        barrier(s);
        layer_input_add(s, l, index); /* x += per-layer input */
    }
    poll_stop(s);
    barrier(s);
}
