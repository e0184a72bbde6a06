/* attention.c: see attention.h. The thread that computes the output of a unit, or finishes the last
 * split of a row, also quantises it for the Wo GEMM. */
#include "model/attention.h"

/* First column of the query heads of KV head h in a row of q. */
static int q_column(const struct thread_ctx *s, int h)
{
    return h * layer_q_per_kv_head(s->params) * s->params->head_dim;
}

/* First column of their output. */
static int out_column(const struct thread_ctx *s, int h)
{
    return h * layer_q_per_kv_head(s->params) * s->params->value_dim;
}

/* Arguments for the queries of KV head h; the pointers q and out are those of row 0, the caller
 * sets the keys. */
static struct attn_args attn_args_of(const struct thread_ctx *s, int layer, int h)
{
    const struct llama *m = s->m;
    const struct layer_params *p = s->params;
    const float *sinks = m->w.layers[layer].sinks;
    const bool is_latent = p->mixer == MIXER_LATENT;

    return (struct attn_args){ .layout = &m->kv[layer],
        .arena = attn_arena(s),
        .kv_head = is_latent ? 0 : h,
        .n_rows = 1,
        .n_q = layer_q_per_kv_head(p),
        .q = m->q + q_column(s, h),
        .scale = p->attn_scale,
        .soft_cap = m->h.attn_soft_cap,
        .sinks = sinks ? sinks + h * layer_q_per_kv_head(p) : NULL,
        .window = p->has_window ? m->h.window : 0,
        .out = (is_latent ? m->latent.out : m->attn_out) + out_column(s, h),
        .q_stride = m->q_stride,
        .out_stride = is_latent ? m->latent.out_stride : m->o_stride,
        .scratch = s->thread_mem->attn };
}

/* Page table of row r of the step for the layer's class of pages. */
static const page_id *page_table(const struct thread_ctx *s, int r)
{
    const struct batch_row *row = &s->m->rows[r];

    return s->params->has_window ? row->window_pages : row->pages;
}

/* Number of output rows, from `from` on and before `end`, that are consecutive rows of one
 * sequence. */
static int rows_of_run(const struct thread_ctx *s, int from, int end)
{
    int r = picked_row(s, from), n = 1;
    const struct batch_row *first = &s->m->rows[r];

    while (from + n < end && picked_row(s, from + n) == r + n && first[n].pages == first->pages &&
           first[n].pos == first->pos + n)
        n++;
    return n;
}

/* Rows of prefill runs, of which all keys are appended. Each key is read once for the consecutive
 * rows of a run. */
static void attend_rows(const struct thread_ctx *s, int layer, const struct attn_unit *u)
{
    const int end = u->row_from + u->n_rows;

    for (int h = u->heads.from; h < u->heads.to; h++)
        for (int i = u->row_from, n; i < end; i += n) {
            const int r = picked_row(s, i);
            struct attn_args a = attn_args_of(s, layer, h);
            n = rows_of_run(s, i, end);
            a.pages = page_table(s, r);
            a.n_rows = n;
            a.n_keys = s->m->rows[r].pos + 1;
            a.q += (size_t)r * a.q_stride;
            a.out += (size_t)i * a.out_stride;
            s->m->kernels->attend(&a);
        }
}

/* Decode rows of a layer with a window, which has other page tables than the groups: row by row. */
static void attend_group_rows(
    const struct thread_ctx *s, int layer, const struct attn_group *group, int h)
{
    const struct attn_row *rows = s->m->attn_rows + group->from;

    for (int i = 0; i < group->n; i++) {
        struct attn_args a = attn_args_of(s, layer, h);
        a.pages = page_table(s, rows[i].at);
        a.n_keys = rows[i].n_keys;
        a.q += (size_t)rows[i].at * a.q_stride;
        a.out += (size_t)rows[i].at * a.out_stride;
        s->m->kernels->attend(&a);
    }
}

/* Decode rows; the common prefix of a group is read once. */
static void attend_groups(const struct thread_ctx *s, int layer, const struct attn_unit *u)
{
    for (int i = 0; i < u->n_groups; i++)
        for (int h = u->heads.from; h < u->heads.to; h++) {
            if (s->params->has_window) {
                attend_group_rows(s, layer, &u->groups[i], h);
                continue;
            }
            struct attn_args a = attn_args_of(s, layer, h);
            a.n_rows = u->groups[i].n;
            a.rows = s->m->attn_rows + u->groups[i].from;
            a.n_shared = u->groups[i].n_shared;
            s->m->kernels->attend(&a);
        }
}

/* ---- split-KV: a row that several threads compute */

static struct attn_args attn_args_of_split(
    const struct thread_ctx *s, int layer, const struct attn_group *p, int h)
{
    const struct llama *m = s->m;
    const struct attn_row *row = &m->attn_rows[p->from];
    const size_t state = p->state + (size_t)h * (size_t)p->n_splits;
    struct attn_args a = attn_args_of(s, layer, h);

    a.pages = page_table(s, row->at);
    a.n_keys = row->n_keys;
    a.q += (size_t)row->at * a.q_stride;
    a.out += (size_t)row->at * a.out_stride;
    a.states = m->states + state * attn_state_floats(a.layout, a.n_q);
    return a;
}

/* The queries are the thread's copy, which attn_head_row() has made. */
static void attend_piece(const struct thread_ctx *s, int layer, const struct attn_unit *u)
{
    const struct attn_group *p = u->groups;
    struct attn_args a = attn_args_of_split(s, layer, p, u->heads.from);

    a.q = s->thread_mem->row_buf;
    a.split_from = u->piece * p->splits_per_piece;
    a.split_to = MIN(a.split_from + p->splits_per_piece, p->n_splits);
    s->m->kernels->attend(&a);
}

/* Whether this was the last unfinished piece of these heads; then the states of all pieces are
 * visible. */
static bool is_last_piece(
    const struct thread_ctx *s, const struct attn_group *p, struct head_range h)
{
    atomic_int *n = &s->m->n_done[p->state + (size_t)h.from];

    if (atomic_fetch_add_explicit(n, 1, memory_order_acq_rel) + 1 < p->n_pieces * (h.to - h.from))
        return false;
    atomic_store_explicit(n, 0, memory_order_relaxed); /* the next layer comes after a barrier */
    return true;
}

/* ---- the attention of a unit */

/* Row i of the unit: while keys are appended, a row of the step, else an output row. Both are the
 * same number for decode rows. */
static int unit_row(const struct thread_ctx *s, const struct attn_unit *u, int i)
{
    return u->n_groups ? s->m->attn_rows[u->row_from + i].at : u->row_from + i;
}

/* attn_out *= sigmoid(gate), in columns [col, col + n) of output row r. */
static void apply_gate(const struct thread_ctx *s, int layer, int r, int col, int n)
{
    const struct llama *m = s->m;
    float *out = m->attn_out + (size_t)r * m->q_stride + col;

    if (m->w.layers[layer].mix_gate.n_rows == 0)
        return;
    m->kernels->sigmoid_mul(
        out, m->mix_gate + (size_t)picked_row(s, r) * m->q_stride + col, out, n);
}

void attention(const struct thread_ctx *s, const struct attn_work *w, const struct attn_unit *u)
{
    struct head_range heads = u->heads;

    if (u->piece >= 0) {
        heads.from -= heads.from % w->attn_out.n_heads; /* the heads of one tile of attn_out */
        heads.to = heads.from + w->attn_out.n_heads;
        attend_piece(s, w->layer, u);
        if (!is_last_piece(s, u->groups, heads))
            return;
        for (int h = heads.from; h < heads.to; h++) { /* merges the splits in index order */
            struct attn_args a = attn_args_of_split(s, w->layer, u->groups, h);
            s->m->kernels->attend_merge(&a);
        }
    } else if (u->n_groups) {
        attend_groups(s, w->layer, u);
    } else {
        attend_rows(s, w->layer, u);
    }

    const int from = out_column(s, heads.from), n = out_column(s, heads.to) - from;
    for (int i = 0; i < u->n_rows; i++) {
        apply_gate(s, w->layer, unit_row(s, u, i), from, n);
        forward_quantise_tile(s, &w->attn_out, unit_row(s, u, i), from, n);
    }
}

struct head_row attn_head_row(const struct thread_ctx *s, const struct attn_unit *u, int i)
{
    const struct llama *m = s->m;
    const int d = s->params->head_dim, h = u->heads.from + i / u->n_rows;
    const int r = unit_row(s, u, i % u->n_rows);
    struct head_row x = { .row = r,
        .head = h,
        .q = m->q + (size_t)r * m->q_stride + q_column(s, h),
        .k = m->k + (size_t)r * m->kv_stride + h * d,
        .v = m->v + (size_t)r * m->kv_stride + h * d };

    if (!s->has_kv)
        x.k = x.v = NULL;
    if (u->piece >= 0) {
        float *copy = s->thread_mem->row_buf;
        memcpy(copy, x.q, (size_t)(layer_q_per_kv_head(s->params) * d) * sizeof(float));
        x.q = copy;
        if (u->piece < u->groups->n_pieces - 1)
            x.k = x.v = NULL;
    }
    return x;
}

/* ---- division of work */

struct attn_work attn_work_for(const struct thread_ctx *s, int layer)
{
    const struct llama *m = s->m;
    struct attn_work w = { .layer = layer, .n_fused = m->n_decode_rows };

    /* in the last layer, only rows that get logits attend */
    if (layer == m->h.n_layers - 1 && !m->decode_rows_have_logits)
        w.n_fused = 0;
    w.first_phase = w.n_fused < s->n_rows ? ATTN_APPEND : ATTN_ATTEND;
    if (s->params->mixer == MIXER_LATENT) { /* the keys are appended before */
        w.first_phase = ATTN_ATTEND;
        w.attn_out.n_heads = 1;
        return w;
    }
    w.attn_out = forward_attn_out(s, &m->w.layers[layer]);
    w.is_by_head = w.n_fused == s->n_rows && s->params->head_dim % PANEL == 0 &&
                   !m->h.family->norms_whole_qk &&
                   s->params->n_kv_heads / w.attn_out.n_heads % s->n_threads == 0;
    return w;
}

/* Number of rows per unit. Rows of one run share the keys that are read, unless that would leave
 * threads without work. */
static int rows_per_unit(const struct thread_ctx *s, int n_rows)
{
    if (n_rows >= 64)
        return 8;
    return MAX(MIN(n_rows * s->params->n_kv_heads / (2 * s->n_threads), 8), 1);
}

void attn_phase_begin(const struct thread_ctx *s, struct attn_work *w, enum attn_phase phase)
{
    const struct llama *m = s->m;
    const bool has_groups = phase == ATTN_ATTEND && w->n_fused > 0;

    w->phase = phase;
    w->n_heads = phase == ATTN_APPEND ? 1 : w->attn_out.n_heads;
    w->n_pieces = has_groups && !w->is_by_head ? m->n_pieces * s->params->n_kv_heads : 0;
    w->n_group_units = !has_groups ? 0 : w->is_by_head ? 1 : m->n_whole_groups;
    w->row_end = s->n_rows;
    w->rows_per_unit = rows_per_unit(s, s->n_rows - w->n_fused);
}

/* Piece i of the list of all pieces of all split rows. */
static struct attn_unit split_unit(const struct thread_ctx *s, int i)
{
    const struct attn_group *p = &s->m->attn_groups[s->m->n_whole_groups];

    for (; i >= p->n_pieces * s->params->n_kv_heads; p++)
        i -= p->n_pieces * s->params->n_kv_heads;
    const int h = i / p->n_pieces;
    return (struct attn_unit){ .heads = { h, h + 1 },
        .row_from = p->from,
        .n_rows = 1,
        .groups = p,
        .n_groups = 1,
        .piece = i % p->n_pieces,
        .n_append = 1 };
}

bool attn_next_unit(const struct thread_ctx *s, const struct attn_work *w, struct attn_unit *u)
{
    const struct llama *m = s->m;
    const int n_rows = w->row_end - w->n_fused;
    const int n = w->n_group_units + (n_rows + w->rows_per_unit - 1) / w->rows_per_unit;
    int i = thread_pool_next_task(m->thread_pool);

    if (i < w->n_pieces) {
        *u = split_unit(s, i);
        return true;
    }
    i -= w->n_pieces;
    if (n == 0 || i / n * w->n_heads >= s->params->n_kv_heads)
        return false;

    const int h = i / n * w->n_heads, at = i % n;
    *u = (struct attn_unit){ .heads = { h, h + w->n_heads }, .piece = -1 };
    if (at >= w->n_group_units) {
        u->row_from = w->n_fused + (at - w->n_group_units) * w->rows_per_unit;
        u->n_rows = MIN(w->rows_per_unit, w->row_end - u->row_from);
        u->n_append = w->phase == ATTN_APPEND ? u->n_rows * w->n_heads : 0;
        return true;
    }
    u->groups = &m->attn_groups[at];
    u->n_groups = w->is_by_head ? m->n_attn_groups : 1;
    u->row_from = w->is_by_head ? 0 : u->groups->from;
    u->n_rows = w->is_by_head ? m->n_decode_rows : u->groups->n;
    u->n_append = u->n_rows * w->n_heads;
    return true;
}
