/* Sorted set compared with a linear scan, and its cost. */
#include "engine/sched/sorted.h"
#include "base/rng.h"
#include "support/check.h"

enum { N = 200 };

static struct sorted_node nodes[N];
static bool is_in[N];

static uint32_t first_of_all(void)
{
    uint32_t best = SORTED_NONE;

    for (uint32_t i = 0; i < N; i++)
        if (is_in[i] && (best == SORTED_NONE || nodes[i].key < nodes[best].key ||
                            (nodes[i].key == nodes[best].key && nodes[i].tag < nodes[best].tag)))
            best = i;
    return best;
}

static uint32_t oldest_upto(int64_t most)
{
    uint32_t best = SORTED_NONE;

    for (uint32_t i = 0; i < N; i++)
        if (is_in[i] && nodes[i].key <= most &&
            (best == SORTED_NONE || nodes[i].tag < nodes[best].tag))
            best = i;
    return best;
}

static uint32_t first_with(int64_t key)
{
    uint32_t best = SORTED_NONE;

    for (uint32_t i = 0; i < N; i++)
        if (is_in[i] && nodes[i].key == key &&
            (best == SORTED_NONE || nodes[i].tag < nodes[best].tag))
            best = i;
    return best;
}

static void sorted_set_agrees_with_a_linear_scan(void)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct sorted s = { .n = nodes };
        struct rng r = { .key = seed };
        uint32_t set = SORTED_NONE;
        int64_t spread = seed % 2 ? 20 : 1000000; /* many equal keys, or few */
        memset(is_in, 0, sizeof(is_in));
        for (int i = 0; i < 2000; i++) {
            uint32_t at = (uint32_t)rng_below(&r, N);
            int64_t key = (int64_t)rng_below(&r, (uint64_t)spread) - spread / 2;
            if (is_in[at]) {
                sorted_remove(&s, &set, at);
            } else {
                nodes[at].key = key;
                nodes[at].tag = rng_next(&r); /* no two equal */
                sorted_insert(&s, &set, at);
            }
            is_in[at] = !is_in[at];
            EXPECT_EQ(sorted_first(&s, set), first_of_all());
            EXPECT_EQ(sorted_upto(&s, set, key), oldest_upto(key));
            EXPECT_EQ(sorted_find(&s, set, key), first_with(key));
        }
    }
}

/* Ascending keys are the worst case of an unbalanced tree. */
static void ascending_keys_cost_no_more(void)
{
    enum { MANY = 1 << 16 };
    static struct sorted_node many[MANY];
    struct sorted s = { .n = many };
    uint32_t set = SORTED_NONE;

    for (uint32_t i = 0; i < MANY; i++) {
        many[i].key = i;
        many[i].tag = i;
        sorted_insert(&s, &set, i);
    }
    for (uint32_t i = 0; i < MANY; i++) {
        uint32_t first = sorted_first(&s, set);
        EXPECT_EQ(first, i);
        sorted_remove(&s, &set, first);
    }
    EXPECT_EQ(set, SORTED_NONE);
    printf("%.1f comparisons each\n", (double)s.n_visited / MANY);
    EXPECT(s.n_visited < 100u * MANY);
}

static void numbers_keep_their_order(void)
{
    const double in_order[] = { 0, 4e-320, 1e-300, 0.5, 1, 1.0000001, 2, 1e9, 1e300 };

    for (size_t i = 1; i < ARRAY_LEN(in_order); i++)
        EXPECT(sorted_key_of(in_order[i - 1]) < sorted_key_of(in_order[i]));
}

TESTS(TEST(sorted_set_agrees_with_a_linear_scan), TEST(ascending_keys_cost_no_more),
    TEST(numbers_keep_their_order))
