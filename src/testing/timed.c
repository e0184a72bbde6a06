#include "testing/timed.h"
#include "base/mem.h"
#include "base/rng.h"

struct timed {
    struct lm lm;
    struct timed_cost cost;
    struct rng rng;
    uint64_t *clock;
};

/* Share of the layers that the run passes. */
static double layer_share(const struct lm *m, const struct lm_run *r)
{
    int end = r->end_layer ? r->end_layer : m->n_layers;

    CHECK(r->from_layer >= 0 && r->from_layer < end && end <= m->n_layers);
    return (double)(end - r->from_layer) / m->n_layers;
}

static bool timed_forward(struct lm *m, struct lm_run *runs, int n_runs, const _Atomic bool *stop)
{
    struct timed *t = container_of(m, struct timed, lm);
    const struct timed_cost *cost = &t->cost;
    double rows = 0, keys = 0;

    if (stop && *stop)
        return false;
    for (int i = 0; i < n_runs; i++) {
        CHECK(runs[i].n_logits == 0);
        double share = layer_share(m, &runs[i]);
        rows += share * runs[i].n;
        keys += share * runs[i].n * (runs[i].pos + (runs[i].n + 1) * 0.5);
        runs[i].logits = runs[i].peaks = NULL;
    }
    double ns = cost->fixed + cost->per_row * MAX(rows - cost->free_rows, 0) + cost->per_key * keys;
    *t->clock += (uint64_t)(ns * (1 + cost->jitter * rng_next_unit(&t->rng)));
    return true;
}

static void timed_close(struct lm *m)
{
    mem_free(container_of(m, struct timed, lm));
}

static const struct lm_ops timed_ops = { timed_forward, lm_copy_page, lm_clear_page, lm_read_page,
    lm_write_page, NULL, timed_close };

int lm_open_timed(struct lm **out, const struct timed_options *o, struct err *e)
{
    if (o->n_vocab < 1 || o->n_ctx_train < 1 || o->max_rows < 1 || o->n_pages < 1)
        return err_set(e, ERR_RANGE, "a timed model without vocabulary, context, rows or pages");

    struct timed *t = xcalloc(1, sizeof(*t));
    t->cost = o->cost;
    t->rng.key = o->cost.seed;
    t->clock = o->clock;
    t->lm = (struct lm){
        .ops = &timed_ops,
        .n_vocab = o->n_vocab,
        .n_ctx_train = o->n_ctx_train,
        .max_rows = o->max_rows,
        .max_logits = o->max_rows,
        .n_layers = MAX(o->n_layers, 1),
        .max_partial_rows = o->max_rows,
        .n_pages = o->n_pages,
    };
    *out = &t->lm;
    return 0;
}
