/* output/json_walk.h and json_text.h: incremental JSON validation agrees with the strict parser
 * for every byte. */
#include "output/json_walk.h"
#include "base/json.h"
#include "base/utf8.h"
#include "support/check.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

struct outcome {
    enum walk_result is;
    size_t used;
    struct buf out;
};

static struct outcome walk_in_pieces(struct str text, size_t step)
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

/* For several piece sizes, the output equals the input with repaired strings. */
static void expect_walk(const char *text, enum walk_result is, size_t used, const char *out)
{
    for (size_t step = 1; step <= 64; step += 7) {
        struct outcome o = walk_in_pieces(str_of(text), step);
        EXPECT(o.is == is && o.used == used);
        EXPECT(str_is(buf_str(&o.out), out));
        buf_clear(&o.out);
    }
}

static void value_ends_at_its_last_byte(void)
{
    expect_walk(
        "{\"a\": [1, -2.5e+3, true, null]} x", WALK_DONE, 31, "{\"a\": [1, -2.5e+3, true, null]}");
    expect_walk(" [] ]", WALK_DONE, 3, " []");
    expect_walk("12,", WALK_DONE, 2, "12");
    expect_walk("12", WALK_DONE, 2, "12");
    expect_walk("-0.5e7 ", WALK_DONE, 6, "-0.5e7");
    expect_walk("\"a\"b", WALK_DONE, 3, "\"a\"");
    expect_walk("false", WALK_DONE, 5, "false");
}

static void invalid_json_ends_at_its_first_wrong_byte(void)
{
    expect_walk("{\"a\" 1}", WALK_BAD, 5, "{\"a\" ");
    expect_walk("{a", WALK_BAD, 1, "{");
    expect_walk("[1,]", WALK_BAD, 3, "[1,");
    expect_walk("[1}", WALK_BAD, 2, "[1");
    expect_walk("{\"a\":1]", WALK_BAD, 6, "{\"a\":1");
    expect_walk("01", WALK_DONE, 1, "0");
    expect_walk("[01]", WALK_BAD, 2, "[0");
    expect_walk("1.x", WALK_BAD, 2, "1.");
    expect_walk("1e+x", WALK_BAD, 3, "1e+");
    expect_walk("-x", WALK_BAD, 1, "-");
    expect_walk("trux", WALK_BAD, 3, "tru");
    expect_walk("\"\\x\"", WALK_BAD, 2, "\"");
    expect_walk("\"\\u12g4\"", WALK_BAD, 5, "\"");
    expect_walk("{\"a\":1,}", WALK_BAD, 7, "{\"a\":1,");
}

static void truncated_json_is_incomplete(void)
{
    static const char *const texts[] = { "", "{", "[1", "\"a", "\"\\", "\"\\u00", "-", "1.", "1e",
        "tr", "{\"a\"", "{\"a\":" };

    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct outcome o = walk_in_pieces(str_of(texts[i]), 64);
        EXPECT(o.is == WALK_MORE);
        buf_clear(&o.out);
    }
}

static void strings_are_repaired(void)
{
    expect_walk("\"a\nb\x01\"", WALK_DONE, 6, "\"a\\nb\\u0001\"");
    expect_walk("\"\\ud83d\\ude00\"", WALK_DONE, 14, "\"\\ud83d\\ude00\"");
    expect_walk("\"\\ud83d\"", WALK_DONE, 8, "\"\\ufffd\"");
    expect_walk("\"\\ud83dx\\n\"", WALK_DONE, 11, "\"\\ufffdx\\n\"");
    expect_walk("\"\\ud83d\\n\"", WALK_DONE, 10, "\"\\ufffd\\n\"");
    expect_walk(
        "\"\\ude00\\ud83d\\ud83d\\ude00\"", WALK_DONE, 26, "\"\\ufffd\\ufffd\\ud83d\\ude00\"");
    expect_walk("\"\\u00E9\\/\"", WALK_DONE, 10, "\"\\u00e9\\/\"");
}

static void depth_is_limited(void)
{
    char *text = malloc(WALK_DEPTH_MAX + 1);
    struct json_walk w;
    enum walk_result is;

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

/* The walk accepts every text that the strict parser accepts, and repaired output of a complete
 * walk is accepted by the strict parser. */
static void expect_agreement(struct str text)
{
    struct arena *a = arena_new(64 * MB);
    static const struct json_limits deep = { 1 << 20, 1 << 22 };
    struct json *j;
    struct err e;
    struct outcome o = walk_in_pieces(text, 5);
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
        expect_agreement((struct str){ text, 1 + (x >> 20) % sizeof(text) });
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
        expect_agreement((struct str){ text, fread(text, 1, MB, in) });
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

TESTS(TEST(value_ends_at_its_last_byte), TEST(invalid_json_ends_at_its_first_wrong_byte),
    TEST(truncated_json_is_incomplete), TEST(strings_are_repaired), TEST(depth_is_limited),
    TEST(agrees_with_the_strict_parser_on_random_texts),
    TEST(agrees_with_the_strict_parser_on_the_test_suite), TEST(a_string_is_read_in_pieces))
