/* forward.c: the forward pass: embedding, layers (layer.c), output projection (head), and the batch
 * of a step.
 *
 * Owner: the engine thread calls forward_run; forward_job runs on the thread pool. */
#include "model/attention.h"
#include "model/forward_in.h"
#include "model/layer_input.h"

/* ---- the layers */

/* Row r of the stored residual stream; r is a row of the partial run. */
static float *partial_row(const struct llama *m, int r)
{
    return m->partial_x + (size_t)(r - m->n_full_rows) * m->d_stride;
}

static void embed_token(const struct llama *m, int32_t token, float *x)
{
    pack_get_row(&m->w.embd, token, x);
    for (int i = 0; m->h.embd_scale != 1 && i < m->h.d_model; i++)
        x[i] *= m->h.embd_scale;
}

/* x[n_rows][d_model] = token embeddings, or the stored rows of a resumed partial run; and the RoPE
 * table of each row's position. The per-layer inputs are functions of the embeddings, also of the
 * rows of a resumed run. */
static void embed_rows(const struct thread_ctx *s)
{
    struct llama *m = s->m;
    int from, to;

    forward_thread_range(s, m->n_rows, &from, &to);
    for (int r = from; r < to; r++) {
        float *x = m->x + (size_t)r * m->d_stride;
        if (r >= m->n_full_rows && m->from_layer > 0)
            memcpy(x, partial_row(m, r), m->d_stride * sizeof(*x));
        else
            embed_token(m, m->rows[r].token, x);
        if (m->layer_inputs)
            embed_token(m, m->rows[r].token, m->y + (size_t)r * m->d_stride);
        rope_table_at(&m->rope, m->rows[r].pos, m->cs + (size_t)r * (size_t)m->h.rope.n_rot);
        if (m->window_cs)
            rope_table_at(&m->window_rope, m->rows[r].pos,
                m->window_cs + (size_t)r * (size_t)m->h.window_rope.n_rot);
    }
    barrier(s);
    if (m->layer_inputs)
        layer_inputs_prepare(s);
}

/* x = cap * tanh(x / cap) */
static void soft_cap(const struct kernels *k, float *x, int n, float cap)
{
    k->softmax(x, x, n, 0, cap / 2); /* exp(2x / cap) */
    for (int i = 0; i < n; i++)
        x[i] = cap - 2 * cap / (x[i] + 1);
}

/* Scale and soft cap of logits [from, end) of all rows. */
static void scale_logits(const struct thread_ctx *s, int from, int end)
{
    const struct llama *m = s->m;

    for (int r = 0; r < s->n_rows; r++) {
        float *x = m->logits + (size_t)r * (size_t)m->h.n_vocab + from;
        for (int i = 0; m->h.logit_scale != 1 && i < end - from; i++)
            x[i] *= m->h.logit_scale;
        if (m->h.logit_soft_cap > 0)
            soft_cap(m->kernels, x, end - from, m->h.logit_soft_cap);
    }
}

/* Maxima of logit groups, computed while the tile's logits are in the cache. */
static void find_logit_peaks(const struct thread_ctx *s, int from, int end)
{
    const struct llama *m = s->m;
    size_t n_groups = (size_t)logit_groups(m->h.n_vocab);

    for (int r = 0; r < s->n_rows; r++)
        for (int at = from; at < end; at += LOGIT_GROUP)
            m->peaks[(size_t)r * n_groups + (size_t)(at / LOGIT_GROUP)] = m->kernels->max(
                m->logits + (size_t)r * (size_t)m->h.n_vocab + at, MIN(LOGIT_GROUP, end - at));
}

/* Logits of panels [from, to) of the output head; `next`: see struct gemm_args. */
static void output_tile(
    const struct thread_ctx *s, const struct inputs *in, int from, int to, const uint8_t *next)
{
    const struct llama *m = s->m;

    forward_gemm(s, &m->w.head, in,
        (struct gemm_args){ .panel_from = from,
            .panel_to = to,
            .y = m->logits + (size_t)from * PANEL,
            .y_stride = (size_t)m->h.n_vocab,
            .next = next });
    scale_logits(s, from * PANEL, MIN(to * PANEL, m->h.n_vocab));
}

static void output_needed_panels(const struct thread_ctx *s, const struct inputs *in)
{
    const struct llama *m = s->m;
    const struct packed *w = &m->w.head;

    for (int i; (i = thread_pool_next_task(m->thread_pool)) < m->sparse.n_ranges;) {
        const struct panel_range *r = &m->sparse.ranges[i];
        int next = i + s->n_threads;
        output_tile(s, in, r->from, r->to,
            next < m->sparse.n_ranges
                ? w->data + (size_t)m->sparse.ranges[next].from * w->panel_bytes
                : NULL);
    }
}

/* logits[n_logit_rows][n_vocab] and their group maxima, in tiles of whole groups; or the needed
 * panels without maxima. */
static void output_logits(const struct thread_ctx *s)
{
    enum { WIDTH = LOGIT_GROUP / PANEL };
    struct llama *m = s->m;
    const struct packed *w = &m->w.head;
    struct inputs in; /* [n_logit_rows][d_model] */

    rms_norm(s, m->w.out_norm, act_kind_bit(m, w), &in);
    if (m->sparse.n_ranges >= 0) {
        output_needed_panels(s, &in);
        return;
    }
    int step = MAX(forward_tile_panels(s, w->n_panels) / WIDTH, 1) * WIDTH;
    for (int from; (from = thread_pool_next_task(m->thread_pool) * step) < w->n_panels;) {
        int to = MIN(from + step, w->n_panels);
        output_tile(s, &in, from, to, forward_next_weights(s, w, from, step));
        find_logit_peaks(s, from * PANEL, MIN(to * PANEL, m->h.n_vocab));
    }
}

/* Stores the residual stream of the partial run. This happens at the end of the pass, so that a
 * stopped pass leaves the state of the previous one unchanged. */
static void save_partial_rows(const struct thread_ctx *s)
{
    const struct llama *m = s->m;
    int from, to;

    if (m->end_layer == m->h.n_layers)
        return;
    forward_thread_range(s, m->n_rows - m->n_full_rows, &from, &to);
    for (int r = m->n_full_rows + from; r < m->n_full_rows + to; r++)
        memcpy(partial_row(m, r), m->x + (size_t)r * m->d_stride, m->d_stride * sizeof(float));
}

static void forward_job(void *arg, int thread, int n_threads)
{
    struct llama *m = arg;
    struct thread_ctx s = { .m = m,
        .thread_mem = &m->per_thread[thread],
        .thread = thread,
        .n_threads = n_threads,
        .n_rows = m->n_rows };

    embed_rows(&s); /* x[n_rows][d_model] */
    for (int i = 0; i < m->h.n_layers && !m->is_stopped; i++) {
        /* the rows of the partial run are the last rows of the step, and pass some of the layers */
        s.n_rows = i >= m->from_layer && i < m->end_layer ? m->n_rows : m->n_full_rows;
        if (s.n_rows > 0)
            layer_forward(&s, i);
    }
    if (m->is_stopped)
        return;
    if (m->n_logit_rows > 0)
        output_logits(&s);
    save_partial_rows(&s);
}

/* ---- the step */

static bool is_partial_run(const struct llama *m, const struct lm_run *run)
{
    return run->from_layer > 0 || (run->end_layer > 0 && run->end_layer < m->h.n_layers);
}

/* The rows of the run are the last ones of the step so far. */
static void add_state_run(struct llama *m, const struct lm_run *run)
{
    CHECK(run->state_out.i < m->lm.n_states);
    CHECK(run->pos == 0 ? run->state.i == STATE_NONE.i : run->state.i < m->lm.n_states);
    CHECK(run->state.i != run->state_out.i || run->n <= STATE_LOG_ROWS);
    m->state_runs[m->n_state_runs++] =
        (struct state_run){ m->n_rows - run->n, run->n, run->pos, run->state, run->state_out };
}

static const page_id *window_table(const struct lm_run *run)
{
    return run->window_pages ? run->window_pages : run->pages;
}

static void check_window_pages(const struct llama *m, const struct lm_run *run)
{
    const page_id *pages = window_table(run);

    if (!m->lm.window.size)
        return;
    for (int i = kv_window_from(&m->lm.window, run->pos) / PAGE_TOKENS; i < run->pos / PAGE_TOKENS;
         i++)
        DCHECK(pages[i].i < m->lm.n_window_pages);
    for (int i = run->pos / PAGE_TOKENS; i <= (run->pos + run->n - 1) / PAGE_TOKENS; i++)
        CHECK(pages[i].i < m->lm.n_window_pages);
}

static void add_run(struct llama *m, const struct lm_run *run)
{
    CHECK(run->n >= 1 && run->pos >= 0 && run->n_logits >= 0 && run->n_logits <= run->n);
    CHECK(m->n_rows + run->n <= m->lm.max_rows);
    CHECK(m->n_logit_rows + run->n_logits <= m->lm.max_logits);
    for (int i = 0; i < run->pos / PAGE_TOKENS; i++)
        /* read only; checked in debug builds, since there are thousands of pages */
        DCHECK(run->pages[i].i < m->lm.n_pages);
    for (int i = run->pos / PAGE_TOKENS; i <= (run->pos + run->n - 1) / PAGE_TOKENS; i++)
        CHECK(run->pages[i].i < m->lm.n_pages); /* written */
    check_window_pages(m, run);

    for (int i = 0; i < run->n; i++) {
        CHECK(run->tokens[i] >= 0 && run->tokens[i] < m->h.n_vocab);
        if (i >= run->n - run->n_logits)
            m->logit_rows[m->n_logit_rows++] = m->n_rows;
        m->rows[m->n_rows++] = (struct batch_row){ .token = run->tokens[i],
            .pos = run->pos + i,
            .pages = run->pages,
            .window_pages = window_table(run),
            .run = m->n_state_runs };
    }
    if (m->state.n_layers)
        add_state_run(m, run);
}

/* Adds the partial run; there is one buffer for its state. */
static void add_partial_run(struct llama *m, const struct lm_run *run)
{
    const struct lm_run *p = &m->partial;

    m->n_full_rows = m->n_rows;
    m->from_layer = run->from_layer;
    m->end_layer = run->end_layer ? run->end_layer : m->h.n_layers;
    CHECK(m->from_layer >= 0 && m->from_layer < m->end_layer && m->end_layer <= m->h.n_layers);
    CHECK(
        run->n <= m->lm.max_partial_rows && (m->end_layer == m->h.n_layers || run->n_logits == 0));
    if (run->from_layer > 0)
        CHECK(p->n >= run->n && p->pos == run->pos && p->from_layer == run->from_layer &&
              p->pages == run->pages);
    if (run->from_layer > 0 && m->state.n_layers) /* all layers can resume at one position */
        CHECK((p->n == run->n || p->n <= STATE_LOG_ROWS) && p->state.i == run->state.i &&
              p->state_out.i == run->state_out.i);
    add_run(m, run);
}

/* The run's logits are the next ones in the buffer. */
static void assign_logits(const struct llama *m, struct lm_run *run)
{
    run->logits = m->logits + (size_t)m->n_logit_rows * (size_t)m->h.n_vocab;
    run->peaks = m->sparse.n_ranges < 0
                     ? m->peaks + (size_t)m->n_logit_rows * (size_t)logit_groups(m->h.n_vocab)
                     : NULL;
}

/* Adds the runs that pass all layers and have one row (decode), or more than one (prefill). */
static void add_runs(struct llama *m, struct lm_run *runs, int n_runs, bool is_decode)
{
    for (int i = 0; i < n_runs; i++) {
        if (is_partial_run(m, &runs[i]) || (runs[i].n == 1) != is_decode)
            continue;
        assign_logits(m, &runs[i]);
        add_run(m, &runs[i]);
    }
}

static struct lm_run *find_partial_run(const struct llama *m, struct lm_run *runs, int n_runs)
{
    struct lm_run *part = NULL;

    for (int i = 0; i < n_runs; i++)
        if (is_partial_run(m, &runs[i])) {
            CHECK(!part);
            part = &runs[i];
        }
    return part;
}

bool forward_run(struct llama *m, struct lm_run *runs, int n_runs, const _Atomic bool *stop)
{
    struct lm_run *part = find_partial_run(m, runs, n_runs);

    m->n_rows = m->n_logit_rows = m->n_state_runs = 0;
    m->is_stopped = false;
    m->stop = stop;
    sparse_head_set(&m->sparse, runs, n_runs, m->h.n_vocab, thread_pool_size(m->thread_pool));
    add_runs(m, runs, n_runs, true);
    m->n_decode_rows = m->n_rows;
    m->decode_rows_have_logits = m->n_logit_rows == m->n_decode_rows;
    add_runs(m, runs, n_runs, false);
    m->n_full_rows = m->n_rows;
    m->from_layer = m->end_layer = m->h.n_layers;
    if (part) {
        assign_logits(m, part);
        add_partial_run(m, part);
    }
    if (m->n_rows == 0)
        return true;
    attn_groups_build(m);
    thread_pool_run(m->thread_pool, forward_job, m);
    if (part && !m->is_stopped) {
        m->partial = *part;
        m->partial.n = m->end_layer < m->h.n_layers ? part->n : 0;
        m->partial.from_layer = m->end_layer;
    }
    return !m->is_stopped;
}
