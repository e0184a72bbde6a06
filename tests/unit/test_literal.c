/* chat/literal.h, coerce.h, marks.h: Python's literals as JSON, text by schema, markers. */
#include "output/coerce.h"
#include "output/literal.h"
#include "base/marks.h"
#include "../check.h"

/* Cut in every size of piece: the same. `used` < 0: the whole text, and complete at its end. */
static void expect(const char *quote, const char *text, int used, const char *want)
{
    for (size_t step = 1; step <= 64; step += 3) {
        struct literal l;
        struct buf out;
        enum walk is = WALK_MORE;
        size_t at = 0, n = strlen(text);
        buf_init(&out, MB);
        literal_init(&l, str_of(quote), quote[0] != 0);
        while (at < n && is == WALK_MORE)
            at += literal_put(&l, (struct str){ text + at, MIN(step, n - at) }, &out, &is);
        bool is_complete = is == WALK_DONE || (is == WALK_MORE && literal_end(&l, &out));
        EXPECT_EQ(at, used < 0 ? n : (size_t)used);
        EXPECT(is_complete == (want != NULL));
        if (want && !str_is(buf_str(&out), want))
            fprintf(stderr, "%s: " STR_FMT "\n", text, STR_ARG(out));
        EXPECT(!want || str_is(buf_str(&out), want));
        literal_clear(&l);
        buf_clear(&out);
    }
}

static void literals_become_json(void)
{
    expect("", "True,", 4, "true");
    expect("", "None", -1, "null");
    expect("", "[1, 2.5, -3e5, +7, .5, 6., 1_000]", -1, "[1,2.5,-3e5,7,0.5,6.0,1000]");
    expect("", "(1, 'a',)", -1, "[1,\"a\"]");
    expect("", "{'a': {\"b\": []}, 3: False,}", -1, "{\"a\":{\"b\":[]},\"3\":false}");
    expect("", "{}", -1, "{}");
    expect("", "''", -1, "\"\"");
    expect("", "'''a'b''c'''", -1, "\"a'b''c\"");
    expect("", "\"\"\"say \"x\" \"\"\"", -1, "\"say \\\"x\\\" \"");
    expect("", "'it\\'s \"q\" \\n\\t\\\\ \\x41\\u00e9\\U0001F600\\101\\d'", -1,
        "\"it's \\\"q\\\" \\n\\t\\\\ A\\u00e9\xF0\x9F\x98\x80"
        "A\\\\d\"");
    expect("", "'\\ud83d\\ude00\\ud83d'", -1, "\"\\ud83d\\ude00\\ufffd\"");
    expect("", "'a\\\nb\nc'", -1, "\"ab\\nc\"");
}

static void what_is_no_literal_ends_where_it_goes_wrong(void)
{
    expect("", "foo(1)", 3, NULL);
    expect("", "f'x'", 1, NULL);
    expect("", "[1 2]", 3, NULL);
    expect("", "{1, 2}", 2, NULL);
    expect("", "[1)", 2, NULL);
    expect("", "{[1]: 2}", 1, NULL);
    expect("", "'\\xg'", 3, NULL);
    expect("", "1.2.3]", 5, NULL);
    expect("", "'abc", 4, NULL);
    expect("", "[1,", 3, NULL);
    expect("", "{,}", 1, NULL);
}

static void a_dialect_has_its_own_quotes_and_bare_keys(void)
{
    static const char q[] = "<|\"|>";

    expect(q, "{a:<|\"|>x \"y\" \\n<|z<|\"|>,b_c:[1,true]}", -1,
        "{\"a\":\"x \\\"y\\\" \\\\n<|z\",\"b_c\":[1,true]}");
    expect(q, "<|\"|><|\"|>", -1, "\"\"");
    expect(q, "{<|\"|>k k<|\"|>:'v'}", -1, "{\"k k\":\"v\"}");
    expect(q, "<|x", 2, NULL);
    expect("<escape>", "<escape>a<b<<escape>", -1, "\"a<b<\"");
}

static void too_deep_is_no_literal(void)
{
    struct literal l;
    struct buf out;
    enum walk is = WALK_MORE;
    uint32_t n = 0;

    buf_init(&out, 4 * MB);
    literal_init(&l, STR(""), false);
    while (is == WALK_MORE && n <= LITERAL_DEPTH_MAX)
        n += (uint32_t)literal_put(&l, STR("["), &out, &is);
    EXPECT(is == WALK_BAD && n == LITERAL_DEPTH_MAX);
    literal_clear(&l);
    buf_clear(&out);
}

/* ---- coerce ---- */

static void coerced(const char *text, unsigned types, const char *want)
{
    struct buf out;

    buf_init(&out, MB);
    coerce_put(&out, str_of(text), types);
    if (!str_is(buf_str(&out), want))
        fprintf(stderr, "%s (%u): " STR_FMT "\n", text, types, STR_ARG(out));
    EXPECT(str_is(buf_str(&out), want));
    buf_clear(&out);
}

static void text_becomes_what_the_schema_says(void)
{
    coerced("5", 0, "5");
    coerced(" five ", 0, "\" five \"");
    coerced("\"quoted\"", 0, "\"quoted\"");
    coerced("", 0, "\"\"");
    coerced("5", TYPE_STRING, "\"5\"");
    coerced("\"q\"", TYPE_STRING, "\"\\\"q\\\"\"");
    coerced("null", TYPE_STRING, "\"null\"");
    coerced("null", TYPE_STRING | TYPE_NULL, "null");
    coerced("null", TYPE_NUMBER, "null");
    coerced("5", TYPE_STRING | TYPE_NUMBER, "5");
    coerced("5", TYPE_BOOLEAN, "\"5\"");
    coerced("True", TYPE_BOOLEAN, "true");
    coerced("True", TYPE_STRING | TYPE_BOOLEAN, "\"True\"");
    coerced(" {\"a\": 1}\n", TYPE_OBJECT, "{\"a\": 1}");
    coerced("{'a': None}", TYPE_OBJECT, "{\"a\":null}");
    coerced("[1, 2", TYPE_ARRAY, "\"[1, 2\"");
    coerced("1 2", TYPE_NUMBER, "\"1 2\"");
    coerced("\"5\"", TYPE_NUMBER, "\"5\"");
}

static unsigned types_of(const char *property)
{
    struct arena *a = arena_new(MB);
    struct json *j = NULL;
    struct err e;
    char text[512];

    snprintf(text, sizeof(text), "{\"properties\":{\"p\":%s}}", property);
    EXPECT(a && !json_parse(&j, str_of(text), a, NULL, &e));
    unsigned types = tool_argument_types(j, STR("p"));
    EXPECT(!tool_argument_types(j, STR("q")));
    arena_free(a);
    return types;
}

static void a_schema_is_taken_as_it_comes(void)
{
    EXPECT(types_of("{\"type\":\"integer\"}") == TYPE_NUMBER);
    EXPECT(types_of("{\"type\":[\"string\",\"null\"]}") == (TYPE_STRING | TYPE_NULL));
    EXPECT(types_of("{\"enum\":[\"a\",1]}") == (TYPE_STRING | TYPE_NUMBER));
    EXPECT(types_of("{\"const\":true}") == TYPE_BOOLEAN);
    EXPECT(types_of("{\"anyOf\":[{\"type\":\"array\"},{\"type\":\"object\"}]}") ==
           (TYPE_ARRAY | TYPE_OBJECT));
    EXPECT(types_of("{\"oneOf\":[{\"type\":\"array\"},{\"$ref\":\"#/x\"}]}") == 0);
    EXPECT(types_of("{\"type\":\"any\"}") == 0);
    EXPECT(types_of("{\"type\":7,\"enum\":{},\"anyOf\":3}") == 0);
    EXPECT(types_of("[1]") == 0 && types_of("null") == 0);
    EXPECT(tool_argument_types(NULL, STR("p")) == 0);
}

static void tools_are_found_in_all_their_shapes(void)
{
    struct arena *a = arena_new(MB);
    struct json *j = NULL;
    struct err e;

    EXPECT(a && !json_parse(&j,
                    STR("[3,{\"function\":\"x\"},{\"function\":{\"name\":\"f\",\"parameters\":"
                        "{\"properties\":{\"a\":{},\"b\":{}}}}},{\"name\":\"g\",\"input_schema\":"
                        "{\"properties\":[]}},{\"name\":\"h\"}]"),
                    a, NULL, &e));
    EXPECT(str_is(tool_argument_at(tool_schema(j, STR("f")), 1), "b"));
    EXPECT(!tool_argument_at(tool_schema(j, STR("f")), 2).p);
    EXPECT(tool_schema(j, STR("g")) && !tool_argument_at(tool_schema(j, STR("g")), 0).p);
    EXPECT(!tool_schema(j, STR("h")) && !tool_schema(j, STR("i")) && !tool_schema(NULL, STR("f")));
    EXPECT(!tool_schema(j->child, STR("f")));
    arena_free(a);
}

/* ---- marks ---- */

static void marks_agree_with_the_definition_on_random_texts(void)
{
    enum { SEED = 5, ROUNDS = 2000 };
    static const struct str strings[] = { { "aab", 3 }, { "abab", 4 }, { "b", 1 }, { "cab", 3 },
        { "\xE2\x97\x81", 3 } };
    struct arena *a = arena_new(MB);
    struct marks *m = marks_new(a, strings, ARRAY_LEN(strings));
    uint64_t x = SEED;

    EXPECT(a && m);
    printf("seed %d\n", SEED);
    for (int round = 0; round < ROUNDS; round++) {
        char text[20];
        uint16_t at = MARKS_ROOT;
        for (size_t i = 0; i < sizeof(text); i++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            text[i] = "abc\xE2\x97\x81"[(x >> 40) % 6];
            at = marks_step(m, at, text[i]);
            struct str so_far = { text, i + 1 };
            int want = -1;
            size_t depth = 0;
            for (int k = 0; k < (int)ARRAY_LEN(strings); k++) {
                if (str_ends(so_far, strings[k]) && (want < 0 || strings[k].n > strings[want].n))
                    want = k;
                for (size_t n = 1; n <= strings[k].n; n++)
                    if (str_ends(so_far, (struct str){ strings[k].p, n }))
                        depth = MAX(depth, n);
            }
            EXPECT_EQ(marks_hit(m, at), want);
            EXPECT(marks_depth(m, at) == depth);
            EXPECT(str_ends(so_far, marks_held(m, at)));
        }
    }
    static const char skipped[] = "xyza";
    EXPECT(marks_skip(m, skipped, skipped + 4) == skipped + 3);
    arena_free(a);
}

TESTS(TEST(literals_become_json), TEST(what_is_no_literal_ends_where_it_goes_wrong),
    TEST(a_dialect_has_its_own_quotes_and_bare_keys), TEST(too_deep_is_no_literal),
    TEST(text_becomes_what_the_schema_says), TEST(a_schema_is_taken_as_it_comes),
    TEST(tools_are_found_in_all_their_shapes),
    TEST(marks_agree_with_the_definition_on_random_texts))
