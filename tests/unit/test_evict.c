/* Which page is given up first: in the order that was promised, and on traces of requests as good
 * as the least recently used of all pages. */
#include "cache/evict.h"
#include "../check.h"
#include "../support/prefix_rates.h"

enum { N = 40 };

static struct evict order_of(enum evict_policy policy, uint32_t n)
{
    struct evict ev;
    struct err e;

    EXPECT_EQ(evict_init(&ev, policy, n, &e), 0);
    return ev;
}

static void use(struct evict *ev, uint32_t i, uint32_t weight)
{
    if (evict_has(ev, i))
        evict_remove(ev, i);
    evict_touch(ev, i, weight);
    evict_add(ev, i);
}

static void equal_weights_go_in_the_order_of_their_last_use(void)
{
    struct evict ev = order_of(EVICT_LRU, N);
    struct rng r = { .key = 5 };
    uint32_t last[N] = { 0 };

    for (uint32_t k = 1; k < 1000; k++) {
        uint32_t i = k <= N ? k - 1 : (uint32_t)rng_below(&r, N);
        use(&ev, i, EVICT_WEIGHT);
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

/* What was used since the hand came by stays; what was not goes. */
static void the_hand_gives_a_round_to_what_was_used(void)
{
    struct evict ev = order_of(EVICT_CLOCK, N);
    bool is_gone[N] = { false };

    for (uint32_t i = 0; i < N; i++)
        use(&ev, i, EVICT_WEIGHT);
    /* All are alike: the first round is theirs, then they go one by one. */
    for (uint32_t k = 0; k < N / 2; k++) {
        uint32_t i = evict_take(&ev);
        EXPECT(i < N && !is_gone[i]);
        is_gone[i] = true;
        for (uint32_t j = 0; j < N; j += 4)
            if (!is_gone[j] && j != i)
                use(&ev, j, EVICT_WEIGHT);
    }
    for (uint32_t j = 4; j < N; j += 4)
        EXPECT(!is_gone[j]);
    EXPECT(!evict_check(&ev));
    evict_clear(&ev);
}

static void what_weighs_more_stays_longer(void)
{
    static const enum evict_policy policies[] = { EVICT_LRU, EVICT_CLOCK };

    for (size_t p = 0; p < ARRAY_LEN(policies); p++) {
        struct evict ev = order_of(policies[p], N);
        int n_dear = 0;
        for (uint32_t i = 0; i < N; i++)
            use(&ev, i, i % 2 ? 3 * EVICT_WEIGHT : EVICT_WEIGHT);
        for (uint32_t k = 0; k < N / 2; k++)
            n_dear += evict_take(&ev) % 2;
        EXPECT_EQ(n_dear, 0);
        evict_clear(&ev);
    }
}

static void few_candidates_are_found_among_many_that_are_in_use(void)
{
    struct evict ev = order_of(EVICT_CLOCK, 10000);

    for (uint32_t k = 0; k < 200; k++) {
        use(&ev, k * 37 % 10000, 3 * EVICT_WEIGHT);
        EXPECT_EQ(evict_take(&ev), k * 37 % 10000);
        EXPECT(!evict_check(&ev));
    }
    evict_clear(&ev);
}

/* Within 2 % of the ideal, and the clock within 1 % of the list, in points of tokens found. */
static void traces_find_what_the_ideal_finds(void)
{
    const bool is_small = PAGE_TOKENS < 16; /* small pages are many pages */
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
    TEST(the_hand_gives_a_round_to_what_was_used), TEST(what_weighs_more_stays_longer),
    TEST(few_candidates_are_found_among_many_that_are_in_use),
    TEST(traces_find_what_the_ideal_finds))
