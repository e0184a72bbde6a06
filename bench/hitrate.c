/* hitrate: simulated hit rates of the prefix cache by eviction policy, compared with an unlimited
 * cache and the ideal policy; and the run time of the policies.
 *
 *     hitrate [REQUESTS]
 *
 * The traces are synthetic, with the published length and reuse statistics of recorded traces: see
 * tests/support/prefix_trace.h. */
#include "os/clock.h"
#include "support/prefix_rates.h"

#include <stdio.h>

/* Nanoseconds per change of the eviction order. Half of the rounds evict a page, half use an idle
 * page again, as in a full cache. */
static double policy_ns(enum evict_policy policy, uint32_t n)
{
    struct rng r = { .key = 1 };
    struct evict ev;
    struct err e;
    const int rounds = 2000000;

    CHECK(!evict_init(&ev, policy, n, &e));
    for (uint32_t i = 0; i < n; i++) {
        evict_touch(&ev, i, EVICT_WEIGHT);
        evict_add(&ev, i);
    }
    uint64_t start_ns = clock_ns();
    for (int k = 0; k < rounds; k++) {
        uint32_t i = (uint32_t)rng_below(&r, n);
        if (k % 2)
            i = evict_take(&ev);
        else
            evict_remove(&ev, i);
        evict_touch(&ev, i, EVICT_WEIGHT);
        evict_add(&ev, i);
    }
    double total_ns = (double)(clock_ns() - start_ns);
    evict_clear(&ev);
    start_ns = clock_ns();
    uint64_t sum = 0;
    for (int k = 0; k < rounds; k++)
        sum += rng_below(&r, n);
    double rng_ns = (double)(clock_ns() - start_ns);
    return sum ? (total_ns - rng_ns) / rounds : 0;
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 12000;
    static const uint32_t sizes[] = { 4096, 16384, 65536 };

    if (n < 100 || n > 1000000) {
        fprintf(stderr, "usage: hitrate [REQUESTS]\n");
        return 2;
    }
    printf("%d requests per trace; hit rate in percent of the prompt tokens\n", n);
    for (size_t k = 0; k < ARRAY_LEN(trace_kinds); k++)
        for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
            struct hit_rates h = trace_run(&trace_kinds[k], n, sizes[s], 1);
            printf("%-36s %6.0f tokens, cache of %7u: unlimited %5.2f  ideal %5.2f  lru %5.2f  "
                   "clock %5.2f\n",
                trace_kinds[k].name, h.mean_prompt, sizes[s] * PAGE_TOKENS, 100 * h.endless,
                100 * h.ideal, 100 * h.lru, 100 * h.clock);
        }
    for (uint32_t pages = 4096; pages <= 1 << 20; pages *= 16)
        printf("%7u pages, time per change of the order: lru %.1f ns, clock %.1f ns\n", pages,
            policy_ns(EVICT_LRU, pages), policy_ns(EVICT_CLOCK, pages));
    return 0;
}
