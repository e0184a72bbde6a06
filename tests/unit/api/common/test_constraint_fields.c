/* Fields that constrain the output, in every dialect: kind, text, options, name for errors. */
#include "support/dialect_kit.h"

#define CHAT(s)       "{'messages':[{'role':'user','content':'?'}]," s "}"
#define COMPLETION(s) "{'prompt':'?'," s "}"
#define RESPONSES(s)  "{'input':'?'," s "}"
#define ANTHROPIC(s)  "{'max_tokens':9,'messages':[{'role':'user','content':'?'}]," s "}"
#define FORMAT(s)     CHAT("'response_format':{'type':" s "}")
#define VLLM(s)       CHAT("'structured_outputs':{" s "}")

struct row {
    const struct dialect *dialect;
    const char *body, *field, *text; /* text with ' for " */
    enum constraint_kind kind;
    bool closed_objects;
    enum json_whitespace whitespace;
};

/* clang-format off */
static const struct row rows[] = {
    { &dialect_openai_chat, FORMAT("'json_object'"), "response_format", "", CONSTRAINT_JSON },
    { &dialect_openai_chat, FORMAT("'json_object','schema':{'a':1}"), "response_format.schema",
        "{'a':1}", CONSTRAINT_JSON_SCHEMA },
    { &dialect_openai_chat, FORMAT("'json_schema','json_schema':{'name':'n','schema':{ 'a' : 1}}"),
        "response_format.json_schema.schema", "{ 'a' : 1}", CONSTRAINT_JSON_SCHEMA },
    { &dialect_openai_chat, FORMAT("'grammar','grammar':'root ::= [a]'"),
        "response_format.grammar", "root ::= [a]", CONSTRAINT_GBNF },
    { &dialect_openai_chat, FORMAT("'grammar','grammar':'start: /a/'"),
        "response_format.grammar", "start: /a/", CONSTRAINT_LARK },
    { &dialect_openai_chat, FORMAT("'regex','regex':'a+'"), "response_format.regex", "a+",
        CONSTRAINT_REGEX },
    { &dialect_openai_chat, FORMAT("'choice','choice':['a','b']"), "response_format.choice",
        "['a','b']", CONSTRAINT_CHOICE },
    { &dialect_openai_chat, FORMAT("'structural_tag','format':{}"), "response_format",
        "{'type':'structural_tag','format':{}}", CONSTRAINT_STRUCTURAL_TAG },
    { &dialect_openai_completion, COMPLETION("'response_format':{'type':'json_object'}"),
        "response_format", "", CONSTRAINT_JSON },

    { &dialect_openai_chat, VLLM("'json':{'a':1}"), "structured_outputs.json", "{'a':1}",
        CONSTRAINT_JSON_SCHEMA },
    { &dialect_openai_chat, VLLM("'json':'{}','disable_any_whitespace':true"),
        "structured_outputs.json", "{}", CONSTRAINT_JSON_SCHEMA, false, JSON_WS_COMPACT },
    { &dialect_openai_chat, VLLM("'json':true,'whitespace_pattern':'[\\\\n\\\\t ]*'"),
        "structured_outputs.json", "true", CONSTRAINT_JSON_SCHEMA, false, JSON_WS_ANY },
    { &dialect_openai_chat, VLLM("'json':{},'disable_additional_properties':true"),
        "structured_outputs.json", "{}", CONSTRAINT_JSON_SCHEMA, true },
    { &dialect_openai_chat, VLLM("'json_object':true,'json':null"),
        "structured_outputs.json_object", "", CONSTRAINT_JSON },
    { &dialect_openai_chat, VLLM("'regex':'a','json_object':false"), "structured_outputs.regex",
        "a", CONSTRAINT_REGEX },
    { &dialect_openai_chat, VLLM("'choice':['a']"), "structured_outputs.choice", "['a']",
        CONSTRAINT_CHOICE },
    { &dialect_openai_chat, VLLM("'grammar':'start: A'"), "structured_outputs.grammar", "start: A",
        CONSTRAINT_LARK },
    { &dialect_openai_chat, VLLM("'structural_tag':'{}'"), "structured_outputs.structural_tag",
        "{}", CONSTRAINT_STRUCTURAL_TAG },
    { &dialect_openai_completion, COMPLETION("'structured_outputs':{'regex':'a'}"),
        "structured_outputs.regex", "a", CONSTRAINT_REGEX },

    { &dialect_openai_chat, CHAT("'guided_json':{}"), "guided_json", "{}", CONSTRAINT_JSON_SCHEMA },
    { &dialect_openai_chat, CHAT("'guided_json':'{}','guided_whitespace_pattern':''"),
        "guided_json", "{}", CONSTRAINT_JSON_SCHEMA, false, JSON_WS_COMPACT },
    { &dialect_openai_chat, CHAT("'guided_regex':'a'"), "guided_regex", "a", CONSTRAINT_REGEX },
    { &dialect_openai_chat, CHAT("'guided_choice':['a']"), "guided_choice", "['a']",
        CONSTRAINT_CHOICE },
    { &dialect_openai_chat, CHAT("'guided_grammar':'root ::= A'"), "guided_grammar", "root ::= A",
        CONSTRAINT_GBNF },
    { &dialect_openai_completion, COMPLETION("'json_schema':'{}'"), "json_schema", "{}",
        CONSTRAINT_JSON_SCHEMA },
    { &dialect_openai_chat, CHAT("'regex':'a'"), "regex", "a", CONSTRAINT_REGEX },
    { &dialect_openai_chat, CHAT("'ebnf':'root ::= A'"), "ebnf", "root ::= A", CONSTRAINT_GBNF },
    { &dialect_openai_chat, CHAT("'grammar':'x'"), "grammar", "x", CONSTRAINT_GBNF },

    { &dialect_responses, RESPONSES("'text':{'format':{'type':'json_object'}}"), "text.format", "",
        CONSTRAINT_JSON },
    { &dialect_responses,
        RESPONSES("'text':{'format':{'type':'json_schema','name':'n','schema':{'a':1}}}"),
        "text.format.schema", "{'a':1}", CONSTRAINT_JSON_SCHEMA },
    { &dialect_responses, RESPONSES("'text':{'format':{'type':'regex','regex':'a'}}"),
        "text.format.regex", "a", CONSTRAINT_REGEX },

    { &dialect_anthropic,
        ANTHROPIC("'output_config':{'format':{'type':'json_schema','schema':{'a':1}}}"),
        "output_config.format.schema", "{'a':1}", CONSTRAINT_JSON_SCHEMA },
    { &dialect_anthropic, ANTHROPIC("'output_format':{'type':'json_schema','schema':{}}"),
        "output_format.schema", "{}", CONSTRAINT_JSON_SCHEMA },

    { &dialect_ollama_chat, CHAT("'format':'json'"), "format", "", CONSTRAINT_JSON, true },
    { &dialect_ollama_chat, CHAT("'format':{'a':1}"), "format", "{'a':1}", CONSTRAINT_JSON_SCHEMA,
        true },
    { &dialect_ollama_generate, COMPLETION("'format':{}"), "format", "{}", CONSTRAINT_JSON_SCHEMA,
        true },

    { &dialect_llama, COMPLETION("'grammar':'root ::= A'"), "grammar", "root ::= A",
        CONSTRAINT_GBNF, true },
    { &dialect_llama, COMPLETION("'json_schema':{'a':1}"), "json_schema", "{'a':1}",
        CONSTRAINT_JSON_SCHEMA, true },
};
/* clang-format on */

static void expect_text(struct str text, const char *want)
{
    char *copy = (char *)(uintptr_t)arena_str(kit.arena, text).p;

    for (char *c = copy; *c; c++)
        *c = *c == '"' ? '\'' : *c;
    EXPECT_STR(copy, want);
}

static void every_field_sets_the_same_struct(void)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct row *r = &rows[i];
        const struct request_constraint *c = &kit.request.constraint;
        if (kit_parse_request(r->dialect, r->body))
            fprintf(stderr, "%s: %s\n", r->body, kit.e.msg);
        EXPECT(c->is_set && c->source.kind == r->kind);
        EXPECT_STR(c->field, r->field);
        expect_text(c->source.text, r->text);
        EXPECT(c->source.closed_objects == r->closed_objects);
        EXPECT(c->source.whitespace == r->whitespace);
        EXPECT(!c->source.any_order && !c->source.bytes_max);
    }
}

static void options_apply_in_every_dialect(void)
{
    static const struct {
        const struct dialect *dialect;
        const char *body;
    } bodies[] = {
        { &dialect_openai_chat, CHAT("'x_constraint':{'any_order':true,'whitespace':'any'}") },
        { &dialect_openai_completion,
            COMPLETION("'x_constraint':{'any_order':true,'whitespace':'any'}") },
        { &dialect_responses, RESPONSES("'x_constraint':{'any_order':true,'whitespace':'any'}") },
        { &dialect_anthropic, ANTHROPIC("'x_constraint':{'any_order':true,'whitespace':'any'}") },
        { &dialect_ollama_chat, CHAT("'x_constraint':{'any_order':true,'whitespace':'any'}") },
        { &dialect_ollama_generate,
            COMPLETION("'x_constraint':{'any_order':true,'whitespace':'any'}") },
        { &dialect_llama, COMPLETION("'x_constraint':{'any_order':true,'whitespace':'any'}") },
    };

    for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
        EXPECT_EQ(kit_parse_request(bodies[i].dialect, bodies[i].body), 0);
        EXPECT(!kit.request.constraint.is_set && kit.request.constraint.source.any_order);
        EXPECT(kit.request.constraint.source.whitespace == JSON_WS_ANY);
    }
}

static void wrong_field_is_named(void)
{
    static const struct kit_row wrong[] = {
        { CHAT("'regex':'a','ebnf':'root ::= A'"), ERR_INVALID, "regex" },
        { VLLM("'json':{},'regex':'a'"), ERR_INVALID, "structured_outputs.regex" },
        { VLLM("'json':7"), ERR_INVALID, "structured_outputs.json" },
        { VLLM("'json_object':1"), ERR_INVALID, "structured_outputs.json_object" },
        { VLLM("'choice':[7]"), ERR_INVALID, "structured_outputs.choice" },
        { VLLM("'structural_tag':[]"), ERR_INVALID, "structured_outputs.structural_tag" },
        { VLLM("'whitespace_pattern':'x*'"), ERR_UNSUPPORTED,
            "structured_outputs.whitespace_pattern" },
        { VLLM("'disable_any_whitespace':1"), ERR_INVALID,
            "structured_outputs.disable_any_whitespace" },
        { CHAT("'guided_whitespace_pattern':'x'"), ERR_UNSUPPORTED, "guided_whitespace_pattern" },
        { CHAT("'x_constraint':7"), ERR_INVALID, "x_constraint" },
        { CHAT("'x_constraint':{'any':true}"), ERR_INVALID, "x_constraint" },
        { CHAT("'x_constraint':{'any_order':1}"), ERR_INVALID, "x_constraint.any_order" },
        { CHAT("'x_constraint':{'whitespace':'none'}"), ERR_INVALID, "x_constraint.whitespace" },
        { CHAT("'x_constraint':{'close_at_limit':1}"), ERR_INVALID, "x_constraint.close_at_limit" },
        { CHAT("'x_constraint':{'close_at_limit':true}"), ERR_NONE, "" },
    };

    kit_check_rows(&dialect_openai_chat, wrong, ARRAY_LEN(wrong));
    EXPECT_EQ(kit_parse_request(&dialect_openai_chat, CHAT("'guided_regex':'a','regex':'b'")), -1);
    EXPECT_STR(kit.e.msg, "'regex' and 'guided_regex' exclude each other: a request has at most "
                          "one constraint.");
    kit_close_response();
}

/* The last frame or the body of a choice that a token limit or the model ended. */
static void expect_report(const struct dialect *w, const char *body, bool is_met, const char *want)
{
    struct str text = STR("1");

    kit_open_response(w, body);
    response_begin(kit.response);
    response_output_ops.content(kit.response, 0, text);
    if (is_met)
        response_set_is_constraint_met(kit.response, 0);
    response_choice_end(
        kit.response, 0, is_met ? FINISH_STOP : FINISH_LENGTH, STR_NONE, TOKEN_NONE);
    response_flush(kit.response);
    response_end(kit.response);
    buf_putc(&kit.sink.body, 0);
    const char *got = kit.sink.body.p;
    if (!strstr(got, want))
        fprintf(stderr, "%s: %s\n%s\n", w->name, body, got);
    EXPECT(strstr(got, want));
    EXPECT(strstr(want, "constraint") || !strstr(got, "constraint"));
}

static void end_of_a_choice_reports_the_constraint(void)
{
    static const struct {
        const struct dialect *dialect;
        const char *whole, *stream;
    } bodies[] = {
        { &dialect_openai_chat, CHAT("'regex':'1+'"), CHAT("'regex':'1+','stream':true") },
        { &dialect_openai_completion, COMPLETION("'regex':'1+'"),
            COMPLETION("'regex':'1+','stream':true") },
        { &dialect_responses, RESPONSES("'text':{'format':{'type':'regex','regex':'1'}}"),
            RESPONSES("'text':{'format':{'type':'regex','regex':'1'}},'stream':true") },
        { &dialect_anthropic, ANTHROPIC("'output_format':{'type':'json_schema','schema':{}}"),
            ANTHROPIC("'output_format':{'type':'json_schema','schema':{}},'stream':true") },
        { &dialect_ollama_chat, CHAT("'format':'json','stream':false"), CHAT("'format':'json'") },
        { &dialect_llama, COMPLETION("'json_schema':{}"),
            COMPLETION("'json_schema':{},'stream':true") },
    };
    static const char *const kinds[] = { "regex", "regex", "regex", "json_schema", "json_object",
        "json_schema" };
    char want[100];

    for (size_t i = 0; i < ARRAY_LEN(bodies); i++)
        for (int is_met = 0; is_met < 2; is_met++) {
            snprintf(want, sizeof(want), ",\"constraint\":{\"kind\":\"%s\",\"complete\":%s}",
                kinds[i], is_met ? "true" : "false");
            expect_report(bodies[i].dialect, bodies[i].whole, is_met, want);
            expect_report(bodies[i].dialect, bodies[i].stream, is_met, want);
        }
    expect_report(&dialect_openai_chat, CHAT("'stream':true"), true, "finish_reason");
    expect_report(&dialect_anthropic, ANTHROPIC("'stream':true"), true, "stop_reason");
    kit_close_response();
}

TESTS(TEST(end_of_a_choice_reports_the_constraint), TEST(every_field_sets_the_same_struct),
    TEST(options_apply_in_every_dialect), TEST(wrong_field_is_named))
