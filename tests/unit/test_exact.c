/* pool/exact.c: remembered answers serve what they are the answer to, and nothing else. */
#include "../check.h"

#include "base/mem.h"
#include "base/rng.h"
#include "os/thread.h"
#include "generate/exact.h"

enum { SECOND = 1000000000 };

static struct exact *table(size_t max_bytes)
{
    struct exact_options o = { max_bytes, 10 * (uint64_t)SECOND };
    struct exact *x;
    struct err e;

    EXPECT_EQ(exact_open(&x, &o, &e), 0);
    return x;
}

static struct sampled token(int i)
{
    struct sampled t = { .id = 7 * i, .logprob = -0.25f * (float)i, .n_top = i % 3 };

    for (int k = 0; k < t.n_top; k++)
        t.top[k] = (struct token_logprob){ i + k, -1.0f * (float)k };
    return t;
}

static void put(struct exact *x, struct str key, int n, enum finish finish, uint64_t now)
{
    struct exact_record r = { 0 };
    struct exact_end end = { finish, finish == FINISH_STOP ? 3 : -1 };

    for (int i = 0; i < n; i++) {
        struct sampled t = token(i);
        exact_record_token(&r, x, &t);
    }
    exact_put(x, key, &r, &end, now);
    EXPECT(!r.n && !r.tokens.p);
}

/* The number of tokens it serves a limit with, -1 when it does not. */
static int serves(struct exact *x, struct str key, int limit, uint64_t now)
{
    const struct exact_answer *a = exact_take(x, key, limit, now);
    int n = a ? exact_answer_n(a) : -1;

    exact_unref(a);
    return n;
}

static void tokens_come_back_as_they_were(void)
{
    struct exact *x = table(MB);

    put(x, STR("key"), 50, FINISH_STOP, 0);
    const struct exact_answer *a = exact_take(x, STR("key"), 100, 0);
    EXPECT(a && exact_answer_n(a) == 50 && exact_answer_stop_id(a) == 3);
    exact_close(x); /* it outlives the table */
    for (int i = 0; i < 50; i++) {
        struct sampled got, want = token(i);
        exact_answer_token(a, i, &got);
        EXPECT(got.id == want.id && got.logprob == want.logprob && got.n_top == want.n_top);
        EXPECT(!memcmp(got.top, want.top, (size_t)want.n_top * sizeof(want.top[0])));
    }
    exact_unref(a);
}

static void limits_are_kept(void)
{
    struct exact *x = table(MB);

    put(x, STR("stopped"), 5, FINISH_STOP, 0);
    for (int limit = 1; limit < 9; limit++) {
        const struct exact_answer *a = exact_take(x, STR("stopped"), limit, 0);
        EXPECT(a != NULL);
        EXPECT(exact_answer_finish(a, limit) == (limit <= 5 ? FINISH_LENGTH : FINISH_STOP));
        exact_unref(a);
    }
    put(x, STR("cut"), 5, FINISH_LENGTH, 0);
    EXPECT_EQ(serves(x, STR("cut"), 5, 0), 5);
    EXPECT_EQ(serves(x, STR("cut"), 6, 0), -1);
    put(x, STR("cut"), 3, FINISH_LENGTH, 0); /* knows less */
    EXPECT_EQ(serves(x, STR("cut"), 4, 0), 5);
    put(x, STR("cut"), 9, FINISH_STOP, 0); /* knows all */
    EXPECT_EQ(serves(x, STR("cut"), 99, 0), 9);
    put(x, STR("cut"), 20, FINISH_LENGTH, 0);
    EXPECT_EQ(serves(x, STR("cut"), 99, 0), 9);
    exact_close(x);
}

static void keys_are_compared_whole(void)
{
    struct exact *x = table(16 * MB);
    char key[300], other[300];

    memset(key, 'a', sizeof(key));
    for (size_t n = 0; n < sizeof(key); n++)
        put(x, (struct str){ key, n }, (int)n + 1, FINISH_STOP, 0);
    for (size_t n = 0; n < sizeof(key); n++) {
        EXPECT_EQ(serves(x, (struct str){ key, n }, 999, 0), (int)n + 1);
        memcpy(other, key, sizeof(key));
        if (n > 0) {
            other[n - 1] ^= 1;
            EXPECT_EQ(serves(x, (struct str){ other, n }, 999, 0), -1);
        }
    }
    EXPECT_EQ(exact_flush(x), sizeof(key));
    EXPECT_EQ(serves(x, (struct str){ key, 9 }, 999, 0), -1);
    exact_close(x);
}

static void room_and_age_are_bounded(void)
{
    struct exact *x = table(64 * KB);
    struct exact_stats s;
    char key[16];

    for (int i = 0; i < 1000; i++) {
        int n = snprintf(key, sizeof(key), "key %d", i);
        put(x, (struct str){ key, (size_t)n }, 20, FINISH_STOP, 0);
        EXPECT_EQ(serves(x, STR("key 0"), 99, 0), 20); /* in use: it stays */
        exact_stats(x, &s);
        EXPECT(s.bytes <= 64 * KB);
    }
    EXPECT(s.evicted > 0 && s.entries + s.evicted == 1000);
    EXPECT_EQ(serves(x, STR("key 1"), 99, 0), -1);
    EXPECT_EQ(serves(x, STR("key 999"), 99, 0), 20);
    EXPECT_EQ(serves(x, STR("key 999"), 99, 10 * (uint64_t)SECOND), 20);
    EXPECT_EQ(serves(x, STR("key 999"), 99, 10 * (uint64_t)SECOND + 1), -1);
    put(x, STR("large"), 5000, FINISH_STOP, 0); /* more than an eighth of it all */
    EXPECT_EQ(serves(x, STR("large"), 9999, 0), -1);
    put(x, STR("key 0"), 3, FINISH_STOP, 20 * (uint64_t)SECOND); /* the old one is too old */
    EXPECT_EQ(serves(x, STR("key 0"), 99, 20 * (uint64_t)SECOND), 3);
    exact_close(x);
}

struct hand {
    pthread_t thread;
    struct exact *x;
    uint64_t seed;
    int n_wrong;
};

static void *use(void *arg)
{
    struct hand *h = arg;
    struct rng r = { .key = h->seed };
    char key[16];

    for (int i = 0; i < 3000; i++) {
        int which = (int)rng_below(&r, 64), n = snprintf(key, sizeof(key), "key %d", which);
        struct str k = { key, (size_t)n };
        if (rng_below(&r, 3) == 0)
            put(h->x, k, which + 1, FINISH_STOP, (uint64_t)i);
        if (rng_below(&r, 200) == 0)
            exact_flush(h->x);
        int found = serves(h->x, k, 99, (uint64_t)i);
        h->n_wrong += found != -1 && found != which + 1;
    }
    return NULL;
}

static void many_threads_use_it(void)
{
    struct hand hands[4];
    struct exact *x = table(16 * KB);
    struct exact_stats s;
    struct err e;

    for (int i = 0; i < 4; i++) {
        hands[i] = (struct hand){ .x = x, .seed = (uint64_t)i + 1 };
        EXPECT_EQ(thread_start(&hands[i].thread, "hand", use, &hands[i], &e), 0);
    }
    for (int i = 0; i < 4; i++)
        EXPECT(!pthread_join(hands[i].thread, NULL) && !hands[i].n_wrong);
    exact_flush(x);
    exact_stats(x, &s);
    EXPECT(s.entries == 0 && s.bytes == 0 && s.hits > 0 && s.evicted > 0);
    exact_close(x);
}

TESTS(TEST(tokens_come_back_as_they_were), TEST(limits_are_kept), TEST(keys_are_compared_whole),
    TEST(room_and_age_are_bounded), TEST(many_threads_use_it))
