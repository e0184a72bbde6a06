/* print.c: text of values: str() for output, repr() inside lists and dicts, json.dumps() for
 * tojson. Quotes and escapes have the origin of the text they represent, brackets that of their
 * container. Owner: the thread that renders. */
#include "jinja/value.h"
#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

static int put_z(struct rt *rt, struct blob *out, const char *z, bool trusted)
{
    return blob_put(rt, out, str_of(z), trusted);
}

/* The shortest digits that read back as f, as 0.d1d2d3... * 10^*exp10. */
static int shortest_digits(double f, char digits[24], int *exp10)
{
    char form[40];

    /* 15 digits are always exact, and trailing zeros are dropped below; numbers near zero have
     * fewer digits. */
    for (int precision = f < 1e-300 ? 0 : 14; precision <= 16; precision++) {
        snprintf(form, sizeof(form), "%.*e", precision, f);
        if (precision == 16 || strtod(form, NULL) == f)
            break;
    }
    int n = 0;
    const char *p = form;
    for (; *p && *p != 'e'; p++)
        if (*p >= '0' && *p <= '9')
            digits[n++] = *p;
    *exp10 = (int)strtol(p + 1, NULL, 10) + 1;
    while (n > 1 && digits[n - 1] == '0')
        n--;
    return n;
}

size_t float_text(double f, char out[40])
{
    char digits[24];
    char *p = out;
    int exp10;

    if (isnan(f) || isinf(f))
        return (size_t)snprintf(out, 40, "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
    if (signbit(f))
        *p++ = '-';
    f = fabs(f);
    int n = shortest_digits(f, digits, &exp10);
    if (f == 0)
        exp10 = 1;
    if (exp10 > 16 || exp10 < -3) {
        *p++ = digits[0];
        if (n > 1) {
            *p++ = '.';
            memcpy(p, digits + 1, (size_t)n - 1);
            p += n - 1;
        }
        p += snprintf(p, 8, "e%c%02d", exp10 < 1 ? '-' : '+', abs(exp10 - 1));
        return (size_t)(p - out);
    }
    if (exp10 <= 0) {
        *p++ = '0';
        *p++ = '.';
        for (int i = exp10; i < 0; i++)
            *p++ = '0';
    }
    for (int i = 0; i < MAX(n, exp10); i++) {
        if (i == exp10 && exp10 > 0)
            *p++ = '.';
        *p++ = i < n ? digits[i] : '0';
    }
    if (n <= exp10) {
        *p++ = '.';
        *p++ = '0';
    }
    return (size_t)(p - out);
}

/* ---- repr() of a string */

static bool is_printable(uint32_t cp)
{
    if (cp < 0x7F)
        return cp >= 0x20;
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    default:
        return true;
    }
}

static size_t repr_escape(uint32_t cp, char quote, char out[12])
{
    if (cp == (uint32_t)quote || cp == '\\')
        return (size_t)snprintf(out, 12, "\\%c", (char)cp);
    if (cp == '\n' || cp == '\r' || cp == '\t')
        return (size_t)snprintf(out, 12, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
    if (is_printable(cp))
        return 0;
    if (cp < 0x100)
        return (size_t)snprintf(out, 12, "\\x%02x", cp);
    return (size_t)snprintf(out, 12, cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
}

static size_t json_escape_char(uint32_t cp, bool ascii, char out[16])
{
    static const char names[] = { ['\b'] = 'b',
        ['\f'] = 'f',
        ['\n'] = 'n',
        ['\r'] = 'r',
        ['\t'] = 't',
        ['"'] = '"',
        ['\\'] = '\\' };

    if (cp < sizeof(names) && names[cp])
        return (size_t)snprintf(out, 16, "\\%c", names[cp]);
    if (cp >= 0x20 && (cp < 0x7F || !ascii))
        return 0;
    if (cp < 0x10000)
        return (size_t)snprintf(out, 16, "\\u%04x", cp);
    return (size_t)snprintf(out, 16, "\\u%04x\\u%04x", 0xD7C0 + (cp >> 10), 0xDC00 + (cp & 0x3FF));
}

/* Copies t with escapes. quote: repr with that quote; 0: JSON. */
static int put_escaped(
    struct rt *rt, const struct text *t, char quote, bool ascii, struct blob *out)
{
    char escape[16];
    size_t plain = 0; /* bytes from here to i need no escapes */

    if (rt_spend(rt, t->n / 8))
        return -1;
    for (size_t i = 0, len; i < t->n; i += len) {
        uint32_t cp;
        len = char_len((struct str){ t->p + i, t->n - i }, &cp);
        size_t n = quote ? repr_escape(cp, quote, escape) : json_escape_char(cp, ascii, escape);
        if (!n)
            continue;
        if (blob_put_part(rt, out, t, plain, i - plain) ||
            blob_put(rt, out, (struct str){ escape, n }, text_trusted_at(t, i)))
            return -1;
        plain = i + len;
    }
    return blob_put_part(rt, out, t, plain, t->n - plain);
}

static int put_quoted(struct rt *rt, const struct text *t, char quote, bool ascii, struct blob *out)
{
    char q[2] = { quote ? quote : '"', '\0' };
    bool first = t->n ? text_trusted_at(t, 0) : t->trusted;
    bool last = t->n ? text_trusted_at(t, t->n - 1) : t->trusted;

    return put_z(rt, out, q, first) || put_escaped(rt, t, quote, ascii, out) ||
                   put_z(rt, out, q, last)
               ? -1
               : 0;
}

static int repr_str(struct rt *rt, const struct text *t, struct blob *out)
{
    bool has_single = t->n && memchr(t->p, '\'', t->n);
    bool has_double = t->n && memchr(t->p, '"', t->n);

    return put_quoted(rt, t, has_single && !has_double ? '"' : '\'', false, out);
}

/* ---- str() and repr() */

static int print_list(
    struct rt *rt, const struct val_list *l, const char *open, const char *close, struct blob *out)
{
    if (put_z(rt, out, open, l->trusted))
        return -1;
    for (size_t i = 0; i < l->n; i++)
        if ((i && put_z(rt, out, ", ", l->trusted)) || val_repr(rt, l->v[i], out))
            return -1;
    if (l->n == 1 && *open == '(' && put_z(rt, out, ",", l->trusted))
        return -1;
    return put_z(rt, out, close, l->trusted);
}

static int print_dict(struct rt *rt, const struct dict *d, struct blob *out)
{
    if (put_z(rt, out, "{", d->trusted))
        return -1;
    for (size_t i = 0; i < d->n; i++)
        if ((i && put_z(rt, out, ", ", d->trusted)) || val_repr(rt, d->e[i].key, out) ||
            put_z(rt, out, ": ", d->trusted) || val_repr(rt, d->e[i].value, out))
            return -1;
    return put_z(rt, out, "}", d->trusted);
}

static int print_scalar(struct rt *rt, struct val v, struct blob *out)
{
    char number[40];

    switch (v.type) {
    case T_NONE:
        return put_z(rt, out, "None", v.trusted);
    case T_BOOL:
        return put_z(rt, out, v.u.b ? "True" : "False", v.trusted);
    case T_INT:
        snprintf(number, sizeof(number), "%lld", (long long)v.u.i);
        return put_z(rt, out, number, v.trusted);
    case T_FLOAT:
        return blob_put(rt, out, (struct str){ number, float_text(v.u.f, number) }, v.trusted);
    default:
        return 0;
    }
}

int val_repr(struct rt *rt, struct val v, struct blob *out)
{
    int rc;

    if (rt_enter(rt))
        return -1;
    switch (v.type) {
    case T_STR:
        rc = repr_str(rt, v.u.s, out);
        break;
    case T_UNDEFINED:
        rc = put_z(rt, out, "Undefined", true);
        break;
    default:
        rc = val_print(rt, v, out);
    }
    rt_leave(rt);
    return rc;
}

int val_print(struct rt *rt, struct val v, struct blob *out)
{
    switch (v.type) {
    case T_MISSING:
    case T_UNDEFINED:
        return 0;
    case T_STR:
    case T_BIG:
        return blob_put_text(rt, out, v.u.s);
    case T_NONE:
    case T_BOOL:
    case T_INT:
    case T_FLOAT:
        return print_scalar(rt, v, out);
    case T_LIST:
        return print_list(rt, v.u.list, "[", "]", out);
    case T_TUPLE:
        return print_list(rt, v.u.list, "(", ")", out);
    case T_VIEW:
        return print_list(rt, v.u.list, "dict_view([", "])", out);
    case T_DICT:
        return print_dict(rt, v.u.dict, out);
    default:
        return rt_fail(rt, "a %s cannot be printed", type_name(v));
    }
}

int val_text(struct rt *rt, struct val v, struct text **out)
{
    struct blob *b;

    if (v.type == T_STR) {
        *out = v.u.s;
        return 0;
    }
    return !(b = blob_new(rt)) || val_print(rt, v, b) || !(*out = blob_text(rt, b)) ? -1 : 0;
}

/* ---- json.dumps() */

static int new_line(
    struct rt *rt, const struct json_style *s, int level, bool trusted, struct blob *out)
{
    if (!s->indent)
        return 0;
    if (put_z(rt, out, "\n", trusted))
        return -1;
    for (int i = 0; i < level; i++)
        if (blob_put_text(rt, out, s->indent))
            return -1;
    return 0;
}

static int dump(
    struct rt *rt, struct val v, const struct json_style *s, int level, struct blob *out);

static int dump_list(struct rt *rt, const struct val_list *l, const struct json_style *s, int level,
    struct blob *out)
{
    if (!l->n)
        return put_z(rt, out, "[]", l->trusted);
    if (put_z(rt, out, "[", l->trusted))
        return -1;
    for (size_t i = 0; i < l->n; i++)
        if ((i && blob_put(rt, out, text_str(s->item), l->trusted)) ||
            new_line(rt, s, level + 1, l->trusted, out) || dump(rt, l->v[i], s, level + 1, out))
            return -1;
    return new_line(rt, s, level, l->trusted, out) || put_z(rt, out, "]", l->trusted) ? -1 : 0;
}

static int dump_key(struct rt *rt, struct val key, const struct json_style *s, struct blob *out)
{
    struct text *t;

    if (key.type == T_NONE || key.type == T_BOOL) {
        const char *z = key.type == T_NONE ? "\"null\"" : key.u.b ? "\"true\"" : "\"false\"";
        return put_z(rt, out, z, key.trusted);
    }
    if (key.type != T_STR && key.type != T_INT && key.type != T_FLOAT && key.type != T_BIG)
        return rt_fail(rt, "a JSON key cannot be a %s", type_name(key));
    return val_text(rt, key, &t) || put_quoted(rt, t, 0, s->ascii, out) ? -1 : 0;
}

/* Entry numbers in key order; insertion sort whose comparisons consume steps. */
static int sorted_entries(struct rt *rt, const struct dict *d, uint32_t **out)
{
    uint32_t *at = rt_alloc(rt, d->n * sizeof(*at));

    if (!at)
        return -1;
    for (uint32_t i = 0; i < d->n; i++) {
        uint32_t k = i;
        for (; k > 0; k--) {
            int order;
            if (rt_spend(rt, 1) || val_order(rt, d->e[at[k - 1]].key, d->e[i].key, &order))
                return -1;
            if (order <= 0)
                break;
            at[k] = at[k - 1];
        }
        at[k] = i;
    }
    *out = at;
    return 0;
}

static int dump_dict(
    struct rt *rt, const struct dict *d, const struct json_style *s, int level, struct blob *out)
{
    uint32_t *order = NULL;

    if (!d->n)
        return put_z(rt, out, "{}", d->trusted);
    if (put_z(rt, out, "{", d->trusted) || (s->sort_keys && sorted_entries(rt, d, &order)))
        return -1;
    for (size_t i = 0; i < d->n; i++) {
        const struct dict_entry *e = &d->e[order ? order[i] : i];
        if ((i && blob_put(rt, out, text_str(s->item), d->trusted)) ||
            new_line(rt, s, level + 1, d->trusted, out) || dump_key(rt, e->key, s, out) ||
            blob_put(rt, out, text_str(s->key), d->trusted) ||
            dump(rt, e->value, s, level + 1, out))
            return -1;
    }
    return new_line(rt, s, level, d->trusted, out) || put_z(rt, out, "}", d->trusted) ? -1 : 0;
}

static int dump_scalar(struct rt *rt, struct val v, struct blob *out)
{
    switch (v.type) {
    case T_NONE:
        return put_z(rt, out, "null", v.trusted);
    case T_BOOL:
        return put_z(rt, out, v.u.b ? "true" : "false", v.trusted);
    case T_FLOAT:
        if (isnan(v.u.f))
            return put_z(rt, out, "NaN", v.trusted);
        if (isinf(v.u.f))
            return put_z(rt, out, v.u.f < 0 ? "-Infinity" : "Infinity", v.trusted);
        return val_print(rt, v, out);
    case T_INT:
    case T_BIG:
        return val_print(rt, v, out);
    default:
        return rt_fail(rt, "a %s is not JSON serializable", type_name(v));
    }
}

static int dump(
    struct rt *rt, struct val v, const struct json_style *s, int level, struct blob *out)
{
    int rc;

    if (rt_enter(rt))
        return -1;
    switch (v.type) {
    case T_STR:
        rc = put_quoted(rt, v.u.s, 0, s->ascii, out);
        break;
    case T_LIST:
    case T_TUPLE:
        rc = dump_list(rt, v.u.list, s, level, out);
        break;
    case T_DICT:
        rc = dump_dict(rt, v.u.dict, s, level, out);
        break;
    default:
        rc = dump_scalar(rt, v, out);
    }
    rt_leave(rt);
    return rc;
}

int val_dump(struct rt *rt, struct val v, const struct json_style *s, struct blob *out)
{
    return dump(rt, v, s, 0, out);
}
