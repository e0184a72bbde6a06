/* Output parser: format tables, hostile texts and limits. Texts of real models are in
 * tests/golden/test_parser.c. */
#include "support/parser_kit.h"

#include <stdlib.h>

static struct parser_format *format(const char *tool, const char *thinking)
{
    struct parser_format *f = NULL;
    struct err e = { 0 };

    EXPECT(!parser_format_new(&f, str_of(tool), str_of(thinking), &e));
    return f;
}

/* Makes a text of `head`, then as many `unit`s as fit, then `tail`. */
static struct str repeat_to_length(size_t n, const char *head, const char *unit, const char *tail)
{
    char *p = malloc(n);
    size_t at = strlen(head), step = strlen(unit), end = n - strlen(tail);

    EXPECT(p && at + step <= end);
    memcpy(p, head, at);
    for (; at + step <= end; at += step)
        memcpy(p + at, unit, step);
    memcpy(p + at, tail, strlen(tail));
    return (struct str){ p, at + strlen(tail) };
}

static void format_is_found_by_its_id_and_unknown_ids_are_named(void)
{
    struct parser_format *f = NULL;
    struct err e = { 0 };
    size_t n = 0;

    EXPECT_EQ(parser_format_new(&f, STR("hermes"), STR(""), &e), -1);
    EXPECT(e.code == ERR_INVALID);
    EXPECT_STR(e.param, "tool_parser");
    for (size_t i = 0; parser_tool_id(i); i++, n++)
        EXPECT(strstr(e.msg, parser_tool_id(i)) != NULL);
    EXPECT(n >= 22);
    EXPECT_EQ(parser_format_new(&f, STR("null"), STR("nothink"), &e), -1);
    EXPECT_STR(e.param, "thinking_parser");
    for (n = 0; parser_reasoning_id(n); n++)
        EXPECT(strstr(e.msg, parser_reasoning_id(n)) != NULL);
    EXPECT(n >= 10);
    f = format("", "think_tag");
    EXPECT(parser_can_toggle_reasoning(f));
    parser_format_free(f);
    f = format("null", "");
    EXPECT(!parser_can_toggle_reasoning(f));
    parser_format_free(f);
}

/* A marker that begins with or contains another one could never be found. A marker may end with
 * another one. */
static void no_marker_hides_another_in_any_format_pair(void)
{
    for (size_t t = 0; tool_format_at(t); t++) {
        for (size_t k = 0; reasoning_format_at(k); k++) {
            const struct tool_format *tool = tool_format_at(t);
            const struct reasoning_format *thinking = reasoning_format_at(k);
            struct str all[64];
            int n = 0;
            for (int i = 0; i < tool->n_marks; i++)
                all[n++] = tool->marks[i].text;
            for (int i = 0; i < thinking->n_marks; i++)
                all[n++] = thinking->marks[i].text;
            for (int i = 0; i < n; i++)
                for (int m = 0; m < n; m++)
                    EXPECT(str_eq(all[i], all[m]) || str_ends(all[i], all[m]) ||
                           str_find(all[i], all[m]) < 0);
        }
    }
}

static void arguments_are_streamed(void)
{
    static const struct {
        const char *tool, *text, *args;
    } halves[] = {
        { "hermes_json", "<tool_call>{\"name\": \"note\", \"arguments\": {\"text\": \"half of",
            "{\"text\": \"half of" },
        { "hermes_json", "<tool_call>{\"name\":\"note\",\"arguments\":\"{\\\"text\\\": \\\"half",
            "{\"text\": \"half" },
        { "qwen3_coder", "<function=note><parameter=text>\nhalf of it</par",
            "{\"text\":\"half of it" },
        { "glm45", "<tool_call>note\n<arg_key>text</arg_key>\n<arg_value>half",
            "{\"text\":\"half" },
        { "kimi_k2", "<|tool_call_begin|>note:0<|tool_call_argument_begin|>{\"a\": [1,",
            "{\"a\": [1," },
        { "pythonic", "[note(text='half", "{\"text\":\"half" },
        { "gemma4", "<|tool_call>call:note{text:<|\"|>half", "{\"text\":\"half" },
        { "harmony", "<|channel|>commentary to=functions.note<|message|>{\"te", "{\"te" },
    };
    struct arena *a = arena_new(MB);
    struct json *tools = NULL;
    struct err e;

    EXPECT(a && !json_parse(&tools, STR(KIT_TOOLS), a, NULL, &e));
    for (size_t i = 0; i < ARRAY_LEN(halves); i++) {
        struct parser_format *f = format(halves[i].tool, "null");
        struct parser_options o = { tools, PARSER_START_DEFAULT };
        struct parser_log t = { .last = 0 };
        parsed_init(&t.whole, MB);
        buf_init(&t.log, MB);
        struct parser *p = parser_new(f, &o, &parser_log_ops, &t);
        EXPECT(p && !parser_put(p, str_of(halves[i].text), &e));
        EXPECT(t.is_open && str_is(t.whole.calls[0].name, "note"));
        EXPECT(str_is(buf_str(&t.whole.arguments), halves[i].args));
        parser_free(p);
        parser_log_clear(&t);
        parser_format_free(f);
    }
    arena_free(a);
}

static void text_is_held_back_only_while_it_may_be_a_marker(void)
{
    struct parser_format *f = format("hermes_json", "think_tag");
    struct parser_log t = { .last = 0 };
    struct err e;

    parsed_init(&t.whole, MB);
    buf_init(&t.log, MB);
    struct parser *p = parser_new(f, NULL, &parser_log_ops, &t);
    EXPECT(p && !parser_put(p, STR("2 <"), &e));
    EXPECT(str_is(buf_str(&t.whole.content), "2"));
    EXPECT(!parser_put(p, STR("3 and <tool_c"), &e));
    EXPECT(str_is(buf_str(&t.whole.content), "2 <3 and"));
    EXPECT(!parser_put(p, STR("ow>"), &e));
    EXPECT(str_is(buf_str(&t.whole.content), "2 <3 and <tool_cow>"));
    EXPECT(!parser_put(p, STR(" \n"), &e) && !parser_end(p, &e));
    EXPECT(str_is(buf_str(&t.whole.content), "2 <3 and <tool_cow> \n"));
    parser_free(p);
    parser_log_clear(&t);
    parser_format_free(f);
}

/* ---- hostile texts: the parser kit checks that the work is linear */

enum { HOSTILE = 1024 * 1024 };

static void expect_linear(const char *tool, const char *thinking, struct str text)
{
    struct parser_format *f = format(tool, thinking);
    size_t *cuts = malloc((text.n / 3 + 1) * sizeof(*cuts)), n = 0;
    struct parser_log whole, cut;

    EXPECT(cuts);
    for (size_t i = 3; i < text.n; i += 3)
        cuts[n++] = i;
    parser_log_run(&whole, f, NULL, text, NULL, 0);
    parser_log_run(&cut, f, NULL, text, cuts, n);
    EXPECT(str_eq(buf_str(&whole.log), buf_str(&cut.log)));
    parser_log_clear(&whole);
    parser_log_clear(&cut);
    free(cuts);
    parser_format_free(f);
}

static void expect_linear_for_all_formats(const char *unit, size_t n)
{
    for (size_t i = 0; parser_tool_id(i); i++) {
        struct str text = repeat_to_length(n, "", unit, "");
        expect_linear(parser_tool_id(i), "think_tag", text);
        free((char *)(uintptr_t)text.p);
    }
}

/* Repeats the opening markers and tags of each format, so that calls begin and never complete. */
static void every_format_is_linear_on_its_own_markers(void)
{
    for (size_t i = 0; tool_format_at(i); i++) {
        const struct tool_format *r = tool_format_at(i);
        for (int k = 0; k < r->n_marks + r->n_edges; k++) {
            char unit[256];
            struct str mark = k < r->n_marks ? r->marks[k].text : r->edges[k - r->n_marks].literal;
            snprintf(unit, sizeof(unit), STR_FMT "x", STR_ARG(mark));
            struct str text =
                repeat_to_length(HOSTILE / 32, r->n_marks ? r->marks[0].text.p : "", unit, "");
            expect_linear(r->id, "deepseek_v3", text);
            free((char *)(uintptr_t)text.p);
        }
    }
}

static void every_format_is_linear_on_brackets_quotes_and_blanks(void)
{
    static const char *const units[] = { "{", "[{\"a\":", "{\"name\":\"", "[f(a=[", "\n", "\"",
        "\\", "<", "<think>", "\xF0\x9F\x98\x80", "\xFF" };

    for (size_t i = 0; i < ARRAY_LEN(units); i++)
        expect_linear_for_all_formats(units[i], HOSTILE / 32);
}

static void a_mebibyte_of_each_kind_is_linear(void)
{
    static const char *const cases[][4] = {
        { "hermes_json", "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":", "{\"a\":", "" },
        { "hermes_json", "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":", "[", "" },
        { "hermes_json", "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"", "</tool_call>\\n",
            "" },
        { "hermes_json", "<tool_call>{\"arguments\":{\"a\":\"", "xyz ", "\"},\"name\":\"f\"}" },
        { "hermes_json", "", "<tool_call>{\"name\":", "" },
        { "hermes_json", "", "<tool_call>{\"", "" },
        { "hermes_json", "", "<tool_call>{\"name\":\"f\"}</tool_call>", "" },
        { "hermes_json", "<think>", "<tool_call>{\"name\":\"f\"}</tool_call><think>", "" },
        { "qwen3_coder", "<function=f>", "<parameter=a>\n1\n</parameter>\n", "</function>" },
        { "qwen3_coder", "<function=f><parameter=a>", "</parameter", "" },
        { "pythonic", "[f(a=", "[", "" },
        { "pythonic", "[f(a='", "\\x41", "')]" },
        { "gemma4", "<|tool_call>call:f{a:<|\"|>", "<|\"", "<|\"|>}" },
        { "harmony", "", "<|channel|>x", "" },
        { "mistral", "[TOOL_CALLS][", "{\"name\":\"f\"},", "]" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct str text = repeat_to_length(HOSTILE, cases[i][1], cases[i][2], cases[i][3]);
        expect_linear(cases[i][0], "think_tag", text);
        free((char *)(uintptr_t)text.p);
    }
}

static void call_with_ten_thousand_levels_is_parsed(void)
{
    enum { DEPTH = 10000 };
    static char text[4 * DEPTH + 100];
    static const char head[] = "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":";
    struct parser_format *f = format("hermes_json", "null");
    size_t n = sizeof(head) - 1;
    struct parser_log t;

    memcpy(text, head, n);
    memset(text + n, '[', DEPTH);
    memset(text + n + DEPTH, ']', DEPTH);
    memcpy(text + n + 2 * DEPTH, "}}", 2);
    parser_log_run(&t, f, NULL, (struct str){ text, n + 2 * DEPTH + 2 }, NULL, 0);
    EXPECT_EQ(t.whole.n_calls, 1);
    EXPECT(t.whole.calls[0].arguments.n == 2 * DEPTH + 6);
    parser_log_clear(&t);
    parser_format_free(f);
}

static void names_and_calls_beyond_the_limits_are_text(void)
{
    static char text[PARSER_NAME_MAX + 100];
    struct parser_format *f = format("hermes_json", "null");
    struct parser_log t;

    for (int over = 0; over < 2; over++) {
        int n = snprintf(text, sizeof(text), "<tool_call>{\"name\":\"%0*d\"}</tool_call>",
            PARSER_NAME_MAX + over, 7);
        parser_log_run(&t, f, NULL, (struct str){ text, (size_t)n }, NULL, 0);
        EXPECT_EQ(t.whole.n_calls, !over);
        EXPECT_EQ(t.whole.content.n > 0, over);
        parser_log_clear(&t);
    }
    struct str many =
        repeat_to_length(64 * (PARSER_CALLS_MAX + 10), "", "<tool_call>{\"name\":\"f\"}", "");
    parser_log_run(&t, f, NULL, many, NULL, 0);
    EXPECT_EQ(t.whole.n_calls, PARSER_CALLS_MAX);
    EXPECT(str_starts(
        buf_str(&t.whole.content), STR("<tool_call>{\"name\":\"f\"}<tool_call>{\"name\"")));
    parser_log_clear(&t);
    free((char *)(uintptr_t)many.p);
    parser_format_free(f);
}

static void a_call_beyond_the_limit_is_text(void)
{
    struct parser_format *f = format("hermes_json", "null");
    struct str text = repeat_to_length(PARSER_CALL_MAX + 100,
        "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"", "0123456789abcdef",
        "\"}}</tool_call>");
    size_t cuts[] = { 1000, PARSER_CALL_MAX, PARSER_CALL_MAX + 20 };
    struct parser_log t;

    for (size_t n = 0; n <= ARRAY_LEN(cuts); n += ARRAY_LEN(cuts)) {
        parser_log_run(&t, f, NULL, text, cuts, n);
        EXPECT_EQ(t.whole.n_calls, 0);
        EXPECT_EQ(t.n_broken, 1);
        EXPECT(t.whole.content.n == text.n);
        parser_log_clear(&t);
    }
    free((char *)(uintptr_t)text.p);
    parser_format_free(f);
}

/* A request may contain a schema of megabytes, and a model may repeat argument names: lookups
 * are limited. */
static void lookups_in_a_large_schema_are_limited(void)
{
    struct str tools =
        repeat_to_length(4 * MB, "[{\"name\":\"f\",\"parameters\":{\"properties\":{\"z\":{}",
            ",\"y\":{}", ",\"a\":{\"type\":\"string\"}}}}]");
    struct str text =
        repeat_to_length(32 * KB, "<function=f>", "<parameter=a>5</parameter>", "</function>");
    struct parser_format *f = format("qwen3_coder", "null");
    struct arena *a = arena_new(256 * MB);
    struct json *j = NULL;
    struct parser_log t;
    struct err e;

    EXPECT(a && !json_parse(&j, tools, a, NULL, &e));
    struct parser_options o = { j, PARSER_START_CONTENT };
    parser_log_run(&t, f, &o, text, NULL, 0);
    EXPECT_EQ(t.whole.n_calls, 1);
    struct str args = t.whole.calls[0].arguments;
    EXPECT(str_starts(args, STR("{\"a\":\"5\",\"a\":\"5\"")));
    EXPECT(str_ends(args, STR("\"a\":5,\"a\":5}")));
    parser_log_clear(&t);
    arena_free(a);
    free((char *)(uintptr_t)tools.p);
    free((char *)(uintptr_t)text.p);
    parser_format_free(f);
}

static void invalid_utf8_is_replaced_for_all_cuts(void)
{
    static const char text[] =
        "a\xFF<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"\xC3\xA9\xE2\x82\"}}"
        "</tool_call>\xF0\x9F\x98\x80\xF0\x9F";
    struct str in = { text, sizeof(text) - 1 };
    struct parser_format *f = format("hermes_json", "null");
    struct parser_log whole, t;

    parser_log_run(&whole, f, NULL, in, NULL, 0);
    EXPECT(str_is(buf_str(&whole.whole.content), "a\xEF\xBF\xBD\xF0\x9F\x98\x80\xEF\xBF\xBD"));
    EXPECT(str_is(whole.whole.calls[0].arguments, "{\"a\":\"\xC3\xA9\xEF\xBF\xBD\xEF\xBF\xBD\"}"));
    for (size_t i = 0; i <= in.n; i++)
        for (size_t k = i; k <= in.n && k < i + 5; k++) {
            size_t cuts[] = { i, k };
            parser_log_run(&t, f, NULL, in, cuts, 2);
            EXPECT(str_eq(buf_str(&t.log), buf_str(&whole.log)));
            parser_log_clear(&t);
        }
    parser_log_clear(&whole);
    parser_format_free(f);
}

static void probe_uses_the_same_parser(void)
{
    struct parser_format *f = format("hermes_json", "null");
    struct str good = STR("Sure.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {}}\n");
    struct str bad = STR("<tool_call>{\"name\": \"get_weather\", \"arguments\": {");

    EXPECT(parser_has_call(f, good, STR("get_weather")));
    EXPECT(!parser_has_call(f, good, STR("get_time")));
    EXPECT(!parser_has_call(f, bad, STR("get_weather")));
    parser_format_free(f);
}

/* Random tags, quotes, brackets and words, parsed by every format with random cuts. */
static void random_texts_parse_equally_for_all_cuts(void)
{
    enum { SEED = 11, ROUNDS = 60, PIECES = 40 };
    static const char *const words[] = { "{\"name\":\"f\",\"arguments\":", "{\"a\":1}", "}", "]",
        "[", "f(", "a='x'", ")", "\"", "\\", "\n", " ", ",", "<think>", "</think>", "x", "{",
        "null", "\xE2\x97\x81", "get_weather" };
    uint64_t x = SEED;

    printf("seed %d\n", SEED);
    for (size_t row = 0; tool_format_at(row); row++) {
        const struct tool_format *r = tool_format_at(row);
        struct parser_format *f = format(r->id, "think_tag");
        for (int round = 0; round < ROUNDS; round++) {
            char text[PIECES * 64];
            size_t n = 0, n_cuts = 0, cuts[PIECES * 64];
            for (int i = 0; i < PIECES; i++) {
                uint64_t k = kit_random(&x) % (ARRAY_LEN(words) + 8);
                struct str w =
                    k < ARRAY_LEN(words)  ? str_of(words[k])
                    : k % 2 && r->n_marks ? r->marks[kit_random(&x) % (uint64_t)r->n_marks].text
                    : r->n_edges          ? r->edges[kit_random(&x) % (uint64_t)r->n_edges].literal
                                          : STR("y");
                memcpy(text + n, w.p, w.n);
                n += w.n;
            }
            for (size_t i = 1; i < n; i++)
                if (kit_random(&x) % 4 == 0)
                    cuts[n_cuts++] = i;
            struct parser_log whole, t;
            parser_log_run(&whole, f, NULL, (struct str){ text, n }, NULL, 0);
            parser_log_check(&whole);
            parser_log_run(&t, f, NULL, (struct str){ text, n }, cuts, n_cuts);
            EXPECT(str_eq(buf_str(&t.log), buf_str(&whole.log)));
            parser_log_clear(&t);
            parser_log_clear(&whole);
        }
        parser_format_free(f);
    }
}

static void every_failed_allocation_is_reported(void)
{
    struct str text =
        STR("Hi <think>hm</think> <tool_call>{\"name\":\"f\",\"arguments\":{\"a\":[1]}}"
            "</tool_call> <tool_call>{\"name\":\"g\"");
    uint64_t nth;

    for (nth = 1;; nth++) {
        struct parser_format *f = NULL;
        struct parsed r;
        struct err e = { 0 };
        uint64_t before = mem_failures();
        parsed_init(&r, MB);
        mem_fail_after(nth);
        int rc = parser_format_new(&f, STR("hermes_json"), STR("think_tag"), &e);
        if (!rc)
            rc = parse_text(&r, f, NULL, text, &e);
        mem_fail_after(0);
        bool failed = mem_failures() > before;
        EXPECT(!failed || (rc && e.code == ERR_MEMORY) || r.n_calls <= 1);
        EXPECT(failed || (!rc && r.n_calls == 1));
        parsed_clear(&r);
        parser_format_free(f);
        if (!failed)
            break;
    }
    EXPECT(nth > (uint64_t)FAULTS_AT_LEAST(8));
}

TESTS(TEST(format_is_found_by_its_id_and_unknown_ids_are_named),
    TEST(no_marker_hides_another_in_any_format_pair), TEST(arguments_are_streamed),
    TEST(text_is_held_back_only_while_it_may_be_a_marker),
    TEST(every_format_is_linear_on_its_own_markers),
    TEST(every_format_is_linear_on_brackets_quotes_and_blanks),
    TEST(a_mebibyte_of_each_kind_is_linear), TEST(call_with_ten_thousand_levels_is_parsed),
    TEST(names_and_calls_beyond_the_limits_are_text), TEST(a_call_beyond_the_limit_is_text),
    TEST(lookups_in_a_large_schema_are_limited), TEST(invalid_utf8_is_replaced_for_all_cuts),
    TEST(probe_uses_the_same_parser), TEST(random_texts_parse_equally_for_all_cuts),
    TEST(every_failed_allocation_is_reported))
