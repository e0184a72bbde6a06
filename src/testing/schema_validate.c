#include "testing/schema_validate.h"
#include "base/map.h"
#include "base/mem.h"
#include "constrain/regular/automaton.h"
#include "constrain/regular/pattern.h"
#include "constrain/regular/string_format.h"

static const struct expr_limits pool_limits = { 256 * MB, 100000000 };
static const struct automaton_limits automaton_limits = { 16 * MB, 100000000 };

struct language {
    struct exprs *exprs;
    struct automaton *automaton;
};

struct schema_validator {
    const struct schema *schema;
    struct str_map *patterns, *formats; /* -> languages */
    struct language *languages;
    uint32_t n_languages, cap_languages;
    struct err *e;
    bool failed;
};

/* ---- values */

static bool is_number(const struct json *v, struct decimal *d, struct err *e)
{
    return v->kind == JSON_NUMBER && !decimal_parse(d, v->s, e);
}

static bool objects_equal(const struct json *a, const struct json *b)
{
    if (a->n != b->n)
        return false;
    for (const struct json *m = a->child; m; m = m->next) {
        const struct json *l = b->child;
        while (l && !str_eq(l->key, m->key))
            l = l->next;
        if (!l || !schema_values_equal(m, l))
            return false;
    }
    return true;
}

bool schema_values_equal(const struct json *a, const struct json *b)
{
    struct decimal x, y;
    struct err e;

    if (a->kind != b->kind)
        return false;
    switch (a->kind) {
    case JSON_NULL:
        return true;
    case JSON_BOOL:
        return a->b == b->b;
    case JSON_NUMBER:
        return is_number(a, &x, &e) && is_number(b, &y, &e) && !decimal_compare(&x, &y);
    case JSON_STRING:
        return str_eq(a->s, b->s);
    case JSON_OBJECT:
        return objects_equal(a, b);
    case JSON_ARRAY:
        break;
    }
    const struct json *x_item = a->child, *y_item = b->child;
    for (; x_item && y_item; x_item = x_item->next, y_item = y_item->next)
        if (!schema_values_equal(x_item, y_item))
            return false;
    return !x_item && !y_item;
}

static uint8_t kind_of(struct schema_validator *v, const struct json *value)
{
    struct decimal d;

    switch (value->kind) {
    case JSON_NULL:
        return KIND_NULL;
    case JSON_BOOL:
        return KIND_BOOLEAN;
    case JSON_STRING:
        return KIND_STRING;
    case JSON_ARRAY:
        return KIND_ARRAY;
    case JSON_OBJECT:
        return KIND_OBJECT;
    case JSON_NUMBER:
        break;
    }
    if (!is_number(value, &d, v->e)) {
        v->failed = true;
        return KIND_FRACTION;
    }
    return d.exponent >= d.n ? KIND_INTEGER : KIND_FRACTION;
}

/* ---- strings and numbers */

static int language_add(
    struct schema_validator *v, struct str_map *map, struct str text, bool is_format)
{
    struct language l = { 0 };
    expr_id root;

    int rc = str_map_put(map, text, v->n_languages);
    if (rc <= 0)
        return rc ? err_set(v->e, ERR_MEMORY, "no memory for a validator") : 0;
    if (v->n_languages == v->cap_languages) {
        uint32_t cap = MAX(v->cap_languages * 2, 16u);
        void *p = try_realloc(v->languages, cap * sizeof(*v->languages));
        if (!p)
            return err_set(v->e, ERR_MEMORY, "no memory for a validator");
        v->languages = p;
        v->cap_languages = cap;
    }
    l.exprs = exprs_new(pool_limits);
    if (!l.exprs)
        return err_set(v->e, ERR_MEMORY, "no memory for a validator");
    if (is_format)
        rc = string_format_compile(l.exprs, text, TEXT_UTF8, &root, v->e);
    else
        rc = pattern_compile(l.exprs, text, TEXT_UTF8, PATTERN_SEARCH, &root, v->e);
    if (!rc)
        rc = automaton_new(&l.automaton, l.exprs, root, automaton_limits, v->e);
    v->languages[v->n_languages++] = l;
    return rc;
}

static bool matches(struct schema_validator *v, struct str_map *map, struct str name, struct str s)
{
    uint32_t k = 0;

    CHECK(str_map_get(map, name, &k));
    struct automaton *a = v->languages[k].automaton;
    bool is_match = automaton_accepts(a, automaton_run(a, automaton_start(a), s));
    v->failed |= automaton_check(a, v->e) != 0;
    return is_match;
}

static bool string_is_valid(struct schema_validator *v, const struct schema_node *n, struct str s)
{
    uint64_t length = 0;

    for (size_t k = 0; k < s.n; k++)
        length += (s.p[k] & 0xC0) != 0x80;
    if (length < n->min_length || length > n->max_length)
        return false;
    for (uint32_t k = 0; k < n->n_patterns; k++)
        if (!matches(v, v->patterns, n->patterns[k], s))
            return false;
    for (uint32_t k = 0; k < n->n_formats; k++)
        if (!matches(v, v->formats, n->formats[k], s))
            return false;
    return true;
}

/* x = X * 10^p and m = M * 10^q with integers X and M; X does not end with 0: X * 10^(p-q)
 * is a multiple of M. */
static bool is_multiple(const struct decimal *x, const struct decimal *m)
{
    unsigned __int128 modulus = 0, rest = 0;
    int shift = (x->exponent - x->n) - (m->exponent - m->n);

    if (!x->n)
        return true;
    for (int k = 0; k < m->n; k++)
        modulus = modulus * 10 + m->digits[k];
    for (int k = 0; k < x->n; k++)
        rest = (rest * 10 + x->digits[k]) % modulus;
    for (int k = 0; k < shift; k++)
        rest = rest * 10 % modulus;
    return shift >= 0 && rest == 0;
}

static bool number_is_valid(
    struct schema_validator *v, const struct number_range *r, const struct json *value)
{
    struct decimal d;

    if (!is_number(value, &d, v->e))
        return false;
    int low = r->has_min ? decimal_compare(&d, &r->min) : 1;
    int high = r->has_max ? decimal_compare(&d, &r->max) : -1;
    return (r->is_min_exclusive ? low > 0 : low >= 0) &&
           (r->is_max_exclusive ? high < 0 : high <= 0) &&
           (!r->has_multiple || is_multiple(&d, &r->multiple));
}

/* ---- arrays and objects: `seen` has one mark per item or member that is evaluated */

static bool is_valid(
    struct schema_validator *v, node_id id, const struct json *value, uint8_t *seen);

static bool inner_is_valid(struct schema_validator *v, node_id id, const struct json *value)
{
    return is_valid(v, id, value, NULL);
}

static bool has_duplicates(const struct json *array)
{
    for (const struct json *m = array->child; m; m = m->next)
        for (const struct json *l = m->next; l; l = l->next)
            if (schema_values_equal(m, l))
                return true;
    return false;
}

static bool array_is_valid(struct schema_validator *v, const struct schema_node *n,
    const struct json *value, uint8_t *seen)
{
    uint32_t k = 0;
    uint64_t n_found = 0;

    if (value->n < n->min_items || value->n > n->max_items ||
        (n->has_unique_items && has_duplicates(value)))
        return false;
    for (const struct json *m = value->child; m; m = m->next, k++) {
        bool is_prefix = k < n->prefix_items.n;
        if (!inner_is_valid(v, is_prefix ? n->prefix_items.ids[k] : n->items, m))
            return false;
        seen[k] |= is_prefix || n->items_evaluate;
        if (n->has_contains && inner_is_valid(v, n->contains, m)) {
            n_found++;
            seen[k] |= n->contains_evaluate;
        }
    }
    return !n->has_contains || (n_found >= n->min_contains && n_found <= n->max_contains);
}

static bool member_is_valid(struct schema_validator *v, const struct schema_node *n,
    const struct json *member, uint8_t *seen)
{
    struct json key = { .kind = JSON_STRING, .s = member->key };
    bool is_matched = false;

    if (!inner_is_valid(v, n->property_names, &key))
        return false;
    for (uint32_t k = 0; k < n->n_properties; k++)
        if (n->properties[k].is_declared && str_eq(n->properties[k].key, member->key)) {
            is_matched = true;
            if (!inner_is_valid(v, n->properties[k].value, member))
                return false;
        }
    for (uint32_t k = 0; k < n->n_pattern_properties; k++)
        if (matches(v, v->patterns, n->pattern_properties[k].pattern, member->key)) {
            is_matched = true;
            if (!inner_is_valid(v, n->pattern_properties[k].value, member))
                return false;
        }
    if (!is_matched && n->has_additional) {
        is_matched = true;
        if (!inner_is_valid(v, n->additional_properties, member))
            return false;
    }
    *seen |= is_matched;
    return true;
}

static bool has_member(const struct json *object, struct str key)
{
    for (const struct json *m = object->child; m; m = m->next)
        if (str_eq(m->key, key))
            return true;
    return false;
}

static bool object_is_valid(struct schema_validator *v, const struct schema_node *n,
    const struct json *value, uint8_t *seen)
{
    uint32_t k = 0;

    if (value->n < n->min_properties || value->n > n->max_properties)
        return false;
    for (const struct json *m = value->child; m; m = m->next)
        if (!member_is_valid(v, n, m, &seen[k++]))
            return false;
    for (k = 0; k < n->n_properties; k++)
        if (n->properties[k].is_required && !has_member(value, n->properties[k].key))
            return false;
    for (k = 0; k < n->n_dependencies; k++) {
        const struct schema_dependency *d = &n->dependencies[k];
        if (!has_member(value, d->key))
            continue;
        for (uint32_t l = 0; l < d->n_required; l++)
            if (!has_member(value, d->required[l]))
                return false;
        if (!is_valid(v, d->schema, value, seen))
            return false;
    }
    return true;
}

/* ---- one node */

static bool lists_are_valid(struct schema_validator *v, const struct schema_node *n,
    const struct json *value, uint8_t *seen)
{
    uint32_t n_any = 0, n_one = 0;

    for (uint32_t k = 0; k < n->all_of.n; k++)
        if (!is_valid(v, n->all_of.ids[k], value, seen))
            return false;
    for (uint32_t k = 0; k < n->any_of.n; k++)
        n_any += is_valid(v, n->any_of.ids[k], value, seen);
    for (uint32_t k = 0; k < n->one_of.n; k++)
        n_one += is_valid(v, n->one_of.ids[k], value, seen);
    if ((n->any_of.n && !n_any) || (n->one_of.n && n_one != 1))
        return false;
    if (is_valid(v, n->not_of, value, NULL))
        return false;
    if (!n->has_if)
        return true;
    bool is_then = is_valid(v, n->if_of, value, seen);
    return is_valid(v, is_then ? n->then_of : n->else_of, value, seen);
}

static bool is_listed(const struct schema_node *n, const struct json *value)
{
    for (uint32_t k = 0; k < n->n_values; k++)
        if (schema_values_equal(n->values[k], value))
            return true;
    return !n->has_enum;
}

static bool unevaluated_are_valid(struct schema_validator *v, const struct schema_node *n,
    const struct json *value, uint8_t *seen)
{
    bool is_array = value->kind == JSON_ARRAY;
    node_id id = is_array ? n->unevaluated_items : n->unevaluated_properties;
    uint32_t k = 0;

    if (!(is_array ? n->has_unevaluated_items : n->has_unevaluated_properties))
        return true;
    for (const struct json *m = value->child; m; m = m->next, k++) {
        if (!seen[k] && !inner_is_valid(v, id, m))
            return false;
        seen[k] = true;
    }
    return true;
}

static bool node_is_valid(struct schema_validator *v, const struct schema_node *n,
    const struct json *value, uint8_t *seen)
{
    if (!(kind_of(v, value) & n->kinds) || !is_listed(n, value) ||
        !lists_are_valid(v, n, value, seen))
        return false;
    switch (value->kind) {
    case JSON_NUMBER:
        return number_is_valid(v, &n->range, value);
    case JSON_STRING:
        return string_is_valid(v, n, value->s);
    case JSON_ARRAY:
        return array_is_valid(v, n, value, seen) && unevaluated_are_valid(v, n, value, seen);
    case JSON_OBJECT:
        return object_is_valid(v, n, value, seen) && unevaluated_are_valid(v, n, value, seen);
    case JSON_NULL:
    case JSON_BOOL:
        break;
    }
    return true;
}

/* Adds to `seen`, if it is not NULL and the value is valid, what the node evaluates. */
static bool is_valid(
    struct schema_validator *v, node_id id, const struct json *value, uint8_t *seen)
{
    uint32_t n = value->kind == JSON_ARRAY || value->kind == JSON_OBJECT ? value->n : 0;

    if (id.i < 2 || v->failed)
        return id.i == NODE_TRUE.i;
    uint8_t *own = try_calloc(n + 1, 1);
    if (!own) {
        err_set(v->e, ERR_MEMORY, "no memory for a validator");
        v->failed = true;
        return false;
    }
    bool is_satisfied = node_is_valid(v, schema_node(v->schema, id), value, own);
    for (uint32_t k = 0; k < n && is_satisfied && seen; k++)
        seen[k] |= own[k];
    mem_free(own);
    return is_satisfied;
}

int schema_validator_new(struct schema_validator **out, const struct schema *s, struct err *e)
{
    struct schema_validator *v = try_calloc(1, sizeof(*v));

    if (!v)
        return err_set(e, ERR_MEMORY, "no memory for a validator");
    v->schema = s;
    v->e = e;
    v->patterns = str_map_new(8);
    v->formats = str_map_new(8);
    int rc = v->patterns && v->formats ? 0 : err_set(e, ERR_MEMORY, "no memory for a validator");
    for (uint32_t k = 0; k < schema_count(s) && !rc; k++) {
        const struct schema_node *n = schema_node(s, (node_id){ k });
        for (uint32_t l = 0; l < n->n_patterns && !rc; l++)
            rc = language_add(v, v->patterns, n->patterns[l], false);
        for (uint32_t l = 0; l < n->n_pattern_properties && !rc; l++)
            rc = language_add(v, v->patterns, n->pattern_properties[l].pattern, false);
        for (uint32_t l = 0; l < n->n_formats && !rc; l++)
            rc = language_add(v, v->formats, n->formats[l], true);
    }
    if (rc)
        schema_validator_free(v);
    else
        *out = v;
    return rc;
}

void schema_validator_free(struct schema_validator *v)
{
    if (!v)
        return;
    for (uint32_t k = 0; k < v->n_languages; k++) {
        automaton_free(v->languages[k].automaton);
        exprs_free(v->languages[k].exprs);
    }
    str_map_free(v->patterns);
    str_map_free(v->formats);
    mem_free(v->languages);
    mem_free(v);
}

int schema_validate(struct schema_validator *v, const struct json *value, struct err *e)
{
    v->e = e;
    v->failed = false;
    bool is_satisfied = is_valid(v, schema_root(v->schema), value, NULL);
    return v->failed ? -1 : is_satisfied;
}
