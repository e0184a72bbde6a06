#include "api/openai/openai.h"
#include "api/common/constraint_fields.h"

/* openai_response_format.c: response_format, one of
 *
 *     {"type":"text"}
 *     {"type":"json_object"}, with an optional "schema" as in llama-server
 *     {"type":"json_schema","json_schema":{"name","description","schema","strict"}}
 *     {"type":"grammar","grammar":"root ::= .."}, in GBNF or Lark
 *     {"type":"regex","regex":".."}
 *     {"type":"choice","choice":["..",".."]}
 *     {"type":"structural_tag", ..} as in XGrammar
 *
 * In the Responses API, name and schema are direct members without "json_schema". Any thread. */

enum { NAME_MAX_BYTES = 64 };

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

static int read_named_schema(struct fields *f, const struct path *where, const struct json *v)
{
    struct request_constraint *constraint = &f->request->constraint;

    if (json_is_null(v))
        return path_missing(f, where);
    if (v->kind != JSON_OBJECT)
        return path_wrong_kind(f, where, "an object", v);
    const struct json *strict = json_get(v, "strict");
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
    return constraint_set_value(
        f, AT(where, "schema"), CONSTRAINT_JSON_SCHEMA, json_get(v, "schema"));
}

static int read_text(struct fields *f, const struct path *where, const struct json *v)
{
    return 0;
}

static int read_json_object(struct fields *f, const struct path *where, const struct json *v)
{
    const struct json *schema = json_get(v, "schema");

    return json_is_null(schema) ? constraint_set(f, where, CONSTRAINT_JSON, STR(""))
                                : constraint_set_schema(f, AT(where, "schema"), schema);
}

static int read_json_schema(struct fields *f, const struct path *where, const struct json *v)
{
    return where->up ? read_named_schema(f, where, v)
                     : read_named_schema(f, AT(where, "json_schema"), json_get(v, "json_schema"));
}

static int read_grammar(struct fields *f, const struct path *where, const struct json *v)
{
    return constraint_set_value(f, AT(where, "grammar"), CONSTRAINT_LARK, json_get(v, "grammar"));
}

static int read_regex(struct fields *f, const struct path *where, const struct json *v)
{
    return constraint_set_value(f, AT(where, "regex"), CONSTRAINT_REGEX, json_get(v, "regex"));
}

static int read_choice(struct fields *f, const struct path *where, const struct json *v)
{
    return constraint_set_value(f, AT(where, "choice"), CONSTRAINT_CHOICE, json_get(v, "choice"));
}

static int read_structural_tag(struct fields *f, const struct path *where, const struct json *v)
{
    return constraint_set_value(f, where, CONSTRAINT_STRUCTURAL_TAG, v);
}

int openai_read_format(struct fields *f, const struct path *where, const struct json *v)
{
    static const struct {
        const char *type;
        int (*read)(struct fields *f, const struct path *where, const struct json *v);
    } types[] = {
        { "text", read_text },
        { "json_object", read_json_object },
        { "json_schema", read_json_schema },
        { "grammar", read_grammar },
        { "regex", read_regex },
        { "choice", read_choice },
        { "structural_tag", read_structural_tag },
    };
    const struct json *t = json_get(v, "type");
    const struct path *at = AT(where, "type");
    struct str type;

    if (v->kind != JSON_OBJECT)
        return path_wrong_kind(f, where, "an object", v);
    if (json_is_null(t))
        return path_missing(f, at);
    if (field_enum(f, path_format(at).z, t,
            "text|json_object|json_schema|grammar|regex|choice|structural_tag", &type))
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (str_is(type, types[i].type))
            return types[i].read(f, where, v);
    return 0;
}

int openai_read_response_format(struct fields *f, const char *name, const struct json *v)
{
    return openai_read_format(f, AT(NULL, name), v);
}
