/* chat/json_walk.h and json_text.h: agrees with the strict parser on what is JSON, byte by byte. */
#include "output/json_walk.h"
#include "base/json.h"
#include "base/utf8.h"
#include "../check.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

struct outcome {
    enum walk is;
    size_t used;
    struct buf out;
};

static struct outcome walk(struct str text, size_t step)
{
    struct outcome o = { .is = WALK_MORE };
    struct json_walk w;

    buf_init(&o.out, 16 * MB);
    json_walk_init(&w);
    while (o.used < text.n && o.is == WALK_MORE) {
        struct str in = { text.p + o.used, MIN(step, text.n - o.used) };
        size_t used = json_walk_put(&w, in, &o.out, &o.is);
        EXPECT(used == in.n || o.is != WALK_MORE);
        o.used += used;
    }
    if (o.is == WALK_MORE && json_walk_end(&w))
        o.is = WALK_DONE;
    json_walk_clear(&w);
    return o;
}

/* Whole and byte by byte; what comes out is what went in, mended. */
static void expect(const char *text, enum walk is, size_t used, const char *out)
{
    for (size_t step = 1; step <= 64; step += 7) {
        struct outcome o = walk(str_of(text), step);
        EXPECT(o.is == is && o.used == used);
        EXPECT(str_is(buf_str(&o.out), out));
        buf_clear(&o.out);
    }
}

static void a_value_ends_where_it_ends(void)
{
    expect(
        "{\"a\": [1, -2.5e+3, true, null]} x", WALK_DONE, 31, "{\"a\": [1, -2.5e+3, true, null]}");
    expect(" [] ]", WALK_DONE, 3, " []");
    expect("12,", WALK_DONE, 2, "12");
    expect("12", WALK_DONE, 2, "12");
    expect("-0.5e7 ", WALK_DONE, 6, "-0.5e7");
    expect("\"a\"b", WALK_DONE, 3, "\"a\"");
    expect("false", WALK_DONE, 5, "false");
}

static void what_is_not_json_ends_at_its_first_byte(void)
{
    expect("{\"a\" 1}", WALK_BAD, 5, "{\"a\" ");
    expect("{a", WALK_BAD, 1, "{");
    expect("[1,]", WALK_BAD, 3, "[1,");
    expect("[1}", WALK_BAD, 2, "[1");
    expect("{\"a\":1]", WALK_BAD, 6, "{\"a\":1");
    expect("01", WALK_DONE, 1, "0");
    expect("[01]", WALK_BAD, 2, "[0");
    expect("1.x", WALK_BAD, 2, "1.");
    expect("1e+x", WALK_BAD, 3, "1e+");
    expect("-x", WALK_BAD, 1, "-");
    expect("trux", WALK_BAD, 3, "tru");
    expect("\"\\x\"", WALK_BAD, 2, "\"");
    expect("\"\\u12g4\"", WALK_BAD, 5, "\"");
    expect("{\"a\":1,}", WALK_BAD, 7, "{\"a\":1,");
}

static void what_is_cut_off_is_not_done(void)
{
    static const char *const texts[] = { "", "{", "[1", "\"a", "\"\\", "\"\\u00", "-", "1.", "1e",
        "tr", "{\"a\"", "{\"a\":" };

    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct outcome o = walk(str_of(texts[i]), 64);
        EXPECT(o.is == WALK_MORE);
        buf_clear(&o.out);
    }
}

static void strings_are_mended(void)
{
    expect("\"a\nb\x01\"", WALK_DONE, 6, "\"a\\nb\\u0001\"");
    expect("\"\\ud83d\\ude00\"", WALK_DONE, 14, "\"\\ud83d\\ude00\"");
    expect("\"\\ud83d\"", WALK_DONE, 8, "\"\\ufffd\"");
    expect("\"\\ud83dx\\n\"", WALK_DONE, 11, "\"\\ufffdx\\n\"");
    expect("\"\\ud83d\\n\"", WALK_DONE, 10, "\"\\ufffd\\n\"");
    expect("\"\\ude00\\ud83d\\ud83d\\ude00\"", WALK_DONE, 26, "\"\\ufffd\\ufffd\\ud83d\\ude00\"");
    expect("\"\\u00E9\\/\"", WALK_DONE, 10, "\"\\u00e9\\/\"");
}

static void as_deep_as_the_limit_and_no_deeper(void)
{
    char *text = malloc(WALK_DEPTH_MAX + 1);
    struct json_walk w;
    enum walk is;

    EXPECT(text);
    memset(text, '[', WALK_DEPTH_MAX + 1);
    json_walk_init(&w);
    EXPECT(json_walk_put(&w, (struct str){ text, WALK_DEPTH_MAX }, NULL, &is) == WALK_DEPTH_MAX);
    EXPECT(is == WALK_MORE);
    EXPECT(json_walk_put(&w, (struct str){ text, 1 }, NULL, &is) == 0);
    EXPECT(is == WALK_BAD);
    json_walk_begin(&w);
    EXPECT(json_walk_put(&w, STR("[[]]"), NULL, &is) == 4 && is == WALK_DONE);
    json_walk_clear(&w);
    free(text);
}

/* What the strict parser accepts, the walk does, and what the walk calls done the parser accepts
 * after mending. */
static void agree(struct str text)
{
    struct arena *a = arena_new(64 * MB);
    static const struct json_limits deep = { 1 << 20, 1 << 22 };
    struct json *j;
    struct err e;
    struct outcome o = walk(text, 5);
    struct str rest = str_trim(str_skip(text, o.used));

    EXPECT(a);
    bool is_json = !json_parse(&j, text, a, &deep, &e);
    if (is_json)
        EXPECT(o.is == WALK_DONE && !rest.n && buf_ok(&o.out));
    if (o.is == WALK_DONE && utf8_valid(text))
        EXPECT(!json_parse(&j, buf_str(&o.out), a, &deep, &e));
    buf_clear(&o.out);
    arena_free(a);
}

static void agrees_with_the_strict_parser_on_random_texts(void)
{
    enum { SEED = 3, ROUNDS = 20000 };
    static const char bytes[] = "{}[]\",:\\u0dE-+.1etrufalsn x\n";
    uint64_t x = SEED;

    printf("seed %d\n", SEED);
    for (int round = 0; round < ROUNDS; round++) {
        char text[16];
        for (size_t i = 0; i < sizeof(text); i++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            text[i] = bytes[(x >> 40) % (sizeof(bytes) - 1)];
        }
        agree((struct str){ text, 1 + (x >> 20) % sizeof(text) });
    }
}

static void agrees_with_the_strict_parser_on_the_test_suite(void)
{
    const char *shared = getenv("SHARED_DATA");
    char path[512], *text = malloc(MB);
    int n = 0;

    snprintf(path, sizeof(path), "%s/json-bodies/test_parsing", shared ? shared : "../shared/data");
    DIR *d = opendir(path);
    for (struct dirent *f; d && (f = readdir(d));) {
        char file[1024];
        snprintf(file, sizeof(file), "%s/%s", path, f->d_name);
        FILE *in = strstr(f->d_name, ".json") ? fopen(file, "rb") : NULL;
        if (!in)
            continue;
        agree((struct str){ text, fread(text, 1, MB, in) });
        fclose(in);
        n++;
    }
    if (d)
        closedir(d);
    printf("%d files%s\n", n, d ? "" : ": no test data, skipped");
    EXPECT(!d || n > 200);
    free(text);
}

static void a_string_is_read_in_pieces(void)
{
    static const char text[] = "a\\n\\u00e9\\ud83d\\ude00\\ud83d\xC3\xA9\\\"\nb\"x";
    static const char want[] = "a\n\xC3\xA9\xF0\x9F\x98\x80\xEF\xBF\xBD\xC3\xA9\"\nb";

    for (size_t step = 1; step < 8; step++) {
        struct json_string s = { JSON_STRING_PLAIN };
        struct buf out;
        size_t at = 0;
        buf_init(&out, MB);
        while (s.state != JSON_STRING_END) {
            struct str in = { text + at, MIN(step, sizeof(text) - 1 - at) };
            size_t used = json_string_step(&s, in, &out);
            EXPECT(used > 0);
            at += used;
        }
        EXPECT(at == sizeof(text) - 2);
        EXPECT(str_is(buf_str(&out), want));
        buf_clear(&out);
    }
}

TESTS(TEST(a_value_ends_where_it_ends), TEST(what_is_not_json_ends_at_its_first_byte),
    TEST(what_is_cut_off_is_not_done), TEST(strings_are_mended),
    TEST(as_deep_as_the_limit_and_no_deeper), TEST(agrees_with_the_strict_parser_on_random_texts),
    TEST(agrees_with_the_strict_parser_on_the_test_suite), TEST(a_string_is_read_in_pieces))
