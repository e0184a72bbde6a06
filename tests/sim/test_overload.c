/* Overload: admitted requests meet their deadlines and the others are rejected at once. The
 * engine runs with simulated step times, at loads up to three times its capacity. */
#include "base/mem.h"
#include "base/rng.h"
#include "support/check.h"
#include "testing/replay.h"

#include <math.h>
#include <stdlib.h>

enum { N_REQUESTS = 1500, LOADS = 6 };

/* 16 sequences decode one token in 10 ms */
static const struct timed_cost step_law = { 8e6, 100e3, 10, 0, 0.05, 1 };

static struct replay_options setup(void)
{
    struct replay_options s = { .engine = engine_options_default,
        .cost = step_law,
        .n_ctx = 4096,
        .n_pages = 65536 / PAGE_TOKENS,
        .deadline_s = 12,
        .max_rows = 2048 };

    s.engine.max_batch = 16;
    s.engine.max_sequences = 16;
    s.engine.prefill_chunk = 512;
    s.engine.prefix_cache = false;
    return s;
}

/* Poisson arrivals with `rate` requests per second. */
static struct replay_request *poisson(uint64_t seed, double rate)
{
    struct replay_request *rows = xcalloc(N_REQUESTS, sizeof(*rows));
    struct rng r = { .key = seed };
    double at = 0;

    for (int i = 0; i < N_REQUESTS; i++) {
        at += -log(1 - rng_next_unit(&r)) / rate;
        rows[i] = (struct replay_request){ .at_s = at,
            .n_prompt = 50 + (int)rng_below(&r, 700),
            .n_out = 20 + (int)rng_below(&r, 300) };
    }
    return rows;
}

static struct replay_result at_rate(double rate, const struct replay_options *s)
{
    struct replay_request *rows = poisson(7, rate);
    struct replay_result out;
    struct err e;

    EXPECT_EQ(replay_run(&out, rows, N_REQUESTS, s, &e), 0);
    EXPECT_EQ(out.n_done + out.n_refused + out.n_dropped + out.n_late, N_REQUESTS);
    mem_free(rows);
    return out;
}

static void goodput_holds_at_three_times_the_capacity(void)
{
    static const double loads[LOADS] = { 0.5, 0.8, 1, 1.5, 2, 3 };
    struct replay_options s = setup();
    double peak = 0, capacity, last = 0;

    struct replay_options without_deadlines = s; /* no request has a deadline */
    without_deadlines.deadline_s = 0;
    without_deadlines.engine.max_queue = N_REQUESTS;
    without_deadlines.engine.max_queue_tokens = INT32_MAX;
    capacity = at_rate(1000, &without_deadlines).requests_s;
    for (int i = 0; i < LOADS; i++) {
        struct replay_result r = at_rate(capacity * loads[i], &s);
        printf("load %.1f: %.2f requests/s in time, %d refused, %d dropped, %d late, first token "
               "p50 %.2f s "
               "p99 %.2f s\n",
            loads[i], r.requests_s, r.n_refused, r.n_dropped, r.n_late, r.ttft.p50, r.ttft.p99);
        peak = MAX(peak, r.requests_s);
        last = r.requests_s;
    }
    EXPECT(last >= 0.9 * peak);
    EXPECT(last >= 0.85 * capacity);
}

/* With prompts of at most one chunk, first-token latency and throughput are close to those
 * without a mixed-step limit, and no step exceeds the limit. For long prompts see test_stall. */
static void short_prompts_have_their_own_mixed_step_limit(void)
{
    struct replay_request *rows = xcalloc(N_REQUESTS, sizeof(*rows));
    struct replay_options s = setup();
    struct rng r = { .key = 3 };
    struct err e;
    double at = 0;

    s.cost = (struct timed_cost){ 20e6, 500e3, 30, 0, 0.05, 1 };
    s.deadline_s = 0;
    s.engine.max_queue = N_REQUESTS;
    s.engine.max_queue_tokens = INT32_MAX;
    for (int i = 0; i < N_REQUESTS; i++) {
        at += -log(1 - rng_next_unit(&r)) / 4;
        rows[i] = (struct replay_request){ .at_s = at, .n_prompt = 128, .n_out = 64 };
    }
    struct replay_result got[3];
    const int stretches[3][2] = { { 0, 0 }, { 140, 140 }, { 140, 350 } };
    for (int i = 0; i < 3; i++) {
        s.engine.mixed_step_percent = stretches[i][0];
        s.engine.mixed_step_percent_short = stretches[i][1];
        EXPECT_EQ(replay_run(&got[i], rows, N_REQUESTS, &s, &e), 0);
        printf("short prompts, %d %% and %d %%: %.2f requests/s, first token p50 %.3f s, gaps p50 "
               "%.4f s, longest %.4f s\n",
            stretches[i][0], stretches[i][1], got[i].requests_s, got[i].ttft.p50, got[i].itl.p50,
            got[i].itl.max);
    }
    EXPECT(got[2].requests_s > 0.98 * got[0].requests_s);
    EXPECT(got[2].ttft.p50 < 2 * got[0].ttft.p50 && got[2].ttft.p50 < 0.2 * got[1].ttft.p50);
    /* mixed-step limit of a decode-only step of 16 sequences, plus a twentieth */
    EXPECT(got[2].itl.max < 3.3 * 32e6 * 1e-9);
    mem_free(rows);
}

static void the_same_trace_gives_the_same_result(void)
{
    struct replay_options s = setup();
    struct replay_result a = at_rate(4, &s), b = at_rate(4, &s);

    EXPECT_EQ(a.n_done, b.n_done);
    EXPECT_EQ(a.steps, b.steps);
    EXPECT(a.ttft.p99 == b.ttft.p99 && a.itl.max == b.itl.max);
}

static void shared_prefixes_are_cached(void)
{
    struct replay_options s = setup();
    struct replay_request rows[40];
    struct replay_result r;
    struct err e;

    for (int i = 0; i < 40; i++) /* four conversations that grow */
        rows[i] = (struct replay_request){ .at_s = i * 10,
            .n_prompt = 200 + i / 4 * 100,
            .n_out = 10,
            .prefix = (uint64_t)(1 + i % 4) };
    EXPECT_EQ(replay_run(&r, rows, 40, &s, &e), 0);
    EXPECT_EQ(r.hit_rate, 0.0);
    s.engine.prefix_cache = true;
    EXPECT_EQ(replay_run(&r, rows, 40, &s, &e), 0);
    EXPECT(r.hit_rate > 0.7 && r.hit_rate < 1);
    EXPECT_EQ(r.n_done, 40);
}

static void invalid_traces_are_rejected(void)
{
    struct replay_options s = setup();
    struct replay_result r;
    struct err e;
    const struct replay_request wrong[][2] = { { { .n_prompt = 0, .n_out = 1 } },
        { { .n_prompt = 1, .n_out = 0 } }, { { .n_prompt = 4096, .n_out = 1 } },
        { { .at_s = 2, .n_prompt = 1, .n_out = 1 }, { .at_s = 1, .n_prompt = 1, .n_out = 1 } },
        { { .at_s = NAN, .n_prompt = 1, .n_out = 1 } } };

    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        EXPECT_EQ(replay_run(&r, wrong[i], i == 3 ? 2 : 1, &s, &e), -1);
    EXPECT_EQ(replay_run(&r, wrong[0], 0, &s, &e), -1);
}

TESTS(TEST(goodput_holds_at_three_times_the_capacity), TEST(the_same_trace_gives_the_same_result),
    TEST(short_prompts_have_their_own_mixed_step_limit), TEST(shared_prefixes_are_cached),
    TEST(invalid_traces_are_rejected))
