/* KV page pool: references, reuse and the states of a page. */
#include "base/mem.h"
#include "base/rng.h"
#include "cache/pages.h"
#include "support/check.h"

static struct page_pool *new_pool(uint32_t n)
{
    struct page_pool *p;
    struct err e;

    EXPECT_EQ(page_pool_new(&p, n, &e), 0);
    return p;
}

static void page_take_on_empty_pool_returns_none_and_reuses_the_last_freed(void)
{
    struct page_pool *p = new_pool(2);

    page_id a = page_take(p), b = page_take(p), c = page_take(p);
    EXPECT(a.i != b.i);
    EXPECT_EQ(c.i, PAGE_NONE.i);
    EXPECT_EQ(page_n_free(p), 0u);

    EXPECT(page_unref(p, a));
    EXPECT_EQ(page_take(p).i, a.i);
    EXPECT(page_unref(p, b));
    EXPECT(page_unref(p, a));
    EXPECT_EQ(page_take(p).i, a.i);
    EXPECT_EQ(page_take(p).i, b.i);
    page_unref(p, a);
    page_unref(p, b);
    page_pool_free(p);
}

static void shared_page_is_freed_by_its_last_holder(void)
{
    struct page_pool *p = new_pool(3);
    page_id a = page_take(p);

    page_ref(p, a);
    page_ref(p, a);
    EXPECT_EQ(page_refs(p, a), 3u);
    EXPECT(!page_unref(p, a));
    EXPECT(!page_unref(p, a));
    EXPECT_EQ(page_n_free(p), 2u);
    EXPECT(page_unref(p, a));
    EXPECT_EQ(page_n_free(p), 3u);
    EXPECT_EQ(page_n_total(p), 3u);
    page_pool_free(p);
}

static void impossible_sizes_and_missing_memory_are_errors(void)
{
    struct page_pool *p = NULL;
    struct err e;

    EXPECT_EQ(page_pool_new(&p, 0, &e), -1);
    EXPECT(e.code == ERR_RANGE);
    EXPECT_EQ(page_pool_new(&p, UINT32_MAX, &e), -1);
    EXPECT(e.code == ERR_RANGE);
#ifdef TESTING
    for (uint64_t nth = 1; nth <= 4; nth++) {
        mem_fail_after(nth);
        EXPECT_EQ(page_pool_new(&p, 10, &e), -1);
        EXPECT(e.code == ERR_MEMORY);
    }
    mem_fail_after(0);
#endif
    EXPECT(!p);
}

struct page_log {
    page_id last;
    bool is_idle;
    int n;
};

static void watch_page(void *arg, page_id id, bool is_idle)
{
    struct page_log *w = arg;

    *w = (struct page_log){ id, is_idle, w->n + 1 };
}

static void cached_page_is_idle_while_only_the_cache_holds_it(void)
{
    struct page_pool *p = new_pool(3);
    struct page_log w = { PAGE_NONE, false, 0 };
    page_id a = page_take(p), b = page_take(p);

    page_pool_watch(p, watch_page, &w);
    page_ref(p, a);
    page_set_cached(p, a);
    EXPECT(page_is_cached(p, a) && !page_is_cached(p, b));
    EXPECT_EQ(page_n_idle(p), 0u);
    EXPECT(!page_unref(p, a));
    EXPECT(w.n == 1 && w.is_idle && w.last.i == a.i);
    EXPECT_EQ(page_n_idle(p), 1u);
    page_pool_check(p);
    page_ref(p, a);
    EXPECT(w.n == 2 && !w.is_idle);
    EXPECT_EQ(page_n_idle(p), 0u);
    EXPECT(!page_unref(p, a));
    page_unset_cached(p, a);
    EXPECT(w.n == 4 && !w.is_idle);
    EXPECT_EQ(page_n_idle(p), 0u);
    EXPECT(page_unref(p, a));
    page_unref(p, b);
    EXPECT_EQ(w.n, 4);
    page_pool_check(p);
    page_pool_free(p);
}

static void freed_page_keeps_its_previous_owner(void)
{
    struct page_pool *p = new_pool(1);
    page_id a = page_take(p);

    EXPECT(!page_claim(p, a, 7)); /* has no previous owner */
    EXPECT(!page_claim(p, a, 7));
    page_unref(p, a);
    a = page_take(p);
    EXPECT(!page_claim(p, a, 7));
    EXPECT(page_claim(p, a, 0));
    EXPECT(!page_claim(p, a, 0));
    EXPECT(page_claim(p, a, UINT64_MAX));
    page_unref(p, a);
    page_pool_free(p);
}

/* Random take, ref and unref operations against an array of counts. */
static void pool_agrees_with_a_plain_array(void)
{
    enum { N = 37 };

    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct rng r = { .key = seed };
        struct page_pool *p = new_pool(N);
        uint32_t refs[N] = { 0 }, n_held = 0, held = 0;

        for (int i = 0; i < 2000; i++) {
            uint32_t at = (uint32_t)rng_below(&r, N);
            uint64_t what = rng_below(&r, 10);
            if (what < 4) {
                page_id id = page_take(p);
                EXPECT_EQ(id.i == PAGE_NONE.i, n_held == N);
                if (id.i != PAGE_NONE.i) {
                    EXPECT_EQ(refs[id.i], 0u);
                    refs[id.i] = 1;
                    n_held++;
                    held++;
                }
            } else if (what < 6 && refs[at]) {
                page_ref(p, (page_id){ at });
                refs[at]++;
                held++;
            } else if (refs[at]) {
                EXPECT_EQ(page_unref(p, (page_id){ at }), refs[at] == 1);
                n_held -= --refs[at] == 0;
                held--;
            }
            EXPECT_EQ(page_refs(p, (page_id){ at }), refs[at]);
            EXPECT_EQ(page_n_free(p), N - n_held);
            page_pool_check(p);
        }
        for (uint32_t i = 0; i < N; i++)
            while (refs[i]-- > 0)
                page_unref(p, (page_id){ i });
        page_pool_check(p);
        page_pool_free(p);
    }
}

TESTS(TEST(page_take_on_empty_pool_returns_none_and_reuses_the_last_freed),
    TEST(shared_page_is_freed_by_its_last_holder),
    TEST(cached_page_is_idle_while_only_the_cache_holds_it),
    TEST(freed_page_keeps_its_previous_owner), TEST(impossible_sizes_and_missing_memory_are_errors),
    TEST(pool_agrees_with_a_plain_array))
