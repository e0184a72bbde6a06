#include "model/ffn.h"
#include "model/moe.h"
#include "model/moe_forward.h"

#include <math.h>

/* ---- router */

void moe_topk(const float *scores, int n, int n_used, int *topk, float *values)
{
    int found = 0;

    for (int i = 0; i < n; i++) {
        float v = isnan(scores[i]) ? -INFINITY : scores[i];
        if (found == n_used && !(v > values[found - 1]))
            continue;
        int at = found < n_used ? found++ : found - 1;
        for (; at > 0 && v > values[at - 1]; at--) {
            topk[at] = topk[at - 1];
            values[at] = values[at - 1];
        }
        topk[at] = i;
        values[at] = v;
    }
}

/* x[i] = sigmoid(x[i]) */
static void sigmoid(const struct kernels *k, float *x, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = -x[i];
    k->softmax(x, x, n, 0, 1); /* exp(-x) */
    for (int i = 0; i < n; i++)
        x[i] = 1 / (1 + x[i]);
}

/* x = softmax(x) */
static void softmax(const struct kernels *k, float *x, int n)
{
    double sum = k->softmax(x, x, n, k->max(x, n), 1);

    for (int i = 0; i < n; i++)
        x[i] = (float)((double)x[i] / sum);
}

/* Replaces the scores of experts of groups that are not used by -inf. The score of a group is its
 * best one, or the sum of its two best. */
static void keep_best_groups(const struct hparams *h, float *scores)
{
    const int n = h->n_experts / h->n_expert_groups;
    float sums[MAX_EXPERTS / 2], unused[MAX_EXPERTS / 2];
    int best[MAX_EXPERTS / 2];
    bool is_used[MAX_EXPERTS / 2] = { false };

    for (int g = 0; g < h->n_expert_groups; g++) {
        float two[2];
        moe_topk(scores + g * n, n, h->n_group_best, best, two);
        sums[g] = h->n_group_best == 1 ? two[0] : two[0] + two[1];
    }
    moe_topk(sums, h->n_expert_groups, h->n_groups_used, best, unused);
    for (int i = 0; i < h->n_groups_used; i++)
        is_used[best[i]] = true;
    for (int i = 0; i < h->n_experts; i++)
        if (!is_used[i / n])
            scores[i] = -INFINITY;
}

/* The bias and the groups enter the selection only. The weights are those of the scores without
 * bias. */
static void choose_with_bias(
    const struct hparams *h, const float *values, const float *bias, int *topk, float *weights)
{
    float biased[MAX_EXPERTS];

    for (int i = 0; i < h->n_experts; i++)
        biased[i] = bias ? values[i] + bias[i] : values[i];
    if (h->n_expert_groups > 1)
        keep_best_groups(h, biased);
    moe_topk(biased, h->n_experts, h->n_experts_used, topk, weights);
    for (int i = 0; i < h->n_experts_used; i++)
        weights[i] = values[topk[i]];
}

void moe_route(const struct kernels *k, const struct hparams *h, float *scores, const float *bias,
    int *topk, float *weights)
{
    const int n_used = h->n_experts_used;
    double sum = 1;

    if (h->router == ROUTER_SIGMOID)
        sigmoid(k, scores, h->n_experts);
    else if (h->router == ROUTER_SOFTMAX)
        softmax(k, scores, h->n_experts);
    if (bias || h->n_expert_groups > 1)
        choose_with_bias(h, scores, bias, topk, weights);
    else
        moe_topk(scores, h->n_experts, n_used, topk, weights);
    if (h->router == ROUTER_SOFTMAX_CHOSEN) {
        sum = k->softmax(weights, weights, n_used, weights[0], 1);
    } else if (h->norms_expert_weights) {
        sum = 1e-20; /* all weights may be 0 */
        for (int i = 0; i < n_used; i++)
            sum += (double)weights[i];
    }
    for (int i = 0; i < n_used; i++)
        weights[i] = (float)((double)weights[i] / sum * (double)h->expert_weight_scale);
}

void moe_sort(struct moe *x, const struct hparams *h, int n_rows)
{
    const int n_uses = n_rows * h->n_experts_used;

    memset(x->first, 0, (size_t)(h->n_experts + 1) * sizeof(*x->first));
    for (int i = 0; i < n_uses; i++)
        x->first[x->topk[i] + 1]++;
    for (int e = 0; e < h->n_experts; e++)
        x->first[e + 1] += x->first[e];
    for (int i = 0; i < n_uses; i++) { /* advances first[e] by one for each entry of expert e */
        x->entry[i] = x->first[x->topk[i]]++;
        x->row[x->entry[i]] = i / h->n_experts_used;
    }
    for (int e = h->n_experts; e > 0; e--)
        x->first[e] = x->first[e - 1];
    x->first[0] = 0;
}

void moe_router(const struct thread_ctx *s, const struct layer *l, const struct inputs *in)
{
    const struct moe *x = &s->m->moe;
    struct gemm_out to[3] = { { &l->router, x->scores, x->stride } };
    int n = 1;

    if (l->shared_router.n_rows)
        to[n++] = (struct gemm_out){ &l->shared_router, x->shared, PANEL };
    if (l->latent_down.n_rows)
        to[n++] = (struct gemm_out){ &l->latent_down, x->latent, x->out_stride };
    forward_gemms(s, in, to, n);
}

/* The input of the router is also divided by sqrt(d_model), if it has a norm of its own. */
static void scale_scores(const struct thread_ctx *s, float *scores)
{
    const float factor = 1 / sqrtf((float)s->m->h.d_model);

    for (int i = 0; i < s->m->h.n_experts; i++)
        scores[i] *= factor;
}

/* Multiplies the weights of a row's experts by the factors of their outputs. */
static void scale_weights(const struct hparams *h, const float *factors, const int *topk, float *w)
{
    for (int i = 0; i < h->n_experts_used; i++)
        w[i] *= factors[topk[i]];
}

void moe_select(const struct thread_ctx *s, const struct layer *l)
{
    struct moe *x = &s->m->moe;
    const struct hparams *h = &s->m->h;

    for (int r = 0; l->router_score_bias && r < s->n_rows; r++)
        s->m->kernels->add(x->scores + (size_t)r * x->stride, l->router_score_bias, h->n_experts);
    for (int r = 0; r < s->n_rows; r++) {
        float *scores = x->scores + (size_t)r * x->stride;
        int *topk = x->topk + r * h->n_experts_used;
        float *weights = x->weights + r * h->n_experts_used;
        if (l->router_norm)
            scale_scores(s, scores);
        moe_route(s->m->kernels, h, scores, l->router_bias, topk, weights);
        if (l->expert_scale)
            scale_weights(h, l->expert_scale, topk, weights);
    }
    for (int r = 0; l->shared_router.n_rows && r < s->n_rows; r++)
        sigmoid(s->m->kernels, x->shared + (size_t)r * PANEL, 1);
    moe_sort(x, h, s->n_rows);
}

struct residual residual_of_shared(const struct thread_ctx *s, const struct layer *l)
{
    return (struct residual){ .factors = l->shared_router.n_rows ? s->m->moe.shared : NULL,
        .stride = PANEL };
}

/* ---- GEMMs, expert by expert */

struct expert_tile {      /* some panels of one expert, for all its entries */
    int expert, from, to; /* panels within the expert */
    int entry, n_entries;
};

/* Iterates over the tiles of a step, expert by expert. The threads share the tiles; `expert` and
 * `before` are the position of this thread. */
struct expert_iter {
    int n_panels, step; /* per expert; per tile */
    int n_used;         /* experts with at least one entry */
    int expert, before; /* tiles of the experts before `expert` */
};

static bool next_tile(const struct thread_ctx *s, struct expert_iter *w, struct expert_tile *p)
{
    const struct moe *x = &s->m->moe;
    const int per_expert = (w->n_panels + w->step - 1) / w->step;
    int i = thread_pool_next_task(s->m->thread_pool);

    for (; w->expert < s->m->h.n_experts; w->expert++) {
        int n = x->first[w->expert + 1] - x->first[w->expert];
        if (!n)
            continue;
        if (i - w->before < per_expert) {
            int from = (i - w->before) * w->step;
            *p = (struct expert_tile){ w->expert, from, MIN(from + w->step, w->n_panels),
                x->first[w->expert], n };
            return true;
        }
        w->before += per_expert;
    }
    return false;
}

/* Small tiles if few experts are in use; a whole expert per tile if many are. */
static struct expert_iter expert_iter_for(const struct thread_ctx *s, const struct packed *w)
{
    const struct moe *x = &s->m->moe;
    int n_panels = w->n_panels / s->m->h.n_experts, n_used = 0;

    for (int e = 0; e < s->m->h.n_experts; e++)
        n_used += x->first[e + 1] > x->first[e];
    return (struct expert_iter){ n_panels, MIN(forward_tile_panels(s, n_panels * n_used), n_panels),
        n_used, 0, 0 };
}

void moe_gate_up(const struct thread_ctx *s, const struct layer *l, const struct inputs *in,
    struct act_out *hidden)
{
    struct expert_iter iter = expert_iter_for(s, &l->ffn.up);
    struct tile_split tile = forward_tile_split(s, hidden, iter.n_panels * iter.n_used, iter.step);
    struct expert_tile p;

    iter.step = tile.panels;
    while (next_tile(s, &iter, &p)) {
        int at = p.expert * iter.n_panels, end = p.entry + p.n_entries;
        for (int entry = p.entry; entry < end; entry += tile.rows) {
            int n = MIN(tile.rows, end - entry);
            struct inputs some = forward_inputs_slice(in, n, 0, s->m->moe.row + entry);
            struct ff_piece ff = { .panel_from = at + p.from,
                .panel_to = at + p.to,
                .row = entry,
                .n_rows = n,
                .col = p.from * PANEL,
                .n_cols = (p.to - p.from) * PANEL };
            if (l->gate_bias) {
                size_t bias = (size_t)p.expert * (size_t)s->m->h.d_ff_expert + (size_t)ff.col;
                ff.gate_bias = l->gate_bias + bias;
                ff.up_bias = l->up_bias + bias;
            }
            ffn_gate_up_tile(s, &l->ffn, &some, hidden, &ff);
        }
    }
}

void moe_down(const struct thread_ctx *s, const struct layer *l, const struct act_out *hidden)
{
    struct llama *m = s->m;
    struct expert_iter iter = expert_iter_for(s, &l->ffn.down);
    struct expert_tile p;
    struct inputs in = { 0 };

    forward_load_act(s, hidden, &in);
    while (next_tile(s, &iter, &p)) {
        int at = p.expert * iter.n_panels;
        struct inputs some = forward_inputs_slice(&in, p.n_entries, p.entry, NULL);
        forward_gemm(s, &l->ffn.down, &some,
            (struct gemm_args){ .panel_from = at + p.from,
                .panel_to = at + p.to,
                .y = m->moe.expert_out + (size_t)p.entry * m->moe.out_stride +
                     (size_t)p.from * PANEL,
                .y_stride = m->moe.out_stride });
    }
}

/* Residual: x[row] += sum over the row's experts of weight * (expert_out + bias), in the order of
 * topk. */
void moe_combine(const struct thread_ctx *s, const struct layer *l)
{
    struct llama *m = s->m;
    const struct moe *x = &m->moe;
    const int n_used = m->h.n_experts_used, d = m->h.d_model;
    int from, to;

    forward_thread_range(s, s->n_rows, &from, &to);
    for (int r = from; r < to; r++)
        for (int i = r * n_used; i < (r + 1) * n_used; i++) {
            float *out = x->expert_out + (size_t)x->entry[i] * x->out_stride;
            if (l->down_bias)
                m->kernels->add(out, l->down_bias + (size_t)x->topk[i] * (size_t)d, d);
            m->kernels->add_scaled(m->x + (size_t)picked_row(s, r) * m->d_stride,
                m->h.residual_scale * x->weights[i], out, d);
        }
}

/* latent[row] = sum over the row's experts of weight * expert_out, in the order of topk. */
static void sum_latent(const struct thread_ctx *s)
{
    const struct llama *m = s->m;
    const struct moe *x = &m->moe;
    const int n_used = m->h.n_experts_used, d = m->h.d_latent;
    int from, to;

    forward_thread_range(s, s->n_rows, &from, &to);
    for (int r = from; r < to; r++) {
        float *sum = x->latent + (size_t)r * x->out_stride;
        memset(sum, 0, (size_t)d * sizeof(*sum));
        for (int i = r * n_used; i < (r + 1) * n_used; i++)
            m->kernels->add_scaled(
                sum, x->weights[i], x->expert_out + (size_t)x->entry[i] * x->out_stride, d);
    }
}

static void load_latent(const struct thread_ctx *s, const struct packed *reader, struct inputs *in)
{
    const struct moe *x = &s->m->moe;
    const struct norm_in latent = { .rows = x->latent,
        .stride = x->out_stride,
        .n_cols = s->m->h.d_latent,
        .kinds = act_kind_bit(s->m, reader) };

    forward_norm_quantise(s, &latent, in);
}

void moe_latent_in(const struct thread_ctx *s, const struct layer *l, struct inputs *in)
{
    load_latent(s, &l->ffn.up, in);
}

void moe_combine_latent(const struct thread_ctx *s, const struct layer *l)
{
    struct inputs in = { 0 };

    sum_latent(s);
    barrier(s);
    load_latent(s, &l->latent_up, &in);
    forward_gemm_residual(s, &l->latent_up, &in, &(struct residual){ 0 });
}

void moe_combine_with_dense(
    const struct thread_ctx *s, const struct layer *l, const struct residual *to)
{
    struct llama *m = s->m;
    const struct moe *x = &m->moe;
    const int n_used = m->h.n_experts_used, d = m->h.d_model;
    float *sum = s->thread_mem->row_buf;
    int from, end;

    forward_thread_range(s, s->n_rows, &from, &end);
    for (int r = from; r < end; r++) {
        float *y = m->y + (size_t)r * m->d_stride;
        memset(sum, 0, (size_t)d * sizeof(*sum));
        for (int i = r * n_used; i < (r + 1) * n_used; i++)
            m->kernels->add_scaled(
                sum, x->weights[i], x->expert_out + (size_t)x->entry[i] * x->out_stride, d);
        m->kernels->rms_norm(sum, sum, l->post_expert_norm, d, m->h.eps);
        m->kernels->rms_norm(y, y, l->post_dense_norm, d, m->h.eps);
        m->kernels->add(y, sum, d);
        forward_add_row(s, to, r, y);
    }
}
