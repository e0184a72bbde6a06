/* Speculative decoding must not cost time. The engine runs a model whose step durations follow a
 * formula, on a simulated clock, with a drafter of fixed acceptance; the test compares the time
 * with drafts and without.
 *
 * The clock that the engine reads has noise like that of a busy machine. The comparison uses the
 * time without noise, so that chance has no influence. */
#include "base/mem.h"
#include "base/rng.h"
#include "engine/core.h"
#include "testing/fake.h"
#include "testing/hooked.h"
#include "support/check.h"

enum { VOCAB = 40, PROMPT = 8, OUT = 400, STREAMS = 8, SEEDS = 4 };

struct step_law { /* duration of a step, ns */
    double fixed, per_row;
    double jitter; /* each step takes up to this factor longer */
    int spikes;    /* one step in this number takes ten times as long; 0 = none */
    /* this number of normal steps alternates with as many of double duration; 0 = none */
    int phases;
};

static uint64_t now_ns, seed = 1;
static double undisturbed_ns;
static int n_steps;
static sample_mask_fn mask; /* token mask of all requests */
static int n_long;          /* steps of all streams that took much longer than without drafts */
static struct rng noise_rng;

static uint64_t law_clock(void)
{
    return now_ns;
}

/* ---- fake model with simulated step durations */

static void advance_clock(void *ctx, const struct lm *m, struct lm_run *runs, int n_runs)
{
    const struct step_law *law = ctx;
    double ns = law->fixed;

    for (int i = 0; i < n_runs; i++)
        ns += law->per_row * runs[i].n;
    undisturbed_ns += ns;
    n_long += n_runs == STREAMS && ns > 1.45 * (law->fixed + STREAMS * law->per_row);
    ns *= 1 + law->jitter * rng_next_unit(&noise_rng);
    if (law->spikes && rng_below(&noise_rng, (uint64_t)law->spikes) == 0)
        ns *= 10;
    if (law->phases && n_steps++ / law->phases % 2)
        ns *= 2;
    now_ns += (uint64_t)ns;
}

static struct lm *open_timed(const struct step_law *step_law)
{
    const struct fake_options o = {
        .n_vocab = VOCAB, .n_ctx_train = 1000, .max_rows = 200, .n_pages = 8000 / PAGE_TOKENS
    };
    struct step_law *law = xmalloc(sizeof(*law));
    struct lm *fake;
    struct err e;

    EXPECT_EQ(lm_open_fake(&fake, &o, &e), 0);
    *law = *step_law;
    return lm_hooked(fake, advance_clock, law, mem_free);
}

/* ---- drafter that has the expected outputs and proposes a given percentage of correct tokens */

struct exact_drafter {
    struct drafter d;
    struct rng r;
    int percent;
    int switch_at, percent_then; /* percentage from this token of the output on */
};

static int32_t expected_tokens[STREAMS][OUT];
static struct exact_drafter exact_drafter;

static int exact_offer(struct drafter *d, struct draft_job *job)
{
    job->source = DRAFT_HISTORY_LONG;
    return job->n_max;
}

static void exact_propose(
    struct drafter *d, struct draft_job *jobs, int n_jobs, const _Atomic bool *stop)
{
    struct exact_drafter *o = container_of(d, struct exact_drafter, d);

    for (int j = 0; j < n_jobs; j++) {
        const int32_t *want = expected_tokens[*(int *)jobs[j].user];
        jobs[j].n_out = jobs[j].n_max;
        for (int i = 0; i < jobs[j].n_max; i++) {
            int at = jobs[j].n - jobs[j].n_prompt + i;
            int percent = o->switch_at && at >= o->switch_at ? o->percent_then : o->percent;
            bool is_right = rng_below(&o->r, 100) < (uint64_t)percent;
            jobs[j].out[i] = is_right ? want[at] : (want[at] + 1) % VOCAB;
        }
    }
}

static void exact_forget(struct drafter *d, uint64_t key)
{
}

static void response_cache_close(struct drafter *d)
{
}

static const struct draft_ops exact_drafter_ops = { exact_offer, exact_propose, exact_forget,
    response_cache_close };

/* ---- runs */

struct timed_run {
    double ns; /* over all streams */
    uint64_t drafted, accepted;
};

static void read_events(struct mailbox *box, int *n_open, bool is_first)
{
    struct msg *next;

    for (struct msg *m = mailbox_drain(box); m; m = next) {
        next = m->next;
        struct gen_event *ev = container_of(m, struct gen_event, msg);
        struct gen *g = ev->gen;
        int i = *(int *)gen_user(g);
        bool is_over = m->kind == GEN_END;
        if (m->kind == GEN_TOKEN && is_first)
            expected_tokens[i][ev->index] = ev->token.id;
        else if (m->kind == GEN_TOKEN)
            EXPECT_EQ(expected_tokens[i][ev->index], ev->token.id);
        gen_event_done(ev);
        *n_open -= is_over;
        if (is_over)
            gen_free(g);
    }
}

static struct timed_run timed_run(const struct step_law *step_law, int n_streams, int draft_max)
{
    static int index[STREAMS];
    static const int32_t prompt[PROMPT] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    struct engine_options o = engine_options_default;
    const struct kernels *k;
    struct mailbox *box;
    struct submit_queue *queue;
    struct core *c;
    struct err e;
    int n_open = n_streams;

    now_ns = 1;
    undisturbed_ns = n_steps = 0;
    noise_rng = (struct rng){ .key = seed };
    o.spec = (struct spec_options){ .max = draft_max, .drafter = &exact_drafter.d };
    o.max_batch = o.max_sequences = STREAMS;
    EXPECT_EQ(kernels_choose(&k, "ref", &e), 0);
    EXPECT_EQ(submit_queue_open(&queue, &e), 0);
    EXPECT_EQ(core_open(&c, open_timed(step_law), k, &o, queue, &e), 0);
    c->clock = law_clock;
    EXPECT_EQ(mailbox_open(&box, &e), 0);
    for (int i = 0; i < n_streams; i++) {
        struct gen_input in = { .cache_prompt = true,
            .prompt = prompt,
            .n_prompt = PROMPT,
            .max_tokens = OUT,
            .n_choices = 1,
            .sample = sample_params_default };
        struct gen *g;
        index[i] = i;
        in.sample.seed = (uint64_t)i;
        in.sample.mask = mask;
        EXPECT_EQ(gen_new(&g, &in, box, &index[i], &e), 0);
        EXPECT_EQ(submit_queue_submit(queue, g, now_ns, &e), 0);
    }
    while (n_open > 0) {
        core_drain(c, now_ns);
        EXPECT(core_step(c, now_ns));
        read_events(box, &n_open, draft_max == 0);
    }
    core_drain(c, now_ns);
    struct timed_run r = { undisturbed_ns, draft_sum(&queue->stats).drafted,
        draft_sum(&queue->stats).accepted };
    core_close(c);
    submit_queue_unref(queue);
    mailbox_close(box);
    return r;
}

/* Ratio of the time without drafts to the time with drafts. */
static double speedup(const struct step_law *step_law, int n_streams, int percent)
{
    exact_drafter.d.ops = &exact_drafter_ops;
    exact_drafter.r = (struct rng){ .key = seed };
    exact_drafter.percent = percent;
    struct timed_run off = timed_run(step_law, n_streams, 0),
                     on = timed_run(step_law, n_streams, 16);
    EXPECT_EQ(off.drafted, 0u);
    printf("seed %d fixed %.0f row %.0f jitter %.1f spikes %d phases %d streams %d right %d %%: "
           "%.3f, %d of %d\n",
        (int)seed, step_law->fixed, step_law->per_row, step_law->jitter, step_law->spikes,
        step_law->phases, n_streams, percent, off.ns / on.ns, (int)on.accepted, (int)on.drafted);
    return off.ns / on.ns;
}

static const struct step_law memory_bound = { 1e6, 1e4 }, mixed = { 1e6, 3e5, 0.2 },
                             compute_bound = { 1e4, 1e6 }, noisy = { 1e6, 1e5, 0.3 };
static const struct step_law laws[] = {
    { 1e6, 1e4 }, /* memory bound */
    { 1e4, 1e6 }, /* compute bound */
    { 1e6, 3e5, .jitter = 0.2 },
    { 1e6, 1e5, .jitter = 0.5 },
    { 1e6, 1e6, .jitter = 0.8 },
    { 6e4, 4e4, .jitter = 2 }, /* small model in the caches of a busy machine */
    { 1e6, 3e5, .jitter = 0.5, .spikes = 40 },
    /* The speed of the machine changes by half for some time, and back. */
    { 1e6, 3e5, .jitter = 0.2, .phases = 30 },
    { 6e4, 4e4, .jitter = 0.8, .spikes = 100, .phases = 150 },
};
static const int percents[] = { 0, 20, 50, 80, 95, 100 };

static void speculation_costs_at_most_three_percent(void)
{
    exact_drafter = (struct exact_drafter){ 0 };
    for (seed = 1; seed <= SEEDS; seed++)
        for (size_t l = 0; l < ARRAY_LEN(laws); l++)
            for (size_t p = 0; p < ARRAY_LEN(percents); p++)
                for (int n = 1; n <= STREAMS; n += STREAMS - 1)
                    EXPECT(speedup(&laws[l], n, percents[p]) > 0.97);
    seed = 1;
}

/* The acceptance is high for a long time and zero from one token on. */
static void sudden_loss_of_acceptance_costs_at_most_three_percent(void)
{
    for (size_t l = 0; l < ARRAY_LEN(laws); l++)
        for (int at = 50; at < OUT; at += 150) {
            exact_drafter = (struct exact_drafter){ .switch_at = at, .percent_then = 0 };
            EXPECT(speedup(&laws[l], 1, 100) > 0.97);
            exact_drafter = (struct exact_drafter){ .switch_at = at, .percent_then = 100 };
            EXPECT(speedup(&laws[l], 1, 0) > 0.97);
        }
}

static void cheap_rows_give_a_multiple_of_the_speed(void)
{
    if (SMALL)
        return; /* with two events at a time a draft has one token */
    exact_drafter = (struct exact_drafter){ 0 };
    EXPECT(speedup(&memory_bound, 1, 95) > 5);
    EXPECT(speedup(&memory_bound, 1, 80) > 3);
    EXPECT(speedup(&memory_bound, 8, 95) > 2.5);
    EXPECT(speedup(&noisy, 1, 95) > 3);
    EXPECT(speedup(&mixed, 1, 100) > 1.7);
}

/* A low acceptance at the beginning does not disable drafting for ever. */
static void improved_drafter_is_used_again(void)
{
    exact_drafter = (struct exact_drafter){ .switch_at = 100, .percent_then = 98 };
    EXPECT(speedup(&memory_bound, 1, 0) > 1.5);
}

/* Sequences without drafts wait for those with drafts, but not much longer than without any. */
static void sequences_without_drafts_are_not_delayed(void)
{
    const struct step_law exact = { 1e6, 1e5 };

    exact_drafter = (struct exact_drafter){ 0 };
    n_long = 0;
    EXPECT(speedup(&exact, STREAMS, 95) > 0.97);
    printf("%d long steps\n", n_long);
    EXPECT(n_long <= 8); /* before the row cost is estimated */
}

/* On a machine with many interruptions the estimated cost of a row may be zero or negative. */
static void zero_or_negative_row_cost_is_safe(void)
{
    const struct step_law none = { 1e6, 0 }, less = { 1e6, -4e3 },
                          held_up = { 1e3, 0, .jitter = 1e6 };

    exact_drafter = (struct exact_drafter){ 0 };
    EXPECT(speedup(&none, STREAMS, 95) > 1.5);
    EXPECT(speedup(&less, STREAMS, 95) > 1.5);
    timed_run(&held_up, STREAMS, 16);
}

static void expensive_rows_disable_drafting(void)
{
    exact_drafter = (struct exact_drafter){ .d.ops = &exact_drafter_ops, .percent = 100 };
    timed_run(&compute_bound, 1, 0);
    struct timed_run on = timed_run(&compute_bound, 1, 16);
    EXPECT(on.drafted < OUT / 10);
}

static bool mask_nothing(void *ctx, int choice, const int32_t *out, int n, uint32_t *bits)
{
    return false;
}

static void token_mask_disables_drafting(void)
{
    exact_drafter = (struct exact_drafter){ .d.ops = &exact_drafter_ops, .percent = 100 };
    mask = mask_nothing;
    timed_run(&memory_bound, 2, 0);
    EXPECT_EQ(timed_run(&memory_bound, 2, 16).drafted, 0u);
    mask = NULL;
    EXPECT(timed_run(&memory_bound, 2, 16).drafted > 0);
}

static void impossible_settings_are_refused(void)
{
    const struct spec_options bad[] = { { .max = -1 }, { .max = DRAFT_MAX + 1 }, { .min = -1 } };
    struct spec *sp;
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        EXPECT_EQ(spec_open(&sp, &bad[i], &e), -1);
        EXPECT_EQ((int)e.code, (int)ERR_RANGE);
    }
    spec_close(NULL);
}

TESTS(TEST(speculation_costs_at_most_three_percent),
    TEST(sudden_loss_of_acceptance_costs_at_most_three_percent),
    TEST(cheap_rows_give_a_multiple_of_the_speed), TEST(improved_drafter_is_used_again),
    TEST(zero_or_negative_row_cost_is_safe), TEST(sequences_without_drafts_are_not_delayed),
    TEST(expensive_rows_disable_drafting), TEST(token_mask_disables_drafting),
    TEST(impossible_settings_are_refused))
