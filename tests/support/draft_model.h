/* draft_model.h: fake model whose step durations follow a formula, on a simulated clock, for
 * support/draft_sim.h.
 *
 * The clock that the engine reads has noise like that of a busy machine. The results use the time
 * without noise, so that chance has no influence. */
#pragma once

#include "base/mem.h"
#include "base/rng.h"
#include "engine/core.h"
#include "testing/fake.h"
#include "testing/hooked.h"

/* With the batches of two rows of the SMALL build, a long prompt would take most of the time. */
enum { VOCAB = 40, PROMPT = SMALL ? 8 : 128, OUT = 400, STREAMS = 8 };

struct step_law { /* duration of a step, ns */
    double fixed, per_row;
    double free_rows; /* the first rows of a step cost nothing */
    double jitter;    /* each step takes up to this factor longer */
    int spikes;       /* one step in this number takes ten times as long; 0 = none */
    /* this number of normal steps alternates with as many of double duration; 0 = none */
    int phases;
};

static uint64_t now_ns, seed = 1;
static double undisturbed_ns;
static int n_steps;
static int n_long; /* steps of all streams that took much longer than without drafts */
static struct rng noise_rng;

static uint64_t law_clock(void)
{
    return now_ns;
}

/* ---- fake model with simulated step durations */

static inline void advance_clock(void *ctx, const struct lm *m, struct lm_run *runs, int n_runs)
{
    const struct step_law *law = ctx;
    double ns, rows = 0;

    for (int i = 0; i < n_runs; i++)
        rows += runs[i].n;
    ns = law->fixed + law->per_row * MAX(rows - law->free_rows, 0);
    undisturbed_ns += ns;
    n_long += n_runs == STREAMS && ns > 1.45 * (law->fixed + STREAMS * law->per_row);
    ns *= 1 + law->jitter * rng_next_unit(&noise_rng);
    if (law->spikes && rng_below(&noise_rng, (uint64_t)law->spikes) == 0)
        ns *= 10;
    if (law->phases && n_steps++ / law->phases % 2)
        ns *= 2;
    now_ns += (uint64_t)ns;
}

static inline struct lm *open_timed(const struct step_law *step_law)
{
    const struct fake_options o = {
        .n_vocab = VOCAB, .n_ctx_train = 1000, .max_rows = 200, .n_pages = 8000 / PAGE_TOKENS
    };
    struct step_law *law = xmalloc(sizeof(*law));
    struct lm *fake;
    struct err e;

    CHECK(!lm_open_fake(&fake, &o, &e));
    *law = *step_law;
    return lm_hooked(fake, advance_clock, law, mem_free);
}
