/* Base library: strings, buffers, arenas, maps, UTF-8, random numbers, errors. */
#include "base/arena.h"
#include "base/base64.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/suggest.h"
#include "base/utf8.h"
#include "support/check.h"

#include <stdio.h>

static void numbers_are_whole_strings_in_range(void)
{
    uint64_t u = 7;
    int64_t i = 7;
    double f = 7;

    EXPECT(str_to_u64(STR("18446744073709551615"), &u) && u == UINT64_MAX);
    EXPECT(!str_to_u64(STR("18446744073709551616"), &u) && u == UINT64_MAX);
    EXPECT(str_to_i64(STR("-9223372036854775808"), &i) && i == INT64_MIN);
    EXPECT(!str_to_i64(STR("9223372036854775808"), &i));
    static const char *const bad[] = { "", "-", "+1", " 1", "1 ", "0x1", "1e3" };
    for (size_t k = 0; k < ARRAY_LEN(bad); k++)
        EXPECT(!str_to_i64(str_of(bad[k]), &i));
    EXPECT(str_to_f64(STR("-1.5e2"), &f) && f == -150);
    EXPECT(
        !str_to_f64(STR("nan"), &f) && !str_to_f64(STR("1e999"), &f) && !str_to_f64(STR(" 1"), &f));
}

static void strings_are_searched_and_trimmed(void)
{
    EXPECT_EQ(str_find(STR("hello"), STR("lo")), 3);
    EXPECT_EQ(str_find(STR("hello"), STR("x")), -1);
    EXPECT_EQ(str_find(STR("x"), STR("")), 0);
    EXPECT_EQ(str_find(STR_NONE, STR("x")), -1);
    EXPECT(str_is(str_trim(STR(" \t a b\r\n")), "a b"));
    EXPECT(str_eq_nocase(STR("Content-Type"), STR("content-type")));
    EXPECT(str_starts(STR("abc"), STR("ab")) && !str_starts(STR("a"), STR("ab")));
    EXPECT(str_ends(STR("abc"), STR("bc")) && !str_ends(STR("c"), STR("bc")));
}

static void a_buffer_stops_at_its_cap_and_stays_failed(void)
{
    struct buf b;

    buf_init(&b, 10);
    buf_putz(&b, "12345");
    buf_u64(&b, 678);
    EXPECT(buf_ok(&b) && b.n == 8);
    buf_putz(&b, "xyz");
    EXPECT(!buf_ok(&b) && b.n == 8);
    buf_putc(&b, '9');
    EXPECT_EQ(b.n, (size_t)8);
    buf_reset(&b);
    buf_printf(&b, "%s-%d", "ab", 12);
    EXPECT(str_is(buf_str(&b), "ab-12"));
    buf_drop(&b, 3);
    EXPECT(str_is(buf_str(&b), "12"));
    buf_clear(&b);
}

static void long_formats_fit(void)
{
    struct buf b;
    char long_text[600];

    memset(long_text, 'x', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    buf_init(&b, 4000);
    buf_printf(&b, "<%s>", long_text);
    EXPECT_EQ(b.n, sizeof(long_text) + 1);
    buf_clear(&b);
}

static int n_cleaned;

static void count_cleanup(void *arg)
{
    n_cleaned = n_cleaned * 10 + *(int *)arg;
}

static void arena_has_a_cap_and_runs_cleanups_in_reverse(void)
{
    struct arena *a = arena_new(1000);
    static int one = 1, two = 2;

    n_cleaned = 0;
    EXPECT(arena_alloc(a, 600) != NULL);
    EXPECT(arena_alloc(a, 600) == NULL);
    EXPECT_EQ(arena_cleanup(a, count_cleanup, &one), 0);
    EXPECT_EQ(arena_cleanup(a, count_cleanup, &two), 0);
    EXPECT(arena_zalloc(a, SIZE_MAX / 2, 4) == NULL);
    arena_free(a);
    EXPECT_EQ(n_cleaned, 21);
}

static void an_arena_grows_its_last_block_in_place(void)
{
    struct arena *a = arena_new(MB);
    char *p = NULL;
    size_t n = 0;

    for (size_t want = 1; want < 5000; want = want * 3 / 2 + 1) {
        p = arena_realloc(a, p, n, want);
        EXPECT(p != NULL);
        for (size_t i = 0; i < n; i++)
            EXPECT_EQ(p[i], (char)i);
        for (size_t i = n; i < want; i++)
            p[i] = (char)i;
        n = want;
    }
    arena_free(a);
}

static void maps_agree_with_a_plain_array(void)
{
    enum { N = 3000 };
    static char names[N][12];
    struct str_map *s = str_map_new(0);
    struct u64_map *u = u64_map_new(0);
    uint32_t v;

    for (uint32_t i = 0; i < N; i++) {
        snprintf(names[i], sizeof(names[i]), "k%u", i * 7919u % N);
        EXPECT_EQ(str_map_put(s, str_of(names[i]), i), 1);
        EXPECT_EQ(str_map_put(s, str_of(names[i]), 99), 0);
        EXPECT_EQ(u64_map_put(u, (uint64_t)i << 32, i), 0);
    }
    EXPECT_EQ(str_map_count(s), (size_t)N);
    for (uint32_t i = 0; i < N; i++) {
        EXPECT(str_map_get(s, str_of(names[i]), &v) && v == i);
        EXPECT(u64_map_get(u, (uint64_t)i << 32, &v) && v == i);
        EXPECT(!u64_map_get(u, ((uint64_t)i << 32) + 1, &v));
    }
    EXPECT(!str_map_get(s, STR("absent"), &v));
    EXPECT_EQ(str_map_put(s, STR_NONE, 5), 1); /* the empty string is a valid key */
    EXPECT(str_map_get(s, STR(""), &v) && v == 5);
    str_map_free(s);
    u64_map_free(u);
}

static void utf8_is_strict(void)
{
    static const struct {
        const char *bytes;
        int n;
        uint32_t cp;
    } rows[] = {
        { "a", 1, 'a' },
        { "\xC3\xA9", 2, 0xE9 },
        { "\xE2\x82\xAC", 3, 0x20AC },
        { "\xF0\x9F\x99\x82", 4, 0x1F642 },
        { "\xC0\x80", 0, 0 },
        { "\xED\xA0\x80", 0, 0 },
        { "\xF4\x90\x80\x80", 0, 0 },
        { "\xE0\x80\x80", 0, 0 },
        { "\x80", 0, 0 },
        { "\xE2\x82", -1, 0 },
        { "\xF0\x9F", -1, 0 },
        { "\xC3", -1, 0 },
        { "\xC3x", 0, 0 },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint32_t cp = 0;
        char out[4];
        EXPECT_EQ(utf8_decode(str_of(rows[i].bytes), &cp), rows[i].n);
        if (rows[i].n <= 0)
            continue;
        EXPECT_EQ(cp, rows[i].cp);
        EXPECT_EQ(utf8_encode(cp, out), rows[i].n);
        EXPECT(!memcmp(out, rows[i].bytes, (size_t)rows[i].n));
    }
    EXPECT_EQ(utf8_complete(STR("ab\xE2\x82")), (size_t)2);
    EXPECT_EQ(utf8_complete(STR("ab\xE2\x82\xAC")), (size_t)5);
    EXPECT_EQ(utf8_complete(STR("ab\xFF")), (size_t)3);
}

/* Known-answer vectors of Random123 for philox4x32-10. */
static void random_numbers_are_philox(void)
{
    struct rng4 zero = rng_at(0, 0, 0);
    struct rng4 ones = rng_at(UINT64_MAX, UINT64_MAX, UINT64_MAX);

    EXPECT_EQ(zero.v[0], 0x6627e8d5u);
    EXPECT_EQ(zero.v[1], 0xe169c58du);
    EXPECT_EQ(zero.v[2], 0xbc57ac4cu);
    EXPECT_EQ(zero.v[3], 0x9b00dbd8u);
    EXPECT_EQ(ones.v[0], 0x408f276du);
    EXPECT_EQ(ones.v[1], 0x41c83b0eu);
    EXPECT_EQ(ones.v[2], 0xa20bc7c6u);
    EXPECT_EQ(ones.v[3], 0x6d5451fdu);
}

static void errors_contain_their_context(void)
{
    struct err e;

    EXPECT_EQ(err_param(&e, ERR_RANGE, "n", "too many: %d", 9), -1);
    err_wrap(&e, "choice %d", 3);
    EXPECT_STR(e.msg, "choice 3: too many: 9");
    EXPECT_STR(e.param, "n");
    EXPECT_STR(errcode_name(e.code), "RANGE");
}

static void base64_round_trips(void)
{
    static const struct {
        const char *plain, *text;
    } rows[] = { { "", "" }, { "f", "Zg==" }, { "fo", "Zm8=" }, { "foo", "Zm9v" },
        { "foob", "Zm9vYg==" }, { "\xff\xfe\xfd", "//79" } };
    static const char *const bad[] = { "Z", "Zg=", "Z===", "Zm9v Zm9v", "Zm-v", "=" };
    struct buf b;

    buf_init(&b, KB);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        buf_reset(&b);
        base64_encode(&b, str_of(rows[i].plain));
        EXPECT(str_is(buf_str(&b), rows[i].text));
        buf_reset(&b);
        EXPECT(base64_decode(&b, str_of(rows[i].text)));
        EXPECT(str_is(buf_str(&b), rows[i].plain));
    }
    buf_reset(&b);
    EXPECT(base64_decode(&b, STR("Zm8")) && str_is(buf_str(&b), "fo")); /* unpadded */
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        EXPECT(!base64_decode(&b, str_of(bad[i])));
    buf_clear(&b);
}

static void random_names_are_digits_and_unique(void)
{
    enum { N = 200 };
    static char names[N][RNG_HEX + 1];

    for (int i = 0; i < N; i++) {
        rng_hex(names[i]);
        EXPECT_EQ(strspn(names[i], "0123456789abcdef"), (size_t)RNG_HEX);
        EXPECT_EQ(strlen(names[i]), (size_t)RNG_HEX);
        for (int k = 0; k < i; k++)
            EXPECT(strcmp(names[i], names[k]));
        EXPECT(memcmp(names[i], names[i] + 16, 16));
    }
}

static void control_characters_are_those_that_terminals_and_readers_obey(void)
{
    static const uint32_t bad[] = { 0, '\t', '\n', 0x1B, 0x1F, 0x7F, 0x80, 0x9B, 0x9F, 0x61C,
        0x200E, 0x200F, 0x202A, 0x202E, 0x2066, 0x2069 };
    static const uint32_t good[] = { ' ', '~', 0xA0, 0xE9, 0x61B, 0x200D, 0x2010, 0x2029, 0x202F,
        0x2065, 0x206A, 0x1F600 };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        EXPECT(utf8_is_control(bad[i]));
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        EXPECT(!utf8_is_control(good[i]));
}

static void the_nearest_name_is_suggested(void)
{
    static const struct {
        const char *a, *b;
        size_t distance;
    } rows[] = { { "", "", 0 }, { "", "abc", 3 }, { "port", "port", 0 }, { "prot", "port", 1 },
        { "pot", "port", 1 }, { "pport", "port", 1 }, { "part", "port", 1 }, { "trop", "port", 3 },
        { "kitten", "sitting", 3 }, { "flaw", "lawn", 2 } };
    static const struct {
        const char *name, *hint;
    } hints[] = { { "auot", "; did you mean -auto?" }, { "autooo", "" },
        { "of", "; did you mean -off?" }, { "x", "" }, { "", "" },
        { "drafts", "; did you mean -draft?" } };
    char out[100], longest[SUGGEST_NAME_MAX + 2];

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        EXPECT_EQ(suggest_distance(str_of(rows[i].a), str_of(rows[i].b)), rows[i].distance);
        EXPECT_EQ(suggest_distance(str_of(rows[i].b), str_of(rows[i].a)), rows[i].distance);
    }
    for (size_t i = 0; i < ARRAY_LEN(hints); i++) {
        struct suggestion s = suggest_for(str_of(hints[i].name));
        suggest_offer_list(&s, "auto|off|ngram|draft");
        EXPECT_STR(suggest_text(&s, "-", out, sizeof(out)), hints[i].hint);
    }
    memset(longest, 'a', sizeof(longest));
    struct suggestion s = suggest_for((struct str){ longest, SUGGEST_NAME_MAX + 1 });
    suggest_offer(&s, (struct str){ longest, SUGGEST_NAME_MAX });
    EXPECT(!s.best.p);
    s.name.n--;
    suggest_offer(&s, (struct str){ longest, SUGGEST_NAME_MAX });
    EXPECT_EQ(s.distance, 0u);
}

TESTS(TEST(the_nearest_name_is_suggested),
    TEST(control_characters_are_those_that_terminals_and_readers_obey),
    TEST(random_names_are_digits_and_unique), TEST(base64_round_trips),
    TEST(numbers_are_whole_strings_in_range), TEST(strings_are_searched_and_trimmed),
    TEST(a_buffer_stops_at_its_cap_and_stays_failed), TEST(long_formats_fit),
    TEST(arena_has_a_cap_and_runs_cleanups_in_reverse),
    TEST(an_arena_grows_its_last_block_in_place), TEST(maps_agree_with_a_plain_array),
    TEST(utf8_is_strict), TEST(random_numbers_are_philox), TEST(errors_contain_their_context))
