/* Row cost estimation from pairs of steps, with noise, outliers and changes of speed. */
#include "base/rng.h"
#include "engine/spec/row_cost.h"
#include "support/check.h"

#include <math.h>

struct machine {
    double fixed, row; /* cost of a step, ns */
    double jitter;     /* each step takes up to this factor longer */
    int spikes;        /* one step in this number takes ten times as long; 0: none */
    /* this number of normal steps alternates with as many of double duration; 0: none */
    int phases;
    int n_steps;
    struct rng r;
};

static void run_step(struct row_cost *s, struct machine *m, int n_rows)
{
    double ns = m->fixed + m->row * n_rows;

    ns *= 1 + m->jitter * rng_next_unit(&m->r);
    if (m->spikes && rng_below(&m->r, (uint64_t)m->spikes) == 0)
        ns *= 10;
    if (m->phases && m->n_steps++ / m->phases % 2)
        ns *= 2;
    row_cost_add(s, n_rows, ns);
}

/* Runs steps of `base` rows, with up to 8 more rows in every other step. */
static void run_steps(struct row_cost *s, struct machine *m, int base, int n)
{
    for (int i = 0; i < n; i++)
        run_step(s, m, i % 2 ? base + 1 + (int)rng_below(&m->r, 8) : base);
}

static double share_of(const struct machine *m, int base)
{
    return m->row / (m->fixed + m->row * base);
}

static bool is_near(double a, double b, double part)
{
    if (fabs(a - b) <= part * b)
        return true;
    printf("%g is not near %g\n", a, b);
    return false;
}

static void without_measurements_exploration_or_full_margin_applies(void)
{
    struct row_cost s = { 0 };

    EXPECT(is_near(row_cost_share(&s, 1, 0), 0.125, 1e-9));
    EXPECT(is_near(row_cost_share(&s, 4, 1), 0.25, 1e-9));
    row_cost_add(&s, 4, 1000);
    row_cost_add(&s, 4, 1000); /* equal numbers of rows give no information on the row cost */
    EXPECT(is_near(row_cost_share(&s, 4, 0), 0.125 / 4, 1e-9));
}

static void exact_costs_are_found_after_a_few_pairs(void)
{
    const double rows[] = { 1e3, 1e4, 1e5, 3e5, 1e6, 1e7 };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        for (int base = 1; base <= 64; base *= 8) {
            struct row_cost s = { 0 };
            struct machine m = { .fixed = 1e6, .row = rows[i], .r.key = i };
            run_steps(&s, &m, base, 60);
            printf("row cost %g, base %d rows: share %g, expected %g\n", rows[i], base,
                row_cost_share(&s, base, 0), share_of(&m, base));
            double error = fabs(row_cost_share(&s, base, 0) - share_of(&m, base));
            EXPECT(error < 0.02 / base || error < 0.1 * share_of(&m, base));
            EXPECT(row_cost_share(&s, base, 2) >= row_cost_share(&s, base, 0));
            EXPECT(row_cost_share(&s, base, 2) <= 1.0 / base);
        }
}

static void estimate_is_robust_to_noise_spikes_and_phases(void)
{
    const struct machine kinds[] = {
        { 1e6, 3e5, .jitter = 0.5 },
        { 1e6, 3e5, .jitter = 0.2, .phases = 30 },
        { 1e6, 3e5, .jitter = 0.3, .spikes = 40 },
        { 6e4, 4e4, .jitter = 0.8, .spikes = 100, .phases = 50 },
        { 6e4, 4e4, .jitter = 2 },
    };
    int n_below = 0, n = 0;

    for (uint64_t seed = 1; seed <= 40; seed++)
        for (size_t i = 0; i < ARRAY_LEN(kinds); i++, n++) {
            struct row_cost s = { 0 };
            struct machine m = kinds[i];
            m.r.key = seed;
            run_steps(&s, &m, 1, 300);
            EXPECT(is_near(row_cost_share(&s, 1, 0), share_of(&m, 1), 0.4));
            n_below += row_cost_share(&s, 1, 2) < share_of(&m, 1);
        }
    printf("%d of %d are dearer than two deviations\n", n_below, n);
    EXPECT(n_below <= n / 20);
}

/* The number of rows in between does not matter; the estimated share scales with it. */
static void estimate_applies_to_any_number_of_rows(void)
{
    struct row_cost s = { 0 };
    struct machine m = { .fixed = 1e6, .row = 2e5 };

    run_steps(&s, &m, 1, 100);
    EXPECT(is_near(row_cost_share(&s, 16, 0), share_of(&m, 16), 0.1));
}

static void intermediate_step_invalidates_the_pair(void)
{
    struct row_cost s = { 0 };

    row_cost_add(&s, 1, 1e6);
    row_cost_skip(&s);
    row_cost_add(&s, 5, 1e9);
    EXPECT_EQ(s.n_pairs, 0);
    row_cost_add(&s, 1, 1e9);
    EXPECT_EQ(s.n_pairs, 1);
}

static void changed_row_cost_is_relearned(void)
{
    struct row_cost s = { 0 };
    struct machine m = { .fixed = 1e6, .row = 5e5, .jitter = 0.1 };

    run_steps(&s, &m, 1, 200);
    m.row = 1e5;
    run_steps(&s, &m, 1, 600);
    EXPECT(is_near(row_cost_share(&s, 1, 0), share_of(&m, 1), 0.2));
}

static void exploration_grows_while_nothing_is_measured(void)
{
    struct row_cost s = { 0 };
    struct machine m = { .fixed = 1e6, .row = 5e5, .jitter = 0.3 };

    run_steps(&s, &m, 1, 50);
    double sure = row_cost_share(&s, 1, 2);
    EXPECT(row_cost_exploration(&s) == 0);
    for (int i = 0; i < 500; i++)
        row_cost_age(&s);
    EXPECT(row_cost_exploration(&s) > 2);
    EXPECT(row_cost_share(&s, 1, 2) > sure); /* and the safety margin as well */
    run_step(&s, &m, 4);
    run_step(&s, &m, 1);
    EXPECT(row_cost_exploration(&s) == 0);
}

TESTS(TEST(without_measurements_exploration_or_full_margin_applies),
    TEST(exact_costs_are_found_after_a_few_pairs),
    TEST(estimate_is_robust_to_noise_spikes_and_phases),
    TEST(estimate_applies_to_any_number_of_rows), TEST(intermediate_step_invalidates_the_pair),
    TEST(changed_row_cost_is_relearned), TEST(exploration_grows_while_nothing_is_measured))
