#include "api/common/tools.h"
#include "api/common/no_effect.h"
#include "output/parser.h"

static struct json *new_node(struct fields *f, const char *key, enum json_kind kind)
{
    struct json *j = arena_zalloc(f->arena, 1, sizeof(*j));

    if (j) {
        j->kind = kind;
        j->key = key ? str_of(key) : STR_NONE;
    }
    return j;
}

/* Copies a value as a member or an element; the children are shared. */
static struct json *copy_node(struct fields *f, const char *key, const struct json *v)
{
    struct json *j = arena_alloc(f->arena, sizeof(*j));

    if (j) {
        *j = *v;
        j->key = key ? str_of(key) : v->key;
    }
    return j;
}

int tools_begin(struct tool_list *l, struct fields *f, const char *name, const struct json *said)
{
    if (said->kind != JSON_ARRAY)
        return field_wrong_kind(f, name, "an array", said);
    if (said->n > REQUEST_TOOLS_MAX)
        return err_param(f->e, ERR_RANGE, name, "'%s' may have at most %d entries, not %u.", name,
            REQUEST_TOOLS_MAX, said->n);
    *l = (struct tool_list){ .array = new_node(f, NULL, JSON_ARRAY) };
    if (!l->array)
        return field_no_memory(f);
    l->array->raw = said->raw; /* bounds the cost of a search through the array */
    l->tail = &l->array->child;
    return 0;
}

static int unsupported_type(struct fields *f, const struct path *tool, struct str type)
{
    struct path_text at = path_format(AT(tool, "type"));

    return err_param(f->e, ERR_UNSUPPORTED, at.z,
        "'%s' is '%.*s', which this server does not run; only functions are supported.", at.z,
        (int)MIN(type.n, (size_t)64), type.p);
}

void tools_skip(struct tool_list *l, int i, struct str type)
{
    if (l->skipped.p)
        return;
    l->skipped = type;
    l->at_skipped = i;
}

int tools_end(struct tool_list *l, struct fields *f)
{
    f->request->tools = l->array->n ? l->array : NULL;
    if (!l->skipped.p)
        return 0;
    if (f->request->tools) {
        no_effect_note("tools");
        return 0;
    }
    return unsupported_type(f, AT_INDEX(NULL, "tools", l->at_skipped), l->skipped);
}

static int check_name(struct fields *f, const struct path *where, struct str name)
{
    bool is_valid = name.n > 0 && name.n <= PARSER_NAME_MAX;

    for (size_t i = 0; i < name.n; i++)
        is_valid = is_valid && (unsigned char)name.p[i] >= 0x20;
    if (is_valid)
        return 0;
    struct path_text at = path_format(AT(where, "name"));
    return err_param(f->e, ERR_INVALID, at.z,
        "'%s' must have 1 to %d bytes, and no control characters.", at.z, PARSER_NAME_MAX);
}

/* Returns an empty schema. Templates read `properties` without a check whether it exists. */
static struct json *no_parameters(struct fields *f)
{
    struct json *all = new_node(f, "parameters", JSON_OBJECT);
    struct json *type = new_node(f, "type", JSON_STRING);
    struct json *properties = new_node(f, "properties", JSON_OBJECT);

    if (!all || !type || !properties)
        return NULL;
    type->s = STR("object");
    struct json **tail = &all->child;
    json_append(all, &tail, type);
    json_append(all, &tail, properties);
    return all;
}

/* Adds {"type":"function","function":function} and the other members of `said` (NULL: none). */
static int put_tool(
    struct tool_list *l, struct fields *f, const struct json *said, struct json *function)
{
    struct json *tool = new_node(f, NULL, JSON_OBJECT);
    struct json *type = new_node(f, "type", JSON_STRING);

    if (!tool || !type)
        return field_no_memory(f);
    type->s = STR("function");
    struct json **tail = &tool->child;
    json_append(tool, &tail, type);
    json_append(tool, &tail, function);
    for (const struct json *m = said ? said->child : NULL; m; m = m->next) {
        if (str_is(m->key, "type") || str_is(m->key, "function"))
            continue;
        struct json *copy = copy_node(f, NULL, m);
        if (!copy)
            return field_no_memory(f);
        json_append(tool, &tail, copy);
    }
    json_append(l->array, &l->tail, tool);
    return 0;
}

int tools_add(
    struct tool_list *l, struct fields *f, const struct path *where, const struct tool_spec *t)
{
    struct json *function = new_node(f, "function", JSON_OBJECT);
    struct json *name = new_node(f, "name", JSON_STRING);
    struct json *description = t->description.p ? new_node(f, "description", JSON_STRING) : name;
    struct json *parameters =
        t->parameters ? copy_node(f, "parameters", t->parameters) : no_parameters(f);
    struct json *strict = t->strict ? copy_node(f, "strict", t->strict) : name;

    if (check_name(f, where, t->name))
        return -1;
    if (!function || !name || !description || !parameters || !strict)
        return field_no_memory(f);
    struct json **tail = &function->child;
    name->s = t->name;
    json_append(function, &tail, name);
    if (description != name) {
        description->s = t->description;
        json_append(function, &tail, description);
    }
    json_append(function, &tail, parameters);
    if (strict != name)
        json_append(function, &tail, strict);
    return put_tool(l, f, NULL, function);
}

/* Returns a copy of the function, with an empty schema if it has no parameters. */
static struct json *keep_function(struct fields *f, const struct json *said)
{
    struct json *function = copy_node(f, "function", said);
    struct json *parameters = no_parameters(f);

    if (!function || !parameters)
        return NULL;
    if (!json_is_null(json_get(said, "parameters")))
        return function;
    struct json **tail = &function->child;
    function->n = 0;
    function->child = NULL;
    for (const struct json *m = said->child; m; m = m->next) {
        if (str_is(m->key, "parameters"))
            continue;
        struct json *copy = copy_node(f, NULL, m);
        if (!copy)
            return NULL;
        json_append(function, &tail, copy);
    }
    json_append(function, &tail, parameters);
    return function;
}

static int read_tool(
    struct tool_list *l, struct fields *f, const struct path *where, const struct json *v)
{
    struct str type = STR("function"), name;

    if (v->kind != JSON_OBJECT)
        return path_wrong_kind(f, where, "an object", v);
    if (path_take_text(f, AT(where, "type"), json_get(v, "type"), &type))
        return -1;
    if (!str_is(type, "function"))
        return unsupported_type(f, where, type);
    const struct json *function = json_get(v, "function");
    if (json_is_null(function))
        return path_missing(f, AT(where, "function"));
    if (function->kind != JSON_OBJECT)
        return path_wrong_kind(f, AT(where, "function"), "an object", function);
    const struct json *parameters = json_get(function, "parameters");
    if (!json_is_null(parameters) && parameters->kind != JSON_OBJECT)
        return path_wrong_kind(f, AT(AT(where, "function"), "parameters"), "an object", parameters);
    if (path_need_text(f, AT(AT(where, "function"), "name"), json_get(function, "name"), &name) ||
        check_name(f, AT(where, "function"), name))
        return -1;
    struct json *kept = keep_function(f, function);
    return kept ? put_tool(l, f, v, kept) : field_no_memory(f);
}

int tools_read(struct fields *f, const char *name, const struct json *v)
{
    struct tool_list l;
    int i = 0;

    if (tools_begin(&l, f, name, v))
        return -1;
    for (const struct json *t = v->child; t; t = t->next, i++)
        if (read_tool(&l, f, AT_INDEX(NULL, name, i), t))
            return -1;
    return tools_end(&l, f);
}

/* ---- the choice */

static struct str tool_name_of(const struct json *tool)
{
    const struct json *name = json_get(json_get(tool, "function"), "name");

    return name ? name->s : STR_NONE;
}

static bool has_tool(const struct json *tools, struct str name)
{
    for (const struct json *t = tools->child; t; t = t->next)
        if (str_eq(tool_name_of(t), name))
            return true;
    return false;
}

static int check_tool_exists(const struct request *request, struct str name, struct err *e)
{
    if (has_tool(request->tools, name))
        return 0;
    return err_param(e, ERR_INVALID, "tool_choice",
        "'tool_choice' names '%.*s', which is not in 'tools'.", (int)MIN(name.n, (size_t)64),
        name.p);
}

static bool is_listed(const struct request *request, struct str name)
{
    for (int i = 0; i < request->n_allowed_tools; i++)
        if (str_eq(request->allowed_tools[i], name))
            return true;
    return request->n_allowed_tools == 0;
}

bool tools_is_allowed(const struct request *request, struct str name)
{
    if (!request->tools || request->tool_choice == TOOL_CHOICE_NONE)
        return false;
    if (request->tool_choice == TOOL_CHOICE_NAMED)
        return str_eq(name, request->tool_name);
    if (request->n_allowed_tools)
        return is_listed(request, name);
    return request->tool_choice != TOOL_CHOICE_REQUIRED || has_tool(request->tools, name);
}

static int set_allowed_tools(struct request *request, struct arena *a, struct err *e)
{
    struct fields f = { .request = request, .arena = a, .e = e };
    struct tool_list l;

    for (int i = 0; i < request->n_allowed_tools; i++)
        if (check_tool_exists(request, request->allowed_tools[i], e))
            return -1;
    if (tools_begin(&l, &f, "tools", request->tools))
        return -1;
    for (const struct json *t = request->tools->child; t; t = t->next) {
        if (!is_listed(request, tool_name_of(t)))
            continue;
        struct json *copy = copy_node(&f, NULL, t);
        if (!copy)
            return field_no_memory(&f);
        json_append(l.array, &l.tail, copy);
    }
    request->convo.tools = l.array;
    return 0;
}

int tools_resolve(struct request *request, struct arena *a, struct err *e)
{
    bool is_forced =
        request->tool_choice == TOOL_CHOICE_REQUIRED || request->tool_choice == TOOL_CHOICE_NAMED;

    if (!request->tools) {
        if (is_forced || request->n_allowed_tools)
            return err_param(e, ERR_INVALID, "tool_choice",
                "'tool_choice' asks for a tool, but 'tools' is empty.");
        request->tool_choice = TOOL_CHOICE_NONE;
        return 0;
    }
    if (request->tool_choice == TOOL_CHOICE_NONE)
        return 0;
    if (request->tool_choice == TOOL_CHOICE_NAMED &&
        check_tool_exists(request, request->tool_name, e))
        return -1;
    request->convo.tools = request->tools;
    return request->n_allowed_tools ? set_allowed_tools(request, a, e) : 0;
}
