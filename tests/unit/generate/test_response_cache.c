/* generate/response_cache.c: a cached response serves only identical requests. */
#include "support/check.h"

#include "base/mem.h"
#include "base/rng.h"
#include "os/thread.h"
#include "generate/response_cache.h"

enum { SECOND = 1000000000 };

static struct response_cache *open_cache(size_t max_bytes)
{
    struct response_cache_options o = { max_bytes, 10 * (uint64_t)SECOND };
    struct response_cache *x;
    struct err e;

    EXPECT_EQ(response_cache_open(&x, &o, &e), 0);
    return x;
}

static struct sampled make_token(int i)
{
    struct sampled t = { .id = 7 * i, .logprob = -0.25f * (float)i, .n_top = i % 3 };

    for (int k = 0; k < t.n_top; k++)
        t.top[k] = (struct token_logprob){ i + k, -1.0f * (float)k };
    return t;
}

static void put_response(
    struct response_cache *x, struct str key, int n, enum finish finish, uint64_t now)
{
    struct response_cache_record r = { 0 };
    struct response_cache_end end = { finish, finish == FINISH_STOP ? 3 : -1 };

    for (int i = 0; i < n; i++) {
        struct sampled t = make_token(i);
        response_cache_record_token(&r, x, &t);
    }
    response_cache_put(x, key, &r, &end, now);
    EXPECT(!r.n && !r.tokens.p);
}

/* Number of tokens with which the cache serves a limit, or -1 on a miss. */
static int n_served_tokens(struct response_cache *x, struct str key, int limit, uint64_t now)
{
    const struct cached_response *a = response_cache_take(x, key, limit, now);
    int n = a ? cached_response_n_tokens(a) : -1;

    cached_response_unref(a);
    return n;
}

static void cached_tokens_are_unchanged(void)
{
    struct response_cache *x = open_cache(MB);

    put_response(x, STR("key"), 50, FINISH_STOP, 0);
    const struct cached_response *a = response_cache_take(x, STR("key"), 100, 0);
    EXPECT(a && cached_response_n_tokens(a) == 50 && cached_response_stop_id(a) == 3);
    response_cache_close(x); /* the response outlives the cache */
    for (int i = 0; i < 50; i++) {
        struct sampled got, want = make_token(i);
        cached_response_token(a, i, &got);
        EXPECT(got.id == want.id && got.logprob == want.logprob && got.n_top == want.n_top);
        EXPECT(!memcmp(got.top, want.top, (size_t)want.n_top * sizeof(want.top[0])));
    }
    cached_response_unref(a);
}

static void token_limits_are_respected(void)
{
    struct response_cache *x = open_cache(MB);

    put_response(x, STR("stopped"), 5, FINISH_STOP, 0);
    for (int limit = 1; limit < 9; limit++) {
        const struct cached_response *a = response_cache_take(x, STR("stopped"), limit, 0);
        EXPECT(a != NULL);
        EXPECT(cached_response_finish(a, limit) == (limit <= 5 ? FINISH_LENGTH : FINISH_STOP));
        cached_response_unref(a);
    }
    put_response(x, STR("cut"), 5, FINISH_LENGTH, 0);
    EXPECT_EQ(n_served_tokens(x, STR("cut"), 5, 0), 5);
    EXPECT_EQ(n_served_tokens(x, STR("cut"), 6, 0), -1);
    put_response(x, STR("cut"), 3, FINISH_LENGTH, 0); /* does not contain the end of the output */
    EXPECT_EQ(n_served_tokens(x, STR("cut"), 4, 0), 5);
    put_response(x, STR("cut"), 9, FINISH_STOP, 0); /* contains the whole output */
    EXPECT_EQ(n_served_tokens(x, STR("cut"), 99, 0), 9);
    put_response(x, STR("cut"), 20, FINISH_LENGTH, 0);
    EXPECT_EQ(n_served_tokens(x, STR("cut"), 99, 0), 9);
    response_cache_close(x);
}

static void keys_are_compared_whole(void)
{
    struct response_cache *x = open_cache(16 * MB);
    char key[300], other[300];

    memset(key, 'a', sizeof(key));
    for (size_t n = 0; n < sizeof(key); n++)
        put_response(x, (struct str){ key, n }, (int)n + 1, FINISH_STOP, 0);
    for (size_t n = 0; n < sizeof(key); n++) {
        EXPECT_EQ(n_served_tokens(x, (struct str){ key, n }, 999, 0), (int)n + 1);
        memcpy(other, key, sizeof(key));
        if (n > 0) {
            other[n - 1] ^= 1;
            EXPECT_EQ(n_served_tokens(x, (struct str){ other, n }, 999, 0), -1);
        }
    }
    EXPECT_EQ(response_cache_flush(x), sizeof(key));
    EXPECT_EQ(n_served_tokens(x, (struct str){ key, 9 }, 999, 0), -1);
    response_cache_close(x);
}

static void size_and_age_are_bounded(void)
{
    struct response_cache *x = open_cache(64 * KB);
    struct response_cache_stats s;
    char key[16];

    for (int i = 0; i < 1000; i++) {
        int n = snprintf(key, sizeof(key), "key %d", i);
        put_response(x, (struct str){ key, (size_t)n }, 20, FINISH_STOP, 0);
        EXPECT_EQ(n_served_tokens(x, STR("key 0"), 99, 0), 20); /* in use, therefore not evicted */
        response_cache_stats(x, &s);
        EXPECT(s.bytes <= 64 * KB);
    }
    EXPECT(s.evicted > 0 && s.entries + s.evicted == 1000);
    EXPECT_EQ(n_served_tokens(x, STR("key 1"), 99, 0), -1);
    EXPECT_EQ(n_served_tokens(x, STR("key 999"), 99, 0), 20);
    EXPECT_EQ(n_served_tokens(x, STR("key 999"), 99, 10 * (uint64_t)SECOND), 20);
    EXPECT_EQ(n_served_tokens(x, STR("key 999"), 99, 10 * (uint64_t)SECOND + 1), -1);
    put_response(x, STR("large"), 5000, FINISH_STOP, 0); /* larger than an eighth of the cache */
    EXPECT_EQ(n_served_tokens(x, STR("large"), 9999, 0), -1);
    put_response(
        x, STR("key 0"), 3, FINISH_STOP, 20 * (uint64_t)SECOND); /* the old entry has expired */
    EXPECT_EQ(n_served_tokens(x, STR("key 0"), 99, 20 * (uint64_t)SECOND), 3);
    response_cache_close(x);
}

struct cache_user {
    pthread_t thread;
    struct response_cache *x;
    uint64_t seed;
    int n_wrong;
};

static void *use_cache(void *arg)
{
    struct cache_user *h = arg;
    struct rng r = { .key = h->seed };
    char key[16];

    for (int i = 0; i < 3000; i++) {
        int which = (int)rng_below(&r, 64), n = snprintf(key, sizeof(key), "key %d", which);
        struct str k = { key, (size_t)n };
        if (rng_below(&r, 3) == 0)
            put_response(h->x, k, which + 1, FINISH_STOP, (uint64_t)i);
        if (rng_below(&r, 200) == 0)
            response_cache_flush(h->x);
        int found = n_served_tokens(h->x, k, 99, (uint64_t)i);
        h->n_wrong += found != -1 && found != which + 1;
    }
    return NULL;
}

static void threads_share_the_cache(void)
{
    struct cache_user hands[4];
    struct response_cache *x = open_cache(16 * KB);
    struct response_cache_stats s;
    struct err e;

    for (int i = 0; i < 4; i++) {
        hands[i] = (struct cache_user){ .x = x, .seed = (uint64_t)i + 1 };
        EXPECT_EQ(thread_start(&hands[i].thread, "hand", use_cache, &hands[i], &e), 0);
    }
    for (int i = 0; i < 4; i++)
        EXPECT(!pthread_join(hands[i].thread, NULL) && !hands[i].n_wrong);
    response_cache_flush(x);
    response_cache_stats(x, &s);
    EXPECT(s.entries == 0 && s.bytes == 0 && s.hits > 0 && s.evicted > 0);
    response_cache_close(x);
}

TESTS(TEST(cached_tokens_are_unchanged), TEST(token_limits_are_respected),
    TEST(keys_are_compared_whole), TEST(size_and_age_are_bounded), TEST(threads_share_the_cache))
