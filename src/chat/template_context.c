#include "chat/template_context.h"

static int put_member(struct rt *rt, struct dict *d, const char *key, struct val v)
{
    return dict_put_z(rt, d, key, v);
}

static int put_input(struct rt *rt, struct dict *d, const char *key, struct str s)
{
    struct text *t = text_new(rt, s, false);

    return t ? put_member(rt, d, key, V_STR(t)) : -1;
}

static struct dict *input_dict(struct rt *rt)
{
    struct dict *d = dict_new(rt);

    if (d)
        d->trusted = false;
    return d;
}

/* ---- content */

static int text_part_value(struct rt *rt, struct str s, bool trusted, struct val *out)
{
    struct dict *d = input_dict(rt);
    struct text *t = text_new(rt, s, trusted);
    struct val type;

    if (!d || !t || val_z(rt, "text", &type) || put_member(rt, d, "type", type) ||
        put_member(rt, d, "text", V_STR(t)))
        return -1;
    *out = V(T_DICT, dict, d);
    return 0;
}

/* The part as received if it has the shape which templates expect, otherwise converted to it. */
static int part_value(struct rt *rt, const struct content_part *p, struct val *out)
{
    const struct json *type = p->raw ? json_get(p->raw, "type") : NULL;
    bool is_text = p->kind == PART_TEXT || p->kind == PART_REFUSAL;
    bool as_came = type && type->kind == JSON_STRING &&
                   (!is_text || str_is(type->s, p->kind == PART_TEXT ? "text" : "refusal"));

    if (p->raw && (as_came || !is_text))
        return val_from_json(rt, p->raw, false, out);
    return text_part_value(rt, p->text, p->is_trusted, out);
}

static bool is_all_text(const struct message *m)
{
    for (int i = 0; i < m->n_parts; i++)
        if (m->parts[i].kind != PART_TEXT)
            return false;
    return true;
}

static bool has_trusted_part(const struct message *m)
{
    for (int i = 0; i < m->n_parts; i++)
        if (m->parts[i].is_trusted)
            return true;
    return false;
}

/* Concatenates trusted and untrusted parts. */
static int mixed_value(struct rt *rt, const struct message *m, struct val *out)
{
    struct blob *b = blob_new(rt);

    for (int i = 0; b && i < m->n_parts; i++)
        if (m->parts[i].kind == PART_TEXT &&
            blob_put(rt, b, m->parts[i].text, m->parts[i].is_trusted))
            return -1;
    struct text *t = b ? blob_text(rt, b) : NULL;
    if (t)
        *out = V_STR(t);
    return t ? 0 : -1;
}

static int plain_value(struct rt *rt, const struct message *m, struct val *out)
{
    if (has_trusted_part(m))
        return mixed_value(rt, m, out);
    struct str s = message_text(m, rt->a);
    struct text *t = s.p ? text_new(rt, s, false) : NULL;

    if (!s.p)
        return err_set(rt->e, ERR_MEMORY, "no memory to render the template");
    if (t)
        *out = V_STR(t);
    return t ? 0 : -1;
}

static int parts_value(struct rt *rt, const struct message *m, struct val *out)
{
    struct val_list *l = list_new(rt, (size_t)m->n_parts);

    if (!l)
        return -1;
    l->trusted = false;
    for (int i = 0; i < m->n_parts; i++) {
        struct val v;
        if (part_value(rt, &m->parts[i], &v) || list_push(rt, l, v))
            return -1;
    }
    *out = V(T_LIST, list, l);
    return 0;
}

static int content_value(struct rt *rt, const struct message *m, int variant_flags, struct val *out)
{
    bool is_plain = m->is_plain;

    if (!m->has_content) {
        bool is_null = !m->raw || json_get(m->raw, "content");
        *out = is_null ? V_NONE : (struct val){ .type = T_MISSING };
        return 0;
    }
    if (is_plain ? variant_flags & VARIANT_CONTENT_AS_PARTS
                 : (variant_flags & VARIANT_CONTENT_AS_STRING) && is_all_text(m))
        is_plain = !is_plain;
    return is_plain ? plain_value(rt, m, out) : parts_value(rt, m, out);
}

/* ---- tool calls */

static int arguments_value(struct rt *rt, struct str text, int variant_flags, struct val *out)
{
    static const struct json_limits limits = { .max_depth = 64, .max_nodes = 200000 };
    struct text *t = text_new(rt, text, false);
    struct json *j;
    struct err e;

    if (!t || rt_spend_bytes(rt, text.n * 4))
        return -1;
    *out = V_STR(t);
    if (variant_flags & VARIANT_TEXT_ARGS)
        return 0;
    if (!text.n)
        text = STR("{}");
    if (json_parse(&j, text, rt->a, &limits, &e))
        return e.code == ERR_MEMORY ? err_set(rt->e, ERR_MEMORY, "%s", e.msg) : 0;
    return j->kind == JSON_OBJECT ? val_from_json(rt, j, false, out) : 0;
}

static int function_value(
    struct rt *rt, const struct tool_call *call, int variant_flags, struct val *out)
{
    const struct json *raw = call->raw ? json_get(call->raw, "function") : NULL;
    struct dict *d = input_dict(rt);
    struct val arguments;

    if (!d || arguments_value(rt, call->arguments, variant_flags, &arguments))
        return -1;
    for (const struct json *m = raw && raw->kind == JSON_OBJECT ? raw->child : NULL; m;
         m = m->next) {
        struct text *key = text_new(rt, m->key, false);
        struct val v = arguments;
        if (!key || (!str_is(m->key, "arguments") && val_from_json(rt, m, false, &v)) ||
            dict_put(rt, d, V_STR(key), v))
            return -1;
    }
    if (!dict_get_z(d, "name") && put_input(rt, d, "name", call->name))
        return -1;
    if (!dict_get_z(d, "arguments") && put_member(rt, d, "arguments", arguments))
        return -1;
    *out = V(T_DICT, dict, d);
    return 0;
}

static int call_value_of(
    struct rt *rt, const struct tool_call *call, int variant_flags, struct val *out)
{
    const struct json *function = call->raw ? json_get(call->raw, "function") : NULL;
    bool is_known = function && function->kind == JSON_OBJECT;
    struct dict *d = input_dict(rt);
    struct val f, type;

    if (!d || function_value(rt, call, variant_flags, &f))
        return -1;
    for (const struct json *m = is_known ? call->raw->child : NULL; m; m = m->next) {
        struct text *key = text_new(rt, m->key, false);
        struct val v = f;
        if (!key || (!str_is(m->key, "function") && val_from_json(rt, m, false, &v)) ||
            dict_put(rt, d, V_STR(key), v))
            return -1;
    }
    if (!is_known) {
        if ((call->id.n && put_input(rt, d, "id", call->id)) || val_z(rt, "function", &type) ||
            put_member(rt, d, "type", type) || put_member(rt, d, "function", f))
            return -1;
    }
    *out = V(T_DICT, dict, d);
    return 0;
}

static int calls_value(struct rt *rt, const struct message *m, int variant_flags, struct val *out)
{
    const struct json *raw = m->raw ? json_get(m->raw, "tool_calls") : NULL;

    *out = (struct val){ .type = T_MISSING };
    if (!m->n_tool_calls)
        return raw ? val_from_json(rt, raw, false, out) : 0;
    struct val_list *l = list_new(rt, (size_t)m->n_tool_calls);
    if (!l)
        return -1;
    l->trusted = false;
    for (int i = 0; i < m->n_tool_calls; i++) {
        struct val v;
        if (call_value_of(rt, &m->tool_calls[i], variant_flags, &v) || list_push(rt, l, v))
            return -1;
    }
    *out = V(T_LIST, list, l);
    return 0;
}

/* ---- messages */

static int input_value(struct rt *rt, struct str s, struct val *out)
{
    struct text *t = s.p ? text_new(rt, s, false) : NULL;

    *out = t ? V_STR(t) : (struct val){ .type = T_MISSING };
    return s.p && !t ? -1 : 0;
}

static const char *const members[] = { "role", "content", "name", "tool_calls", "tool_call_id",
    "reasoning_content", "is_error" };

/* T_MISSING if the message has no such member. */
static int member_value(
    struct rt *rt, const struct message *m, size_t which, int variant_flags, struct val *out)
{
    bool as_system = m->role == ROLE_DEVELOPER && variant_flags & VARIANT_DEVELOPER_AS_SYSTEM;

    switch (which) {
    case 0:
        return val_z(rt, as_system ? "system" : role_name(m->role), out);
    case 1:
        return content_value(rt, m, variant_flags, out);
    case 2:
        return input_value(rt, m->name, out);
    case 3:
        return calls_value(rt, m, variant_flags, out);
    case 4:
        return input_value(rt, m->tool_call_id, out);
    case 5:
        return input_value(rt, m->reasoning, out);
    default:
        *out = m->is_error ? V_BOOL(true) : (struct val){ .type = T_MISSING };
        return 0;
    }
}

static int message_value(struct rt *rt, const struct message *m, int variant_flags, struct val *out)
{
    struct dict *d = input_dict(rt);
    bool is_put[ARRAY_LEN(members)] = { 0 };
    struct val v;

    if (!d)
        return -1;
    bool has_raw = m->raw && m->raw->kind == JSON_OBJECT;
    for (const struct json *j = has_raw ? m->raw->child : NULL; j; j = j->next) {
        struct text *key = text_new(rt, j->key, false);
        size_t k = 0;
        while (k < ARRAY_LEN(members) && !str_is(j->key, members[k]))
            k++;
        bool is_known = k < ARRAY_LEN(members);
        if (!key || (is_known && member_value(rt, m, k, variant_flags, &v)))
            return -1;
        if (is_known)
            is_put[k] = true;
        if (!is_known || v.type == T_MISSING)
            if (val_from_json(rt, j, false, &v))
                return -1;
        if (dict_put(rt, d, V_STR(key), v))
            return -1;
    }
    for (size_t k = 0; k < ARRAY_LEN(members); k++) {
        if (is_put[k])
            continue;
        if (member_value(rt, m, k, variant_flags, &v) ||
            (v.type != T_MISSING && put_member(rt, d, members[k], v)))
            return -1;
    }
    *out = V(T_DICT, dict, d);
    return 0;
}

/* ---- variables */

static int set_variable(struct rt *rt, struct str name, struct val v)
{
    if (rt_spend(rt, 1 + rt->t->n_names / 8))
        return -1;
    for (uint32_t i = 0; i < rt->t->n_names; i++)
        if (str_eq(rt->t->names[i], name)) {
            rt->variables[i] = v;
            break;
        }
    return 0;
}

static int set_token(struct rt *rt, struct str name, struct str token)
{
    struct text *t = token.p ? text_new(rt, token, true) : NULL;

    if (!token.p)
        return 0;
    return t ? set_variable(rt, name, V_STR(t)) : -1;
}

static int set_messages(struct rt *rt, const struct convo *c, int variant_flags)
{
    int n = c->n_messages - (variant_flags & VARIANT_WITHOUT_LAST && c->n_messages ? 1 : 0);
    struct val_list *l = list_new(rt, (size_t)n);

    if (!l)
        return -1;
    l->trusted = false;
    for (int i = 0; i < n; i++) {
        struct val v;
        if (message_value(rt, &c->messages[i], variant_flags, &v) || list_push(rt, l, v))
            return -1;
    }
    return set_variable(rt, STR("messages"), V(T_LIST, list, l));
}

/* ---- tools */

/* Returns the dict of a member, or NULL if there is no such member or it has another type. */
static struct dict *dict_member(struct dict *d, const char *key)
{
    const struct val *v = d ? dict_get_z(d, key) : NULL;

    return v && v->type == T_DICT ? v->u.dict : NULL;
}

/* Sets the member if it is absent or none. */
static int put_default(struct rt *rt, struct dict *d, const char *key, struct val v)
{
    const struct val *has = d ? dict_get_z(d, key) : NULL;

    return !d || (has && has->type != T_NONE) ? 0 : put_member(rt, d, key, v);
}

/* Defaults of the members of a function that the APIs make optional, and of its parameters. */
static int put_tool_defaults(struct rt *rt, struct dict *tool)
{
    struct dict *no_parameters = input_dict(rt), *no_properties = input_dict(rt);
    struct text *no_text = text_new(rt, STR(""), false);
    struct dict *function = dict_member(tool, "function");
    struct val object;

    if (!no_parameters || !no_properties || !no_text || val_z(rt, "object", &object) ||
        put_default(rt, function, "description", V_STR(no_text)) ||
        put_default(rt, function, "parameters", V(T_DICT, dict, no_parameters)) ||
        put_default(rt, function, "strict", V_BOOL(false)))
        return -1;
    struct dict *parameters = dict_member(function, "parameters");
    if (put_default(rt, parameters, "type", object) ||
        put_default(rt, parameters, "properties", V(T_DICT, dict, no_properties)))
        return -1;
    const struct dict *properties = dict_member(parameters, "properties");
    for (size_t i = 0; properties && i < properties->n; i++) {
        struct val v = properties->e[i].value;
        if (v.type == T_DICT && put_default(rt, v.u.dict, "description", V_STR(no_text)))
            return -1;
    }
    return 0;
}

static int tools_value(struct rt *rt, const struct json *tools, int variant_flags, struct val *out)
{
    if (val_from_json(rt, tools, false, out))
        return -1;
    if (!(variant_flags & VARIANT_TOOL_DEFAULTS) || out->type != T_LIST)
        return 0;
    for (size_t i = 0; i < out->u.list->n; i++) {
        struct val v = out->u.list->v[i];
        if (rt_spend(rt, 1) || (v.type == T_DICT && put_tool_defaults(rt, v.u.dict)))
            return -1;
    }
    return 0;
}

static int set_tools(struct rt *rt, const struct convo *c, int variant_flags)
{
    struct val v = V_NONE;

    if (json_is_null(c->tools))
        return variant_flags & VARIANT_TOOLS_UNDEFINED ? 0 : set_variable(rt, STR("tools"), v);
    return tools_value(rt, c->tools, variant_flags, &v) ? -1 : set_variable(rt, STR("tools"), v);
}

static bool names_variable(const struct rt *rt, const char *name)
{
    for (uint32_t i = 0; i < rt->t->n_names; i++)
        if (str_is(rt->t->names[i], name))
            return true;
    return false;
}

/* Tools as indented JSON text; "" without tools. */
static int functions_text(struct rt *rt, const struct json *tools, struct text **out)
{
    const struct json_style style = { .indent = text_new(rt, STR("  "), true),
        .item = text_new(rt, STR(","), true),
        .key = text_new(rt, STR(": "), true) };
    struct blob *b = blob_new(rt);
    struct val v;

    if (!b || !style.indent || !style.item || !style.key)
        return -1;
    if (!json_is_null(tools) && tools->n > 0 &&
        (val_from_json(rt, tools, false, &v) || val_dump(rt, v, &style, b)))
        return -1;
    *out = blob_text(rt, b);
    return *out ? 0 : -1;
}

/* Variables of llama-server that some templates read: the date, and the tools as text. */
static int set_extras(struct rt *rt, const struct convo *c)
{
    static const struct {
        const char *name, *format;
    } dates[] = { { "date_string", "%d %b %Y" }, { "datetime", "%b %d %Y" } };
    struct text *t;

    for (size_t i = 0; i < ARRAY_LEN(dates); i++) {
        if (!names_variable(rt, dates[i].name))
            continue;
        t = text_of_now(rt, dates[i].format, true);
        if (!t || set_variable(rt, str_of(dates[i].name), V_STR(t)))
            return -1;
    }
    if (!names_variable(rt, "functions"))
        return 0;
    return functions_text(rt, c->tools, &t) || set_variable(rt, STR("functions"), V_STR(t)) ? -1
                                                                                            : 0;
}

int template_context_set(
    struct rt *rt, const struct convo *c, const struct template_env *env, int variant_flags)
{
    const struct json *kwargs = c->template_kwargs;
    bool generates = variant_flags & VARIANT_WITHOUT_LAST ||
                     (c->add_generation_prompt && !c->continue_final_message);

    for (uint32_t i = 0; i < rt->t->n_names; i++) {
        const struct global_function *f = function_find(rt->t->names[i]);
        if (f)
            rt->variables[i] = V(T_FUNCTION, function, f);
    }
    if (set_token(rt, STR("bos_token"), env->bos_token) ||
        set_token(rt, STR("eos_token"), env->eos_token) || set_messages(rt, c, variant_flags) ||
        set_tools(rt, c, variant_flags) || set_extras(rt, c) ||
        set_variable(rt, STR("documents"), V_NONE) ||
        set_variable(rt, STR("add_generation_prompt"), V_BOOL(generates)))
        return -1;
    if (!kwargs || kwargs->kind != JSON_OBJECT)
        return 0;
    for (const struct json *k = kwargs->child; k; k = k->next) {
        struct val v;
        if (val_from_json(rt, k, false, &v) || set_variable(rt, k->key, v))
            return -1;
    }
    return 0;
}
