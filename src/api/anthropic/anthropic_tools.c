#include "api/anthropic/anthropic.h"
#include "api/common/tools.h"

/* anthropic_tools.c: tools and tool_choice. {"name","description","input_schema"} is a function.
 * Tools with a dated type (web_search_20250305) are executed or described by Anthropic's servers:
 * they are omitted next to functions, otherwise an error, as is a tool_choice that names one. Any
 * thread. */

static bool is_server_tool(const struct json *tool)
{
    const struct json *type = json_get(tool, "type");

    return type && type->kind == JSON_STRING && !str_is(type->s, "custom");
}

static int read_tool(
    struct tool_list *l, struct fields *f, const struct path *at, const struct json *v)
{
    struct tool_spec spec = { .description = STR_NONE };

    if (v->kind != JSON_OBJECT)
        return path_wrong_kind(f, at, "an object", v);
    const struct json *schema = json_get(v, "input_schema"), *strict = json_get(v, "strict");
    if (!json_is_null(schema) && schema->kind != JSON_OBJECT)
        return path_wrong_kind(f, AT(at, "input_schema"), "an object", schema);
    if (path_need_text(f, AT(at, "name"), json_get(v, "name"), &spec.name) ||
        path_take_text(f, AT(at, "description"), json_get(v, "description"), &spec.description))
        return -1;
    spec.parameters = json_is_null(schema) ? NULL : schema;
    spec.strict = json_is_null(strict) ? NULL : strict;
    return tools_add(l, f, at, &spec);
}

static int read_tools(struct fields *f, const struct json *tools)
{
    struct tool_list l;
    int i = 0;

    if (!tools)
        return 0;
    if (tools_begin(&l, f, "tools", tools))
        return -1;
    for (const struct json *t = tools->child; t; t = t->next, i++)
        if (is_server_tool(t))
            tools_skip(&l, i, json_get(t, "type")->s);
        else if (read_tool(&l, f, AT_INDEX(NULL, "tools", i), t))
            return -1;
    return tools_end(&l, f);
}

static int read_choice(struct fields *f, const struct json *v)
{
    static const struct {
        const char *type;
        enum tool_choice choice;
    } types[] = { { "auto", TOOL_CHOICE_AUTO }, { "any", TOOL_CHOICE_REQUIRED },
        { "tool", TOOL_CHOICE_NAMED }, { "none", TOOL_CHOICE_NONE } };
    const struct json *type = json_get(v, "type");
    struct str word;

    if (v->kind != JSON_OBJECT)
        return field_wrong_kind(f, "tool_choice", "an object", v);
    if (json_is_null(type))
        return field_missing(f, "tool_choice.type");
    if (field_enum(f, "tool_choice.type", type, "auto|any|tool|none", &word))
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (str_is(word, types[i].type))
            f->request->tool_choice = types[i].choice;
    const struct json *name = json_get(v, "name"), *one = json_get(v, "disable_parallel_tool_use");
    bool is_one = false;
    if (!json_is_null(one) && field_bool(f, "tool_choice.disable_parallel_tool_use", one, &is_one))
        return -1;
    f->request->parallel_tool_calls = !is_one;
    if (f->request->tool_choice != TOOL_CHOICE_NAMED)
        return 0;
    if (json_is_null(name))
        return field_missing(f, "tool_choice.name");
    return field_text(f, "tool_choice.name", name, SIZE_MAX, &f->request->tool_name);
}

int anthropic_read_tools(struct fields *f, const struct json *tools, const struct json *choice)
{
    f->request->tool_choice = TOOL_CHOICE_AUTO;
    return read_tools(f, tools) || (choice && read_choice(f, choice)) ? -1 : 0;
}

bool anthropic_is_eager(const struct request *request, struct str name)
{
    const struct json *tools = json_get(request->raw, "tools");

    for (const struct json *t = json_is_null(tools) ? NULL : tools->child; t; t = t->next) {
        const struct json *n = json_get(t, "name"), *eager = json_get(t, "eager_input_streaming");
        if (n && n->kind == JSON_STRING && str_eq(n->s, name))
            return eager && eager->kind == JSON_BOOL && eager->b;
    }
    return false;
}
