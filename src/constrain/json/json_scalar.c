#include "base/buf.h"
#include "base/mem.h"
#include "constrain/regular/derive.h"
#include "constrain/regular/expr_in.h"
#include "constrain/json/json_program_in.h"
#include "constrain/regular/json_string.h"
#include "constrain/regular/live.h"

#include <stdlib.h>

enum { SCALAR_DEPTH_MAX = 150, TRIE_DEPTH_MAX = 300 };

static const struct json_scalar none; /* EXPR_NONE */

static struct json_scalar both(struct json_program *p, struct json_scalar a, struct json_scalar b)
{
    for (int k = 0; k < N_PARTS; k++)
        a.part[k] = expr_and(p->x, a.part[k], b.part[k]);
    return a;
}

static struct json_scalar either(struct json_program *p, struct json_scalar a, struct json_scalar b)
{
    for (int k = 0; k < N_PARTS; k++)
        a.part[k] = expr_or(p->x, a.part[k], b.part[k]);
    return a;
}

static void check(struct json_program *p, int rc, struct err *e, const struct schema_node *s)
{
    if (!rc || p->is_failed)
        return;
    p->is_failed = true;
    p->err = *e;
    err_wrap(&p->err, STR_FMT, STR_ARG(s->pointer));
}

/* ---- numbers */

static expr_id number_of(
    struct json_program *p, const struct number_range *r, const struct schema_node *s)
{
    struct err e = { 0 };
    expr_id a = EXPR_NONE;

    check(p, expr_number(p->x, r, &a, &e), &e, s);
    return a;
}

/* Numbers with an integral value. */
static expr_id integral(struct json_program *p, const struct schema_node *s)
{
    struct number_range r = { .has_multiple = true, .allows_fraction = true };

    r.multiple = (struct decimal){ .exponent = 1, .n = 1, .digits = { 1 } };
    return number_of(p, &r, s);
}

static bool has_partial_kinds(const struct schema_node *s)
{
    return (s->kinds & KIND_NUMBER) != KIND_NUMBER;
}

static expr_id number_texts(struct json_program *p, const struct schema_node *s,
    const struct number_range *limits, bool has_exponent)
{
    struct number_range r = *limits;

    r.allows_fraction = true;
    r.allows_exponent = has_exponent;
    return number_of(p, &r, s);
}

/* All texts of the value of a number in `enum`. */
static expr_id number_value(
    struct json_program *p, const struct schema_node *s, const struct json *v, bool has_exponent)
{
    struct number_range r = { .has_min = true, .has_max = true };
    struct err e = { 0 };

    if (decimal_parse(&r.min, v->s, &e))
        return EXPR_NONE; /* the policy cannot write it */
    r.max = r.min;
    return number_texts(p, s, &r, has_exponent);
}

/* The plain text of an integer. */
static expr_id integer_text(struct json_program *p, const struct json *v)
{
    struct decimal d;
    struct err e;
    char text[NUMBER_DIGITS_MAX + 2];
    size_t n = 0;

    if (decimal_parse(&d, v->s, &e) || d.exponent < d.n || d.exponent > NUMBER_DIGITS_MAX)
        return EXPR_NONE;
    if (d.is_negative)
        text[n++] = '-';
    for (int32_t k = 0; k < d.exponent; k++)
        text[n++] = (char)('0' + (k < d.n ? d.digits[k] : 0));
    if (!d.n)
        text[n++] = '0';
    return expr_literal(p->x, (struct str){ text, n });
}

/* Texts whose value satisfies the keywords; without exponents unless `has_exponent`. */
static expr_id number_by_value(
    struct json_program *p, const struct schema_node *s, bool has_exponent)
{
    expr_id all, values = EXPR_NONE;

    if (!(s->kinds & KIND_NUMBER))
        return EXPR_NONE;
    all = number_texts(p, s, &s->range, has_exponent);
    if (has_partial_kinds(s)) {
        expr_id whole = integral(p, s);
        all = expr_and(p->x, all, s->kinds & KIND_INTEGER ? whole : expr_not(p->x, whole));
    }
    for (uint32_t k = 0; k < s->n_values; k++)
        if (s->values[k]->kind == JSON_NUMBER)
            values = expr_or(p->x, values, number_value(p, s, s->values[k], has_exponent));
    return s->has_enum ? expr_and(p->x, all, values) : all;
}

static expr_id number_positive(struct json_program *p, const struct schema_node *s)
{
    struct number_range r = s->range;
    expr_id texts = EXPR_NONE, all;

    if (!(s->kinds & KIND_NUMBER))
        return EXPR_NONE;
    if (s->has_enum) {
        for (uint32_t k = 0; k < s->n_values; k++)
            if (s->values[k]->kind == JSON_NUMBER) {
                texts = expr_or(p->x, texts, expr_literal(p->x, s->values[k]->s));
                texts = expr_or(p->x, texts, integer_text(p, s->values[k]));
            }
        return expr_and(p->x, texts, number_by_value(p, s, !s->range.has_multiple));
    }
    r.allows_fraction = r.allows_exponent = s->kinds & KIND_FRACTION;
    r.allows_exponent = r.allows_exponent && s->kinds & KIND_INTEGER;
    all = number_of(p, &r, s);
    if (!(s->kinds & KIND_INTEGER))
        all = expr_and(p->x, all, expr_not(p->x, integral(p, s)));
    return all;
}

static expr_id number_negative(struct json_program *p, const struct schema_node *s)
{
    static const struct number_range any = { 0 };
    const struct number_range *r = &s->range;
    bool is_limited = r->has_min || r->has_max || r->has_multiple || s->has_enum;
    bool has_exponent = !r->has_multiple && !has_partial_kinds(s);

    if (!(s->kinds & KIND_NUMBER))
        return p->any.part[PART_NUMBER];
    if (!is_limited && !has_partial_kinds(s))
        return EXPR_NONE;
    return expr_and(p->x, number_texts(p, s, &any, has_exponent),
        expr_not(p->x, number_by_value(p, s, has_exponent)));
}

/* ---- strings */

static int by_bytes(const void *a, const void *b)
{
    const struct str *x = a, *y = b;
    int order = memcmp(x->p, y->p, MIN(x->n, y->n));

    return order ? order : (x->n > y->n) - (x->n < y->n);
}

/* The union of sorted texts that agree in the first `at` bytes, without those. */
static expr_id trie(
    struct json_program *p, const struct str *all, uint32_t n, size_t at, unsigned depth)
{
    size_t same = at;
    expr_id *parts, any = EXPR_NONE;
    uint32_t n_parts = 0;

    if (!n || depth > TRIE_DEPTH_MAX) {
        if (n)
            json_fail(p, ERR_TOO_LARGE, "the values of an enum have too many common prefixes");
        return EXPR_NONE;
    }
    while (same < all[0].n && same < all[n - 1].n && all[0].p[same] == all[n - 1].p[same])
        same++;
    struct str prefix = { all[0].p + at, same - at };
    if (!json_work(p, n) || n == 1)
        return p->is_failed ? EXPR_NONE : expr_literal(p->x, str_skip(all[0], at));
    parts = try_calloc(257, sizeof(*parts));
    if (!parts) {
        json_fail(p, ERR_MEMORY, "no memory");
        return EXPR_NONE;
    }
    for (uint32_t k = 0, next; k < n; k = next) {
        next = k + 1;
        if (all[k].n == same) {
            parts[n_parts++] = EXPR_EPS;
            continue;
        }
        while (next < n && all[next].p[same] == all[k].p[same])
            next++;
        uint8_t byte = (uint8_t)all[k].p[same];
        expr_id rest = trie(p, all + k, next - k, same + 1, depth + 1);
        parts[n_parts++] = expr_cat(p->x, expr_range(p->x, byte, byte), rest);
    }
    any = expr_cat(p->x, expr_literal(p->x, prefix), expr_or_all(p->x, parts, n_parts));
    mem_free(parts);
    return any;
}

/* The strings of `enum`, in their short spelling. */
static expr_id string_values(struct json_program *p, const struct schema_node *s)
{
    struct str *all = try_calloc(s->n_values + 1, sizeof(*all));
    struct buf b;
    uint32_t n = 0;
    expr_id any = EXPR_NONE;

    if (!all) {
        json_fail(p, ERR_MEMORY, "no memory");
        return EXPR_NONE;
    }
    for (uint32_t k = 0; k < s->n_values; k++) {
        if (s->values[k]->kind != JSON_STRING)
            continue;
        buf_init(&b, s->values[k]->s.n * 6 + 1);
        json_escape(&b, s->values[k]->s);
        all[n] = buf_ok(&b) ? arena_str(p->arena, buf_str(&b)) : STR_NONE;
        if (!all[n++].p)
            json_fail(p, ERR_MEMORY, "no memory");
        buf_clear(&b);
    }
    if (n && !p->is_failed) {
        qsort(all, n, sizeof(*all), by_bytes);
        any = trie(p, all, n, 0, 0);
    }
    mem_free(all);
    return any;
}

static bool has_string_keyword(const struct schema_node *s)
{
    return s->n_patterns || s->n_formats || s->min_length || s->max_length != UINT64_MAX;
}

static expr_id string_by_keywords(struct json_program *p, const struct schema_node *s)
{
    struct json_string_limits l = { .patterns = s->patterns,
        .n_patterns = s->n_patterns,
        .formats = s->formats,
        .n_formats = s->n_formats,
        .min_length = s->min_length,
        .max_length = s->max_length };
    struct err e = { 0 };
    expr_id a = EXPR_NONE;

    if (!has_string_keyword(s))
        return p->any.part[PART_STRING];
    check(p, expr_json_string(p->x, &l, &a, &e), &e, s);
    return a;
}

static expr_id string_positive(struct json_program *p, const struct schema_node *s)
{
    if (!(s->kinds & KIND_STRING))
        return EXPR_NONE;
    if (!s->has_enum)
        return string_by_keywords(p, s);
    expr_id values = string_values(p, s);
    return has_string_keyword(s) ? expr_and(p->x, values, string_by_keywords(p, s)) : values;
}

static expr_id string_negative(struct json_program *p, const struct schema_node *s)
{
    expr_id values = EXPR_NONE, by_value = EXPR_ALL;

    if (!(s->kinds & KIND_STRING))
        return p->any.part[PART_STRING];
    if (!has_string_keyword(s) && !s->has_enum)
        return EXPR_NONE;
    if (has_string_keyword(s))
        by_value = string_by_keywords(p, s);
    if (s->has_enum) {
        values = string_values(p, s);
        for (uint32_t k = 0; k < s->n_values; k++) /* `/` has two spellings */
            if (s->values[k]->kind == JSON_STRING && str_find(s->values[k]->s, STR("/")) >= 0)
                values = expr_or(p->x, values, text_literal(p->x, s->values[k]->s, TEXT_JSON));
        by_value = expr_and(p->x, by_value, values);
    }
    return expr_and(p->x, text_any_star(p->x, TEXT_JSON), expr_not(p->x, by_value));
}

/* ---- null, true, false */

static expr_id words(struct json_program *p, const struct schema_node *s, bool is_negated)
{
    static const struct {
        const char *text;
        uint8_t kind;
        enum json_kind json;
        bool b;
    } all[] = { { "null", KIND_NULL, JSON_NULL, false },
        { "false", KIND_BOOLEAN, JSON_BOOL, false }, { "true", KIND_BOOLEAN, JSON_BOOL, true } };
    expr_id any = EXPR_NONE;

    for (size_t k = 0; k < ARRAY_LEN(all); k++) {
        bool has = s->kinds & all[k].kind, is_value = !s->has_enum;
        for (uint32_t j = 0; j < s->n_values && !is_value; j++)
            is_value = s->values[j]->kind == all[k].json &&
                       (all[k].json == JSON_NULL || s->values[j]->b == all[k].b);
        if ((has && is_value) != is_negated)
            any = expr_or(p->x, any, expr_literal(p->x, str_of(all[k].text)));
    }
    return any;
}

/* ---- literals */

static struct json_scalar own(struct json_program *p, const struct schema_node *s, bool is_negated)
{
    struct json_scalar r;

    r.part[PART_WORD] = words(p, s, is_negated);
    r.part[PART_NUMBER] = is_negated ? number_negative(p, s) : number_positive(p, s);
    r.part[PART_STRING] = is_negated ? string_negative(p, s) : string_positive(p, s);
    return r;
}

/* Values that satisfy the parity: exactly one member, or none or several. */
static struct json_scalar one_of(
    struct json_program *p, const struct schema_node *s, bool is_negated, unsigned depth)
{
    struct json_scalar zero = p->any, one = none, several = none;

    for (uint32_t k = 0; k < s->one_of.n; k++) {
        json_lit l = s->one_of.ids[k].i * 2;
        struct json_scalar yes = json_scalar_of(p, l, depth);
        struct json_scalar no = json_scalar_of(p, lit_not(l), depth);
        if (is_negated)
            several = either(p, several, both(p, one, yes));
        one = either(p, both(p, one, no), both(p, zero, yes));
        zero = both(p, zero, no);
    }
    return is_negated ? either(p, zero, several) : one;
}

/* Members of oneOf with different scalar values, so that at most one of them holds. */
static bool is_disjoint(struct json_program *p, const struct schema_node *s)
{
    uint8_t kinds = 0;
    struct str_map *seen = str_map_new(64);
    bool is_disjoint = seen != NULL;

    for (uint32_t k = 0; k < s->one_of.n && is_disjoint; k++) {
        const struct schema_node *m = json_node(p, s->one_of.ids[k].i);
        uint8_t own_kinds = m->kinds & (KIND_ANY & ~(KIND_ARRAY | KIND_OBJECT));
        if (m->has_enum) {
            own_kinds = 0;
            for (uint32_t j = 0; j < m->n_values && is_disjoint; j++) {
                bool is_string = m->values[j]->kind == JSON_STRING;
                is_disjoint = is_string && !(kinds & KIND_STRING) &&
                              str_map_put(seen, m->values[j]->s, 0) == 1;
            }
        }
        is_disjoint = is_disjoint && !(kinds & own_kinds) &&
                      !(own_kinds & KIND_STRING && str_map_count(seen));
        kinds |= own_kinds;
    }
    str_map_free(seen);
    return is_disjoint;
}

static struct json_scalar any_of(
    struct json_program *p, const struct node_list *l, unsigned sign, unsigned depth)
{
    struct json_scalar all = sign ? p->any : none;

    for (uint32_t k = 0; k < l->n; k++) {
        struct json_scalar one = json_scalar_of(p, l->ids[k].i * 2 + sign, depth);
        all = sign ? both(p, all, one) : either(p, all, one);
    }
    return all;
}

static struct json_scalar all_of(
    struct json_program *p, const struct node_list *l, unsigned sign, unsigned depth)
{
    struct json_scalar all = sign ? none : p->any;

    for (uint32_t k = 0; k < l->n; k++) {
        struct json_scalar one = json_scalar_of(p, l->ids[k].i * 2 + sign, depth);
        all = sign ? either(p, all, one) : both(p, all, one);
    }
    return all;
}

static struct json_scalar conditional(
    struct json_program *p, const struct schema_node *s, unsigned sign, unsigned depth)
{
    json_lit condition = s->if_of.i * 2;
    struct json_scalar yes = json_scalar_of(p, condition, depth);
    struct json_scalar no = json_scalar_of(p, lit_not(condition), depth);

    yes = both(p, yes, json_scalar_of(p, s->then_of.i * 2 + sign, depth));
    no = both(p, no, json_scalar_of(p, s->else_of.i * 2 + sign, depth));
    return either(p, yes, no);
}

static struct json_scalar compute(struct json_program *p, json_lit l, unsigned depth)
{
    const struct schema_node *s = json_node(p, l >> 1);
    unsigned sign = l & 1;
    struct json_scalar r = own(p, s, sign), parts[5];
    int n = 0;

    if (s->all_of.n)
        parts[n++] = all_of(p, &s->all_of, sign, depth);
    if (s->any_of.n)
        parts[n++] = any_of(p, &s->any_of, sign, depth);
    if (s->one_of.n)
        parts[n++] =
            is_disjoint(p, s) ? any_of(p, &s->one_of, sign, depth) : one_of(p, s, sign, depth);
    if (s->not_of.i != NODE_FALSE.i)
        parts[n++] = json_scalar_of(p, s->not_of.i * 2 + !sign, depth);
    if (s->has_if)
        parts[n++] = conditional(p, s, sign, depth);
    for (int k = 0; k < n; k++)
        r = sign ? either(p, r, parts[k]) : both(p, r, parts[k]);
    return r;
}

struct json_scalar json_scalar_of(struct json_program *p, json_lit l, unsigned depth)
{
    if (p->has_scalar[l] || p->is_failed)
        return p->is_failed ? none : p->scalars[l];
    if (depth > SCALAR_DEPTH_MAX) {
        json_fail(p, ERR_TOO_LARGE, "subschemas of one value are nested too deeply");
        return none;
    }
    struct json_scalar r = compute(p, l, depth + 1);
    p->scalars[l] = r;
    p->has_scalar[l] = true;
    return r;
}

expr_id json_scalar_text(struct json_program *p, const struct json_scalar *s)
{
    expr_id quote = expr_range(p->x, '"', '"'), parts[N_PARTS];

    parts[0] = s->part[PART_WORD];
    parts[1] = s->part[PART_NUMBER];
    parts[2] = expr_cat(p->x, quote, expr_cat(p->x, s->part[PART_STRING], quote));
    return expr_or_all(p->x, parts, N_PARTS);
}

bool json_expr_matches(struct json_program *p, expr_id a, struct str text)
{
    for (size_t k = 0; k < text.n && !expr_eq(a, EXPR_NONE); k++)
        a = expr_derive(p->x, a, (uint8_t)text.p[k]);
    return json_work(p, text.n) && expr_accepts(p->x, a);
}

/* Languages on the stack of json_count_words. */
struct counted {
    expr_id expr;
    uint32_t times; /* words that lead to it */
};

/* Sorts the newest entries, so that the language with the shortest word is on top. */
static void sort_counted(const struct json_program *p, struct counted *all, uint32_t n)
{
    for (uint32_t k = 1; k < n; k++) {
        struct counted moved = all[k];
        uint32_t at = k;
        for (; at && node_of(p->x, all[at - 1].expr)->min_len < node_of(p->x, moved.expr)->min_len;
             at--)
            all[at] = all[at - 1];
        all[at] = moved;
    }
}

uint32_t json_count_words(struct json_program *p, expr_id a, uint32_t max)
{
    enum { STACK_MAX = 2048, STEPS_MAX = 1000 };
    struct counted *stack = try_calloc(STACK_MAX, sizeof(*stack));
    uint32_t n = 0, count = 0, steps = 0;

    if (!stack) {
        json_fail(p, ERR_MEMORY, "no memory");
        return 0;
    }
    stack[n++] = (struct counted){ a, 1 };
    while (n && count <= max && json_work(p, 1)) {
        struct byte_partition parts;
        struct counted top = stack[--n];
        uint32_t from = n, sizes[256] = { 0 };
        count += expr_accepts(p->x, top.expr) ? top.times : 0;
        if (expr_eq(top.expr, EXPR_EPS))
            continue;
        expr_partition(p->x, top.expr, &parts);
        for (unsigned b = 0; b < 256; b++)
            sizes[parts.class_of[b]]++;
        for (uint32_t k = 0; k < parts.n && count <= max; k++) {
            expr_id next = expr_derive(p->x, top.expr, parts.first[k]);
            if (!expr_is_live(p->x, next))
                continue;
            if (n == STACK_MAX || ++steps > STEPS_MAX)
                count = max + 1;
            else
                stack[n++] = (struct counted){ next, MIN(top.times * sizes[k], max + 1) };
        }
        sort_counted(p, stack + from, n - from);
    }
    mem_free(stack);
    return count;
}

/* Each value has one of these texts: numbers without exponent and trailing zeros, strings with
 * short escapes. */
static expr_id canonical_texts(struct json_program *p)
{
    struct byte_set digits = { 0 }, nonzero = { 0 };
    struct json_scalar all = p->any;

    byte_set_add_range(&digits, '0', '9');
    byte_set_add_range(&nonzero, '1', '9');
    expr_id digit = expr_bytes(p->x, &digits), high = expr_bytes(p->x, &nonzero);
    expr_id zero = expr_range(p->x, '0', '0'), minus = expr_range(p->x, '-', '-');
    expr_id any = expr_repeat(p->x, digit, 0, REPEAT_INF);
    expr_id fraction = expr_cat(p->x, expr_range(p->x, '.', '.'), expr_cat(p->x, any, high));
    expr_id large = expr_cat(p->x, high, any);
    expr_id with_point = expr_cat(p->x, expr_or(p->x, zero, large), fraction);
    expr_id positive = expr_or(p->x, large, with_point);
    all.part[PART_NUMBER] =
        expr_or(p->x, zero, expr_cat(p->x, expr_or(p->x, minus, EXPR_EPS), positive));
    all.part[PART_STRING] = p->key_text;
    return json_scalar_text(p, &all);
}

void json_scalar_init(struct json_program *p)
{
    static const struct schema_node all = { .kinds = KIND_ANY };
    static const struct number_range any = { 0 };
    struct byte_set plain = { 0 }, escaped = { 0 };

    p->any.part[PART_STRING] = text_any_star(p->x, TEXT_JSON_U_ESCAPE);
    p->any.part[PART_NUMBER] = number_texts(p, &all, &any, true);
    p->any.part[PART_WORD] = words(p, &all, false);
    /* Keys have one spelling: no `\/`. */
    byte_set_add_range(&plain, 0, 255);
    plain.w['\\' >> 6] &= ~((uint64_t)1 << ('\\' & 63));
    byte_set_add_range(&escaped, 0, 255);
    escaped.w['/' >> 6] &= ~((uint64_t)1 << ('/' & 63));
    expr_id pair = expr_cat(p->x, expr_range(p->x, '\\', '\\'), expr_bytes(p->x, &escaped));
    expr_id pairs = expr_repeat(p->x, expr_or(p->x, expr_bytes(p->x, &plain), pair), 0, REPEAT_INF);
    expr_id quote = expr_range(p->x, '"', '"');
    p->key_text = expr_and(p->x, text_any_star(p->x, TEXT_JSON), pairs);
    p->any_key = expr_cat(p->x, quote, expr_cat(p->x, p->key_text, quote));
    if (p->has_unique)
        p->canonical = canonical_texts(p);
}
