#include "base/json.h"
#include "base/json_scan.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>

/* json.c: one loop without recursion or stack: an open container stores its parent in `next`, which
 * is needed for a sibling only after the container is closed. */

const struct json_limits json_limits_default = { .max_depth = 128, .max_nodes = 4000000 };

enum { BLOCK_FIRST = 8, BLOCK_MAX = 256 }; /* nodes allocated from the arena at a time */

struct json_parser {
    const char *start, *at, *end;
    struct arena *arena;
    const struct json_limits *limits;
    struct err *e;
    struct json *root, *open, *last; /* innermost open container and its newest child */
    uint32_t depth, n_nodes;
    struct json *spare; /* allocated nodes not yet used */
    uint32_t n_spare, block;
};

static int fail_at(struct json_parser *p, const char *at, enum errcode code, const char *what)
{
    unsigned long line = 1, column = 1;

    for (const char *c = p->start; c < at; c++) {
        column += (*c & 0xC0) != 0x80; /* counts characters, not bytes */
        if (*c == '\n') {
            line++;
            column = 1;
        }
    }
    return err_set(p->e, code, "line %lu, column %lu: %s", line, column, what);
}

static int fail(struct json_parser *p, const char *what)
{
    return fail_at(p, p->at, ERR_SYNTAX, what);
}

static void skip_blanks(struct json_parser *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\n' || *p->at == '\r' || *p->at == '\t'))
        p->at++;
}

static struct json *node_new(struct json_parser *p)
{
    if (p->n_nodes >= p->limits->max_nodes) {
        fail_at(p, p->at, ERR_TOO_LARGE, "too many values");
        return NULL;
    }
    if (!p->n_spare) {
        p->block = p->block ? MIN(p->block * 2, (uint32_t)BLOCK_MAX) : (uint32_t)BLOCK_FIRST;
        p->spare = arena_zalloc(p->arena, p->block, sizeof(*p->spare));
        if (!p->spare) {
            err_set(p->e, ERR_MEMORY, "no memory for a JSON text");
            return NULL;
        }
        p->n_spare = p->block;
    }
    p->n_nodes++;
    p->n_spare--;
    return p->spare++;
}

/* ---- strings */

static int hex4(const char *p, uint32_t *out)
{
    uint32_t v = 0;

    for (int i = 0; i < 4; i++) {
        int digit = json_hex(p[i]);
        if (digit < 0)
            return -1;
        v = v << 4 | (uint32_t)digit;
    }
    *out = v;
    return 0;
}

/* At the 'u' of an escape. Sets *cp and moves past the escape, or past both escapes of a surrogate
 * pair. */
static int unicode_escape(struct json_parser *p, uint32_t *cp)
{
    uint32_t lo;

    if (p->end - p->at < 5 || hex4(p->at + 1, cp))
        return fail(p, "\\u needs four hexadecimal digits");
    if (*cp >= 0xDC00 && *cp <= 0xDFFF)
        return fail(p, "second half of a surrogate pair without a first");
    if (*cp >= 0xD800 && *cp <= 0xDBFF) {
        if (p->end - p->at < 11 || p->at[5] != '\\' || p->at[6] != 'u' || hex4(p->at + 7, &lo) ||
            lo < 0xDC00 || lo > 0xDFFF)
            return fail(p, "first half of a surrogate pair without a second");
        *cp = 0x10000 + ((*cp - 0xD800) << 10) + (lo - 0xDC00);
        p->at += 6;
    }
    p->at += 5;
    return 0;
}

/* After a backslash; writes the escaped character to *to. */
static int parse_escape(struct json_parser *p, char **to)
{
    uint32_t cp = 0;

    if (p->at == p->end)
        return fail(p, "the text ends inside a string");
    char c = json_escape_of(*p->at);
    if (c) {
        *(*to)++ = c;
        p->at++;
        return 0;
    }
    if (*p->at != 'u')
        return fail(p, "unknown escape");
    if (unicode_escape(p, &cp))
        return -1;
    *to += utf8_encode(cp, *to);
    return 0;
}

/* Moves over plain bytes and whole characters; stops at a quote or backslash. */
static int skip_plain(struct json_parser *p)
{
    uint32_t cp;

    for (;;) {
        p->at = json_scan_plain(p->at, p->end);
        if (p->at == p->end)
            return fail(p, "the text ends inside a string");
        if (*p->at == '"' || *p->at == '\\')
            return 0;
        if ((unsigned char)*p->at < 0x20)
            return fail(p, "control character in a string");
        int n = utf8_decode((struct str){ p->at, (size_t)(p->end - p->at) }, &cp);
        if (n <= 0)
            return fail(p, "invalid UTF-8");
        p->at += n;
    }
}

/* Finds the closing quote, with regard to backslashes only: an upper bound for the copy. */
static const char *string_end(const char *at, const char *end)
{
    for (; at < end && *at != '"'; at++)
        if (*at == '\\' && at + 1 < end)
            at++;
    return at;
}

static int string_with_escapes(struct json_parser *p, const char *from, struct str *out)
{
    enum { ESCAPE_MAX = 4 }; /* bytes that one escape yields */
    size_t most = (size_t)(string_end(p->at, p->end) - from);
    char *text = arena_alloc(p->arena, most + ESCAPE_MAX);
    if (!text)
        return err_set(p->e, ERR_MEMORY, "no memory for a JSON text");
    size_t n = (size_t)(p->at - from);
    char *to = text;

    memcpy(to, from, n);
    to += n;
    while (*p->at == '\\') {
        p->at++;
        if (parse_escape(p, &to))
            return -1;
        from = p->at;
        if (skip_plain(p))
            return -1;
        n = (size_t)(p->at - from);
        if ((size_t)(to - text) > most || n > most - (size_t)(to - text))
            return err_set(p->e, ERR_CORRUPT, "the JSON text changed while it was read");
        memcpy(to, from, n);
        to += n;
    }
    *out = (struct str){ text, (size_t)(to - text) };
    return 0;
}

/* At the opening quote; moves past the closing one. */
static int parse_string(struct json_parser *p, struct str *out)
{
    const char *from = ++p->at;

    if (skip_plain(p))
        return -1;
    if (*p->at == '"')
        *out = (struct str){ from, (size_t)(p->at - from) };
    else if (string_with_escapes(p, from, out))
        return -1;
    p->at++;
    return 0;
}

/* ---- numbers and literals */

static bool skip_digits(struct json_parser *p)
{
    const char *from = p->at;

    while (p->at < p->end && *p->at >= '0' && *p->at <= '9')
        p->at++;
    return p->at > from;
}

static int parse_number(struct json_parser *p, struct json *j)
{
    const char *from = p->at;

    if (*p->at == '-')
        p->at++;
    const char *first = p->at;
    if (!skip_digits(p))
        return fail(p, "a digit of a number was expected");
    if (*first == '0' && p->at - first > 1)
        return fail_at(p, first, ERR_SYNTAX, "a number may not begin with 0");
    j->is_int = true;
    if (p->at < p->end && *p->at == '.') {
        j->is_int = false;
        p->at++;
        if (!skip_digits(p))
            return fail(p, "a number needs a digit after its point");
    }
    if (p->at < p->end && (*p->at | 0x20) == 'e') {
        j->is_int = false;
        p->at++;
        if (p->at < p->end && (*p->at == '+' || *p->at == '-'))
            p->at++;
        if (!skip_digits(p))
            return fail(p, "an exponent needs a digit");
    }
    j->kind = JSON_NUMBER;
    j->s = (struct str){ from, (size_t)(p->at - from) };
    return 0;
}

static int parse_literal(struct json_parser *p, struct json *j)
{
    struct str rest = { p->at, (size_t)(p->end - p->at) };

    if (str_starts(rest, STR("true"))) {
        j->kind = JSON_BOOL;
        j->b = true;
        p->at += 4;
    } else if (str_starts(rest, STR("false"))) {
        j->kind = JSON_BOOL;
        p->at += 5;
    } else if (str_starts(rest, STR("null"))) {
        j->kind = JSON_NULL;
        p->at += 4;
    } else {
        return fail(p, "a value was expected");
    }
    return 0;
}

/* Reads Infinity, -Infinity or NaN as a string; false: another value. */
static bool parse_infinity(struct json_parser *p, struct json *j)
{
    static const char *const names[] = { "Infinity", "-Infinity", "NaN" };
    struct str rest = { p->at, (size_t)(p->end - p->at) };

    for (size_t i = 0; p->limits->has_infinity && i < ARRAY_LEN(names); i++)
        if (str_starts(rest, str_of(names[i]))) {
            j->kind = JSON_STRING;
            j->s = (struct str){ p->at, strlen(names[i]) };
            p->at += j->s.n;
            return true;
        }
    return false;
}

/* ---- structure */

static void append(struct json_parser *p, struct json *j)
{
    if (!p->open)
        p->root = j;
    else if (p->last)
        p->last->next = j;
    else
        p->open->child = j;
    if (p->open)
        p->open->n++;
    p->last = j;
}

static int open_container(struct json_parser *p, struct json *j, enum json_kind kind)
{
    if (p->depth >= p->limits->max_depth)
        return fail_at(p, p->at, ERR_TOO_LARGE, "nested too deeply");
    p->depth++;
    j->kind = kind;
    j->next = p->open; /* parent, until it is closed */
    p->open = j;
    p->last = NULL;
    p->at++;
    return 0;
}

static void close_container(struct json_parser *p)
{
    struct json *j = p->open;

    p->at++;
    p->depth--;
    p->open = j->next;
    p->last = j;
    j->next = NULL;
    j->raw.n = (size_t)(p->at - j->raw.p);
}

static int parse_member_key(struct json_parser *p, struct str *key)
{
    skip_blanks(p);
    if (p->at == p->end || *p->at != '"')
        return fail(p, "a member name in quotes was expected");
    if (parse_string(p, key))
        return -1;
    skip_blanks(p);
    if (p->at == p->end || *p->at != ':')
        return fail(p, "':' was expected");
    p->at++;
    return 0;
}

static int parse_value(struct json_parser *p)
{
    struct str key = STR_NONE;
    int rc = 0;

    if (p->open && p->open->kind == JSON_OBJECT && parse_member_key(p, &key))
        return -1;
    skip_blanks(p);
    if (p->at == p->end)
        return fail(p, "the text ends where a value was expected");
    struct json *j = node_new(p);
    if (!j)
        return -1;
    j->key = key;
    j->raw.p = p->at;
    append(p, j);
    switch (*p->at) {
    case '{':
        return open_container(p, j, JSON_OBJECT);
    case '[':
        return open_container(p, j, JSON_ARRAY);
    case '"':
        j->kind = JSON_STRING;
        rc = parse_string(p, &j->s);
        break;
    default:
        if (parse_infinity(p, j))
            break;
        rc = *p->at == '-' || (*p->at >= '0' && *p->at <= '9') ? parse_number(p, j)
                                                               : parse_literal(p, j);
    }
    j->raw.n = (size_t)(p->at - j->raw.p);
    return rc;
}

/* After a value: 1 = another value follows, 0 = the text is complete. */
static int after_value(struct json_parser *p)
{
    for (;;) {
        skip_blanks(p);
        if (!p->open)
            return p->at == p->end ? 0 : fail(p, "something follows the value");
        bool is_array = p->open->kind == JSON_ARRAY;
        if (p->at == p->end)
            return fail(
                p, is_array ? "the text ends inside an array" : "the text ends inside an object");
        if (*p->at == (is_array ? ']' : '}')) {
            close_container(p);
            continue;
        }
        if (!p->last)
            return 1; /* just opened: the first value */
        if (*p->at != ',')
            return fail(p, is_array ? "',' or ']' was expected" : "',' or '}' was expected");
        p->at++;
        return 1;
    }
}

int json_parse(
    struct json **out, struct str text, struct arena *a, const struct json_limits *l, struct err *e)
{
    struct json_parser p = { .start = text.p,
        .at = text.p,
        .end = text.n ? text.p + text.n : text.p,
        .arena = a,
        .limits = l ? l : &json_limits_default,
        .e = e };
    int more = 1;

    while (more > 0)
        more = parse_value(&p) ? -1 : after_value(&p);
    if (more < 0)
        return -1;
    *out = p.root;
    return 0;
}

/* ---- copies */

struct copier {
    struct arena *arena;
    struct str from, to; /* source text of the root, and its copy */
};

static bool is_inside(struct str s, struct str text)
{
    uintptr_t at = (uintptr_t)s.p, begin = (uintptr_t)text.p;

    return text.p && at >= begin && at - begin <= text.n && s.n <= text.n - (at - begin);
}

static struct str move_text(const struct copier *c, struct str s)
{
    return (struct str){ c->to.p + (s.p - c->from.p), s.n };
}

static int copy_text(struct copier *c, struct str *s)
{
    if (!s->p)
        return 0;
    *s = is_inside(*s, c->from) ? move_text(c, *s) : arena_str(c->arena, *s);
    return s->p ? 0 : -1;
}

/* Recursion depth is that of the tree, which the parser has bounded. */
static struct json *copy_tree(struct copier *c, const struct json *j)
{
    struct json *copy = arena_alloc(c->arena, sizeof(*copy));

    if (!copy)
        return NULL;
    *copy = *j;
    copy->raw = is_inside(j->raw, c->from) ? move_text(c, j->raw) : STR_NONE;
    copy->next = NULL;
    if (copy_text(c, &copy->s) || copy_text(c, &copy->key))
        return NULL;
    struct json **tail = &copy->child;
    for (const struct json *m = j->child; m; m = m->next, tail = &(*tail)->next)
        if (!(*tail = copy_tree(c, m)))
            return NULL;
    return copy;
}

struct json *json_copy(const struct json *j, struct arena *a)
{
    struct copier c = { a, j->raw, STR_NONE };

    if (j->raw.p)
        c.to = arena_str(a, j->raw);
    return j->raw.p && !c.to.p ? NULL : copy_tree(&c, j);
}

/* ---- access to a tree */

const struct json *json_get(const struct json *object, const char *key)
{
    const struct json *found = NULL;
    struct str want = str_of(key);

    if (!object || object->kind != JSON_OBJECT)
        return NULL;
    for (const struct json *m = object->child; m; m = m->next)
        if (str_eq(m->key, want))
            found = m;
    return found;
}

static bool multiply_add10(uint64_t *v, uint64_t plus)
{
    return !__builtin_mul_overflow(*v, 10u, v) && !__builtin_add_overflow(*v, plus, v);
}

/* Decomposes a decimal: value = v * 10^e10. False if v has more than 64 bits. */
static bool decimal_parts(struct str s, uint64_t *v, int64_t *e10)
{
    /* decimal shifts that are not yet applied to v */
    int64_t zeros = 0, exponent = 0;
    bool in_fraction = false;
    size_t i = 0;

    *v = 0;
    *e10 = 0;
    for (; i < s.n && (s.p[i] | 0x20) != 'e'; i++) {
        char c = s.p[i];
        if (c == '-')
            continue;
        if (c == '.') {
            in_fraction = true;
            continue;
        }
        *e10 -= in_fraction;
        zeros++;
        if (c == '0')
            continue;
        for (; zeros > 1 && *v; zeros--)
            if (!multiply_add10(v, 0))
                return false;
        if (!multiply_add10(v, (uint64_t)(c - '0')))
            return false;
        zeros = 0;
    }
    bool is_negative = false;
    for (i++; i < s.n; i++) {
        if (s.p[i] == '-')
            is_negative = true;
        else if (s.p[i] != '+' && exponent < 1000000000)
            exponent = exponent * 10 + (s.p[i] - '0');
    }
    *e10 += zeros + (is_negative ? -exponent : exponent);
    return true;
}

bool json_i64(const struct json *j, int64_t *out)
{
    uint64_t v;
    int64_t e10;

    if (!j || j->kind != JSON_NUMBER)
        return false;
    if (j->is_int)
        return str_to_i64(j->s, out);
    if (!decimal_parts(j->s, &v, &e10))
        return false;
    if (v && (e10 < 0 || e10 > 18))
        return false;
    for (; v && e10 > 0; e10--)
        if (!multiply_add10(&v, 0))
            return false;
    bool is_negative = j->s.p[0] == '-';
    if (v > (uint64_t)INT64_MAX + is_negative)
        return false;
    *out = is_negative ? (int64_t)(0 - v) : (int64_t)v;
    return true;
}

/* strtod with the C locale: the embedding program may have set a locale with another decimal
 * point. */
static bool slow_f64(struct str s, double *out)
{
    char z[1024]; /* a double needs at most 767 digits */
    char *end;

    if (s.n >= sizeof(z))
        return false;
    memcpy(z, s.p, s.n);
    z[s.n] = '\0';
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!c)
        return false;
    *out = strtod_l(z, &end, c);
    freelocale(c);
    return end == z + s.n && isfinite(*out);
}

bool json_f64(const struct json *j, double *out)
{
    static const double pow10[] = { 1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
        1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22 };
    uint64_t v;
    int64_t e10;

    if (!j || j->kind != JSON_NUMBER)
        return false;
    /* Both factors are exact in a double, so there is one correct rounding (Clinger, PLDI 1990). */
    if (decimal_parts(j->s, &v, &e10) && v <= (uint64_t)1 << 53 && e10 >= -22 && e10 <= 22) {
        double d = e10 < 0 ? (double)v / pow10[-e10] : (double)v * pow10[e10];
        *out = j->s.p[0] == '-' ? -d : d;
        return true;
    }
    double d;
    if (!slow_f64(j->s, &d))
        return false;
    *out = d;
    return true;
}

static bool numbers_equal(const struct json *a, const struct json *b)
{
    int64_t i, k;
    double x, y;

    if (str_eq(a->s, b->s))
        return true;
    bool a_whole = json_i64(a, &i), b_whole = json_i64(b, &k);
    if (a_whole || b_whole)
        return a_whole && b_whole && i == k;
    if (a->is_int && b->is_int)
        return false; /* more than 64 bits: equal integers have equal text */
    return json_f64(a, &x) && json_f64(b, &y) && x == y;
}

static int compare_keys(const void *pa, const void *pb)
{
    const struct json *a = *(const struct json *const *)pa, *b = *(const struct json *const *)pb;
    size_t n = MIN(a->key.n, b->key.n);
    int c = n ? memcmp(a->key.p, b->key.p, n) : 0;

    if (c)
        return c;
    if (a->key.n != b->key.n)
        return a->key.n < b->key.n ? -1 : 1;
    /* order of the source text: the last one counts */
    return a->raw.p < b->raw.p ? -1 : a->raw.p > b->raw.p;
}

/* Members sorted by key; of equal keys only the last. NULL: out of memory. */
static const struct json **sorted_members(const struct json *o, size_t *n)
{
    const struct json **m = try_malloc(sizeof(*m) * MAX(o->n, 1u));
    size_t k = 0, kept = 0;

    if (!m)
        return NULL;
    for (const struct json *c = o->child; c; c = c->next)
        m[k++] = c;
    qsort(m, k, sizeof(*m), compare_keys);
    for (size_t i = 0; i < k; i++)
        if (i + 1 == k || !str_eq(m[i]->key, m[i + 1]->key))
            m[kept++] = m[i];
    *n = kept;
    return m;
}

static bool objects_equal(const struct json *a, const struct json *b)
{
    size_t n_a = 0, n_b = 0;
    const struct json **ma = sorted_members(a, &n_a), **mb = sorted_members(b, &n_b);
    bool same = ma && mb && n_a == n_b;

    for (size_t i = 0; same && i < n_a; i++)
        same = str_eq(ma[i]->key, mb[i]->key) && json_equal(ma[i], mb[i]);
    mem_free(ma);
    mem_free(mb);
    return same;
}

/* Recursion depth is that of the tree, which the parser has bounded. */
bool json_equal(const struct json *a, const struct json *b)
{
    if (!a || !b || a->kind != b->kind)
        return a == b;
    switch (a->kind) {
    case JSON_NULL:
        return true;
    case JSON_BOOL:
        return a->b == b->b;
    case JSON_NUMBER:
        return numbers_equal(a, b);
    case JSON_STRING:
        return str_eq(a->s, b->s);
    case JSON_OBJECT:
        return objects_equal(a, b);
    case JSON_ARRAY:
        break;
    }
    const struct json *x = a->child, *y = b->child;
    while (x && y && json_equal(x, y)) {
        x = x->next;
        y = y->next;
    }
    return !x && !y;
}
