/* store/shelf.c: what is kept is there for its owner and nobody else, as long as it may be; random
 * use agrees with a plain list. */
#include "support/shelf.h"

#include "base/rng.h"
#include "os/thread.h"

#include <inttypes.h>

enum { ENTRY = 1000 };

static char answer[ENTRY - 200]; /* so that an entry takes most of ENTRY, and never more */

static bool put(struct shelf *s, uint64_t owner, const char *id, const struct kept *before)
{
    struct kept k = { str_of(id), { answer, sizeof(answer) }, STR("input"), before, 0 };

    return shelf_put(s, owner, &k, 0);
}

static bool has(struct shelf *s, uint64_t owner, const char *id, uint64_t now)
{
    const struct kept *k = shelf_take(s, owner, str_of(id), now);

    shelf_unref(s, k);
    return k != NULL;
}

static void what_is_kept_comes_back(void)
{
    struct shelf *s = new_shelf(MB, MB);
    struct kept k = { STR("resp_1"), STR("{\"a\":\"\0b\"}"), STR(""), NULL, 0 };

    EXPECT(shelf_put(s, 7, &k, 0));
    EXPECT(!shelf_put(s, 7, &k, 0)); /* the id is there */
    const struct kept *got = shelf_take(s, 7, STR("resp_1"), 0);
    EXPECT(got && str_eq(got->id, k.id) && str_eq(got->answer, k.answer) && !got->input.n);
    EXPECT(got->answer.p != k.answer.p && !got->before && !got->depth);
    shelf_check(s);
    shelf_unref(s, got);
    shelf_close(s);
}

static void nobody_else_has_it(void)
{
    struct shelf *s = new_shelf(MB, MB);

    EXPECT(put(s, 7, "resp_1", NULL));
    EXPECT(!has(s, 8, "resp_1", 0) && !has(s, 0, "resp_1", 0) && !has(s, 7, "resp_", 0));
    EXPECT(!shelf_drop(s, 8, STR("resp_1"), 0));
    EXPECT(put(s, 8, "resp_1", NULL)); /* the same id is another's here */
    EXPECT(shelf_drop(s, 8, STR("resp_1"), 0));
    EXPECT(has(s, 7, "resp_1", 0));
    shelf_close(s);
}

static void what_is_held_outlives_its_entry(void)
{
    struct shelf *s = new_shelf(MB, MB);

    EXPECT(put(s, 1, "a", NULL));
    const struct kept *a = shelf_take(s, 1, STR("a"), 0);
    EXPECT(shelf_drop(s, 1, STR("a"), 0));
    EXPECT(!has(s, 1, "a", 0) && !shelf_drop(s, 1, STR("a"), 0));
    EXPECT(a->answer.n == sizeof(answer) && bytes_of(s) > 0);
    EXPECT(put(s, 1, "a", NULL)); /* a new one, beside it */
    shelf_check(s);
    shelf_unref(s, a);
    EXPECT(has(s, 1, "a", 0));
    shelf_close(s);
}

static void a_conversation_stays_whole(void)
{
    struct shelf *s = new_shelf(MB, MB);

    EXPECT(put(s, 1, "a", NULL));
    const struct kept *a = shelf_take(s, 1, STR("a"), 0);
    EXPECT(put(s, 1, "b", a));
    shelf_unref(s, a);
    EXPECT(shelf_drop(s, 1, STR("a"), 0)); /* only not found any more */
    const struct kept *b = shelf_take(s, 1, STR("b"), 0);
    EXPECT(b && b->depth == 1 && b->before && str_is(b->before->id, "a"));
    EXPECT(b->before->answer.n == sizeof(answer));
    shelf_unref(s, b);
    EXPECT(shelf_drop(s, 1, STR("b"), 0));
    EXPECT(bytes_of(s) == 0);
    shelf_close(s);
}

/* Freed without recursion, and refused beyond the depth. */
static void a_chain_may_be_long(void)
{
    struct shelf *s = new_shelf(64 * MB, 64 * MB);
    const struct kept *last = NULL;
    char id[32];

    for (int i = 0; i < SHELF_DEPTH_MAX; i++) {
        snprintf(id, sizeof(id), "id_%d", i);
        EXPECT(put(s, 1, id, last));
        shelf_unref(s, last);
        last = shelf_take(s, 1, str_of(id), 0);
        EXPECT_EQ(last->depth, i);
    }
    EXPECT(!put(s, 1, "more", last));
    shelf_check(s);
    for (int i = 0; i < SHELF_DEPTH_MAX; i++) {
        snprintf(id, sizeof(id), "id_%d", i);
        EXPECT(shelf_drop(s, 1, str_of(id), 0));
    }
    EXPECT(bytes_of(s) > 0);
    shelf_unref(s, last);
    EXPECT(bytes_of(s) == 0);
    shelf_close(s);
}

static void an_owner_loses_its_own_oldest(void)
{
    struct shelf *s = new_shelf(100 * ENTRY, 10 * ENTRY);
    struct shelf_stats n;
    char id[32];

    EXPECT(put(s, 2, "theirs", NULL));
    for (int i = 0; i < 50; i++) {
        snprintf(id, sizeof(id), "id_%d", i);
        EXPECT(put(s, 1, id, NULL));
        shelf_check(s);
    }
    EXPECT(!has(s, 1, "id_0", 0) && has(s, 1, "id_49", 0) && has(s, 2, "theirs", 0));
    shelf_stats(s, &n);
    EXPECT(n.entries == 11 && n.evicted == 40);
    shelf_close(s);
}

static void the_richest_makes_room_for_all(void)
{
    struct shelf *s = new_shelf(12 * ENTRY, 10 * ENTRY);
    char id[32];

    for (int i = 0; i < 12; i++) {
        snprintf(id, sizeof(id), "rich_%d", i);
        EXPECT(put(s, 1, id, NULL));
    }
    for (int i = 0; i < 5; i++) {
        snprintf(id, sizeof(id), "poor_%d", i);
        EXPECT(put(s, 2, id, NULL));
        EXPECT(bytes_of(s) <= 12 * ENTRY);
    }
    for (int i = 0; i < 5; i++) {
        snprintf(id, sizeof(id), "poor_%d", i);
        EXPECT(has(s, 2, id, 0));
    }
    EXPECT(!has(s, 1, "rich_0", 0) && has(s, 1, "rich_11", 0));
    shelf_close(s);
}

static void what_nobody_goes_on_with_goes_from_its_end(void)
{
    struct shelf *s = new_shelf(MB, 4 * ENTRY);

    EXPECT(put(s, 1, "a", NULL));
    const struct kept *a = shelf_take(s, 1, STR("a"), 0);
    EXPECT(put(s, 1, "b", a));
    shelf_unref(s, a);
    for (int i = 0; i < 8 && has(s, 1, "b", 0); i++) {
        char id[32];
        snprintf(id, sizeof(id), "id_%d", i);
        EXPECT(put(s, 1, id, NULL));
        EXPECT(has(s, 1, id, 0));
    }
    EXPECT(has(s, 1, "b", 0)); /* it was looked at all the while, and `a` with it */
    EXPECT(has(s, 1, "a", 0));
    shelf_close(s);
}

static void what_is_too_large_is_not_taken(void)
{
    static char big[5000];
    struct shelf *s = new_shelf(8000, 4000);
    struct kept k = { STR("id"), { big, sizeof(big) }, STR(""), NULL, 0 };

    EXPECT(put(s, 1, "small", NULL));
    EXPECT(!shelf_put(s, 1, &k, 0));
    EXPECT(has(s, 1, "small", 0)); /* nothing went for it */
    shelf_close(s);
}

/* Room that is held cannot be given to another; the put says so, and works once it is free. */
static void what_is_held_keeps_its_room(void)
{
    struct shelf *s = new_shelf(3 * ENTRY, 3 * ENTRY);
    const struct kept *held[3];
    char id[32];

    for (int i = 0; i < 3; i++) {
        snprintf(id, sizeof(id), "id_%d", i);
        EXPECT(put(s, 1, id, NULL));
        held[i] = shelf_take(s, 1, str_of(id), 0);
        EXPECT(held[i] != NULL);
    }
    EXPECT(!put(s, 1, "more", NULL) && !put(s, 2, "more", NULL));
    EXPECT(bytes_of(s) <= 3 * ENTRY);
    shelf_check(s);
    for (int i = 0; i < 3; i++) {
        EXPECT(held[i]->answer.n == sizeof(answer));
        shelf_unref(s, held[i]);
    }
    EXPECT(put(s, 2, "more", NULL));
    shelf_check(s);
    shelf_close(s);
}

static void time_passes(void)
{
    const uint64_t second = SECOND;
    struct shelf *s = new_shelf(MB, MB);
    struct kept later = { STR("c"), STR(""), STR(""), NULL, 0 };
    struct shelf_stats n;

    EXPECT(put(s, 1, "a", NULL) && put(s, 2, "b", NULL));
    EXPECT(has(s, 1, "a", 9 * second)); /* used: it stays for ten more */
    EXPECT(has(s, 1, "a", 18 * second) && !has(s, 2, "b", 18 * second));
    EXPECT(!has(s, 1, "a", 29 * second));
    EXPECT(put(s, 1, "a", NULL) && put(s, 2, "b", NULL));
    EXPECT(shelf_put(s, 3, &later, 30 * second)); /* what is too old goes with it */
    shelf_stats(s, &n);
    EXPECT(n.entries == 1 && n.evicted == 4);
    shelf_check(s);
    shelf_close(s);
}

/* ---- a plain list that does the same, without room or time running out */

enum { OWNERS = 3, IDS = 12, ROUNDS = 20000 };

static struct {
    bool is_there;
    int depth;
} model[OWNERS][IDS];

static void agrees_with_a_plain_list(void)
{
    struct shelf *s = new_shelf(64 * MB, 64 * MB);
    struct rng rng = { 20261121, 0 };
    char id[32];

    printf("seed %d\n", 20261121);
    memset(model, 0, sizeof(model));
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t o = rng_below(&rng, OWNERS);
        int k = (int)rng_below(&rng, IDS), b = (int)rng_below(&rng, IDS);
        snprintf(id, sizeof(id), "id_%d", k);
        const struct kept *got = shelf_take(s, o, str_of(id), 0);
        EXPECT(!got == !model[o][k].is_there);
        EXPECT(!got || got->depth == model[o][k].depth);
        if (got && rng_below(&rng, 2)) {
            EXPECT(shelf_drop(s, o, str_of(id), 0));
            model[o][k].is_there = false;
        } else if (!got) {
            char other[32];
            snprintf(other, sizeof(other), "id_%d", b);
            const struct kept *before =
                rng_below(&rng, 3) ? shelf_take(s, o, str_of(other), 0) : NULL;
            bool may = !before || before->depth + 1 < SHELF_DEPTH_MAX;
            EXPECT_EQ(put(s, o, id, before), may);
            model[o][k].is_there = may;
            model[o][k].depth = before ? before->depth + 1 : 0;
            shelf_unref(s, before);
        }
        shelf_unref(s, got);
        if (i % 100 == 0)
            shelf_check(s);
    }
    shelf_close(s);
}

/* ---- several threads at once, with too little room for all */

struct hammer {
    struct shelf *shelf;
    uint64_t seed;
    pthread_t thread;
};

static void *hammer(void *arg)
{
    struct hammer *h = arg;
    struct shelf *s = h->shelf;
    struct rng rng = { h->seed, 0 };
    char id[32];

    for (int i = 0; i < 2000; i++) {
        uint64_t o = rng_below(&rng, 3);
        snprintf(id, sizeof(id), "id_%d", (int)rng_below(&rng, 30));
        const struct kept *k = shelf_take(s, o, str_of(id), (uint64_t)i);
        struct kept next = { str_of(id), STR("answer"), STR("input"), k, 0 };
        next.id = (struct str){ id, strlen(id) - 1 };
        shelf_put(s, o, &next, (uint64_t)i);
        if (rng_below(&rng, 4) == 0)
            shelf_drop(s, o, str_of(id), (uint64_t)i);
        EXPECT(!k || str_is(k->answer, "answer"));
        shelf_unref(s, k);
        if (i % 50 == 0)
            shelf_check(s);
        struct kept fresh = { str_of(id), STR("answer"), STR("input"), NULL, 0 };
        shelf_put(s, o, &fresh, (uint64_t)i);
    }
    return NULL;
}

static void threads_share_it(void)
{
    struct shelf *s = new_shelf(8 * ENTRY, 4 * ENTRY);
    struct hammer all[4];
    struct err e;

    for (uint64_t i = 0; i < 4; i++) {
        all[i] = (struct hammer){ .shelf = s, .seed = i };
        EXPECT_EQ(thread_start(&all[i].thread, "hammer", hammer, &all[i], &e), 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(all[i].thread, NULL);
    shelf_check(s);
    shelf_close(s);
}

TESTS(TEST(what_is_kept_comes_back), TEST(nobody_else_has_it),
    TEST(what_is_held_outlives_its_entry), TEST(a_conversation_stays_whole),
    TEST(a_chain_may_be_long), TEST(an_owner_loses_its_own_oldest),
    TEST(the_richest_makes_room_for_all), TEST(what_nobody_goes_on_with_goes_from_its_end),
    TEST(what_is_too_large_is_not_taken), TEST(what_is_held_keeps_its_room), TEST(time_passes),
    TEST(agrees_with_a_plain_list), TEST(threads_share_it))
