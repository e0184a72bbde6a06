#include "constrain/regular/decimal.h"

#include "support/check.h"

static struct decimal parse(const char *text)
{
    struct decimal d;
    struct err e = { 0 };

    if (decimal_parse(&d, str_of(text), &e))
        fprintf(stderr, "%s: %s\n", text, e.msg);
    EXPECT(e.code == ERR_NONE);
    return d;
}

static void equal_values_have_one_form(void)
{
    static const char *const same[][4] = {
        { "1", "1.0", "10e-1", "0.001e3" },
        { "0", "-0", "0.000", "0e99" },
        { "-120", "-1.2e2", "-0.12E+3", "-1200e-1" },
        { "0.05", "5e-2", "0.0500", "50e-3" },
    };

    for (size_t k = 0; k < ARRAY_LEN(same); k++)
        for (int j = 1; j < 4; j++) {
            struct decimal a = parse(same[k][0]), b = parse(same[k][j]);
            EXPECT(!memcmp(&a, &b, sizeof(a)));
            EXPECT_EQ(decimal_compare(&a, &b), 0);
        }
}

static void order_is_that_of_the_values(void)
{
    static const char *const sorted[] = { "-1e300", "-123", "-12.5", "-12.49", "-0.001", "0",
        "1e-400", "0.0009", "0.001", "0.0010000000000000000000000001", "1", "9.99", "10", "1e999" };

    for (size_t k = 0; k < ARRAY_LEN(sorted); k++)
        for (size_t j = 0; j < ARRAY_LEN(sorted); j++) {
            struct decimal a = parse(sorted[k]), b = parse(sorted[j]);
            EXPECT_EQ(decimal_compare(&a, &b), (k > j) - (k < j));
        }
}

static void other_texts_are_refused(void)
{
    static const char *const bad[] = { "", "-", "01", "1.", ".5", "1e", "1e+", "+1", "0x1", " 1",
        "1 ", "NaN", "1e99999999999999999999", "-1e-10002", "--1", "1.2.3" };
    char digits[80];
    struct decimal d;
    struct err e;

    for (size_t k = 0; k < ARRAY_LEN(bad); k++)
        EXPECT_EQ(decimal_parse(&d, str_of(bad[k]), &e), -1);
    memset(digits, '7', sizeof(digits));
    EXPECT_EQ(decimal_parse(&d, (struct str){ digits, DECIMAL_DIGITS_MAX }, &e), 0);
    EXPECT_EQ(decimal_parse(&d, (struct str){ digits, DECIMAL_DIGITS_MAX + 1 }, &e), -1);
    EXPECT(e.code == ERR_TOO_LARGE);
    digits[0] = '1';
    memset(digits + 1, '0', sizeof(digits) - 1);
    EXPECT_EQ(decimal_parse(&d, (struct str){ digits, sizeof(digits) }, &e), 0);
    EXPECT_EQ(d.n, 1);
    EXPECT_EQ(d.exponent, (int)sizeof(digits));
}

TESTS(TEST(equal_values_have_one_form), TEST(order_is_that_of_the_values),
    TEST(other_texts_are_refused))
