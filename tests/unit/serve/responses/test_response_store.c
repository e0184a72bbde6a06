/* Response store: a stored response is available to its owner only, until it expires or is
 * evicted; random operations agree with a plain list. */
#include "support/response_store_kit.h"

#include "base/rng.h"
#include "os/thread.h"

#include <inttypes.h>

enum { ENTRY = 1000 };

/* sized so that an entry takes nearly ENTRY bytes, and never more */
static char response_bytes[ENTRY - 200];

static bool put_response(struct response_store *s, uint64_t owner, const char *id,
    const struct stored_response *previous)
{
    struct stored_response k = { str_of(id), { response_bytes, sizeof(response_bytes) },
        STR("input"), previous, 0 };

    return response_store_put(s, owner, &k, 0);
}

static bool has_response(struct response_store *s, uint64_t owner, const char *id, uint64_t now)
{
    const struct stored_response *k = response_store_take(s, owner, str_of(id), now);

    response_store_unref(s, k);
    return k != NULL;
}

static void stored_response_is_returned(void)
{
    struct response_store *s = new_response_store(MB, MB);
    struct stored_response k = { STR("resp_1"), STR("{\"a\":\"\0b\"}"), STR(""), NULL, 0 };

    EXPECT(response_store_put(s, 7, &k, 0));
    EXPECT(!response_store_put(s, 7, &k, 0)); /* the id exists */
    const struct stored_response *got = response_store_take(s, 7, STR("resp_1"), 0);
    EXPECT(got && str_eq(got->id, k.id) && str_eq(got->response, k.response) && !got->input.n);
    EXPECT(got->response.p != k.response.p && !got->previous && !got->depth);
    response_store_check(s);
    response_store_unref(s, got);
    response_store_close(s);
}

static void response_is_visible_to_its_owner_only(void)
{
    struct response_store *s = new_response_store(MB, MB);

    EXPECT(put_response(s, 7, "resp_1", NULL));
    EXPECT(!has_response(s, 8, "resp_1", 0) && !has_response(s, 0, "resp_1", 0) &&
           !has_response(s, 7, "resp_", 0));
    EXPECT(!response_store_remove(s, 8, STR("resp_1"), 0));
    EXPECT(put_response(s, 8, "resp_1", NULL)); /* the same id of another owner is independent */
    EXPECT(response_store_remove(s, 8, STR("resp_1"), 0));
    EXPECT(has_response(s, 7, "resp_1", 0));
    response_store_close(s);
}

static void referenced_response_outlives_its_entry(void)
{
    struct response_store *s = new_response_store(MB, MB);

    EXPECT(put_response(s, 1, "a", NULL));
    const struct stored_response *a = response_store_take(s, 1, STR("a"), 0);
    EXPECT(response_store_remove(s, 1, STR("a"), 0));
    EXPECT(!has_response(s, 1, "a", 0) && !response_store_remove(s, 1, STR("a"), 0));
    EXPECT(a->response.n == sizeof(response_bytes) && stored_bytes(s) > 0);
    EXPECT(put_response(s, 1, "a", NULL)); /* a new entry; the old one still exists */
    response_store_check(s);
    response_store_unref(s, a);
    EXPECT(has_response(s, 1, "a", 0));
    response_store_close(s);
}

static void previous_response_is_kept(void)
{
    struct response_store *s = new_response_store(MB, MB);

    EXPECT(put_response(s, 1, "a", NULL));
    const struct stored_response *a = response_store_take(s, 1, STR("a"), 0);
    EXPECT(put_response(s, 1, "b", a));
    response_store_unref(s, a);
    EXPECT(response_store_remove(s, 1, STR("a"), 0)); /* only removed from the index */
    const struct stored_response *b = response_store_take(s, 1, STR("b"), 0);
    EXPECT(b && b->depth == 1 && b->previous && str_is(b->previous->id, "a"));
    EXPECT(b->previous->response.n == sizeof(response_bytes));
    response_store_unref(s, b);
    EXPECT(response_store_remove(s, 1, STR("b"), 0));
    EXPECT(stored_bytes(s) == 0);
    response_store_close(s);
}

/* A long chain is freed without recursion, and rejected beyond the maximum depth. */
static void a_chain_may_be_long(void)
{
    struct response_store *s = new_response_store(64 * MB, 64 * MB);
    const struct stored_response *last = NULL;
    char id[32];

    for (int i = 0; i < RESPONSE_STORE_DEPTH_MAX; i++) {
        snprintf(id, sizeof(id), "id_%d", i);
        EXPECT(put_response(s, 1, id, last));
        response_store_unref(s, last);
        last = response_store_take(s, 1, str_of(id), 0);
        EXPECT_EQ(last->depth, i);
    }
    EXPECT(!put_response(s, 1, "more", last));
    response_store_check(s);
    for (int i = 0; i < RESPONSE_STORE_DEPTH_MAX; i++) {
        snprintf(id, sizeof(id), "id_%d", i);
        EXPECT(response_store_remove(s, 1, str_of(id), 0));
    }
    EXPECT(stored_bytes(s) > 0);
    response_store_unref(s, last);
    EXPECT(stored_bytes(s) == 0);
    response_store_close(s);
}

static void owner_limit_evicts_its_own_oldest(void)
{
    struct response_store *s = new_response_store(100 * ENTRY, 10 * ENTRY);
    struct response_store_stats n;
    char id[32];

    EXPECT(put_response(s, 2, "theirs", NULL));
    for (int i = 0; i < 50; i++) {
        snprintf(id, sizeof(id), "id_%d", i);
        EXPECT(put_response(s, 1, id, NULL));
        response_store_check(s);
    }
    EXPECT(!has_response(s, 1, "id_0", 0) && has_response(s, 1, "id_49", 0) &&
           has_response(s, 2, "theirs", 0));
    response_store_stats(s, &n);
    EXPECT(n.entries == 11 && n.evicted == 40);
    response_store_close(s);
}

static void largest_owner_is_evicted_first(void)
{
    struct response_store *s = new_response_store(12 * ENTRY, 10 * ENTRY);
    char id[32];

    for (int i = 0; i < 12; i++) {
        snprintf(id, sizeof(id), "rich_%d", i);
        EXPECT(put_response(s, 1, id, NULL));
    }
    for (int i = 0; i < 5; i++) {
        snprintf(id, sizeof(id), "poor_%d", i);
        EXPECT(put_response(s, 2, id, NULL));
        EXPECT(stored_bytes(s) <= 12 * ENTRY);
    }
    for (int i = 0; i < 5; i++) {
        snprintf(id, sizeof(id), "poor_%d", i);
        EXPECT(has_response(s, 2, id, 0));
    }
    EXPECT(!has_response(s, 1, "rich_0", 0) && has_response(s, 1, "rich_11", 0));
    response_store_close(s);
}

static void least_recently_used_conversation_is_evicted_from_its_end(void)
{
    struct response_store *s = new_response_store(MB, 4 * ENTRY);

    EXPECT(put_response(s, 1, "a", NULL));
    const struct stored_response *a = response_store_take(s, 1, STR("a"), 0);
    EXPECT(put_response(s, 1, "b", a));
    response_store_unref(s, a);
    for (int i = 0; i < 8 && has_response(s, 1, "b", 0); i++) {
        char id[32];
        snprintf(id, sizeof(id), "id_%d", i);
        EXPECT(put_response(s, 1, id, NULL));
        EXPECT(has_response(s, 1, id, 0));
    }
    EXPECT(has_response(s, 1, "b", 0)); /* each lookup marked it as used, and `a` with it */
    EXPECT(has_response(s, 1, "a", 0));
    response_store_close(s);
}

static void oversized_response_is_rejected(void)
{
    static char big[5000];
    struct response_store *s = new_response_store(8000, 4000);
    struct stored_response k = { STR("id"), { big, sizeof(big) }, STR(""), NULL, 0 };

    EXPECT(put_response(s, 1, "small", NULL));
    EXPECT(!response_store_put(s, 1, &k, 0));
    EXPECT(has_response(s, 1, "small", 0)); /* no entry was evicted for it */
    response_store_close(s);
}

/* The space of referenced entries cannot be reused; the put reports that, and succeeds after
 * they are released. */
static void referenced_entries_keep_their_space(void)
{
    struct response_store *s = new_response_store(3 * ENTRY, 3 * ENTRY);
    const struct stored_response *held[3];
    char id[32];

    for (int i = 0; i < 3; i++) {
        snprintf(id, sizeof(id), "id_%d", i);
        EXPECT(put_response(s, 1, id, NULL));
        held[i] = response_store_take(s, 1, str_of(id), 0);
        EXPECT(held[i] != NULL);
    }
    EXPECT(!put_response(s, 1, "more", NULL) && !put_response(s, 2, "more", NULL));
    EXPECT(stored_bytes(s) <= 3 * ENTRY);
    response_store_check(s);
    for (int i = 0; i < 3; i++) {
        EXPECT(held[i]->response.n == sizeof(response_bytes));
        response_store_unref(s, held[i]);
    }
    EXPECT(put_response(s, 2, "more", NULL));
    response_store_check(s);
    response_store_close(s);
}

static void unused_entries_expire(void)
{
    const uint64_t second = SECOND;
    struct response_store *s = new_response_store(MB, MB);
    struct stored_response later = { STR("c"), STR(""), STR(""), NULL, 0 };
    struct response_store_stats n;

    EXPECT(put_response(s, 1, "a", NULL) && put_response(s, 2, "b", NULL));
    EXPECT(has_response(s, 1, "a", 9 * second)); /* used: expires ten seconds later */
    EXPECT(has_response(s, 1, "a", 18 * second) && !has_response(s, 2, "b", 18 * second));
    EXPECT(!has_response(s, 1, "a", 29 * second));
    EXPECT(put_response(s, 1, "a", NULL) && put_response(s, 2, "b", NULL));
    EXPECT(response_store_put(
        s, 3, &later, 30 * second)); /* expired entries are removed at the same time */
    response_store_stats(s, &n);
    EXPECT(n.entries == 1 && n.evicted == 4);
    response_store_check(s);
    response_store_close(s);
}

/* ---- a plain list with the same contents, without limits of size and time */

enum { OWNERS = 3, IDS = 12, ROUNDS = 20000 };

static struct {
    bool is_there;
    int depth;
} reference[OWNERS][IDS];

static void store_agrees_with_a_plain_list(void)
{
    struct response_store *s = new_response_store(64 * MB, 64 * MB);
    struct rng rng = { 20261121, 0 };
    char id[32];

    printf("seed %d\n", 20261121);
    memset(reference, 0, sizeof(reference));
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t o = rng_below(&rng, OWNERS);
        int k = (int)rng_below(&rng, IDS), b = (int)rng_below(&rng, IDS);
        snprintf(id, sizeof(id), "id_%d", k);
        const struct stored_response *got = response_store_take(s, o, str_of(id), 0);
        EXPECT(!got == !reference[o][k].is_there);
        EXPECT(!got || got->depth == reference[o][k].depth);
        if (got && rng_below(&rng, 2)) {
            EXPECT(response_store_remove(s, o, str_of(id), 0));
            reference[o][k].is_there = false;
        } else if (!got) {
            char other[32];
            snprintf(other, sizeof(other), "id_%d", b);
            const struct stored_response *previous =
                rng_below(&rng, 3) ? response_store_take(s, o, str_of(other), 0) : NULL;
            bool may = !previous || previous->depth + 1 < RESPONSE_STORE_DEPTH_MAX;
            EXPECT_EQ(put_response(s, o, id, previous), may);
            reference[o][k].is_there = may;
            reference[o][k].depth = previous ? previous->depth + 1 : 0;
            response_store_unref(s, previous);
        }
        response_store_unref(s, got);
        if (i % 100 == 0)
            response_store_check(s);
    }
    response_store_close(s);
}

/* ---- several threads, with too little space for all */

struct store_user {
    struct response_store *response_store;
    uint64_t seed;
    pthread_t thread;
};

static void *store_user(void *arg)
{
    struct store_user *h = arg;
    struct response_store *s = h->response_store;
    struct rng rng = { h->seed, 0 };
    char id[32];

    for (int i = 0; i < 2000; i++) {
        uint64_t o = rng_below(&rng, 3);
        snprintf(id, sizeof(id), "id_%d", (int)rng_below(&rng, 30));
        const struct stored_response *k = response_store_take(s, o, str_of(id), (uint64_t)i);
        struct stored_response next = { str_of(id), STR("answer"), STR("input"), k, 0 };
        next.id = (struct str){ id, strlen(id) - 1 };
        response_store_put(s, o, &next, (uint64_t)i);
        if (rng_below(&rng, 4) == 0)
            response_store_remove(s, o, str_of(id), (uint64_t)i);
        EXPECT(!k || str_is(k->response, "answer"));
        response_store_unref(s, k);
        if (i % 50 == 0)
            response_store_check(s);
        struct stored_response fresh = { str_of(id), STR("answer"), STR("input"), NULL, 0 };
        response_store_put(s, o, &fresh, (uint64_t)i);
    }
    return NULL;
}

static void threads_share_the_store(void)
{
    struct response_store *s = new_response_store(8 * ENTRY, 4 * ENTRY);
    struct store_user all[4];
    struct err e;

    for (uint64_t i = 0; i < 4; i++) {
        all[i] = (struct store_user){ .response_store = s, .seed = i };
        EXPECT_EQ(thread_start(&all[i].thread, "hammer", store_user, &all[i], &e), 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(all[i].thread, NULL);
    response_store_check(s);
    response_store_close(s);
}

TESTS(TEST(stored_response_is_returned), TEST(response_is_visible_to_its_owner_only),
    TEST(referenced_response_outlives_its_entry), TEST(previous_response_is_kept),
    TEST(a_chain_may_be_long), TEST(owner_limit_evicts_its_own_oldest),
    TEST(largest_owner_is_evicted_first),
    TEST(least_recently_used_conversation_is_evicted_from_its_end),
    TEST(oversized_response_is_rejected), TEST(referenced_entries_keep_their_space),
    TEST(unused_entries_expire), TEST(store_agrees_with_a_plain_list),
    TEST(threads_share_the_store))
