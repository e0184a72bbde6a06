#include "api/openai/openai.h"
#include "api/responses/responses.h"

#include "api/common/common_fields.h"
#include "api/common/constraint_fields.h"
#include "api/common/no_effect.h"

#include <stdio.h>

/* responses_request.c: field table of the Responses API. A field that would change the output and
 * is not supported is rejected by name; hints are ignored. request->raw contains all of them, and
 * the response object repeats them from there. Any thread. */

static int read_include(struct fields *f, const char *name, const struct json *v);
static int read_reasoning(struct fields *f, const char *name, const struct json *v);
static int read_text(struct fields *f, const char *name, const struct json *v);
static int read_truncation(struct fields *f, const char *name, const struct json *v);

enum { ON = 1 << REQUEST_CHAT };

/* clang-format off */
#define TO(member)               offsetof(struct request, member)
#define FLAG(name, member)       { name, FIELD_BOOL, ON, .to = TO(member) }
#define INT(name, lo, hi, m)     { name, FIELD_INT, ON, { lo, hi }, TO(m) }
#define FLOAT(name, lo, hi, m)   { name, FIELD_FLOAT, ON, { lo, hi }, TO(m) }
#define TEXT(name, most, member) { name, FIELD_TEXT, ON, { 0, most }, TO(member) }
#define READ(name, fn)           { name, FIELD_CUSTOM, ON, .read = fn }
#define LATER(name)              { name, FIELD_DEFERRED, ON }
#define REFUSE(name, what)       { name, FIELD_UNSUPPORTED, ON, .text = what }
/* clang-format on */

static const struct field table[] = {
    FLAG("background", background),
    FLAG("cache_prompt", cache_prompt),
    TEXT("cache_salt", 256, cache_salt),
    { "chat_template_kwargs", FIELD_OBJECT, ON, .to = TO(convo.template_kwargs) },
    REFUSE("conversation", "continue a response with 'previous_response_id'"),
    FLOAT("frequency_penalty", -2, 2, sample.frequency_penalty),
    FLAG("ignore_eos", ignore_eos),
    READ("include", read_include),
    LATER("input"),
    LATER("instructions"),
    INT("max_output_tokens", 1, INT32_MAX, max_tokens),
    { "max_tool_calls", FIELD_INT, ON, { 0, INT32_MAX }, FIELD_TYPE_ONLY },
    READ("metadata", common_field_metadata),
    FLOAT("min_p", 0, 1, sample.min_p),
    TEXT("model", 1024, model),
    FLAG("parallel_tool_calls", parallel_tool_calls),
    FLOAT("presence_penalty", -2, 2, sample.presence_penalty),
    TEXT("previous_response_id", RESPONSES_ID_MAX - 1, previous_id),
    INT("priority", INT32_MIN, INT32_MAX, priority),
    REFUSE("prompt", "prompts are not stored"),
    TEXT("prompt_cache_key", 1024, prompt_cache_key),
    READ("reasoning", read_reasoning),
    FLOAT("repeat_penalty", 0.001, 100, sample.repeat_penalty),
    TEXT("safety_identifier", 1024, safety_identifier),
    READ("script", common_field_script),
    READ("seed", common_field_seed),
    READ("service_tier", common_field_service_tier),
    READ("stop", common_field_stop),
    FLAG("store", store),
    FLAG("stream", stream),
    { "stream_options", FIELD_OBJECT, ON, .to = FIELD_TYPE_ONLY },
    FLOAT("temperature", 0, 2, sample.temperature),
    READ("text", read_text),
    LATER("tool_choice"),
    LATER("tools"),
    INT("top_k", -1, INT32_MAX, sample.top_k),
    INT("top_logprobs", 0, TOP_LOGPROBS_MAX, sample.n_top),
    FLOAT("top_p", 0, 1, sample.top_p),
    READ("truncation", read_truncation),
    TEXT("user", 1024, user),
    READ("x_constraint", constraint_field_options),
    { "x_timeout", FIELD_DOUBLE, ON, { 0, 86400 }, TO(timeout_s) },
};

/* ---- fields with their own reader */

/* Results of server-side tools do not exist and are not included. The other values are looked up in
 * request->raw when the response is formatted. */
static int read_include(struct fields *f, const char *name, const struct json *v)
{
    static const char values[] =
        "file_search_call.results|web_search_call.results|web_search_call.action.sources|"
        "message.input_image.image_url|computer_call_output.output.image_url|"
        "code_interpreter_call.outputs|reasoning.encrypted_content|message.output_text.logprobs";
    struct str word;

    if (v->kind != JSON_ARRAY)
        return field_wrong_kind(f, name, "an array", v);
    for (const struct json *c = v->child; c; c = c->next) {
        if (field_enum(f, name, c, values, &word))
            return -1;
        if (str_is(word, "message.output_text.logprobs"))
            f->request->want_logprobs = true;
    }
    return 0;
}

static int read_reasoning(struct fields *f, const char *name, const struct json *v)
{
    static const char *const summaries[] = { "summary", "generate_summary" };
    char path[40];
    struct str word;

    if (v->kind != JSON_OBJECT)
        return field_wrong_kind(f, name, "an object", v);
    const struct json *effort = json_get(v, "effort");
    if (!json_is_null(effort) &&
        field_enum(f, "reasoning.effort", effort, "none|minimal|low|medium|high|xhigh|max",
            &f->request->reasoning_effort))
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(summaries); i++) {
        const struct json *s = json_get(v, summaries[i]);
        snprintf(path, sizeof(path), "reasoning.%s", summaries[i]);
        if (!json_is_null(s) && field_enum(f, path, s, "auto|concise|detailed|none", &word))
            return -1;
    }
    if (str_is(f->request->reasoning_effort, "none"))
        f->request->thinking = THINKING_OFF;
    return 0;
}

static int read_text(struct fields *f, const char *name, const struct json *v)
{
    struct str word;

    if (v->kind != JSON_OBJECT)
        return field_wrong_kind(f, name, "an object", v);
    const struct json *format = json_get(v, "format"), *verbosity = json_get(v, "verbosity");
    if (!json_is_null(verbosity) &&
        field_enum(f, "text.verbosity", verbosity, "low|medium|high", &word))
        return -1;
    if (!json_is_null(verbosity))
        no_effect_note("text.verbosity");
    if (json_is_null(format))
        return 0;
    return openai_read_format(f, AT(AT(NULL, name), "format"), format);
}

static int read_truncation(struct fields *f, const char *name, const struct json *v)
{
    struct str word;

    if (field_enum(f, name, v, "auto|disabled", &word))
        return -1;
    f->request->may_truncate = str_is(word, "auto");
    return 0;
}

/* ---- checks over several fields */

static int read_tools(struct fields *f)
{
    const struct json *tools = field_get(f, "tools"), *choice = field_get(f, "tool_choice");

    if (tools && responses_read_tools(f, tools))
        return -1;
    return choice ? responses_read_tool_choice(f, choice) : 0;
}

/* A request without input has one empty user message: some agents test the connection with it. */
static int read_convo(struct fields *f)
{
    static const struct json empty = { .kind = JSON_STRING, .s = { "", 0 } };
    const struct json *input = field_get(f, "input");
    struct items_source source = { .input = input ? input : &empty,
        .instructions = field_get(f, "instructions") };

    if (f->request->previous_id.p)
        f->request->needs_response_store = true;
    return responses_read_items(f, &source);
}

static int finish_sampling(struct fields *f)
{
    struct sample_params *s = &f->request->sample;

    s->top_k = MAX(s->top_k, 0);
    f->request->want_logprobs = f->request->want_logprobs || s->n_top > 0;
    s->want_logprobs = f->request->want_logprobs;
    return 0;
}

/* A background response can only be read from the response store. */
static int check_background(struct fields *f)
{
    if (!f->request->background || f->request->store)
        return 0;
    return err_param(f->e, ERR_INVALID, "background",
        "'background' requires 'store', from which the response is read.");
}

int responses_parse(
    struct request *request, const struct json *body, struct arena *a, struct err *e)
{
    struct fields f = { request, a, e, table, ARRAY_LEN(table), { NULL } };

    request->kind = REQUEST_CHAT;
    request->store = true;
    if (fields_read(&f, body) || check_background(&f) || read_convo(&f) || read_tools(&f) ||
        common_field_set_template_kwargs(&f))
        return -1;
    return finish_sampling(&f);
}

/* ---- stored responses */

/* Parses a stored response: its input items, then its output items. */
static int parse_stored(
    struct fields *f, const struct responses_stored *k, const struct json *out[2])
{
    struct err ignored;
    struct json *input, *response;

    if (json_parse(&input, k->input, f->arena, NULL, &ignored) || input->kind != JSON_ARRAY ||
        json_parse(&response, k->response, f->arena, NULL, &ignored))
        return err_set(f->e, ERR_CORRUPT, "A stored response cannot be read.");
    out[0] = input;
    out[1] = json_get(response, "output");
    if (!out[1] || out[1]->kind != JSON_ARRAY)
        return err_set(f->e, ERR_CORRUPT, "A stored response has no items.");
    return 0;
}

int responses_load_history(struct request *request, const struct responses_stored *before, size_t n,
    const struct responses_lookup *lookup, struct arena *a, struct err *e)
{
    static const struct json nothing = { .kind = JSON_ARRAY };
    struct fields f = { request, a, e, table, ARRAY_LEN(table), { NULL } };
    const struct json **lists = arena_zalloc(a, 2 * n + 1, sizeof(struct json *));
    const struct json *input = json_get(request->raw, "input");
    const struct json *instructions = json_get(request->raw, "instructions");

    if (!lists)
        return field_no_memory(&f);
    for (size_t i = 0; i < n; i++)
        if (parse_stored(&f, &before[i], lists + 2 * i))
            return -1;
    struct items_source source = { .before = lists,
        .n_before = 2 * n,
        .input = json_is_null(input) ? &nothing : input,
        .instructions = json_is_null(instructions) ? NULL : instructions,
        .lookup = lookup };
    request->needs_response_store = false;
    return responses_read_items(&f, &source);
}
