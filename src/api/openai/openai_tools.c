#include "api/openai/openai.h"
#include "api/common/tools.h"

/* openai_tools.c: tools and tool_choice. Any thread. The choice is one of
 *
 *     "none" | "auto" | "required"
 *     {"type":"function","function":{"name":..}}
 *     {"type":"allowed_tools","allowed_tools":{"mode":"auto"|"required","tools":[..]}}
 *
 * In the Responses API the name, and mode and tools, are direct members, also in the list. */

static int read_word(struct fields *f, const struct json *v)
{
    struct str word;

    if (field_enum(f, "tool_choice", v, "none|auto|required|any", &word))
        return -1;
    f->request->tool_choice = str_is(word, "none")   ? TOOL_CHOICE_NONE
                              : str_is(word, "auto") ? TOOL_CHOICE_AUTO
                                                     : TOOL_CHOICE_REQUIRED;
    return 0;
}

/* Reads the name in {"function":{"name":..}} or {"name":..}. */
static int read_name(
    struct fields *f, const struct path *where, const struct json *v, struct str *out)
{
    const struct json *inner = json_get(v, "function");

    if (json_is_null(inner))
        return path_need_text(f, AT(where, "name"), json_get(v, "name"), out);
    if (inner->kind != JSON_OBJECT)
        return path_wrong_kind(f, AT(where, "function"), "an object", inner);
    return path_need_text(f, AT(AT(where, "function"), "name"), json_get(inner, "name"), out);
}

static int read_allowed(struct fields *f, const struct path *where, const struct json *v)
{
    struct str mode = STR("auto"), *names;
    const struct json *tools = json_get(v, "tools"), *m = json_get(v, "mode");
    int n = 0;

    if (!json_is_null(m) && field_enum(f, "tool_choice.mode", m, "auto|required", &mode))
        return -1;
    if (json_is_null(tools))
        return path_missing(f, AT(where, "tools"));
    if (tools->kind != JSON_ARRAY || !tools->n || tools->n > REQUEST_TOOLS_MAX)
        return path_wrong_kind(f, AT(where, "tools"), "an array of tools", tools);
    names = arena_zalloc(f->arena, tools->n, sizeof(*names));
    if (!names)
        return field_no_memory(f);
    for (const struct json *t = tools->child; t; t = t->next, n++) {
        if (t->kind != JSON_OBJECT)
            return path_wrong_kind(f, AT_INDEX(where, "tools", n), "an object", t);
        if (read_name(f, AT_INDEX(where, "tools", n), t, &names[n]))
            return -1;
    }
    f->request->allowed_tools = names;
    f->request->n_allowed_tools = n;
    f->request->tool_choice = str_is(mode, "auto") ? TOOL_CHOICE_AUTO : TOOL_CHOICE_REQUIRED;
    return 0;
}

int openai_read_tool_choice(struct fields *f, const struct json *v)
{
    const struct path *where = AT(NULL, "tool_choice");
    struct str type;

    if (v->kind == JSON_STRING)
        return read_word(f, v);
    if (v->kind != JSON_OBJECT)
        return field_wrong_kind(f, "tool_choice", "a string or an object", v);
    if (path_need_text(f, AT(where, "type"), json_get(v, "type"), &type))
        return -1;
    const struct json *inner = json_get(v, "allowed_tools");
    if (str_is(type, "allowed_tools") && json_is_null(inner))
        return read_allowed(f, where, v);
    if (str_is(type, "allowed_tools") && inner->kind != JSON_OBJECT)
        return path_wrong_kind(f, AT(where, "allowed_tools"), "an object", inner);
    if (str_is(type, "allowed_tools"))
        return read_allowed(f, AT(where, "allowed_tools"), inner);
    if (!str_is(type, "function"))
        return path_unsupported(f, AT(where, "type"), "only functions are");
    f->request->tool_choice = TOOL_CHOICE_NAMED;
    return read_name(f, where, v, &f->request->tool_name);
}

/* ---- deprecated `functions`: at most one call */

static int put_function(
    struct tool_list *l, struct fields *f, const struct path *where, const struct json *v)
{
    struct tool_spec t = { .description = STR_NONE };

    if (v->kind != JSON_OBJECT)
        return path_wrong_kind(f, where, "an object", v);
    const struct json *parameters = json_get(v, "parameters");
    if (!json_is_null(parameters) && parameters->kind != JSON_OBJECT)
        return path_wrong_kind(f, AT(where, "parameters"), "an object", parameters);
    t.parameters = json_is_null(parameters) ? NULL : parameters;
    if (path_need_text(f, AT(where, "name"), json_get(v, "name"), &t.name) ||
        path_take_text(f, AT(where, "description"), json_get(v, "description"), &t.description))
        return -1;
    return tools_add(l, f, where, &t);
}

static int read_functions(struct fields *f, const struct json *v)
{
    struct tool_list l;
    int i = 0;

    if (tools_begin(&l, f, "functions", v))
        return -1;
    for (const struct json *c = v->child; c; c = c->next, i++)
        if (put_function(&l, f, AT_INDEX(NULL, "functions", i), c))
            return -1;
    if (tools_end(&l, f))
        return -1;
    f->request->has_functions = true;
    f->request->parallel_tool_calls = false;
    return 0;
}

static int read_function_call(struct fields *f, const struct json *v)
{
    struct str word;

    if (v->kind == JSON_OBJECT) {
        f->request->tool_choice = TOOL_CHOICE_NAMED;
        return path_need_text(
            f, AT(AT(NULL, "function_call"), "name"), json_get(v, "name"), &f->request->tool_name);
    }
    if (field_enum(f, "function_call", v, "none|auto", &word))
        return -1;
    f->request->tool_choice = str_is(word, "none") ? TOOL_CHOICE_NONE : TOOL_CHOICE_AUTO;
    return 0;
}

int openai_read_tools(struct fields *f)
{
    const struct json *tools = field_get(f, "tools"), *functions = field_get(f, "functions");
    const struct json *choice = field_get(f, "tool_choice"), *call = field_get(f, "function_call");

    if (tools && tools_read(f, "tools", tools))
        return -1;
    if (choice && openai_read_tool_choice(f, choice))
        return -1;
    if (f->request->tools)
        return 0; /* `tools` takes precedence */
    if (functions && read_functions(f, functions))
        return -1;
    return call ? read_function_call(f, call) : 0;
}
