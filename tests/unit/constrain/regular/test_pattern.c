/* tests/golden/test_patterns.py compares random patterns with Node.js; here are refusals and
 * hostile patterns. */
#include "constrain/regular/pattern.h"

#include "support/language_kit.h"

#include <stdlib.h>
#include <time.h>

static const struct {
    const char *pattern, *message;
} refused[] = {
    { "a(?<=b)", "lookbehinds are not supported: lookbehind at offset 1" },
    { "(?<!b)a", "negative lookbehind at offset 0" },
    { "(a)\\1", "backreference at offset 3" },
    { "(?<n>a)\\k<n>", "backreference at offset 7" },
    { "(?i:a)", "inline flags" },
    { "(?P<n>a)", "(?<name>..)" },
    { "(?>a)", "atomic" },
    { "(a", "group without end at offset 0" },
    { "a)", "unexpected `)` at offset 1" },
    { "[a", "class without end at offset 0" },
    { "[b-a]", "range out of order at offset 1" },
    { "a{3,2}", "out of order in a quantifier at offset 1" },
    { "a{9999999999}", "count above 2^30" },
    { "*a", "quantifier without an element at offset 0" },
    { "a**", "quantifier without an element at offset 2" },
    { "(?=a)*", "quantifier after an assertion at offset 0" },
    { "\\p{Foo}", "unknown property \"Foo\" at offset 0" },
    { "\\p", "property in braces" },
    { "\\", "backslash without a character at offset 0" },
    { "\\x4", "malformed hexadecimal escape at offset 0" },
    { "\\u{110000}", "malformed hexadecimal escape" },
    { "\\Z", "escape of a letter without meaning at offset 0" },
    { "\\01", "octal escape" },
    { "(?<1a>b)", "name of a group" },
    { "a\xC3", "invalid UTF-8" },
};

static void unsupported_constructs_are_named_with_their_offset(void)
{
    for (size_t k = 0; k < ARRAY_LEN(refused); k++) {
        struct language l;
        EXPECT_EQ(language_of_pattern(&l, refused[k].pattern, TEXT_UTF8), -1);
        if (!strstr(l.e.msg, refused[k].message))
            fprintf(stderr, "%s: %s\n", refused[k].pattern, l.e.msg);
        EXPECT(strstr(l.e.msg, refused[k].message) != NULL);
        language_end(&l);
    }
}

static void patterns_without_the_flag_u_are_accepted(void)
{
    static const struct {
        const char *pattern, *match, *other;
    } lenient[] = {
        { "^a\\-b\\_c\\@d\\ e\\:$", "a-b_c@d e:", "ab" },
        { "^{a}$", "{a}", "a" },
        { "^a{,5}$", "a{,5}", "aaa" },
        { "^]$", "]", "[" },
        { "^[\\w-.]+$", "a-.", "+" },
        { "^\\/a$", "/a", "a" },
    };
    for (size_t k = 0; k < ARRAY_LEN(lenient); k++) {
        struct language l;
        EXPECT_EQ(language_of_pattern(&l, lenient[k].pattern, TEXT_UTF8), 0);
        EXPECT(language_has(&l, lenient[k].match));
        EXPECT(!language_has(&l, lenient[k].other));
        language_end(&l);
    }
}

/* A surrogate in braces is a character of its own, which UTF-8 does not contain. */
static void only_two_escapes_of_four_digits_are_a_surrogate_pair(void)
{
    static const struct {
        const char *pattern;
        bool has_pair;
    } rows[] = { { "^\\uD83D\\uDE00$", true }, { "^\\u{1F600}$", true },
        { "^\\u{D83D}\\uDE00$", false }, { "^\\uD83D\\u{DE00}$", false } };

    for (size_t k = 0; k < ARRAY_LEN(rows); k++) {
        struct language l;
        EXPECT_EQ(language_of_pattern(&l, rows[k].pattern, TEXT_UTF8), 0);
        EXPECT_EQ(language_has(&l, "\xF0\x9F\x98\x80"), rows[k].has_pair);
        language_end(&l);
    }
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

struct shape { /* `open` n times, `inner`, `close` n times */
    const char *open, *inner, *close;
    size_t n;
};

static char *text_of(const struct shape *s)
{
    size_t a = strlen(s->open), b = strlen(s->inner), c = strlen(s->close);
    char *text = malloc(s->n * (a + c) + b + 1), *at = text;

    for (size_t k = 0; k < s->n; k++, at += a)
        memcpy(at, s->open, a);
    memcpy(at, s->inner, b);
    at += b;
    for (size_t k = 0; k < s->n; k++, at += c)
        memcpy(at, s->close, c);
    *at = 0;
    return text;
}

static const struct shape hostile[] = {
    { "(", "", "", 60000 },
    { "(", "a", ")", 90 },
    { "(?=", "a", ")", 90 },
    { "(?!", "a", ")", 90 },
    { "(?:a?", "", "){0,1000}", 60 },
    { "a|", "b", "", 50000 },
    { "a?", "", "", 20000 },
    { "(?=.*a)", "b", "", 2000 },
    { "[^a]\\p{L}", "", "", 3000 },
    { "(?:.*a)", "", "", 30 },
    { "(.*a){30}", "", "", 1 },
    { "((a{0,1000}){0,1000}){0,1000}", "$", "", 1 },
    { "((a{0,1000}b?){0,1000}c?){0,1000}", "$", "", 1 },
    { "(a{1000}){1000}", "", "", 1 },
    { "(\"a\"*)*", "", "", 1 },
    { "(?:(?!a.*b)[^]|c)*", "$", "", 20 },
    { "^(?:(?=.{1000000000}a)x)*", "", "", 1 },
    { "(?:\\b|\\B|^|$|x)*", "", "", 40 },
    { "(?:a|b|ab){0,1000}", "$", "", 20 },
    { "[\\p{L}\\P{Lu}]", "", "", 2000 },
};

/* Each compiles and steps through 200 characters, or ends in an error, within the budget. */
static void hostile_patterns_end(void)
{
    for (size_t k = 0; k < ARRAY_LEN(hostile); k++) {
        char *pattern = text_of(&hostile[k]);
        struct language l;
        double began = seconds();
        if (!language_of_pattern(&l, pattern, TEXT_UTF8)) {
            state_id s = automaton_start(l.a);
            for (int n = 0; n < 200 && s.i; n++)
                s = automaton_step(l.a, s, "ab"[n * n / 7 % 2]);
            EXPECT(automaton_bytes(l.a) <= 32 * MB);
        }
        double took = seconds() - began;
        if (took > 1)
            fprintf(stderr, "%.50s: %.2f s, %s\n", pattern, took, l.e.msg);
        EXPECT(took < 10); /* sanitizers are slow; a release build takes less than 0.5 s */
        EXPECT(exprs_bytes(l.x) <= 32 * MB);
        language_end(&l);
        free(pattern);
    }
}

static void patterns_of_json_strings_see_the_value(void)
{
    struct language l;

    EXPECT_EQ(language_of_pattern(&l, "^\\bn\\n\\bn\\b\\W$", TEXT_JSON), 0);
    EXPECT(language_has(&l, "n\\nn\\n") && language_has(&l, "n\\nn\\\""));
    EXPECT(!language_has(&l, "nnnn"));
    language_end(&l);
    EXPECT_EQ(language_of_pattern(&l, "^[^a]$", TEXT_JSON), 0);
    EXPECT(language_has(&l, "\\n") && language_has(&l, "\\\\") && !language_has(&l, "\\"));
    EXPECT(!language_has(&l, "\"") && !language_has(&l, "\\u0062") && language_has(&l, "\\/"));
    language_end(&l);
}

static bool has_with(const char *pattern, unsigned flags, const char *text)
{
    struct pattern_options o = { TEXT_UTF8, PATTERN_FULL, flags };
    struct language l;
    expr_id root;

    language_begin(&l);
    EXPECT_EQ(pattern_compile_with(l.x, str_of(pattern), &o, &root, &l.e), 0);
    EXPECT_EQ(language_start(&l, root), 0);
    bool has = language_has(&l, text);
    language_end(&l);
    return has;
}

static void flags_change_case_lines_and_dots(void)
{
    EXPECT(has_with("a[k-m]\\xE9", PATTERN_IGNORE_CASE, "AL\xC3\x89"));
    EXPECT(has_with("k", PATTERN_IGNORE_CASE, "\xE2\x84\xAA")); /* U+212A, the Kelvin sign */
    EXPECT(!has_with("[^a]", PATTERN_IGNORE_CASE, "A"));
    EXPECT(has_with("[^a]", 0, "A"));
    EXPECT(has_with("a.b", PATTERN_DOT_ALL, "a\nb") && !has_with("a.b", 0, "a\nb"));
    EXPECT(has_with("a.b", PATTERN_LINE_FEED, "a\rb") && !has_with("a.b", 0, "a\rb"));
    EXPECT(has_with("a$\\n^b", PATTERN_LINES, "a\nb") && !has_with("a$\\n^b", 0, "a\nb"));
    EXPECT(!has_with("a^b", PATTERN_LINES, "ab"));
    EXPECT(has_with("(?:^x.?)+", PATTERN_LINES | PATTERN_DOT_ALL, "x\nx\nx"));
    EXPECT(!has_with("(?:^x.?)+", PATTERN_LINES | PATTERN_DOT_ALL, "xxx"));
}

TESTS(TEST(unsupported_constructs_are_named_with_their_offset),
    TEST(patterns_without_the_flag_u_are_accepted),
    TEST(only_two_escapes_of_four_digits_are_a_surrogate_pair), TEST(hostile_patterns_end),
    TEST(patterns_of_json_strings_see_the_value), TEST(flags_change_case_lines_and_dots))
