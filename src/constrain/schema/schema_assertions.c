#include "constrain/regular/pattern.h"
#include "constrain/schema/schema_keyword.h"
#include "constrain/regular/string_format.h"

#include <stdio.h>

static int need(struct schema_reading *k, const char *what)
{
    return err_set(k->r->e, ERR_INVALID, "%s was expected", what);
}

/* ---- type */

static const struct {
    const char *name;
    uint8_t kinds;
} types[] = {
    { "null", KIND_NULL },
    { "boolean", KIND_BOOLEAN },
    { "integer", KIND_INTEGER },
    { "number", KIND_NUMBER },
    { "string", KIND_STRING },
    { "array", KIND_ARRAY },
    { "object", KIND_OBJECT },
};

static int type_kinds(struct schema_reading *k, const struct json *v, uint8_t *kinds)
{
    for (size_t t = 0; t < ARRAY_LEN(types); t++)
        if (v->kind == JSON_STRING && str_is(v->s, types[t].name)) {
            *kinds |= types[t].kinds;
            return 0;
        }
    return need(k, "null, boolean, integer, number, string, array or object");
}

int schema_read_type(struct schema_reading *k, const struct json *v)
{
    const struct json *nullable = json_get(k->object, "nullable");
    uint8_t kinds = 0;

    if (v->kind == JSON_ARRAY) {
        for (const struct json *m = v->child; m; m = m->next)
            if (type_kinds(k, m, &kinds))
                return -1;
    } else if (type_kinds(k, v, &kinds)) {
        return -1;
    }
    /* OpenAPI 3.0 */
    if (k->version.draft == DRAFT_ANY && nullable && nullable->b)
        kinds |= KIND_NULL;
    k->node->kinds &= kinds;
    return 0;
}

/* ---- numbers */

static int number(struct schema_reading *k, const struct json *v, struct decimal *d)
{
    return v->kind == JSON_NUMBER ? decimal_parse(d, v->s, k->r->e) : need(k, "a number");
}

static void raise_min(struct number_range *r, const struct decimal *d, bool is_exclusive)
{
    int order = r->has_min ? decimal_compare(d, &r->min) : 1;

    if (order > 0) {
        r->min = *d;
        r->is_min_exclusive = false;
    }
    if (order >= 0)
        r->is_min_exclusive |= is_exclusive;
    r->has_min = true;
}

static void lower_max(struct number_range *r, const struct decimal *d, bool is_exclusive)
{
    int order = r->has_max ? decimal_compare(d, &r->max) : -1;

    if (order < 0) {
        r->max = *d;
        r->is_max_exclusive = false;
    }
    if (order <= 0)
        r->is_max_exclusive |= is_exclusive;
    r->has_max = true;
}

/* In draft 4 exclusiveMinimum is a boolean that changes the meaning of minimum. */
static bool is_exclusive(const struct schema_reading *k, const char *keyword)
{
    const struct json *v = json_get(k->object, keyword);

    return v && v->kind == JSON_BOOL && v->b;
}

int schema_read_minimum(struct schema_reading *k, const struct json *v)
{
    struct decimal d;

    if (number(k, v, &d))
        return -1;
    raise_min(&k->node->range, &d, is_exclusive(k, "exclusiveMinimum"));
    return 0;
}

int schema_read_maximum(struct schema_reading *k, const struct json *v)
{
    struct decimal d;

    if (number(k, v, &d))
        return -1;
    lower_max(&k->node->range, &d, is_exclusive(k, "exclusiveMaximum"));
    return 0;
}

int schema_read_exclusive_minimum(struct schema_reading *k, const struct json *v)
{
    struct decimal d;

    if (v->kind == JSON_BOOL)
        return 0;
    if (number(k, v, &d))
        return -1;
    raise_min(&k->node->range, &d, true);
    return 0;
}

int schema_read_exclusive_maximum(struct schema_reading *k, const struct json *v)
{
    struct decimal d;

    if (v->kind == JSON_BOOL)
        return 0;
    if (number(k, v, &d))
        return -1;
    lower_max(&k->node->range, &d, true);
    return 0;
}

/* Expressions that are compiled to find errors. */
static int exprs_ready(struct schema_reader *r)
{
    if (!r->exprs)
        r->exprs = exprs_new((struct expr_limits){ 32 * MB, 10000000 });
    return r->exprs ? 0 : schema_no_memory(r);
}

int schema_read_multiple_of(struct schema_reading *k, const struct json *v)
{
    struct number_range *range = &k->node->range;
    expr_id ignored;

    if (number(k, v, &range->multiple))
        return -1;
    range->has_multiple = true;
    struct number_range alone = { .has_multiple = true, .multiple = range->multiple };
    return exprs_ready(k->r) ? -1 : expr_number(k->r->exprs, &alone, &ignored, k->r->e);
}

/* ---- lengths and counts */

static int count(struct schema_reading *k, const struct json *v, uint64_t *out)
{
    struct decimal d;
    int64_t n;

    if (v->kind == JSON_NUMBER && json_i64(v, &n) && n >= 0) {
        *out = (uint64_t)n;
        return 0;
    }
    if (number(k, v, &d))
        return -1;
    if (d.is_negative || d.exponent < d.n)
        return need(k, "an integer of 0 or more");
    *out = UINT64_MAX;
    return 0;
}

static int least(struct schema_reading *k, const struct json *v, uint64_t *out)
{
    if (count(k, v, out))
        return -1;
    return *out < UINT64_MAX ? 0 : err_set(k->r->e, ERR_RANGE, "the count is out of range");
}

int schema_read_min_length(struct schema_reading *k, const struct json *v)
{
    return least(k, v, &k->node->min_length);
}

int schema_read_max_length(struct schema_reading *k, const struct json *v)
{
    return count(k, v, &k->node->max_length);
}

int schema_read_min_items(struct schema_reading *k, const struct json *v)
{
    return least(k, v, &k->node->min_items);
}

int schema_read_max_items(struct schema_reading *k, const struct json *v)
{
    return count(k, v, &k->node->max_items);
}

int schema_read_min_properties(struct schema_reading *k, const struct json *v)
{
    return least(k, v, &k->node->min_properties);
}

int schema_read_max_properties(struct schema_reading *k, const struct json *v)
{
    return count(k, v, &k->node->max_properties);
}

int schema_read_min_contains(struct schema_reading *k, const struct json *v)
{
    return least(k, v, &k->node->min_contains);
}

int schema_read_max_contains(struct schema_reading *k, const struct json *v)
{
    return count(k, v, &k->node->max_contains);
}

int schema_read_unique_items(struct schema_reading *k, const struct json *v)
{
    if (v->kind != JSON_BOOL)
        return need(k, "a boolean");
    k->node->has_unique_items = v->b;
    return 0;
}

/* ---- strings */

int schema_pattern_check(struct schema_reader *r, struct str pattern)
{
    static const char prefix[] = "pattern: "; /* the pointer names the keyword already */
    size_t n = sizeof(prefix) - 1;
    expr_id ignored;

    if (exprs_ready(r))
        return -1;
    if (!pattern_compile(r->exprs, pattern, TEXT_JSON, PATTERN_SEARCH, &ignored, r->e))
        return 0;
    if (str_starts(str_of(r->e->msg), str_of(prefix)))
        memmove(r->e->msg, r->e->msg + n, strlen(r->e->msg) - n + 1);
    return -1;
}

static int keep_name(struct schema_reading *k, struct str name, const struct str **out)
{
    struct str *kept;

    if (schema_alloc(k->r, (void **)&kept, 1, sizeof(*kept)))
        return -1;
    *kept = name;
    *out = kept;
    return schema_keep(k->r, kept);
}

int schema_read_pattern(struct schema_reading *k, const struct json *v)
{
    if (v->kind != JSON_STRING)
        return need(k, "a string");
    if (schema_pattern_check(k->r, v->s) || keep_name(k, v->s, &k->node->patterns))
        return -1;
    k->node->n_patterns = 1;
    return 0;
}

int schema_read_format(struct schema_reading *k, const struct json *v)
{
    struct number_range range;
    char report[100];

    if (v->kind != JSON_STRING)
        return need(k, "a string");
    if (string_format_is_known(v->s)) {
        k->node->n_formats = 1;
        return keep_name(k, v->s, &k->node->formats);
    }
    if (number_format_range(v->s, &range)) {
        raise_min(&k->node->range, &range.min, false);
        lower_max(&k->node->range, &range.max, false);
        k->node->kinds &= (uint8_t)~KIND_FRACTION;
        return 0;
    }
    snprintf(report, sizeof(report), "format: %.*s", (int)MIN(v->s.n, (size_t)80), v->s.p);
    return schema_ignore(k->r, str_of(report));
}
