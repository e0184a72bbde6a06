#include "constrain/regular/live.h"

#include "constrain/regular/number.h"
#include "support/language_kit.h"

static const struct {
    const char *pattern;
    bool is_live;
} cases[] = {
    { "^(?=a)b", false },
    { "^(?=.*a)[^a]*$", false },
    { "^(?=.*a)[^b]*$", true },
    { "^(?!.*)$", false },
    { "^(?![^]*$)", false },
    { "^(?=(?:aa)*$)(?=(?:aaa)*$)a{5}$", false },
    { "^(?=(?:aa)*$)(?=(?:aaa)*$)a{7,12}$", true },
    { "a$b", false },
    { "a\\bb", false },
    { "a\\b b", true },
    { "b^a", false },
    { "[]", false },
    { "x[]|y", true },
    { "^(?=.{5000,}$)[a-z]+$", true },
    { "^(?=.{5000,}$)[a-z]{0,4999}$", false },
    { "^(?=.*\\d)(?=.*[a-z])(?=.*[A-Z])(?=.*\\W)(?!.*\\s).{8,64}$", true },
    { "^(?:(?!ab)[ab])*$", true },
    { "^(?:(?!ab)[ab])*ab$", true },
    { "^(?=.*ab)(?:(?!ab)[ab])*$", false },
};

static void emptiness_is_exact(void)
{
    for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
        struct language l;
        if (language_of_pattern(&l, cases[k].pattern, TEXT_UTF8))
            fprintf(stderr, "%s: %s\n", cases[k].pattern, l.e.msg);
        EXPECT(l.a != NULL);
        if (automaton_start(l.a).i != cases[k].is_live)
            fprintf(stderr, "%s\n", cases[k].pattern);
        EXPECT_EQ(automaton_start(l.a).i, (uint32_t)cases[k].is_live);
        language_end(&l);
    }
}

static void a_search_that_is_too_long_is_an_error(void)
{
    struct language l;

    EXPECT_EQ(language_of_pattern(&l, "^(?=.{1000000000}$)[a-z]+$", TEXT_UTF8), -1);
    EXPECT(l.e.code == ERR_TOO_LARGE);
    language_end(&l);
}

/* A minimum and a multiple are two machines; the search decides their intersection. */
static void numbers_without_a_solution_are_dead(void)
{
    static const struct {
        const char *min, *max, *multiple;
        bool is_live;
    } ranges[] = {
        { "1", "6", "7", false },
        { "1", "7", "7", true },
        { "1000001", "1000005", "1000", false },
        { "0.001", "0.009", "0.01", false },
        { "-3", "-1", "4", false },
        { "-1", "1", "4", true },
    };
    for (size_t k = 0; k < ARRAY_LEN(ranges); k++) {
        struct number_range r = {
            .has_min = true, .has_max = true, .has_multiple = true, .allows_fraction = true
        };
        struct language l;
        expr_id root;
        language_begin(&l);
        EXPECT_EQ(decimal_parse(&r.min, str_of(ranges[k].min), &l.e), 0);
        EXPECT_EQ(decimal_parse(&r.max, str_of(ranges[k].max), &l.e), 0);
        EXPECT_EQ(decimal_parse(&r.multiple, str_of(ranges[k].multiple), &l.e), 0);
        EXPECT_EQ(expr_number(l.x, &r, &root, &l.e), 0);
        EXPECT_EQ(expr_is_live(l.x, root), ranges[k].is_live);
        EXPECT(!exprs_failed(l.x));
        language_end(&l);
    }
}

TESTS(TEST(emptiness_is_exact), TEST(a_search_that_is_too_long_is_an_error),
    TEST(numbers_without_a_solution_are_dead))
