/* base/json.c and json_write.c: accepted and rejected texts, values, and the form of written
 * numbers. */
#include "support/check.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>

static struct arena *arena;

static const struct json *parse_text(const char *text)
{
    struct json *j = NULL;
    struct err e = { 0 };

    arena_free(arena);
    arena = arena_new(64 * MB);
    if (json_parse(&j, str_of(text), arena, &json_limits_default, &e))
        fprintf(stderr, "%s: %s\n", text, e.msg);
    EXPECT(j != NULL);
    return j;
}

static void is_rejected(const char *text, const char *message)
{
    struct json *j = NULL;
    struct err e = { 0 };
    struct arena *a = arena_new(MB);

    EXPECT_EQ(json_parse(&j, str_of(text), a, &json_limits_default, &e), -1);
    EXPECT_EQ((int)e.code, ERR_SYNTAX);
    EXPECT_STR(e.msg, message);
    arena_free(a);
}

static char written[70000];

static const char *z(struct str s)
{
    snprintf(written, sizeof(written), STR_FMT, STR_ARG(s));
    return written;
}

static void values_have_their_kind(void)
{
    const struct json *j =
        parse_text(" {\"a\": [1, 2.5, \"x\", true, false, null, {}], \"b\":-3} ");

    EXPECT_EQ((int)j->kind, JSON_OBJECT);
    EXPECT_EQ(j->n, 2u);
    const struct json *a = json_get(j, "a");
    EXPECT_EQ(a->n, 7u);
    enum json_kind kinds[] = { JSON_NUMBER, JSON_NUMBER, JSON_STRING, JSON_BOOL, JSON_BOOL,
        JSON_NULL, JSON_OBJECT };
    int i = 0;
    for (const struct json *c = a->child; c; c = c->next)
        EXPECT_EQ((int)c->kind, (int)kinds[i++]);
    EXPECT_EQ(i, 7);
    EXPECT(a->child->is_int && !a->child->next->is_int);
    EXPECT_STR(z(a->raw), "[1, 2.5, \"x\", true, false, null, {}]");
    EXPECT_STR(z(json_get(j, "b")->raw), "-3");
    EXPECT(json_get(j, "c") == NULL);
    EXPECT(json_get(a, "a") == NULL);
    EXPECT(json_is_null(json_get(j, "c")));
}

static void members_keep_order_and_duplicates(void)
{
    const struct json *j = parse_text("{\"k\":1,\"a\":2,\"k\":3}");

    EXPECT_EQ(j->n, 3u);
    EXPECT_STR(z(j->child->next->key), "a");
    EXPECT_STR(z(json_get(j, "k")->s), "3");
}

static void escapes_are_decoded(void)
{
    const struct json *j =
        parse_text("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\u20AC\\ud83d\\ude00 plain "
                   "text longer than eight \xC3\xA9 \\u0000.\"");

    EXPECT(str_eq(j->s, STR("\"\\/\b\f\n\r\t\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80 plain text longer "
                            "than eight \xC3\xA9 \0.")));
}

static void errors_contain_the_position(void)
{
    is_rejected("", "line 1, column 1: the text ends where a value was expected");
    is_rejected("{\"a\":\n  1,}", "line 2, column 5: a member name in quotes was expected");
    is_rejected("[1,]", "line 1, column 4: a value was expected");
    is_rejected("[1 2]", "line 1, column 4: ',' or ']' was expected");
    is_rejected("{\"a\" 1}", "line 1, column 6: ':' was expected");
    is_rejected("\"\xC3\xA9\n\"", "line 1, column 3: control character in a string");
    is_rejected("\"\xC3\"", "line 1, column 2: invalid UTF-8");
    is_rejected("\"\xED\xA0\x80\"", "line 1, column 2: invalid UTF-8");
    is_rejected("\"\\ud800\"", "line 1, column 3: first half of a surrogate pair without a second");
    is_rejected(
        "\"\\ud800\\u0041\"", "line 1, column 3: first half of a surrogate pair without a second");
    is_rejected("\"\\udc00\"", "line 1, column 3: second half of a surrogate pair without a first");
    is_rejected("\"\\x\"", "line 1, column 3: unknown escape");
    is_rejected("01", "line 1, column 1: a number may not begin with 0");
    is_rejected("1.", "line 1, column 3: a number needs a digit after its point");
    is_rejected("1e", "line 1, column 3: an exponent needs a digit");
    is_rejected("nul", "line 1, column 1: a value was expected");
    is_rejected("NaN", "line 1, column 1: a value was expected");
    is_rejected("1 1", "line 1, column 3: something follows the value");
    is_rejected("[[1]", "line 1, column 5: the text ends inside an array");
    is_rejected("\xEF\xBB\xBF{}", "line 1, column 1: a value was expected");
}

/* Python's json module writes these, which are not JSON. */
static void infinity_is_read_as_a_string_if_it_is_allowed(void)
{
    const struct json_limits l = { .max_depth = 3, .max_nodes = 9, .has_infinity = true };
    struct json *j = NULL;
    struct err e = { 0 };
    struct arena *a = arena_new(MB);
    double v;

    EXPECT_EQ(json_parse(&j, STR("[Infinity, -Infinity,NaN,-1]"), a, &l, &e), 0);
    EXPECT_EQ(j->n, 4u);
    EXPECT(j->child->kind == JSON_STRING && str_is(j->child->s, "Infinity"));
    EXPECT(str_is(j->child->raw, "Infinity") && !json_f64(j->child, &v));
    EXPECT(str_is(j->child->next->s, "-Infinity") && str_is(j->child->next->next->s, "NaN"));
    EXPECT(json_f64(j->child->next->next->next, &v) && v == -1);
    EXPECT_EQ(json_parse(&j, STR("[Infinit]"), a, &l, &e), -1);
    EXPECT_EQ(json_parse(&j, STR("[Infinityx]"), a, &l, &e), -1);
    EXPECT_EQ(json_parse(&j, STR("[Infinity]"), a, NULL, &e), -1);
    EXPECT_EQ(json_parse(&j, STR("[-Infinity]"), a, NULL, &e), -1);
    arena_free(a);
}

static void limits_hold(void)
{
    struct json_limits l = { .max_depth = 3, .max_nodes = 5 };
    struct json *j = NULL;
    struct err e = { 0 };
    struct arena *a = arena_new(MB);

    EXPECT_EQ(json_parse(&j, STR("[[[1]]]"), a, &l, &e), 0);
    EXPECT_EQ(json_parse(&j, STR("[[[[]]]]"), a, &l, &e), -1);
    EXPECT_EQ((int)e.code, ERR_TOO_LARGE);
    EXPECT_STR(e.msg, "line 1, column 4: nested too deeply");
    EXPECT_EQ(json_parse(&j, STR("[1,2,3,4]"), a, &l, &e), 0);
    EXPECT_EQ(json_parse(&j, STR("[1,2,3,4,5]"), a, &l, &e), -1);
    EXPECT_EQ((int)e.code, ERR_TOO_LARGE);
    EXPECT_STR(e.msg, "line 1, column 10: too many values");
    arena_free(a);

    a = arena_new(1000);
    EXPECT_EQ(json_parse(&j, STR("[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]"), a, NULL, &e), -1);
    EXPECT_EQ((int)e.code, ERR_MEMORY);
    arena_free(a);
}

static void million_brackets_are_safe(void)
{
    size_t n = 1000000;
    char *text = xmalloc(n);
    struct json_limits l = { .max_depth = UINT32_MAX, .max_nodes = UINT32_MAX };
    struct json *j = NULL;
    struct err e = { 0 };
    struct arena *a = arena_new(GB);

    memset(text, '[', n);
    EXPECT_EQ(json_parse(&j, (struct str){ text, n }, a, &json_limits_default, &e), -1);
    EXPECT_EQ((int)e.code, ERR_TOO_LARGE);
    /* no recursion, so no stack overflow */
    EXPECT_EQ(json_parse(&j, (struct str){ text, n }, a, &l, &e), -1);
    EXPECT_EQ((int)e.code, ERR_SYNTAX);
    memset(text + n / 2, ']', n / 2);
    EXPECT_EQ(json_parse(&j, (struct str){ text, n }, a, &l, &e), 0);
    arena_free(a);
    mem_free(text);
}

static void integers_are_exact(void)
{
    static const struct {
        const char *text;
        bool ok;
        int64_t want;
    } rows[] = {
        { "0", true, 0 },
        { "-0", true, 0 },
        { "9007199254740993", true, 9007199254740993 },
        { "9223372036854775807", true, INT64_MAX },
        { "-9223372036854775808", true, INT64_MIN },
        { "9223372036854775808", false, 0 },
        { "-9223372036854775809", false, 0 },
        { "1e3", true, 1000 },
        { "2.0", true, 2 },
        { "1.5e1", true, 15 },
        { "1.5", false, 0 },
        { "150e-1", true, 15 },
        { "155e-1", false, 0 },
        { "9007199254740993.0", true, 9007199254740993 },
        { "0.0000000000000000000000000000", true, 0 },
        { "1e19", false, 0 },
        { "1e18", true, 1000000000000000000 },
        { "-1e0", true, -1 },
        { "1e999999999999999999999", false, 0 },
        { "0e999999999999", true, 0 },
        { "1e-999999999999", false, 0 },
        { "-9.223372036854775808e18", true, INT64_MIN },
        { "9.223372036854775808e18", false, 0 },
        { "99999999999999999999.5", false, 0 },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int64_t v = -77;
        bool ok = json_i64(parse_text(rows[i].text), &v);
        if (ok != rows[i].ok)
            fprintf(stderr, "row %s\n", rows[i].text);
        EXPECT_EQ(ok, rows[i].ok);
        EXPECT_EQ(v, ok ? rows[i].want : -77);
    }
    int64_t v;
    EXPECT(!json_i64(parse_text("\"1\""), &v));
    EXPECT(!json_i64(NULL, &v));
}

static void doubles_equal_strtod(void)
{
    static const char *const texts[] = { "0.1", "1e22", "1e23", "123456789012345678",
        "1.7976931348623157e308", "5e-324", "2.2250738585072014e-308", "0.30000000000000004",
        "1e-22", "-1.5e-5", "9007199254740993",
        "0.000000000000000000000000000000000000000000000000000000000000000001" };
    double d;

    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        EXPECT(json_f64(parse_text(texts[i]), &d));
        EXPECT_EQ(d, strtod(texts[i], NULL));
    }
    EXPECT(!json_f64(parse_text("1e400"), &d));
    EXPECT(!json_f64(parse_text("\"1\""), &d));
    EXPECT(json_f64(parse_text("-0.0"), &d) && d == 0 && signbit(d));
}

static const char *write_f64(double v)
{
    struct buf b;
    struct jw w;

    buf_init(&b, 1000);
    jw_init(&w, &b);
    jw_f64(&w, v);
    z(buf_str(&b));
    buf_clear(&b);
    return written;
}

static const char *write_f32(float v)
{
    struct buf b;
    struct jw w;

    buf_init(&b, 1000);
    jw_init(&w, &b);
    jw_f32(&w, v);
    z(buf_str(&b));
    buf_clear(&b);
    return written;
}

static void numbers_are_written_in_common_notation(void)
{
    EXPECT_STR(write_f64(0.1), "0.1");
    EXPECT_STR(write_f64(1), "1");
    EXPECT_STR(write_f64(-0.0), "-0");
    EXPECT_STR(write_f64(100), "100");
    EXPECT_STR(write_f64(0.30000000000000004), "0.30000000000000004");
    EXPECT_STR(write_f64(1e21), "1e+21");
    EXPECT_STR(write_f64(1e20), "100000000000000000000");
    EXPECT_STR(write_f64(123456789012345680000.0), "123456789012345680000");
    EXPECT_STR(write_f64(1.5e-7), "1.5e-7");
    EXPECT_STR(write_f64(0.0000015), "0.0000015");
    EXPECT_STR(write_f64(5e-324), "5e-324");
    EXPECT_STR(write_f64(1.7976931348623157e308), "1.7976931348623157e+308");
    EXPECT_STR(write_f64(1.0 / 3), "0.3333333333333333");
    EXPECT_STR(write_f64(NAN), "null");
    EXPECT_STR(write_f64(INFINITY), "null");
    EXPECT_STR(write_f32(0.1f), "0.1");
    EXPECT_STR(write_f32(0.7f), "0.7");
    EXPECT_STR(write_f32(-9999.0f), "-9999");
    EXPECT_STR(write_f32(16777216.0f), "16777216");
    EXPECT_STR(write_f32(3.4028235e38f), "3.4028235e+38");
    EXPECT_STR(write_f32(1e-45f), "1e-45");
    EXPECT_STR(write_f32(-INFINITY), "null");
}

/* Number of significant digits of a number in text form. */
static int n_digits(const char *s)
{
    int n = 0, zeros = 0;

    for (; *s && *s != 'e'; s++) {
        if (*s < '0' || *s > '9' || (*s == '0' && !n))
            continue;
        zeros = *s == '0' ? zeros + 1 : 0;
        n++;
    }
    return n - zeros;
}

static int shortest_f64(double v)
{
    char text[40];

    for (int p = 1; p < 17; p++) {
        snprintf(text, sizeof(text), "%.*e", p - 1, v);
        if (strtod(text, NULL) == v)
            return n_digits(text);
    }
    return 17;
}

static int shortest_f32(float v)
{
    char text[40];

    for (int p = 1; p < 9; p++) {
        snprintf(text, sizeof(text), "%.*e", p - 1, (double)v);
        if (strtof(text, NULL) == v)
            return n_digits(text);
    }
    return 9;
}

static void numbers_are_shortest_and_read_back(void)
{
    struct rng r = { .key = 20261121 };

    printf("seed %llu\n", (unsigned long long)r.key);
    for (int i = 0; i < 60000; i++) {
        double d;
        float f;
        uint64_t bits = rng_next(&r);
        uint32_t half = (uint32_t)rng_next(&r);
        switch (i % 4) {
        case 0:
            memcpy(&d, &bits, 8);
            memcpy(&f, &half, 4);
            break;
        case 1:
            d = -20 * rng_next_unit(&r);
            f = (float)d;
            break;
        case 2:
            d = (double)(bits % 1000000) / 1000;
            f = (float)d;
            break;
        default:
            d = ldexp(rng_next_unit(&r), (int)(bits % 80) - 40);
            f = (float)d;
        }
        if (isfinite(d)) {
            EXPECT_EQ(strtod(write_f64(d), NULL), d);
            EXPECT(n_digits(written) <= MAX(shortest_f64(d), 1));
        }
        if (isfinite(f)) {
            EXPECT_EQ(strtof(write_f32(f), NULL), f);
            if (n_digits(written) > MAX(shortest_f32(f), 1))
                fprintf(stderr, "%.9g is not %s\n", (double)f, written);
            EXPECT(n_digits(written) <= MAX(shortest_f32(f), 1));
        }
    }
}

static void the_writer_puts_commas(void)
{
    struct buf b;
    struct jw w;

    buf_init(&b, 1000);
    jw_init(&w, &b);
    jw_object(&w);
    jw_key(&w, "a");
    jw_array(&w);
    jw_i64(&w, INT64_MIN);
    jw_u64(&w, UINT64_MAX);
    jw_array(&w);
    jw_end_array(&w);
    jw_object(&w);
    jw_end_object(&w);
    jw_bool(&w, true);
    jw_null(&w);
    jw_end_array(&w);
    jw_key(&w, "b\"");
    jw_z(&w, "x\ny");
    jw_key(&w, "c");
    jw_z(&w, NULL);
    jw_key(&w, "d");
    jw_raw(&w, STR("{\"e\":1}"));
    jw_end_object(&w);
    EXPECT_STR(z(buf_str(&b)), "{\"a\":[-9223372036854775808,18446744073709551615,[],{},true,null],"
                               "\"b\\\"\":\"x\\ny\",\"c\":null,\"d\":{\"e\":1}}");
    buf_clear(&b);
}

static void invalid_utf8_is_replaced(void)
{
    struct buf b;

    buf_init(&b, 1000);
    json_escape(&b, STR("a\xFF\xC3\xA9\xE2\x82z\x01\x1F\x7F\"\\/\b\f\n\r\t"));
    EXPECT_STR(z(buf_str(&b)), "a\xEF\xBF\xBD\xC3\xA9\xEF\xBF\xBD\xEF\xBF\xBDz\\u0001\\u001f\x7F"
                               "\\\"\\\\/\\b\\f\\n\\r\\t");
    buf_clear(&b);
}

/* Any bytes: the writer's output parses back to the same text. */
static void written_text_is_parsed_back(void)
{
    struct rng r = { .key = 7 };
    char text[100];
    struct buf b;
    struct jw w;

    buf_init(&b, MB);
    for (int i = 0; i < 5000; i++) {
        size_t n = rng_below(&r, sizeof(text));
        for (size_t k = 0; k < n; k++)
            text[k] = (char)(rng_below(&r, 3) ? rng_below(&r, 128) : rng_below(&r, 40));
        buf_reset(&b);
        jw_init(&w, &b);
        jw_str(&w, (struct str){ text, n });
        struct json *j = NULL;
        struct err e = { 0 };
        struct arena *a = arena_new(MB);
        EXPECT_EQ(json_parse(&j, buf_str(&b), a, NULL, &e), 0);
        EXPECT(str_eq(j->s, (struct str){ text, n }));
        arena_free(a);
    }
    buf_clear(&b);
}

static void a_tree_is_written_compact(void)
{
    struct buf b;
    struct jw w;

    buf_init(&b, 1000);
    jw_init(&w, &b);
    jw_array(&w);
    jw_json(&w, parse_text("{ \"a\" : [ 1.10 , 9007199254740993,\n\"\\u00e9\" ] ,"
                           "\"b\":{},\"c\":[true,null]}"));
    jw_json(&w, NULL);
    jw_end_array(&w);
    EXPECT_STR(z(buf_str(&b)),
        "[{\"a\":[1.10,9007199254740993,\"\xC3\xA9\"],\"b\":{},\"c\":[true,null]},null]");
    buf_clear(&b);
}

static void equality_is_of_values(void)
{
    static const struct {
        const char *both;
        bool want;
    } rows[] = {
        { "[{\"a\":1,\"b\":2},{\"b\":2,\"a\":1}]", true },
        { "[{\"a\":1,\"b\":2},{\"b\":2,\"a\":2}]", false },
        { "[{\"a\":1,\"a\":2},{\"a\":2}]", true },
        { "[{\"a\":1},{\"a\":1,\"b\":null}]", false },
        { "[1,1.0]", true },
        { "[1e2,100]", true },
        { "[1,true]", false },
        { "[0.1,1e-1]", true },
        { "[9007199254740993,9007199254740992]", false },
        { "[99999999999999999999,99999999999999999998]", false },
        { "[99999999999999999999,99999999999999999999]", true },
        { "[[1,2],[1,2]]", true },
        { "[[1,2],[2,1]]", false },
        { "[[1],[1,1]]", false },
        { "[\"\\u0041\",\"A\"]", true },
        { "[null,false]", false },
        { "[null,null]", true },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct json *j = parse_text(rows[i].both);
        EXPECT_EQ(json_equal(j->child, j->child->next), rows[i].want);
    }
}

static void every_failed_allocation_is_reported(void)
{
    int n = 0;

    for (;; n++) {
        struct json *j = NULL;
        struct err e = { 0 };
        mem_fail_after((uint64_t)n + 1);
        struct arena *a = arena_new(MB);
        int rc = -1;
        if (a)
            rc = json_parse(
                &j, STR("{\"a\\n\":[1,2,3,4,5,6,7,8,9,10],\"b\":\"\\u0041\"}"), a, NULL, &e);
        mem_fail_after(0);
        arena_free(a);
        if (!rc)
            break;
        EXPECT(!a || e.code == ERR_MEMORY);
    }
    EXPECT(n >= FAULTS_AT_LEAST(2));
}

static bool read_file(const char *path, struct buf *b)
{
    FILE *f = fopen(path, "rb");
    size_t n;

    if (!f)
        return false;
    do {
        char *to = buf_reserve(b, 65536);
        n = fread(to, 1, 65536, f);
        b->n += n;
    } while (n);
    fclose(f);
    return true;
}

/* Files of the JSONTestSuite: y_ must parse, n_ must not, i_ may do either. */
static void the_json_test_suite_behaves(void)
{
    const char *shared = getenv("SHARED_DATA");
    char dir[1000], path[1400];
    int n = 0;

    snprintf(dir, sizeof(dir), "%s/json-bodies/test_parsing", shared ? shared : "../shared/data");
    DIR *d = opendir(dir);
    if (!d) {
        printf("skipped: no %s\n", dir);
        return;
    }
    for (struct dirent *f = readdir(d); f; f = readdir(d)) {
        struct buf b;
        struct json *j = NULL;
        struct err e = { 0 };
        if (!strchr("yni", f->d_name[0]) || f->d_name[1] != '_')
            continue;
        snprintf(path, sizeof(path), "%s/%s", dir, f->d_name);
        buf_init(&b, 16 * MB);
        EXPECT(read_file(path, &b));
        struct arena *a = arena_new(64 * MB);
        int rc = json_parse(&j, buf_str(&b), a, &json_limits_default, &e);
        if ((f->d_name[0] == 'y' && rc) || (f->d_name[0] == 'n' && !rc))
            fprintf(stderr, "%s: %d %s\n", f->d_name, rc, e.msg);
        EXPECT(f->d_name[0] != 'y' || rc == 0);
        EXPECT(f->d_name[0] != 'n' || rc == -1);
        arena_free(a);
        buf_clear(&b);
        n++;
    }
    closedir(d);
    printf("%d bodies\n", n);
    EXPECT(n > 250);
}

/* A copy remains equal after the tree, its arena and its text are gone. */
static void a_copy_owns_its_memory(void)
{
    static const char source[] =
        " {\"a\" : [1.50, \"plain\", \"\\u0041\", {\"k\":null,\"k\":true}, [], \"\"]} ";
    struct arena *a = arena_new(MB), *to = arena_new(MB);
    struct json *tree, *extra, *copy;
    struct buf before, after;
    struct jw w;
    struct err e;

    buf_init(&before, MB);
    buf_init(&after, MB);
    struct str text = arena_str(a, str_of(source));
    EXPECT_EQ(json_parse(&tree, text, a, NULL, &e), 0);
    /* a member of another text, as in a tree that the program has changed */
    EXPECT_EQ(json_parse(&extra, arena_str(a, STR("{\"x\":\"other\"}")), a, NULL, &e), 0);
    extra->key = STR("added");
    struct json **tail = &tree->child->next;
    json_append(tree, &tail, extra);
    jw_init(&w, &before);
    jw_json(&w, tree);
    copy = json_copy(tree, to);
    EXPECT(copy && json_equal(copy, tree));
    size_t n_raw = tree->raw.n;
    memset((char *)(uintptr_t)text.p, '#', text.n);
    arena_free(a);
    jw_init(&w, &after);
    jw_json(&w, copy);
    EXPECT(str_eq(buf_str(&before), buf_str(&after)));
    EXPECT_EQ(copy->raw.n, n_raw);
    EXPECT(str_starts(copy->raw, STR("{\"a\" : [1.50")));
    EXPECT(str_is(copy->child->child->raw, "1.50") && !copy->child->next->raw.p && !copy->next);
    arena_free(to);
    buf_clear(&before);
    buf_clear(&after);

    to = arena_new(300); /* no room for all */
    a = arena_new(MB);
    EXPECT_EQ(json_parse(&tree, str_of(source), a, NULL, &e), 0);
    EXPECT(!json_copy(tree, to));
    arena_free(to);
    arena_free(a);
}

TESTS(TEST(a_copy_owns_its_memory), TEST(values_have_their_kind),
    TEST(members_keep_order_and_duplicates), TEST(escapes_are_decoded),
    TEST(errors_contain_the_position), TEST(limits_hold),
    TEST(infinity_is_read_as_a_string_if_it_is_allowed), TEST(million_brackets_are_safe),
    TEST(integers_are_exact), TEST(doubles_equal_strtod),
    TEST(numbers_are_written_in_common_notation), TEST(numbers_are_shortest_and_read_back),
    TEST(the_writer_puts_commas), TEST(invalid_utf8_is_replaced), TEST(written_text_is_parsed_back),
    TEST(a_tree_is_written_compact), TEST(equality_is_of_values),
    TEST(every_failed_allocation_is_reported), TEST(the_json_test_suite_behaves))
