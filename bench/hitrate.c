/* hitrate: what of a trace the prefix cache finds, beside the least recently used of single pages,
 * with nothing in its way; and what keeping the order costs.
 *
 *     hitrate [REQUESTS]
 *
 * Traces are drawn with the lengths and the reuse that were published of recorded ones: see
 * tests/support/prefix_trace.h. */
#include "os/clock.h"
#include "support/prefix_rates.h"

#include <stdio.h>

/* A page is used, becomes idle, and now and then one is given up, as in a cache that is full. */
static double order_ns(enum evict_policy policy, uint32_t n)
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
    uint64_t began = clock_ns();
    for (int k = 0; k < rounds; k++) {
        uint32_t i = (uint32_t)rng_below(&r, n);
        if (k % 2)
            i = evict_take(&ev);
        else
            evict_remove(&ev, i);
        evict_touch(&ev, i, EVICT_WEIGHT);
        evict_add(&ev, i);
    }
    double all = (double)(clock_ns() - began);
    evict_clear(&ev);
    began = clock_ns();
    uint64_t sum = 0;
    for (int k = 0; k < rounds; k++)
        sum += rng_below(&r, n);
    double drawing = (double)(clock_ns() - began);
    return sum ? (all - drawing) / rounds : 0;
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 12000;
    static const uint32_t sizes[] = { 4096, 16384, 65536 };

    if (n < 100 || n > 1000000) {
        fprintf(stderr, "usage: hitrate [REQUESTS]\n");
        return 2;
    }
    printf("%d requests each; tokens of prompts that were found, in percent\n", n);
    for (size_t k = 0; k < ARRAY_LEN(trace_kinds); k++)
        for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
            struct hit_rates h = trace_run(&trace_kinds[k], n, sizes[s], 1);
            printf("%-36s %6.0f tokens, cache of %7u: endless %5.2f  ideal %5.2f  lru %5.2f  "
                   "clock %5.2f\n",
                trace_kinds[k].name, h.mean_prompt, sizes[s] * PAGE_TOKENS, 100 * h.endless,
                100 * h.ideal, 100 * h.lru, 100 * h.clock);
        }
    for (uint32_t pages = 4096; pages <= 1 << 20; pages *= 16)
        printf("order of %7u pages, per change: lru %.1f ns, clock %.1f ns\n", pages,
            order_ns(EVICT_LRU, pages), order_ns(EVICT_CLOCK, pages));
    return 0;
}
