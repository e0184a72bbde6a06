/* output/literal.h, coerce.h and base/aho_corasick.h: Python literals as JSON, conversion of
 * text by schema, and marker search. */
#include "output/coerce.h"
#include "output/literal.h"
#include "base/aho_corasick.h"
#include "support/check.h"

/* For pieces of any size the result is the same. `used` < 0: the whole text is used, and it is
 * complete at its end. */
static void expect_literal(const char *quote, const char *text, int used, const char *want)
{
    for (size_t step = 1; step <= 64; step += 3) {
        struct literal l;
        struct buf out;
        enum walk_result is = WALK_MORE;
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
    expect_literal("", "True,", 4, "true");
    expect_literal("", "None", -1, "null");
    expect_literal("", "[1, 2.5, -3e5, +7, .5, 6., 1_000]", -1, "[1,2.5,-3e5,7,0.5,6.0,1000]");
    expect_literal("", "(1, 'a',)", -1, "[1,\"a\"]");
    expect_literal("", "{'a': {\"b\": []}, 3: False,}", -1, "{\"a\":{\"b\":[]},\"3\":false}");
    expect_literal("", "{}", -1, "{}");
    expect_literal("", "''", -1, "\"\"");
    expect_literal("", "'''a'b''c'''", -1, "\"a'b''c\"");
    expect_literal("", "\"\"\"say \"x\" \"\"\"", -1, "\"say \\\"x\\\" \"");
    expect_literal("", "'it\\'s \"q\" \\n\\t\\\\ \\x41\\u00e9\\U0001F600\\101\\d'", -1,
        "\"it's \\\"q\\\" \\n\\t\\\\ A\\u00e9\xF0\x9F\x98\x80"
        "A\\\\d\"");
    expect_literal("", "'\\ud83d\\ude00\\ud83d'", -1, "\"\\ud83d\\ude00\\ufffd\"");
    expect_literal("", "'a\\\nb\nc'", -1, "\"ab\\nc\"");
}

static void invalid_literal_ends_at_its_first_wrong_byte(void)
{
    expect_literal("", "foo(1)", 3, NULL);
    expect_literal("", "f'x'", 1, NULL);
    expect_literal("", "[1 2]", 3, NULL);
    expect_literal("", "{1, 2}", 2, NULL);
    expect_literal("", "[1)", 2, NULL);
    expect_literal("", "{[1]: 2}", 1, NULL);
    expect_literal("", "'\\xg'", 3, NULL);
    expect_literal("", "1.2.3]", 5, NULL);
    expect_literal("", "'abc", 4, NULL);
    expect_literal("", "[1,", 3, NULL);
    expect_literal("", "{,}", 1, NULL);
}

static void format_may_have_its_own_quotes_and_bare_keys(void)
{
    static const char q[] = "<|\"|>";

    expect_literal(q, "{a:<|\"|>x \"y\" \\n<|z<|\"|>,b_c:[1,true]}", -1,
        "{\"a\":\"x \\\"y\\\" \\\\n<|z\",\"b_c\":[1,true]}");
    expect_literal(q, "<|\"|><|\"|>", -1, "\"\"");
    expect_literal(q, "{<|\"|>k k<|\"|>:'v'}", -1, "{\"k k\":\"v\"}");
    expect_literal(q, "<|x", 2, NULL);
    expect_literal("<escape>", "<escape>a<b<<escape>", -1, "\"a<b<\"");
}

static void too_deep_literal_is_rejected(void)
{
    struct literal l;
    struct buf out;
    enum walk_result is = WALK_MORE;
    uint32_t n = 0;

    buf_init(&out, 4 * MB);
    literal_init(&l, STR(""), false);
    while (is == WALK_MORE && n <= LITERAL_DEPTH_MAX)
        n += (uint32_t)literal_put(&l, STR("["), &out, &is);
    EXPECT(is == WALK_BAD && n == LITERAL_DEPTH_MAX);
    literal_clear(&l);
    buf_clear(&out);
}

/* ---- coerce */

static void expect_coerced(const char *text, unsigned types, const char *want)
{
    struct buf out;

    buf_init(&out, MB);
    coerce_put(&out, str_of(text), types);
    if (!str_is(buf_str(&out), want))
        fprintf(stderr, "%s (%u): " STR_FMT "\n", text, types, STR_ARG(out));
    EXPECT(str_is(buf_str(&out), want));
    buf_clear(&out);
}

static void text_is_converted_to_the_type_of_the_schema(void)
{
    expect_coerced("5", 0, "5");
    expect_coerced(" five ", 0, "\" five \"");
    expect_coerced("\"quoted\"", 0, "\"quoted\"");
    expect_coerced("", 0, "\"\"");
    expect_coerced("5", TYPE_STRING, "\"5\"");
    expect_coerced("\"q\"", TYPE_STRING, "\"\\\"q\\\"\"");
    expect_coerced("null", TYPE_STRING, "\"null\"");
    expect_coerced("null", TYPE_STRING | TYPE_NULL, "null");
    expect_coerced("null", TYPE_NUMBER, "null");
    expect_coerced("5", TYPE_STRING | TYPE_NUMBER, "5");
    expect_coerced("5", TYPE_BOOLEAN, "\"5\"");
    expect_coerced("True", TYPE_BOOLEAN, "true");
    expect_coerced("True", TYPE_STRING | TYPE_BOOLEAN, "\"True\"");
    expect_coerced(" {\"a\": 1}\n", TYPE_OBJECT, "{\"a\": 1}");
    expect_coerced("{'a': None}", TYPE_OBJECT, "{\"a\":null}");
    expect_coerced("[1, 2", TYPE_ARRAY, "\"[1, 2\"");
    expect_coerced("1 2", TYPE_NUMBER, "\"1 2\"");
    expect_coerced("\"5\"", TYPE_NUMBER, "\"5\"");
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

static void irregular_schemas_are_tolerated(void)
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

static unsigned types_in(const char *schema)
{
    struct arena *a = arena_new(MB);
    struct json *j = NULL;
    struct err e;

    EXPECT(a && !json_parse(&j, str_of(schema), a, NULL, &e));
    unsigned types = tool_argument_types(j, STR("p"));
    arena_free(a);
    return types;
}

static void references_and_combined_schemas_are_followed(void)
{
    EXPECT(types_in("{\"properties\":{\"p\":{\"$ref\":\"#/$defs/Size\"}},"
                    "\"$defs\":{\"Size\":{\"enum\":[\"42\",\"43\"]}}}") == TYPE_STRING);
    EXPECT(
        types_in("{\"properties\":{\"p\":{\"$ref\":\"#/$defs/a~1b/anyOf/1\"}},\"$defs\":"
                 "{\"a/b\":{\"anyOf\":[{\"type\":\"null\"},{\"const\":\"7\"}]}}}") == TYPE_STRING);
    EXPECT(types_in("{\"properties\":{\"p\":{\"anyOf\":[{\"$ref\":\"#/definitions/x\"},"
                    "{\"type\":\"null\"}]}},\"definitions\":{\"x\":{\"type\":\"string\"}}}") ==
           (TYPE_STRING | TYPE_NULL));
    EXPECT(types_of("{\"allOf\":[{\"type\":[\"string\",\"integer\"]},{\"type\":\"string\"}]}") ==
           TYPE_STRING);
    EXPECT(types_of("{\"type\":[\"string\",\"integer\"],\"enum\":[\"1\"]}") == TYPE_STRING);
    EXPECT(types_of("{\"anyOf\":[{\"anyOf\":[{\"const\":1}]},{\"type\":\"boolean\"}]}") ==
           (TYPE_NUMBER | TYPE_BOOLEAN));
    /* references that lead nowhere, outside or to themselves */
    EXPECT(types_of("{\"$ref\":\"#/properties/p\"}") == 0);
    EXPECT(types_of("{\"$ref\":\"#\"}") == 0);
    EXPECT(types_of("{\"$ref\":\"#x\"}") == 0);
    EXPECT(types_of("{\"$ref\":\"other.json#/a\"}") == 0);
    EXPECT(types_of("{\"$ref\":\"#/properties/p/anyOf/9\",\"type\":\"string\"}") == TYPE_STRING);
}

/* Types of the member p, or of the items of its items if is_item. */
static unsigned child_types(const char *schema, bool is_item)
{
    struct arena *a = arena_new(MB);
    struct json *j = NULL;
    struct err e;

    EXPECT(a && !json_parse(&j, str_of(schema), a, NULL, &e));
    const struct json *c = schema_child(j, j, STR("p"), false);
    for (int i = 0; i < 2 && is_item; i++)
        c = schema_child(j, c, STR(""), true);
    unsigned types = schema_types(j, c);
    arena_free(a);
    return types;
}

static void schemas_of_members_and_items_are_found(void)
{
    EXPECT(child_types("{\"properties\":{\"p\":{\"type\":\"string\"}}}", false) == TYPE_STRING);
    EXPECT(child_types("{\"additionalProperties\":{\"type\":\"null\"}}", false) == TYPE_NULL);
    EXPECT(child_types("{\"$ref\":\"#/d\",\"d\":{\"anyOf\":[{\"type\":\"null\"},"
                       "{\"properties\":{\"p\":{\"$ref\":\"#/e\"}}}]},\"e\":{\"const\":1}}",
               false) == TYPE_NUMBER);
    EXPECT(child_types("{\"properties\":{\"p\":{\"items\":{\"allOf\":[{\"items\":{\"type\":"
                       "\"boolean\"}}]}}}}",
               true) == TYPE_BOOLEAN);
    EXPECT(child_types("{\"additionalProperties\":true}", false) == 0);
    EXPECT(child_types("{\"properties\":{\"p\":true,\"q\":{}},\"anyOf\":7}", false) == 0);
    EXPECT(child_types("{\"properties\":{\"p\":{\"items\":[{\"type\":\"null\"}]}}}", true) == 0);
    EXPECT(
        child_types("{\"$ref\":\"#\",\"anyOf\":[{\"$ref\":\"#\"},{\"$ref\":\"#\"}]}", false) == 0);
    EXPECT(child_types("[1]", true) == 0);
}

/* Two references in each of many schemas: the search would be exponential without its limit. */
static void search_for_types_ends(void)
{
    static char schema[16 * 1024];
    size_t n = (size_t)snprintf(
        schema, sizeof(schema), "{\"properties\":{\"p\":{\"$ref\":\"#/d/0\"}},\"d\":[");

    for (int i = 0; i < 60; i++)
        n += (size_t)snprintf(schema + n, sizeof(schema) - n,
            "{\"anyOf\":[{\"$ref\":\"#/d/%d\"},{\"$ref\":\"#/d/%d\"}]},", i + 1, i + 1);
    snprintf(schema + n, sizeof(schema) - n, "{\"type\":\"string\"}]}");
    EXPECT(types_in(schema) == 0); /* deeper than the limit: not specified */
}

static void tools_of_all_dialects_are_found(void)
{
    struct arena *a = arena_new(MB);
    struct json *j = NULL;
    struct err e;

    EXPECT(a && !json_parse(&j,
                    STR("[3,{\"function\":\"x\"},{\"function\":{\"name\":\"f\",\"parameters\":"
                        "{\"properties\":{\"a\":{},\"b\":{}}}}},{\"name\":\"g\",\"input_schema\":"
                        "{\"properties\":[]}},{\"name\":\"h\"}]"),
                    a, NULL, &e));
    EXPECT(str_is(tool_argument_name(tool_schema(j, STR("f")), 1), "b"));
    EXPECT(!tool_argument_name(tool_schema(j, STR("f")), 2).p);
    EXPECT(tool_schema(j, STR("g")) && !tool_argument_name(tool_schema(j, STR("g")), 0).p);
    EXPECT(!tool_schema(j, STR("h")) && !tool_schema(j, STR("i")) && !tool_schema(NULL, STR("f")));
    EXPECT(!tool_schema(j->child, STR("f")));
    arena_free(a);
}

/* ---- aho_corasick */

static void marker_search_agrees_with_its_definition_on_random_texts(void)
{
    enum { SEED = 5, ROUNDS = 2000 };
    static const struct str strings[] = { { "aab", 3 }, { "abab", 4 }, { "b", 1 }, { "cab", 3 },
        { "\xE2\x97\x81", 3 } };
    struct arena *a = arena_new(MB);
    struct aho_corasick *m = aho_corasick_new(a, strings, ARRAY_LEN(strings));
    uint64_t x = SEED;

    EXPECT(a && m);
    printf("seed %d\n", SEED);
    for (int round = 0; round < ROUNDS; round++) {
        char text[20];
        uint32_t at = AHO_CORASICK_ROOT, found_at = AHO_CORASICK_ROOT;
        size_t n_found = 0; /* bytes that aho_corasick_find has read */
        for (size_t i = 0; i < sizeof(text); i++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            text[i] = "abc\xE2\x97\x81"[(x >> 40) % 6];
            uint32_t before = at;
            at = aho_corasick_step(m, at, text[i]);
            EXPECT(m->next && at == aho_corasick_search(m, before, text[i]));
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
            EXPECT_EQ(aho_corasick_hit(m, at), want);
            EXPECT(aho_corasick_depth(m, at) == depth);
            EXPECT(str_ends(so_far, aho_corasick_held(m, at)));
            if (want < 0 && i + 1 < sizeof(text))
                continue;
            int hit;
            struct str rest = { text + n_found, sizeof(text) - n_found };
            n_found += aho_corasick_find(m, &found_at, rest, &hit);
            EXPECT(n_found == i + 1 && hit == want && found_at == at);
        }
    }
    arena_free(a);
}

/* More states than the table and its rows have room for. */
static void all_ends_of_thousands_of_strings_are_found(void)
{
    enum { SEED = 7, N = 6000, LENGTH = 12, ROUNDS = 60, TEXT = 40 };
    static char bytes[N][LENGTH];
    static struct str strings[N];
    struct arena *a = arena_new(64 * MB);
    uint64_t x = SEED;

    EXPECT(a != NULL);
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < LENGTH; k++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            bytes[i][k] = "abcdefgh"[(x >> 40) % 8];
        }
        strings[i] = (struct str){ bytes[i], i < 200 ? 1 + (size_t)(x >> 50) % 4 : LENGTH };
    }
    struct aho_corasick *m = aho_corasick_new(a, strings, N);
    EXPECT(m && !m->next && m->n_rows && m->n_rows < m->n_nodes);
    for (int round = 0; round < ROUNDS; round++) {
        char text[TEXT];
        uint32_t at = AHO_CORASICK_ROOT;
        int from = (int)((x >> 33) % N);
        for (size_t i = 0; i < TEXT; i++) { /* random bytes, then a string, which may be hit */
            x = x * 6364136223846793005u + 1442695040888963407u;
            text[i] = i >= 20 && i < 20 + LENGTH ? bytes[from][i - 20] : "abcdefghi"[(x >> 40) % 9];
            at = aho_corasick_step(m, at, text[i]);
            size_t n_ends = 0, n_want = 0, last = SIZE_MAX;
            for (uint32_t e = aho_corasick_end(m, at); e; e = aho_corasick_next_end(m, e)) {
                struct str s = strings[aho_corasick_hit(m, e)];
                EXPECT(s.n < last && str_ends((struct str){ text, i + 1 }, s));
                last = s.n;
                n_ends++;
            }
            for (size_t n = 1; n <= MIN(i + 1, (size_t)LENGTH); n++) {
                bool is_string = false;
                for (int k = 0; k < N && !is_string; k++)
                    is_string = strings[k].n == n && !memcmp(bytes[k], text + i + 1 - n, n);
                n_want += is_string;
            }
            EXPECT(n_ends == n_want);
            EXPECT(str_ends((struct str){ text, i + 1 }, aho_corasick_held(m, at)));
        }
    }
    arena_free(a);
}

TESTS(TEST(schemas_of_members_and_items_are_found), TEST(literals_become_json),
    TEST(invalid_literal_ends_at_its_first_wrong_byte),
    TEST(format_may_have_its_own_quotes_and_bare_keys), TEST(too_deep_literal_is_rejected),
    TEST(text_is_converted_to_the_type_of_the_schema), TEST(irregular_schemas_are_tolerated),
    TEST(references_and_combined_schemas_are_followed), TEST(search_for_types_ends),
    TEST(tools_of_all_dialects_are_found),
    TEST(marker_search_agrees_with_its_definition_on_random_texts),
    TEST(all_ends_of_thousands_of_strings_are_found))
