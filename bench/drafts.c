/* drafts: benefit of the draft policy (engine/spec/spec.h), in simulated time.
 *
 *     drafts [SEEDS]
 *
 * Compares the policy, which chooses the number of draft tokens by measured time, with fixed
 * numbers of draft tokens, over cost functions of a step, acceptance rates and numbers of streams
 * (tests/support/draft_sim.h). Prints the ratio of the time without drafts to the time with drafts:
 * its geometric mean for each cost function, and the worst result. */
#include "support/draft_sim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct policy {
    const char *name;
    int min, max; /* draft tokens */
};

static const struct policy policies[] = { { "draft policy", 0, 16 }, { "1 draft token", 1, 1 },
    { "2 draft tokens", 2, 2 }, { "4 draft tokens", 4, 4 }, { "8 draft tokens", 8, 8 } };

static const struct named_law {
    const char *name;
    struct step_law step_law;
} laws[] = {
    { "a row costs 1 %", { 1e6, 1e4 } },
    { "a row costs 9 %, noise 50 %", { 1e6, 1e5, .jitter = 0.5 } },
    { "a row costs 23 %, noise 20 %", { 1e6, 3e5, .jitter = 0.2 } },
    { "a row costs 40 %, noise 200 %", { 6e4, 4e4, .jitter = 2 } },
    { "a row costs 50 %, noise 80 %", { 1e6, 1e6, .jitter = 0.8 } },
    { "16 rows are free, then 20 %", { 1e6, 2e5, .free_rows = 16, .jitter = 0.2 } },
    { "rows are the only cost", { 1e4, 1e6 } },
};
static const int percents[] = { 0, 20, 50, 80, 95, 100 };

struct summary {
    double log_sum, worst;
    int n;
};

static void add_ratio(struct summary *s, double ratio)
{
    s->log_sum += log(ratio);
    s->worst = s->n++ ? MIN(s->worst, ratio) : ratio;
}

static double speedup(const struct step_law *l, int n_streams, int percent, const struct policy *p)
{
    exact_drafter = (struct exact_drafter){
        .d.ops = &exact_drafter_ops, .r = { .key = seed }, .percent = percent
    };
    double off_ns = timed_run(l, n_streams, 0, 0).ns;

    return off_ns / timed_run(l, n_streams, p->min, p->max).ns;
}

int main(int argc, char **argv)
{
    unsigned long n_seeds = argc > 1 ? strtoul(argv[1], NULL, 10) : 4;

    if (argc > 2 || n_seeds < 1 || n_seeds > 1000) {
        fprintf(stderr, "usage: drafts [SEEDS]\n");
        return 2;
    }
    for (size_t p = 0; p < ARRAY_LEN(policies); p++) {
        struct summary all = { 0 };
        printf("%s\n", policies[p].name);
        for (size_t i = 0; i < ARRAY_LEN(laws); i++)
            for (int n = 1; n <= STREAMS; n += STREAMS - 1) {
                struct summary s = { 0 };
                for (seed = 1; seed <= n_seeds; seed++)
                    for (size_t a = 0; a < ARRAY_LEN(percents); a++) {
                        double ratio = speedup(&laws[i].step_law, n, percents[a], &policies[p]);
                        add_ratio(&s, ratio);
                        add_ratio(&all, ratio);
                    }
                printf("  %-30s %d stream%s mean %.2f, worst %.2f\n", laws[i].name, n,
                    n > 1 ? "s:" : ": ", exp(s.log_sum / s.n), s.worst);
            }
        printf("  %-41s mean %.2f, worst %.2f\n", "all:", exp(all.log_sum / all.n), all.worst);
    }
    return 0;
}
