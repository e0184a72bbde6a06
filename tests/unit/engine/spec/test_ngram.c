/* N-gram index compared with a linear search. */
#include "engine/spec/ngram.h"
#include "base/rng.h"
#include "support/check.h"

enum { N = 2000 };

static uint32_t slots[1 << 13];

static void random_tokens(int32_t *tokens, int n, int n_vocab, uint64_t seed)
{
    struct rng r = { .key = seed };

    for (int i = 0; i < n; i++)
        /* any number is a valid token here */
        tokens[i] = (int32_t)rng_below(&r, (uint64_t)n_vocab) - 3;
}

/* Reference: latest position below `upto` after the same tokens, by a linear search. */
static int find_linear(const int32_t *t, int upto, const int32_t *end, int len)
{
    for (int at = upto - 1; at >= len; at--)
        if (!memcmp(t + at - len, end - len, (size_t)len * sizeof(*t)))
            return at;
    return -1;
}

static void match_is_real_and_with_room_the_latest(void)
{
    static int32_t t[N];
    int n_found = 0, n_missed = 0;

    for (uint64_t seed = 1; seed <= 6; seed++) {
        struct ngram g;
        random_tokens(t, N, 3 + (int)seed, seed);
        ngram_init(&g, slots, ARRAY_LEN(slots));
        for (int n = NGRAM_LONG; n <= N; n++) {
            ngram_add(&g, t, g.n, n); /* only positions that are followed by a token */
            for (int len = NGRAM_SHORT; len <= NGRAM_LONG; len += NGRAM_LONG - NGRAM_SHORT) {
                int got = ngram_find(&g, t, t + n, len), want = find_linear(t, n, t + n, len);
                if (got >= 0)
                    EXPECT(got <= want && got < n &&
                           !memcmp(t + got - len, t + n - len, (size_t)len * sizeof(*t)));
                n_found += got == want && want >= 0;
                n_missed += got != want;
            }
        }
    }
    EXPECT(n_found > 1000);
    EXPECT(n_missed * 4 < n_found); /* only hash collisions */
}

static void small_index_drops_entries_and_never_returns_a_wrong_one(void)
{
    static int32_t t[N];
    struct ngram g;
    int n_found = 0;

    random_tokens(t, N, 3, 9);
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

static void index_without_slots_finds_nothing(void)
{
    struct ngram g = { 0 };
    int32_t t[20] = { 0 };

    ngram_add(&g, t, 0, 20);
    EXPECT_EQ(ngram_find(&g, t, t + 20, NGRAM_SHORT), -1);
}

TESTS(TEST(match_is_real_and_with_room_the_latest),
    TEST(small_index_drops_entries_and_never_returns_a_wrong_one),
    TEST(the_number_of_slots_is_bounded_and_a_power_of_two),
    TEST(index_without_slots_finds_nothing))
