/* Stop strings: matches, held-back text and limits. */
#include "output/stops.h"
#include "base/mem.h"
#include "support/check.h"

enum { MAX_STRINGS = 8 };

struct outcome {
    int hit;
    struct buf out;
};

static struct outcome feed_pieces(
    const struct str *strings, int n, struct str text, const size_t *cuts, int n_cuts, bool include)
{
    struct arena *a = arena_new(MB);
    struct stops *s = stops_new(a, strings, n);
    struct outcome o = { .hit = -1 };
    size_t from = 0;

    EXPECT(s);
    buf_init(&o.out, MB);
    for (int i = 0; i <= n_cuts; i++) {
        size_t to = i < n_cuts ? cuts[i] : text.n;
        int hit = stops_put(s, (struct str){ text.p + from, to - from }, include, &o.out);
        if (hit >= 0) {
            EXPECT_EQ(o.hit, -1);
            o.hit = hit;
        }
        from = to;
    }
    stops_end(s, &o.out);
    arena_free(a);
    return o;
}

static void expect_outcome(struct outcome o, int hit, struct str want)
{
    EXPECT_EQ(o.hit, hit);
    EXPECT(str_eq(buf_str(&o.out), want));
    buf_clear(&o.out);
}

/* Reference: the match with the first end; of several, the longest; of equal ones, the first
 * listed. */
static int find_first_stop(const struct str *strings, int n, struct str text, size_t *start)
{
    for (size_t end = 1; end <= text.n; end++) {
        int best = -1;
        for (int i = 0; i < n; i++) {
            struct str head = { text.p, end };
            if (strings[i].n && str_ends(head, strings[i]) &&
                (best < 0 || strings[i].n > strings[best].n))
                best = i;
        }
        if (best >= 0) {
            *start = end - strings[best].n;
            return best;
        }
    }
    *start = text.n;
    return -1;
}

static void compare_with_reference(const struct str *strings, int n, struct str text)
{
    size_t start, every[64];
    int want = find_first_stop(strings, n, text, &start);
    struct str shown = { text.p, start };

    EXPECT(text.n <= 64);
    for (size_t cut = 0; cut <= text.n; cut++)
        expect_outcome(feed_pieces(strings, n, text, &cut, 1, false), want, shown);
    for (size_t i = 0; i < text.n; i++)
        every[i] = i;
    expect_outcome(feed_pieces(strings, n, text, every, (int)text.n, false), want, shown);
    if (want >= 0)
        shown.n += strings[want].n;
    expect_outcome(feed_pieces(strings, n, text, every, (int)text.n, true), want, shown);
    expect_outcome(feed_pieces(strings, n, text, NULL, 0, true), want, shown);
}

static void a_stop_string_ends_the_text_before_it(void)
{
    struct str stops[] = { STR("END") };

    expect_outcome(feed_pieces(stops, 1, STR("abcENDdef"), NULL, 0, false), 0, STR("abc"));
    expect_outcome(feed_pieces(stops, 1, STR("abcENDdef"), NULL, 0, true), 0, STR("abcEND"));
    expect_outcome(feed_pieces(stops, 1, STR("abcEN"), NULL, 0, false), -1, STR("abcEN"));
    expect_outcome(feed_pieces(NULL, 0, STR("abcEN"), NULL, 0, false), -1, STR("abcEN"));
}

static void possible_beginning_of_a_stop_string_is_held_back(void)
{
    struct arena *a = arena_new(MB);
    struct str stops[] = { STR("\n\nUser"), STR("###") };
    struct stops *s = stops_new(a, stops, 2);
    struct buf out;

    buf_init(&out, MB);
    EXPECT_EQ(stops_put(s, STR("hello\n"), false, &out), -1);
    EXPECT(str_is(buf_str(&out), "hello"));
    EXPECT_EQ(stops_put(s, STR("\nUs"), false, &out), -1);
    EXPECT(str_is(buf_str(&out), "hello"));
    EXPECT_EQ(stops_put(s, STR("a##"), false, &out), -1);
    EXPECT(str_is(buf_str(&out), "hello\n\nUsa"));
    EXPECT_EQ(stops_put(s, STR("#no"), false, &out), 1);
    EXPECT_EQ(stops_put(s, STR("###"), false, &out), -1);
    stops_end(s, &out);
    EXPECT(str_is(buf_str(&out), "hello\n\nUsa"));
    buf_clear(&out);
    arena_free(a);
}

static void the_first_completed_wins_then_the_longest_then_the_first_listed(void)
{
    struct str inner[] = { STR("abcd"), STR("bc") };
    struct str same_end[] = { STR("c"), STR("abc"), STR("bc") };
    struct str twins[] = { STR(""), STR("x"), STR("x") };

    expect_outcome(feed_pieces(inner, 2, STR("zabcd"), NULL, 0, false), 1, STR("za"));
    expect_outcome(feed_pieces(same_end, 3, STR("zabc"), NULL, 0, false), 1, STR("z"));
    expect_outcome(feed_pieces(same_end, 3, STR("zbc"), NULL, 0, false), 2, STR("z"));
    expect_outcome(feed_pieces(twins, 3, STR("zx"), NULL, 0, false), 1, STR("z"));
}

static void result_is_independent_of_cuts(void)
{
    struct str a[] = { STR("aab"), STR("abab"), STR("b\xC3\xA9") };

    compare_with_reference(a, 3, STR("aaab"));
    compare_with_reference(a, 3, STR("xababab"));
    compare_with_reference(a, 3, STR("aaaaaaaaaaab\xC3\xA9"));
    compare_with_reference(a, 3, STR("ab\xC3\xA9"));
    compare_with_reference(a, 3, STR(""));
}

static void agrees_with_the_definition_on_random_texts(void)
{
    enum { SEED = 7, ROUNDS = 3000 };
    uint64_t x = SEED;

    printf("seed %d\n", SEED);
    for (int round = 0; round < ROUNDS; round++) {
        char bytes[MAX_STRINGS][5], text[24];
        struct str strings[MAX_STRINGS];
        x = x * 6364136223846793005u + 1442695040888963407u;
        uint64_t r = x >> 20;
        int n = 1 + (int)(r % MAX_STRINGS);
        for (int i = 0; i < n; i++) {
            strings[i] = (struct str){ bytes[i], (x >> (7 + 3 * i)) % 5 };
            for (size_t k = 0; k < strings[i].n; k++) {
                x = x * 6364136223846793005u + 1442695040888963407u;
                bytes[i][k] = (char)('a' + (x >> 40) % 2);
            }
        }
        for (size_t k = 0; k < sizeof(text); k++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            text[k] = (char)('a' + ((x >> 40) % 16 ? (x >> 50) % 2 : 2));
        }
        compare_with_reference(strings, n, (struct str){ text, sizeof(text) });
    }
}

static void too_many_stop_strings_are_rejected(void)
{
    static char big[STOP_BYTES_MAX + 1];
    struct arena *a = arena_new(MB);
    struct str many[STOPS_MAX + 1];
    struct str one = { big, sizeof(big) };

    memset(big, 'x', sizeof(big));
    for (int i = 0; i <= STOPS_MAX; i++)
        many[i] = STR("x");
    EXPECT(!stops_new(a, many, STOPS_MAX + 1));
    EXPECT(stops_new(a, many, STOPS_MAX));
    EXPECT(!stops_new(a, &one, 1));
    one.n--;
    EXPECT(stops_new(a, &one, 1));
    arena_free(a);
}

static void every_failed_allocation_is_reported(void)
{
    struct str strings[] = { STR("stop"), STR("\n\n") };

    for (uint64_t nth = 1;; nth++) {
        struct arena *a = arena_new(MB);
        uint64_t before = mem_failures();
        EXPECT(a);
        mem_fail_after(nth);
        struct stops *s = stops_new(a, strings, 2);
        mem_fail_after(0);
        bool failed = mem_failures() > before;
        EXPECT(failed ? !s : !!s);
        arena_free(a);
        if (!failed)
            break;
    }
}

TESTS(TEST(a_stop_string_ends_the_text_before_it),
    TEST(possible_beginning_of_a_stop_string_is_held_back),
    TEST(the_first_completed_wins_then_the_longest_then_the_first_listed),
    TEST(result_is_independent_of_cuts), TEST(agrees_with_the_definition_on_random_texts),
    TEST(too_many_stop_strings_are_rejected), TEST(every_failed_allocation_is_reported))
