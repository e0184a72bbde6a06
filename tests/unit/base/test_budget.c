/* Tests of base/budget.c, and of arenas and buffers that count against a budget. */
#include "support/check.h"

#include "base/arena.h"
#include "base/buf.h"
#include "base/mem.h"

#include <pthread.h>

/* Pools of 300 and 100 bytes; an owner has half of each. The first 10 bytes of a charge come from
 * the smaller one. */
static const struct budget_options options = {
    .max = 400, .small = 10, .share_percent = 50, .n_owners = 3
};

static struct budget_stats stats_of(const struct budget *b)
{
    struct budget_stats s;

    budget_stats(b, &s);
    return s;
}

static void an_owner_has_a_share_and_all_have_the_pool(void)
{
    struct budget *b = budget_new(&options);
    struct charge one = { b, 0 }, two = { b, 1 }, three = { b, 2 }, own = { b, 0 };

    EXPECT(charge_add(&one, 160)); /* 10 of the reserve, 150 of the rest: the share */
    EXPECT(charge_add(&own, 10));
    EXPECT(!charge_add(&own, 1));
    EXPECT(own.refusal == BUDGET_SHARE);
    EXPECT_EQ(own.n, 10u);
    EXPECT(charge_add(&two, 150));
    EXPECT(!charge_add(&three, 21)); /* 10 are left in the main pool */
    EXPECT(three.refusal == BUDGET_FULL);
    EXPECT_EQ(three.n, 0u);
    EXPECT(charge_add(&three, 20));
    EXPECT_EQ(stats_of(b).bytes, 340u);
    charge_clear(&one);
    EXPECT(charge_add(&own, 100)); /* released bytes can be taken again */
    EXPECT_EQ(stats_of(b).refused[BUDGET_SHARE], 1u);
    EXPECT_EQ(stats_of(b).refused[BUDGET_FULL], 1u);
    charge_clear(&own);
    charge_clear(&two);
    charge_clear(&three);
    EXPECT_EQ(stats_of(b).bytes, 0u);
    budget_free(b);
}

static void small_charges_find_room_when_large_ones_hold_the_pool(void)
{
    struct budget *b = budget_new(&options);
    struct charge large[2] = { { b, 0 }, { b, 1 } }, small[6] = { 0 };

    for (int i = 0; i < 2; i++)
        EXPECT(charge_add(&large[i], 160)); /* the main pool is full */
    for (int i = 0; i < 6; i++) {
        small[i] = (struct charge){ b, 2 };
        bool fits = charge_add(&small[i], 10);
        EXPECT_EQ(fits, i < 5); /* the share of an owner in the reserve */
    }
    EXPECT(!charge_add(&small[0], 1)); /* not small any more */
    EXPECT(small[0].refusal == BUDGET_FULL);
    for (int i = 0; i < 6; i++)
        charge_clear(&small[i]);
    for (int i = 0; i < 2; i++)
        charge_clear(&large[i]);
    EXPECT_EQ(stats_of(b).bytes, 0u);
    budget_free(b);
}

static void a_charge_that_can_never_fit_is_told_apart(void)
{
    struct budget_options o = options;
    struct budget *b = budget_new(&o);
    struct charge c = { b, 0 };

    EXPECT_EQ(budget_charge_max(b), 160u);
    EXPECT(!charge_add(&c, 161));
    EXPECT(c.refusal == BUDGET_NEVER);
    EXPECT(charge_add(&c, 100));
    EXPECT(!charge_add(&c, 61)); /* in steps, too */
    EXPECT(c.refusal == BUDGET_NEVER);
    EXPECT(!charge_add(&c, SIZE_MAX));
    charge_clear(&c);
    budget_free(b);

    o.charge_max = 50;
    b = budget_new(&o);
    c = (struct charge){ b, 0 };
    EXPECT(charge_add(&c, 50) && !charge_add(&c, 1));
    EXPECT(c.refusal == BUDGET_NEVER);
    charge_clear(&c);
    budget_free(b);

    o.small = 1000; /* the reserve of an owner is the limit */
    b = budget_new(&o);
    EXPECT_EQ(budget_charge_max(b), 50u);
    budget_free(b);
}

static void bytes_return_to_the_pool_that_they_came_from(void)
{
    struct budget *b = budget_new(&options);
    struct charge c = { b, 0 }, other = { b, 0 };

    for (size_t n = 1; n <= 160; n++)
        EXPECT(charge_add(&c, 1));
    charge_sub(&c, 155);
    EXPECT(charge_add(&other, 160)); /* the main pool is free again */
    EXPECT(!charge_add(&c, 6));      /* 5 of the reserve, 1 of the main pool */
    EXPECT(c.refusal == BUDGET_SHARE);
    EXPECT(charge_add(&c, 5));
    charge_clear(&c);
    charge_clear(&other);
    budget_free(b);
}

static void without_a_budget_nothing_is_refused(void)
{
    struct charge c = { 0 };

    EXPECT(charge_add(&c, GB) && charge_add(&c, GB));
    EXPECT_EQ(c.n, 2 * (size_t)GB);
    charge_clear(&c);
    EXPECT_EQ(c.n, 0u);
}

/* ---- arenas and buffers */

static void an_arena_asks_for_each_chunk_and_gives_all_back(void)
{
    struct budget *b =
        budget_new(&(struct budget_options){ .max = 40 * MB, .share_percent = 100, .n_owners = 1 });
    struct arena *a = arena_new(64 * MB);
    struct charge *c = arena_zalloc(a, 1, sizeof(*c)); /* in the arena, as in struct async */
    size_t n = 0;

    CHECK(c);
    c->budget = b;
    EXPECT(arena_charge(a, c));
    size_t first = c->n;
    EXPECT(first >= sizeof(*c));
    EXPECT_EQ(stats_of(b).bytes, first);
    while (arena_alloc(a, 10000))
        n++;
    EXPECT(c->refusal == BUDGET_NEVER); /* while it grows, not afterwards */
    EXPECT(c->n <= 30 * MB && n * 10000 <= c->n && n * 10000 > 28 * MB);
    EXPECT_EQ(stats_of(b).bytes, c->n);
    arena_free(a);
    EXPECT_EQ(stats_of(b).bytes, 0u);
    budget_free(b);
}

static void an_arena_without_memory_gives_its_chunk_back(void)
{
    struct budget *b =
        budget_new(&(struct budget_options){ .max = 40 * MB, .share_percent = 100, .n_owners = 1 });
    struct charge c = { b };
    struct arena *a = arena_new(64 * MB);

    EXPECT(arena_charge(a, &c));
    EXPECT_EQ(c.n, 0u);
    mem_fail_after(1);
    bool has_failed = !arena_alloc(a, 100);
    mem_fail_after(0);
    EXPECT(has_failed == (c.n == 0)); /* failures are injected in test builds only */
    EXPECT(c.refusal == BUDGET_NONE);
    arena_free(a);
    budget_free(b);
}

static void a_buffer_fails_when_its_budget_is_full(void)
{
    struct budget *b =
        budget_new(&(struct budget_options){ .max = 4000, .share_percent = 100, .n_owners = 1 });
    struct charge c = { b }, rest = { b };
    struct buf out;

    EXPECT(charge_add(&rest, 1000));
    buf_init(&out, MB);
    out.charge = &c;
    for (int i = 0; i < 5000; i++)
        buf_putc(&out, 'x');
    EXPECT(!buf_ok(&out) && out.n <= 2000 && out.n > 1000);
    EXPECT_EQ(c.n, out.cap);
    EXPECT(c.refusal == BUDGET_FULL); /* the share of the only owner is the whole pool */
    buf_clear(&out);
    EXPECT_EQ(c.n, 0u);

    buf_putz(&out, "counted again");
    EXPECT(buf_ok(&out) && c.n == out.cap);
    struct str stolen = buf_steal(&out);
    EXPECT_EQ(c.n, 0u);
    mem_free((char *)(uintptr_t)stolen.p);

    mem_fail_after(1);
    buf_putz(&out, "no memory");
    mem_fail_after(0);
    EXPECT_EQ(c.n, out.cap);
    buf_clear(&out);
    EXPECT_EQ(c.n, 0u);
    charge_clear(&rest);
    budget_free(b);
}

/* ---- threads */

enum { THREADS = 4, ROUNDS = 20000 };

static void *take_and_return(void *arg)
{
    struct charge c = *(const struct charge *)arg;

    for (int i = 0; i < ROUNDS; i++)
        if (charge_add(&c, 90 + (size_t)i % 20)) {
            CHECK(stats_of(c.budget).bytes <= 4 * options.max); /* failed attempts count briefly */
            charge_sub(&c, 40);
            charge_clear(&c);
        }
    return NULL;
}

static void threads_leave_the_counters_at_zero(void)
{
    struct budget *b = budget_new(&options);
    struct charge c[THREADS];
    pthread_t t[THREADS];

    for (int i = 0; i < THREADS; i++) {
        c[i] = (struct charge){ b, i % 3 };
        CHECK(!pthread_create(&t[i], NULL, take_and_return, &c[i]));
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    EXPECT_EQ(stats_of(b).bytes, 0u);
    budget_free(b); /* checks each pool */
}

TESTS(TEST(an_owner_has_a_share_and_all_have_the_pool),
    TEST(small_charges_find_room_when_large_ones_hold_the_pool),
    TEST(a_charge_that_can_never_fit_is_told_apart),
    TEST(bytes_return_to_the_pool_that_they_came_from), TEST(without_a_budget_nothing_is_refused),
    TEST(an_arena_asks_for_each_chunk_and_gives_all_back),
    TEST(an_arena_without_memory_gives_its_chunk_back),
    TEST(a_buffer_fails_when_its_budget_is_full), TEST(threads_leave_the_counters_at_zero))
