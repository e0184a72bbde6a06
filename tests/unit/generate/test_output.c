/* Output events of a choice: generated text is split into text, reasoning and tool calls, up to
 * the limit of calls. */
#include "generate/output.h"
#include "support/text_kit.h"

static struct buf events; /* event log: "t:text|r:thought|<name|a:{}|>|!|" */

static void log_event(const char *kind, struct str s)
{
    buf_putz(&events, kind);
    buf_puts(&events, s);
    buf_putc(&events, '|');
}

static void on_content(void *ctx, int choice, struct str text)
{
    EXPECT_EQ(choice, 3);
    log_event("t:", text);
}

static void on_reasoning(void *ctx, int choice, struct str text)
{
    log_event("r:", text);
}

static void on_begin(void *ctx, int choice, int call, struct str name)
{
    log_event("<", name);
}

static void on_args(void *ctx, int choice, int call, struct str json)
{
    log_event("a:", json);
}

static void on_end(void *ctx, int choice, int call)
{
    log_event(">", STR(""));
}

static void on_broken(void *ctx, int choice, int call)
{
    log_event("!", STR(""));
}

static const struct output_ops all_ops = { on_content, on_reasoning, on_begin, on_args, on_end,
    on_broken };
static const struct output_ops content_ops = { .content = on_content };

static struct output_mode open_output_mode(void)
{
    struct parser_format *f;
    struct kit_vocab k = { 0 };
    struct vocab *v;
    struct output_mode r;
    struct err e;

    kit_add_bytes(&k, true);
    EXPECT_EQ(kit_make_vocab(&v, &k, "gpt2", gguf_writer_new(32), &e), 0);
    EXPECT_EQ(parser_format_new(&f, STR("hermes_json"), STR("think_tag"), &e), 0);
    EXPECT_EQ(output_mode_open(&r, f, OUTPUT_CALLS | OUTPUT_REASONING, v, &e), 0);
    parser_format_free(f);
    vocab_close(v);
    return r;
}

/* Feeds pieces of one token each; stops when the choice is full. */
struct fed {
    int n_reasoning, n_calls, n_broken;
    bool is_full, ends_inside_call;
};

static struct fed feed(
    const struct output_params *p, const struct output_ops *ops, const char *const *pieces)
{
    struct output t;
    struct err e;

    buf_clear(&events);
    buf_init(&events, MB);
    EXPECT_EQ(output_init(&t, p, 3, ops, NULL, &e), 0);
    for (; *pieces && !output_is_full(&t); pieces++) {
        output_count_token(&t);
        EXPECT_EQ(output_put(&t, str_of(*pieces), &e), 0);
    }
    if (!output_is_full(&t))
        EXPECT_EQ(output_end(&t, &e), 0);
    struct fed result = { t.n_reasoning, output_n_calls(&t), output_n_broken_calls(&t),
        output_is_full(&t), t.ends_inside_call };
    output_clear(&t);
    return result;
}

static void expect_log(const char *want)
{
    buf_putc(&events, '\0');
    EXPECT_STR(events.p, want);
    buf_clear(&events);
}

#define CALL(name) "<tool_call>{\"name\": \"" name "\", \"arguments\": {}}</tool_call>"

static void without_output_mode_everything_is_text(void)
{
    static const struct output_mode nothing;
    struct output_params none = { 0 }, empty = { .output_mode = &nothing };
    static const char *const said[] = { "<think>a</think>", CALL("f"), "", NULL };

    feed(&none, &all_ops, said);
    expect_log("t:<think>a</think>|t:" CALL("f") "|");
    feed(&empty, &all_ops, said);
    expect_log("t:<think>a</think>|t:" CALL("f") "|");
}

static void output_events_are_separated_and_counted(void)
{
    struct output_mode r = open_output_mode();
    struct output_params p = { .output_mode = &r };
    static const char *const said[] = { "<think>", "a", "b", "</think>", "c", CALL("f"), CALL("g"),
        NULL };

    struct fed t = feed(&p, &all_ops, said);
    expect_log("r:a|r:b|t:c|<f|a:{}|>|<g|a:{}|>|");
    EXPECT_EQ(t.n_reasoning, 4);
    EXPECT_EQ(t.n_calls, 2);
    feed(&p, &content_ops, said); /* without a request for reasoning no event is sent */
    expect_log("t:c|");
    output_mode_close(&r);
}

static void forced_prefix_is_parsed_and_not_counted(void)
{
    struct output_mode r = open_output_mode();
    struct output_params p = { .output_mode = &r,
        .opening = STR("\n</think>\n\n<tool_call>{\"name\": \"f\", \"arguments\": "),
        .parse = { .start = PARSER_START_REASONING } };
    static const char *const said[] = { "{\"a\":", "1}}", NULL }, *const nothing[] = { NULL };

    struct fed t = feed(&p, &all_ops, said);
    expect_log("<f|a:{\"a\":|a:1}|>|");
    EXPECT_EQ(t.n_reasoning, 0);
    t = feed(&p, &all_ops, nothing); /* the call has no arguments */
    expect_log("t:<tool_call>{\"name\": \"f\", \"arguments\": |");
    EXPECT_EQ(t.n_calls, 0);
    EXPECT_EQ(t.n_broken, 0); /* no event of the call was reported */
    output_mode_close(&r);
}

static void full_choice_emits_no_more_events(void)
{
    struct output_mode r = open_output_mode();
    struct output_params p = { .output_mode = &r, .parse = { .max_calls = 1 } };
    static const char *const said[] = { "a" CALL("f") "b" CALL("g"), "c", NULL };

    struct fed t = feed(&p, &all_ops, said);
    expect_log("t:a|<f|a:{}|>|");
    EXPECT(t.is_full && t.n_calls == 1);
    output_mode_close(&r);
}

static void call_of_an_unforced_function_is_text(void)
{
    static const struct str names[] = { { "f", 1 }, { "g", 1 } };
    struct output_mode r = open_output_mode();
    struct output_params p = { .output_mode = &r, .parse = { .names = names, .n_names = 2 } };
    static const char text[] = CALL("f") CALL("x") CALL("g");

    for (size_t cut = 0; cut < sizeof(text); cut++) {
        char front[sizeof(text)];
        memcpy(front, text, cut);
        front[cut] = '\0';
        const char *const said[] = { front, text + cut, NULL };
        struct fed t = feed(&p, &all_ops, said);
        EXPECT_EQ(t.n_calls, 2);
        EXPECT(str_find(buf_str(&events), STR("<x|")) < 0);
        EXPECT(str_find(buf_str(&events), STR("<g|")) > 0);
    }
    buf_clear(&events);
    output_mode_close(&r);
}

static void output_that_ends_inside_a_call_is_marked(void)
{
    static const struct {
        const char *text;
        bool ends_inside_call;
        int n_calls, n_broken;
    } rows[] = {
        { "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": ", true, 0, 1 },
        { CALL("f") "<tool_call>{\"name\": \"f\", \"arguments\": {", true, 1, 1 },
        { "<tool_call>{\"name\": \"f\", \"arguments\": {x and on", false, 0, 1 },
        { "<tool_call>{\"name\": \"f\", \"arguments\": {x " CALL("f"), false, 1, 1 },
        { "<tool_call>{\"name\": \"f", false, 0, 0 }, /* no event of the call was reported */
        { CALL("f"), false, 1, 0 },
        { "text", false, 0, 0 },
    };
    struct output_mode r = open_output_mode();
    struct output_params p = { .output_mode = &r };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        for (size_t cut = 0; cut <= strlen(rows[i].text); cut++) {
            char front[200];
            snprintf(front, sizeof(front), "%.*s", (int)cut, rows[i].text);
            const char *const said[] = { front, rows[i].text + cut, NULL };
            struct fed t = feed(&p, &all_ops, said);
            EXPECT_EQ(t.ends_inside_call, rows[i].ends_inside_call);
            EXPECT_EQ(t.n_calls, rows[i].n_calls);
            EXPECT_EQ(t.n_broken, rows[i].n_broken);
        }
    }
    buf_clear(&events);
    output_mode_close(&r);
}

TESTS(TEST(without_output_mode_everything_is_text), TEST(output_events_are_separated_and_counted),
    TEST(forced_prefix_is_parsed_and_not_counted), TEST(full_choice_emits_no_more_events),
    TEST(call_of_an_unforced_function_is_text), TEST(output_that_ends_inside_a_call_is_marked))
