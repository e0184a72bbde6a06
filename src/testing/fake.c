#include "testing/fake.h"
#include "base/hash.h"
#include "base/mem.h"

struct fake {
    struct lm lm;
    struct fake_options o;
    uint64_t *kv;   /* [n_pages][PAGE_TOKENS] */
    float *logits;  /* [max_logits][n_vocab] */
    uint64_t *rows; /* [max_rows]: rows of a run */
    /* [max_partial_rows]: rows of the partial run (layered prefill), after the layers it has passed
     * */
    uint64_t *partial_rows;
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

static void run_rows(struct fake *f, const struct lm_run *r, uint64_t *out)
{
    uint64_t prefix = 0;

    for (int j = 0; j < r->pos; j++)
        prefix = add_to_prefix(prefix, *kv_slot_of(f, r->pages, j), j);
    for (int i = 0; i < r->n; i++) {
        int pos = r->pos + i;
        CHECK(r->tokens[i] >= 0 && r->tokens[i] < f->o.n_vocab);
        out[i] = row_hash(f->o.seed, prefix, r->tokens[i], pos);
        prefix = add_to_prefix(prefix, out[i], pos);
    }
}

static void finish_rows(struct fake *f, const struct lm_run *r, const uint64_t *rows, float *logits)
{
    for (int i = 0; i < r->n; i++) {
        *kv_slot_of(f, r->pages, r->pos + i) = rows[i];
        if (i >= r->n - r->n_logits) {
            logits_of(rows[i], f->o.n_vocab, logits);
            logits += f->o.n_vocab;
        }
    }
}

static void overwrite_slots(struct fake *f, const struct lm_run *r)
{
    for (int i = 0; i < r->n; i++)
        *kv_slot_of(f, r->pages, r->pos + i) = 0xdeadbeefu * (uint64_t)(i + 1);
}

/* Each layer changes the number of a row; the last layer restores the number of a pass without
 * layers. */
static uint64_t layer_mask(const struct fake *f, int layer)
{
    uint64_t all = 0;

    if (layer < f->lm.n_layers - 1)
        return hash_mix((uint64_t)layer + 1);
    for (int l = 0; l < f->lm.n_layers - 1; l++)
        all ^= hash_mix((uint64_t)l + 1);
    return all;
}

static void run_partial(struct fake *f, const struct lm_run *r, int end_layer, float *logits)
{
    const struct lm_run *p = &f->partial;

    CHECK(r->from_layer >= 0 && r->from_layer < end_layer && end_layer <= f->lm.n_layers);
    CHECK(r->n <= f->lm.max_partial_rows && (end_layer == f->lm.n_layers || r->n_logits == 0));
    if (r->from_layer == 0)
        run_rows(f, r, f->partial_rows);
    else
        CHECK(p->n >= r->n && p->pos == r->pos && p->from_layer == r->from_layer &&
              p->pages == r->pages);
    for (int i = 0; i < r->n; i++)
        for (int l = r->from_layer; l < end_layer; l++)
            f->partial_rows[i] ^= layer_mask(f, l);
    f->partial = *r;
    f->partial.from_layer = end_layer;
    if (end_layer < f->lm.n_layers) {
        overwrite_slots(f, r);
        return;
    }
    f->partial.n = 0;
    finish_rows(f, r, f->partial_rows, logits);
}

static void run_whole(struct fake *f, const struct lm_run *r, float *logits)
{
    run_rows(f, r, f->rows);
    finish_rows(f, r, f->rows, logits);
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
            for (int j = 0; j < n_runs; j++)
                overwrite_slots(f, &runs[j]);
            return false;
        }
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
    mem_free(f->partial_rows);
    mem_free(f->rows);
    mem_free(f);
}

/* In descending order, to detect callers that expect thread 0 to be the first. */
static void fake_run_on_threads(
    struct lm *m, void (*fn)(void *arg, int thread, int n_threads), void *arg)
{
    for (int i = m->n_threads - 1; i >= 0; i--)
        fn(arg, i, m->n_threads);
}

static const struct lm_ops fake_ops = { fake_forward, lm_copy_page, lm_clear_page, lm_read_page,
    lm_write_page, fake_run_on_threads, fake_close };

int lm_open_fake(struct lm **out, const struct fake_options *o, struct err *e)
{
    if (o->n_vocab < 2 || o->n_ctx_train < 1 || o->max_rows < 1 || o->n_pages < 1)
        return err_set(e, ERR_RANGE, "a fake model without vocabulary, context, rows or pages");

    struct fake *f = xcalloc(1, sizeof(*f));
    size_t n_slots = (size_t)o->n_pages * PAGE_TOKENS;
    f->o = *o;
    f->kv = try_calloc(n_slots, sizeof(*f->kv));
    f->logits = try_calloc((size_t)o->max_rows * (size_t)o->n_vocab, sizeof(*f->logits));
    f->rows = try_calloc((size_t)o->max_rows, sizeof(*f->rows));
    f->partial_rows = try_calloc((size_t)o->max_rows, sizeof(*f->partial_rows));
    f->lm = (struct lm){
        .ops = &fake_ops,
        .n_vocab = o->n_vocab,
        .n_ctx_train = o->n_ctx_train,
        .max_rows = o->max_rows,
        .max_logits = o->max_rows,
        .n_layers = MAX(o->n_layers, 1),
        .max_partial_rows = o->max_rows,
        .n_threads = MAX(o->n_threads, 1),
        .n_pages = o->n_pages,
        .page_bytes = PAGE_TOKENS * sizeof(*f->kv),
        .arena = (uint8_t *)f->kv,
    };
    if (!f->kv || !f->logits || !f->rows || !f->partial_rows) {
        fake_close(&f->lm);
        return err_set(e, ERR_MEMORY, "no memory for a fake model of %u pages", o->n_pages);
    }
    *out = &f->lm;
    return 0;
}

void fake_reference_logits(
    const struct fake_options *o, const int32_t *tokens, int n, uint64_t *scratch, float *logits)
{
    uint64_t prefix = 0;

    for (int pos = 0; pos < n; pos++) {
        scratch[pos] = row_hash(o->seed, prefix, tokens[pos], pos);
        prefix = add_to_prefix(prefix, scratch[pos], pos);
    }
    logits_of(scratch[n - 1], o->n_vocab, logits);
}
