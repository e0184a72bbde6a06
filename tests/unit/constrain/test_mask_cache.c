#include "constrain/mask_cache.h"

#include "base/mem.h"
#include "base/rng.h"
#include "support/check.h"

enum { N_WORDS = 40, N_MASKS = 16 };

static struct mask_cache *cache_of_masks(size_t n)
{
    struct mask_cache *c = mask_cache_new(N_WORDS, n * (N_WORDS * 4 + 28));

    EXPECT(c != NULL);
    return c;
}

static void put(struct mask_cache *c, uint64_t generation, uint32_t state)
{
    uint32_t mask[N_WORDS];

    for (size_t w = 0; w < N_WORDS; w++)
        mask[w] = state * 1000 + (uint32_t)w;
    mask_cache_put(c, generation, state, mask);
}

static bool has(struct mask_cache *c, uint64_t generation, uint32_t state)
{
    const uint32_t *mask = mask_cache_find(c, generation, state);

    for (size_t w = 0; mask && w < N_WORDS; w++)
        EXPECT_EQ(mask[w], state * 1000 + (uint32_t)w);
    return mask != NULL;
}

/* The model is the order of use of all states. */
static void the_least_recently_used_mask_is_evicted(void)
{
    struct mask_cache *c = cache_of_masks(N_MASKS);
    struct rng r = { .key = 1 };
    uint32_t order[100] = { 0 };
    size_t n = 0;

    for (int round = 0; round < 5000; round++) {
        uint32_t state = 1 + (uint32_t)rng_below(&r, 40);
        size_t at = 0;
        while (at < n && order[at] != state)
            at++;
        EXPECT_EQ(has(c, 0, state), at < MIN(n, (size_t)N_MASKS));
        put(c, 0, state);
        n += at == n;
        memmove(order + 1, order, at * sizeof(*order));
        order[0] = state;
        n = MIN(n, (size_t)N_MASKS);
    }
    mask_cache_free(c);
}

static void another_generation_drops_all_masks(void)
{
    struct mask_cache *c = cache_of_masks(4);

    put(c, 3, 7);
    EXPECT(has(c, 3, 7) && !has(c, 4, 7) && !has(c, 3, 7));
    put(c, 4, 7);
    put(c, 5, 8);
    EXPECT(has(c, 5, 8) && !has(c, 5, 7));
    mask_cache_free(c);
}

static void memory_is_bounded(void)
{
    struct mask_cache *c = cache_of_masks(1);

    put(c, 0, 1);
    EXPECT(has(c, 0, 1));
    put(c, 0, 2);
    EXPECT(has(c, 0, 2) && !has(c, 0, 1));
    mask_cache_free(c);
    c = mask_cache_new(4000, 100 * KB);
    EXPECT(mask_cache_bytes(c) <= 101 * KB && mask_cache_bytes(c) > 90 * KB);
    mask_cache_free(c);
    c = mask_cache_new(N_WORDS, 0);
    put(c, 0, 1);
    EXPECT(!has(c, 0, 1));
    EXPECT(mask_cache_bytes(c) < 128);
    mask_cache_free(c);
}

static void a_failed_allocation_returns_no_cache(void)
{
    for (uint64_t nth = 1; nth <= 4; nth++) {
        uint64_t before = mem_failures();
        mem_fail_after(nth);
        struct mask_cache *c = mask_cache_new(N_WORDS, 4096);
        mem_fail_after(0);
        EXPECT_EQ(c == NULL, mem_failures() > before);
        mask_cache_free(c);
    }
}

TESTS(TEST(the_least_recently_used_mask_is_evicted), TEST(another_generation_drops_all_masks),
    TEST(memory_is_bounded), TEST(a_failed_allocation_returns_no_cache))
