/* estimators: benefit of the step-time model and of the wait estimate, in simulated time.
 *
 *     estimators [REQUESTS]
 *
 * The engine runs on a timed model (testing/replay.h): the results do not depend on the machine and
 * are the same in every run. Each table compares the estimator with constants in its place, over
 * several machines and models, since a constant can be right for one of them:
 *
 *   mixed     prefill budget by the step-time model; by constant coefficients, those of the first
 *             cost function; and as in vLLM, a constant number of tokens per step. Load: 60 % of
 *             the capacity; short prompts, and one prompt of 20 with 4,000 to 16,000 tokens.
 *   overload  admission by the wait estimate, and by a constant length of the queue. Each request
 *             has a deadline. Arrivals are steady, at twice the capacity, or come in bursts. The
 *             result is the goodput: requests that are completed before their deadline. */
#include "base/mem.h"
#include "base/rng.h"
#include "testing/replay.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct machine {
    const char *name;
    struct timed_cost cost;
};

static const struct machine machines[] = {
    { "weights 30 ms, row 0.5 ms", { 30e6, 500e3, 50, 0, 0.05, 1 } },
    { "long contexts are expensive", { 30e6, 500e3, 500, 0, 0.05, 2 } },
    { "compute bound", { 1e6, 400e3, 20, 0, 0.05, 3 } },
    { "24 rows per step are free", { 20e6, 600e3, 100, 24, 0.05, 4 } },
    { "small model", { 400e3, 6e3, 1, 8, 0.05, 5 } },
};

static struct replay_options setup(const struct machine *m)
{
    struct replay_options s = { .engine = engine_options_default,
        .cost = m->cost,
        .n_ctx = 20000,
        .n_pages = 640000 / PAGE_TOKENS,
        .max_rows = 2048,
        .n_layers = 16 };

    s.engine.max_batch = s.engine.max_sequences = 16;
    s.engine.max_batch_tokens = 2048;
    s.engine.prefix_cache = false;
    s.engine.max_queue = 1 << 20;
    s.engine.max_queue_tokens = INT32_MAX;
    return s;
}

/* Poisson arrivals with `rate` requests per second. One prompt of `long_every` is long. */
static struct replay_request *poisson(int n, double rate, int long_every)
{
    struct replay_request *rows = xcalloc((size_t)n, sizeof(*rows));
    struct rng r = { .key = 7 };
    double at = 0;

    for (int i = 0; i < n; i++) {
        at += -log(1 - rng_next_unit(&r)) / rate;
        rows[i] = (struct replay_request){ .at_s = at,
            .n_prompt = 50 + (int)rng_below(&r, 450),
            .n_out = 20 + (int)rng_below(&r, 300) };
        if (long_every && i % long_every == long_every / 2)
            rows[i].n_prompt = 4000 + (int)rng_below(&r, 12000);
    }
    return rows;
}

static struct replay_result run(
    const struct replay_request *rows, int n, const struct replay_options *s)
{
    struct replay_result out;
    struct err e;

    if (replay_run(&out, rows, n, s, &e)) {
        fprintf(stderr, "estimators: %s\n", e.msg);
        exit(1);
    }
    return out;
}

static struct replay_result run_poisson(
    int n, double rate, int long_every, const struct replay_options *s)
{
    struct replay_request *rows = poisson(n, rate, long_every);
    struct replay_result out = run(rows, n, s);

    mem_free(rows);
    return out;
}

/* Requests per second if all arrive at once. */
static double capacity_of(int n, int long_every, const struct replay_options *s)
{
    return run_poisson(n, 1e6, long_every, s).requests_s;
}

/* ---- mixed steps */

static void print_mixed(const char *name, int n, double rate, const struct replay_options *s)
{
    struct replay_result r = run_poisson(n, rate, 20, s);

    printf("  %-24s ttft p50 %8.1f ms, p99 %9.1f; itl p50 %6.1f ms, p99 %7.1f, max %7.1f; "
           "%7.1f tokens/s\n",
        name, r.ttft.p50 * 1e3, r.ttft.p99 * 1e3, r.itl.p50 * 1e3, r.itl.p99 * 1e3, r.itl.max * 1e3,
        r.tokens_s);
}

static void compare_mixed(int n, const struct machine *m)
{
    static const int budgets[] = { 32, 64, 128, 512 };
    const struct timed_cost *c = &machines[0].cost;
    const struct step_time constant = { c->fixed, c->per_row, c->per_key };
    struct replay_options s = setup(m);
    double rate = 0.6 * capacity_of(n, 20, &s);

    printf("mixed: %s, %.2f requests/s\n", m->name, rate);
    print_mixed("step-time model", n, rate, &s);
    s.constant_step_time = &constant;
    print_mixed("constant coefficients", n, rate, &s);
    s.constant_step_time = NULL;
    s.engine.mixed_step_percent = s.engine.mixed_step_percent_short = 0;
    for (size_t i = 0; i < ARRAY_LEN(budgets); i++) {
        char name[32];
        snprintf(name, sizeof(name), "%d tokens per step", budgets[i]);
        s.engine.max_batch_tokens = budgets[i];
        print_mixed(name, n, rate, &s);
    }
}

/* ---- overload */

enum {
    BURST = 120,
    BURST_EVERY = 150
}; /* requests; time between bursts, in requests of capacity */

struct arrival_pattern {
    const char *name;
    bool has_bursts;
    int deadline; /* in units of the time of a full batch */
};

static const struct arrival_pattern patterns[] = { { "steady, short deadline", false, 3 },
    { "steady, long deadline", false, 12 }, { "bursts, short deadline", true, 3 },
    { "bursts, long deadline", true, 12 } };

/* Steady: twice the capacity. Bursts: 80 % of the capacity. */
static struct replay_result run_pattern(
    int n, double capacity, const struct arrival_pattern *p, struct replay_options *s)
{
    struct replay_request *rows = poisson(n, 2 * capacity, 0);

    for (int i = 0; p->has_bursts && i < n; i++)
        rows[i].at_s = (double)(i / BURST) * BURST_EVERY / capacity;
    s->deadline_s = p->deadline * s->engine.max_batch / capacity;
    struct replay_result r = run(rows, n, s);
    mem_free(rows);
    return r;
}

static void print_overload(const char *name, int n, double capacity, struct replay_options *s)
{
    printf("  %-22s", name);
    for (size_t i = 0; i < ARRAY_LEN(patterns); i++) {
        struct replay_result r = run_pattern(n, capacity, &patterns[i], s);
        printf(" %s: %3d %%, %6.1f tokens/s%s", patterns[i].name, 100 * r.n_done / n, r.tokens_s,
            i + 1 < ARRAY_LEN(patterns) ? ";" : "\n");
    }
}

static void compare_overload(int n, const struct machine *m)
{
    static const int queues[] = { 4, 16, 64, 256 };
    struct replay_options s = setup(m);
    double capacity = capacity_of(n, 0, &s);

    printf("overload: %s, completed of %d requests, %.2f requests/s\n", m->name, n, capacity);
    print_overload("wait estimate", n, capacity, &s);
    s.without_wait_estimate = true;
    for (size_t i = 0; i < ARRAY_LEN(queues); i++) {
        char name[32];
        snprintf(name, sizeof(name), "queue of %d requests", queues[i]);
        s.engine.max_queue = queues[i];
        print_overload(name, n, capacity, &s);
    }
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 1500;

    if (argc > 2 || n < 100 || n > 100000) {
        fprintf(stderr, "usage: estimators [REQUESTS]\n");
        return 2;
    }
    for (size_t i = 0; i < ARRAY_LEN(machines); i++)
        compare_mixed(n, &machines[i]);
    for (size_t i = 0; i < ARRAY_LEN(machines); i++)
        compare_overload(n, &machines[i]);
    return 0;
}
