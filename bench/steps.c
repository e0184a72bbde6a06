/* steps: scheduler overhead of a step: planning, bookkeeping and events, without the forward pass.
 *
 *     steps [--running N] [--waiting N] [--tenants N] [--timeslice N]
 *           [--steps N] [--rounds N]
 *
 * The engine runs scripted requests on a timed model without computation. A finished request is
 * replaced, so the numbers of running and waiting requests are constant. Prints microseconds of a
 * step without its forward pass, and of its plan alone: the values of the last round, and the
 * minimum of each step over all rounds. The rounds are equal, so the minimum excludes interrupts
 * and other processes. */
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/core.h"
#include "testing/timed.h"
#include "os/clock.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

enum { OUT_MAX = 400, PROMPT_MAX = 200 };
enum { WARM_STEPS = 300 }; /* after these the requests are at different positions */

struct bench {
    struct core *core;
    struct submit_queue *queue;
    struct mailbox *reply;
    struct rng r;
    int n_running, n_waiting, n_tenants, n_steps, n_rounds, n_slice, n_live;
    int32_t tokens[OUT_MAX], groups[OUT_MAX], prompt[PROMPT_MAX];
    double *us, *min_us[2]; /* this round; minimum over all rounds, of steps and of plans */
    uint64_t clock;
};

struct bench_request {
    struct gen *gen;
    struct gen_script script;
};

static int rand_between(struct rng *r, int from, int to)
{
    return from + (int)rng_below(r, (uint64_t)(to - from + 1));
}

static void submit_request(struct bench *b)
{
    struct bench_request *a = xcalloc(1, sizeof(*a));
    int n = rand_between(&b->r, 50, OUT_MAX);
    struct err e;

    a->script = (struct gen_script){ b->tokens, n, b->groups, n, 0 };
    struct gen_input in = { .prompt = b->prompt,
        .n_prompt = rand_between(&b->r, 20, PROMPT_MAX),
        .max_tokens = n,
        .n_choices = 1,
        .sample = sample_params_default,
        .priority = rand_between(&b->r, 0, 3),
        .tenant = 1 + rng_below(&b->r, (uint64_t)b->n_tenants),
        .script = &a->script };
    CHECK(!gen_new(&a->gen, &in, b->reply, a, &e));
    CHECK(!submit_queue_submit(b->queue, a->gen, clock_ns(), &e));
    b->n_live++;
}

static void read_events(struct bench *b)
{
    struct msg *next;

    for (struct msg *m = mailbox_drain(b->reply); m; m = next) {
        next = m->next;
        struct gen_event *ev = container_of(m, struct gen_event, msg);
        struct bench_request *a = gen_user(ev->gen);
        if (m->kind != GEN_END) {
            gen_event_done(ev);
            continue;
        }
        gen_free(a->gen);
        mem_free(a);
        b->n_live--;
    }
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_quantiles(const char *what, double *us, int n)
{
    qsort(us, (size_t)n, sizeof(*us), compare_doubles);
    printf("%-18s p50 %6.1f us, p90 %6.1f, p99 %6.1f, p99.9 %6.1f\n", what, us[n / 2],
        us[(int)(n * 0.9)], us[(int)(n * 0.99)], us[(int)(n * 0.999)]);
}

static void fill_queue(struct bench *b)
{
    while (b->n_live < b->n_running + b->n_waiting)
        submit_request(b);
    core_drain(b->core, clock_ns());
}

/* A plan has no effect until it is committed; core_step() plans again. */
static void measure_steps(struct bench *b, bool is_plan, bool is_last)
{
    double *min_us = b->min_us[is_plan];

    for (int i = 0; i < b->n_steps; i++) {
        fill_queue(b);
        uint64_t from = clock_ns(), elapsed_ns = 0;
        if (is_plan) {
            sched_plan(b->core->sched, from, &b->core->plan);
            elapsed_ns = clock_ns() - from;
        }
        CHECK(core_step(b->core, from));
        if (!is_plan)
            elapsed_ns = clock_ns() - from - b->core->forward_ns;
        read_events(b);
        b->us[i] = (double)elapsed_ns * 1e-3;
        min_us[i] = min_us[i] > 0 ? MIN(min_us[i], b->us[i]) : b->us[i];
    }
    if (!is_last)
        return;
    print_quantiles(is_plan ? "plan" : "step", b->us, b->n_steps);
    print_quantiles(is_plan ? "plan, minimum" : "step, minimum", min_us, b->n_steps);
}

static int run_round(struct bench *b, bool is_last, struct err *e)
{
    const int n_started = b->n_slice ? 4 * b->n_running : b->n_running;
    struct timed_options to = { .n_vocab = 4,
        .n_ctx_train = 1000,
        .max_rows = 8192,
        .n_pages = (uint32_t)((n_started + 1) * (PROMPT_MAX + OUT_MAX + PAGE_TOKENS)) / PAGE_TOKENS,
        .clock = &b->clock };
    struct engine_options eo = engine_options_default;
    const struct kernels *k;
    struct lm *lm;

    eo.max_batch = b->n_running;
    eo.max_sequences = n_started;
    eo.fairness.max_timeslice_tokens = b->n_slice;
    eo.max_queue = b->n_waiting;
    if (kernels_choose(&k, "ref", e) || lm_open_timed(&lm, &to, e) ||
        submit_queue_open(&b->queue, e) || core_open(&b->core, lm, k, &eo, b->queue, e) ||
        mailbox_open(&b->reply, e))
        return -1;
    b->r = (struct rng){ .key = 1 };
    for (int i = 0; i < WARM_STEPS; i++) {
        fill_queue(b);
        CHECK(core_step(b->core, clock_ns()));
        read_events(b);
    }
    measure_steps(b, true, is_last);
    measure_steps(b, false, is_last);
    core_cancel_all(b->core, ERR_CANCELLED, clock_ns());
    read_events(b);
    core_drain(b->core, clock_ns());
    core_close(b->core);
    submit_queue_unref(b->queue);
    mailbox_close(b->reply);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct option long_options[] = { { "running", required_argument, NULL, 'r' },
        { "waiting", required_argument, NULL, 'w' }, { "tenants", required_argument, NULL, 't' },
        { "steps", required_argument, NULL, 's' }, { "timeslice", required_argument, NULL, 'l' },
        { "rounds", required_argument, NULL, 'n' }, { 0 } };
    static struct bench b = {
        .n_running = 256, .n_waiting = 4096, .n_tenants = 64, .n_steps = 6000, .n_rounds = 4
    };
    struct err e;
    bool is_ok = true;

    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        int v = optarg ? (int)strtol(optarg, NULL, 10) : 0;
        is_ok = is_ok && c != '?' && v > 0;
        *(c == 'r'     ? &b.n_running
            : c == 'w' ? &b.n_waiting
            : c == 't' ? &b.n_tenants
            : c == 'l' ? &b.n_slice
            : c == 'n' ? &b.n_rounds
                       : &b.n_steps) = v;
    }
    if (!is_ok || optind != argc) {
        fprintf(stderr, "usage: steps [--running N] [--waiting N] [--tenants N] [--timeslice N] "
                        "[--steps N] [--rounds N]\n");
        return 2;
    }
    log_set_level(LOG_ERROR);
    for (int i = 0; i < OUT_MAX; i++)
        b.groups[i] = i + 1;
    b.us = xcalloc((size_t)b.n_steps * 3, sizeof(*b.us));
    b.min_us[0] = b.us + b.n_steps;
    b.min_us[1] = b.us + 2 * b.n_steps;
    printf("%d running, %d waiting, %d tenants, slices of %d, %d steps, %d rounds\n", b.n_running,
        b.n_waiting, b.n_tenants, b.n_slice, b.n_steps, b.n_rounds);
    int failed = 0;
    for (int i = 0; i < b.n_rounds && !failed; i++)
        failed = run_round(&b, i == b.n_rounds - 1, &e);
    if (failed)
        fprintf(stderr, "steps: %s\n", e.msg);
    mem_free(b.us);
    return failed ? 1 : 0;
}
