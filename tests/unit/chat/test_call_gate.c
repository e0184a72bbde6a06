/* Tool calls in free text, with the vocabulary of the demo model: masks are compared with each
 * token tried alone, along texts and random walks. */
#include "chat/call_gate.h"

#include "base/limits.h"
#include "base/rng.h"
#include "support/check.h"

#include <stdio.h>

enum { WALKS = 20, STEPS = 60 };

struct kit {
    struct gguf *file;
    struct vocab *v;
    struct vocab_tables *t;
    struct parser_format *format;
    struct call_gates *gates;
    struct constraint_state *state;
    struct call_gate *gate;
    struct sample_constraint k;
};

static struct kit kit;
static struct err e;

#define TOOLS(max)                                                                                 \
    "{\"format\": \"hermes_json\", \"max_calls\": " max                                            \
    ", \"text\": true, \"tools\": [{\"name\": "                                                    \
    "\"get_weather\", \"parameters\": {\"type\": \"object\", \"properties\": {\"days\": "          \
    "{\"type\": \"integer\"}}, \"required\": [\"days\"], \"additionalProperties\": false}}, "      \
    "{\"name\": \"note\"}]}"
#define CALL "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"days\": 3}}\n</tool_call>"

static void open_kit(const char *reasoning, enum parser_start start, const char *tools)
{
    struct constraint_source src = { .kind = CONSTRAINT_TOOLS, .text = str_of(tools) };
    struct constraint *c;

    EXPECT_EQ(gguf_open(&kit.file, "models/demo.gguf", &e), 0);
    EXPECT_EQ(vocab_open(&kit.v, kit.file, &e), 0);
    struct token_source source = token_source_of_vocab(kit.v);
    EXPECT_EQ(vocab_tables_new(&kit.t, &source, &e), 0);
    EXPECT_EQ(parser_format_new(&kit.format, STR("hermes_json"), str_of(reasoning), &e), 0);
    EXPECT_EQ(call_gates_new(&kit.gates, kit.format, kit.v, &e), 0);
    EXPECT(kit.gates != NULL);
    EXPECT_EQ(constraint_new(&c, &src, kit.t, &e), 0);
    EXPECT_EQ(constraint_state_new(&kit.state, c, &e), 0);
    constraint_unref(c);
    kit.gate = call_gate_new(kit.gates, kit.state, start, false);
    EXPECT(kit.gate != NULL && call_gate_bytes(kit.gate) > 0);
    kit.k = call_gate_ops(kit.gate);
}

static void close_kit(void)
{
    call_gate_free(kit.gate);
    constraint_state_free(kit.state);
    call_gates_free(kit.gates);
    parser_format_free(kit.format);
    vocab_tables_free(kit.t);
    vocab_close(kit.v);
    gguf_close(kit.file);
    kit = (struct kit){ 0 };
}

static bool mask_has(const struct token_mask *m, int32_t id)
{
    for (int i = 0; m->form == MASK_FORM_IDS && i < m->n_ids; i++)
        if (m->ids[i] == id)
            return true;
    return m->form == MASK_FORM_ALL ||
           (m->form == MASK_FORM_BITS && m->bits[id / 32] >> id % 32 & 1);
}

/* Compares the mask with the definition. Returns a random permitted token; -1: only end tokens. */
static int32_t check_mask(struct rng *r)
{
    const struct constraint_ops *ops = kit.k.ops;
    int32_t n = vocab_n_tokens(kit.v), chosen = -1;
    static uint32_t expected[1 << 15];
    struct token_mask m;
    uint32_t n_seen = 0;

    memset(expected, 0, sizeof(expected));
    bool may_end = ops->accepts(kit.k.self);
    for (int32_t id = 0; id < n; id++) {
        bool fits = vocab_is_end(kit.v, id) ? may_end : ops->push(kit.k.self, id);
        if (!fits)
            continue;
        expected[id / 32] |= 1u << id % 32;
        if (vocab_is_end(kit.v, id))
            continue;
        ops->pop(kit.k.self, 1);
        if (rng_below(r, ++n_seen) == 0)
            chosen = id;
    }
    while (ops->mask(kit.k.self, 1000, &m, &e) == MASK_MORE)
        ;
    for (int32_t id = 0; id < n; id++)
        EXPECT_EQ(mask_has(&m, id), (expected[id / 32] >> id % 32 & 1) != 0);
    return chosen;
}

static bool push_text(const char *text)
{
    struct arena *a = arena_new(MB);
    struct tokens t = { .arena = a };
    struct span span = { str_of(text), true };
    bool ok = true;

    EXPECT_EQ(vocab_encode(kit.v, &span, 1, false, &t, &e), 0);
    for (size_t i = 0; ok && i < t.n; i++)
        ok = kit.k.ops->push(kit.k.self, t.ids[i]);
    arena_free(a);
    return ok;
}

static bool reads(const char *text)
{
    kit.k.ops->reset(kit.k.self);
    return push_text(text);
}

static void text_is_free_and_calls_are_enforced(void)
{
    struct rng r = { .key = 1 };
    struct token_mask m;

    open_kit("null", PARSER_START_DEFAULT, TOOLS("0"));
    EXPECT_EQ((int)kit.k.ops->mask(kit.k.self, 1, &m, &e), (int)MASK_DONE);
    EXPECT_EQ((int)m.form, (int)MASK_FORM_ALL);
    EXPECT(reads("a < b, <tool and {\"name\": \"x\"} \xC3\xA9 <\xE2\x82\xAC <b>"));
    EXPECT(kit.k.ops->accepts(kit.k.self) && !kit.k.ops->is_complete(kit.k.self));
    EXPECT(!reads("<tool_call>\n{\"name\": \"get_time\""));
    EXPECT(!reads("text <tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"days\": \"x"));
    EXPECT(!reads("<tool_call>text"));
    EXPECT(reads("<tool_call>\n{\"name\": \"note\", \"arguments\": {\"any\": [1"));
    EXPECT(!kit.k.ops->accepts(kit.k.self));
    check_mask(&r);
    EXPECT(reads("I look. " CALL) && kit.k.ops->accepts(kit.k.self));
    EXPECT(push_text("\n" CALL "\nDone. " CALL) && kit.k.ops->accepts(kit.k.self));
    EXPECT(!push_text("<tool_call>text"));
    close_kit();
}

static void a_single_call_ends_the_output(void)
{
    open_kit("null", PARSER_START_DEFAULT, TOOLS("1"));
    EXPECT(reads("I look. " CALL));
    EXPECT(kit.k.ops->accepts(kit.k.self) && kit.k.ops->is_complete(kit.k.self));
    EXPECT(!push_text("x"));
    close_kit();
}

static void calls_do_not_begin_inside_reasoning(void)
{
    struct rng r = { .key = 2 };

    open_kit("think_tag", PARSER_START_DEFAULT, TOOLS("0"));
    EXPECT(reads(" <think>a <tool_call>text"));
    check_mask(&r);
    EXPECT(push_text("</think>") && push_text("\n\n"));
    check_mask(&r);
    EXPECT(push_text(CALL));
    EXPECT(reads("<think>a</think>") && !push_text("<tool_call>text"));
    EXPECT(reads("a <think>") && !push_text("<tool_call>text")); /* not at the beginning: text */
    close_kit();
    open_kit("think_tag", PARSER_START_REASONING, TOOLS("0"));
    EXPECT(reads("<tool_call>text</think>") && !push_text("<tool_call>text"));
    close_kit();
    open_kit("think_tag", PARSER_START_CONTENT, TOOLS("0"));
    EXPECT(!reads("<think><tool_call>text"));
    close_kit();
    open_kit("deepseek_v3", PARSER_START_REASONING, TOOLS("0")); /* a call ends the reasoning */
    EXPECT(reads("a ") && !push_text("<tool_call>text"));
    close_kit();
}

static void masks_equal_the_tokens_that_can_be_pushed(void)
{
    static const char *const texts[] = { "<", "<tool", "<think", CALL, "</think>", "\xE2" };
    struct rng r = { .key = 3 };

    for (int walk = 0; walk < (SMALL ? 3 : WALKS); walk++) {
        open_kit("think_tag", walk % 2 ? PARSER_START_DEFAULT : PARSER_START_REASONING,
            walk % 4 < 2 ? TOOLS("0") : TOOLS("1"));
        for (int i = 0; i < STEPS; i++) {
            int32_t token = check_mask(&r);
            if (token < 0)
                break;
            EXPECT(kit.k.ops->push(kit.k.self, token));
            if (i % 4 == 2)
                (void)push_text(texts[rng_below(&r, ARRAY_LEN(texts))]);
            if (i % 7 == 6)
                kit.k.ops->pop(kit.k.self, (int)rng_below(&r, 5));
        }
        close_kit();
    }
}

static void formats_without_a_trigger_have_no_gate(void)
{
    static const char *const ids[] = { "null", "json", "harmony", "pythonic" };

    open_kit("null", PARSER_START_DEFAULT, TOOLS("0"));
    for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
        struct parser_format *format;
        struct call_gates *gates;
        EXPECT_EQ(parser_format_new(&format, str_of(ids[i]), STR(""), &e), 0);
        EXPECT_EQ(call_gates_new(&gates, format, kit.v, &e), 0);
        EXPECT(gates == NULL);
        parser_format_free(format);
    }
    close_kit();
}

TESTS(TEST(text_is_free_and_calls_are_enforced), TEST(a_single_call_ends_the_output),
    TEST(calls_do_not_begin_inside_reasoning), TEST(masks_equal_the_tokens_that_can_be_pushed),
    TEST(formats_without_a_trigger_have_no_gate))
