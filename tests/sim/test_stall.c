/* Inter-token latency of streams while a long prompt is computed. The step times of the model
 * follow a formula, with a clock that only the model advances. */
#include "base/mem.h"
#include "support/check.h"
#include "engine/core.h"
#include "testing/timed.h"

#include <math.h>
#include <stdlib.h>

enum {
    N_STREAMS = 16,
    N_GAPS = 1 << 20,
    OUT = 60000,
    LONG_PROMPT = 32768,
    BRIEF = 300,
    SHORT_PROMPT = 40
};

struct stream {
    struct gen *gen;
    uint64_t last_ns;
    int n_prompt, n;
};

struct stall_fixture {
    struct core *core;
    struct submit_queue *queue;
    struct mailbox *reply;
    struct stream streams[N_STREAMS], other;
    int32_t *tokens;
    int32_t *groups;
    struct gen_script script, one, brief[N_STREAMS];
    bool has_short_streams; /* streams are short and replaced when they end: contexts stay short */
    struct timed_cost cost;
    double alone_ns; /* time per token of the streams without a prompt */
    double *gaps;    /* times between tokens of the streams */
    int n_gaps;
};

static uint64_t now_ns; /* simulated clock */

static uint64_t simulated_clock(void)
{
    return now_ns;
}

static void open_fixture(
    struct stall_fixture *w, const struct timed_cost *cost, int mixed_step_percent, int n_layers)
{
    const struct kernels *k;
    struct lm *lm;
    struct err e;
    struct timed_options o = { .n_vocab = 4,
        .n_ctx_train = 100000,
        .max_rows = 2048,
        .n_pages = 2000000 / PAGE_TOKENS,
        .n_layers = n_layers,
        .cost = *cost,
        .clock = &now_ns };
    struct engine_options eo = engine_options_default;

    *w = (struct stall_fixture){ 0 };
    now_ns = 1;
    eo.max_batch = N_STREAMS + 2;
    eo.prefill_chunk = 512;
    eo.prefix_cache = false; /* the prompts are equal */
    eo.mixed_step_percent = mixed_step_percent;
    EXPECT_EQ(kernels_choose(&k, "ref", &e), 0);
    EXPECT_EQ(lm_open_timed(&lm, &o, &e), 0);
    EXPECT_EQ(submit_queue_open(&w->queue, &e), 0);
    EXPECT_EQ(core_open(&w->core, lm, k, &eo, w->queue, &e), 0);
    EXPECT_EQ(mailbox_open(&w->reply, &e), 0);
    w->cost = *cost;
    w->core->clock = simulated_clock;
    w->tokens = xcalloc(OUT, sizeof(*w->tokens));
    w->groups = xcalloc(OUT, sizeof(*w->groups));
    w->gaps = xcalloc(N_GAPS, sizeof(*w->gaps));
    for (int i = 0; i < OUT; i++)
        w->groups[i] = i + 1;
    w->script = (struct gen_script){ w->tokens, OUT, w->groups, OUT, 0 };
    for (int i = 0; i < N_STREAMS; i++) {
        int n = BRIEF + 11 * i; /* few streams end in the same step */
        w->brief[i] = (struct gen_script){ w->tokens, n, w->groups, n, 0 };
    }
    w->one = (struct gen_script){ w->tokens, 1, w->groups, 1, 0 };
}

static void submit(
    struct stall_fixture *w, struct stream *s, int n_prompt, const struct gen_script *script)
{
    struct gen_input in = { .cache_prompt = true,
        .prompt = w->tokens,
        .n_prompt = n_prompt,
        .max_tokens = script->n_tokens,
        .n_choices = 1,
        .sample = sample_params_default,
        .script = script };
    struct err e;

    *s = (struct stream){ .n_prompt = n_prompt };
    EXPECT_EQ(gen_new(&s->gen, &in, w->reply, s, &e), 0);
    EXPECT_EQ(submit_queue_submit(w->queue, s->gen, now_ns, &e), 0);
}

static void handle_event(struct stall_fixture *w, struct gen_event *ev)
{
    struct stream *s = gen_user(ev->gen);

    if (ev->msg.kind == GEN_END) {
        gen_free(s->gen);
        s->gen = NULL;
        if (w->has_short_streams && s != &w->other)
            submit(w, s, 1,
                /* prompt of one token: decodes from the first step on */
                &w->brief[s - w->streams]);
        return;
    }
    if (ev->msg.kind == GEN_TOKEN && s != &w->other) {
        if (s->n++ && w->n_gaps < N_GAPS)
            w->gaps[w->n_gaps++] = (double)(now_ns - s->last_ns) / w->alone_ns;
        s->last_ns = now_ns;
    }
    gen_event_done(ev);
}

static void run_step(struct stall_fixture *w)
{
    struct msg *next;
    double keys = 0;

    for (int i = 0; i < N_STREAMS; i++)
        keys += w->streams[i].n_prompt + w->streams[i].n;
    w->alone_ns = w->cost.fixed + w->cost.per_row * MAX(N_STREAMS - w->cost.free_rows, 0) +
                  w->cost.per_key * keys;
    core_drain(w->core, now_ns);
    EXPECT(core_step(w->core, now_ns));
    for (struct msg *m = mailbox_drain(w->reply); m; m = next) {
        next = m->next;
        handle_event(w, container_of(m, struct gen_event, msg));
    }
}

static void close_fixture(struct stall_fixture *w)
{
    struct msg *next;

    w->has_short_streams = false;
    core_cancel_all(w->core, ERR_CANCELLED, now_ns);
    for (struct msg *m = mailbox_drain(w->reply); m; m = next) {
        next = m->next;
        handle_event(w, container_of(m, struct gen_event, msg));
    }
    core_drain(w->core, now_ns);
    core_close(w->core);
    submit_queue_unref(w->queue);
    mailbox_close(w->reply);
    mem_free(w->tokens);
    mem_free(w->groups);
    mem_free(w->gaps);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof(*v), by_size);
    return v[n / 2];
}

struct stall {
    /* Time between two tokens of a stream, relative to a decode-only step: median before the
     * prompt, maximum while it is computed. The contexts of the streams grow meanwhile. */
    double steady, longest;
    double prefill_ms;
};

static struct stall stall_of(
    const struct timed_cost *cost, int mixed_step_percent, int n_layers, bool has_short_streams)
{
    struct stall_fixture w;
    struct stall r = { 0 };

    open_fixture(&w, cost, mixed_step_percent, n_layers);
    w.has_short_streams = has_short_streams;
    for (int i = 0; i < N_STREAMS; i++)
        submit(&w, &w.streams[i], SHORT_PROMPT, has_short_streams ? &w.brief[i] : &w.script);
    for (int i = 0; i < 400; i++)
        run_step(&w);
    w.n_gaps = 0;
    for (int i = 0; i < 100; i++)
        run_step(&w);
    r.steady = median(w.gaps, w.n_gaps);
    w.n_gaps = 0;
    uint64_t came = now_ns;
    submit(&w, &w.other, LONG_PROMPT, &w.one);
    while (w.other.gen)
        run_step(&w);
    r.prefill_ms = (double)(now_ns - came) * 1e-6;
    median(w.gaps, w.n_gaps);
    r.longest = w.gaps[w.n_gaps - 1];
    close_fixture(&w);
    return r;
}

static const struct timed_cost laws[] = {
    { 30e6, 500e3, 50, 0, 0.02, 1 },   /* memory-bound weights, then rows */
    { 30e6, 500e3, 500, 0, 0.02, 2 },  /* attention at 32k costs as much as 32 rows */
    { 1e6, 400e3, 20, 0, 0.02, 3 },    /* compute bound */
    { 20e6, 600e3, 100, 24, 0.02, 4 }, /* loading the weights hides the cost of 24 rows */
    { 400e3, 6e3, 1, 8, 0.05, 5 },     /* small model */
};

/* A row at 32k costs as much as all streams. */
static const struct timed_cost steep = { 30e6, 500e3, 1200, 0, 0.02, 6 };

static void long_prompt_extends_token_gaps_by_at_most_half(void)
{
    for (size_t i = 0; i < ARRAY_LEN(laws); i++) {
        struct stall r = stall_of(&laws[i], 140, 16, false);
        printf("cost model %zu: steady %.2f, longest %.2f, prompt %.1f s\n", i, r.steady, r.longest,
            r.prefill_ms * 1e-3);
        EXPECT(r.longest <= 1.5 * r.steady);
    }
}

/* Whole rows would exceed the limit, since each prompt gets a minimum per step: layered prefill
 * keeps it. */
static void row_above_the_budget_passes_layer_by_layer(void)
{
    struct stall r = stall_of(&steep, 140, 16, true), whole = stall_of(&steep, 140, 1, true);

    printf("steady %.2f, longest %.2f, prompt %.1f s; without layered prefill %.2f, %.1f s\n",
        r.steady, r.longest, r.prefill_ms * 1e-3, whole.longest, whole.prefill_ms * 1e-3);
    EXPECT(r.longest <= 1.5 * r.steady);
    EXPECT(whole.longest > 2 * whole.steady);
}

static void without_limit_streams_stall(void)
{
    for (size_t i = 0; i < ARRAY_LEN(laws); i++) {
        struct stall r = stall_of(&laws[i], 0, 16, false);
        EXPECT(r.longest > 2 * r.steady);
    }
}

/* A short prompt that arrives during the prefill of a long one is not delayed by it. */
static void short_prompt_does_not_wait_for_a_long_one(void)
{
    for (size_t i = 0; i < ARRAY_LEN(laws); i++) {
        struct stall_fixture w;
        struct stream small;
        open_fixture(&w, &laws[i], 140, 16);
        for (int j = 0; j < N_STREAMS - 2; j++)
            submit(&w, &w.streams[j], SHORT_PROMPT, &w.script);
        for (int j = 0; j < 100; j++)
            run_step(&w);
        submit(&w, &w.other, LONG_PROMPT, &w.one);
        run_step(&w);
        submit(&w, &small, SHORT_PROMPT, &w.one);
        int n_steps = 0;
        while (small.gen)
            run_step(&w), n_steps++;
        EXPECT(w.other.gen);
        EXPECT(n_steps <= 1 + SHORT_PROMPT / MIXED_PREFILL_ROWS_MIN);
        close_fixture(&w);
    }
}

/* The prefill budget is used: the prompt is not slower than its share of the time implies. */
static void prefill_uses_its_budget(void)
{
    for (size_t i = 0; i < ARRAY_LEN(laws); i++) {
        struct stall shared = stall_of(&laws[i], 140, 16, false);
        struct stall alone = stall_of(&laws[i], 0, 16, false);
        EXPECT(shared.prefill_ms < 8 * alone.prefill_ms);
    }
}

TESTS(TEST(long_prompt_extends_token_gaps_by_at_most_half),
    TEST(row_above_the_budget_passes_layer_by_layer), TEST(without_limit_streams_stall),
    TEST(short_prompt_does_not_wait_for_a_long_one), TEST(prefill_uses_its_budget))
