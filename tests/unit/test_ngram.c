#include "engine/spec/ngram.h"
#include "base/rng.h"
#include "../check.h"

enum { N = 2000 };

static uint32_t slots[1 << 13];

static void invent(int32_t *tokens, int n, int n_vocab, uint64_t seed)
{
    struct rng r = { .key = seed };

    for (int i = 0; i < n; i++)
        tokens[i] = (int32_t)rng_below(&r, (uint64_t)n_vocab) - 3; /* any number is a token here */
}

/* The latest place below `upto` behind the same tokens: a walk over all of them. */
static int naive(const int32_t *t, int upto, const int32_t *end, int len)
{
    for (int at = upto - 1; at >= len; at--)
        if (!memcmp(t + at - len, end - len, (size_t)len * sizeof(*t)))
            return at;
    return -1;
}

static void what_it_finds_is_there_and_with_room_it_is_the_latest(void)
{
    static int32_t t[N];
    int n_found = 0, n_missed = 0;

    for (uint64_t seed = 1; seed <= 6; seed++) {
        struct ngram g;
        invent(t, N, 3 + (int)seed, seed);
        ngram_init(&g, slots, ARRAY_LEN(slots));
        for (int n = NGRAM_LONG; n <= N; n++) {
            ngram_add(&g, t, g.n, n); /* places that are followed by something known */
            for (int len = NGRAM_SHORT; len <= NGRAM_LONG; len += NGRAM_LONG - NGRAM_SHORT) {
                int got = ngram_find(&g, t, t + n, len), want = naive(t, n, t + n, len);
                if (got >= 0)
                    EXPECT(got <= want && got < n &&
                           !memcmp(t + got - len, t + n - len, (size_t)len * sizeof(*t)));
                n_found += got == want && want >= 0;
                n_missed += got != want;
            }
        }
    }
    EXPECT(n_found > 1000);
    EXPECT(n_missed * 4 < n_found); /* by collisions only */
}

static void a_small_index_forgets_and_never_lies(void)
{
    static int32_t t[N];
    struct ngram g;
    int n_found = 0;

    invent(t, N, 3, 9);
    ngram_init(&g, slots, 16);
    for (int n = NGRAM_LONG; n <= N; n++) {
        ngram_add(&g, t, g.n, n);
        int got = ngram_find(&g, t, t + n, NGRAM_SHORT);
        n_found += got >= 0;
        if (got >= 0)
            EXPECT(!memcmp(t + got - NGRAM_SHORT, t + n - NGRAM_SHORT, NGRAM_SHORT * sizeof(*t)));
    }
    EXPECT(n_found > N / 2 && n_found < N);
}

static void the_number_of_slots_is_bounded_and_a_power_of_two(void)
{
    EXPECT_EQ(ngram_slots(0, 1 << 14), 16u);
    EXPECT_EQ(ngram_slots(9, 1 << 14), 32u);
    EXPECT_EQ(ngram_slots(1 << 24, 1 << 14), 1u << 14);
}

static void without_slots_there_is_nothing(void)
{
    struct ngram g = { 0 };
    int32_t t[20] = { 0 };

    ngram_add(&g, t, 0, 20);
    EXPECT_EQ(ngram_find(&g, t, t + 20, NGRAM_SHORT), -1);
}

TESTS(TEST(what_it_finds_is_there_and_with_room_it_is_the_latest),
    TEST(a_small_index_forgets_and_never_lies),
    TEST(the_number_of_slots_is_bounded_and_a_power_of_two), TEST(without_slots_there_is_nothing))
