#include "constrain/regular/code_points.h"

#include "base/rng.h"
#include "constrain/regular/unicode_property.h"
#include "support/check.h"

enum { LIMIT = 300 };

/* Random operations on a set and on an array of flags. */
static void sets_equal_an_array_of_flags(void)
{
    struct rng r = { .key = 3 };

    for (int round = 0; round < 300; round++) {
        struct code_points s = { 0 };
        bool flags[LIMIT] = { false };
        for (int k = 0; k < 40; k++) {
            uint32_t from = (uint32_t)rng_below(&r, LIMIT), n = (uint32_t)rng_below(&r, 9);
            uint32_t to = MIN(from + n, (uint32_t)LIMIT - 1);
            unsigned what = (unsigned)rng_below(&r, 8);
            if (what == 0)
                code_points_invert(&s);
            else if (what == 1)
                code_points_remove(&s, from, to);
            else
                code_points_add(&s, from, to);
            for (uint32_t c = 0; c < LIMIT; c++)
                flags[c] = what == 0 ? !flags[c] : c < from || c > to ? flags[c] : what != 1;
        }
        code_points_sort(&s);
        for (uint32_t c = 0, n = 0; c < LIMIT; c++) {
            n += flags[c];
            EXPECT_EQ(code_points_count(&s, c, c), (uint32_t)flags[c]);
            EXPECT_EQ(code_points_count(&s, 0, c), n);
        }
        code_points_clear(&s);
    }
}

static void too_many_ranges_fail(void)
{
    struct code_points s = { 0 };

    for (uint32_t k = 0; k < 100000; k++)
        code_points_add(&s, 3 * k, 3 * k);
    EXPECT(s.is_failed);
    code_points_clear(&s);
}

static uint32_t count_of(const char *property)
{
    struct code_points s = { 0 };

    if (!unicode_property_add(&s, str_of(property)))
        return UINT32_MAX;
    code_points_sort(&s);
    uint32_t n = code_points_count(&s, 0, CODE_POINT_MAX);
    code_points_clear(&s);
    return n;
}

static void properties_have_short_and_long_names(void)
{
    EXPECT_EQ(count_of("Any"), 0x110000u);
    EXPECT_EQ(count_of("ASCII"), 128u);
    EXPECT_EQ(count_of("Lu"), count_of("gc=Uppercase_Letter"));
    EXPECT_EQ(count_of("L"), count_of("General_Category=Letter"));
    EXPECT_EQ(count_of("L"),
        count_of("Lu") + count_of("Ll") + count_of("Lt") + count_of("Lm") + count_of("Lo"));
    EXPECT_EQ(count_of("LC"), count_of("Lu") + count_of("Ll") + count_of("Lt"));
    EXPECT_EQ(count_of("Assigned") + count_of("Cn"), 0x110000u);
    EXPECT_EQ(count_of("sc=Grek"), count_of("Script=Greek"));
    EXPECT_EQ(count_of("White_Space"), 25u);
    EXPECT_EQ(count_of("AHex"), 22u);
}

static void unknown_properties_are_refused(void)
{
    static const char *const unknown[] = { "", "X", "lu", "Greek", "sc=Lu", "gc=Greek",
        "Script=", "scx=Greek", "Block=Latin", "Lu=Lu", "L ", "InBasicLatin" };

    for (size_t k = 0; k < ARRAY_LEN(unknown); k++)
        EXPECT_EQ(count_of(unknown[k]), UINT32_MAX);
}

TESTS(TEST(sets_equal_an_array_of_flags), TEST(too_many_ranges_fail),
    TEST(properties_have_short_and_long_names), TEST(unknown_properties_are_refused))
