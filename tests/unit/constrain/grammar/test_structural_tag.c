#include "constrain/grammar/structural_tag.h"

#include "support/grammar_kit.h"

#define FORMAT(f)    "{\"type\": \"structural_tag\", \"format\": " f "}"
#define TAG(b, c, e) "{\"type\": \"tag\", \"begin\": " b ", \"content\": " c ", \"end\": " e "}"
#define TEXT(v)      "{\"type\": \"const_string\", \"value\": \"" v "\"}"
#define REGEX(v)     "{\"type\": \"regex\", \"pattern\": \"" v "\"}"
#define TOKEN(t)     "{\"type\": \"token\", \"token\": " t "}"
#define ANY          "{\"type\": \"any_text\"}"

static const struct grammar_case cases[] = {
    { FORMAT(TEXT("a\\\"b")), { "a\"b" }, { "", "a" } },
    { FORMAT(REGEX("[0-9]+")), { "12" }, { "", "1a" } },
    { FORMAT("{\"type\": \"grammar\", \"grammar\": \"root ::= \\\"(\\\" root? \\\")\\\"\"}"),
        { "()", "(())" }, { "", "(" } },
    { FORMAT("{\"type\": \"any_text\", \"excludes\": [\"<a>\", \"x\"]}"), { "", "<a" },
        { "<a>", "abx" } },
    { FORMAT("{\"type\": \"sequence\", \"elements\": [" TEXT(
          "a") ", {\"type\": \"or\", "
               "\"elements\": [" TEXT("b") ", " TEXT(
                   "c") "]}, {\"type\": \"optional\", \"content\": " TEXT("d") "}]}"),
        { "ab", "acd" }, { "a", "abc" } },
    { FORMAT("{\"type\": \"sequence\", \"elements\": [{\"type\": \"plus\", \"content\": " TEXT(
          "a") "}, {\"type\": \"star\", \"content\": " TEXT("b") "}, {\"type\": \"repeat\", "
                                                                 "\"min\": "
                                                                 "1, \"max\": 2, "
                                                                 "\"content\": " TEXT("c") "}]}"),
        { "ac", "aabcc" }, { "c", "a", "accc" } },
    { FORMAT("{\"type\": \"repeat\", \"min\": 2, \"max\": -1, \"content\": " TEXT("c") "}"),
        { "cc", "cccc" }, { "c" } },
    { FORMAT(TAG("\"<t>\"", ANY, "\"</t>\"")), { "<t></t>", "<t>a<b</t>" },
        { "<t>a", "<t></t></t>", "<t></t>x" } },
    { FORMAT(TAG("\"<t>\"", ANY, "[\"</t>\", \"<e>\"]")), { "<t>x</t>", "<t><e>" },
        { "<t><e></t>" } },
    { FORMAT(TAG(TOKEN("\"<think>\""), ANY, TOKEN("3"))), { "\2abc\3" }, { "\2abc", "abc\3" } },
    { FORMAT(TAG(
          TOKEN("2"), "{\"type\": \"any_tokens\", \"exclude_tokens\": [\"<tool>\"]}", TOKEN("3"))),
        { "\2\3", "\2ab\6\2c\3" }, { "\2\4\3", "\2a\3\3" } },
    { FORMAT("{\"type\": \"exclude_token\", \"exclude_tokens\": [4]}"), { "a", "\2" },
        { "", "\4", "ab" } },
    { FORMAT("{\"type\": \"triggered_tags\", \"triggers\": [\"<f=\"], \"tags\": [" TAG("\"<f=a>\"",
          TEXT("1"), "\"</f>\"") ", " TAG("\"<f=b>\"", REGEX("[0-9]+"), "\"</f>\"") "]}"),
        { "", "x<f", "<f=a>1</f>", "x<f=b>12</f> y<f=a>1</f>z" },
        { "<f=", "<f=c>1</f>", "<f=a>2</f>", "x<f=a>1" } },
    { FORMAT("{\"type\": \"triggered_tags\", \"triggers\": [\"<f\"], \"tags\": [" TAG(
          "\"<f>\"", TEXT("1"), "\"</f>\"") "], \"at_least_one\": true}"),
        { "<f>1</f>", "<f>1</f>x", "<f>1</f>x<f>1</f>" }, { "", "x<f>1</f>" } },
    { FORMAT("{\"type\": \"triggered_tags\", \"triggers\": [\"<f\"], \"tags\": [" TAG(
          "\"<f>\"", TEXT("1"), "\"</f>\"") "], \"stop_after_first\": true}"),
        { "", "x", "x<f>1</f>" }, { "x<f>1</f>x" } },
    { FORMAT("{\"type\": \"triggered_tags\", \"triggers\": [\"<f\"], \"tags\": [" TAG(
          "\"<f>\"", TEXT("1"), "\"</f>\"") "], \"stop_after_first\": true, "
                                            "\"at_least_one\": true, \"excludes\": [\"q\"]}"),
        { "<f>1</f>" }, { "", "x<f>1</f>", "<f>1</f>x" } },
    { FORMAT(
          "{\"type\": \"token_triggered_tags\", \"trigger_tokens\": [\"<tool>\"], \"tags\": [" TAG(
              TOKEN("4"), TEXT("1"), TOKEN("3")) "], \"exclude_tokens\": [2]}"),
        { "", "ab\6",
            "a\4"
            "1\3b" },
        { "\2", "\4",
            "\4"
            "2\3" } },
    { FORMAT("{\"type\": \"tags_with_separator\", \"tags\": [" TAG("\"<\"", TEXT("1"),
          "\">\"") ", " TAG("\"[\"", TEXT("2"), "\"]\"") "], \"separator\": \", \"}"),
        { "", "<1>", "<1>, [2], <1>" }, { "<1>[2]", "<1>, " } },
    { FORMAT("{\"type\": \"tags_with_separator\", \"tags\": [" TAG("\"<\"", TEXT("1"),
          "\">\"") "], \"separator\": \",\", \"at_least_one\": true, \"stop_after_first\": true}"),
        { "<1>" }, { "", "<1>,<1>" } },
    { FORMAT("{\"type\": \"dispatch\", \"rules\": [[\"<a>\", " TEXT("1") "], [\"<b>\", " TEXT(
          "2") "]], \"excludes\": [\"z\"]}"),
        { "", "x<a>1y<b>2" }, { "<a>2", "z", "<a>" } },
    { FORMAT("{\"type\": \"tag_dispatch\", \"pairs\": [{\"trigger\": \"<a>\", \"content\": " TEXT(
          "1") "}], \"loop_after_dispatch\": false}"),
        { "x", "x<a>1" }, { "x<a>1x" } },
    { FORMAT("{\"type\": \"token_dispatch\", \"rules\": [[\"<tool>\", " TEXT("1") "]]}"),
        { "", "x\4"
              "1y" },
        { "\4", "\4"
                "2" } },
};

static void texts_are_accepted_as_documented(void)
{
    for (size_t k = 0; k < ARRAY_LEN(cases); k++)
        grammar_kit_check(structural_tag_read, &cases[k]);
}

static const struct grammar_error_case errors[] = {
    { "{", "line 1, column 2" },
    { "[]", "#: must be an object" },
    { "{}", "#/format: is missing" },
    { FORMAT("3"), "#/format: must be an object" },
    { FORMAT("{}"), "#/format/type: is missing" },
    { FORMAT("{\"type\": \"x\"}"), "#/format/type: the format \"x\" is not supported" },
    { FORMAT("{\"type\": \"const_string\"}"), "#/format/value: is missing" },
    { FORMAT("{\"type\": \"const_string\", \"value\": 1}"), "#/format/value: must be a string" },
    { FORMAT("{\"type\": \"any_text\", \"limit\": 1}"),
        "#/format: the format any_text has no member \"limit\"" },
    { FORMAT("{\"type\": \"sequence\", \"elements\": [" TEXT("a") ", " REGEX("(") "]}"),
        "#/format/elements/1/pattern: pattern: group without end" },
    { FORMAT("{\"type\": \"or\", \"elements\": []}"), "#/format/elements: must not be empty" },
    { FORMAT("{\"type\": \"grammar\", \"grammar\": \"root ::= x\"}"),
        "#/format/grammar: line 1, column 10: the rule \"x\" is not defined" },
    { FORMAT("{\"type\": \"json_schema\", \"json_schema\": {}, \"style\": \"xml\"}"),
        "#/format/style: the style \"xml\" is not supported, only \"json\"" },
    { FORMAT("{\"type\": \"json_schema\", \"json_schema\": 1}"),
        "#/format/json_schema: must be an object" },
    { FORMAT("{\"type\": \"repeat\", \"min\": 3, \"max\": 2, \"content\": " TEXT("a") "}"),
        "#/format/max: is below min" },
    { FORMAT("{\"type\": \"repeat\", \"min\": -1, \"max\": 2, \"content\": " TEXT("a") "}"),
        "#/format/min: must be a count" },
    { FORMAT(TOKEN("\"<none>\"")), "#/format/token: the vocabulary has no such token" },
    { FORMAT(TOKEN("1")), "#/format/token: token 1 ends the text" },
    { FORMAT("{\"type\": \"exclude_token\", \"exclude_tokens\": [5]}"),
        "#/format: token 5 has a text" },
    { FORMAT("{\"type\": \"triggered_tags\", \"triggers\": [\"<f\"], \"tags\": [" TAG(
          "\"<g>\"", TEXT("1"), "\"</g>\"") "]}"),
        "#/format/tags/0/begin: does not begin with a trigger" },
    { FORMAT("{\"type\": \"triggered_tags\", \"triggers\": [], \"tags\": []}"),
        "#/format/triggers: must not be empty" },
    { FORMAT("{\"type\": \"dispatch\", \"rules\": [[\"a\"]]}"),
        "#/format/rules/0: must have a trigger and a content" },
    { "{\"structures\": [{\"begin\": \"a\", \"schema\": {}, \"end\": \"\"}], \"triggers\": "
      "[\"b\"]}",
        "#/structures/0/begin: does not begin with a trigger" },
};

static void errors_name_the_json_pointer(void)
{
    for (size_t k = 0; k < ARRAY_LEN(errors); k++)
        grammar_kit_check_error(structural_tag_read, &errors[k]);
}

static void schemas_become_values(void)
{
    static const char *const documents[] = {
        FORMAT("{\"type\": \"json_schema\", \"json_schema\": {\"type\": \"object\"}}"),
        "{\"structures\": [{\"begin\": \"<f>\", \"schema\": {\"type\": \"object\"}, \"end\": "
        "\"</f>\"}], \"triggers\": [\"<f\"]}",
    };

    for (size_t k = 0; k < ARRAY_LEN(documents); k++) {
        struct grammar *g = grammar_new(&grammar_limits_default, NULL);
        struct err e = { 0 };
        rule_id root;
        EXPECT_EQ(structural_tag_read(g, str_of(documents[k]), &root, &e), 0);
        EXPECT_EQ(grammar_finish(g, root, &e), 0);
        EXPECT_EQ(grammar_json_count(g), 1u);
        EXPECT(str_is(grammar_json_text(g, 0), "{\"type\": \"object\"}"));
        grammar_free(g);
    }
}

TESTS(TEST(texts_are_accepted_as_documented), TEST(errors_name_the_json_pointer),
    TEST(schemas_become_values))
