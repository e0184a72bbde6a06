/* tests/golden/test_languages.py compares random ranges with exact decimals; here are bounds and
 * errors. */
#include "constrain/regular/number.h"

#include "support/language_kit.h"

struct range_text {
    const char *min, *max, *multiple;
    bool allows_fraction, allows_exponent;
};

/* Compiles a range; -1 with l->e. */
static int start(struct language *l, struct range_text t)
{
    struct number_range r = { .has_min = t.min,
        .has_max = t.max,
        .has_multiple = t.multiple,
        .allows_fraction = t.allows_fraction,
        .allows_exponent = t.allows_exponent };
    expr_id root;

    language_begin(l);
    if ((t.min && decimal_parse(&r.min, str_of(t.min), &l->e)) ||
        (t.max && decimal_parse(&r.max, str_of(t.max), &l->e)) ||
        (t.multiple && decimal_parse(&r.multiple, str_of(t.multiple), &l->e)) ||
        expr_number(l->x, &r, &root, &l->e))
        return -1;
    return language_start(l, root);
}

static bool is_dead(struct language *l, const char *text)
{
    return !automaton_run(l->a, automaton_start(l->a), str_of(text)).i;
}

static void digits_are_bounded(void)
{
    char digits[NUMBER_DIGITS_MAX + 2] = "";
    struct language l;

    EXPECT_EQ(
        start(&l, (struct range_text){ .allows_fraction = true, .allows_exponent = true }), 0);
    memset(digits, '7', NUMBER_DIGITS_MAX);
    EXPECT(language_has(&l, digits));
    digits[20] = '.';
    EXPECT(language_has(&l, digits));
    digits[NUMBER_DIGITS_MAX] = '1';
    EXPECT(language_has(&l, digits));
    digits[20] = '7';
    EXPECT(!language_has(&l, digits));
    EXPECT(language_has(&l, "1e999") && language_has(&l, "1E-007"));
    EXPECT(is_dead(&l, "1e0000") && is_dead(&l, "01") && is_dead(&l, "--") && is_dead(&l, "1.e"));
    language_end(&l);
}

static void dead_prefixes_are_detected_at_once(void)
{
    struct language l;

    EXPECT_EQ(start(&l, (struct range_text){ .min = "95", .max = "100" }), 0);
    EXPECT(!is_dead(&l, "1") && !is_dead(&l, "10") && !is_dead(&l, "9"));
    EXPECT(is_dead(&l, "3") && is_dead(&l, "94") && is_dead(&l, "101") && is_dead(&l, "-"));
    EXPECT(is_dead(&l, "11") && is_dead(&l, "0"));
    language_end(&l);
    EXPECT_EQ(start(&l, (struct range_text){ "95", "100", NULL, true, true }), 0);
    EXPECT(is_dead(&l, "3") && is_dead(&l, "0.3") && !is_dead(&l, "0.096") && is_dead(&l, "-"));
    EXPECT(language_has(&l, "960e-1") && language_has(&l, "0.096e+3"));
    EXPECT(is_dead(&l, "96e1") && !is_dead(&l, "96e-0") && is_dead(&l, "97e-1"));
    language_end(&l);
}

static void large_bounds_are_exact(void)
{
    struct language l;

    EXPECT_EQ(start(&l, (struct range_text){ "-9223372036854775808", "9223372036854775807" }), 0);
    EXPECT(language_has(&l, "9223372036854775807") && !language_has(&l, "9223372036854775808"));
    EXPECT(language_has(&l, "-9223372036854775808") && !language_has(&l, "-9223372036854775809"));
    EXPECT(language_has(&l, "-0") && language_has(&l, "0"));
    language_end(&l);
    EXPECT_EQ(start(&l, (struct range_text){ "1e1000", NULL, NULL, true, true }), 0);
    EXPECT(language_has(&l, "10e999") && !language_has(&l, "9e999") && is_dead(&l, "0"));
    language_end(&l);
    EXPECT_EQ(start(&l, (struct range_text){ "1e2000", NULL, NULL, true, true }), 0);
    EXPECT_EQ(automaton_start(l.a).i, STATE_DEAD.i); /* not with 40 digits and 3 for the exponent */
    language_end(&l);
}

static void multiples_may_be_large(void)
{
    struct language l;

    EXPECT_EQ(start(&l, (struct range_text){ .multiple = "1234567890123456789012345678901" }), 0);
    EXPECT(language_has(&l, "2469135780246913578024691357802"));
    EXPECT(language_has(&l, "0") && !language_has(&l, "2469135780246913578024691357803"));
    language_end(&l);
    EXPECT_EQ(start(&l, (struct range_text){ .multiple = "0.01", .allows_fraction = true }), 0);
    EXPECT(language_has(&l, "1.23") && language_has(&l, "1.2300") && !language_has(&l, "1.2301"));
    EXPECT(is_dead(&l, "1.231") && !is_dead(&l, "1.230"));
    language_end(&l);
}

static void impossible_multiples_are_refused(void)
{
    static const char *const bad[] = { "0", "-1", "1e-401", "1e38",
        "12345678901234567890123456789012345678" };

    for (size_t k = 0; k < ARRAY_LEN(bad); k++) {
        struct language l;
        EXPECT_EQ(start(&l, (struct range_text){ .multiple = bad[k] }), -1);
        EXPECT(strstr(l.e.msg, "multipleOf") != NULL);
        language_end(&l);
    }
}

static void integer_formats_are_ranges(void)
{
    struct number_range r;
    struct language l;
    expr_id root;

    EXPECT(number_format_range(STR("uint64"), &r));
    language_begin(&l);
    EXPECT_EQ(expr_number(l.x, &r, &root, &l.e), 0);
    EXPECT_EQ(language_start(&l, root), 0);
    EXPECT(language_has(&l, "18446744073709551615") && language_has(&l, "0"));
    EXPECT(!language_has(&l, "18446744073709551616") && is_dead(&l, "-1") && is_dead(&l, "1."));
    language_end(&l);
    EXPECT(!number_format_range(STR("int16"), &r));
}

TESTS(TEST(digits_are_bounded), TEST(integer_formats_are_ranges),
    TEST(dead_prefixes_are_detected_at_once), TEST(large_bounds_are_exact),
    TEST(multiples_may_be_large), TEST(impossible_multiples_are_refused))
