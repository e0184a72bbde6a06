/* Output mode: control tokens that the output parser must see, and the parsed result. */
#include "output/output_mode.h"
#include "support/text_kit.h"

static const char *const harmony[] = { "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>",
    "<|end|>", "<|call|>" };

struct vocab_fixture {
    struct vocab *v;
    int32_t mark[ARRAY_LEN(harmony)], other, plain;
};

static struct vocab_fixture open_fixture(void)
{
    struct vocab_fixture w;
    struct kit_vocab k = { 0 };
    struct err e;

    kit_add_bytes(&k, true);
    w.other = kit_add_token(&k, "<|im_end|>", TOKEN_CONTROL);
    for (size_t i = 0; i < ARRAY_LEN(harmony); i++)
        w.mark[i] = kit_add_token(&k, harmony[i], TOKEN_CONTROL);
    w.plain = kit_add_token(&k, "<think>", TOKEN_USER_DEFINED);
    EXPECT_EQ(kit_make_vocab(&w.v, &k, "gpt2", gguf_writer_new(32), &e), 0);
    return w;
}

static struct output_mode open_mode(
    const char *tool, const char *thinking, unsigned flags, const struct vocab *v)
{
    struct parser_format *f;
    struct output_mode r;
    struct err e;

    EXPECT_EQ(parser_format_new(&f, str_of(tool), str_of(thinking), &e), 0);
    EXPECT_EQ(output_mode_open(&r, f, flags, v, &e), 0);
    parser_format_free(f);
    return r;
}

static void only_markers_are_shown_among_control_tokens(void)
{
    struct vocab_fixture w = open_fixture();
    struct output_mode r = open_mode("harmony", "harmony", OUTPUT_CALLS | OUTPUT_REASONING, w.v);

    EXPECT_EQ(r.n_control, (int)ARRAY_LEN(harmony));
    for (size_t i = 0; i < ARRAY_LEN(harmony); i++)
        EXPECT(output_mode_shows_token(&r, w.mark[i]));
    EXPECT(!output_mode_shows_token(&r, w.other) && !output_mode_shows_token(&r, w.plain) &&
           !output_mode_shows_token(&r, 'a'));
    EXPECT(!output_mode_shows_token(&r, TOKEN_NONE) && !output_mode_shows_token(&r, 1 << 30));
    output_mode_close(&r);
    vocab_close(w.v);
}

static void unrequested_output_is_not_parsed(void)
{
    struct vocab_fixture w = open_fixture();
    struct output_mode none = open_mode("harmony", "harmony", 0, w.v);
    struct output_mode no_format = open_mode("null", "null", OUTPUT_CALLS | OUTPUT_REASONING, w.v);
    struct output_mode calls = open_mode("hermes_json", "think_tag", OUTPUT_CALLS, w.v);
    struct output_mode thoughts = open_mode("hermes_json", "think_tag", OUTPUT_REASONING, w.v);

    EXPECT(!none.format && !none.n_control && !no_format.format);
    EXPECT(!output_mode_shows_token(&none, w.mark[0]));
    EXPECT_STR(parser_format_tool(calls.format), "hermes_json");
    EXPECT_STR(parser_format_reasoning(calls.format), "null");
    EXPECT_STR(parser_format_tool(thoughts.format), "null");
    EXPECT_STR(parser_format_reasoning(thoughts.format), "think_tag");
    output_mode_close(&none);
    output_mode_close(&no_format);
    output_mode_close(&calls);
    output_mode_close(&thoughts);
    vocab_close(w.v);
}

/* Control tokens and text as a model of this family generates them, through the detokenizer. */
static void hidden_control_tokens_are_parsed(void)
{
    struct vocab_fixture w = open_fixture();
    struct output_mode r = open_mode("harmony", "harmony", OUTPUT_CALLS | OUTPUT_REASONING, w.v);
    static const char generated[] =
        "1analysis2Hm.41assistant1commentary to=functions.f3json2{\"a\":1}5"
        "\x01";
    struct detok d = { 0 };
    struct parsed parsed_output;
    struct buf text;
    struct err e;

    buf_init(&text, MB);
    for (const char *c = generated; *c; c++) {
        struct tokens t = { .arena = arena_new(MB) };
        struct span one = { { c, 1 }, false };
        int32_t id = w.other;
        if (*c >= '0' && *c <= '5' && c[1] != '}')
            id = w.mark[*c - '0'];
        else if (*c != '\x01' && !vocab_encode(w.v, &one, 1, false, &t, &e))
            id = t.ids[0];
        detok_put(&d, w.v, id, output_mode_shows_token(&r, id), &text);
        arena_free(t.arena);
    }
    EXPECT(str_find(buf_str(&text), STR("im_end")) < 0);
    EXPECT_EQ(parse_text(&parsed_output, r.format, NULL, buf_str(&text), &e), 0);
    EXPECT(str_is(buf_str(&parsed_output.reasoning), "Hm.") && !parsed_output.content.n);
    EXPECT_EQ(parsed_output.n_calls, 1);
    EXPECT(str_is(parsed_output.calls[0].name, "f") &&
           str_is(parsed_output.calls[0].arguments, "{\"a\":1}"));
    parsed_clear(&parsed_output);
    buf_clear(&text);
    output_mode_close(&r);
    vocab_close(w.v);
}

TESTS(TEST(only_markers_are_shown_among_control_tokens), TEST(unrequested_output_is_not_parsed),
    TEST(hidden_control_tokens_are_parsed))
