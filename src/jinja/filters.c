/* filters.c: filters on strings, numbers and single values. Filters on sequences are in seq.c.
 * Owner: the thread that renders. */
#include "jinja/call.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static int put_text(struct text *t, struct val *out)
{
    if (t)
        *out = V_STR(t);
    return t ? 0 : -1;
}

/* ---- strings */

#define CASE_FILTER(name, how)                                                                     \
    static int name(struct rt *rt, const struct val *in, struct val *out)                          \
    {                                                                                              \
        struct text *t;                                                                            \
        return val_text(rt, in[0], &t) ? -1 : str_case(rt, t, how, out);                           \
    }
CASE_FILTER(filter_upper, CASE_UPPER)
CASE_FILTER(filter_lower, CASE_LOWER)
CASE_FILTER(filter_title, CASE_WORDS)
CASE_FILTER(filter_capitalize, CASE_CAPITALIZE)

static int filter_string(struct rt *rt, const struct val *in, struct val *out)
{
    struct text *t;

    return val_text(rt, in[0], &t) ? -1 : put_text(t, out);
}

static int filter_trim(struct rt *rt, const struct val *in, struct val *out)
{
    struct text *t;

    return val_text(rt, in[0], &t) ? -1 : str_strip(rt, t, in[1], STRIP_BOTH, out);
}

static int filter_replace(struct rt *rt, const struct val *in, struct val *out)
{
    struct text *t, *from, *to;

    if (val_text(rt, in[0], &t) || val_text(rt, in[1], &from) || val_text(rt, in[2], &to))
        return -1;
    struct val args[3] = { V_STR(from), V_STR(to), in[3] };
    return str_replace(rt, t, args, out);
}

static int filter_center(struct rt *rt, const struct val *in, struct val *out)
{
    struct args args = { .v = in + 1, .n = 1 };
    struct val width = V_INT(80);
    struct text *t;

    if (val_text(rt, in[0], &t))
        return -1;
    if (in[1].type == T_MISSING)
        args.v = &width;
    return callable_call(rt, method_find(V_STR(t), STR("center")), V_STR(t), &args, out);
}

static int filter_format(struct rt *rt, struct val self, const struct args *args, struct val *out)
{
    struct text *t;
    struct val values;

    if (args->n && args->n_kw)
        return rt_fail(rt, "format takes positional or named values, not both");
    if (val_text(rt, self, &t))
        return -1;
    if (args->n_kw) {
        struct dict *d = dict_new(rt);
        for (int i = 0; d && i < args->n_kw; i++) {
            struct text *key = text_new(rt, args->kw[i].name, true);
            if (!key || dict_put(rt, d, V_STR(key), args->kw[i].v))
                return -1;
        }
        if (!d)
            return -1;
        values = V(T_DICT, dict, d);
    } else {
        struct val_list *l = list_new(rt, (size_t)args->n);
        for (int i = 0; l && i < args->n; i++)
            l->v[l->n++] = args->v[i];
        if (!l)
            return -1;
        values = V(T_TUPLE, list, l);
    }
    return str_percent(rt, t, values, out);
}

enum { BLANKS = 32 };
static const char blanks[] = "                                ";

/* Appends the blanks of indent: `width` of them, with the origin of the line that follows. */
static int put_indent(struct rt *rt, struct blob *b, struct val width, bool trusted)
{
    int64_t n = 4;

    if (width.type == T_STR)
        return blob_put_text(rt, b, width.u.s);
    if (width.type != T_MISSING && want_int(rt, width, &n))
        return -1;
    if (n > 1000)
        return rt_fail(rt, "an indent above 1000 is not supported");
    for (; n > 0; n -= BLANKS)
        if (blob_put(rt, b, (struct str){ blanks, (size_t)MIN(n, BLANKS) }, trusted))
            return -1;
    return 0;
}

static int filter_indent(struct rt *rt, const struct val *in, struct val *out)
{
    bool first = in[2].type != T_MISSING && val_truth(in[2]);
    bool blank = in[3].type != T_MISSING && val_truth(in[3]);
    struct blob *b = blob_new(rt);
    struct args none = { 0 };
    struct val lines;
    struct text *t;

    int64_t width;
    if (!b || want_text(rt, in[0], &t))
        return -1;
    if (in[1].type != T_MISSING && in[1].type != T_STR && want_int(rt, in[1], &width))
        return -1;
    /* Appends a newline before splitting, like Jinja: one at the end then begins an empty line. */
    struct text *newline = text_new(rt, STR("\n"), t->n ? text_trusted_at(t, t->n - 1) : true);
    if (!newline || !(t = text_cat(rt, t, newline)))
        return -1;
    if (callable_call(rt, method_find(V_STR(t), STR("splitlines")), V_STR(t), &none, &lines))
        return -1;
    for (size_t i = 0; i < lines.u.list->n; i++) {
        struct text *line = lines.u.list->v[i].u.s;
        bool trusted = line->n ? text_trusted_at(line, 0) : newline->trusted;
        bool indents = i ? line->n || blank : first;
        if ((i && blob_put(rt, b, STR("\n"), trusted)) ||
            (indents && put_indent(rt, b, in[1], trusted)) || blob_put_text(rt, b, line))
            return -1;
    }
    return put_text(blob_text(rt, b), out);
}

static int filter_escape(struct rt *rt, const struct val *in, struct val *out)
{
    static const char from[] = "&<>'\"";
    static const char *const to[] = { "&amp;", "&lt;", "&gt;", "&#39;", "&#34;" };
    struct blob *b = blob_new(rt);
    struct text *t;
    size_t plain = 0;

    if (!b || val_text(rt, in[0], &t) || rt_spend_bytes(rt, t->n * 4))
        return -1;
    for (size_t i = 0; i < t->n; i++) {
        const char *hit = t->p[i] ? strchr(from, t->p[i]) : NULL;
        if (!hit)
            continue;
        if (blob_put_part(rt, b, t, plain, i - plain) ||
            blob_put(rt, b, str_of(to[hit - from]), text_trusted_at(t, i)))
            return -1;
        plain = i + 1;
    }
    if (blob_put_part(rt, b, t, plain, t->n - plain))
        return -1;
    return put_text(blob_text(rt, b), out);
}

static int filter_truncate(struct rt *rt, const struct val *in, struct val *out)
{
    struct text *t, *end, *cut;
    int64_t length = 255, leeway = 5;
    size_t n, n_end, to;

    if (val_length(rt, in[0], &n) || (in[1].type != T_MISSING && want_int(rt, in[1], &length)) ||
        (in[4].type != T_MISSING && in[4].type != T_NONE && want_int(rt, in[4], &leeway)))
        return -1;
    if (in[3].type == T_MISSING ? !(end = text_new(rt, STR("..."), true))
                                : want_text(rt, in[3], &end))
        return -1;
    if (text_n_chars(rt, end, &n_end))
        return -1;
    if (length < (int64_t)n_end || leeway < 0)
        return rt_fail(rt, "truncate: the length is too small");
    if ((int64_t)n <= length + leeway) {
        *out = in[0];
        return 0;
    }
    if (want_text(rt, in[0], &t) || text_offset(rt, t, (size_t)length - n_end, &to))
        return -1;
    bool kills_words = in[2].type != T_MISSING && val_truth(in[2]);
    for (size_t k = to; !kills_words && k-- > 0;)
        if (t->p[k] == ' ') { /* back to the last blank */
            to = k;
            break;
        }
    if (!(cut = text_part(rt, t, 0, to)))
        return -1;
    return put_text(text_cat(rt, cut, end), out);
}

/* ---- JSON */

static int json_indent(struct rt *rt, struct val v, const struct text **out)
{
    struct blob *b;
    int64_t n;

    *out = NULL;
    if (v.type == T_MISSING || v.type == T_NONE)
        return 0;
    if (v.type == T_STR) {
        *out = v.u.s;
        return 0;
    }
    if (want_int(rt, v, &n) || !(b = blob_new(rt)))
        return -1;
    if (n > 1000)
        return rt_fail(rt, "an indent above 1000 is not supported");
    for (int64_t i = 0; i < n; i++)
        if (blob_put(rt, b, STR(" "), true))
            return -1;
    return (*out = blob_text(rt, b)) ? 0 : -1;
}

static int json_separators(struct rt *rt, struct val v, struct json_style *s)
{
    struct text *item, *key;

    if (v.type == T_MISSING || v.type == T_NONE) {
        s->item = text_new(rt, s->indent ? STR(",") : STR(", "), true);
        s->key = text_new(rt, STR(": "), true);
        return s->item && s->key ? 0 : -1;
    }
    if ((v.type != T_LIST && v.type != T_TUPLE) || v.u.list->n != 2)
        return rt_fail(rt, "tojson: two separators are needed");
    if (want_text(rt, v.u.list->v[0], &item) || want_text(rt, v.u.list->v[1], &key))
        return -1;
    s->item = item;
    s->key = key;
    return 0;
}

static int filter_tojson(struct rt *rt, const struct val *in, struct val *out)
{
    struct blob *b = blob_new(rt);
    struct json_style s = { .ascii = in[1].type != T_MISSING && val_truth(in[1]),
        .sort_keys = in[4].type != T_MISSING && val_truth(in[4]) };

    if (!b || json_indent(rt, in[2], &s.indent) || json_separators(rt, in[3], &s) ||
        val_dump(rt, in[0], &s, b))
        return -1;
    return put_text(blob_text(rt, b), out);
}

static int filter_from_json(struct rt *rt, const struct val *in, struct val *out)
{
    static const struct json_limits limits = { .max_depth = 64, .max_nodes = 100000 };
    struct json *j;
    struct text *t;
    struct err e;

    if (want_text(rt, in[0], &t) || rt_spend_bytes(rt, t->n * 8))
        return -1;
    if (json_parse(&j, text_str(t), rt->a, &limits, &e))
        return rt_fail(rt, "from_json: %s", e.msg);
    return val_from_json(rt, j, t->n && !t->blob && t->trusted, out);
}

/* ---- numbers */

/* Copies a number without "_" between digits; false if a "_" is elsewhere. */
static bool drop_underscores(struct str s, char out[80])
{
    size_t n = 0;

    for (size_t i = 0; i < s.n; i++) {
        bool between = i && i + 1 < s.n && s.p[i - 1] != '_' && s.p[i + 1] != '_';
        if (n + 1 == 80 || (s.p[i] == '_' && !between))
            return false;
        if (s.p[i] != '_')
            out[n++] = s.p[i];
    }
    out[n] = '\0';
    return true;
}

static bool is_alnum(char c)
{
    return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
}

/* int(text, base): surrounding blanks, a sign, a prefix of the base, "_" between digits. */
static bool int_from_text(struct str s, int64_t base, int64_t *out)
{
    char digits[80];
    char *p = digits, *end;

    s = str_skip(s, leading_space(s));
    s.n -= trailing_space(s);
    if (!drop_underscores(s, digits))
        return false;
    bool negative = *p == '-';
    p += *p == '-' || *p == '+';
    char mark = *p == '0' ? (char)(p[1] | 32) : 0;
    if ((base == 16 && mark == 'x') || (base == 8 && mark == 'o') || (base == 2 && mark == 'b'))
        p += 2;
    if (!is_alnum(*p))
        return false;
    long long v = strtoll(p, &end, (int)base);
    if (*end || v == INT64_MAX)
        return false;
    *out = negative ? -v : v;
    return true;
}

static bool float_from_text(struct str s, double *out)
{
    char copy[400];
    char *end;

    s = str_skip(s, leading_space(s));
    s.n -= trailing_space(s);
    if (!s.n || s.n >= sizeof(copy) || memchr(s.p, 'x', s.n) || memchr(s.p, 'X', s.n) ||
        memchr(s.p, '(', s.n) || memchr(s.p, '\0', s.n))
        return false;
    memcpy(copy, s.p, s.n);
    copy[s.n] = '\0';
    *out = strtod(copy, &end);
    return !*end;
}

static bool int_from_float(double f, struct val *out)
{
    if (!(fabs(f) < 9.2e18))
        return false;
    *out = V_INT((int64_t)f);
    return true;
}

static int filter_int(struct rt *rt, const struct val *in, struct val *out)
{
    struct val v = in[0], fallback = in[1].type == T_MISSING ? V_INT(0) : in[1];
    int64_t base = 10, i;
    double f;

    if (in[2].type != T_MISSING && want_int(rt, in[2], &base))
        return -1;
    if (base < 2 || base > 36)
        return rt_fail(rt, "int: a base of 2 to 36 is needed");
    *out = fallback;
    if (v.type == T_UNDEFINED)
        return fail_undefined(rt, v);
    if (v.type == T_INT || v.type == T_BOOL)
        *out = V_INT(val_int(v));
    else if (v.type == T_BIG)
        *out = v;
    else if (v.type == T_FLOAT)
        int_from_float(v.u.f, out);
    else if (v.type == T_STR && int_from_text(text_str(v.u.s), base, &i))
        *out = V_INT(i);
    else if (v.type == T_STR && float_from_text(text_str(v.u.s), &f))
        int_from_float(f, out);
    out->trusted = v.type == T_STR ? v.u.s->n && text_trusted_at(v.u.s, 0) : v.trusted;
    return 0;
}

static int filter_float(struct rt *rt, const struct val *in, struct val *out)
{
    struct val v = in[0];
    double f;

    *out = in[1].type == T_MISSING ? V_FLOAT(0.0) : in[1];
    if (v.type == T_UNDEFINED)
        return fail_undefined(rt, v);
    if (val_is_number(v))
        *out = V_FLOAT(val_float(v));
    else if (v.type == T_STR && float_from_text(text_str(v.u.s), &f))
        *out = V_FLOAT(f);
    out->trusted = v.type == T_STR ? v.u.s->n && text_trusted_at(v.u.s, 0) : v.trusted;
    return 0;
}

static int filter_abs(struct rt *rt, const struct val *in, struct val *out)
{
    struct val v = in[0];

    if (v.type == T_UNDEFINED)
        return fail_undefined(rt, v);
    if (!val_is_number(v) || (v.type == T_INT && v.u.i == INT64_MIN))
        return rt_fail(rt, "abs needs a number");
    *out = v.type == T_FLOAT ? V_FLOAT(fabs(v.u.f)) : V_INT(llabs(val_int(v)));
    out->trusted = v.trusted;
    return 0;
}

static int filter_round(struct rt *rt, const struct val *in, struct val *out)
{
    int64_t precision = 0;
    char digits[400];

    if (in[0].type == T_UNDEFINED)
        return fail_undefined(rt, in[0]);
    if (!val_is_number(in[0]) || (in[1].type != T_MISSING && want_int(rt, in[1], &precision)))
        return rt_fail(rt, "round needs a number");
    if (precision < 0 || precision > 30)
        return rt_fail(rt, "round: the precision must be 0 to 30");
    bool common = in[2].type == T_MISSING || val_is(in[2], "common");
    double f = val_float(in[0]), scale = pow(10, (double)precision);
    if (!common && !val_is(in[2], "ceil") && !val_is(in[2], "floor"))
        return rt_fail(rt, "method must be common, ceil or floor");
    if (!common) {
        *out = V_FLOAT((val_is(in[2], "ceil") ? ceil(f * scale) : floor(f * scale)) / scale);
    } else if (in[0].type != T_FLOAT) {
        *out = V_INT(val_int(in[0]));
    } else {
        /* printf rounds the exact value half to even, as Python does. */
        snprintf(digits, sizeof(digits), "%.*f", (int)precision, f);
        *out = V_FLOAT(strtod(digits, NULL));
    }
    out->trusted = in[0].trusted;
    return 0;
}

/* ---- any type */

static int filter_default(struct rt *rt, const struct val *in, struct val *out)
{
    bool boolean = in[2].type != T_MISSING && val_truth(in[2]);

    if (in[0].type != T_UNDEFINED && (!boolean || val_truth(in[0]))) {
        *out = in[0];
        return 0;
    }
    if (in[1].type != T_MISSING) {
        *out = in[1];
        return 0;
    }
    return put_text(text_new(rt, STR(""), true), out);
}

static int filter_length(struct rt *rt, const struct val *in, struct val *out)
{
    size_t n;

    if (val_length(rt, in[0], &n))
        return -1;
    *out = V_INT((int64_t)n);
    return 0;
}

static int filter_attr(struct rt *rt, const struct val *in, struct val *out)
{
    struct text *name;

    if (want_text(rt, in[1], &name))
        return -1;
    *out = V_UNDEFINED(name);
    bool has = method_find(in[0], text_str(name)) || in[0].type == T_NAMESPACE ||
               in[0].type == T_LOOP || in[0].type == T_UNDEFINED;
    return has ? op_attr(rt, in[0], name, out) : 0;
}

const struct callable text_filters[] = {
    { "abs", filter_abs, "", 0, NULL },
    { "attr", filter_attr, "name", 1, NULL },
    { "capitalize", filter_capitalize, "", 0, NULL },
    { "center", filter_center, "width", 0, NULL },
    { "count", filter_length, "", 0, NULL },
    { "d", filter_default, "default_value boolean", 0, NULL },
    { "default", filter_default, "default_value boolean", 0, NULL },
    { "e", filter_escape, "", 0, NULL },
    { "escape", filter_escape, "", 0, NULL },
    { "float", filter_float, "default", 0, NULL },
    { "format", NULL, "", 0, filter_format },
    { "from_json", filter_from_json, "", 0, NULL },
    { "indent", filter_indent, "width first blank", 0, NULL },
    { "int", filter_int, "default base", 0, NULL },
    { "length", filter_length, "", 0, NULL },
    { "lower", filter_lower, "", 0, NULL },
    { "replace", filter_replace, "old new count", 2, NULL },
    { "round", filter_round, "precision method", 0, NULL },
    { "safe", filter_string, "", 0, NULL },
    { "string", filter_string, "", 0, NULL },
    { "title", filter_title, "", 0, NULL },
    { "tojson", filter_tojson, "ensure_ascii indent separators sort_keys", 0, NULL },
    { "trim", filter_trim, "chars", 0, NULL },
    { "truncate", filter_truncate, "length killwords end leeway", 0, NULL },
    { "upper", filter_upper, "", 0, NULL },
    { NULL, NULL, NULL, 0, NULL },
};

const struct callable *filter_find(struct str name)
{
    const struct callable *const tables[] = { text_filters, seq_filters };

    for (size_t i = 0; i < ARRAY_LEN(tables); i++)
        for (const struct callable *c = tables[i]; c->name; c++)
            if (str_is(name, c->name))
                return c;
    return NULL;
}
