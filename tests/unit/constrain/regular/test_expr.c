#include "constrain/regular/expr.h"

#include "base/mem.h"
#include "support/language_kit.h"

static struct exprs *x;

static void begin(void)
{
    x = exprs_new(kit_limits);
    EXPECT(x != NULL);
}

static void end(void)
{
    EXPECT(!exprs_failed(x));
    exprs_free(x);
}

static expr_id lit(const char *z)
{
    return expr_literal(x, str_of(z));
}

static void equal_languages_of_equal_structure_have_one_id(void)
{
    begin();
    expr_id a = lit("a"), ab = lit("ab"), ac = lit("ac");
    EXPECT(expr_eq(expr_or(x, ab, ac), expr_or(x, ac, ab)));
    EXPECT(expr_eq(expr_or(x, ab, ab), ab));
    EXPECT(expr_eq(expr_and(x, ab, EXPR_ALL), ab));
    EXPECT(expr_eq(expr_and(x, ab, EXPR_NONE), EXPR_NONE));
    EXPECT(expr_eq(expr_not(x, expr_not(x, ab)), ab));
    EXPECT(expr_eq(expr_cat(x, EXPR_EPS, a), a));
    EXPECT(expr_eq(expr_cat(x, EXPR_NONE, a), EXPR_NONE));
    EXPECT(expr_eq(expr_or(x, lit("b"), a), expr_range(x, 'a', 'b')));
    end();
}

static void unions_of_strings_are_tries(void)
{
    begin();
    expr_id all = expr_or(x, lit("abcd"), lit("abce"));
    expr_id trie = expr_cat(
        x, lit("a"), expr_cat(x, lit("b"), expr_cat(x, lit("c"), expr_range(x, 'd', 'e'))));
    EXPECT(expr_eq(all, trie));
    end();
}

static void adjacent_counters_are_merged(void)
{
    begin();
    expr_id a = lit("ab");
    expr_id r03 = expr_repeat(x, a, 0, 3), r25 = expr_repeat(x, a, 2, 5);
    EXPECT(expr_eq(expr_or(x, r03, r25), expr_repeat(x, a, 0, 5)));
    EXPECT(!expr_eq(
        expr_or(x, expr_repeat(x, a, 1, 1), expr_repeat(x, a, 4, 5)), expr_repeat(x, a, 1, 5)));
    EXPECT(expr_eq(expr_cat(x, r03, r25), expr_repeat(x, a, 2, 8)));
    EXPECT(expr_eq(expr_cat(x, a, r25), expr_repeat(x, a, 3, 6)));
    EXPECT(expr_eq(expr_repeat(x, r03, 0, 1000), expr_repeat(x, a, 0, 3000)));
    EXPECT(expr_eq(expr_repeat(x, expr_repeat(x, a, 1000, 1000), 1000, 1000),
        expr_repeat(x, a, 1000000, 1000000)));
    /* (a{2}){1,2} is not a{2,4} */
    EXPECT(!expr_eq(expr_repeat(x, expr_repeat(x, a, 2, 2), 1, 2), expr_repeat(x, a, 2, 4)));
    end();
}

static void bounds_end_in_one_error(void)
{
    struct err e = { 0 };
    expr_id a;

    x = exprs_new((struct expr_limits){ 128 * KB, 1000000 });
    for (unsigned k = 0; k < 100000; k++)
        expr_repeat(x, expr_range(x, 'a', 'a'), 1000 + k, 2000 + k);
    EXPECT(exprs_failed(x) && exprs_is_full(x));
    EXPECT(exprs_check(x, &e) == -1 && e.code == ERR_TOO_LARGE);
    EXPECT(exprs_bytes(x) <= 128 * KB);
    exprs_free(x);

    x = exprs_new((struct expr_limits){ 32 * MB, 100 });
    for (unsigned k = 0; k < 200; k++)
        expr_repeat(x, expr_range(x, 'a', 'a'), 0, 2 + k);
    EXPECT(exprs_check(x, &e) == -1);
    EXPECT(strstr(e.msg, "100 steps") != NULL);
    exprs_free(x);

    begin();
    a = lit("a");
    for (unsigned k = 0; k < 1000; k++)
        a = expr_repeat(x, expr_cat(x, a, lit("b")), 0, REPEAT_INF);
    EXPECT(exprs_check(x, &e) == -1);
    EXPECT(strstr(e.msg, "nested") != NULL);
    exprs_free(x);
}

static void out_of_memory_is_an_error(void)
{
    int n_failed = 0;

    for (unsigned nth = 1; nth < 12; nth++) {
        mem_fail_after(nth);
        x = exprs_new(kit_limits);
        if (x) {
            expr_id all = EXPR_NONE;
            for (unsigned k = 0; k < 200; k++)
                all = expr_or(x, all, expr_repeat(x, lit("ab"), k * 3, k * 3 + 1));
            n_failed += exprs_failed(x);
        } else {
            n_failed++;
        }
        mem_fail_after(0);
        exprs_free(x);
    }
    EXPECT(n_failed >= FAULTS_AT_LEAST(8));
}

TESTS(TEST(equal_languages_of_equal_structure_have_one_id), TEST(unions_of_strings_are_tries),
    TEST(adjacent_counters_are_merged), TEST(bounds_end_in_one_error),
    TEST(out_of_memory_is_an_error))
