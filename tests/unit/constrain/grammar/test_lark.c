#include "constrain/grammar/lark.h"

#include "support/grammar_kit.h"

static const struct grammar_case cases[] = {
    { "start: \"a\" | \"b\" \"c\"", { "a", "bc" }, { "", "ac" } },
    { "start: x+\nx: \"(\" x* \")\"\n", { "()", "(())()" }, { "", "(", "x" } },
    { "start: A~2 B~1..3 C{2} D{1,} E{0,1} F{,2}\nA: \"a\"\nB: \"b\"\nC: \"c\"\nD: \"d\"\n"
      "E: \"e\"\nF: \"f\"",
        { "aabccd", "aabbbccddeff" },
        { "abccd", "aabbbbccd", "aabcd", "aabcc", "aabccdee", "aabccdfff" } },
    { "start: [\"a\" \"b\"] (\"c\" | \"d\")?", { "", "ab", "abd", "c" }, { "a", "abcd" } },
    { "start: \"x\"..\"z\" \"\\u00e9\"i \"Ab\"i",
        { "x\xC3\xA9"
          "ab",
            "z\xC3\x89"
            "AB" },
        { "w\xC3\xA9"
          "ab",
            "x"
            "ab" } },
    { "start: /a.b/s /c/i /[^\\/]+/", { "a\nbCxy", "axbcz" }, { "a\nbC/", "abcx" } },
    { "start: /^a$\\nb/m", { "a\nb" }, { "ab" } },
    { "?start: NUMBER (OP NUMBER)*\nOP: \"+\" | \"-\"\n%import common.NUMBER\n%ignore \" \"",
        { "1", "1+2", " 1 + 2.5e3 ", "1  -.5" }, { "", "1+", "1 2", "1+ +2" } },
    { "!start: w // comment\n  | \"(\" start \")\" -> pair # more\n  // between\n  | \"-\" -> "
      "minus\n"
      "w: WORD\n%import common (WORD, INT)\n",
        { "abc", "(x)", "-", "((-))" }, { "", "()", "1" } },
    { "start: STR LF\n%import common.ESCAPED_STRING -> STR\n%import common.LF",
        { "\"\"\n", "\"a\\\"b\"\n" }, { "\"a\"b\"\n", "\"a\"" } },
    { "start: (\n  \"a\"\n  | \"b\"\n)+", { "a", "ab" }, { "" } },
    { "start: start \"+\" start | \"x\"", { "x", "x+x+x" }, { "+", "x+" } },
    { "start: \"a\\.b\" \"\\\"\\\\\"", { "a\\.b\"\\" }, { "a.b\"\\" } },
    { "start: A B?\nA: /a+/\nB: /ab/", { "a", "aab", "aaab" },
        { "ab"
          "b",
            "b" } },
    { "start: (\"a\"*)*", { "", "aaa" }, { "b" } },
    { "start: I\nI: \"0\" | /[1-9]/ D*\nD: \"0\"..\"9\"", { "0", "10" }, { "01", "" } },
};

static void texts_are_accepted_as_documented(void)
{
    for (size_t k = 0; k < ARRAY_LEN(cases); k++)
        grammar_kit_check(lark_read, &cases[k]);
}

static const struct grammar_error_case errors[] = {
    { "start: a", "line 1, column 8: the rule \"a\" is not defined" },
    { "start: A", "line 1, column 8: the terminal \"A\" is not defined" },
    { "begin: \"a\"", "the grammar has no rule \"start\"" },
    { "start: \"a\"\nstart: \"b\"", "line 2, column 1: \"start\" is defined twice" },
    { "start: \"a", "line 1, column 8: the string has no end" },
    { "start: /a", "line 1, column 8: the pattern has no end" },
    { "start: (\"a\"", "line 1, column 8: the group has no end" },
    { "start: (\"a\"]", "line 1, column 12: `)` is expected" },
    { "start: \"a\")", "line 1, column 11: an element or the end of the line is expected" },
    { "start: *", "line 1, column 8: nothing precedes the repetition" },
    { "start: \"a\"~3..2", "line 1, column 11: the counts are out of order" },
    { "start: \"a\"~", "line 1, column 11: a count is expected" },
    { "start: \"b\"..\"a\"", "line 1, column 8: the range is out of order" },
    { "start: \"ab\"..\"c\"", "line 1, column 8: a range needs one character" },
    { "start: x{A}\nx{t}: t", "line 1, column 9: templates are not supported" },
    { "x{t}: t\nstart: \"a\"", "line 1, column 2: templates are not supported" },
    { "A.2: \"a\"\nstart: A", "line 1, column 2: priorities are not supported" },
    { "start: A\n%declare A", "line 2, column 1: %declare is not supported" },
    { "start: /(?<=a)b/", "line 1, column 8: pattern: lookbehinds are not supported" },
    { "start: /a/x", "line 1, column 11: the flag `x` of patterns is not supported" },
    { "%import python.NAME\nstart: NAME", "only the library common can be imported" },
    { "%import common.FOO\nstart: FOO", "the library common has no terminal \"FOO\"" },
    { "A: b\nb: \"b\"\nstart: A", "line 1, column 4: the rule \"b\" is used in a terminal" },
    { "start: %json [1]", "line 1, column 14: a JSON Schema is expected" },
    { "start: %json {\"a\": \"}\"", "line 1, column 14: the JSON Schema has no end" },
    { "start \"a\"", "line 1, column 7: `:` is expected" },
    { "start: \"\\xg0\"", "line 1, column 11: 2 hexadecimal digits" },
    { "start: \"a\" start", "no text satisfies the rule \"start\"" },
};

static void errors_name_line_and_column(void)
{
    for (size_t k = 0; k < ARRAY_LEN(errors); k++)
        grammar_kit_check_error(lark_read, &errors[k]);
}

static void schemas_become_values(void)
{
    struct grammar *g = grammar_new(&grammar_limits_default, NULL);
    struct err e = { 0 };
    rule_id root;
    static const char text[] =
        "start: \"x\" v | v v\nv: %json {\"type\": \"string\", \"a\": \"}\\\"\"} \";\"";

    EXPECT_EQ(lark_read(g, str_of(text), &root, &e), 0);
    EXPECT_EQ(grammar_finish(g, root, &e), 0);
    EXPECT_EQ(grammar_json_count(g), 1u);
    EXPECT(str_is(grammar_json_text(g, 0), "{\"type\": \"string\", \"a\": \"}\\\"\"}"));
    grammar_free(g);
}

/* The patch format of Codex, as its documentation describes it. */
static const char patch[] = "start: open_line section+ close_line\n"
                            "open_line: \"*** Begin Patch\" LF\n"
                            "close_line: \"*** End Patch\" LF?\n"
                            "section: created | removed | changed\n"
                            "created: \"*** Add File: \" path LF new_line+\n"
                            "removed: \"*** Delete File: \" path LF\n"
                            "changed: \"*** Update File: \" path LF target? edit?\n"
                            "path: /(.+)/\n"
                            "new_line: \"+\" /(.*)/ LF -> line\n"
                            "target: \"*** Move to: \" path LF\n"
                            "edit: (place | edit_line)+ last?\n"
                            "place: (\"@@\" | \"@@ \" /(.+)/) LF\n"
                            "edit_line: (\"+\" | \"-\" | \" \") /(.*)/ LF\n"
                            "last: \"*** End of File\" LF\n"
                            "%import common.LF\n";

static const struct grammar_case patches = { patch,
    { "*** Begin Patch\n*** Add File: a.c\n+x\n+\n*** End Patch\n",
        "*** Begin Patch\n*** Delete File: a b\n*** End Patch",
        "*** Begin Patch\n*** Update File: a\n*** Move to: b\n@@ f()\n-x\n+y\n z\n*** End of File\n"
        "*** Add File: c\n+*** End Patch\n*** End Patch\n",
        "*** Begin Patch\n*** Update File: a\n*** End Patch\n" },
    { "", "*** Begin Patch\n*** End Patch\n", "*** Begin Patch\n*** Add File: a\n*** End Patch\n",
        "*** Begin Patch\n*** Update File: a\nx\n*** End Patch\n",
        "*** Begin Patch\n*** Delete File: \n*** End Patch\n" } };

static void patches_of_codex_are_regular(void)
{
    struct grammar_kit k;
    expr_id root;

    grammar_kit_check(lark_read, &patches);
    EXPECT_EQ(grammar_kit_begin(&k, lark_read, str_of(patch)), 0);
    EXPECT(grammar_is_regular(k.g, &root));
    EXPECT(grammar_kit_run(&k, POS_START, "*** Begin Patch\n*** Add File: a.c\n+x\n*** E").i);
    EXPECT(!grammar_kit_run(&k, POS_START, "*** Begin Patch\n*** Add File: a.c\n+x\ny").i);
    grammar_kit_end(&k);
}

TESTS(TEST(texts_are_accepted_as_documented), TEST(errors_name_line_and_column),
    TEST(schemas_become_values), TEST(patches_of_codex_are_regular))
