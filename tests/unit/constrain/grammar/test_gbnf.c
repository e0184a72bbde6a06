#include "constrain/grammar/gbnf.h"

#include "support/grammar_kit.h"

static const struct grammar_case cases[] = {
    { "root ::= \"a\" | \"b\" \"c\"", { "a", "bc" }, { "", "b", "ac", "abc" } },
    { "root ::= [a-c]+ [^a-c]", { "abcz", "a\n", "b\xC3\xA9" }, { "z", "abc", "abcd1" } },
    { "root ::= \"x\"{2} \"y\"{1,} \"z\"{0,2}", { "xxy", "xxyyyz", "xxyzz" },
        { "xy", "xx", "xxyzzz" } },
    { "root ::= (\"a\" | \"b\")* \"c\"?", { "", "abba", "c", "abc" }, { "cc", "ca" } },
    { "# comment\nroot ::= item # more\nitem ::= \"#\" .\n", { "#a", "#\n" }, { "#", "#ab" } },
    { "root ::= (\n \"a\" # one\n | \n\n \"b\"\n) \"c\"\n", { "ac", "bc" }, { "a", "c" } },
    { "root ::=\n  \"a\" |\n  \"b\"", { "a", "b" }, { "ab" } },
    { "root ::= \"\\x41\\u00e9\\U0001F600\\t\\\"\\\\\\[\\]\"",
        { "A\xC3\xA9\xF0\x9F\x98\x80\t\"\\[]" }, { "A" } },
    { "root ::= [\\]\\x41-\\x43-]+", { "]AC-", "B" }, { "D", "" } },
    { "root ::= \"(\" root \")\" | \"\"", { "", "()", "((()))" }, { "(", "())" } },
    { "root ::= expr\nexpr ::= expr \"+\" term | term\nterm ::= term \"*\" f | f\n"
      "f ::= \"x\" | \"(\" expr \")\"",
        { "x", "x+x*x", "(x+x)*(x)", "x*x+x+x" }, { "", "x+", "+x", "(x" } },
    { "root ::= a{3}\na ::= \"(\" a \")\" | \"x\"", { "xxx", "(x)x((x))" }, { "xx", "xxxx" } },
    { "root ::= a{2,4} \";\"\na ::= \"(\" a? \")\"", { "()();", "()()(())();" },
        { "();", "()()()()();" } },
    { "root ::= ws \"1\" ws\nws ::= ([ \\t\\n] ws)?", { "1", " \n 1\t\t" }, { "", "11" } },
    { "root ::= \"\"", { "" }, { "a" } },
    { "root ::=\n", { "" }, { "a" } },
    { "root ::= \"a\"\nroot ::= \"b\"", { "b" }, { "a" } },
    { "root ::= <think> thinking </think> .*\nthinking ::= !</think>*",
        { "\2abc\3def", "\2\3", "\2a\4b\3" }, { "abc", "\2abc", "\2abc\3\3", "\2\1\3" } },
    { "root ::= <[2]> \"a\" !<[3]>", { "\2az", "\2a\4", "\2a\xC3\xA9" },
        { "\2a", "\2a\3", "\2azz" } },
    { "root ::= <[5]>", { "hello" }, { "\5" } },
    { "root ::= a b a_c\na ::= \"1\"?\nb ::= a a\na_c ::= b | \"2\"", { "", "11", "1112" },
        { "11111111" } },
    { "root ::= a\na ::= a | \"x\"", { "x" }, { "" } },
    { "root ::= (\"a\"*)*", { "", "aaaa" }, { "b" } },
};

static void texts_are_accepted_as_documented(void)
{
    for (size_t k = 0; k < ARRAY_LEN(cases); k++)
        grammar_kit_check(gbnf_read, &cases[k]);
}

static const struct grammar_error_case errors[] = {
    { "root ::= a", "line 1, column 10: the rule \"a\" is not defined" },
    { "start ::= \"a\"", "the grammar has no rule \"root\"" },
    { "root ::= \"abc", "line 1, column 10: the literal has no end" },
    { "root ::= [abc", "line 1, column 10: the class has no end" },
    { "root ::= [z-a]", "line 1, column 11: the range is out of order" },
    { "root ::= []", "line 1, column 10: the class has no character" },
    { "root ::= (\"a\"", "line 1, column 10: the group has no end" },
    { "root ::= \"a\")", "line 1, column 13: an element or the end of the line is expected" },
    { "root ::= * \"a\"", "line 1, column 10: nothing precedes the repetition" },
    { "root ::= \"a\" | +", "line 1, column 16: nothing precedes the repetition" },
    { "root ::= \"a\"{3,2}", "line 1, column 13: the counts are out of order" },
    { "root ::= \"a\"{,2}", "line 1, column 13: a count is expected" },
    { "root ::= \"a\"{2", "line 1, column 15: `}` is expected" },
    { "root ::= \"a\"{9999999999}", "line 1, column 14: the number is above 2^30" },
    { "root := \"a\"", "line 1, column 6: `::=` is expected" },
    { "\n\n = \"a\"", "line 3, column 2: the name of a rule is expected" },
    { "root ::= \"\\q\"", "line 1, column 11: unknown escape" },
    { "root ::= \"\\x4\"", "line 1, column 13: 2 hexadecimal digits" },
    { "root ::= \"\\uD800\"", "line 1, column 13: U+D800 is not a character" },
    { "root ::= \"\xC3\xA9\" &", "line 1, column 14: an element" },
    { "root ::= <foo>", "line 1, column 10: the vocabulary has no token \"<foo>\"" },
    { "root ::= <[99]>", "line 1, column 10: token 99 is not in the vocabulary" },
    { "root ::= <[1]>", "line 1, column 10: token 1 ends the text" },
    { "root ::= !<[5]>", "line 1, column 10: token 5 has a text" },
    { "root ::= \"\xFF\"", "the grammar is not valid UTF-8" },
    { "root ::= \"a\" root", "no text satisfies the rule \"root\"" },
    { "root ::= a\na ::= b\nb ::= a", "no text satisfies the rule \"root\"" },
    { "", "the grammar has no rule \"root\"" },
};

static void errors_name_line_and_column(void)
{
    for (size_t k = 0; k < ARRAY_LEN(errors); k++)
        grammar_kit_check_error(gbnf_read, &errors[k]);
}

TESTS(TEST(texts_are_accepted_as_documented), TEST(errors_name_line_and_column))
