/* Step time model: coefficients fitted to measured step durations. */
#include "engine/sched/step_time.h"
#include "base/rng.h"
#include "support/check.h"

#include <math.h>

static double add_noise(struct rng *r)
{
    return 0.95 + 0.1 * rng_next_unit(r);
}

static const struct step_time true_cost = { 4e6, 250e3, 40 };

static void measure_step(
    struct step_time_model *b, struct rng *r, const int (*runs)[2], int n, int kind)
{
    struct step_size s = { 0 };

    for (int i = 0; i < n; i++)
        step_size_add(&s, runs[i][0], runs[i][1]);
    step_time_add(b, &s, kind, (uint64_t)(step_time_of(&true_cost, &s) * add_noise(r)));
}

static bool is_near(double got, double want, double share)
{
    return fabs(got - want) <= share * want;
}

static void keys_are_counted_row_by_row(void)
{
    struct step_size s = { 0 };

    step_size_add(&s, 10, 3); /* 11 + 12 + 13 */
    step_size_add(&s, 0, 1);
    EXPECT_EQ(s.rows, 4.0);
    EXPECT_EQ(s.keys, 37.0);
}

static void without_measurements_the_cost_is_zero(void)
{
    struct step_time_model b = { 0 };
    struct step_size s = { 100, 1000 };

    EXPECT_EQ(step_time_of(&b.step_time, &s), 0.0);
    EXPECT_EQ(step_time_rows_within(&b.step_time, 5, 1, 77), 77);
    step_time_add(&b, &s, 0, 0); /* a zero duration is ignored */
    EXPECT_EQ(b.n_used, 0);
}

static void coefficients_are_found_through_noise(void)
{
    struct step_time_model b = { 0 };
    struct rng r = { .key = 7 };

    for (int i = 0; i < 200; i++) {
        measure_step(&b, &r, (const int[][2]){ { i * 160, 512 } }, 1, 1);
        measure_step(&b, &r, (const int[][2]){ { 300 + i, 1 }, { 900, 1 }, { 40, 1 } }, 3, 0);
    }
    EXPECT(is_near(b.step_time.per_row, true_cost.per_row, 0.1));
    EXPECT(is_near(b.step_time.per_key, true_cost.per_key, 0.1));
    struct step_size s = { 0 };
    step_size_add(&s, 5000, 30);
    EXPECT(is_near(step_time_of(&b.step_time, &s), step_time_of(&true_cost, &s), 0.1));
}

/* If two kinds of steps differ equally in rows and keys, the measurements do not determine the
 * coefficient of either. */
static void undetermined_coefficients_use_the_prior(void)
{
    struct step_time_model b = { .key_share = true_cost.per_key / true_cost.per_row };
    struct rng r = { .key = 12 };

    for (int i = 0; i < 40; i++) {
        measure_step(&b, &r, (const int[][2]){ { 0, 500 } }, 1, 1);
        measure_step(&b, &r, (const int[][2]){ { 100, 1 }, { 110, 1 }, { 120, 1 } }, 3, 0);
    }
    for (int pos = 0; pos < 2000; pos += 500) {
        struct step_size s = { 0 };
        step_size_add(&s, pos, 60);
        EXPECT(is_near(step_time_of(&b.step_time, &s), step_time_of(&true_cost, &s), 0.15));
    }
}

static void one_kind_of_steps_does_not_erase_the_other(void)
{
    struct step_time_model b = { 0 };
    struct rng r = { .key = 8 };

    for (int i = 0; i < 20; i++)
        measure_step(&b, &r, (const int[][2]){ { i * 512, 512 } }, 1, 1);
    for (int i = 0; i < 5000; i++)
        measure_step(&b, &r, (const int[][2]){ { 200, 1 }, { 300, 1 } }, 2, 0);
    struct step_size s = { 0 };
    step_size_add(&s, 2000, 100);
    EXPECT(is_near(step_time_of(&b.step_time, &s), step_time_of(&true_cost, &s), 0.2));
}

static void an_outlier_moves_little(void)
{
    struct step_time_model b = { 0 };
    struct rng r = { .key = 9 };
    struct step_size s = { 2, 400 };

    for (int i = 0; i < 100; i++)
        measure_step(&b, &r, (const int[][2]){ { 199, 1 }, { 199, 1 } }, 2, 0);
    step_time_add(&b, &s, 0, 10u * 1000000000u);
    for (int i = 0; i < 8; i++)
        measure_step(&b, &r, (const int[][2]){ { 199, 1 }, { 199, 1 } }, 2, 0);
    EXPECT(is_near(step_time_of(&b.step_time, &s), step_time_of(&true_cost, &s), 0.2));
}

static void no_term_is_negative_whatever_is_measured(void)
{
    struct rng r = { .key = 10 };

    for (int round = 0; round < 200; round++) {
        struct step_time_model b = { 0 };
        for (int i = 0; i < 30; i++) {
            struct step_size s = { 1 + (double)rng_below(&r, 600), 0 };
            s.keys = s.rows * (double)(1 + rng_below(&r, 30000));
            step_time_add(&b, &s, (int)rng_below(&r, 3), 1 + rng_below(&r, 1u << 30));
            EXPECT(b.step_time.fixed >= 0 && b.step_time.per_row >= 0 && b.step_time.per_key >= 0);
            EXPECT(isfinite(b.step_time.fixed + b.step_time.per_row + b.step_time.per_key));
        }
    }
}

static void rows_within_a_time_are_the_most_that_fit(void)
{
    const struct step_time laws[] = { true_cost, { 1, 3, 0 }, { 1, 0, 3 }, { 5, 0, 0 } };
    struct rng r = { .key = 11 };

    for (int i = 0; i < 20000; i++) {
        const struct step_time *c = &laws[rng_below(&r, 4)];
        int pos = (int)rng_below(&r, 40000), max = (int)rng_below(&r, 600);
        double ns = (double)rng_below(&r, 1u << rng_below(&r, 31));
        int n = step_time_rows_within(c, pos, ns, max);
        struct step_size fits = { 0 }, more = { 0 };
        EXPECT(n >= 0 && n <= max);
        step_size_add(&fits, pos, n);
        step_size_add(&more, pos, n + 1);
        EXPECT(n == 0 || step_time_of(c, &fits) - c->fixed <= ns * (1 + 1e-9) + 1e-6);
        EXPECT(n == max || ns <= 0 || step_time_of(c, &more) - c->fixed > ns * (1 - 1e-9) - 1e-6);
    }
}

TESTS(TEST(keys_are_counted_row_by_row), TEST(without_measurements_the_cost_is_zero),
    TEST(coefficients_are_found_through_noise), TEST(undetermined_coefficients_use_the_prior),
    TEST(one_kind_of_steps_does_not_erase_the_other), TEST(an_outlier_moves_little),
    TEST(no_term_is_negative_whatever_is_measured), TEST(rows_within_a_time_are_the_most_that_fit))
