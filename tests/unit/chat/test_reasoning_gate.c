/* Reasoning before constrained output, with the vocabulary of the demo model: masks are compared
 * with each token tried alone, along texts and random walks. */
#include "chat/reasoning_gate.h"

#include "base/limits.h"
#include "base/rng.h"
#include "support/check.h"

#include <stdio.h>

enum { WALKS = 40, STEPS = 60 };

struct kit {
    struct gguf *file;
    struct vocab *v;
    struct vocab_tables *t;
    struct parser_format *format;
    struct reasoning_gates *gates;
    struct constraint_state *state;
    struct reasoning_gate *gate;
    struct sample_constraint k;
};

static struct kit kit;
static struct err e;

static void open_kit(const char *reasoning, enum parser_start start, bool may_open)
{
    struct constraint_source src = { .kind = CONSTRAINT_REGEX, .text = STR("(ab|cd){1,3}") };
    struct constraint *c;

    EXPECT_EQ(gguf_open(&kit.file, "models/demo.gguf", &e), 0);
    EXPECT_EQ(vocab_open(&kit.v, kit.file, &e), 0);
    struct token_source source = token_source_of_vocab(kit.v);
    EXPECT_EQ(vocab_tables_new(&kit.t, &source, &e), 0);
    EXPECT_EQ(parser_format_new(&kit.format, STR(""), str_of(reasoning), &e), 0);
    EXPECT_EQ(reasoning_gates_new(&kit.gates, kit.format, kit.v, &e), 0);
    EXPECT_EQ(constraint_new(&c, &src, kit.t, &e), 0);
    EXPECT_EQ(constraint_state_new(&kit.state, c, &e), 0);
    constraint_unref(c);
    if (!kit.gates)
        return;
    kit.gate = reasoning_gate_new(kit.gates, kit.state, start, may_open);
    EXPECT(kit.gate);
    kit.k = reasoning_gate_ops(kit.gate);
}

static void close_kit(void)
{
    reasoning_gate_free(kit.gate);
    constraint_state_free(kit.state);
    reasoning_gates_free(kit.gates);
    parser_format_free(kit.format);
    vocab_tables_free(kit.t);
    vocab_close(kit.v);
    gguf_close(kit.file);
    kit = (struct kit){ 0 };
}

static bool mask_has(const struct token_mask *m, int32_t id)
{
    if (m->form == MASK_FORM_BITS)
        return m->bits[id / 32] >> id % 32 & 1;
    for (int i = 0; m->form == MASK_FORM_IDS && i < m->n_ids; i++)
        if (m->ids[i] == id)
            return true;
    return m->form == MASK_FORM_ALL;
}

/* Compares the mask with the definition. Returns a random permitted token; -1: only end tokens. */
static int32_t check_mask(struct rng *r)
{
    const struct constraint_ops *ops = kit.k.ops;
    struct token_mask m;
    int32_t n = vocab_n_tokens(kit.v), chosen = -1;
    static uint32_t copy[1 << 15];

    while (ops->mask(kit.k.self, 1000, &m, &e) == MASK_MORE)
        ;
    if (m.form == MASK_FORM_BITS) { /* a mask is valid until the next push */
        memcpy(copy, m.bits, ((size_t)n + 31) / 32 * sizeof(*copy));
        m.bits = copy;
    }
    int32_t ids[256];
    if (m.form == MASK_FORM_IDS) {
        EXPECT(m.n_ids <= (int)ARRAY_LEN(ids));
        memcpy(ids, m.ids, (size_t)m.n_ids * sizeof(*ids));
        m.ids = ids;
    }
    bool may_end = ops->accepts(kit.k.self);
    uint32_t n_seen = 0;
    for (int32_t id = 0; id < n; id++) {
        bool is_end = vocab_is_end(kit.v, id);
        bool fits = !is_end && ops->push(kit.k.self, id);
        if (fits)
            ops->pop(kit.k.self, 1);
        if (mask_has(&m, id) != (is_end ? may_end : fits))
            fprintf(stderr, "token %d '" STR_FMT "'\n", id, STR_ARG(vocab_text(kit.v, id)));
        EXPECT_EQ(mask_has(&m, id), is_end ? may_end : fits);
        if (fits && rng_below(r, ++n_seen) == 0)
            chosen = id;
    }
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

static void constraint_begins_after_reasoning(void)
{
    struct rng r = { .key = 1 };

    open_kit("think_tag", PARSER_START_DEFAULT, true);
    EXPECT(kit.gate);
    check_mask(&r);
    EXPECT(push_text("<think>") && push_text("Some text { < </thin") &&
           !kit.k.ops->accepts(kit.k.self));
    check_mask(&r);
    EXPECT(push_text("k>\n\n"));
    check_mask(&r);
    EXPECT(push_text("ab"));
    check_mask(&r);
    EXPECT(kit.k.ops->accepts(kit.k.self) && !kit.k.ops->is_complete(kit.k.self));
    EXPECT(!push_text("x") && push_text("cdab"));
    EXPECT(kit.k.ops->is_complete(kit.k.self));
    check_mask(&r);
    kit.k.ops->reset(kit.k.self);
    EXPECT(push_text("cd") && kit.k.ops->accepts(kit.k.self)); /* no reasoning */
    kit.k.ops->reset(kit.k.self);
    EXPECT(!push_text("\nab") && !push_text("hello"));
    close_kit();
}

static void masks_equal_the_tokens_that_can_be_pushed(void)
{
    static const enum parser_start starts[] = { PARSER_START_DEFAULT, PARSER_START_REASONING };
    struct rng r = { .key = 2 };

    for (int walk = 0; walk < (SMALL ? 4 : WALKS); walk++) {
        open_kit("think_tag", starts[walk % 2], true);
        for (int i = 0; i < STEPS; i++) {
            int32_t token = check_mask(&r);
            if (token < 0)
                break;
            EXPECT(kit.k.ops->push(kit.k.self, token));
            if (i % 20 == 10)
                EXPECT(push_text("</think>") || true);
            if (i % 7 == 6)
                kit.k.ops->pop(kit.k.self, (int)rng_below(&r, 5));
        }
        close_kit();
    }
}

static void a_text_that_is_continued_is_read_first(void)
{
    static const struct {
        const char *text, *next;
        enum parser_start start;
        size_t n_read;
    } rows[] = {
        { "ab", "cd", PARSER_START_CONTENT, 2 },
        { "abx", NULL, PARSER_START_CONTENT, 2 },
        { "<think>a b", "</think>cd", PARSER_START_REASONING, 10 },
        { "\n<think>a</think>\n\nab", "cd", PARSER_START_DEFAULT, 21 },
        { "<think>a</think>", "\nab", PARSER_START_DEFAULT, 16 },
        { "<think>a</think>x", NULL, PARSER_START_DEFAULT, 16 },
        { "", "ab", PARSER_START_DEFAULT, 0 },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        open_kit("think_tag", rows[i].start, true);
        /* With PARSER_START_REASONING the marker is part of the reasoning text. */
        EXPECT_EQ(reasoning_gate_read(kit.gate, str_of(rows[i].text)), rows[i].n_read);
        for (int again = 0; rows[i].next && again < 2; again++) {
            EXPECT(push_text(rows[i].next) && kit.k.ops->accepts(kit.k.self));
            kit.k.ops->reset(kit.k.self);
        }
        close_kit();
    }
}

/* Reasoning and output end within every limit that the shortest output fits in. */
static void reasoning_ends_in_time(void)
{
    static const enum parser_start starts[] = { PARSER_START_DEFAULT, PARSER_START_REASONING };
    struct rng r = { .key = 4 };

    for (int walk = 0; walk < (SMALL ? 4 : WALKS); walk++) {
        open_kit("think_tag", starts[walk % 2], true);
        EXPECT_EQ(reasoning_gate_limit(kit.gate, 100, &e), 0);
        int64_t least = reasoning_gate_cost(kit.gate);
        close_kit();
        EXPECT(least >= 1 && least < 20);
        int limit = (int)least + walk / 4, n = 0;
        open_kit("think_tag", starts[walk % 2], true);
        EXPECT_EQ(reasoning_gate_limit(kit.gate, limit, &e), 0);
        if (walk % 4 > 1 && limit > 10)
            n += push_text("<think>");
        for (; !kit.k.ops->is_complete(kit.k.self); n++) {
            EXPECT(n < limit);
            int32_t token = check_mask(&r);
            if (token < 0 && kit.k.ops->accepts(kit.k.self))
                break;
            EXPECT(token >= 0 && kit.k.ops->push(kit.k.self, token));
        }
        EXPECT(n <= limit && kit.k.ops->accepts(kit.k.self));
        close_kit();
    }
}

static void reasoning_can_be_absent(void)
{
    struct rng r = { .key = 3 };

    open_kit("null", PARSER_START_DEFAULT, true);
    EXPECT(!kit.gates);
    close_kit();
    open_kit("think_tag", PARSER_START_DEFAULT, false);
    EXPECT(!push_text("<think>") && push_text("ab"));
    check_mask(&r);
    close_kit();
}

/* The tables of a model serve gates of several requests at the same time. */
static void gates_of_a_model_share_its_tables(void)
{
    open_kit("think_tag", PARSER_START_DEFAULT, true);
    struct reasoning_gate *inside =
        reasoning_gate_new(kit.gates, kit.state, PARSER_START_REASONING, false);
    struct reasoning_gate *closed =
        reasoning_gate_new(kit.gates, kit.state, PARSER_START_DEFAULT, false);
    EXPECT(inside && closed);
    struct sample_constraint k = kit.k;
    kit.k = reasoning_gate_ops(inside);
    EXPECT(push_text("free text</think>"));
    kit.k = reasoning_gate_ops(closed);
    EXPECT(!push_text("<think>"));
    kit.k = k;
    EXPECT(push_text("<think>free text</think>ab"));
    reasoning_gate_free(inside);
    reasoning_gate_free(closed);
    close_kit();
}

TESTS(TEST(constraint_begins_after_reasoning), TEST(masks_equal_the_tokens_that_can_be_pushed),
    TEST(a_text_that_is_continued_is_read_first), TEST(reasoning_ends_in_time),
    TEST(reasoning_can_be_absent), TEST(gates_of_a_model_share_its_tables))
