/* compiled_constraints.h: compiled constraints of all kinds over one small vocabulary, for tests of
 * the engine.
 *
 * The vocabulary has a token for each byte, fragments of tool calls and of JSON, control tokens of
 * tool formats, and one end token, the last id. Other ids have no bytes.
 *
 * Owner: the test. The constraints are read-only: any thread. */
#pragma once

#include "constrain/constraint.h"
#include "support/check.h"

enum { CC_VOCAB = 340, CC_BYTES = 256, CC_END = CC_VOCAB - 1, CC_MAX = 16 };

#define CC_SCHEMA                                                                                  \
    "{\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\", \"maxLength\": 6}, " \
    "\"days\": {\"type\": \"integer\", \"minimum\": 1}, \"unit\": {\"enum\": [\"c\", \"f\"]}}, "   \
    "\"required\": [\"city\", \"days\"], \"additionalProperties\": false}"
#define CC_TOOLS                                                                                   \
    "[{\"name\": \"get_weather\", \"parameters\": " CC_SCHEMA "}, {\"name\": \"free\"}]"
#define CC_CALLS(format, max)                                                                      \
    "{\"format\": \"" format "\", \"max_calls\": " max ", \"tools\": " CC_TOOLS "}"

struct cc_source {
    enum constraint_kind kind;
    const char *text;
};

/* One tool format per form of the arguments: JSON, XML, values between tags, channels;
 * and calls or a JSON value. */
static const struct cc_source cc_sources[] = {
    { CONSTRAINT_TOOLS, CC_CALLS("hermes_json", "0") },
    { CONSTRAINT_TOOLS, CC_CALLS("qwen3_coder", "2") },
    { CONSTRAINT_TOOLS, CC_CALLS("glm45", "1") },
    { CONSTRAINT_TOOLS, CC_CALLS("llama_xml", "0") },
    { CONSTRAINT_TOOLS, CC_CALLS("harmony", "1") },
    { CONSTRAINT_TOOLS, "{\"format\": \"hermes_json\", \"max_calls\": 1, \"tools\": " CC_TOOLS
                        ", \"value\": {\"kind\": 0, \"text\": \"\"}}" },
    { CONSTRAINT_JSON, "" },
    { CONSTRAINT_JSON_SCHEMA, CC_SCHEMA },
    { CONSTRAINT_JSON_SCHEMA,
        "{\"type\": \"array\", \"uniqueItems\": true, \"minItems\": 3, \"items\": "
        "{\"anyOf\": [{\"type\": \"integer\"}, {\"type\": \"string\", \"pattern\": "
        "\"^[a-z]{1,4}$\"}]}}" },
    { CONSTRAINT_GBNF, "root ::= \"(\" (root | [a-z]+)* \")\"" },
    { CONSTRAINT_LARK, "start: \"x\" start \"y\" | NUMBER\nNUMBER: /[0-9]{1,3}/" },
    { CONSTRAINT_REGEX, "([a-f]+-){2,8}(?!x)[a-z]" },
    { CONSTRAINT_CHOICE, "[\"yes\", \"no\", \"it depends\"]" },
    { CONSTRAINT_STRUCTURAL_TAG,
        "{\"format\": {\"type\": \"triggered_tags\", \"triggers\": [\"<f\"], \"tags\": "
        "[{\"begin\": "
        "\"<f>\", \"content\": {\"type\": \"json_schema\", \"json_schema\": " CC_SCHEMA
        "}, \"end\": \"</f>\"}]}}" },
};

struct compiled_constraints {
    struct str tokens[CC_VOCAB];
    char bytes[CC_BYTES];
    struct vocab_tables *tables;
    struct constraint *all[CC_MAX]; /* constraints of cc_sources */
    int n;
};

static const char *const cc_fragments[] = { "{\"", "\": ", "\": \"", "\", \"", "\"}", "\"}}", "}}",
    "[{", "}]", "name", "arguments", "city", "days", "unit", "get_weather", "get_", "weather",
    "free", "{\"name\": \"", "\", \"arguments\": {", "\"city\"", "\"days\"", "\": {", ", ", ": ",
    "10", "12", "ab", "abc", "()", "))", "-a", "xx", "yy", "it", " depends", "<f>", "</f>", "<f",
    "<function=", "</function>", "<parameter=", "</parameter>", ">\n", "\n<", "</",
    "city=", "get_weather(" };
static const char *const cc_control[] = { "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>",
    "<arg_value>", "</arg_value>", "<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|call|>",
    "<|constrain|>" };
enum { CC_CONTROL = CC_BYTES + ARRAY_LEN(cc_fragments) }; /* the first control token */

static inline struct str cc_bytes(const void *ctx, int32_t id)
{
    const struct compiled_constraints *c = ctx;

    return id < CC_CONTROL ? c->tokens[id] : STR_NONE;
}

static inline bool cc_is_end(const void *ctx, int32_t id)
{
    (void)ctx;
    return id == CC_END;
}

static inline int32_t cc_find(const void *ctx, struct str text)
{
    const struct compiled_constraints *c = ctx;

    for (int32_t id = CC_BYTES; id < CC_END; id++)
        if (c->tokens[id].n && str_eq(c->tokens[id], text))
            return id;
    return TOKEN_NONE;
}

/* The tables only; no constraint is compiled. */
static inline void compiled_constraints_vocab(struct compiled_constraints *c)
{
    const struct token_source source = { c, CC_VOCAB, cc_bytes, cc_is_end, cc_find };
    struct err e = { 0 };

    *c = (struct compiled_constraints){ .n = 0 };
    _Static_assert(CC_CONTROL + ARRAY_LEN(cc_control) < CC_END, "all tokens have an id");
    for (int i = 0; i < CC_BYTES; i++) {
        c->bytes[i] = (char)i;
        c->tokens[i] = (struct str){ &c->bytes[i], 1 };
    }
    for (size_t i = 0; i < ARRAY_LEN(cc_fragments); i++)
        c->tokens[CC_BYTES + i] = str_of(cc_fragments[i]);
    for (size_t i = 0; i < ARRAY_LEN(cc_control); i++)
        c->tokens[CC_CONTROL + i] = str_of(cc_control[i]);
    CHECK(!vocab_tables_new(&c->tables, &source, &e));
}

static inline void compiled_constraints_open(struct compiled_constraints *c)
{
    struct err e = { 0 };

    _Static_assert(ARRAY_LEN(cc_sources) <= CC_MAX, "all sources have a place");
    compiled_constraints_vocab(c);
    for (; c->n < (int)ARRAY_LEN(cc_sources); c->n++) {
        struct constraint_source src = { .kind = cc_sources[c->n].kind,
            .text = str_of(cc_sources[c->n].text) };
        if (constraint_new(&c->all[c->n], &src, c->tables, &e))
            fprintf(stderr, "%s: %s\n", cc_sources[c->n].text, e.msg);
        EXPECT(c->all[c->n] != NULL);
    }
}

static inline void compiled_constraints_close(struct compiled_constraints *c)
{
    for (int i = 0; i < c->n; i++)
        constraint_unref(c->all[i]);
    vocab_tables_free(c->tables);
}
