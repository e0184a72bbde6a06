/* A long prompt arrives among streams: how long do they wait for their next token? On a model
 * whose steps take as long as a law says, under a clock that only it moves. */
#include "base/mem.h"
#include "check.h"
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

struct world {
    struct core *core;
    struct port *port;
    struct mailbox *reply;
    struct stream streams[N_STREAMS], other;
    int32_t *tokens;
    int32_t *groups;
    struct gen_script script, one, brief[N_STREAMS];
    bool are_brief; /* streams end soon, and others come in their places: contexts stay short */
    struct timed_law law;
    double alone_ns; /* what the streams' next tokens would take without anything else */
    double *gaps;    /* of those */
    int n_gaps;
};

static uint64_t now_ns; /* the clock */

static uint64_t clock_of_ours(void)
{
    return now_ns;
}

static void open_world(
    struct world *w, const struct timed_law *law, int stretch_percent, int n_layers)
{
    const struct kernels *k;
    struct lm *lm;
    struct err e;
    struct timed_options o = { .n_vocab = 4,
        .n_ctx_train = 100000,
        .max_rows = 2048,
        .n_pages = 2000000 / PAGE_TOKENS,
        .n_layers = n_layers,
        .law = *law,
        .clock = &now_ns };
    struct engine_options eo = engine_options_default;

    *w = (struct world){ 0 };
    now_ns = 1;
    eo.max_batch = N_STREAMS + 2;
    eo.prefill_chunk = 512;
    eo.prefix_cache = false; /* the prompts are all alike */
    eo.stretch_percent = stretch_percent;
    EXPECT_EQ(kernels_choose(&k, "ref", &e), 0);
    EXPECT_EQ(lm_open_timed(&lm, &o, &e), 0);
    EXPECT_EQ(port_open(&w->port, &e), 0);
    EXPECT_EQ(core_open(&w->core, lm, k, &eo, w->port, &e), 0);
    EXPECT_EQ(mailbox_open(&w->reply, &e), 0);
    w->law = *law;
    w->core->clock = clock_of_ours;
    w->tokens = xcalloc(OUT, sizeof(*w->tokens));
    w->groups = xcalloc(OUT, sizeof(*w->groups));
    w->gaps = xcalloc(N_GAPS, sizeof(*w->gaps));
    for (int i = 0; i < OUT; i++)
        w->groups[i] = i + 1;
    w->script = (struct gen_script){ w->tokens, OUT, w->groups, OUT, 0 };
    for (int i = 0; i < N_STREAMS; i++) {
        int n = BRIEF + 11 * i; /* seldom two end in one step */
        w->brief[i] = (struct gen_script){ w->tokens, n, w->groups, n, 0 };
    }
    w->one = (struct gen_script){ w->tokens, 1, w->groups, 1, 0 };
}

static void submit(struct world *w, struct stream *s, int n_prompt, const struct gen_script *script)
{
    struct gen_input in = { .prompt = w->tokens,
        .n_prompt = n_prompt,
        .max_tokens = script->n_tokens,
        .n_choices = 1,
        .sample = sample_params_default,
        .script = script };
    struct err e;

    *s = (struct stream){ .n_prompt = n_prompt };
    EXPECT_EQ(gen_new(&s->gen, &in, w->reply, s, &e), 0);
    EXPECT_EQ(port_submit(w->port, s->gen, now_ns, &e), 0);
}

static void take(struct world *w, struct gen_event *ev)
{
    struct stream *s = gen_user(ev->gen);

    if (ev->msg.kind == GEN_END) {
        gen_free(s->gen);
        s->gen = NULL;
        if (w->are_brief && s != &w->other)
            submit(w, s, 1,
                &w->brief[s - w->streams]); /* of one token: decodes from the first step on */
        return;
    }
    if (ev->msg.kind == GEN_TOKEN && s != &w->other) {
        if (s->n++ && w->n_gaps < N_GAPS)
            w->gaps[w->n_gaps++] = (double)(now_ns - s->last_ns) / w->alone_ns;
        s->last_ns = now_ns;
    }
    gen_event_done(ev);
}

static void step(struct world *w)
{
    struct msg *next;
    double keys = 0;

    for (int i = 0; i < N_STREAMS; i++)
        keys += w->streams[i].n_prompt + w->streams[i].n;
    w->alone_ns = w->law.fixed + w->law.per_row * MAX(N_STREAMS - w->law.free_rows, 0) +
                  w->law.per_key * keys;
    core_drain(w->core, now_ns);
    EXPECT(core_step(w->core, now_ns));
    for (struct msg *m = mailbox_drain(w->reply); m; m = next) {
        next = m->next;
        take(w, container_of(m, struct gen_event, msg));
    }
}

static void close_world(struct world *w)
{
    struct msg *next;

    w->are_brief = false;
    core_cancel_all(w->core, ERR_CANCELLED, now_ns);
    for (struct msg *m = mailbox_drain(w->reply); m; m = next) {
        next = m->next;
        take(w, container_of(m, struct gen_event, msg));
    }
    core_drain(w->core, now_ns);
    core_close(w->core);
    port_unref(w->port);
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
    /* Between two tokens of a stream, as a multiple of what the streams alone take: the median
     * before, the most while the prompt is computed. The streams grow meanwhile. */
    double steady, longest;
    double prefill_ms;
};

static struct stall stall_of(
    const struct timed_law *law, int stretch_percent, int n_layers, bool are_brief)
{
    struct world w;
    struct stall r = { 0 };

    open_world(&w, law, stretch_percent, n_layers);
    w.are_brief = are_brief;
    for (int i = 0; i < N_STREAMS; i++)
        submit(&w, &w.streams[i], SHORT_PROMPT, are_brief ? &w.brief[i] : &w.script);
    for (int i = 0; i < 400; i++)
        step(&w);
    w.n_gaps = 0;
    for (int i = 0; i < 100; i++)
        step(&w);
    r.steady = median(w.gaps, w.n_gaps);
    w.n_gaps = 0;
    uint64_t came = now_ns;
    submit(&w, &w.other, LONG_PROMPT, &w.one);
    while (w.other.gen)
        step(&w);
    r.prefill_ms = (double)(now_ns - came) * 1e-6;
    median(w.gaps, w.n_gaps);
    r.longest = w.gaps[w.n_gaps - 1];
    close_world(&w);
    return r;
}

static const struct timed_law laws[] = {
    { 30e6, 500e3, 50, 0, 0.02, 1 },   /* weights from memory, then rows */
    { 30e6, 500e3, 500, 0, 0.02, 2 },  /* attention at 32k costs 32 rows */
    { 1e6, 400e3, 20, 0, 0.02, 3 },    /* all arithmetic */
    { 20e6, 600e3, 100, 24, 0.02, 4 }, /* the weights hide 24 rows */
    { 400e3, 6e3, 1, 8, 0.05, 5 },     /* a small model */
};

/* A row at 32k takes as long as all streams. */
static const struct timed_law steep = { 30e6, 500e3, 1200, 0, 0.02, 6 };

static void a_long_prompt_stretches_gaps_by_half_at_most(void)
{
    for (size_t i = 0; i < ARRAY_LEN(laws); i++) {
        struct stall r = stall_of(&laws[i], 140, 16, false);
        printf("law %zu: steady %.2f, longest %.2f, prompt %.1f s\n", i, r.steady, r.longest,
            r.prefill_ms * 1e-3);
        EXPECT(r.longest <= 1.5 * r.steady);
    }
}

/* Whole rows are too much then: the least, which a prompt gets in any case, would be. */
static void a_row_that_takes_too_long_passes_layer_by_layer(void)
{
    struct stall r = stall_of(&steep, 140, 16, true), whole = stall_of(&steep, 140, 1, true);

    printf("steady %.2f, longest %.2f, prompt %.1f s; without pauses %.2f, %.1f s\n", r.steady,
        r.longest, r.prefill_ms * 1e-3, whole.longest, whole.prefill_ms * 1e-3);
    EXPECT(r.longest <= 1.5 * r.steady);
    EXPECT(whole.longest > 2 * whole.steady);
}

static void unlimited_it_would_stall_them(void)
{
    for (size_t i = 0; i < ARRAY_LEN(laws); i++) {
        struct stall r = stall_of(&laws[i], 0, 16, false);
        EXPECT(r.longest > 2 * r.steady);
    }
}

/* A short prompt that comes while a long one rides along does not wait for it. */
static void a_short_prompt_does_not_wait_for_a_long_one(void)
{
    for (size_t i = 0; i < ARRAY_LEN(laws); i++) {
        struct world w;
        struct stream small;
        open_world(&w, &laws[i], 140, 16);
        for (int j = 0; j < N_STREAMS - 2; j++)
            submit(&w, &w.streams[j], SHORT_PROMPT, &w.script);
        for (int j = 0; j < 100; j++)
            step(&w);
        submit(&w, &w.other, LONG_PROMPT, &w.one);
        step(&w);
        submit(&w, &small, SHORT_PROMPT, &w.one);
        int n_steps = 0;
        while (small.gen)
            step(&w), n_steps++;
        EXPECT(w.other.gen);
        EXPECT(n_steps <= 1 + SHORT_PROMPT / RIDING_ROWS_MIN);
        close_world(&w);
    }
}

/* What a prompt may add is used: it is not slower than its share of the time makes it. */
static void the_prompt_gets_its_share(void)
{
    for (size_t i = 0; i < ARRAY_LEN(laws); i++) {
        struct stall shared = stall_of(&laws[i], 140, 16, false);
        struct stall alone = stall_of(&laws[i], 0, 16, false);
        EXPECT(shared.prefill_ms < 8 * alone.prefill_ms);
    }
}

TESTS(TEST(a_long_prompt_stretches_gaps_by_half_at_most),
    TEST(a_row_that_takes_too_long_passes_layer_by_layer), TEST(unlimited_it_would_stall_them),
    TEST(a_short_prompt_does_not_wait_for_a_long_one), TEST(the_prompt_gets_its_share))
