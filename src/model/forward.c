#include "model/forward.h"
#include "model/forward_in.h"

/* ---- products, piece by piece */

/* Multiples of four, as the kernels like them; some eight pieces for each member, so that nobody
 * waits long for a slow one; but no member without any, and no more than a tile can hold. */
int forward_piece(const struct self *s, int n_panels)
{
    int even = n_panels / (s->n * 8) / 4 * 4;
    int fair = (n_panels + s->n - 1) / s->n;
    int tile = (int)(s->m->tile_floats / ((size_t)s->n_rows * PANEL));
    return MIN(MAX(even, 4), MIN(fair, tile));
}

void forward_product(
    const struct self *s, const struct packed *w, const struct inputs *x, struct gemm_args g)
{
    struct packed part = *w;

    part.data += (size_t)g.panel_from * w->panel_bytes;
    part.n_panels = g.panel_to - g.panel_from;
    part.n_rows = MIN(g.panel_to * PANEL, w->n_rows) - g.panel_from * PANEL;
    g.w = &part;
    g.x = &x->kind[kernels_acts(s->m->kernels, w->type)];
    g.panel_from = 0;
    g.panel_to = part.n_panels;
    s->m->kernels->gemm[gemm_slot(w->type)](&g);
}

void forward_products(const struct self *s, const struct inputs *x, const struct target *t, int n_t)
{
    int total = 0;
    for (int i = 0; i < n_t; i++)
        total += t[i].w->n_panels;
    int step = forward_piece(s, total);

    for (int piece = team_next(s->m->team), i = 0, before = 0;;) {
        int n_pieces = (t[i].w->n_panels + step - 1) / step;
        if (piece >= before + n_pieces) {
            before += n_pieces;
            if (++i == n_t)
                return;
            continue;
        }
        int from = (piece - before) * step;
        forward_product(s, t[i].w, x,
            (struct gemm_args){ .panel_from = from,
                .panel_to = MIN(from + step, t[i].w->n_panels),
                .y = t[i].y + (size_t)from * PANEL,
                .y_stride = t[i].stride });
        piece = team_next(s->m->team);
    }
}

/* x += w * input, on the rows picked. */
static void residual(const struct self *s, const struct packed *w, const struct inputs *in)
{
    struct llama *m = s->m;
    int step = forward_piece(s, w->n_panels);

    for (;;) {
        int from = team_next(m->team) * step;
        if (from >= w->n_panels)
            return;
        int to = MIN(from + step, w->n_panels);
        size_t at = (size_t)from * PANEL, width = (size_t)(to - from) * PANEL;
        int n = MIN(to * PANEL, w->n_rows) - from * PANEL;

        forward_product(s, w, in,
            (struct gemm_args){
                .panel_from = from, .panel_to = to, .y = s->mem->tile, .y_stride = width });
        for (int r = 0; r < s->n_rows; r++)
            m->kernels->add(m->x + (size_t)picked(s, r) * m->d_stride + at,
                s->mem->tile + (size_t)r * width, n);
    }
}

/* hidden = silu(gate * input) * (up * input); how it is put is written there. */
static void gate_up(
    const struct self *s, const struct layer *l, const struct inputs *in, struct made *hidden)
{
    struct llama *m = s->m;
    int step = forward_piece_of(hidden, forward_piece(s, l->gate.n_panels));

    for (;;) {
        int from = team_next(m->team) * step;
        if (from >= l->gate.n_panels)
            return;
        int to = MIN(from + step, l->gate.n_panels);
        size_t width = (size_t)(to - from) * PANEL;
        int n = MIN(to * PANEL, l->gate.n_rows) - from * PANEL;

        struct gemm_args g = { .panel_from = from, .panel_to = to, .y_stride = width };
        g.y = s->mem->tile;
        forward_product(s, &l->gate, in, g);
        g.y = s->mem->tile2;
        forward_product(s, &l->up, in, g);
        for (int r = 0; r < s->n_rows; r++)
            forward_put_silu(s, hidden, r, from * PANEL, (size_t)r * width, n);
    }
}

/* ---- attention */

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

/* Row r of kv head h: its queries, key and value are made ready, key and value go to the page. */
static void append(const struct self *s, int layer, int r, int h)
{
    struct llama *m = s->m;
    const struct layer *l = &m->w.layers[layer];
    const struct row *row = &m->rows[r];
    int group = m->h.n_heads / m->h.n_kv_heads, d = m->h.head_dim;
    int q_at = h * group * d, kv_at_h = h * d;
    float *q = m->q + (size_t)r * m->q_stride + q_at;
    float *k = m->k + (size_t)r * m->kv_stride + kv_at_h;
    float *v = m->v + (size_t)r * m->kv_stride + kv_at_h;

    finish_heads(s, q, group, r, l->q_bias ? l->q_bias + q_at : NULL, l->q_norm);
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

/* Of n output rows what the heads of kv head h say. */
static void put_attended(const struct self *s, int layer, int from, int n, int h)
{
    const struct llama *m = s->m;
    struct made to = forward_attended(s, &m->w.layers[layer]);
    int width = m->h.n_heads / m->h.n_kv_heads * m->h.head_dim;

    for (int r = from; r < from + n; r++)
        forward_put(s, &to, r, h * width, width);
}

/* Output rows `from` on, n of them, of one sequence and in order: their queries of kv head h
 * against all keys up to their own. */
static void attend(const struct self *s, int layer, int from, int n, int h)
{
    struct llama *m = s->m;
    int r = picked(s, from);
    const struct row *row = &m->rows[r];
    int group = m->h.n_heads / m->h.n_kv_heads, at = h * group * m->h.head_dim;

    struct attn_args a = { .layout = &m->kv,
        .arena = m->arena,
        .pages = row->pages,
        .layer = layer,
        .kv_head = h,
        .n_rows = n,
        .n_keys = row->pos + 1,
        .n_q = group,
        .q = m->q + (size_t)r * m->q_stride + at,
        .scale = m->h.attn_scale,
        .out = m->attended + (size_t)from * m->q_stride + at,
        .q_stride = m->q_stride,
        .out_stride = m->q_stride,
        .scratch = s->mem->attn };
    m->kernels->attend(&a);
    put_attended(s, layer, from, n, h);
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

/* Rows [from, to) of a kv head. */
typedef void (*head_fn)(const struct self *s, int layer, int from, int to, int head);

static void append_rows(const struct self *s, int layer, int from, int to, int h)
{
    for (int r = from; r < to; r++)
        append(s, layer, r, h);
}

static void attend_rows(const struct self *s, int layer, int from, int to, int h)
{
    for (int n; from < to; from += n) {
        n = rows_of_run(s, from, to);
        attend(s, layer, from, n, h);
    }
}

/* Parties [from, to): single rows, none of which reads what another appends. */
static void append_and_attend(const struct self *s, int layer, int from, int to, int h)
{
    struct llama *m = s->m;
    int group = m->h.n_heads / m->h.n_kv_heads, at = h * group * m->h.head_dim;

    for (; from < to; from++) {
        const struct party *p = &m->parties[from];
        for (int i = 0; i < p->n; i++)
            append(s, layer, m->list[p->from + i].at, h);
        struct attn_args a = { .layout = &m->kv,
            .arena = m->arena,
            .layer = layer,
            .kv_head = h,
            .n_rows = p->n,
            .rows = m->list + p->from,
            .n_shared = p->n_shared,
            .n_q = group,
            .q = m->q + at,
            .scale = m->h.attn_scale,
            .out = m->attended + at,
            .q_stride = m->q_stride,
            .out_stride = m->q_stride,
            .scratch = s->mem->attn };
        m->kernels->attend(&a);
        for (int i = 0; i < p->n; i++)
            put_attended(s, layer, m->list[p->from + i].at, 1, h);
    }
}

/* Rows that a member takes at a time. Those of one run share what is read, if nobody is left
 * without work for it. */
static int rows_per_piece(const struct self *s, int n_rows)
{
    if (n_rows >= 64)
        return 8;
    return s->is_single ? 1 : MAX(MIN(n_rows * s->m->h.n_kv_heads / (2 * s->n), 8), 1);
}

/* All (row, kv head), head by head so that a head's pages stay in a member's cache; `per` rows at a
 * time. */
static void each_head(const struct self *s, int layer, int n_rows, int per, head_fn fn)
{
    const int blocks = (n_rows + per - 1) / per;

    for (;;) {
        int i = team_next(s->m->team);
        int h = i / blocks, from = i % blocks * per;
        if (h >= s->m->h.n_kv_heads)
            return;
        fn(s, layer, from, MIN(from + per, n_rows), h);
    }
}

/* ---- the layers */

static float *paused_row(const struct llama *m, int r)
{
    return m->paused + (size_t)(r - m->n_whole) * m->d_stride;
}

static void embed(const struct self *s)
{
    struct llama *m = s->m;
    int from, to;

    forward_part(s, m->n_rows, &from, &to);
    for (int r = from; r < to; r++) {
        float *x = m->x + (size_t)r * m->d_stride;
        if (r >= m->n_whole && m->from_layer > 0)
            memcpy(x, paused_row(m, r), m->d_stride * sizeof(*x));
        else
            pack_get_row(&m->w.embd, m->rows[r].token, x);
        rope_table_at(&m->rope, m->rows[r].pos, m->cs + (size_t)r * (size_t)m->h.n_rot);
    }
    barrier(s);
}

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

/* Each row is a run of its own, and all of them are wanted. */
static bool attends_at_once(const struct self *s, int layer)
{
    return s->is_single && (!is_last_layer(s, layer) || s->m->n_wanted == s->n_rows);
}

/* Whole heads are as good as other pieces when all members get as many. */
static bool goes_by_head(const struct self *s, int layer)
{
    const struct llama *m = s->m;

    return attends_at_once(s, layer) && m->h.head_dim % PANEL == 0 && m->h.n_kv_heads % s->n == 0;
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
    for (int h; (h = team_next(m->team)) < m->h.n_kv_heads;) {
        for (int i = 0; i < N_QKV; i++) {
            int n = to[i].w->n_panels / m->h.n_kv_heads;
            forward_product(s, to[i].w, &in,
                (struct gemm_args){ .panel_from = h * n,
                    .panel_to = (h + 1) * n,
                    .y = to[i].y + (size_t)h * (size_t)n * PANEL,
                    .y_stride = to[i].stride });
        }
        append_and_attend(s, layer, 0, m->n_parties, h);
    }
    barrier(s);
}

/* Appends all rows' keys and values; then, for the rows still wanted, attended[i] of each. */
static void attention(struct self *s, int layer)
{
    struct llama *m = s->m;

    if (attends_at_once(s, layer)) {
        each_head(s, layer, m->n_parties, 1, append_and_attend);
        barrier(s);
        return;
    }
    each_head(s, layer, s->n_rows, rows_per_piece(s, s->n_rows), append_rows);
    barrier(s);
    if (is_last_layer(s, layer)) { /* behind the last keys only rows that get logits matter */
        s->pick = m->wanted;
        s->n_rows = m->n_wanted;
    }
    if (s->n_rows > 0) {
        each_head(s, layer, s->n_rows, rows_per_piece(s, s->n_rows), attend_rows);
        barrier(s);
    }
}

static void output(const struct self *s, const struct layer *l)
{
    struct made attended = forward_attended(s, l); /* [rows][n_heads * head_dim] */
    struct inputs in;

    forward_read(s, &attended, &in);
    residual(s, &l->o, &in); /* x[rows][d_model] += */
    barrier(s);
}

static void feed_forward(const struct self *s, const struct layer *l)
{
    struct llama *m = s->m;
    struct inputs in; /* [rows][d_model], then [rows][d_ff] */
    struct source x = { m->x, m->d_stride, s->pick, l->ffn_norm, m->h.d_model,
        kind_bit(m, &l->gate) | kind_bit(m, &l->up) };
    struct made hidden = forward_hidden(s, l, s->n_rows);

    forward_prepare(s, &x, &in);
    gate_up(s, l, &in, &hidden); /* [rows][d_ff] */
    barrier(s);
    forward_read(s, &hidden, &in);
    residual(s, &l->down, &in); /* x[rows][d_model] += */
    look_at_stop(s);
    barrier(s);
}

/* While a piece's logits are in the cache. */
static void find_peaks(const struct self *s, int from, int end)
{
    const struct llama *m = s->m;
    size_t n_groups = (size_t)logit_groups(m->h.n_vocab);

    for (int r = 0; r < s->n_rows; r++)
        for (int at = from; at < end; at += LOGIT_GROUP)
            m->peaks[(size_t)r * n_groups + (size_t)(at / LOGIT_GROUP)] = m->kernels->max(
                m->logits + (size_t)r * (size_t)m->h.n_vocab + at, MIN(LOGIT_GROUP, end - at));
}

/* logits[wanted][n_vocab] and their peaks, in pieces of whole groups. */
static void head(const struct self *s)
{
    enum { WIDTH = LOGIT_GROUP / PANEL };
    struct llama *m = s->m;
    const struct packed *w = &m->w.head;
    struct inputs in; /* [wanted][d_model] */
    struct source x = { m->x, m->d_stride, s->pick, m->w.out_norm, m->h.d_model, kind_bit(m, w) };

    forward_prepare(s, &x, &in);
    int step = MAX(forward_piece(s, w->n_panels) / WIDTH, 1) * WIDTH;
    for (int from; (from = team_next(m->team) * step) < w->n_panels;) {
        int to = MIN(from + step, w->n_panels);
        forward_product(s, w, &in,
            (struct gemm_args){ .panel_from = from,
                .panel_to = to,
                .y = m->logits + (size_t)from * PANEL,
                .y_stride = (size_t)m->h.n_vocab });
        find_peaks(s, from * PANEL, MIN(to * PANEL, m->h.n_vocab));
    }
}

/* The rows that pass this layer: those of the run that pauses are the last. */
static void choose_rows(struct self *s, int layer)
{
    const struct llama *m = s->m;
    bool are_all = layer >= m->from_layer && layer < m->end_layer;

    s->n_rows = are_all ? m->n_rows : m->n_whole;
    s->is_single = m->is_single && s->n_rows == m->n_whole;
}

static void one_layer(struct self *s, int i)
{
    struct llama *m = s->m;
    const struct layer *l = &m->w.layers[i];

    if (goes_by_head(s, i)) {
        attention_by_head(s, i);
    } else {
        qkv(s, l);
        attention(s, i);
    }
    if (s->n_rows == 0) /* nobody wants logits, and the last keys are in their pages */
        return;
    output(s, l);
    if (m->h.n_experts)
        forward_experts(s, l);
    else
        feed_forward(s, l);
}

/* At the very end: a pass that is stopped on the way must find what it began with. */
static void keep_paused(const struct self *s)
{
    const struct llama *m = s->m;
    int from, to;

    if (m->end_layer == m->h.n_layers)
        return;
    forward_part(s, m->n_rows - m->n_whole, &from, &to);
    for (int r = m->n_whole + from; r < m->n_whole + to; r++)
        memcpy(paused_row(m, r), m->x + (size_t)r * m->d_stride, m->d_stride * sizeof(float));
}

static void forward_job(void *arg, int index, int n_members)
{
    struct llama *m = arg;
    struct self s = { m, &m->members[index], index, n_members, NULL, m->n_rows, false };

    embed(&s); /* x[rows][d_model] */
    for (int i = 0; i < m->h.n_layers && !m->is_stopped; i++) {
        choose_rows(&s, i);
        if (s.n_rows > 0)
            one_layer(&s, i);
    }
    if (m->is_stopped)
        return;
    if (m->n_wanted > 0)
        head(&s);
    keep_paused(&s);
}

/* ---- the step */

static bool is_in_part(const struct llama *m, const struct lm_run *run)
{
    return run->from_layer > 0 || (run->end_layer > 0 && run->end_layer < m->h.n_layers);
}

static void take_run(struct llama *m, const struct lm_run *run)
{
    CHECK(run->n >= 1 && run->pos >= 0 && run->n_logits >= 0 && run->n_logits <= run->n);
    CHECK(m->n_rows + run->n <= m->lm.max_rows);
    CHECK(m->n_wanted + run->n_logits <= m->lm.max_logits);
    for (int i = 0; i < run->pos / PAGE_TOKENS; i++)
        DCHECK(run->pages[i].i < m->lm.n_pages); /* read: thousands of them */
    for (int i = run->pos / PAGE_TOKENS; i <= (run->pos + run->n - 1) / PAGE_TOKENS; i++)
        CHECK(run->pages[i].i < m->lm.n_pages); /* written */

    for (int i = 0; i < run->n; i++) {
        CHECK(run->tokens[i] >= 0 && run->tokens[i] < m->h.n_vocab);
        if (i >= run->n - run->n_logits)
            m->wanted[m->n_wanted++] = m->n_rows;
        m->rows[m->n_rows++] =
            (struct row){ .token = run->tokens[i], .pos = run->pos + i, .pages = run->pages };
    }
    if (run->n > 1 && !is_in_part(m, run))
        m->is_single = false;
}

/* A run that was paused, or pauses: in the one buffer that there is for it. */
static void take_part(struct llama *m, const struct lm_run *run)
{
    const struct lm_run *p = &m->pause;

    m->n_whole = m->n_rows;
    m->from_layer = run->from_layer;
    m->end_layer = run->end_layer ? run->end_layer : m->h.n_layers;
    CHECK(m->from_layer >= 0 && m->from_layer < m->end_layer && m->end_layer <= m->h.n_layers);
    CHECK(run->n <= m->lm.max_paused && (m->end_layer == m->h.n_layers || run->n_logits == 0));
    if (run->from_layer > 0)
        CHECK(p->n >= run->n && p->pos == run->pos && p->from_layer == run->from_layer &&
              p->pages == run->pages);
    take_run(m, run);
}

/* Those that come next are the run's. */
static void point_at_logits(const struct llama *m, struct lm_run *run)
{
    run->logits = m->logits + (size_t)m->n_wanted * (size_t)m->h.n_vocab;
    run->peaks = m->peaks + (size_t)m->n_wanted * (size_t)logit_groups(m->h.n_vocab);
}

bool forward_run(struct llama *m, struct lm_run *runs, int n_runs, const _Atomic bool *stop)
{
    struct lm_run *part = NULL;

    m->n_rows = m->n_wanted = 0;
    m->is_single = true;
    m->is_stopped = false;
    m->stop = stop;
    for (int i = 0; i < n_runs; i++) {
        point_at_logits(m, &runs[i]);
        CHECK(!is_in_part(m, &runs[i]) || !part);
        if (is_in_part(m, &runs[i]))
            part = &runs[i];
        else
            take_run(m, &runs[i]);
    }
    m->n_whole = m->n_rows;
    m->from_layer = m->end_layer = m->h.n_layers;
    if (part) {
        point_at_logits(m, part);
        take_part(m, part);
    }
    if (m->n_rows == 0)
        return true;
    if (m->is_single)
        forward_parties(m);
    team_run(m->team, forward_job, m);
    if (part && !m->is_stopped) {
        m->pause = *part;
        m->pause.n = m->end_layer < m->h.n_layers ? part->n : 0;
        m->pause.from_layer = m->end_layer;
    }
    return !m->is_stopped;
}
