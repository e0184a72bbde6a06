#include "api/openai/openai.h"
#include "api/responses/responses.h"
#include "api/common/tools.h"

/* responses_tools.c: tools and tool_choice. Tools have the form
 * {"type":"function","name","parameters"}. Tools that OpenAI's servers execute, and tools with a
 * text grammar, are omitted next to functions, since agents send them to every server, and are an
 * error otherwise. An MCP server is always an error: only its user names one. Any thread. */

static const char *const skipped_types[] = { "apply_patch", "code_interpreter", "computer",
    "computer_use", "computer_use_preview", "custom", "file_search", "image_generation",
    "local_shell", "namespace", "programmatic_tool_calling", "shell", "tool_search", "web_search",
    "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11" };

static bool is_skipped(struct str type)
{
    for (size_t i = 0; i < ARRAY_LEN(skipped_types); i++)
        if (str_is(type, skipped_types[i]))
            return true;
    return false;
}

/* `i` is the index of the tool. */
static int read_tool(struct tool_list *l, struct fields *f, int i, const struct json *v)
{
    const struct path *at = AT_INDEX(NULL, "tools", i);
    struct tool_spec spec = { .description = STR_NONE };
    struct str type = STR("function");

    if (v->kind != JSON_OBJECT)
        return path_wrong_kind(f, at, "an object", v);
    if (path_take_text(f, AT(at, "type"), json_get(v, "type"), &type))
        return -1;
    if (is_skipped(type)) {
        tools_skip(l, i, type);
        return 0;
    }
    if (str_is(type, "mcp"))
        return path_unsupported(f, AT(at, "type"), "this server does not connect to MCP servers");
    if (!str_is(type, "function")) {
        struct path_text where = path_format(AT(at, "type"));
        return err_param(f->e, ERR_INVALID, where.z,
            "'%s' is '%.*s', which is not a supported tool type.", where.z,
            (int)MIN(type.n, (size_t)40), type.p);
    }
    const struct json *parameters = json_get(v, "parameters"), *strict = json_get(v, "strict");
    if (path_need_text(f, AT(at, "name"), json_get(v, "name"), &spec.name) ||
        path_take_text(f, AT(at, "description"), json_get(v, "description"), &spec.description))
        return -1;
    if (!json_is_null(parameters) && parameters->kind != JSON_OBJECT)
        return path_wrong_kind(f, AT(at, "parameters"), "an object", parameters);
    spec.parameters = json_is_null(parameters) ? NULL : parameters;
    spec.strict = json_is_null(strict) ? NULL : strict;
    return tools_add(l, f, at, &spec);
}

int responses_read_tools(struct fields *f, const struct json *v)
{
    const struct json *t;
    struct tool_list l;
    int i = 0;

    if (v->kind != JSON_ARRAY)
        return field_wrong_kind(f, "tools", "an array", v);
    if (tools_begin(&l, f, "tools", v))
        return -1;
    for (t = v->child; t; t = t->next, i++)
        if (read_tool(&l, f, i, t))
            return -1;
    return tools_end(&l, f);
}

/* ---- the choice */

/* Allows the functions of the list. If it has none, no tool is allowed. */
static int read_allowed_tools(struct fields *f, const struct json *v)
{
    const struct json *tools = json_get(v, "tools"), *mode = json_get(v, "mode");
    struct str word = STR("auto");
    struct request *request = f->request;

    if (json_is_null(tools))
        return field_missing(f, "tool_choice.tools");
    if (tools->kind != JSON_ARRAY)
        return field_wrong_kind(f, "tool_choice.tools", "an array", tools);
    if (!json_is_null(mode) && field_enum(f, "tool_choice.mode", mode, "auto|required", &word))
        return -1;
    struct str *names = arena_zalloc(f->arena, tools->n + 1u, sizeof(*names));
    if (!names)
        return field_no_memory(f);
    for (const struct json *t = tools->child; t; t = t->next) {
        const struct json *type = json_get(t, "type"), *name = json_get(t, "name");
        bool is_function = json_is_null(type) || str_is(type->s, "function");
        if (is_function && name && name->kind == JSON_STRING &&
            request->n_allowed_tools < REQUEST_TOOLS_MAX)
            names[request->n_allowed_tools++] = name->s;
    }
    request->allowed_tools = names;
    bool is_required = str_is(word, "required");
    request->tool_choice = is_required ? TOOL_CHOICE_REQUIRED : TOOL_CHOICE_AUTO;
    if (request->n_allowed_tools)
        return 0;
    if (is_required)
        return field_unsupported(f, "tool_choice.tools", "only functions can be called");
    request->tool_choice = TOOL_CHOICE_NONE;
    return 0;
}

int responses_read_tool_choice(struct fields *f, const struct json *v)
{
    const struct json *type = json_get(v, "type");

    if (type && type->kind == JSON_STRING && str_is(type->s, "allowed_tools"))
        return read_allowed_tools(f, v);
    return openai_read_tool_choice(f, v);
}
