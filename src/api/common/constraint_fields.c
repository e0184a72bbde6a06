#include "api/common/constraint_fields.h"

#include "base/buf.h"

/* ---- the constraint */

int constraint_set(
    struct fields *f, const struct path *at, enum constraint_kind kind, struct str text)
{
    struct request_constraint *c = &f->request->constraint;
    struct path_text field = path_format(at);

    if (c->is_set)
        return err_param(f->e, ERR_INVALID, field.z,
            "'%s' and '%s' exclude each other: a request has at most one constraint.", field.z,
            c->field);
    struct str copy = arena_str(f->arena, str_of(field.z));
    if (!copy.p)
        return field_no_memory(f);
    c->is_set = true;
    c->field = copy.p;
    c->source.kind = kind;
    c->source.text = text;
    return 0;
}

int constraint_set_schema(struct fields *f, const struct path *at, const struct json *v)
{
    if (v->kind != JSON_OBJECT && v->kind != JSON_BOOL && v->kind != JSON_STRING)
        return path_wrong_kind(f, at, "a JSON schema", v);
    return constraint_set(f, at, CONSTRAINT_JSON_SCHEMA, v->kind == JSON_STRING ? v->s : v->raw);
}

/* Rules of GBNF contain "::="; those of Lark do not. */
static enum constraint_kind grammar_kind(struct str text)
{
    return str_find(text, STR("::=")) >= 0 ? CONSTRAINT_GBNF : CONSTRAINT_LARK;
}

static int set_text(
    struct fields *f, const struct path *at, enum constraint_kind kind, const struct json *v)
{
    if (v->kind != JSON_STRING)
        return path_wrong_kind(f, at, "a string", v);
    return constraint_set(f, at, kind == CONSTRAINT_LARK ? grammar_kind(v->s) : kind, v->s);
}

static int set_choice(struct fields *f, const struct path *at, const struct json *v)
{
    bool is_valid = v->kind == JSON_ARRAY && v->n > 0;

    for (const struct json *c = is_valid ? v->child : NULL; c; c = c->next)
        is_valid = is_valid && c->kind == JSON_STRING;
    if (!is_valid)
        return path_wrong_kind(f, at, "an array of at least one string", v);
    return constraint_set(f, at, CONSTRAINT_CHOICE, v->raw);
}

static int set_structural_tag(struct fields *f, const struct path *at, const struct json *v)
{
    if (v->kind != JSON_OBJECT && v->kind != JSON_STRING)
        return path_wrong_kind(f, at, "an object", v);
    return constraint_set(f, at, CONSTRAINT_STRUCTURAL_TAG, v->kind == JSON_STRING ? v->s : v->raw);
}

/* vLLM: true requests any JSON object. */
static int set_json_mode(struct fields *f, const struct path *at, const struct json *v)
{
    if (v->kind != JSON_BOOL)
        return path_wrong_kind(f, at, "a boolean", v);
    return v->b ? constraint_set(f, at, CONSTRAINT_JSON, STR("")) : 0;
}

int constraint_set_value(
    struct fields *f, const struct path *at, enum constraint_kind kind, const struct json *v)
{
    if (json_is_null(v))
        return path_missing(f, at);
    switch (kind) {
    case CONSTRAINT_JSON:
        return set_json_mode(f, at, v);
    case CONSTRAINT_JSON_SCHEMA:
        return constraint_set_schema(f, at, v);
    case CONSTRAINT_GBNF:
    case CONSTRAINT_LARK:
    case CONSTRAINT_REGEX:
        return set_text(f, at, kind, v);
    case CONSTRAINT_CHOICE:
        return set_choice(f, at, v);
    case CONSTRAINT_STRUCTURAL_TAG:
        return set_structural_tag(f, at, v);
    case CONSTRAINT_TOOLS: /* no field; made of `tools` */
        break;
    }
    return 0;
}

/* ---- options */

/* Patterns of whitespace between JSON tokens that have an equivalent. */
static int read_whitespace_pattern(struct fields *f, const struct path *at, const struct json *v)
{
    static const struct {
        const char *pattern;
        enum json_whitespace means;
    } known[] = {
        { "", JSON_WS_COMPACT },
        { "[\n\t ]*", JSON_WS_ANY },
        { "[\\n\\t ]*", JSON_WS_ANY },
        { "[ \\n\\t]*", JSON_WS_ANY },
        { "[\\s]*", JSON_WS_ANY },
        { "\\s*", JSON_WS_ANY },
    };

    if (v->kind != JSON_STRING)
        return path_wrong_kind(f, at, "a string", v);
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (str_is(v->s, known[i].pattern)) {
            f->request->constraint.source.whitespace = known[i].means;
            return 0;
        }
    return path_unsupported(f, at, "use x_constraint.whitespace: default, compact or any");
}

static int read_flag(struct fields *f, const struct path *at, const struct json *v, bool *out)
{
    if (v->kind != JSON_BOOL)
        return path_wrong_kind(f, at, "a boolean", v);
    *out = v->b;
    return 0;
}

static int read_compact(struct fields *f, const struct path *at, const struct json *v)
{
    bool is_on;

    if (read_flag(f, at, v, &is_on))
        return -1;
    if (is_on)
        f->request->constraint.source.whitespace = JSON_WS_COMPACT;
    return 0;
}

static int read_closed(struct fields *f, const struct path *at, const struct json *v)
{
    return read_flag(f, at, v, &f->request->constraint.source.closed_objects);
}

static int read_any_order(struct fields *f, const struct path *at, const struct json *v)
{
    return read_flag(f, at, v, &f->request->constraint.source.any_order);
}

static int read_close_at_limit(struct fields *f, const struct path *at, const struct json *v)
{
    return read_flag(f, at, v, &f->request->constraint.close_at_limit);
}

static int read_whitespace(struct fields *f, const struct path *at, const struct json *v)
{
    static const char *const words[] = {
        [JSON_WS_DEFAULT] = "default", [JSON_WS_COMPACT] = "compact", [JSON_WS_ANY] = "any"
    };
    struct str word;

    if (field_enum(f, path_format(at).z, v, "default|compact|any", &word))
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (str_is(word, words[i]))
            f->request->constraint.source.whitespace = (enum json_whitespace)i;
    return 0;
}

/* ---- fields that are objects: tables of their members */

struct constraint_member {
    const char *name;
    int (*read)(struct fields *f, const struct path *at, const struct json *v); /* NULL: set kind */
    enum constraint_kind kind;
};

static const struct constraint_member *find_member(
    const struct constraint_member *table, size_t n, struct str name)
{
    for (size_t i = 0; i < n; i++)
        if (str_is(name, table[i].name))
            return &table[i];
    return NULL;
}

static int read_member(struct fields *f, const struct path *at, const struct constraint_member *m,
    const struct json *v)
{
    return m->read ? m->read(f, at, v) : constraint_set_value(f, at, m->kind, v);
}

/* Reads in the order of the table. A member that is not in the table is ignored or, if the object
 * belongs to this server, rejected. */
static int read_members(struct fields *f, const struct path *where, const struct json *v,
    const struct constraint_member *table, size_t n)
{
    if (v->kind != JSON_OBJECT)
        return path_wrong_kind(f, where, "an object", v);
    for (size_t i = 0; i < n; i++) {
        const struct json *member = json_get(v, table[i].name);
        if (!json_is_null(member) && read_member(f, AT(where, table[i].name), &table[i], member))
            return -1;
    }
    return 0;
}

int constraint_field_structured_outputs(struct fields *f, const char *name, const struct json *v)
{
    static const struct constraint_member members[] = {
        { "choice", NULL, CONSTRAINT_CHOICE },
        { "disable_additional_properties", read_closed },
        { "disable_any_whitespace", read_compact },
        { "grammar", NULL, CONSTRAINT_LARK },
        { "json", NULL, CONSTRAINT_JSON_SCHEMA },
        { "json_object", NULL, CONSTRAINT_JSON },
        { "regex", NULL, CONSTRAINT_REGEX },
        { "structural_tag", NULL, CONSTRAINT_STRUCTURAL_TAG },
        { "whitespace_pattern", read_whitespace_pattern },
    };

    return read_members(f, AT(NULL, name), v, members, ARRAY_LEN(members));
}

int constraint_field_options(struct fields *f, const char *name, const struct json *v)
{
    static const struct constraint_member members[] = {
        { "any_order", read_any_order },
        { "close_at_limit", read_close_at_limit },
        { "whitespace", read_whitespace },
    };

    if (read_members(f, AT(NULL, name), v, members, ARRAY_LEN(members)))
        return -1;
    for (const struct json *c = v->child; c; c = c->next)
        if (!find_member(members, ARRAY_LEN(members), c->key))
            return err_param(f->e, ERR_INVALID, name,
                "'%s' has no member '%.*s'; it has any_order, close_at_limit and whitespace.", name,
                (int)MIN(c->key.n, (size_t)40), c->key.p);
    return 0;
}

/* ---- top-level fields */

int constraint_field(struct fields *f, const char *name, const struct json *v)
{
    static const struct constraint_member members[] = {
        { "ebnf", NULL, CONSTRAINT_GBNF },
        { "grammar", NULL, CONSTRAINT_GBNF },
        { "guided_choice", NULL, CONSTRAINT_CHOICE },
        { "guided_grammar", NULL, CONSTRAINT_LARK },
        { "guided_json", NULL, CONSTRAINT_JSON_SCHEMA },
        { "guided_regex", NULL, CONSTRAINT_REGEX },
        { "guided_whitespace_pattern", read_whitespace_pattern },
        { "json_schema", NULL, CONSTRAINT_JSON_SCHEMA },
        { "regex", NULL, CONSTRAINT_REGEX },
    };
    const struct constraint_member *m = find_member(members, ARRAY_LEN(members), str_of(name));

    CHECK(m);
    /* Clients send an empty string for a field that is not used. */
    bool is_unused = v->kind == JSON_STRING && !v->s.n && !m->read;
    return is_unused ? 0 : read_member(f, AT(NULL, name), m, v);
}

int constraint_field_closed(struct fields *f, const char *name, const struct json *v)
{
    f->request->constraint.source.closed_objects = true;
    return constraint_field(f, name, v);
}

int constraint_field_format(struct fields *f, const char *name, const struct json *v)
{
    const struct path *at = AT(NULL, name);

    f->request->constraint.source.closed_objects = true;
    if (v->kind == JSON_OBJECT)
        return constraint_set_schema(f, at, v);
    if (v->kind != JSON_STRING)
        return path_wrong_kind(f, at, "\"json\" or a JSON schema", v);
    if (!v->s.n)
        return 0;
    if (!str_is(v->s, "json"))
        return err_param(f->e, ERR_INVALID, name, "'%s' must be \"json\" or a JSON schema.", name);
    return constraint_set(f, at, CONSTRAINT_JSON, STR(""));
}
