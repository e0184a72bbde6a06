#include "api/openai/openai.h"

#include <stdio.h>

/* openai_response_format.c: response_format, one of
 *
 *     {"type":"text"}
 *     {"type":"json_object"}, with an optional "schema" as in llama-server
 *     {"type":"json_schema","json_schema":{"name","description","schema","strict"}}
 *     {"type":"grammar","grammar":"root ::= .."}
 *
 * In the Responses API, name and schema are direct members without "json_schema". Any thread. */

enum { NAME_MAX_BYTES = 64 };

static int check_size(struct fields *f, const struct path *where, size_t n)
{
    struct path_text at = path_format(where);

    if (n <= REQUEST_CONSTRAINT_MAX)
        return 0;
    return err_param(f->e, ERR_INVALID, at.z, "'%s' exceeds %d KB limit: it has %zu bytes.", at.z,
        REQUEST_CONSTRAINT_MAX / 1024, n);
}

static int set_schema(struct fields *f, const struct path *where, const struct json *v)
{
    if (v->kind != JSON_OBJECT && v->kind != JSON_BOOL)
        return path_wrong_kind(f, where, "a JSON schema", v);
    if (check_size(f, where, v->raw.n))
        return -1;
    f->request->constraint.schema = v;
    return 0;
}

static bool is_name(struct str s)
{
    bool is_valid = s.n > 0 && s.n <= NAME_MAX_BYTES;

    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        is_valid = is_valid && (is_letter || (c >= '0' && c <= '9') || c == '_' || c == '-');
    }
    return is_valid;
}

static int read_schema(struct fields *f, const struct path *where, const struct json *v)
{
    struct request_constraint *constraint = &f->request->constraint;

    if (json_is_null(v))
        return path_missing(f, where);
    if (v->kind != JSON_OBJECT)
        return path_wrong_kind(f, where, "an object", v);
    const struct json *schema = json_get(v, "schema"), *strict = json_get(v, "strict");
    if (path_need_text(f, AT(where, "name"), json_get(v, "name"), &constraint->name) ||
        path_take_text(
            f, AT(where, "description"), json_get(v, "description"), &constraint->description))
        return -1;
    struct path_text at = path_format(AT(where, "name"));
    if (!is_name(constraint->name))
        return err_param(f->e, ERR_INVALID, at.z,
            "'%s' must have 1 to %d letters, digits, '_' and '-'.", at.z, NAME_MAX_BYTES);
    if (!json_is_null(strict) && strict->kind != JSON_BOOL)
        return path_wrong_kind(f, AT(where, "strict"), "a boolean", strict);
    constraint->is_strict = !json_is_null(strict) && strict->b;
    return json_is_null(schema) ? path_missing(f, AT(where, "schema"))
                                : set_schema(f, AT(where, "schema"), schema);
}

/* Reads the member `type`. Its full path is the error's field. */
static int read_type(struct fields *f, const char *name, const struct json *t, struct str *out)
{
    char path[40];

    snprintf(path, sizeof(path), "%s.type", name);
    if (json_is_null(t))
        return field_missing(f, path);
    return field_enum(
        f, path, t, "text|json_object|json_schema|grammar|regex|choice|structural_tag", out);
}

int openai_read_constraint(
    struct fields *f, const char *name, const struct path *where, const struct json *v)
{
    struct request_constraint *constraint = &f->request->constraint;
    struct str type;

    if (v->kind != JSON_OBJECT)
        return field_wrong_kind(f, name, "an object", v);
    const struct json *t = json_get(v, "type"), *schema = json_get(v, "schema");
    const struct json *inner = json_get(v, "json_schema");
    if (read_type(f, name, t, &type))
        return -1;
    constraint->field = name;
    if (str_is(type, "text"))
        return 0;
    if (str_is(type, "json_object")) {
        constraint->kind = CONSTRAINT_JSON_OBJECT;
        return json_is_null(schema) ? 0 : set_schema(f, AT(where, "schema"), schema);
    }
    if (str_is(type, "json_schema")) {
        constraint->kind = CONSTRAINT_JSON_SCHEMA;
        return where->up ? read_schema(f, where, v)
                         : read_schema(f, AT(where, "json_schema"), inner);
    }
    if (!str_is(type, "grammar"))
        return field_unsupported(f, name, "this format is not implemented");
    constraint->kind = CONSTRAINT_GRAMMAR;
    const struct path *at = AT(where, "grammar");
    return path_need_text(f, at, json_get(v, "grammar"), &constraint->grammar)
               ? -1
               : check_size(f, at, constraint->grammar.n);
}

int openai_read_response_format(struct fields *f, const char *name, const struct json *v)
{
    return openai_read_constraint(f, name, AT(NULL, name), v);
}
