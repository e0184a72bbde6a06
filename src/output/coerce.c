#include "output/coerce.h"
#include "output/literal.h"

const struct json *tool_schema(const struct json *tools, struct str name)
{
    if (!tools || tools->kind != JSON_ARRAY)
        return NULL;
    for (const struct json *t = tools->child; t; t = t->next) {
        const struct json *f = json_get(t, "function");
        const struct json *definition = f && f->kind == JSON_OBJECT ? f : t;
        const struct json *n = json_get(definition, "name");
        if (!n || n->kind != JSON_STRING || !str_eq(n->s, name))
            continue;
        const struct json *schema = json_get(definition, "parameters");
        return schema ? schema : json_get(definition, "input_schema");
    }
    return NULL;
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

/* Types in a schema itself: `type`, or else the types of its enum or const values. */
static unsigned types_here(const struct json *schema)
{
    const struct json *type = json_get(schema, "type"), *values = json_get(schema, "enum");
    const struct json *only = json_get(schema, "const");
    unsigned found = 0;

    if (type && type->kind == JSON_STRING)
        return type_of_word(type);
    if (type && type->kind == JSON_ARRAY)
        for (const struct json *t = type->child; t; t = t->next)
            found |= type_of_word(t);
    if (!found && values && values->kind == JSON_ARRAY)
        for (const struct json *v = values->child; v; v = v->next)
            found |= type_of_kind(v->kind);
    if (!found && only)
        found = type_of_kind(only->kind);
    return found;
}

unsigned tool_argument_types(const struct json *schema, struct str argument)
{
    static const char *const choices[] = { "anyOf", "oneOf" };
    const struct json *properties = json_get(schema, "properties"), *p = NULL;

    if (!properties || properties->kind != JSON_OBJECT)
        return 0;
    for (const struct json *m = properties->child; m && !p; m = m->next)
        if (str_eq(m->key, argument))
            p = m;
    unsigned found = types_here(p);
    for (size_t i = 0; i < ARRAY_LEN(choices) && !found; i++) {
        const struct json *list = json_get(p, choices[i]);
        if (!list || list->kind != JSON_ARRAY)
            continue;
        for (const struct json *c = list->child; c; c = c->next) {
            unsigned t = types_here(c);
            if (!t)
                return 0; /* this alternative may have any type */
            found |= t;
        }
    }
    return found;
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
