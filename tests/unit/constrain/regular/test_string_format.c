/* tests/golden/test_languages.py compares the formats with the JSON Schema Test Suite. */
#include "constrain/regular/string_format.h"

#include "support/language_kit.h"

static const struct {
    const char *format, *valid, *invalid;
} cases[] = {
    { "date-time", "2024-02-29T23:59:60Z", "2023-02-29T00:00:00Z" },
    { "date-time", "1990-12-31T15:59:60.5-08:00", "1990-12-31T15:59:60-07:00" },
    { "date", "2000-02-29", "1900-02-29" },
    { "date", "0004-02-29", "2024-04-31" },
    { "time", "08:30:06.283185Z", "24:00:00Z" },
    { "time", "00:29:60+00:30", "00:30:60+00:30" },
    { "duration", "P4DT12H30M5S", "P1Y2D" },
    { "duration", "P2W", "P2W1D" },
    { "email", "\"a b\"@example.com", "a..b@example.com" },
    { "email", "a@[IPv6:::1]", "a@[256.1.1.1]" },
    { "idn-email", "\xEC\x8B\xA4@example.com", "@example.com" },
    { "hostname", "a--b.c-d", "-a.b" },
    { "hostname", "1.2", "xn--X" },
    { "idn-hostname", "\xEC\x8B\xA4\xEB\xA1\x80.b", "\xE3\x80\xAE" },
    { "ipv4", "255.0.10.1", "01.2.3.4" },
    { "ipv6", "1:2::8", "1::2::3" },
    { "ipv6", "::ffff:1.2.3.4", "1:2:3:4:5:6:7:8:9" },
    { "uri", "http://u:p@[::1]:80/a?b#c", "//a/b" },
    { "uri", "urn:a:b", "http://a b" },
    { "uri-reference", "//a/b", "a\\b" },
    { "uri-reference", "./a:b", "1:b" },
    { "iri", "http://\xC3\xA9/\xC3\xA9", "http://\xC3\xA9/<" },
    { "iri-reference", "\xC3\xA9", "\xC3\xA9 " },
    { "uri-template", "/a/{b:3}{?c,d*}", "/a/{b" },
    { "uuid", "2EB8AA08-aa98-11ea-b4aa-73b441d16380", "2eb8aa08-aa98-11ea-b4aa73b441d16380" },
    { "json-pointer", "/a~0/~1/", "a" },
    { "relative-json-pointer", "1/a", "01/a" },
    { "relative-json-pointer", "0#", "#" },
    { "regex", "^(?:a|[^b]{2,}|(c\\d)+?)$", "(a" },
    { "byte", "YWI=", "YWI" },
};

static void formats_accept_and_refuse(void)
{
    for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
        struct str name = str_of(cases[k].format);
        struct language l;
        expr_id root;
        EXPECT(string_format_is_known(name));
        language_begin(&l);
        EXPECT_EQ(string_format_compile(l.x, name, TEXT_UTF8, &root, &l.e), 0);
        EXPECT_EQ(language_start(&l, root), 0);
        if (!language_has(&l, cases[k].valid) || language_has(&l, cases[k].invalid))
            fprintf(stderr, "%s: %s, %s\n", cases[k].format, cases[k].valid, cases[k].invalid);
        EXPECT(language_has(&l, cases[k].valid));
        EXPECT(!language_has(&l, cases[k].invalid));
        language_end(&l);
    }
}

static void other_names_are_unknown(void)
{
    EXPECT(!string_format_is_known(STR("")) && !string_format_is_known(STR("Date")));
    EXPECT(!string_format_is_known(STR("int32")));
}

static void a_bound_of_the_pool_is_an_error_with_the_name(void)
{
    struct exprs *x = exprs_new((struct expr_limits){ 1 * MB, 200 });
    struct err e = { 0 };
    expr_id root;

    EXPECT_EQ(string_format_compile(x, STR("ipv6"), TEXT_UTF8, &root, &e), -1);
    EXPECT(strstr(e.msg, "format ipv6") != NULL);
    exprs_free(x);
}

TESTS(TEST(formats_accept_and_refuse), TEST(other_names_are_unknown),
    TEST(a_bound_of_the_pool_is_an_error_with_the_name))
