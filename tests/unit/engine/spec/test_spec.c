/* Speculative decoding must not cost time: compares the simulated time with drafts and without
 * (support/draft_sim.h). */
#include "support/check.h"
#include "support/draft_sim.h"

enum { SEEDS = 4 };

/* Ratio of the time without drafts to the time with drafts. */
static double speedup(const struct step_law *step_law, int n_streams, int percent)
{
    exact_drafter.d.ops = &exact_drafter_ops;
    exact_drafter.r = (struct rng){ .key = seed };
    exact_drafter.percent = percent;
    struct timed_run off = timed_run(step_law, n_streams, 0, 0),
                     on = timed_run(step_law, n_streams, 0, 16);
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
    timed_run(&held_up, STREAMS, 0, 16);
}

static void expensive_rows_disable_drafting(void)
{
    exact_drafter = (struct exact_drafter){ .d.ops = &exact_drafter_ops, .percent = 100 };
    timed_run(&compute_bound, 1, 0, 0);
    struct timed_run on = timed_run(&compute_bound, 1, 0, 16);
    EXPECT(on.drafted < OUT / 10);
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
    TEST(expensive_rows_disable_drafting), TEST(impossible_settings_are_refused))
