#include "constrain/regular/json_string.h"

#include "base/json.h"
#include "base/rng.h"
#include "support/language_kit.h"

static int start(
    struct language *l, const char *pattern, const char *format, uint64_t min, uint64_t max)
{
    struct str p = str_of(pattern), f = str_of(format);
    struct json_string_limits limits = { .patterns = &p,
        .n_patterns = pattern != NULL,
        .formats = &f,
        .n_formats = format != NULL,
        .min_length = min,
        .max_length = max };
    expr_id root;

    language_begin(l);
    if (expr_json_string(l->x, &limits, &root, &l->e))
        return -1;
    return language_start(l, root);
}

static void lengths_count_code_points_of_the_value(void)
{
    struct language l;

    EXPECT_EQ(start(&l, NULL, NULL, 2, 3), 0);
    EXPECT(language_has(&l, "ab") && language_has(&l, "\\u0041\\n") && !language_has(&l, "a"));
    EXPECT(language_has(&l, "\xF0\x9F\x98\x80\xC3\xA9"
                            "b") &&
           !language_has(&l, "abcd"));
    EXPECT(language_has(&l, "\\ud83d\\ude00a") && !language_has(&l, "\\ud83d\\ude00"));
    language_end(&l);
}

static void patterns_formats_and_lengths_are_intersected(void)
{
    struct language l;

    EXPECT_EQ(start(&l, "^[a-z\\n]+$", NULL, 3, 4), 0);
    EXPECT(language_has(&l, "abc") && language_has(&l, "a\\nc") && language_has(&l, "abcd"));
    EXPECT(!language_has(&l, "ab") && !language_has(&l, "abcde") && !language_has(&l, "ABC"));
    EXPECT(!language_has(&l, "\\u0061bc"));
    language_end(&l);
    EXPECT_EQ(start(&l, "2$", "date", 0, UINT64_MAX), 0);
    EXPECT(language_has(&l, "2024-02-12") && !language_has(&l, "2024-02-11"));
    EXPECT(!language_has(&l, "2"));
    language_end(&l);
    EXPECT_EQ(start(&l, NULL, "no such format", 1, 2), 0);
    EXPECT(language_has(&l, "\\u0061"));
    language_end(&l);
}

static void impossible_lengths_are_an_empty_language(void)
{
    struct language l;

    EXPECT_EQ(start(&l, "^a{5}$", NULL, 6, UINT64_MAX), 0);
    EXPECT_EQ(automaton_start(l.a).i, STATE_DEAD.i);
    language_end(&l);
    EXPECT_EQ(start(&l, NULL, NULL, 6, 5), 0);
    EXPECT_EQ(automaton_start(l.a).i, STATE_DEAD.i);
    language_end(&l);
    EXPECT_EQ(start(&l, NULL, NULL, UINT64_MAX, UINT64_MAX), -1);
    EXPECT(strstr(l.e.msg, "minLength") != NULL);
    language_end(&l);
    EXPECT_EQ(start(&l, "(", NULL, 0, 1), -1);
    language_end(&l);
}

/* Random walks over the bytes that are allowed are strings that the JSON parser accepts, with the
 * required length. */
static void walks_are_json_strings(void)
{
    static const char *const patterns[] = { NULL, "^[^b]*$", "a", "^\\W+$" };

    for (uint64_t seed = 0; seed < 200; seed++) {
        struct rng r = { .key = seed };
        struct language l;
        struct json *j = NULL;
        char text[2000] = "\"";
        size_t n = 1;
        EXPECT_EQ(start(&l, patterns[seed % 4], NULL, 3, 12), 0);
        state_id s = automaton_start(l.a);
        while (!automaton_accepts(l.a, s) || rng_below(&r, 4)) {
            struct byte_set next = automaton_next_bytes(l.a, s);
            uint8_t byte = (uint8_t)rng_below(&r, 256);
            if (byte_set_is_empty(&next))
                break;
            while (!byte_set_has(&next, byte))
                byte++;
            s = automaton_step(l.a, s, byte);
            text[n++] = (char)byte;
        }
        text[n++] = '"';
        struct arena *arena = arena_new(1 * MB);
        EXPECT_EQ(json_parse(&j, (struct str){ text, n }, arena, NULL, &l.e), 0);
        arena_free(arena);
        language_end(&l);
    }
}

static void long_limits_stay_small(void)
{
    struct language l;

    EXPECT_EQ(start(&l, "^[^\\s<>]*$", NULL, 1, 100000), 0);
    EXPECT(exprs_bytes(l.x) < 256 * KB);
    state_id s = automaton_start(l.a);
    for (int k = 0; k < 5000; k++)
        s = automaton_step(l.a, s, 'x');
    EXPECT(automaton_accepts(l.a, s));
    language_end(&l);
}

TESTS(TEST(lengths_count_code_points_of_the_value),
    TEST(patterns_formats_and_lengths_are_intersected),
    TEST(impossible_lengths_are_an_empty_language), TEST(walks_are_json_strings),
    TEST(long_limits_stay_small))
