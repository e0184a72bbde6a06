/* attention.c: grouped-query attention (GQA) of one layer: residual stream -> input of Wo.
 *
 * The unit of work is a range of rows and KV heads or, for rows with split KV, a range of KV splits
 * (attn_groups.c). The thread that computes the output of a unit, or finishes the last split of a
 * row, also quantises it for the Wo GEMM.
 *
 * Owner: the thread pool. */
#include "model/forward.h"
#include "model/forward_in.h"

/* ---- heads */

/* Bias, QK-norm and RoPE of n heads of row r, in place: x[n][head_dim]. */
static void bias_norm_rope(
    const struct thread_ctx *s, float *x, int n, int r, const float *bias, const float *norm)
{
    const struct llama *m = s->m;
    int d = m->h.head_dim;

    if (bias)
        m->kernels->add(x, bias, n * d);
    if (norm)
        for (int i = 0; i < n; i++)
            m->kernels->rms_norm(x + i * d, x + i * d, norm, d, m->h.eps);
    m->kernels->rope(
        x, n, d, m->cs + (size_t)r * (size_t)m->h.n_rot, m->h.n_rot, m->h.family->is_rope_neox);
}

static uint8_t *kv_block_at(const struct llama *m, page_id page, int layer, int head)
{
    const struct kv_layout *kv = &m->kv;
    size_t index = (size_t)layer * (size_t)kv->n_kv_heads + (size_t)head;
    return m->arena + page.i * kv->page_bytes + index * (kv->k_bytes + kv->v_bytes);
}

static int q_heads_per_kv_head(const struct thread_ctx *s)
{
    return s->m->h.n_heads / s->m->h.n_kv_heads;
}

/* First column of the query heads of KV head h in a row of q, and of their output in attn_out. */
static int q_column(const struct thread_ctx *s, int h)
{
    return h * q_heads_per_kv_head(s) * s->m->h.head_dim;
}

static void bias_norm_rope_q(const struct thread_ctx *s, int layer, int r, int h, float *q)
{
    const struct layer *l = &s->m->w.layers[layer];

    bias_norm_rope(
        s, q, q_heads_per_kv_head(s), r, l->q_bias ? l->q_bias + q_column(s, h) : NULL, l->q_norm);
}

/* KV append: bias, QK-norm and RoPE of the key of row r and KV head h, bias of the value; both are
 * written to the KV page. */
static void append_kv(const struct thread_ctx *s, int layer, int r, int h)
{
    struct llama *m = s->m;
    const struct layer *l = &m->w.layers[layer];
    const struct batch_row *row = &m->rows[r];
    int d = m->h.head_dim, kv_column = h * d;
    float *k = m->k + (size_t)r * m->kv_stride + kv_column;
    float *v = m->v + (size_t)r * m->kv_stride + kv_column;

    bias_norm_rope(s, k, 1, r, l->k_bias ? l->k_bias + kv_column : NULL, l->k_norm);
    if (l->v_bias)
        m->kernels->add(v, l->v_bias + kv_column, d);

    page_id page = row->pages[row->pos / PAGE_TOKENS];
    uint8_t *kv = kv_block_at(m, page, layer, h);
    struct kv_slot slot = {
        .layout = &m->kv, .k = kv, .v = kv + m->kv.k_bytes, .token = row->pos % PAGE_TOKENS
    };
    m->kernels->kv_append(&slot, k, v);
}

static void append_row(const struct thread_ctx *s, int layer, int r, int h)
{
    const struct llama *m = s->m;

    bias_norm_rope_q(s, layer, r, h, m->q + (size_t)r * m->q_stride + q_column(s, h));
    append_kv(s, layer, r, h);
}

struct head_range { /* KV heads [from, to); their query heads are adjacent in attn_out */
    int from, to;
};

/* Quantises the attention output of these heads for output row r. */
static void quantise_attn_out(
    const struct thread_ctx *s, const struct act_out *to, int r, struct head_range h)
{
    int from = q_column(s, h.from);

    forward_quantise_tile(s, to, r, from, q_column(s, h.to) - from);
}

/* Arguments for the queries of KV head h; the pointers q and out are those of row 0, the caller
 * sets the keys. */
static struct attn_args attn_args_of(const struct thread_ctx *s, int layer, int h)
{
    const struct llama *m = s->m;

    return (struct attn_args){ .layout = &m->kv,
        .arena = m->arena,
        .layer = layer,
        .kv_head = h,
        .n_rows = 1,
        .n_q = q_heads_per_kv_head(s),
        .q = m->q + q_column(s, h),
        .scale = m->h.attn_scale,
        .out = m->attn_out + q_column(s, h),
        .q_stride = m->q_stride,
        .out_stride = m->q_stride,
        .scratch = s->thread_mem->attn };
}

/* Output rows [from, from + n), consecutive rows of one sequence: the queries of KV head h attend
 * to all keys up to their own position. */
static void attend_run(const struct thread_ctx *s, int layer, int from, int n, int h)
{
    const int r = picked_row(s, from);
    const struct batch_row *row = &s->m->rows[r];
    struct attn_args a = attn_args_of(s, layer, h);

    a.pages = row->pages;
    a.n_rows = n;
    a.n_keys = row->pos + 1;
    a.q += (size_t)r * a.q_stride;
    a.out += (size_t)from * a.out_stride;
    s->m->kernels->attend(&a);
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

/* Function on rows [from, to) and KV heads h. */
typedef void (*attn_rows_fn)(
    const struct thread_ctx *s, int layer, int from, int to, struct head_range h);

static void append_rows(
    const struct thread_ctx *s, int layer, int from, int to, struct head_range h)
{
    for (int i = h.from; i < h.to; i++)
        for (int r = from; r < to; r++)
            append_row(s, layer, r, i);
}

static void attend_rows(
    const struct thread_ctx *s, int layer, int from, int to, struct head_range h)
{
    struct act_out attn = forward_attn_out(s, &s->m->w.layers[layer]);

    for (int i = h.from; i < h.to; i++)
        for (int r = from, n; r < to; r += n) {
            n = rows_of_run(s, r, to);
            attend_run(s, layer, r, n, i);
        }
    for (int r = from; r < to; r++)
        quantise_attn_out(s, &attn, r, h);
}

/* Appends the rows of the group and computes their attention; the common prefix is read once. */
static void append_and_attend_group(
    const struct thread_ctx *s, int layer, const struct attn_group *p, int h)
{
    const struct attn_row *rows = s->m->attn_rows + p->from;
    struct attn_args a = attn_args_of(s, layer, h);

    for (int i = 0; i < p->n; i++)
        append_row(s, layer, rows[i].at, h);
    a.n_rows = p->n;
    a.rows = rows;
    a.n_shared = p->n_shared;
    s->m->kernels->attend(&a);
}

/* Groups [from, to) of decode rows. No decode row attends to a key that another row appends in this
 * step, so each row is appended and attends without a barrier. */
static void attend_groups(
    const struct thread_ctx *s, int layer, int from, int to, struct head_range h)
{
    struct act_out attn = forward_attn_out(s, &s->m->w.layers[layer]);

    for (; from < to; from++) {
        const struct attn_group *p = &s->m->attn_groups[from];
        for (int i = h.from; i < h.to; i++)
            append_and_attend_group(s, layer, p, i);
        for (int i = 0; i < p->n; i++)
            quantise_attn_out(s, &attn, s->m->attn_rows[p->from + i].at, h);
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

    a.pages = row->pages;
    a.n_keys = row->n_keys;
    a.q += (size_t)row->at * a.q_stride;
    a.out += (size_t)row->at * a.out_stride;
    a.states = m->states + state * attn_state_floats(&m->kv, a.n_q);
    return a;
}

/* One piece of a split row. The row's own key is in the last split, so only the thread with the
 * last piece appends it, and no thread waits. Each thread applies bias, QK-norm and RoPE to its own
 * copy of the queries. */
static void attend_split_piece(
    const struct thread_ctx *s, int layer, const struct attn_group *p, int h, int piece)
{
    const int r = s->m->attn_rows[p->from].at;
    struct attn_args a = attn_args_of_split(s, layer, p, h);

    if (piece == p->n_pieces - 1)
        append_kv(s, layer, r, h);
    memcpy(s->thread_mem->row_buf, a.q, (size_t)(a.n_q * s->m->h.head_dim) * sizeof(float));
    bias_norm_rope_q(s, layer, r, h, s->thread_mem->row_buf);
    a.q = s->thread_mem->row_buf;
    a.split_from = piece * p->splits_per_piece;
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

/* Piece i of the list of all pieces of all split rows. The thread that finishes the last piece of a
 * row's heads merges the states in index order and quantises the output. */
static void run_split_piece(const struct thread_ctx *s, int layer, int i)
{
    const struct act_out attn = forward_attn_out(s, &s->m->w.layers[layer]);
    const struct attn_group *p = &s->m->attn_groups[s->m->n_whole_groups];

    for (; i >= p->n_pieces * s->m->h.n_kv_heads; p++)
        i -= p->n_pieces * s->m->h.n_kv_heads;
    const int h = i / p->n_pieces, first = h / attn.n_heads * attn.n_heads;
    const struct head_range heads = { first, first + attn.n_heads };

    attend_split_piece(s, layer, p, h, i % p->n_pieces);
    if (!is_last_piece(s, p, heads))
        return;
    for (int j = heads.from; j < heads.to; j++) {
        struct attn_args a = attn_args_of_split(s, layer, p, j);
        s->m->kernels->attend_merge(&a);
    }
    quantise_attn_out(s, &attn, s->m->attn_rows[p->from].at, heads);
}

/* ---- division of work */

/* Number of rows per unit of work. Rows of one run share the keys that are read, unless that would
 * leave threads without work. */
static int rows_per_unit(const struct thread_ctx *s, int n_rows)
{
    if (n_rows >= 64)
        return 8;
    return MAX(MIN(n_rows * s->m->h.n_kv_heads / (2 * s->n_threads), 8), 1);
}

struct attn_work { /* work of all threads, in units of n_heads KV heads */
    int n_pieces;  /* split-KV pieces, of one KV head each */
    int n_attn_groups;
    int from, to; /* rows outside the groups */
    int n_heads;
};

/* Distributes all split-KV pieces, then all groups, then all rows of prefill runs. The order is
 * head by head, so that the pages of a head stay in a thread's cache. */
static void for_each_head(
    const struct thread_ctx *s, int layer, const struct attn_work *work, attn_rows_fn fn)
{
    const int per = rows_per_unit(s, work->to - work->from);
    const int n = work->n_attn_groups + (work->to - work->from + per - 1) / per;
    int i = thread_pool_next_task(s->m->thread_pool);

    for (; i < work->n_pieces; i = thread_pool_next_task(s->m->thread_pool))
        run_split_piece(s, layer, i);
    for (i -= work->n_pieces; n > 0;
         i = thread_pool_next_task(s->m->thread_pool) - work->n_pieces) {
        int h = i / n * work->n_heads, at = i % n;
        struct head_range heads = { h, h + work->n_heads };
        if (h >= s->m->h.n_kv_heads)
            return;
        if (at < work->n_attn_groups) {
            attend_groups(s, layer, at, at + 1, heads);
            continue;
        }
        int from = work->from + (at - work->n_attn_groups) * per;
        fn(s, layer, from, MIN(from + per, work->to), heads);
    }
}

/* ---- queries, keys and values */

enum { N_QKV = 3 };

static void qkv_outputs(const struct llama *m, const struct layer *l, struct gemm_out to[N_QKV])
{
    to[0] = (struct gemm_out){ &l->q, m->q, m->q_stride };  /* [n_rows][n_heads * head_dim] */
    to[1] = (struct gemm_out){ &l->k, m->k, m->kv_stride }; /* [n_rows][n_kv_heads * head_dim] */
    to[2] = (struct gemm_out){ &l->v, m->v, m->kv_stride }; /* [n_rows][n_kv_heads * head_dim] */
}

static void prepare_qkv(const struct thread_ctx *s, const struct layer *l, struct inputs *in)
{
    const struct llama *m = s->m;
    struct norm_in x = { m->x, m->d_stride, NULL, l->attn_norm, m->h.d_model,
        act_kind_bit(m, &l->q) | act_kind_bit(m, &l->k) | act_kind_bit(m, &l->v) };

    forward_norm_quantise(s, &x, in); /* [n_rows][d_model] */
}

/* Norm and QKV GEMMs: q, k, v of all rows, before bias, QK-norm and RoPE. */
static void compute_qkv(const struct thread_ctx *s, const struct layer *l)
{
    struct gemm_out to[N_QKV];
    struct inputs in;

    qkv_outputs(s->m, l, to);
    prepare_qkv(s, l, &in);
    forward_gemms(s, &in, to, N_QKV);
    barrier(s);
}

static bool is_last_layer(const struct thread_ctx *s, int layer)
{
    return layer == s->m->h.n_layers - 1;
}

/* Number of rows, from the first, that append and attend without a barrier in between: the decode
 * rows. In the last layer only rows that get logits attend; unless all decode rows do, the number
 * is 0. */
static int n_fused_rows(const struct thread_ctx *s, int layer)
{
    return is_last_layer(s, layer) && !s->m->decode_rows_have_logits ? 0 : s->m->n_decode_rows;
}

static bool has_only_fused_rows(const struct thread_ctx *s, int layer)
{
    return n_fused_rows(s, layer) == s->n_rows;
}

/* Whether each thread can compute whole KV heads (QKV, append, attention) without a barrier: only
 * if all rows are decode rows and the heads divide evenly over the threads. */
static bool is_by_head(const struct thread_ctx *s, int layer)
{
    const struct llama *m = s->m;
    int n_heads = forward_attn_out(s, &m->w.layers[layer]).n_heads;

    return has_only_fused_rows(s, layer) && m->h.head_dim % PANEL == 0 &&
           m->h.n_kv_heads / n_heads % s->n_threads == 0;
}

/* QKV and attention of a decode-only step: the thread that computes the query, key and value of a
 * head continues with its attention, without a barrier in between. */
static void attention_by_head(const struct thread_ctx *s, int layer)
{
    struct llama *m = s->m;
    const struct layer *l = &m->w.layers[layer];
    struct gemm_out to[N_QKV];
    struct inputs in;

    qkv_outputs(m, l, to);
    prepare_qkv(s, l, &in);
    const int n_heads = forward_attn_out(s, l).n_heads;
    for (int h; (h = thread_pool_next_task(m->thread_pool) * n_heads) < m->h.n_kv_heads;) {
        for (int i = 0; i < N_QKV; i++) {
            int n = to[i].w->n_panels / m->h.n_kv_heads;
            forward_gemm(s, to[i].w, &in,
                (struct gemm_args){ .panel_from = h * n,
                    .panel_to = (h + n_heads) * n,
                    .y = to[i].y + (size_t)h * (size_t)n * PANEL,
                    .y_stride = to[i].stride });
        }
        attend_groups(s, layer, 0, m->n_attn_groups, (struct head_range){ h, h + n_heads });
    }
    barrier(s);
}

/* Appends the keys and values of all rows; then computes attn_out[i] of each row that is still
 * needed. */
static void append_and_attend_rows(struct thread_ctx *s, int layer)
{
    struct llama *m = s->m;
    const int n_heads = forward_attn_out(s, &m->w.layers[layer]).n_heads;
    const int n_fused = n_fused_rows(s, layer);

    /* prefill: no row attends before all rows of its run are appended */
    if (n_fused < s->n_rows) {
        for_each_head(s, layer, &(struct attn_work){ 0, 0, n_fused, s->n_rows, 1 }, append_rows);
        barrier(s);
    }
    /* after the last KV append, only rows that get logits are needed */
    if (is_last_layer(s, layer)) {
        s->gather = m->n_logit_rows < s->n_rows ? m->logit_rows : NULL;
        s->n_rows = m->n_logit_rows;
    }
    if (s->n_rows > 0) {
        struct attn_work work = { 0, 0, n_fused, s->n_rows, n_heads };
        if (n_fused) {
            work.n_pieces = m->n_pieces;
            work.n_attn_groups = m->n_whole_groups;
        }
        for_each_head(s, layer, &work, attend_rows);
        barrier(s);
    }
}

void forward_attention(struct thread_ctx *s, int layer)
{
    if (is_by_head(s, layer)) {
        attention_by_head(s, layer);
        return;
    }
    compute_qkv(s, &s->m->w.layers[layer]);
    append_and_attend_rows(s, layer);
}
