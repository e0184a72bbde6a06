/* Eviction order: the documented order of each policy, and on request traces a hit rate close to
 * that of exact LRU over single pages. */
#include "cache/evict.h"
#include "support/check.h"
#include "support/prefix_rates.h"

enum { N = 40 };

static struct evict open_policy(enum evict_policy policy, uint32_t n)
{
    struct evict ev;
    struct err e;

    EXPECT_EQ(evict_init(&ev, policy, n, &e), 0);
    return ev;
}

static void touch_page(struct evict *ev, uint32_t i, uint32_t weight)
{
    if (evict_has(ev, i))
        evict_remove(ev, i);
    evict_touch(ev, i, weight);
    evict_add(ev, i);
}

static void equal_weights_go_in_the_order_of_their_last_use(void)
{
    struct evict ev = open_policy(EVICT_LRU, N);
    struct rng r = { .key = 5 };
    uint32_t last[N] = { 0 };

    for (uint32_t k = 1; k < 1000; k++) {
        uint32_t i = k <= N ? k - 1 : (uint32_t)rng_below(&r, N);
        touch_page(&ev, i, EVICT_WEIGHT);
        last[i] = k;
    }
    for (uint32_t before = 0, k = 0; k < N; k++) {
        uint32_t i = evict_take(&ev);
        EXPECT(i < N && last[i] > before);
        before = last[i];
    }
    EXPECT_EQ(evict_take(&ev), EVICT_NONE);
    evict_clear(&ev);
}

/* The clock policy keeps pages that were used since the hand passed, and evicts the others. */
static void clock_keeps_pages_used_since_the_last_round(void)
{
    struct evict ev = open_policy(EVICT_CLOCK, N);
    bool is_gone[N] = { false };

    for (uint32_t i = 0; i < N; i++)
        touch_page(&ev, i, EVICT_WEIGHT);
    /* All pages are equal: the first round clears their marks, then they are evicted one by one. */
    for (uint32_t k = 0; k < N / 2; k++) {
        uint32_t i = evict_take(&ev);
        EXPECT(i < N && !is_gone[i]);
        is_gone[i] = true;
        for (uint32_t j = 0; j < N; j += 4)
            if (!is_gone[j] && j != i)
                touch_page(&ev, j, EVICT_WEIGHT);
    }
    for (uint32_t j = 4; j < N; j += 4)
        EXPECT(!is_gone[j]);
    EXPECT(!evict_check(&ev));
    evict_clear(&ev);
}

static void heavier_pages_stay_longer(void)
{
    static const enum evict_policy policies[] = { EVICT_LRU, EVICT_CLOCK };

    for (size_t p = 0; p < ARRAY_LEN(policies); p++) {
        struct evict ev = open_policy(policies[p], N);
        int n_dear = 0;
        for (uint32_t i = 0; i < N; i++)
            touch_page(&ev, i, i % 2 ? 3 * EVICT_WEIGHT : EVICT_WEIGHT);
        for (uint32_t k = 0; k < N / 2; k++)
            n_dear += evict_take(&ev) % 2;
        EXPECT_EQ(n_dear, 0);
        evict_clear(&ev);
    }
}

static void few_candidates_are_found_among_many_used_pages(void)
{
    struct evict ev = open_policy(EVICT_CLOCK, 10000);

    for (uint32_t k = 0; k < 200; k++) {
        touch_page(&ev, k * 37 % 10000, 3 * EVICT_WEIGHT);
        EXPECT_EQ(evict_take(&ev), k * 37 % 10000);
        EXPECT(!evict_check(&ev));
    }
    evict_clear(&ev);
}

/* Hit rates in percent of tokens: within 2 of the ideal cache, and clock within 1 of the list. */
static void hit_rates_are_close_to_the_ideal_cache(void)
{
    const bool is_small = PAGE_TOKENS < 16; /* small pages mean many pages */
    const int n = is_small ? 250 : 1200;
    const uint32_t least = is_small ? 16 * 1024 : 64 * 1024;

    for (size_t k = 2; k < ARRAY_LEN(trace_kinds); k++)
        for (uint32_t tokens = least; tokens <= 4 * least; tokens *= 2) {
            struct hit_rates h =
                trace_run(&trace_kinds[k], n, tokens / PAGE_TOKENS, 3 + (uint64_t)k);
            printf("     %s, %u tokens: endless %.1f ideal %.2f lru %.2f clock %.2f\n",
                trace_kinds[k].name, tokens, 100 * h.endless, 100 * h.ideal, 100 * h.lru,
                100 * h.clock);
            EXPECT(h.ideal > 0.05 && h.ideal < h.endless);
            EXPECT(h.lru > h.ideal - 0.02);
            EXPECT(h.clock > h.lru - 0.01);
        }
}

TESTS(TEST(equal_weights_go_in_the_order_of_their_last_use),
    TEST(clock_keeps_pages_used_since_the_last_round), TEST(heavier_pages_stay_longer),
    TEST(few_candidates_are_found_among_many_used_pages),
    TEST(hit_rates_are_close_to_the_ideal_cache))
