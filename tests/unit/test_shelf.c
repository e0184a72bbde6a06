/* Response store: a stored response is available to its owner only, until it expires or is
 * evicted; random operations agree with a plain list. */
#include "support/shelf.h"

#include "base/rng.h"
#include "os/thread.h"

#include <inttypes.h>

enum { ENTRY = 1000 };

/* sized so that an entry takes nearly ENTRY bytes, and never more */
static char response_bytes[ENTRY - 200];

static bool put_response(struct shelf *s, uint64_t owner, const char *id, const struct kept *before)
{
    struct kept k = { str_of(id), { response_bytes, sizeof(response_bytes) }, STR("input"), before,
        0 };

    return shelf_put(s, owner, &k, 0);
}

static bool has_response(struct shelf *s, uint64_t owner, const char *id, uint64_t now)
{
    const struct kept *k = shelf_take(s, owner, str_of(id), now);

    shelf_unref(s, k);
    return k != NULL;
}

static void stored_response_is_returned(void)
{
    struct shelf *s = new_shelf(MB, MB);
    struct kept k = { STR("resp_1"), STR("{\"a\":\"\0b\"}"), STR(""), NULL, 0 };

    EXPECT(shelf_put(s, 7, &k, 0));
    EXPECT(!shelf_put(s, 7, &k, 0)); /* the id exists */
    const struct kept *got = shelf_take(s, 7, STR("resp_1"), 0);
    EXPECT(got && str_eq(got->id, k.id) && str_eq(got->answer, k.answer) && !got->input.n);
    EXPECT(got->answer.p != k.answer.p && !got->before && !got->depth);
    shelf_check(s);
    shelf_unref(s, got);
    shelf_close(s);
}

static void response_is_visible_to_its_owner_only(void)
{
    struct shelf *s = new_shelf(MB, MB);

    EXPECT(put_response(s, 7, "resp_1", NULL));
    EXPECT(!has_response(s, 8, "resp_1", 0) && !has_response(s, 0, "resp_1", 0) &&
           !has_response(s, 7, "resp_", 0));
    EXPECT(!shelf_drop(s, 8, STR("resp_1"), 0));
    EXPECT(put_response(s, 8, "resp_1", NULL)); /* the same id of another owner is independent */
    EXPECT(shelf_drop(s, 8, STR("resp_1"), 0));
    EXPECT(has_response(s, 7, "resp_1", 0));
    shelf_close(s);
}

static void referenced_response_outlives_its_entry(void)
{
    struct shelf *s = new_shelf(MB, MB);

    EXPECT(put_response(s, 1, "a", NULL));
    const struct kept *a = shelf_take(s, 1, STR("a"), 0);
    EXPECT(shelf_drop(s, 1, STR("a"), 0));
    EXPECT(!has_response(s, 1, "a", 0) && !shelf_drop(s, 1, STR("a"), 0));
    EXPECT(a->answer.n == sizeof(response_bytes) && bytes_of(s) > 0);
    EXPECT(put_response(s, 1, "a", NULL)); /* a new entry; the old one still exists */
    shelf_check(s);
    shelf_unref(s, a);
    EXPECT(has_response(s, 1, "a", 0));
    shelf_close(s);
}

static void previous_response_is_kept(void)
{
    struct shelf *s = new_shelf(MB, MB);

    EXPECT(put_response(s, 1, "a", NULL));
    const struct kept *a = shelf_take(s, 1, STR("a"), 0);
    EXPECT(put_response(s, 1, "b", a));
    shelf_unref(s, a);
    EXPECT(shelf_drop(s, 1, STR("a"), 0)); /* only removed from the index */
    const struct kept *b = shelf_take(s, 1, STR("b"), 0);
    EXPECT(b && b->depth == 1 && b->before && str_is(b->before->id, "a"));
    EXPECT(b->before->answer.n == sizeof(response_bytes));
    shelf_unref(s, b);
    EXPECT(shelf_drop(s, 1, STR("b"), 0));
    EXPECT(bytes_of(s) == 0);
    shelf_close(s);
}

/* A long chain is freed without recursion, and rejected beyond the maximum depth. */
static void a_chain_may_be_long(void)
{
    struct shelf *s = new_shelf(64 * MB, 64 * MB);
    const struct kept *last = NULL;
    char id[32];

    for (int i = 0; i < SHELF_DEPTH_MAX; i++) {
        snprintf(id, sizeof(id), "id_%d", i);
        EXPECT(put_response(s, 1, id, last));
        shelf_unref(s, last);
        last = shelf_take(s, 1, str_of(id), 0);
        EXPECT_EQ(last->depth, i);
    }
    EXPECT(!put_response(s, 1, "more", last));
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

static void owner_limit_evicts_its_own_oldest(void)
{
    struct shelf *s = new_shelf(100 * ENTRY, 10 * ENTRY);
    struct shelf_stats n;
    char id[32];

    EXPECT(put_response(s, 2, "theirs", NULL));
    for (int i = 0; i < 50; i++) {
        snprintf(id, sizeof(id), "id_%d", i);
        EXPECT(put_response(s, 1, id, NULL));
        shelf_check(s);
    }
    EXPECT(!has_response(s, 1, "id_0", 0) && has_response(s, 1, "id_49", 0) &&
           has_response(s, 2, "theirs", 0));
    shelf_stats(s, &n);
    EXPECT(n.entries == 11 && n.evicted == 40);
    shelf_close(s);
}

static void largest_owner_is_evicted_first(void)
{
    struct shelf *s = new_shelf(12 * ENTRY, 10 * ENTRY);
    char id[32];

    for (int i = 0; i < 12; i++) {
        snprintf(id, sizeof(id), "rich_%d", i);
        EXPECT(put_response(s, 1, id, NULL));
    }
    for (int i = 0; i < 5; i++) {
        snprintf(id, sizeof(id), "poor_%d", i);
        EXPECT(put_response(s, 2, id, NULL));
        EXPECT(bytes_of(s) <= 12 * ENTRY);
    }
    for (int i = 0; i < 5; i++) {
        snprintf(id, sizeof(id), "poor_%d", i);
        EXPECT(has_response(s, 2, id, 0));
    }
    EXPECT(!has_response(s, 1, "rich_0", 0) && has_response(s, 1, "rich_11", 0));
    shelf_close(s);
}

static void least_recently_used_conversation_is_evicted_from_its_end(void)
{
    struct shelf *s = new_shelf(MB, 4 * ENTRY);

    EXPECT(put_response(s, 1, "a", NULL));
    const struct kept *a = shelf_take(s, 1, STR("a"), 0);
    EXPECT(put_response(s, 1, "b", a));
    shelf_unref(s, a);
    for (int i = 0; i < 8 && has_response(s, 1, "b", 0); i++) {
        char id[32];
        snprintf(id, sizeof(id), "id_%d", i);
        EXPECT(put_response(s, 1, id, NULL));
        EXPECT(has_response(s, 1, id, 0));
    }
    EXPECT(has_response(s, 1, "b", 0)); /* each lookup marked it as used, and `a` with it */
    EXPECT(has_response(s, 1, "a", 0));
    shelf_close(s);
}

static void oversized_response_is_rejected(void)
{
    static char big[5000];
    struct shelf *s = new_shelf(8000, 4000);
    struct kept k = { STR("id"), { big, sizeof(big) }, STR(""), NULL, 0 };

    EXPECT(put_response(s, 1, "small", NULL));
    EXPECT(!shelf_put(s, 1, &k, 0));
    EXPECT(has_response(s, 1, "small", 0)); /* no entry was evicted for it */
    shelf_close(s);
}

/* The space of referenced entries cannot be reused; the put reports that, and succeeds after
 * they are released. */
static void referenced_entries_keep_their_space(void)
{
    struct shelf *s = new_shelf(3 * ENTRY, 3 * ENTRY);
    const struct kept *held[3];
    char id[32];

    for (int i = 0; i < 3; i++) {
        snprintf(id, sizeof(id), "id_%d", i);
        EXPECT(put_response(s, 1, id, NULL));
        held[i] = shelf_take(s, 1, str_of(id), 0);
        EXPECT(held[i] != NULL);
    }
    EXPECT(!put_response(s, 1, "more", NULL) && !put_response(s, 2, "more", NULL));
    EXPECT(bytes_of(s) <= 3 * ENTRY);
    shelf_check(s);
    for (int i = 0; i < 3; i++) {
        EXPECT(held[i]->answer.n == sizeof(response_bytes));
        shelf_unref(s, held[i]);
    }
    EXPECT(put_response(s, 2, "more", NULL));
    shelf_check(s);
    shelf_close(s);
}

static void unused_entries_expire(void)
{
    const uint64_t second = SECOND;
    struct shelf *s = new_shelf(MB, MB);
    struct kept later = { STR("c"), STR(""), STR(""), NULL, 0 };
    struct shelf_stats n;

    EXPECT(put_response(s, 1, "a", NULL) && put_response(s, 2, "b", NULL));
    EXPECT(has_response(s, 1, "a", 9 * second)); /* used: expires ten seconds later */
    EXPECT(has_response(s, 1, "a", 18 * second) && !has_response(s, 2, "b", 18 * second));
    EXPECT(!has_response(s, 1, "a", 29 * second));
    EXPECT(put_response(s, 1, "a", NULL) && put_response(s, 2, "b", NULL));
    EXPECT(shelf_put(s, 3, &later, 30 * second)); /* expired entries are removed at the same time */
    shelf_stats(s, &n);
    EXPECT(n.entries == 1 && n.evicted == 4);
    shelf_check(s);
    shelf_close(s);
}

/* ---- a plain list with the same contents, without limits of size and time */

enum { OWNERS = 3, IDS = 12, ROUNDS = 20000 };

static struct {
    bool is_there;
    int depth;
} reference[OWNERS][IDS];

static void store_agrees_with_a_plain_list(void)
{
    struct shelf *s = new_shelf(64 * MB, 64 * MB);
    struct rng rng = { 20261121, 0 };
    char id[32];

    printf("seed %d\n", 20261121);
    memset(reference, 0, sizeof(reference));
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t o = rng_below(&rng, OWNERS);
        int k = (int)rng_below(&rng, IDS), b = (int)rng_below(&rng, IDS);
        snprintf(id, sizeof(id), "id_%d", k);
        const struct kept *got = shelf_take(s, o, str_of(id), 0);
        EXPECT(!got == !reference[o][k].is_there);
        EXPECT(!got || got->depth == reference[o][k].depth);
        if (got && rng_below(&rng, 2)) {
            EXPECT(shelf_drop(s, o, str_of(id), 0));
            reference[o][k].is_there = false;
        } else if (!got) {
            char other[32];
            snprintf(other, sizeof(other), "id_%d", b);
            const struct kept *before =
                rng_below(&rng, 3) ? shelf_take(s, o, str_of(other), 0) : NULL;
            bool may = !before || before->depth + 1 < SHELF_DEPTH_MAX;
            EXPECT_EQ(put_response(s, o, id, before), may);
            reference[o][k].is_there = may;
            reference[o][k].depth = before ? before->depth + 1 : 0;
            shelf_unref(s, before);
        }
        shelf_unref(s, got);
        if (i % 100 == 0)
            shelf_check(s);
    }
    shelf_close(s);
}

/* ---- several threads, with too little space for all */

struct store_user {
    struct shelf *shelf;
    uint64_t seed;
    pthread_t thread;
};

static void *store_user(void *arg)
{
    struct store_user *h = arg;
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

static void threads_share_the_store(void)
{
    struct shelf *s = new_shelf(8 * ENTRY, 4 * ENTRY);
    struct store_user all[4];
    struct err e;

    for (uint64_t i = 0; i < 4; i++) {
        all[i] = (struct store_user){ .shelf = s, .seed = i };
        EXPECT_EQ(thread_start(&all[i].thread, "hammer", store_user, &all[i], &e), 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(all[i].thread, NULL);
    shelf_check(s);
    shelf_close(s);
}

TESTS(TEST(stored_response_is_returned), TEST(response_is_visible_to_its_owner_only),
    TEST(referenced_response_outlives_its_entry), TEST(previous_response_is_kept),
    TEST(a_chain_may_be_long), TEST(owner_limit_evicts_its_own_oldest),
    TEST(largest_owner_is_evicted_first),
    TEST(least_recently_used_conversation_is_evicted_from_its_end),
    TEST(oversized_response_is_rejected), TEST(referenced_entries_keep_their_space),
    TEST(unused_entries_expire), TEST(store_agrees_with_a_plain_list),
    TEST(threads_share_the_store))
