#include "testing/timed.h"
#include "base/mem.h"
#include "base/rng.h"
#include "model/script.h"
#include "testing/hooked.h"

struct timed {
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

static void advance_clock(void *ctx, const struct lm *m, struct lm_run *runs, int n_runs)
{
    struct timed *t = ctx;
    const struct timed_cost *cost = &t->cost;
    double rows = 0, keys = 0;

    for (int i = 0; i < n_runs; i++) {
        double share = layer_share(m, &runs[i]);
        rows += share * runs[i].n;
        keys += share * runs[i].n * (runs[i].pos + (runs[i].n + 1) * 0.5);
    }
    double ns = cost->fixed + cost->per_row * MAX(rows - cost->free_rows, 0) + cost->per_key * keys;
    *t->clock += (uint64_t)(ns * (1 + cost->jitter * rng_next_unit(&t->rng)));
}

int lm_open_timed(struct lm **out, const struct timed_options *o, struct err *e)
{
    const struct script_options script = { o->n_vocab, o->n_ctx_train, o->max_rows, o->n_pages };
    struct lm *lm;

    if (lm_open_script(&lm, &script, e))
        return -1;

    struct timed *t = xcalloc(1, sizeof(*t));
    *t = (struct timed){ .cost = o->cost, .rng.key = o->cost.seed, .clock = o->clock };
    lm = lm_hooked(lm, advance_clock, t, mem_free);
    lm->n_layers = MAX(o->n_layers, 1);
    lm->max_partial_rows = o->max_rows;
    *out = lm;
    return 0;
}
