#include "constrain/tools/tool_text.h"

#include "constrain/regular/pattern.h"
#include "constrain/regular/string_format.h"
#include "output/coerce.h"

#include <stdlib.h>

enum { DEPTH_MAX = 16, MEMBERS_MAX = 64 };

struct text_reader {
    struct exprs *x;
    const struct json *root;
    struct err *e;
};

static int read_schema(struct text_reader *r, const struct json *s, int depth, expr_id *out);

static int refuse(struct text_reader *r, struct str keyword, const char *why)
{
    return err_set(
        r->e, ERR_UNSUPPORTED, "#/%.*s: %s", (int)MIN(keyword.n, (size_t)60), keyword.p, why);
}

/* ---- references */

static const struct json *find_member(const struct json *o, const char *key, size_t n)
{
    const struct json *found = NULL;

    if (!o || o->kind != JSON_OBJECT)
        return NULL;
    for (const struct json *m = o->child; m; m = m->next)
        if (m->key.n == n && !memcmp(m->key.p, key, n))
            found = m;
    return found;
}

/* A pointer of plain names, "#/$defs/name". */
static const struct json *resolve(const struct json *root, struct str ref)
{
    const struct json *at = root;
    size_t i = 1;

    if (!ref.n || ref.p[0] != '#')
        return NULL;
    while (at && i < ref.n) {
        size_t n = ++i;
        while (i < ref.n && ref.p[i] != '/')
            i++;
        at = find_member(at, ref.p + n, i - n);
    }
    return at;
}

/* ---- keywords */

typedef int keyword_fn(struct text_reader *r, const struct json *v, int depth, expr_id *out);

static int read_type(struct text_reader *r, const struct json *v, int depth, expr_id *out)
{
    bool has_string = v->kind == JSON_STRING && str_is(v->s, "string");

    (void)r;
    (void)depth;
    for (const struct json *t = v->kind == JSON_ARRAY ? v->child : NULL; t; t = t->next)
        has_string = has_string || (t->kind == JSON_STRING && str_is(t->s, "string"));
    *out = has_string ? EXPR_ALL : EXPR_NONE;
    return 0;
}

static int read_const(struct text_reader *r, const struct json *v, int depth, expr_id *out)
{
    (void)depth;
    *out = v->kind == JSON_STRING ? text_literal(r->x, v->s, TEXT_UTF8) : EXPR_NONE;
    return 0;
}

static int read_enum(struct text_reader *r, const struct json *v, int depth, expr_id *out)
{
    *out = EXPR_NONE;
    for (const struct json *m = v->kind == JSON_ARRAY ? v->child : NULL; m; m = m->next) {
        expr_id one;
        if (read_const(r, m, depth, &one))
            return -1;
        *out = expr_or(r->x, *out, one);
    }
    return 0;
}

static int read_pattern(struct text_reader *r, const struct json *v, int depth, expr_id *out)
{
    (void)depth;
    if (v->kind != JSON_STRING)
        return refuse(r, STR("pattern"), "must be a string");
    return pattern_compile(r->x, v->s, TEXT_UTF8, PATTERN_SEARCH, out, r->e)
               ? err_wrap(r->e, "#/pattern")
               : 0;
}

static int read_format(struct text_reader *r, const struct json *v, int depth, expr_id *out)
{
    (void)depth;
    *out = EXPR_ALL;
    if (v->kind != JSON_STRING || !string_format_is_known(v->s))
        return 0;
    return string_format_compile(r->x, v->s, TEXT_UTF8, out, r->e);
}

/* A count of characters; larger ones than REPEAT_MAX have the effect of REPEAT_MAX. */
static int read_count(struct text_reader *r, const struct json *v, uint32_t *n)
{
    char text[32];
    char *end;

    if (v->kind != JSON_NUMBER || !v->raw.n || v->raw.n >= sizeof(text))
        return refuse(r, v->key, "must be a number of characters");
    memcpy(text, v->raw.p, v->raw.n);
    text[v->raw.n] = '\0';
    double value = strtod(text, &end);
    if (*end || !(value >= 0) || value > REPEAT_MAX || value != (double)(uint32_t)value)
        return refuse(r, v->key, "must be a number of characters up to 2^30");
    *n = (uint32_t)value;
    return 0;
}

static int read_min_length(struct text_reader *r, const struct json *v, int depth, expr_id *out)
{
    uint32_t n = 0;

    (void)depth;
    if (read_count(r, v, &n))
        return -1;
    *out = expr_repeat(r->x, text_any(r->x, TEXT_UTF8), n, REPEAT_INF);
    return 0;
}

static int read_max_length(struct text_reader *r, const struct json *v, int depth, expr_id *out)
{
    uint32_t n = 0;

    (void)depth;
    if (read_count(r, v, &n))
        return -1;
    *out = expr_repeat(r->x, text_any(r->x, TEXT_UTF8), 0, n);
    return 0;
}

static int read_members(
    struct text_reader *r, const struct json *v, int depth, expr_id *all, size_t *n)
{
    if (v->kind != JSON_ARRAY || v->n > MEMBERS_MAX)
        return refuse(r, v->key, "must be an array of at most 64 schemas");
    for (const struct json *m = v->child; m; m = m->next)
        if (read_schema(r, m, depth + 1, &all[(*n)++]))
            return -1;
    return 0;
}

static int read_any_of(struct text_reader *r, const struct json *v, int depth, expr_id *out)
{
    expr_id all[MEMBERS_MAX];
    size_t n = 0;

    if (read_members(r, v, depth, all, &n))
        return -1;
    *out = expr_or_all(r->x, all, n);
    return 0;
}

static int read_all_of(struct text_reader *r, const struct json *v, int depth, expr_id *out)
{
    expr_id all[MEMBERS_MAX];
    size_t n = 0;

    if (read_members(r, v, depth, all, &n))
        return -1;
    *out = expr_and_all(r->x, all, n);
    return 0;
}

/* Texts of exactly one member. */
static int read_one_of(struct text_reader *r, const struct json *v, int depth, expr_id *out)
{
    expr_id all[MEMBERS_MAX], once = EXPR_NONE, more = EXPR_NONE;
    size_t n = 0;

    if (read_members(r, v, depth, all, &n))
        return -1;
    for (size_t i = 0; i < n; i++) {
        more = expr_or(r->x, more, expr_and(r->x, once, all[i]));
        once = expr_or(r->x, once, all[i]);
    }
    *out = expr_and(r->x, once, expr_not(r->x, more));
    return 0;
}

static int read_ref(struct text_reader *r, const struct json *v, int depth, expr_id *out)
{
    const struct json *to = v->kind == JSON_STRING ? resolve(r->root, v->s) : NULL;

    if (!to)
        return refuse(r, STR("$ref"), "the reference is not supported for arguments between tags");
    return read_schema(r, to, depth + 1, out);
}

static int read_annotation(struct text_reader *r, const struct json *v, int depth, expr_id *out)
{
    (void)r;
    (void)v;
    (void)depth;
    *out = EXPR_ALL;
    return 0;
}

/* Keywords about other types than strings have no effect here. */
static const struct {
    const char *name;
    keyword_fn *read;
} keywords[] = {
    { "type", read_type },
    { "const", read_const },
    { "enum", read_enum },
    { "pattern", read_pattern },
    { "format", read_format },
    { "minLength", read_min_length },
    { "maxLength", read_max_length },
    { "anyOf", read_any_of },
    { "allOf", read_all_of },
    { "oneOf", read_one_of },
    { "$ref", read_ref },
    { "title", read_annotation },
    { "description", read_annotation },
    { "default", read_annotation },
    { "examples", read_annotation },
    { "deprecated", read_annotation },
    { "readOnly", read_annotation },
    { "writeOnly", read_annotation },
    { "$comment", read_annotation },
    { "minimum", read_annotation },
    { "maximum", read_annotation },
    { "exclusiveMinimum", read_annotation },
    { "exclusiveMaximum", read_annotation },
    { "multipleOf", read_annotation },
    { "items", read_annotation },
    { "prefixItems", read_annotation },
    { "minItems", read_annotation },
    { "maxItems", read_annotation },
    { "uniqueItems", read_annotation },
    { "properties", read_annotation },
    { "required", read_annotation },
    { "additionalProperties", read_annotation },
    { "patternProperties", read_annotation },
    { "propertyNames", read_annotation },
    { "minProperties", read_annotation },
    { "maxProperties", read_annotation },
};

static keyword_fn *find_keyword(struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(keywords); i++)
        if (str_is(name, keywords[i].name))
            return keywords[i].read;
    return NULL;
}

static int read_schema(struct text_reader *r, const struct json *s, int depth, expr_id *out)
{
    expr_id all = EXPR_ALL;

    if (depth > DEPTH_MAX)
        return refuse(r, s->key, "is nested too deeply for arguments between tags");
    if (s->kind == JSON_BOOL) {
        *out = s->b ? text_any_star(r->x, TEXT_UTF8) : EXPR_NONE;
        return 0;
    }
    if (s->kind != JSON_OBJECT)
        return refuse(r, s->key, "must be a schema");
    for (const struct json *m = s->child; m; m = m->next) {
        keyword_fn *read = find_keyword(m->key);
        expr_id one;
        if (!read)
            return refuse(r, m->key, "is not supported for arguments between tags");
        if (read(r, m, depth, &one))
            return -1;
        all = expr_and(r->x, all, one);
    }
    *out = expr_and(r->x, all, text_any_star(r->x, TEXT_UTF8));
    return 0;
}

int tool_text_of_schema(struct exprs *x, const struct json *root, const struct json *schema,
    expr_id *out, struct err *e)
{
    struct text_reader r = { x, root, e };

    return read_schema(&r, schema, 0, out);
}

expr_id tool_text_like_json(struct exprs *x)
{
    static const char pattern[] =
        "^[ \\t\\r\\n]*(?:[-0-9\\x22\\[{][^]*|(?:null|true|false)[ \\t\\r\\n]*)?$";
    struct err e = { 0 };
    expr_id out = EXPR_NONE;

    return pattern_compile(x, str_of(pattern), TEXT_UTF8, PATTERN_SEARCH, &out, &e) ? EXPR_ALL
                                                                                    : out;
}
