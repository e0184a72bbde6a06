/* steps: what a step costs beside the model: plan, bookkeeping, events.
 *
 *     steps [--running N] [--waiting N] [--tenants N] [--timeslice N]
 *           [--steps N]
 *
 * The engine on a model that computes nothing, on scripts; whoever ends is replaced, so that as
 * many run and wait all the time. Prints microseconds of a whole step and of its plan alone. */
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/core.h"
#include "model/timed.h"
#include "os/clock.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

enum { OUT_MAX = 400, PROMPT_MAX = 200 };

struct bench {
    struct core *core;
    struct port *port;
    struct mailbox *reply;
    struct rng r;
    int n_running, n_waiting, n_tenants, n_steps, n_slice, n_live;
    int32_t tokens[OUT_MAX], groups[OUT_MAX], prompt[PROMPT_MAX];
    double *us;
    uint64_t clock;
};

struct asked {
    struct gen *gen;
    struct gen_script script;
};

static int between(struct rng *r, int from, int to)
{
    return from + (int)rng_below(r, (uint64_t)(to - from + 1));
}

static void submit(struct bench *b)
{
    struct asked *a = xcalloc(1, sizeof(*a));
    int n = between(&b->r, 50, OUT_MAX);
    struct err e;

    a->script = (struct gen_script){ b->tokens, n, b->groups, n, 0 };
    struct gen_input in = { .prompt = b->prompt,
        .n_prompt = between(&b->r, 20, PROMPT_MAX),
        .max_tokens = n,
        .n_choices = 1,
        .sample = sample_params_default,
        .priority = between(&b->r, 0, 3),
        .tenant = 1 + rng_below(&b->r, (uint64_t)b->n_tenants),
        .is_uncached = true,
        .script = &a->script };
    CHECK(!gen_new(&a->gen, &in, b->reply, a, &e));
    CHECK(!port_submit(b->port, a->gen, clock_ns(), &e));
    b->n_live++;
}

static void read_events(struct bench *b)
{
    struct msg *next;

    for (struct msg *m = mailbox_drain(b->reply); m; m = next) {
        next = m->next;
        struct gen_event *ev = container_of(m, struct gen_event, msg);
        struct asked *a = gen_user(ev->gen);
        if (m->kind != GEN_END) {
            gen_event_done(ev);
            continue;
        }
        gen_free(a->gen);
        mem_free(a);
        b->n_live--;
    }
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void show(const struct bench *b, const char *what)
{
    qsort(b->us, (size_t)b->n_steps, sizeof(*b->us), by_size);
    printf("%-6s p50 %6.1f us, p90 %6.1f, p99 %6.1f, p99.9 %6.1f\n", what, b->us[b->n_steps / 2],
        b->us[(int)(b->n_steps * 0.9)], b->us[(int)(b->n_steps * 0.99)],
        b->us[(int)(b->n_steps * 0.999)]);
}

/* A plan that is not committed is made again by the step: measured beside it. */
static void measure(struct bench *b, bool is_plan)
{
    for (int i = 0; i < b->n_steps; i++) {
        while (b->n_live < b->n_running + b->n_waiting)
            submit(b);
        core_drain(b->core, clock_ns());
        uint64_t from = clock_ns();
        if (is_plan)
            sched_plan(b->core->sched, from, &b->core->plan);
        else
            CHECK(core_step(b->core, from));
        b->us[i] = (double)(clock_ns() - from) * 1e-3;
        if (is_plan)
            CHECK(core_step(b->core, from));
        read_events(b);
    }
    show(b, is_plan ? "plan" : "step");
}

static int run(struct bench *b, struct err *e)
{
    const int n_begun = b->n_slice ? 4 * b->n_running : b->n_running;
    struct timed_options to = { .n_vocab = 4,
        .n_ctx_train = 1000,
        .max_rows = 8192,
        .n_pages = (uint32_t)((n_begun + 1) * (PROMPT_MAX + OUT_MAX + PAGE_TOKENS)) / PAGE_TOKENS,
        .clock = &b->clock };
    struct engine_options eo = engine_options_default;
    const struct kernels *k;
    struct lm *lm;

    eo.max_batch = b->n_running;
    eo.max_sequences = n_begun;
    eo.fairness.max_timeslice_tokens = b->n_slice;
    eo.max_queue = b->n_waiting;
    if (kernels_choose(&k, "ref", e) || lm_open_timed(&lm, &to, e) || port_open(&b->port, e) ||
        core_open(&b->core, lm, k, &eo, b->port, e) || mailbox_open(&b->reply, e))
        return -1;
    for (int i = 0; i < OUT_MAX; i++)
        b->groups[i] = i + 1;
    printf("%d running, %d waiting, %d tenants, slices of %d, %d steps\n", b->n_running,
        b->n_waiting, b->n_tenants, b->n_slice, b->n_steps);
    int n_steps = b->n_steps;
    b->n_steps = 300; /* until requests begin and end at any time */
    for (int i = 0; i < b->n_steps; i++) {
        while (b->n_live < b->n_running + b->n_waiting)
            submit(b);
        core_drain(b->core, clock_ns());
        CHECK(core_step(b->core, clock_ns()));
        read_events(b);
    }
    b->n_steps = n_steps;
    measure(b, true);
    measure(b, false);
    core_cancel_all(b->core, ERR_CANCELLED, clock_ns());
    read_events(b);
    core_drain(b->core, clock_ns());
    core_close(b->core);
    port_unref(b->port);
    mailbox_close(b->reply);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct option longs[] = { { "running", required_argument, NULL, 'r' },
        { "waiting", required_argument, NULL, 'w' }, { "tenants", required_argument, NULL, 't' },
        { "steps", required_argument, NULL, 's' }, { "timeslice", required_argument, NULL, 'l' },
        { 0 } };
    static struct bench b = {
        .n_running = 256, .n_waiting = 4096, .n_tenants = 64, .n_steps = 20000, .r.key = 1
    };
    struct err e;
    bool ok = true;

    for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
        int v = optarg ? (int)strtol(optarg, NULL, 10) : 0;
        ok = ok && c != '?' && v > 0;
        *(c == 'r'     ? &b.n_running
            : c == 'w' ? &b.n_waiting
            : c == 't' ? &b.n_tenants
            : c == 'l' ? &b.n_slice
                       : &b.n_steps) = v;
    }
    if (!ok || optind != argc) {
        fprintf(stderr, "usage: steps [--running N] [--waiting N] [--tenants N] [--timeslice N] "
                        "[--steps N]\n");
        return 2;
    }
    log_set_level(LOG_ERROR);
    b.us = xcalloc((size_t)b.n_steps, sizeof(*b.us));
    int failed = run(&b, &e);
    if (failed)
        fprintf(stderr, "steps: %s\n", e.msg);
    mem_free(b.us);
    return failed ? 1 : 0;
}
