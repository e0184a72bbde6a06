/* format.c: "%s: %d" % values and "{} {name}".format(values), the subset that templates use.
 *
 * %: conversions s r d i f e g x o c with flags, width and precision. format(): fields by position
 * and name, with .member and [item], !s and !r, and the specification
 * [[fill]align][0][width][,][.precision][type] for strings and numbers. Owner: the thread that
 * renders. */
#include "jinja/call.h"

#include <math.h>
#include <stdio.h>

enum { WIDTH_MAX = 1000 };

struct format_spec {
    char fill, align, sign, type;
    bool alternate, comma, has_precision;
    int width, precision;
};

static size_t take_number(struct str s, size_t at, int *out)
{
    *out = 0;
    for (; at < s.n && s.p[at] >= '0' && s.p[at] <= '9'; at++)
        *out = MIN(*out * 10 + (s.p[at] - '0'), WIDTH_MAX + 1);
    return at;
}

static int pad(
    struct rt *rt, struct blob *b, const struct text *t, const struct format_spec *s, bool trusted)
{
    struct text part = *t;
    size_t n;

    if (s->width > WIDTH_MAX)
        return rt_fail(rt, "a width above %d is not supported", WIDTH_MAX);
    if (text_n_chars(rt, &part, &n))
        return -1;
    size_t missing = (size_t)s->width > n ? (size_t)s->width - n : 0;
    size_t before = s->align == '>' ? missing : s->align == '^' ? missing / 2 : 0;
    size_t sign = s->align == '=' && t->n && (t->p[0] == '-' || t->p[0] == '+') ? 1 : 0;
    if (s->align == '=')
        before = missing;
    if (blob_put_part(rt, b, t, 0, sign))
        return -1;
    for (size_t i = 0; i <= missing; i++) {
        if (i == before && blob_put_part(rt, b, t, sign, t->n - sign))
            return -1;
        if (i < missing && blob_put(rt, b, (struct str){ &s->fill, 1 }, trusted))
            return -1;
    }
    return 0;
}

/* Copies a number and inserts commas between groups of three digits. */
static size_t group_digits(const char *in, char *out)
{
    size_t digits = strspn(in + (*in == '-'), "0123456789"), n = 0;
    const char *p = in;

    if (*p == '-')
        out[n++] = *p++;
    for (size_t i = 0; i < digits; i++) {
        if (i && (digits - i) % 3 == 0)
            out[n++] = ',';
        out[n++] = *p++;
    }
    size_t rest = strlen(p);
    memcpy(out + n, p, rest);
    return n + rest;
}

static void print_integer(struct val v, const struct format_spec *s, char out[1200])
{
    int64_t i = v.type == T_FLOAT ? (int64_t)v.u.f : val_int(v);
    unsigned long long u = i < 0 ? -(unsigned long long)i : (unsigned long long)i;
    const char *prefix = s->type == 'o' ? "0o" : s->type == 'x' ? "0x" : "0X";
    const char *sign = i < 0 ? "-" : "";

    if (!s->alternate)
        prefix = "";
    if (s->type == 'x')
        snprintf(out, 1200, "%s%s%llx", sign, prefix, u);
    else if (s->type == 'X')
        snprintf(out, 1200, "%s%s%llX", sign, prefix, u);
    else if (s->type == 'o')
        snprintf(out, 1200, "%s%s%llo", sign, prefix, u);
    else
        snprintf(out, 1200, "%s%llu", sign, u);
}

/* Formats the number with a sign only if negative, without padding and commas. */
static void print_number(struct val v, const struct format_spec *s, char out[1200])
{
    int precision = s->has_precision ? s->precision : 6;
    char form[16];

    if (s->type && strchr("feEgG", s->type)) {
        snprintf(form, sizeof(form), "%%%s.%d%c", s->alternate ? "#" : "", precision, s->type);
        snprintf(out, 1200, form, val_float(v));
    } else if (s->type == '%') {
        snprintf(out, 1200, "%.*f%%", precision, val_float(v) * 100);
    } else if (v.type == T_FLOAT && !s->type && s->has_precision) {
        snprintf(out, 1200, "%.*g", MAX(precision, 1), v.u.f);
    } else if (v.type == T_FLOAT && !s->type) {
        out[float_text(v.u.f, out)] = '\0';
    } else {
        print_integer(v, s, out);
    }
}

static int number_text(
    struct rt *rt, struct val v, const struct format_spec *s, char out[1600], size_t *n)
{
    char plain[1200];
    size_t at = 0;

    if (s->has_precision && s->precision > 100)
        return rt_fail(rt, "a precision above 100 is not supported");
    bool as_integer = s->type && strchr("dxXo", s->type);
    if (as_integer && v.type == T_FLOAT && !(fabs(v.u.f) < 9e18))
        return rt_fail(rt, "a number does not fit 64 bits");
    print_number(v, s, plain);
    if (s->sign && *plain != '-')
        out[at++] = s->sign;
    if (s->comma) {
        at += group_digits(plain, out + at);
    } else {
        memcpy(out + at, plain, strlen(plain));
        at += strlen(plain);
    }
    *n = at;
    return 0;
}

static int put_number(struct rt *rt, struct blob *b, struct val v, const struct format_spec *s)
{
    char digits[1600];
    size_t n = 0;

    if (!val_is_number(v))
        return v.type == T_UNDEFINED ? fail_undefined(rt, v)
                                     : rt_fail(rt, "a number is needed, not a %s", type_name(v));
    if (number_text(rt, v, s, digits, &n))
        return -1;
    struct text t = { .p = digits, .n = n, .trusted = v.trusted };
    return pad(rt, b, &t, s, v.trusted);
}

static int put_string(
    struct rt *rt, struct blob *b, struct val v, bool repr, const struct format_spec *s)
{
    struct text *t;
    struct blob *r;
    size_t n;

    if (repr) {
        if (!(r = blob_new(rt)) || val_repr(rt, v, r) || !(t = blob_text(rt, r)))
            return -1;
    } else if (val_text(rt, v, &t)) {
        return -1;
    }
    if (s->has_precision) {
        if (text_offset(rt, t, (size_t)s->precision, &n) || !(t = text_part(rt, t, 0, n)))
            return -1;
    }
    return pad(rt, b, t, s, t->n ? text_trusted_at(t, 0) : true);
}

/* ---- % */

struct percent {
    struct val all;
    size_t next; /* next index in a tuple */
    bool used;
};

static int next_value(struct rt *rt, struct percent *p, struct val *out)
{
    if (p->all.type == T_TUPLE) {
        if (p->next >= p->all.u.list->n)
            return rt_fail(rt, "not enough values for the format");
        *out = p->all.u.list->v[p->next++];
        return 0;
    }
    if (p->used)
        return rt_fail(rt, "not enough values for the format");
    p->used = true;
    *out = p->all;
    return 0;
}

static int named_value(struct rt *rt, struct percent *p, struct str name, struct val *out)
{
    struct dict_entry *e;
    struct text *key = text_new(rt, name, true);

    if (!key || p->all.type != T_DICT)
        return key ? rt_fail(rt, "the format needs a mapping") : -1;
    p->used = true;
    if (dict_find(rt, p->all.u.dict, V_STR(key), &e))
        return -1;
    if (!e)
        return rt_fail(rt, "the format refers to '" STR_FMT "', which is missing", STR_ARG(name));
    *out = e->value;
    return 0;
}

static int put_conversion(struct rt *rt, struct blob *b, struct val v, struct format_spec *s)
{
    if (!s->align)
        s->align = '>';
    if (s->type == 's' || s->type == 'r' || s->type == 'a')
        return put_string(rt, b, v, s->type != 's', s);
    if (s->type == 'c' && v.type == T_STR)
        return put_string(rt, b, v, false, s);
    if (!s->type || !strchr("diufFeEgGxXo", s->type))
        return rt_fail(rt, "unsupported format character '%c'", s->type ? s->type : '?');
    if (s->type == 'F')
        s->type = 'f';
    if (strchr("iu", s->type))
        s->type = 'd';
    return put_number(rt, b, v, s);
}

/* Formats one conversion; `at` is after the %. Returns the offset after it, or -1. */
static ptrdiff_t percent_one(
    struct rt *rt, struct blob *b, const struct text *fmt, size_t at, struct percent *p)
{
    struct str s = text_str(fmt);
    struct format_spec spec = { .fill = ' ' };
    struct str name = STR_NONE;
    struct val v;

    if (at < s.n && s.p[at] == '(') {
        size_t end = at + 1;
        while (end < s.n && s.p[end] != ')')
            end++;
        name = (struct str){ s.p + at + 1, end - at - 1 };
        at = end + 1;
    }
    for (; at < s.n && strchr("-+ 0#", s.p[at]) && s.p[at]; at++) {
        char c = s.p[at];
        if (c == '-')
            spec.align = '<';
        else if (c == '0' && !spec.align)
            spec.align = '=', spec.fill = '0';
        else if (c == '+' || c == ' ')
            spec.sign = c;
        else if (c == '#')
            spec.alternate = true;
    }
    at = take_number(s, at, &spec.width);
    if (at < s.n && s.p[at] == '.') {
        spec.has_precision = true;
        at = take_number(s, at + 1, &spec.precision);
    }
    if (at >= s.n)
        return rt_fail(rt, "incomplete format");
    spec.type = s.p[at];
    if (spec.type == '%')
        return blob_put(rt, b, STR("%"), text_trusted_at(fmt, at)) ? -1 : (ptrdiff_t)at + 1;
    if (spec.align == '<')
        spec.fill = ' ';
    if (strchr("sra", spec.type) && spec.align == '=')
        spec.align = '>', spec.fill = ' ';
    if (name.p ? named_value(rt, p, name, &v) : next_value(rt, p, &v))
        return -1;
    return put_conversion(rt, b, v, &spec) ? -1 : (ptrdiff_t)at + 1;
}

int str_percent(struct rt *rt, struct text *fmt, struct val arg, struct val *out)
{
    struct percent p = { .all = arg };
    struct blob *b = blob_new(rt);

    if (!b)
        return -1;
    for (size_t at = 0; at < fmt->n;) {
        const char *percent = memchr(fmt->p + at, '%', fmt->n - at);
        size_t end = percent ? (size_t)(percent - fmt->p) : fmt->n;
        if (rt_spend(rt, 1) || blob_put_part(rt, b, fmt, at, end - at))
            return -1;
        at = end;
        if (!percent)
            break;
        ptrdiff_t next = percent_one(rt, b, fmt, at + 1, &p);
        if (next < 0)
            return -1;
        at = (size_t)next;
    }
    /* Python reports no unused argument if it could be a mapping. */
    bool is_mapping =
        arg.type == T_DICT || arg.type == T_LIST || arg.type == T_UNDEFINED || arg.type == T_RANGE;
    bool left_over = arg.type == T_TUPLE ? p.next < arg.u.list->n : !p.used && !is_mapping;
    if (left_over)
        return rt_fail(rt, "not all values were used by the format");
    struct text *t = blob_text(rt, b);
    if (t)
        *out = V_STR(t);
    return t ? 0 : -1;
}

/* ---- format() */

static int parse_spec(struct rt *rt, struct str s, struct format_spec *out)
{
    size_t at = 0;

    *out = (struct format_spec){ .fill = ' ' };
    if (s.n > 1 && strchr("<>^=", s.p[1]) && s.p[1]) {
        out->fill = s.p[0];
        out->align = s.p[1];
        at = 2;
    } else if (s.n && strchr("<>^=", s.p[0]) && s.p[0]) {
        out->align = s.p[0];
        at = 1;
    }
    if (at < s.n && strchr("+- ", s.p[at]) && s.p[at])
        out->sign = s.p[at] == '-' ? 0 : s.p[at], at++;
    if (at < s.n && s.p[at] == '#')
        out->alternate = true, at++;
    if (at < s.n && s.p[at] == '0') {
        at++;
        if (!out->align)
            out->align = '=', out->fill = '0';
    }
    at = take_number(s, at, &out->width);
    if (at < s.n && s.p[at] == ',')
        out->comma = true, at++;
    if (at < s.n && s.p[at] == '.') {
        out->has_precision = true;
        at = take_number(s, at + 1, &out->precision);
    }
    if (at < s.n)
        out->type = s.p[at++];
    if (at < s.n || (out->type && !strchr("sdfFeEgGxXo%", out->type)))
        return rt_fail(rt, "invalid format specification '" STR_FMT "'", (int)MIN(s.n, 40u), s.p);
    return 0;
}

static int put_field(
    struct rt *rt, struct blob *b, struct val v, char conversion, struct str format)
{
    struct format_spec s;

    if (parse_spec(rt, format, &s))
        return -1;
    bool is_text = conversion || (!val_is_number(v)) || (!format.n);
    if (!is_text && s.type != 's') {
        if (!s.align)
            s.align = '>';
        if (s.type == 'F')
            s.type = 'f';
        if (v.type == T_FLOAT && s.type && strchr("dxXo", s.type))
            return rt_fail(rt, "'%c' does not format a float", s.type);
        return put_number(rt, b, v, &s);
    }
    if (format.n && v.type != T_STR && !conversion)
        return rt_fail(rt, "a %s takes no format specification", type_name(v));
    if (s.type && s.type != 's')
        return rt_fail(rt, "'%c' does not format a string", s.type);
    if (!s.align)
        s.align = '<';
    return put_string(rt, b, v, conversion == 'r' || conversion == 'a', &s);
}

static bool is_number(struct str s, int64_t *out)
{
    uint64_t u;

    if (!str_to_u64(s, &u) || u > INT32_MAX)
        return false;
    *out = (int64_t)u;
    return true;
}

/* Value of "0", "name", "name.member[item]"; "" is the next positional argument. */
static int field_value(
    struct rt *rt, struct str name, const struct args *args, int *next, struct val *out)
{
    size_t end = 0;
    int64_t i;

    while (end < name.n && name.p[end] != '.' && name.p[end] != '[')
        end++;
    struct str first = { name.p, end };
    bool found = false;
    if (!first.n || is_number(first, &i)) {
        i = first.n ? i : (*next)++;
        found = i < args->n;
        if (found)
            *out = args->v[i];
    }
    for (int k = 0; !found && k < args->n_kw; k++)
        if (str_eq(args->kw[k].name, first)) {
            *out = args->kw[k].v;
            found = true;
        }
    if (!found)
        return rt_fail(rt, "the format needs a value for '" STR_FMT "'", STR_ARG(first));
    while (end < name.n) {
        bool is_item = name.p[end] == '[';
        size_t from = ++end;
        while (end < name.n && !(is_item ? name.p[end] == ']' : strchr(".[", name.p[end]) != NULL))
            end++;
        struct str part = { name.p + from, end - from };
        end += is_item;
        struct text *key = text_copy(rt, part, true);
        struct val v = *out;
        if (!key)
            return -1;
        if (is_item ? op_item(rt, v, is_number(part, &i) ? V_INT(i) : V_STR(key), out)
                    : op_attr(rt, v, key, out))
            return -1;
    }
    return 0;
}

/* Formats one field; `at` is after its opening brace. Returns the offset after the closing brace,
 * or -1. */
static ptrdiff_t format_one(
    struct rt *rt, struct blob *b, struct str s, size_t at, const struct args *args, int *next)
{
    const char *close = memchr(s.p + at, '}', s.n - at);
    struct val v;

    if (!close)
        return rt_fail(rt, "a format field has no end");
    size_t end = (size_t)(close - s.p);
    struct str field = { s.p + at, end - at };
    if (memchr(field.p, '{', field.n))
        return rt_fail(rt, "nested format fields are not supported");
    const char *colon = memchr(field.p, ':', field.n);
    struct str spec = colon ? str_skip(field, (size_t)(colon - field.p) + 1) : STR("");
    struct str name = { field.p, colon ? (size_t)(colon - field.p) : field.n };
    char conversion = 0;
    if (name.n >= 2 && name.p[name.n - 2] == '!') {
        conversion = name.p[name.n - 1];
        name.n -= 2;
    }
    if (field_value(rt, name, args, next, &v) || put_field(rt, b, v, conversion, spec))
        return -1;
    return (ptrdiff_t)end + 1;
}

int str_format(struct rt *rt, struct text *fmt, const struct args *args, struct val *out)
{
    struct blob *b = blob_new(rt);
    struct str s = text_str(fmt);
    int next = 0;

    if (!b)
        return -1;
    for (size_t at = 0; at < s.n;) {
        size_t end = at;
        while (end < s.n && s.p[end] != '{' && s.p[end] != '}')
            end++;
        if (rt_spend(rt, 1) || blob_put_part(rt, b, fmt, at, end - at))
            return -1;
        at = end;
        if (at >= s.n)
            break;
        if (at + 1 < s.n && s.p[at + 1] == s.p[at]) {
            if (blob_put_part(rt, b, fmt, at, 1))
                return -1;
            at += 2;
            continue;
        }
        if (s.p[at] == '}')
            return rt_fail(rt, "a single '}' in a format");
        ptrdiff_t behind = format_one(rt, b, s, at + 1, args, &next);
        if (behind < 0)
            return -1;
        at = (size_t)behind;
    }
    struct text *t = blob_text(rt, b);
    if (t)
        *out = V_STR(t);
    return t ? 0 : -1;
}
