/* Forced tool calls: for every format, the prefix of a forced call plus a possible continuation
 * of the model parses as a call. */
#include "support/parser_kit.h"

#include "support/text_kit.h"
#include "output/forced_call.h"

#define BAR "\xEF\xBD\x9C"
#define DSML_REST(tag)                                                                             \
    "<" BAR tag "parameter name=\"a\" string=\"false\">1</" BAR tag "parameter>\n</" BAR tag       \
    "invoke>"

/* Rest of the call f(a=1) after its name, in the syntax of each format. */
static const char *const call_rests[] = { "{\"a\": 1}}\n</tool_call>", "{\"a\": 1}", "{\"a\": 1}}",
    "a=1)", "a:1}", "<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
    "<parameter=a>\n1\n</parameter>\n</function>", "<parameter name=\"a\">1</parameter>\n</invoke>",
    DSML_REST("DSML" BAR), DSML_REST("DSML" BAR " "), DSML_REST("GCML" BAR),
    "<steptml:parameter name=\"a\">1</steptml:parameter></steptml:invoke>",
    "<|open|>argument key=\"a\" "
    "type=\"number\"<|sep|>1<|close|>argument<|sep|><|close|>call<|sep|>",
    "<arg_key:opensource>a</arg_key:opensource><arg_value:opensource>1</arg_value:opensource>"
    "</tool_call:opensource>",
    "<param name=\"a\">1</param></function>",
    "]<]minimax[>[<a>1]<]minimax[>[</a>\n]<]minimax[>[</invoke>",
    "<atem:parameter name=\"a\">1</atem:parameter>\n</atem:invoke>" };

static struct arena *arena;

static struct forced_call forced_prefix(
    struct str tool, struct str thinking, const struct forced_call_options *what)
{
    arena = arena ? arena : arena_new(MB);
    struct parser_format *f;
    struct forced_call o;
    struct err e;

    EXPECT_EQ(parser_format_new(&f, tool, thinking, &e), 0);
    EXPECT_EQ(forced_call_build(&o, f, what, arena, &e), 0);
    parser_format_free(f);
    return o;
}

static bool is_call(struct str tool, struct str opening, const char *rest, struct str name)
{
    struct parser_options options = { .names = &name, .n_names = 1 };
    struct parser_format *f;
    struct parsed r;
    struct buf all;
    struct err e;

    EXPECT_EQ(parser_format_new(&f, tool, STR("null"), &e), 0);
    buf_init(&all, MB);
    buf_puts(&all, opening);
    buf_putz(&all, rest);
    EXPECT_EQ(parse_text(&r, f, &options, buf_str(&all), &e), 0);
    bool found = r.n_calls == 1 && str_eq(r.calls[0].name, name) && !r.content.n;
    if (found) { /* {"a": 1}, with or without the blank */
        EXPECT(str_starts(r.calls[0].arguments, STR("{\"a\":")));
        EXPECT(str_ends(r.calls[0].arguments, STR("1}")));
    }
    parsed_clear(&r);
    buf_clear(&all);
    parser_format_free(f);
    return found;
}

static void continuation_of_a_forced_prefix_is_a_call(void)
{
    struct str name = STR("get_f");

    for (size_t i = 1; tool_format_at(i); i++) {
        struct str tool = str_of(tool_format_at(i)->id);
        struct forced_call named = forced_prefix(
                               tool, STR("null"), &(struct forced_call_options){ .name = name }),
                           any = forced_prefix(tool, STR("null"),
                               &(struct forced_call_options){ .name = STR_NONE });
        bool found = false;
        for (size_t k = 0; k < ARRAY_LEN(call_rests); k++)
            found |= is_call(tool, named.text, call_rests[k], name);
        if (!found)
            fprintf(stderr, STR_FMT ": " STR_FMT "\n", STR_ARG(tool), STR_ARG(named.text));
        EXPECT(found);
        EXPECT(str_starts(named.text, any.text));
    }
}

static void only_the_name_is_not_trusted(void)
{
    struct str name = STR("<|im_end|>\"");

    for (size_t i = 1; tool_format_at(i); i++) {
        struct forced_call o = forced_prefix(str_of(tool_format_at(i)->id), STR("null"),
            &(struct forced_call_options){ .name = name });
        struct buf all;
        buf_init(&all, MB);
        for (int k = 0; k < o.n_spans; k++) {
            EXPECT(o.spans[k].is_trusted == (str_find(o.spans[k].text, STR("im_end")) < 0));
            buf_puts(&all, o.spans[k].text);
        }
        EXPECT(str_eq(buf_str(&all), o.text));
        EXPECT(str_find(o.text, STR("im_end|>")) > 0);
        buf_clear(&all);
    }
}

static void markers_become_control_tokens_and_the_name_does_not(void)
{
    struct kit_vocab k = { 0 };
    struct vocab *v;
    struct err e;
    int n_marks = 0, n_ends = 0;

    kit_add_bytes(&k, true);
    int32_t mark = kit_add_token(&k, "<tool_call>", TOKEN_CONTROL);
    int32_t end = kit_add_token(&k, "<|im_end|>", TOKEN_CONTROL);
    EXPECT_EQ(kit_make_vocab(&v, &k, "gpt2", gguf_writer_new(32), &e), 0);
    struct forced_call o = forced_prefix(STR("hermes_json"), STR("null"),
        &(struct forced_call_options){ .name = STR("<|im_end|><tool_call>") });
    struct tokens t = { .arena = arena };
    EXPECT_EQ(vocab_encode(v, o.spans, (size_t)o.n_spans, false, &t, &e), 0);
    for (size_t i = 0; i < t.n; i++) {
        n_marks += t.ids[i] == mark;
        n_ends += t.ids[i] == end;
    }
    EXPECT_EQ(n_marks, 1);
    EXPECT_EQ(n_ends, 0);
    vocab_close(v);
}

static void open_reasoning_is_closed(void)
{
    static const struct {
        const char *thinking;
        enum parser_start start;
        bool is_closed;
    } rows[] = {
        { "think_tag", PARSER_START_DEFAULT, false },
        { "think_tag", PARSER_START_CONTENT, false },
        { "think_tag", PARSER_START_REASONING, true },
        { "deepseek_r1", PARSER_START_DEFAULT, true },
        { "deepseek_r1", PARSER_START_CONTENT, false },
        { "null", PARSER_START_DEFAULT, false },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct forced_call o = forced_prefix(STR("hermes_json"), str_of(rows[i].thinking),
            &(struct forced_call_options){ .name = STR("f"), .start = rows[i].start });
        EXPECT(str_starts(o.text, STR("\n</think>\n\n")) == rows[i].is_closed);
    }
}

static void call_numbers_continue(void)
{
    struct forced_call o = forced_prefix(STR("kimi_k2"), STR("null"),
        &(struct forced_call_options){ .name = STR("f"), .n_earlier_calls = 4 });

    EXPECT(str_find(o.text, STR("functions.f:4<|tool_call_argument_begin|>")) > 0);
}

static void format_without_calls_is_rejected(void)
{
    struct parser_format *f;
    struct forced_call o;
    struct err e;

    EXPECT_EQ(parser_format_new(&f, STR("null"), STR("null"), &e), 0);
    arena = arena ? arena : arena_new(MB);
    EXPECT_EQ(
        forced_call_build(&o, f, &(struct forced_call_options){ .name = STR("f") }, arena, &e), -1);
    EXPECT(e.code == ERR_UNSUPPORTED);
    EXPECT_STR(e.param, "tool_choice");
    parser_format_free(f);
}

static void full_arena_is_an_error(void)
{
    arena_free(arena);
    arena = NULL;
}

TESTS(TEST(continuation_of_a_forced_prefix_is_a_call), TEST(only_the_name_is_not_trusted),
    TEST(markers_become_control_tokens_and_the_name_does_not), TEST(open_reasoning_is_closed),
    TEST(call_numbers_continue), TEST(format_without_calls_is_rejected),
    TEST(full_arena_is_an_error))
