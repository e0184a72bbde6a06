#include "output/coerce.h"
#include "output/literal.h"

/* Returns the definition of a tool: the object with its name. */
static const struct json *find_tool(const struct json *tools, struct str name)
{
    if (!tools || tools->kind != JSON_ARRAY)
        return NULL;
    for (const struct json *t = tools->child; t; t = t->next) {
        const struct json *f = json_get(t, "function");
        const struct json *definition = f && f->kind == JSON_OBJECT ? f : t;
        const struct json *n = json_get(definition, "name");
        if (n && n->kind == JSON_STRING && str_eq(n->s, name))
            return definition;
    }
    return NULL;
}

bool tool_is_known(const struct json *tools, struct str name)
{
    return find_tool(tools, name) != NULL;
}

const struct json *tool_schema(const struct json *tools, struct str name)
{
    const struct json *definition = find_tool(tools, name);
    const struct json *schema = json_get(definition, "parameters");

    return schema ? schema : json_get(definition, "input_schema");
}

static unsigned type_of_word(const struct json *word)
{
    static const struct {
        const char *word;
        unsigned type;
    } types[] = { { "null", TYPE_NULL }, { "boolean", TYPE_BOOLEAN }, { "number", TYPE_NUMBER },
        { "integer", TYPE_NUMBER }, { "string", TYPE_STRING }, { "array", TYPE_ARRAY },
        { "object", TYPE_OBJECT } };

    for (size_t i = 0; word && word->kind == JSON_STRING && i < ARRAY_LEN(types); i++)
        if (str_is(word->s, types[i].word))
            return types[i].type;
    return 0;
}

static unsigned type_of_kind(enum json_kind kind)
{
    switch (kind) {
    case JSON_NULL:
        return TYPE_NULL;
    case JSON_BOOL:
        return TYPE_BOOLEAN;
    case JSON_NUMBER:
        return TYPE_NUMBER;
    case JSON_STRING:
        return TYPE_STRING;
    case JSON_ARRAY:
        return TYPE_ARRAY;
    case JSON_OBJECT:
        return TYPE_OBJECT;
    }
    return 0;
}

/* ---- types of a schema */

enum { STEPS_MAX = 4096 };     /* schemas and members examined for one argument */
enum { CHILD_DEPTH_MAX = 16 }; /* references and alternatives inside each other */

struct type_search {
    const struct json *root; /* the schema of all arguments, to which "#" refers */
    int n_steps;
};

static const struct json *member(struct type_search *s, const struct json *o, struct str key)
{
    if (!o || o->kind != JSON_OBJECT)
        return NULL;
    for (const struct json *m = o->child; m && s->n_steps++ < STEPS_MAX; m = m->next)
        if (str_eq(m->key, key))
            return m;
    return NULL;
}

/* One step of a JSON pointer: ~1 is '/', ~0 is '~'. */
static const struct json *pointer_step(
    struct type_search *s, const struct json *at, struct str step)
{
    char key[256];
    size_t n = 0;

    if (step.n > sizeof(key))
        return NULL;
    for (size_t i = 0; i < step.n; i++) {
        bool is_escape = step.p[i] == '~' && i + 1 < step.n;
        i += is_escape;
        key[n++] = !is_escape ? step.p[i] : step.p[i] == '1' ? '/' : '~';
    }
    if (at->kind != JSON_ARRAY)
        return member(s, at, (struct str){ key, n });
    uint64_t index = 0;
    for (size_t i = 0; i < n; i++) {
        if (key[i] < '0' || key[i] > '9' || index > STEPS_MAX)
            return NULL;
        index = index * 10 + (uint64_t)(key[i] - '0');
    }
    const struct json *v = at->child;
    while (v && index-- && s->n_steps++ < STEPS_MAX)
        v = v->next;
    return v;
}

/* Follows a reference inside the schema, "#/$defs/name". */
static const struct json *resolve(struct type_search *s, struct str ref)
{
    const struct json *at = s->root;

    if (!str_starts(ref, STR("#")))
        return NULL;
    for (ref = str_skip(ref, 1); at && ref.n;) {
        if (ref.p[0] != '/')
            return NULL;
        ref = str_skip(ref, 1);
        size_t n = 0;
        while (n < ref.n && ref.p[n] != '/')
            n++;
        at = pointer_step(s, at, (struct str){ ref.p, n });
        ref = str_skip(ref, n);
    }
    return at;
}

static unsigned types_of_values(struct type_search *s, const struct json *values)
{
    unsigned found = 0;

    for (const struct json *v = values->child; v && s->n_steps++ < STEPS_MAX; v = v->next)
        found |= type_of_kind(v->kind);
    return found;
}

static unsigned types_of_schema(struct type_search *s, const struct json *schema, int depth);

/* Types that both allow. 0 is "not specified"; of a contradiction the first counts. */
static unsigned restrict_types(unsigned a, unsigned b)
{
    if (!a || !b)
        return a | b;
    return a & b ? a & b : a;
}

/* anyOf and oneOf: the types of all alternatives; 0 if one of them may have any type. */
static unsigned types_of_any(struct type_search *s, const struct json *list, int depth)
{
    unsigned found = 0;

    for (const struct json *c = list->child; c; c = c->next) {
        unsigned types = types_of_schema(s, c, depth + 1);
        if (!types)
            return 0;
        found |= types;
    }
    return found;
}

/* allOf: the types that all parts allow. */
static unsigned types_of_all(struct type_search *s, const struct json *list, int depth)
{
    unsigned types = 0;

    for (const struct json *c = list->child; c; c = c->next)
        types = restrict_types(types, types_of_schema(s, c, depth + 1));
    return types;
}

static unsigned types_of_words(struct type_search *s, const struct json *list)
{
    unsigned types = 0;

    for (const struct json *t = list->child; t && s->n_steps++ < STEPS_MAX; t = t->next)
        types |= type_of_word(t);
    return types;
}

/* The types that one member of a schema allows; 0: not specified. */
static unsigned types_of_keyword(struct type_search *s, const struct json *m, int depth)
{
    bool is_list = m->kind == JSON_ARRAY;

    if (str_is(m->key, "type"))
        return is_list ? types_of_words(s, m) : type_of_word(m);
    if (str_is(m->key, "const"))
        return type_of_kind(m->kind);
    if (str_is(m->key, "enum") && is_list)
        return types_of_values(s, m);
    if (str_is(m->key, "$ref") && m->kind == JSON_STRING)
        return types_of_schema(s, resolve(s, m->s), depth + 1);
    if ((str_is(m->key, "anyOf") || str_is(m->key, "oneOf")) && is_list)
        return types_of_any(s, m, depth);
    return str_is(m->key, "allOf") && is_list ? types_of_all(s, m, depth) : 0;
}

/* TYPE_ bits that a schema allows; 0: not specified. Each keyword restricts them. */
static unsigned types_of_schema(struct type_search *s, const struct json *schema, int depth)
{
    enum { DEPTH_MAX = 16 };
    unsigned types = 0;

    if (!schema || schema->kind != JSON_OBJECT || depth > DEPTH_MAX)
        return 0;
    for (const struct json *m = schema->child; m && s->n_steps++ < STEPS_MAX; m = m->next)
        types = restrict_types(types, types_of_keyword(s, m, depth));
    return types;
}

unsigned tool_argument_types(const struct json *schema, struct str argument)
{
    struct type_search s = { .root = schema };
    const struct json *properties = json_get(schema, "properties");

    if (!properties || properties->kind != JSON_OBJECT)
        return 0;
    for (const struct json *m = properties->child; m; m = m->next)
        if (str_eq(m->key, argument))
            return types_of_schema(&s, m, 0);
    return 0;
}

unsigned schema_types(const struct json *root, const struct json *schema)
{
    struct type_search s = { .root = root };

    return types_of_schema(&s, schema, 0);
}

static const struct json *find_child(
    struct type_search *s, const struct json *schema, struct str name, bool is_item, int depth)
{
    static const char *const lists[] = { "anyOf", "oneOf", "allOf" };
    const struct json *ref = member(s, schema, STR("$ref"));
    const struct json *own = is_item ? member(s, schema, STR("items"))
                                     : member(s, member(s, schema, STR("properties")), name);

    if (!own && !is_item)
        own = member(s, schema, STR("additionalProperties"));
    if ((own && own->kind == JSON_OBJECT) || depth == CHILD_DEPTH_MAX)
        return own;
    if (ref && ref->kind == JSON_STRING)
        return find_child(s, resolve(s, ref->s), name, is_item, depth + 1);
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        const struct json *list = member(s, schema, str_of(lists[i]));
        const struct json *c = list && list->kind == JSON_ARRAY ? list->child : NULL;
        for (; c && s->n_steps < STEPS_MAX; c = c->next) {
            const struct json *found = find_child(s, c, name, is_item, depth + 1);
            if (found)
                return found;
        }
    }
    return NULL;
}

const struct json *schema_child(
    const struct json *root, const struct json *schema, struct str name, bool is_item)
{
    struct type_search s = { .root = root };
    const struct json *child = find_child(&s, schema, name, is_item, 0);

    return child && child->kind == JSON_OBJECT ? child : NULL;
}

bool tool_has_argument(const struct json *schema, struct str argument)
{
    const struct json *properties = json_get(schema, "properties");

    if (!properties || properties->kind != JSON_OBJECT)
        return true;
    for (const struct json *m = properties->child; m; m = m->next)
        if (str_eq(m->key, argument))
            return true;
    return false;
}

struct str tool_argument_name(const struct json *schema, uint32_t i)
{
    const struct json *properties = json_get(schema, "properties");

    if (!properties || properties->kind != JSON_OBJECT || i >= properties->n)
        return STR_NONE;
    const struct json *m = properties->child;
    while (i--)
        m = m->next;
    return m->key;
}

static unsigned type_of_text(struct str json)
{
    switch (json.p[0]) {
    case 'n':
        return TYPE_NULL;
    case 't':
    case 'f':
        return TYPE_BOOLEAN;
    case '"':
        return TYPE_STRING;
    case '[':
        return TYPE_ARRAY;
    case '{':
        return TYPE_OBJECT;
    default:
        return TYPE_NUMBER;
    }
}

/* Appends text as JSON; if it is not one complete JSON value, out is unchanged. */
static bool try_put_json(struct buf *out, struct str text)
{
    struct json_walk w;
    size_t n = out->n;
    enum walk_result result;

    json_walk_init(&w);
    size_t used = json_walk_put(&w, text, out, &result);
    bool ok = text.n && used == text.n && result != WALK_BAD && json_walk_end(&w);
    json_walk_clear(&w);
    if (!ok)
        out->n = n;
    return ok;
}

static bool try_put_literal(struct buf *out, struct str text)
{
    struct literal l;
    size_t n = out->n;
    enum walk_result result;

    literal_init(&l, STR(""), false);
    size_t used = literal_put(&l, text, out, &result);
    bool ok = text.n && used == text.n && result != WALK_BAD && literal_end(&l, out);
    literal_clear(&l);
    if (!ok)
        out->n = n;
    return ok;
}

static void put_string(struct buf *out, struct str text)
{
    buf_putc(out, '"');
    json_text_put(out, text);
    buf_putc(out, '"');
}

/* A quoted text stays a string with its quotes if the schema allows strings; the word null is also
 * a string then, unless the schema allows null. */
static bool type_is_allowed(unsigned type, unsigned types)
{
    if (!types || types & type)
        return type != TYPE_STRING || !types;
    return !(types & TYPE_STRING) && (type == TYPE_NULL || type == TYPE_STRING);
}

void coerce_put(struct buf *out, struct str text, unsigned types)
{
    struct str value = str_trim(text);
    size_t n = out->n;

    if (types != TYPE_STRING && try_put_json(out, value)) {
        if (type_is_allowed(type_of_text(value), types))
            return;
        out->n = n;
    }
    /* Python's True, None and single quotes are accepted if the schema excludes strings. */
    if (types && !(types & TYPE_STRING) && try_put_literal(out, value)) {
        if (buf_ok(out) &&
            type_is_allowed(type_of_text((struct str){ out->p + n, out->n - n }), types))
            return;
        out->n = n;
    }
    put_string(out, text);
}
