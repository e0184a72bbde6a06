/* parser_kit.h: runs the output parser over a text with given cuts and records its output
 * events. */
#pragma once

#include "base/mem.h"
#include "base/utf8.h"
#include "output/parser.h"
#include "output/format_table.h"

#ifdef KIT_FUZZ /* cmocka is not available */
#define EXPECT(x)       CHECK(x)
#define EXPECT_EQ(a, b) CHECK((a) == (b))
#else
#include "support/check.h"
#endif

#define KIT_TOOLS                                                                                  \
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{\"type\":"     \
    "\"object\",\"properties\":{\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"}}}}" \
    "},"                                                                                           \
    "{\"type\":\"function\",\"function\":{\"name\":\"now\"}},"                                     \
    "{\"name\":\"note\",\"input_schema\":{\"properties\":{\"text\":{\"type\":\"string\"}}}},"      \
    "{\"name\":\"plan\",\"parameters\":{\"properties\":{\"where\":{\"type\":\"object\"},"          \
    "\"list\":{\"type\":\"array\"},\"on\":{\"type\":\"boolean\"}}}},"                              \
    "{\"name\":\"typed\",\"parameters\":{\"properties\":{\"s\":{\"type\":\"string\"},"             \
    "\"n\":{\"type\":\"integer\"},\"b\":{\"type\":\"boolean\"},\"o\":{\"type\":\"object\"},"       \
    "\"l\":{\"type\":\"array\"},\"m\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]},"    \
    "\"e\":{\"enum\":[\"7\",\"8\"]}}}}]"

/* All output events as one text: equal texts mean equal outputs. Consecutive events of one kind
 * are joined. */
struct parser_log {
    struct parsed whole;
    struct buf log;
    char last; /* kind of the last event */
    int n_begun, n_broken;
    bool is_open;
};

static inline void parser_log_text(struct parser_log *t, char kind, struct str text)
{
    EXPECT(text.n > 0);
    EXPECT(kind == 'a' ? t->is_open : !t->is_open);
    if (t->last != kind)
        buf_printf(&t->log, "\n%c ", kind);
    t->last = kind;
    buf_puts(&t->log, text);
}

static inline void parser_log_content(void *ctx, int choice, struct str text)
{
    struct parser_log *t = ctx;
    parser_log_text(t, 'c', text);
    parsed_ops.content(&t->whole, choice, text);
}

static inline void parser_log_reasoning(void *ctx, int choice, struct str text)
{
    struct parser_log *t = ctx;
    parser_log_text(t, 'r', text);
    parsed_ops.reasoning(&t->whole, choice, text);
}

static inline void parser_log_call_begin(void *ctx, int choice, int call, struct str name)
{
    struct parser_log *t = ctx;
    EXPECT(!t->is_open && name.n > 0);
    EXPECT_EQ(call, t->n_begun);
    t->is_open = true;
    t->n_begun++;
    t->last = 'b';
    buf_printf(&t->log, "\nb %d " STR_FMT, call, STR_ARG(name));
    parsed_ops.call_begin(&t->whole, choice, call, name);
}

static inline void parser_log_call_args(void *ctx, int choice, int call, struct str json)
{
    struct parser_log *t = ctx;
    EXPECT_EQ(call, t->n_begun - 1);
    parser_log_text(t, 'a', json);
    parsed_ops.call_args(&t->whole, choice, call, json);
}

static inline void parser_log_call_end(void *ctx, int choice, int call)
{
    struct parser_log *t = ctx;
    EXPECT(t->is_open && t->last == 'a'); /* arguments are never empty */
    EXPECT_EQ(call, t->n_begun - 1);
    t->is_open = false;
    t->last = 'e';
    buf_printf(&t->log, "\ne");
    parsed_ops.call_end(&t->whole, choice, call);
}

static inline void parser_log_call_broken(void *ctx, int choice, int call)
{
    struct parser_log *t = ctx;
    EXPECT(t->is_open);
    EXPECT_EQ(call, t->n_begun - 1);
    t->is_open = false;
    t->n_broken++;
    t->last = 'x';
    buf_printf(&t->log, "\nx");
    parsed_ops.call_broken(&t->whole, choice, call);
}

static const struct output_ops parser_log_ops = { parser_log_content, parser_log_reasoning,
    parser_log_call_begin, parser_log_call_args, parser_log_call_end, parser_log_call_broken };

static inline void parser_log_clear(struct parser_log *t)
{
    parsed_clear(&t->whole);
    buf_clear(&t->log);
}

/* Parses the text in n_cuts + 1 pieces; cuts are ascending offsets. */
static inline void parser_log_run(struct parser_log *t, const struct parser_format *f,
    const struct parser_options *o, struct str text, const size_t *cuts, size_t n_cuts)
{
    struct err e = { 0 };
    size_t from = 0;

    *t = (struct parser_log){ .last = 0 };
    parsed_init(&t->whole, 64 * MB);
    buf_init(&t->log, 256 * MB);
    struct parser *p = parser_new(f, o, &parser_log_ops, t);
    EXPECT(p);
    for (size_t i = 0; i <= n_cuts; i++) {
        size_t to = i < n_cuts ? cuts[i] : text.n;
        EXPECT(!parser_put(p, (struct str){ text.p + from, to - from }, &e));
        from = to;
    }
    EXPECT(!parser_end(p, &e));
    EXPECT(!t->is_open && !t->whole.failed);
    EXPECT_EQ(parser_n_calls(p), t->whole.n_calls);
    EXPECT(parser_work(p) <= 16 * (text.n + n_cuts) + 1024);
    parser_free(p);
}

/* Checks the invariants of every output. */
static inline void parser_log_check(const struct parser_log *t)
{
    static const struct json_limits deep = { 1 << 20, 1 << 24 };
    struct str content = buf_str(&t->whole.content), reasoning = buf_str(&t->whole.reasoning);
    struct arena *a = arena_new(512 * MB);
    struct json *j;
    struct err e;

    EXPECT(utf8_valid(content) && utf8_valid(reasoning));
    EXPECT_EQ(t->n_begun, t->n_broken + t->whole.n_calls);
    for (int i = 0; a && i < t->whole.n_calls; i++) {
        EXPECT(t->whole.calls[i].is_complete && t->whole.calls[i].name.n > 0);
        EXPECT(!json_parse(&j, t->whole.calls[i].arguments, a, &deep, &e));
        EXPECT(j->kind == JSON_OBJECT);
    }
    arena_free(a);
}

static inline uint64_t kit_random(uint64_t *x)
{
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return *x >> 33;
}
