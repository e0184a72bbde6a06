#include "testing/fake.h"
#include "base/hash.h"
#include "base/mem.h"

#include <math.h>

/* A layer of a state slot. The number `acc` is a hash of the tokens before `base`; log has the
 * updates of the following positions. */
struct layer_state {
    int32_t base, n_log;
    uint64_t acc;
    uint64_t log[STATE_LOG_ROWS];
};

struct fake_rows {    /* [max_rows] each, one number per row of a run */
    uint64_t *rows;   /* the number in the page */
    uint64_t *window; /* the number in the window page; 0 without a window */
    uint64_t *sums;   /* sum of what the layers add to a row */
};

struct fake {
    struct lm lm;
    struct fake_options o;
    uint64_t *kv;               /* [n_pages][PAGE_TOKENS] */
    uint64_t *window_kv;        /* [n_window_pages][PAGE_TOKENS] */
    struct layer_state *states; /* [n_states][n_layers] */
    float *logits;              /* [max_logits][n_vocab] */
    struct fake_rows now, part; /* rows of the present run; of the partial run (layered prefill) */
    struct lm_run partial;
};

static uint64_t row_hash(uint64_t seed, uint64_t prefix, int32_t token, int pos)
{
    return hash_mix(hash_mix(seed ^ prefix) + ((uint64_t)(uint32_t)token << 32 | (uint32_t)pos));
}

/* Adds a position to the prefix state; the state depends on each number and its position. */
static uint64_t add_to_prefix(uint64_t acc, uint64_t row, int pos)
{
    return acc + (row | 1) * (0x9e3779b97f4a7c15u + 2 * (uint64_t)(uint32_t)pos);
}

static void logits_of(uint64_t row, int n_vocab, float *out)
{
    for (int v = 0; v < n_vocab; v++) {
        uint64_t bits = hash_mix(row + 0x632be59bd9b4e019u * (uint64_t)(v + 1));
        out[v] = (float)(bits >> 40) * 0x1p-21f - 4.0f; /* -4 .. 4 */
    }
}

static uint64_t *kv_slot_of(struct fake *f, const page_id *pages, int pos)
{
    page_id page = pages[pos / PAGE_TOKENS];

    CHECK(page.i < f->o.n_pages);
    return &f->kv[(size_t)page.i * PAGE_TOKENS + (size_t)(pos % PAGE_TOKENS)];
}

/* ---- windowed layers */

static uint64_t *window_slot_of(struct fake *f, const struct lm_run *r, int pos)
{
    page_id page = (r->window_pages ? r->window_pages : r->pages)[pos / PAGE_TOKENS];

    CHECK(page.i < f->lm.n_window_pages);
    return &f->window_kv[(size_t)page.i * PAGE_TOKENS + (size_t)(pos % PAGE_TOKENS)];
}

/* Hash of the numbers of the positions before `pos` to which row `pos` attends. `own`: numbers of
 * the rows of the run, which are not in the pages yet. */
static uint64_t window_hash(struct fake *f, const struct lm_run *r, int pos, const uint64_t *own)
{
    uint64_t acc = 0;

    for (int j = MAX(pos + 1 - f->o.window, 0); f->o.window && j < pos; j++)
        acc = add_to_prefix(acc, j < r->pos ? *window_slot_of(f, r, j) : own[j - r->pos], j);
    return acc;
}

static uint64_t window_number(uint64_t row, uint64_t window)
{
    return hash_mix(row ^ hash_mix(window + 1));
}

/* ---- recurrent state: every layer has one */

static struct layer_state *state_at(const struct fake *f, state_id state, int layer)
{
    CHECK(state.i < f->lm.n_states);
    return &f->states[(size_t)state.i * (size_t)f->lm.n_layers + (size_t)layer];
}

static uint64_t token_update(int32_t token, int pos)
{
    return hash_mix((uint64_t)(uint32_t)token << 32 | (uint32_t)pos);
}

static uint64_t add_to_state(uint64_t acc, uint64_t update)
{
    return hash_mix(acc + update);
}

/* The number that a layer with a state adds to a row. */
static uint64_t layer_output(uint64_t acc, int layer)
{
    return hash_mix(acc ^ ((uint64_t)layer + 1) << 40);
}

static void check_slots(const struct fake *f, const struct lm_run *r)
{
    if (!f->lm.n_states)
        return;
    CHECK((r->state.i == STATE_NONE.i) == (r->pos == 0));
    CHECK(r->state_out.i < f->lm.n_states);
    CHECK(r->state.i != r->state_out.i || r->n <= STATE_LOG_ROWS);
}

/* Advances the state of one layer by the rows, and adds its outputs to their sums. */
static void run_state(struct fake *f, const struct lm_run *r, int layer, uint64_t *sums)
{
    struct layer_state now = { 0 };

    if (!f->lm.n_states)
        return;
    if (r->pos > 0)
        now = *state_at(f, r->state, layer);
    CHECK(r->pos >= now.base && r->pos <= now.base + now.n_log);
    for (int i = 0; now.base < r->pos; now.base++)
        now.acc = add_to_state(now.acc, now.log[i++]);
    uint64_t acc = now.acc;
    now.n_log = MIN(r->n, (int)STATE_LOG_ROWS);
    for (int i = 0; i < r->n; i++) {
        uint64_t update = token_update(r->tokens[i], r->pos + i);
        int logged = i - (r->n - now.n_log);
        if (logged == 0) {
            now.base = r->pos + i;
            now.acc = acc;
        }
        if (logged >= 0)
            now.log[logged] = update;
        sums[i] += layer_output(acc, layer);
        acc = add_to_state(acc, update);
    }
    *state_at(f, r->state_out, layer) = now;
}

/* A stopped pass has passed some layers; a slot that only this run writes has undefined data. */
static void stop_in_layers(struct fake *f, const struct lm_run *r)
{
    int end = r->end_layer ? r->end_layer : f->lm.n_layers;
    int middle = r->from_layer + (end - r->from_layer) / 2;

    if (!f->lm.n_states)
        return;
    for (int l = r->from_layer; l < end; l++)
        if (l < middle)
            run_state(f, r, l, f->now.sums);
        else if (r->state.i != r->state_out.i)
            memset(state_at(f, r->state_out, l), 0xa5, sizeof(struct layer_state));
}

static void fake_read_state(struct lm *m, state_id state, void *out)
{
    struct fake *f = container_of(m, struct fake, lm);

    memcpy(out, state_at(f, state, 0), m->state_bytes);
    for (int l = 0; l < m->n_layers; l++) {
        struct layer_state *s = (struct layer_state *)out + l;
        memset(s->log + s->n_log, 0, (STATE_LOG_ROWS - (size_t)s->n_log) * sizeof(s->log[0]));
    }
}

static int fake_write_state(struct lm *m, state_id state, const void *in, int pos)
{
    struct fake *f = container_of(m, struct fake, lm);
    struct layer_state *s = state_at(f, state, 0);
    int first = 0;

    memcpy(s, in, m->state_bytes);
    for (int l = 0; l < m->n_layers; l++) {
        if (s[l].n_log < 0 || s[l].n_log > STATE_LOG_ROWS || s[l].base < 0 || s[l].base > pos ||
            pos - s[l].base > s[l].n_log)
            return -1;
        first = MAX(first, s[l].base);
    }
    return first;
}

/* ---- rows */

static void run_rows(struct fake *f, const struct lm_run *r, struct fake_rows *out)
{
    uint64_t prefix = 0;

    for (int j = 0; !f->o.is_windowed_only && j < r->pos; j++)
        prefix = add_to_prefix(prefix, *kv_slot_of(f, r->pages, j), j);
    for (int i = 0; i < r->n; i++) {
        int pos = r->pos + i;
        CHECK(r->tokens[i] >= 0 && r->tokens[i] < f->o.n_vocab);
        uint64_t window = window_hash(f, r, pos, out->window);
        uint64_t before = f->o.is_windowed_only ? window : prefix;
        out->rows[i] = row_hash(f->o.seed, before, r->tokens[i], pos);
        out->window[i] = f->o.window ? window_number(out->rows[i], window) : 0;
        prefix = add_to_prefix(prefix, out->rows[i], pos);
    }
    memset(out->sums, 0, (size_t)r->n * sizeof(*out->sums));
}

/* Logits that no caller needs are NaN. */
static void omit_panels(const uint32_t *panels, int n_vocab, float *logits)
{
    for (int v = 0; panels && v < n_vocab; v++)
        if (!(panels[v / LOGIT_PANEL / 32] >> v / LOGIT_PANEL % 32 & 1))
            logits[v] = NAN;
}

/* The numbers of the rows go into the KV pages, what the layers added to them into the logits. */
static void finish_rows(
    struct fake *f, const struct lm_run *r, const struct fake_rows *x, float *logits)
{
    for (int i = 0; i < r->n; i++) {
        *kv_slot_of(f, r->pages, r->pos + i) = x->rows[i];
        if (f->o.window)
            *window_slot_of(f, r, r->pos + i) = x->window[i];
        if (i >= r->n - r->n_logits) {
            logits_of(x->rows[i] + x->window[i] + x->sums[i], f->o.n_vocab, logits);
            omit_panels(r->panels, f->o.n_vocab, logits);
            logits += f->o.n_vocab;
        }
    }
}

static void overwrite_slots(struct fake *f, const struct lm_run *r)
{
    for (int i = 0; i < r->n; i++) {
        *kv_slot_of(f, r->pages, r->pos + i) = 0xdeadbeefu * (uint64_t)(i + 1);
        if (f->o.window)
            *window_slot_of(f, r, r->pos + i) = 0xdeadbeefu * (uint64_t)(i + 1);
    }
}

/* Each layer adds a number to a row; those of all layers add up to 0. */
static uint64_t layer_number(const struct fake *f, int layer)
{
    uint64_t all = 0;

    if (layer < f->lm.n_layers - 1)
        return hash_mix((uint64_t)layer + 1);
    for (int l = 0; l < f->lm.n_layers - 1; l++)
        all += hash_mix((uint64_t)l + 1);
    return 0 - all;
}

static void run_layers(
    struct fake *f, const struct lm_run *r, int from_layer, int end_layer, uint64_t *sums)
{
    for (int l = from_layer; l < end_layer; l++) {
        for (int i = 0; i < r->n; i++)
            sums[i] += layer_number(f, l);
        run_state(f, r, l, sums);
    }
}

static void run_partial(struct fake *f, const struct lm_run *r, int end_layer, float *logits)
{
    const struct lm_run *p = &f->partial;

    CHECK(r->from_layer >= 0 && r->from_layer < end_layer && end_layer <= f->lm.n_layers);
    CHECK(r->n <= f->lm.max_partial_rows && (end_layer == f->lm.n_layers || r->n_logits == 0));
    if (r->from_layer == 0)
        run_rows(f, r, &f->part);
    else
        CHECK(
            p->n >= r->n && p->pos == r->pos && p->from_layer == r->from_layer &&
            p->pages == r->pages && p->window_pages == r->window_pages &&
            (!f->lm.n_states || ((p->n == r->n || p->n <= STATE_LOG_ROWS) &&
                                    p->state.i == r->state.i && p->state_out.i == r->state_out.i)));
    run_layers(f, r, r->from_layer, end_layer, f->part.sums);
    f->partial = *r;
    f->partial.from_layer = end_layer;
    if (end_layer < f->lm.n_layers) {
        overwrite_slots(f, r);
        return;
    }
    f->partial.n = 0;
    finish_rows(f, r, &f->part, logits);
}

static void run_whole(struct fake *f, const struct lm_run *r, float *logits)
{
    run_rows(f, r, &f->now);
    run_layers(f, r, 0, f->lm.n_layers, f->now.sums);
    finish_rows(f, r, &f->now, logits);
}

static bool is_partial_run(const struct lm *m, const struct lm_run *r)
{
    return r->from_layer > 0 || (r->end_layer > 0 && r->end_layer < m->n_layers);
}

static bool fake_forward(struct lm *m, struct lm_run *runs, int n_runs, const _Atomic bool *stop)
{
    struct fake *f = container_of(m, struct fake, lm);
    struct lm_run *partial = NULL;
    int n_rows = 0, n_logits = 0;

    for (int i = 0; i < n_runs; i++) {
        struct lm_run *r = &runs[i];
        CHECK(r->n >= 1 && r->pos >= 0 && r->n_logits >= 0 && r->n_logits <= r->n);
        if (stop && *stop) {
            for (int j = 0; j < n_runs; j++) {
                overwrite_slots(f, &runs[j]);
                stop_in_layers(f, &runs[j]);
            }
            return false;
        }
        check_slots(f, r);
        CHECK((n_rows += r->n) <= m->max_rows);
        CHECK(n_logits + r->n_logits <= m->max_logits);
        float *logits = f->logits + (size_t)n_logits * (size_t)f->o.n_vocab;
        r->logits = logits;
        r->peaks = NULL;
        n_logits += r->n_logits;
        if (is_partial_run(m, r)) {
            CHECK(!partial);
            partial = r;
        } else {
            run_whole(f, r, logits);
        }
    }
    if (partial) /* from here on the pass cannot be stopped, so the stored state may change */
        run_partial(f, partial, partial->end_layer ? partial->end_layer : m->n_layers,
            f->logits + (partial->logits - f->logits));
    return true;
}

static void fake_close(struct lm *m)
{
    struct fake *f = container_of(m, struct fake, lm);

    mem_free(f->kv);
    mem_free(f->logits);
    mem_free(f->states);
    mem_free(f->window_kv);
    mem_free(f->now.rows); /* the numbers of both runs */
    mem_free(f);
}

/* In descending order, to detect callers that expect thread 0 to be the first. */
static void fake_run_on_threads(
    struct lm *m, void (*fn)(void *arg, int thread, int n_threads), void *arg)
{
    for (int i = m->n_threads - 1; i >= 0; i--)
        fn(arg, i, m->n_threads);
}

static const struct lm_ops fake_ops = {
    .forward = fake_forward,
    .copy_page = lm_copy_page,
    .clear_page = lm_clear_page,
    .read_page = lm_read_page,
    .write_page = lm_write_page,
    .read_state = fake_read_state,
    .write_state = fake_write_state,
    .run_on_threads = fake_run_on_threads,
    .close = fake_close,
};

static void set_rows(struct fake_rows *x, uint64_t *memory, size_t n)
{
    *x = (struct fake_rows){ .rows = memory, .window = memory + n, .sums = memory + 2 * n };
}

int lm_open_fake(struct lm **out, const struct fake_options *o, struct err *e)
{
    if (o->n_vocab < 2 || o->n_ctx_train < 1 || o->max_rows < 1 || o->n_pages < 1)
        return err_set(e, ERR_RANGE, "a fake model without vocabulary, context, rows or pages");

    struct fake *f = xcalloc(1, sizeof(*f));
    size_t n_slots = (size_t)o->n_pages * PAGE_TOKENS, n_rows = (size_t)o->max_rows;
    size_t n_layers = (size_t)MAX(o->n_layers, 1);
    uint32_t n_window_pages = o->n_window_pages ? o->n_window_pages : o->n_pages;
    f->o = *o;
    if (o->window)
        f->window_kv = try_calloc((size_t)n_window_pages * PAGE_TOKENS, sizeof(*f->window_kv));
    f->kv = try_calloc(n_slots, sizeof(*f->kv));
    f->logits = try_calloc(n_rows * (size_t)o->n_vocab, sizeof(*f->logits));
    f->now.rows = try_calloc(6 * n_rows, sizeof(*f->now.rows));
    f->states = try_calloc(MAX(o->n_states, 1) * n_layers, sizeof(*f->states));
    f->lm = (struct lm){
        .ops = &fake_ops,
        .n_vocab = o->n_vocab,
        .n_ctx_train = o->n_ctx_train,
        .max_rows = o->max_rows,
        .max_logits = o->max_rows,
        .n_layers = (int)n_layers,
        .max_partial_rows = o->max_rows,
        .n_threads = MAX(o->n_threads, 1),
        .n_pages = o->n_pages,
        .page_bytes = o->is_windowed_only ? 0 : PAGE_TOKENS * sizeof(*f->kv),
        .arena = o->is_windowed_only ? NULL : (uint8_t *)f->kv,
        .window = { o->window, 1 },
        .n_window_pages = o->window ? n_window_pages : 0,
        .window_page_bytes = o->window ? PAGE_TOKENS * sizeof(*f->window_kv) : 0,
        .window_arena = (uint8_t *)f->window_kv,
        .n_states = o->n_states,
        .state_bytes = o->n_states ? n_layers * sizeof(*f->states) : 0,
    };
    if (!f->kv || !f->logits || !f->now.rows || !f->states || (o->window && !f->window_kv)) {
        fake_close(&f->lm);
        return err_set(e, ERR_MEMORY, "no memory for a fake model of %u pages", o->n_pages);
    }
    set_rows(&f->now, f->now.rows, n_rows);
    set_rows(&f->part, f->now.rows + 3 * n_rows, n_rows);
    *out = &f->lm;
    return 0;
}

void fake_reference_logits(
    const struct fake_options *o, const int32_t *tokens, int n, uint64_t *scratch, float *logits)
{
    uint64_t prefix = 0, acc = 0, sum = 0, row = 0;

    for (int pos = 0; pos < n; pos++) {
        uint64_t window = 0;
        for (int j = MAX(pos + 1 - o->window, 0); o->window && j < pos; j++)
            window = add_to_prefix(window, scratch[j], j);
        row = row_hash(o->seed, o->is_windowed_only ? window : prefix, tokens[pos], pos);
        scratch[pos] = o->window ? window_number(row, window) : 0;
        prefix = add_to_prefix(prefix, row, pos);
        if (pos < n - 1)
            acc = add_to_state(acc, token_update(tokens[pos], pos));
    }
    for (int l = 0; o->n_states && l < MAX(o->n_layers, 1); l++)
        sum += layer_output(acc, l);
    logits_of(row + scratch[n - 1] + sum, o->n_vocab, logits);
}
