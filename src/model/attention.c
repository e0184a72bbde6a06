/* attention.c: of a layer, from the residual stream to what its heads say.
 *
 * Work goes by (rows, kv heads), of long rows by splits of their keys (parties.c says which);
 * whoever has attended, or is the last of those who share, puts it as the product with o reads it.
 */
#include "model/forward.h"
#include "model/forward_in.h"

/* ---- heads */

/* Bias, norm and turn of n heads of one row, in place. */
static void finish_heads(
    const struct self *s, float *x, int n, int r, const float *bias, const float *norm)
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

static uint8_t *kv_at(const struct llama *m, page_id page, int layer, int head)
{
    const struct kv_layout *kv = &m->kv;
    size_t index = (size_t)layer * (size_t)kv->n_kv_heads + (size_t)head;
    return m->arena + page.i * kv->page_bytes + index * (kv->k_bytes + kv->v_bytes);
}

static int group_of(const struct self *s)
{
    return s->m->h.n_heads / s->m->h.n_kv_heads;
}

/* Where the queries of kv head h begin in a row, and what they say. */
static int queries_at(const struct self *s, int h)
{
    return h * group_of(s) * s->m->h.head_dim;
}

static void finish_queries(const struct self *s, int layer, int r, int h, float *q)
{
    const struct layer *l = &s->m->w.layers[layer];

    finish_heads(s, q, group_of(s), r, l->q_bias ? l->q_bias + queries_at(s, h) : NULL, l->q_norm);
}

/* Key and value of row r and kv head h are made ready and go to the page. */
static void append_keys(const struct self *s, int layer, int r, int h)
{
    struct llama *m = s->m;
    const struct layer *l = &m->w.layers[layer];
    const struct row *row = &m->rows[r];
    int d = m->h.head_dim, kv_at_h = h * d;
    float *k = m->k + (size_t)r * m->kv_stride + kv_at_h;
    float *v = m->v + (size_t)r * m->kv_stride + kv_at_h;

    finish_heads(s, k, 1, r, l->k_bias ? l->k_bias + kv_at_h : NULL, l->k_norm);
    if (l->v_bias)
        m->kernels->add(v, l->v_bias + kv_at_h, d);

    page_id page = row->pages[row->pos / PAGE_TOKENS];
    uint8_t *at = kv_at(m, page, layer, h);
    struct kv_slot slot = {
        .layout = &m->kv, .k = at, .v = at + m->kv.k_bytes, .token = row->pos % PAGE_TOKENS
    };
    m->kernels->kv_append(&slot, k, v);
}

static void append(const struct self *s, int layer, int r, int h)
{
    const struct llama *m = s->m;

    finish_queries(s, layer, r, h, m->q + (size_t)r * m->q_stride + queries_at(s, h));
    append_keys(s, layer, r, h);
}

struct heads { /* kv heads [from, to), side by side in what attention says */
    int from, to;
};

/* What these say of an output row. */
static void put_attended(const struct self *s, const struct made *to, int r, struct heads h)
{
    int from = queries_at(s, h.from);

    forward_put(s, to, r, from, queries_at(s, h.to) - from);
}

/* Queries of kv head h, of row 0 on; what they attend to is the caller's to say. */
static struct attn_args args_of(const struct self *s, int layer, int h)
{
    const struct llama *m = s->m;

    return (struct attn_args){ .layout = &m->kv,
        .arena = m->arena,
        .layer = layer,
        .kv_head = h,
        .n_rows = 1,
        .n_q = group_of(s),
        .q = m->q + queries_at(s, h),
        .scale = m->h.attn_scale,
        .out = m->attended + queries_at(s, h),
        .q_stride = m->q_stride,
        .out_stride = m->q_stride,
        .scratch = s->mem->attn };
}

/* Output rows `from` on, n of them, of one sequence and in order: their queries of kv head h
 * against all keys up to their own. */
static void attend(const struct self *s, int layer, int from, int n, int h)
{
    const int r = picked(s, from);
    const struct row *row = &s->m->rows[r];
    struct attn_args a = args_of(s, layer, h);

    a.pages = row->pages;
    a.n_rows = n;
    a.n_keys = row->pos + 1;
    a.q += (size_t)r * a.q_stride;
    a.out += (size_t)from * a.out_stride;
    s->m->kernels->attend(&a);
}

/* How many output rows from this one on, and before `end`, follow one another in a sequence. */
static int rows_of_run(const struct self *s, int from, int end)
{
    int r = picked(s, from), n = 1;
    const struct row *first = &s->m->rows[r];

    while (from + n < end && picked(s, from + n) == r + n && first[n].pages == first->pages &&
           first[n].pos == first->pos + n)
        n++;
    return n;
}

/* Rows [from, to) of some kv heads. */
typedef void (*heads_fn)(const struct self *s, int layer, int from, int to, struct heads h);

static void append_rows(const struct self *s, int layer, int from, int to, struct heads h)
{
    for (int i = h.from; i < h.to; i++)
        for (int r = from; r < to; r++)
            append(s, layer, r, i);
}

static void attend_rows(const struct self *s, int layer, int from, int to, struct heads h)
{
    struct made made = forward_attended(s, &s->m->w.layers[layer]);

    for (int i = h.from; i < h.to; i++)
        for (int r = from, n; r < to; r += n) {
            n = rows_of_run(s, r, to);
            attend(s, layer, r, n, i);
        }
    for (int r = from; r < to; r++)
        put_attended(s, &made, r, h);
}

static void append_and_attend(const struct self *s, int layer, const struct party *p, int h)
{
    const struct attn_row *rows = s->m->list + p->from;
    struct attn_args a = args_of(s, layer, h);

    for (int i = 0; i < p->n; i++)
        append(s, layer, rows[i].at, h);
    a.n_rows = p->n;
    a.rows = rows;
    a.n_shared = p->n_shared;
    s->m->kernels->attend(&a);
}

/* Parties [from, to): single rows, none of which reads what another appends. */
static void serve_parties(const struct self *s, int layer, int from, int to, struct heads h)
{
    struct made made = forward_attended(s, &s->m->w.layers[layer]);

    for (; from < to; from++) {
        const struct party *p = &s->m->parties[from];
        for (int i = h.from; i < h.to; i++)
            append_and_attend(s, layer, p, i);
        for (int i = 0; i < p->n; i++)
            put_attended(s, &made, s->m->list[p->from + i].at, h);
    }
}

/* ---- a row that members share */

static struct attn_args args_of_shared(
    const struct self *s, int layer, const struct party *p, int h)
{
    const struct llama *m = s->m;
    const struct attn_row *row = &m->list[p->from];
    const size_t state = p->state + (size_t)h * (size_t)p->n_splits;
    struct attn_args a = args_of(s, layer, h);

    a.pages = row->pages;
    a.n_keys = row->n_keys;
    a.q += (size_t)row->at * a.q_stride;
    a.out += (size_t)row->at * a.out_stride;
    a.states = m->states + state * attn_state_floats(&m->kv, a.n_q);
    return a;
}

/* The row's own key is in the last split, which is the last piece's: nobody waits for it. Each who
 * takes a piece makes the queries ready for himself. */
static void attend_piece(const struct self *s, int layer, const struct party *p, int h, int piece)
{
    const int r = s->m->list[p->from].at;
    struct attn_args a = args_of_shared(s, layer, p, h);

    if (piece == p->n_pieces - 1)
        append_keys(s, layer, r, h);
    memcpy(s->mem->normed, a.q, (size_t)(a.n_q * s->m->h.head_dim) * sizeof(float));
    finish_queries(s, layer, r, h, s->mem->normed);
    a.q = s->mem->normed;
    a.split_from = piece * p->per_piece;
    a.split_to = MIN(a.split_from + p->per_piece, p->n_splits);
    s->m->kernels->attend(&a);
}

/* Whether this was the last piece of these heads; the others' states are there then. */
static bool is_last_piece(const struct self *s, const struct party *p, struct heads h)
{
    atomic_int *n = &s->m->n_done[p->state + (size_t)h.from];

    if (atomic_fetch_add_explicit(n, 1, memory_order_acq_rel) + 1 < p->n_pieces * (h.to - h.from))
        return false;
    atomic_store_explicit(n, 0, memory_order_relaxed); /* the next layer is behind a barrier */
    return true;
}

/* Piece i of all of all rows that are shared. */
static void serve_piece(const struct self *s, int layer, int i)
{
    const struct made made = forward_attended(s, &s->m->w.layers[layer]);
    const struct party *p = &s->m->parties[s->m->n_own];

    for (; i >= p->n_pieces * s->m->h.n_kv_heads; p++)
        i -= p->n_pieces * s->m->h.n_kv_heads;
    const int h = i / p->n_pieces, first = h / made.n_heads * made.n_heads;
    const struct heads heads = { first, first + made.n_heads };

    attend_piece(s, layer, p, h, i % p->n_pieces);
    if (!is_last_piece(s, p, heads))
        return;
    for (int j = heads.from; j < heads.to; j++) {
        struct attn_args a = args_of_shared(s, layer, p, j);
        s->m->kernels->attend_merge(&a);
    }
    put_attended(s, &made, s->m->list[p->from].at, heads);
}

/* ---- who does what */

/* Rows that a member takes at a time. Those of one run share what is read, if nobody is left
 * without work for it. */
static int rows_per_piece(const struct self *s, int n_rows)
{
    if (n_rows >= 64)
        return 8;
    return MAX(MIN(n_rows * s->m->h.n_kv_heads / (2 * s->n), 8), 1);
}

struct share {    /* of so many kv heads at a time */
    int n_pieces; /* of rows that are shared, one kv head each */
    int n_parties;
    int from, to; /* rows */
    int n_heads;
};

/* All pieces of long rows, all parties, then all rows in pieces; head by head so that a head's
 * pages stay in a member's cache. */
static void each_head(const struct self *s, int layer, const struct share *all, heads_fn fn)
{
    const int per = rows_per_piece(s, all->to - all->from);
    const int n = all->n_parties + (all->to - all->from + per - 1) / per;
    int i = team_next(s->m->team);

    for (; i < all->n_pieces; i = team_next(s->m->team))
        serve_piece(s, layer, i);
    for (i -= all->n_pieces; n > 0; i = team_next(s->m->team) - all->n_pieces) {
        int h = i / n * all->n_heads, at = i % n;
        struct heads heads = { h, h + all->n_heads };
        if (h >= s->m->h.n_kv_heads)
            return;
        if (at < all->n_parties) {
            serve_parties(s, layer, at, at + 1, heads);
            continue;
        }
        int from = all->from + (at - all->n_parties) * per;
        fn(s, layer, from, MIN(from + per, all->to), heads);
    }
}

/* ---- queries, keys and values */

enum { N_QKV = 3 };

static void qkv_targets(const struct llama *m, const struct layer *l, struct target to[N_QKV])
{
    to[0] = (struct target){ &l->q, m->q, m->q_stride };  /* [rows][n_heads * head_dim] */
    to[1] = (struct target){ &l->k, m->k, m->kv_stride }; /* [rows][n_kv_heads * head_dim] */
    to[2] = (struct target){ &l->v, m->v, m->kv_stride }; /* [rows][n_kv_heads * head_dim] */
}

static void prepare_qkv(const struct self *s, const struct layer *l, struct inputs *in)
{
    const struct llama *m = s->m;
    struct source x = { m->x, m->d_stride, NULL, l->attn_norm, m->h.d_model,
        kind_bit(m, &l->q) | kind_bit(m, &l->k) | kind_bit(m, &l->v) };

    forward_prepare(s, &x, in); /* [rows][d_model] */
}

static void qkv(const struct self *s, const struct layer *l)
{
    struct target to[N_QKV];
    struct inputs in;

    qkv_targets(s->m, l, to);
    prepare_qkv(s, l, &in);
    forward_products(s, &in, to, N_QKV);
    barrier(s);
}

static bool is_last_layer(const struct self *s, int layer)
{
    return layer == s->m->h.n_layers - 1;
}

/* Rows, the first, that attend as they append. In the last layer, where only those wanted attend,
 * these are the first of them too, or none. */
static int rows_at_once(const struct self *s, int layer)
{
    return is_last_layer(s, layer) && !s->m->are_single_wanted ? 0 : s->m->n_single;
}

static bool attends_at_once(const struct self *s, int layer)
{
    return rows_at_once(s, layer) == s->n_rows;
}

/* Whole heads are as good as other pieces when all members get as many. */
static bool goes_by_head(const struct self *s, int layer)
{
    const struct llama *m = s->m;
    int n_heads = forward_attended(s, &m->w.layers[layer]).n_heads;

    return attends_at_once(s, layer) && m->h.head_dim % PANEL == 0 &&
           m->h.n_kv_heads / n_heads % s->n == 0;
}

/* qkv() and attention() of a decoding step: who has computed a head's query, key and value goes on
 * with it, and nobody waits in between. */
static void attention_by_head(const struct self *s, int layer)
{
    struct llama *m = s->m;
    const struct layer *l = &m->w.layers[layer];
    struct target to[N_QKV];
    struct inputs in;

    qkv_targets(m, l, to);
    prepare_qkv(s, l, &in);
    const int n_heads = forward_attended(s, l).n_heads;
    for (int h; (h = team_next(m->team) * n_heads) < m->h.n_kv_heads;) {
        for (int i = 0; i < N_QKV; i++) {
            int n = to[i].w->n_panels / m->h.n_kv_heads;
            forward_product(s, to[i].w, &in,
                (struct gemm_args){ .panel_from = h * n,
                    .panel_to = (h + n_heads) * n,
                    .y = to[i].y + (size_t)h * (size_t)n * PANEL,
                    .y_stride = to[i].stride });
        }
        serve_parties(s, layer, 0, m->n_parties, (struct heads){ h, h + n_heads });
    }
    barrier(s);
}

/* Appends all rows' keys and values; then, for the rows still wanted, attended[i] of each. */
static void attention(struct self *s, int layer)
{
    struct llama *m = s->m;
    const int n_heads = forward_attended(s, &m->w.layers[layer]).n_heads;
    const int n_once = rows_at_once(s, layer);

    if (n_once < s->n_rows) { /* no row attends before all of its run are appended */
        each_head(s, layer, &(struct share){ 0, 0, n_once, s->n_rows, 1 }, append_rows);
        barrier(s);
    }
    if (is_last_layer(s, layer)) { /* behind the last keys only rows that get logits matter */
        s->pick = m->n_wanted < s->n_rows ? m->wanted : NULL;
        s->n_rows = m->n_wanted;
    }
    if (s->n_rows > 0) {
        struct share all = { 0, 0, n_once, s->n_rows, n_heads };
        if (n_once) {
            all.n_pieces = m->n_pieces;
            all.n_parties = m->n_own;
        }
        each_head(s, layer, &all, attend_rows);
        barrier(s);
    }
}

void forward_attention(struct self *s, int layer)
{
    if (goes_by_head(s, layer)) {
        attention_by_head(s, layer);
        return;
    }
    qkv(s, &s->m->w.layers[layer]);
    attention(s, layer);
}
