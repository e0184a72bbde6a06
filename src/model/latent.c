/* latent.c: see latent.h. The matrices of the query heads are multiplied head by head, each with
 * its own columns of the input. The threads share tiles of one head and some of its panels.
 *
 * Owner: the thread pool. */
#include "model/latent.h"
#include "model/attention.h"

/* ---- one matrix for each query head */

struct head_gemm {
    const struct packed *w; /* the rows of each head in turn, whole panels */
    const float *x;         /* row r of head h: x + r * x_stride + h * x_head, w->n_cols columns */
    size_t x_stride, x_head;
    float *y; /* row r of head h: y + r * y_stride + h * y_head */
    size_t y_stride, y_head;
};

struct head_tile {
    int head, from, to; /* panels of the head */
};

/* Takes the next tile. Heads are divided if there are few of them for each thread. */
static bool next_head_tile(const struct thread_ctx *s, int n_panels, struct head_tile *t)
{
    const int n_heads = s->params->n_heads, most = TILES_PER_THREAD * s->n_threads;
    const int n_parts = MIN((most + n_heads - 1) / n_heads, n_panels);
    const int i = thread_pool_next_task(s->m->thread_pool), part = i % n_parts;

    *t = (struct head_tile){ i / n_parts, n_panels * part / n_parts,
        n_panels * (part + 1) / n_parts };
    return t->head < n_heads;
}

static int panels_per_head(const struct thread_ctx *s, const struct packed *w)
{
    return w->n_panels / s->params->n_heads;
}

/* Rows [row, row + n) of the input of a head, in the form that the GEMM reads. */
static struct acts head_acts(
    const struct thread_ctx *s, const struct head_gemm *g, int head, int row, int n)
{
    const enum act_kind kind = kernels_act_kind(s->m->kernels, g->w->type);
    const int n_cols = g->w->n_cols;
    float *x = (float *)(uintptr_t)g->x + (size_t)row * g->x_stride + (size_t)head * g->x_head;
    struct acts to = { .kind = kind, .n_rows = n, .n_cols = n_cols };

    if (kind == ACT_F32) {
        to.stride = g->x_stride * sizeof(float);
        to.data = x;
        return to;
    }
    to.stride = act_row_bytes(kind, n_cols);
    to.data = s->thread_mem->acts[kind];
    for (int r = 0; r < n; r++) {
        struct act_cols at = { kind, (uint8_t *)to.data + (size_t)r * to.stride, 0 };
        kernels_quantise_acts(s->m->kernels, at, x + (size_t)r * g->x_stride, n_cols);
    }
    return to;
}

/* Number of rows whose quantised input fits in the scratch memory of a thread. */
static int rows_per_call(const struct thread_ctx *s, const struct packed *w)
{
    const enum act_kind kind = kernels_act_kind(s->m->kernels, w->type);
    const size_t all = REDUNDANT_ROWS * act_row_bytes(kind, s->m->max_width);

    return kind == ACT_F32 ? s->n_rows : (int)(all / act_row_bytes(kind, w->n_cols));
}

static void multiply_head_tile(
    const struct thread_ctx *s, const struct head_gemm *g, const struct head_tile *t)
{
    const int n_panels = panels_per_head(s, g->w), most = rows_per_call(s, g->w);

    for (int row = 0; row < s->n_rows; row += most) {
        struct inputs in = { 0 };
        struct acts x = head_acts(s, g, t->head, row, MIN(most, s->n_rows - row));
        in.kind[x.kind] = x;
        forward_gemm(s, g->w, &in,
            (struct gemm_args){ .panel_from = t->head * n_panels + t->from,
                .panel_to = t->head * n_panels + t->to,
                .y = g->y + (size_t)row * g->y_stride + (size_t)t->head * g->y_head +
                     (size_t)t->from * PANEL,
                .y_stride = g->y_stride });
    }
}

/* ---- projections */

void latent_project(const struct thread_ctx *s, const struct layer *l, struct inputs *in)
{
    struct llama *m = s->m;
    const struct gemm_out heads = { &l->q, m->latent.heads, m->latent.heads_stride };
    const struct gemm_out keys = { &l->k, m->k, m->kv_stride };
    const struct gemm_out q_a = { &l->q_a, m->latent.q_a, m->latent.q_a_stride };
    const bool has_q_a = l->q_a.n_rows > 0;
    const struct gemm_out to[] = { has_q_a ? q_a : heads, keys };

    forward_gemms(s, in, to, 2);
    barrier(s);
    if (!has_q_a)
        return;
    struct norm_in x = { m->latent.q_a, m->latent.q_a_stride, NULL, l->q_a_norm, l->q_a.n_rows,
        act_kind_bit(m, &l->q) };
    forward_norm_quantise(s, &x, in);
    forward_gemms(s, in, &heads, 1);
    barrier(s);
}

/* ---- queries and keys */

static void rotate(const struct thread_ctx *s, int r, float *x)
{
    const struct llama *m = s->m;
    const int n_rot = m->h.rope.n_rot;

    m->kernels->rope(
        x, 1, n_rot, m->cs + (size_t)r * (size_t)n_rot, n_rot, m->h.family->is_rope_neox);
}

static void append_keys(const struct thread_ctx *s, const struct layer *l, int layer)
{
    const struct llama *m = s->m;
    const int rank = m->h.latent.kv_rank;
    int from, to;

    forward_thread_range(s, s->n_rows, &from, &to);
    for (int r = from; r < to; r++) {
        float *k = m->k + (size_t)r * m->kv_stride;
        m->kernels->rms_norm(k, k, l->kv_a_norm, rank, m->h.eps);
        rotate(s, r, k + rank);
        struct kv_slot slot = attn_kv_slot(s, layer, r, 0);
        m->kernels->kv_append(&slot, k, NULL);
    }
}

/* Writes the rotated dimensions of a query head of all rows, after the absorbed ones. */
static void rotate_queries(const struct thread_ctx *s, int head)
{
    const struct llama *m = s->m;
    const struct latent_params *p = &m->h.latent;
    const size_t n_rot = (size_t)m->h.rope.n_rot;
    const size_t from = (size_t)head * ((size_t)p->nope_dim + n_rot) + (size_t)p->nope_dim;
    const size_t at = (size_t)(head * s->params->head_dim + p->kv_rank);

    for (int r = 0; r < s->n_rows; r++) {
        float *to = m->q + (size_t)r * m->q_stride + at;
        memcpy(
            to, m->latent.heads + (size_t)r * m->latent.heads_stride + from, n_rot * sizeof(float));
        rotate(s, r, to);
    }
}

/* Scales columns [from, end) of the queries of all rows, if the model scales queries. */
static void scale_columns(const struct thread_ctx *s, int from, int end)
{
    const struct llama *m = s->m;

    for (int r = 0; m->h.query_scale_slope != 0 && r < s->n_rows; r++) {
        const float factor = attn_query_factor(s, r);
        for (int i = from; i < end; i++)
            m->q[(size_t)r * m->q_stride + (size_t)i] *= factor;
    }
}

void latent_absorb(const struct thread_ctx *s, const struct layer *l, int layer)
{
    const struct llama *m = s->m;
    const struct latent_params *p = &m->h.latent;
    const int n_panels = panels_per_head(s, &l->k_b), head_dim = s->params->head_dim;
    const struct head_gemm g = { .w = &l->k_b,
        .x = m->latent.heads,
        .x_stride = m->latent.heads_stride,
        .x_head = (size_t)(p->nope_dim + m->h.rope.n_rot),
        .y = m->q,
        .y_stride = m->q_stride,
        .y_head = (size_t)head_dim };

    append_keys(s, l, layer);
    for (struct head_tile t; next_head_tile(s, n_panels, &t);) {
        const int first = t.head * head_dim, end = t.to == n_panels ? head_dim : t.to * PANEL;
        multiply_head_tile(s, &g, &t);
        if (t.to == n_panels)
            rotate_queries(s, t.head);
        scale_columns(s, first + t.from * PANEL, first + end);
    }
}

/* ---- values */

void latent_values(const struct thread_ctx *s, const struct layer *l)
{
    const struct llama *m = s->m;
    const struct head_gemm g = { .w = &l->v_b,
        .x = m->latent.out,
        .x_stride = m->latent.out_stride,
        .x_head = (size_t)m->h.latent.kv_rank,
        .y = m->attn_out,
        .y_stride = m->o_stride,
        .y_head = (size_t)m->h.latent.value_dim };

    for (struct head_tile t; next_head_tile(s, panels_per_head(s, &l->v_b), &t);)
        multiply_head_tile(s, &g, &t);
}
