#include "api/anthropic/anthropic.h"
#include "api/common/common_fields.h"
#include "api/common/constraint_fields.h"
#include "api/common/no_effect.h"

/* anthropic_request.c: field table of the Messages API. A field that would change the output and is
 * not supported is rejected by name; hints (cache_control, container, context_management, ...) are
 * ignored. request->raw contains all of them. Any thread. */

static int read_metadata(struct fields *f, const char *name, const struct json *v);
static int read_output_config(struct fields *f, const char *name, const struct json *v);
static int read_output_format(struct fields *f, const char *name, const struct json *v);
static int read_thinking(struct fields *f, const char *name, const struct json *v);

enum { ON = 1 << REQUEST_CHAT };

/* clang-format off */
#define TO(member)       offsetof(struct request, member)
#define READ(name, fn)   { name, FIELD_CUSTOM, ON, .read = fn }
#define LATER(name)      { name, FIELD_DEFERRED, ON }
/* clang-format on */

static const struct field table[] = {
    { "chat_template_kwargs", FIELD_OBJECT, ON, .to = TO(convo.template_kwargs) },
    LATER("max_tokens"),
    { "mcp_servers", FIELD_UNSUPPORTED, ON, .text = "this server does not connect to MCP servers" },
    LATER("messages"),
    READ("metadata", read_metadata),
    { "model", FIELD_TEXT, ON, { 0, 1024 }, TO(model) },
    READ("output_config", read_output_config),
    READ("output_format", read_output_format),
    READ("script", common_field_script),
    READ("seed", common_field_seed),
    { "service_tier", FIELD_ENUM, ON, .to = TO(service_tier), .text = "auto|standard_only" },
    READ("stop_sequences", common_field_stop),
    { "stream", FIELD_BOOL, ON, .to = TO(stream) },
    LATER("system"),
    { "temperature", FIELD_FLOAT, ON, { 0, 2 }, TO(sample.temperature) },
    READ("thinking", read_thinking),
    { "thread", FIELD_UNSUPPORTED, ON, .text = "conversations are not stored; send all messages" },
    LATER("tool_choice"),
    LATER("tools"),
    { "top_k", FIELD_INT, ON, { -1, INT32_MAX }, TO(sample.top_k) },
    { "top_p", FIELD_FLOAT, ON, { 0, 1 }, TO(sample.top_p) },
    READ("x_constraint", constraint_field_options),
    { "x_timeout", FIELD_DOUBLE, ON, { 0, 86400 }, TO(timeout_s) },
};

/* ---- fields with their own reader */

static int read_metadata(struct fields *f, const char *name, const struct json *v)
{
    if (v->kind != JSON_OBJECT)
        return field_wrong_kind(f, name, "an object", v);
    const struct json *user = json_get(v, "user_id");
    f->request->metadata = v;
    return json_is_null(user) ? 0
                              : field_text(f, "metadata.user_id", user, 1024, &f->request->user);
}

/* Reads {"type": "json_schema", "schema": ..}. */
static int set_format(struct fields *f, const struct path *at, const struct json *v)
{
    const struct json *type = json_get(v, "type");
    struct str word;

    if (v->kind != JSON_OBJECT)
        return path_wrong_kind(f, at, "an object", v);
    if (json_is_null(type))
        return path_missing(f, AT(at, "type"));
    if (field_enum(f, path_format(AT(at, "type")).z, type, "json_schema", &word))
        return -1;
    return constraint_set_value(f, AT(at, "schema"), CONSTRAINT_JSON_SCHEMA, json_get(v, "schema"));
}

/* The beta name of output_config.format. */
static int read_output_format(struct fields *f, const char *name, const struct json *v)
{
    return set_format(f, AT(NULL, name), v);
}

static int read_output_config(struct fields *f, const char *name, const struct json *v)
{
    if (v->kind != JSON_OBJECT)
        return field_wrong_kind(f, name, "an object", v);
    const struct json *effort = json_get(v, "effort"), *format = json_get(v, "format");
    if (!json_is_null(format) && set_format(f, AT(AT(NULL, name), "format"), format))
        return -1;
    if (json_is_null(effort))
        return 0;
    return field_enum(f, "output_config.effort", effort, "low|medium|high|xhigh|max",
        &f->request->reasoning_effort);
}

/* `adaptive` and `between_tools` let the model decide, which is the template's default. */
static int read_thinking(struct fields *f, const char *name, const struct json *v)
{
    const struct range budgets = { 1024, INT32_MAX };
    struct str type;

    if (v->kind != JSON_OBJECT)
        return field_wrong_kind(f, name, "an object", v);
    const struct json *t = json_get(v, "type"), *budget = json_get(v, "budget_tokens");
    const struct json *shown = json_get(v, "display");
    struct str display = STR_NONE;
    if (json_is_null(t))
        return field_missing(f, "thinking.type");
    if (field_enum(f, "thinking.type", t, "enabled|disabled|adaptive|between_tools", &type) ||
        (!json_is_null(shown) &&
            field_enum(f, "thinking.display", shown, "summarized|omitted", &display)))
        return -1;
    f->request->is_reasoning_omitted = str_is(display, "omitted");
    if (str_is(type, "disabled"))
        f->request->thinking = THINKING_OFF;
    if (!str_is(type, "enabled"))
        return 0;
    f->request->thinking = THINKING_ON;
    if (json_is_null(budget))
        return field_missing(f, "thinking.budget_tokens");
    if (field_int(f, "thinking.budget_tokens", budget, budgets, &f->request->thinking_budget))
        return -1;
    no_effect_note("thinking.budget_tokens");
    return 0;
}

/* ---- the two routes */

/* max_tokens 0 computes the prompt without output, to fill the prefix cache for the next
 * request. */
static int read_max_tokens(struct fields *f, bool is_required)
{
    const struct range in = { 0, INT32_MAX };
    const struct json *v = field_get(f, "max_tokens");
    struct request *request = f->request;

    if (!v)
        return is_required ? field_missing(f, "max_tokens") : 0;
    if (field_int(f, "max_tokens", v, in, &request->max_tokens))
        return -1;
    if (request->max_tokens && request->thinking_budget >= request->max_tokens)
        return err_param(f->e, ERR_INVALID, "thinking.budget_tokens",
            "'thinking.budget_tokens' is %d, not less than 'max_tokens', %d.",
            request->thinking_budget, request->max_tokens);
    return 0;
}

static int parse_messages(
    struct request *request, const struct json *body, struct arena *a, struct err *e, bool is_count)
{
    struct fields f = { request, a, e, table, ARRAY_LEN(table), { NULL } };

    request->kind = REQUEST_CHAT;
    if (fields_read(&f, body) ||
        anthropic_read_convo(&f, field_get(&f, "system"), field_get(&f, "messages")) ||
        anthropic_read_tools(&f, field_get(&f, "tools"), field_get(&f, "tool_choice")) ||
        read_max_tokens(&f, !is_count) || common_field_set_template_kwargs(&f))
        return -1;
    request->sample.top_k = MAX(request->sample.top_k, 0);
    return 0;
}

int anthropic_parse(
    struct request *request, const struct json *body, struct arena *a, struct err *e)
{
    return parse_messages(request, body, a, e, false);
}

int anthropic_parse_count(
    struct request *request, const struct json *body, struct arena *a, struct err *e)
{
    return parse_messages(request, body, a, e, true);
}
