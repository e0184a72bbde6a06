#include "api/anthropic.h"
#include "api/rows.h"

/* What the answer would depend on and is not served here is refused by name; what only hints
 * (cache_control, container, context_management, ...) is ignored; everything stays in ask->raw. */

static int read_metadata(struct fields *f, const char *name, const struct json *v);
static int read_output_config(struct fields *f, const char *name, const struct json *v);
static int read_thinking(struct fields *f, const char *name, const struct json *v);

enum { ON = 1 << ASK_CHAT };

/* clang-format off */
#define TO(member)       offsetof(struct ask, member)
#define READ(name, fn)   { name, FIELD_READ, ON, .read = fn }
#define LATER(name)      { name, FIELD_LATER, ON }
/* clang-format on */

static const struct field table[] = {
    { "chat_template_kwargs", FIELD_OBJECT, ON, .to = TO(convo.template_kwargs) },
    LATER("max_tokens"),
    LATER("messages"),
    READ("metadata", read_metadata),
    { "model", FIELD_TEXT, ON, { 0, 1024 }, TO(model) },
    READ("output_config", read_output_config),
    READ("script", row_script),
    READ("seed", row_seed),
    { "service_tier", FIELD_WORD, ON, .to = TO(service_tier), .text = "auto|standard_only" },
    READ("stop_sequences", row_stop),
    { "stream", FIELD_BOOL, ON, .to = TO(stream) },
    LATER("system"),
    { "temperature", FIELD_FLOAT, ON, { 0, 2 }, TO(sample.temperature) },
    READ("thinking", read_thinking),
    LATER("tool_choice"),
    LATER("tools"),
    { "top_k", FIELD_INT, ON, { -1, INT32_MAX }, TO(sample.top_k) },
    { "top_p", FIELD_FLOAT, ON, { 0, 1 }, TO(sample.top_p) },
    { "x_timeout", FIELD_DOUBLE, ON, { 0, 86400 }, TO(timeout_s) },
};

/* ---- rows with a mind of their own */

static int read_metadata(struct fields *f, const char *name, const struct json *v)
{
    if (v->kind != JSON_OBJECT)
        return field_wrong_kind(f, name, "an object", v);
    const struct json *user = json_get(v, "user_id");
    f->ask->metadata = v;
    return json_is_null(user) ? 0 : field_text(f, "metadata.user_id", user, 1024, &f->ask->user);
}

static int read_output_config(struct fields *f, const char *name, const struct json *v)
{
    if (v->kind != JSON_OBJECT)
        return field_wrong_kind(f, name, "an object", v);
    const struct json *effort = json_get(v, "effort"), *format = json_get(v, "format");
    if (!json_is_null(format))
        return field_unsupported(
            f, "output_config.format", "answers of a prescribed shape are not served yet");
    if (json_is_null(effort))
        return 0;
    return field_word(
        f, "output_config.effort", effort, "low|medium|high|xhigh|max", &f->ask->reasoning_effort);
}

/* `adaptive` and `between_tools` leave it to the model, which is what a template does by itself. */
static int read_thinking(struct fields *f, const char *name, const struct json *v)
{
    const struct range budgets = { 1024, INT32_MAX };
    struct str type;

    if (v->kind != JSON_OBJECT)
        return field_wrong_kind(f, name, "an object", v);
    const struct json *t = json_get(v, "type"), *budget = json_get(v, "budget_tokens");
    if (json_is_null(t))
        return field_missing(f, "thinking.type");
    if (field_word(f, "thinking.type", t, "enabled|disabled|adaptive|between_tools", &type))
        return -1;
    if (str_is(type, "disabled"))
        f->ask->thinking = THINKING_OFF;
    if (!str_is(type, "enabled"))
        return 0;
    f->ask->thinking = THINKING_ON;
    if (json_is_null(budget))
        return field_missing(f, "thinking.budget_tokens");
    return field_int(f, "thinking.budget_tokens", budget, budgets, &f->ask->thinking_budget);
}

/* ---- tools */

static struct json *member(struct fields *f, struct json *parent, const char *key)
{
    struct json *j = arena_zalloc(f->arena, 1, sizeof(*j));

    if (!j)
        return NULL;
    j->key = key ? str_of(key) : STR_NONE;
    if (!parent->child)
        parent->child = j;
    else {
        struct json *last = parent->child;
        while (last->next)
            last = last->next;
        last->next = j;
    }
    parent->n++;
    return j;
}

static int copy_member(struct fields *f, struct json *parent, const char *key, const struct json *v)
{
    if (json_is_null(v))
        return 0;
    struct json *j = member(f, parent, key);
    if (!j)
        return field_no_memory(f);
    struct json *next = j->next;
    *j = *v;
    j->key = str_of(key);
    j->next = next;
    return 0;
}

/* {"name","description","input_schema"} ->
 * {"type":"function","function":{"name","description","parameters"}} */
static int put_tool(struct fields *f, struct json *out, const struct json *tool)
{
    out->kind = JSON_OBJECT;
    struct json *type = member(f, out, "type");
    struct json *function = type ? member(f, out, "function") : NULL;
    if (!function)
        return field_no_memory(f);
    type->kind = JSON_STRING;
    type->s = STR("function");
    function->kind = JSON_OBJECT;
    if (copy_member(f, function, "name", json_get(tool, "name")) ||
        copy_member(f, function, "description", json_get(tool, "description")))
        return -1;
    return copy_member(f, function, "parameters", json_get(tool, "input_schema"));
}

static int check_tool(struct fields *f, const struct json *tool)
{
    if (tool->kind != JSON_OBJECT)
        return field_wrong_kind(f, "tools", "an array of objects", tool);
    const struct json *name = json_get(tool, "name"), *schema = json_get(tool, "input_schema");
    if (json_is_null(name))
        return field_missing(f, "tools.name");
    if (name->kind != JSON_STRING)
        return field_wrong_kind(f, "tools.name", "a string", name);
    if (!json_is_null(schema) && schema->kind != JSON_OBJECT)
        return field_wrong_kind(f, "tools.input_schema", "an object", schema);
    return 0;
}

/* web_search_20250305 and its like: nobody here runs them. */
static bool is_foreign(const struct json *tool)
{
    const struct json *type = json_get(tool, "type");

    return type && type->kind == JSON_STRING && !str_is(type->s, "custom");
}

int anthropic_read_tools(struct fields *f, const struct json *tools)
{
    struct json *list = arena_zalloc(f->arena, 1, sizeof(*list));
    struct json **tail = list ? &list->child : NULL;

    if (!list)
        return field_no_memory(f);
    if (tools->kind != JSON_ARRAY)
        return field_wrong_kind(f, "tools", "an array", tools);
    list->kind = JSON_ARRAY;
    for (const struct json *t = tools->child; t; t = t->next) {
        if (is_foreign(t))
            continue;
        struct json *out = arena_zalloc(f->arena, 1, sizeof(*out));
        if (!out)
            return field_no_memory(f);
        if (check_tool(f, t) || put_tool(f, out, t))
            return -1;
        *tail = out;
        tail = &out->next;
        list->n++;
    }
    f->ask->convo.tools = list->n ? list : NULL;
    return 0;
}

/* Calls are not found in answers yet: tools are read, and refused unless they may not be used. */
static int settle_tools(struct fields *f)
{
    const struct json *tools = field_get(f, "tools"), *choice = field_get(f, "tool_choice");
    struct str type = STR("auto");

    if (tools && anthropic_read_tools(f, tools))
        return -1;
    if (choice && choice->kind != JSON_OBJECT)
        return field_wrong_kind(f, "tool_choice", "an object", choice);
    if (choice && json_is_null(json_get(choice, "type")))
        return field_missing(f, "tool_choice.type");
    if (choice &&
        field_word(f, "tool_choice.type", json_get(choice, "type"), "auto|any|tool|none", &type))
        return -1;
    if (str_is(type, "none"))
        f->ask->convo.tools = NULL;
    if (f->ask->convo.tools)
        return field_unsupported(f, "tools", "tool calls are not served yet");
    if (str_is(type, "any") || str_is(type, "tool"))
        return err_param(f->e, ERR_INVALID, "tool_choice",
            "'tool_choice' asks for a tool, but 'tools' is empty.");
    return 0;
}

/* ---- the two routes */

/* 0 is a prompt that is to be computed and not answered: the next request finds it. */
static int read_max_tokens(struct fields *f, bool is_needed)
{
    const struct range in = { 0, INT32_MAX };
    const struct json *v = field_get(f, "max_tokens");
    struct ask *ask = f->ask;

    if (!v)
        return is_needed ? field_missing(f, "max_tokens") : 0;
    if (field_int(f, "max_tokens", v, in, &ask->max_tokens))
        return -1;
    if (ask->max_tokens && ask->thinking_budget >= ask->max_tokens)
        return err_param(f->e, ERR_INVALID, "thinking.budget_tokens",
            "'thinking.budget_tokens' is %d, not less than 'max_tokens', %d.", ask->thinking_budget,
            ask->max_tokens);
    return 0;
}

static int parse(
    struct ask *ask, const struct json *body, struct arena *a, struct err *e, bool is_count)
{
    struct fields f = { ask, a, e, table, ARRAY_LEN(table), { NULL } };

    ask->kind = ASK_CHAT;
    if (fields_read(&f, body) ||
        anthropic_read_convo(&f, field_get(&f, "system"), field_get(&f, "messages")) ||
        settle_tools(&f) || read_max_tokens(&f, !is_count) || tell_template(&f))
        return -1;
    ask->sample.top_k = MAX(ask->sample.top_k, 0);
    return 0;
}

int anthropic_parse(struct ask *ask, const struct json *body, struct arena *a, struct err *e)
{
    return parse(ask, body, a, e, false);
}

int anthropic_parse_count(struct ask *ask, const struct json *body, struct arena *a, struct err *e)
{
    return parse(ask, body, a, e, true);
}
