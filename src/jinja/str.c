/* str.c: Python's methods of str. Positions are characters; parts keep the origin of their bytes.
 * Owner: the thread that renders. */
#include "jinja/call.h"

int want_text(struct rt *rt, struct val v, struct text **out)
{
    if (v.type == T_UNDEFINED)
        return fail_undefined(rt, v);
    if (v.type != T_STR)
        return rt_fail(rt, "a string is needed, not a %s", type_name(v));
    *out = v.u.s;
    return 0;
}

int want_int(struct rt *rt, struct val v, int64_t *out)
{
    if (v.type == T_UNDEFINED)
        return fail_undefined(rt, v);
    if (v.type != T_INT && v.type != T_BOOL)
        return rt_fail(rt, "an integer is needed, not a %s", type_name(v));
    *out = val_int(v);
    return 0;
}

static int put_part(struct rt *rt, const struct text *t, size_t from, size_t n, struct val *out)
{
    struct text *part = text_part(rt, t, from, n);

    if (part)
        *out = V_STR(part);
    return part ? 0 : -1;
}

static int push_part(
    struct rt *rt, struct val_list *l, const struct text *t, size_t from, size_t to)
{
    struct val v;

    return put_part(rt, t, from, to - from, &v) ? -1 : list_push(rt, l, v);
}

/* ---- strip, prefix, suffix */

static bool is_in_set(struct str c, struct str set)
{
    while (set.n) {
        size_t n = char_len(set, NULL);
        if (n == c.n && !memcmp(set.p, c.p, n))
            return true;
        set = str_skip(set, n);
    }
    return false;
}

static size_t last_char(struct str s)
{
    size_t i = s.n - 1;

    while (i && s.n - i < 4 && ((unsigned char)s.p[i] & 0xC0) == 0x80)
        i--;
    return char_len((struct str){ s.p + i, s.n - i }, NULL) == s.n - i ? i : s.n - 1;
}

int str_strip(struct rt *rt, struct text *t, struct val chars, int sides, struct val *out)
{
    struct str s = text_str(t);
    size_t from = 0, steps = 0;
    struct text *set = NULL;

    if (chars.type == T_MISSING || chars.type == T_NONE) {
        from = sides & STRIP_LEFT ? leading_space(s) : 0;
        s = str_skip(s, from);
        s.n -= sides & STRIP_RIGHT ? trailing_space(s) : 0;
        return rt_spend_bytes(rt, t->n - s.n) ? -1 : put_part(rt, t, from, s.n, out);
    }
    if (want_text(rt, chars, &set))
        return -1;
    while ((sides & STRIP_LEFT) && s.n) {
        size_t n = char_len(s, NULL);
        if (!is_in_set((struct str){ s.p, n }, text_str(set)))
            break;
        s = str_skip(s, n);
        from += n;
        steps++;
    }
    while ((sides & STRIP_RIGHT) && s.n) {
        size_t at = last_char(s);
        if (!is_in_set((struct str){ s.p + at, s.n - at }, text_str(set)))
            break;
        s.n = at;
        steps++;
    }
    return rt_spend(rt, steps * (1 + set->n / 4) / 4) ? -1 : put_part(rt, t, from, s.n, out);
}

static int strip(struct rt *rt, const struct val *in, struct val *out)
{
    return str_strip(rt, in[0].u.s, in[1], STRIP_BOTH, out);
}

static int lstrip(struct rt *rt, const struct val *in, struct val *out)
{
    return str_strip(rt, in[0].u.s, in[1], STRIP_LEFT, out);
}

static int rstrip(struct rt *rt, const struct val *in, struct val *out)
{
    return str_strip(rt, in[0].u.s, in[1], STRIP_RIGHT, out);
}

static int removeprefix(struct rt *rt, const struct val *in, struct val *out)
{
    struct text *p = NULL;

    if (want_text(rt, in[1], &p))
        return -1;
    size_t n = str_starts(text_str(in[0].u.s), text_str(p)) ? p->n : 0;
    return put_part(rt, in[0].u.s, n, in[0].u.s->n - n, out);
}

static int removesuffix(struct rt *rt, const struct val *in, struct val *out)
{
    struct text *p = NULL;

    if (want_text(rt, in[1], &p))
        return -1;
    size_t n = str_ends(text_str(in[0].u.s), text_str(p)) ? p->n : 0;
    return put_part(rt, in[0].u.s, 0, in[0].u.s->n - n, out);
}

/* Byte range from character `start` to `end`, the arguments of find, count and startswith. */
static int char_range(
    struct rt *rt, struct text *t, const struct val *bounds, size_t *from, size_t *to)
{
    int64_t at[2] = { 0, INT64_MAX };
    size_t n;

    if (text_n_chars(rt, t, &n))
        return -1;
    for (int i = 0; i < 2; i++) {
        if (bounds[i].type == T_MISSING || bounds[i].type == T_NONE)
            continue;
        if (want_int(rt, bounds[i], &at[i]))
            return -1;
    }
    for (int i = 0; i < 2; i++) {
        at[i] += at[i] < 0 ? (int64_t)n : 0;
        at[i] = MAX(at[i], 0);
    }
    *to = 0;
    if (text_offset(rt, t, (size_t)at[0], from) || text_offset(rt, t, (size_t)at[1], to))
        return -1;
    if ((uint64_t)at[0] > n)
        *from = t->n + 1; /* after the end, where even "" is not found */
    return 0;
}

static int affix(struct rt *rt, const struct val *in, bool at_end, struct val *out)
{
    struct val one = in[1];
    struct val_list single = { &one, 1, 1, 0, true }, *all = &single;
    size_t from, to;
    bool found = false;

    if (in[1].type == T_TUPLE)
        all = in[1].u.list;
    if (char_range(rt, in[0].u.s, in + 2, &from, &to))
        return -1;
    for (size_t i = 0; i < all->n && !found; i++) {
        struct text *p = NULL;
        if (rt_spend(rt, 1) || want_text(rt, all->v[i], &p))
            return -1;
        if (from > to)
            continue;
        struct str s = { in[0].u.s->p + from, to - from };
        found = at_end ? str_ends(s, text_str(p)) : str_starts(s, text_str(p));
    }
    *out = V_BOOL(found);
    return 0;
}

static int startswith(struct rt *rt, const struct val *in, struct val *out)
{
    return affix(rt, in, false, out);
}

static int endswith(struct rt *rt, const struct val *in, struct val *out)
{
    return affix(rt, in, true, out);
}

/* ---- search */

static ptrdiff_t find_last(struct str hay, struct str needle)
{
    for (size_t n = hay.n + 1; n-- > 0;)
        if (str_starts(str_skip(hay, n), needle))
            return (ptrdiff_t)n;
    return -1;
}

static int search(struct rt *rt, const struct val *in, bool last, int64_t *out)
{
    struct text *t = in[0].u.s, *p = NULL;
    size_t from, to, n;

    *out = -1;
    if (want_text(rt, in[1], &p) || char_range(rt, t, in + 2, &from, &to))
        return -1;
    if (from > to)
        return 0;
    struct str s = { t->p + from, to - from };
    if (rt_spend_bytes(rt, last ? s.n * (8 + p->n / 4) : s.n))
        return -1;
    ptrdiff_t at = last ? find_last(s, text_str(p)) : str_find(s, text_str(p));
    if (at < 0)
        return 0;
    struct text head = *t;
    head.n = from + (size_t)at;
    head.ascii = t->ascii == ASCII_YES ? ASCII_YES : ASCII_UNKNOWN;
    if (text_n_chars(rt, &head, &n))
        return -1;
    *out = (int64_t)n;
    return 0;
}

static int find(struct rt *rt, const struct val *in, struct val *out)
{
    int64_t at;

    if (search(rt, in, false, &at))
        return -1;
    *out = V_INT(at);
    return 0;
}

static int rfind(struct rt *rt, const struct val *in, struct val *out)
{
    int64_t at;

    if (search(rt, in, true, &at))
        return -1;
    *out = V_INT(at);
    return 0;
}

static int must_find(struct rt *rt, const struct val *in, bool last, struct val *out)
{
    int64_t at;

    if (search(rt, in, last, &at))
        return -1;
    *out = V_INT(at);
    return at < 0 ? rt_fail(rt, "substring not found") : 0;
}

static int index_of(struct rt *rt, const struct val *in, struct val *out)
{
    return must_find(rt, in, false, out);
}

static int rindex_of(struct rt *rt, const struct val *in, struct val *out)
{
    return must_find(rt, in, true, out);
}

static int count(struct rt *rt, const struct val *in, struct val *out)
{
    struct text *t = in[0].u.s, *p = NULL;
    size_t from, to;
    int64_t n = 0;

    if (want_text(rt, in[1], &p) || char_range(rt, t, in + 2, &from, &to))
        return -1;
    if (from <= to && !p->n) {
        struct text part = { .p = t->p + from, .n = to - from, .trusted = true };
        size_t chars;
        if (text_n_chars(rt, &part, &chars))
            return -1;
        n = (int64_t)chars + 1;
    } else if (from <= to) {
        struct str s = { t->p + from, to - from };
        if (rt_spend_bytes(rt, s.n))
            return -1;
        for (ptrdiff_t at; (at = str_find(s, text_str(p))) >= 0; n++)
            s = str_skip(s, (size_t)at + p->n);
    }
    *out = V_INT(n);
    return 0;
}

/* ---- split and join */

static int split_blanks(struct rt *rt, struct text *t, int64_t max, struct val_list *l)
{
    size_t at = 0;

    for (;;) {
        at += leading_space(str_skip(text_str(t), at));
        if (at >= t->n)
            return 0;
        size_t end = at;
        if (max >= 0 && (int64_t)l->n >= max)
            return push_part(rt, l, t, at, t->n);
        while (end < t->n) {
            uint32_t cp;
            size_t n = char_len(str_skip(text_str(t), end), &cp);
            if (char_is_space(cp))
                break;
            end += n;
        }
        if (push_part(rt, l, t, at, end))
            return -1;
        at = end;
    }
}

/* Splits from the right: whole parts first, then the rest before them. The list is built backwards
 * and reversed. */
static int split_blanks_right(struct rt *rt, struct text *t, int64_t max, struct val_list *l)
{
    size_t n = t->n;

    for (;;) {
        n -= trailing_space((struct str){ t->p, n });
        if (!n)
            return 0;
        if (max >= 0 && (int64_t)l->n >= max)
            return push_part(rt, l, t, 0, n);
        size_t from = n;
        while (from) {
            size_t at = last_char((struct str){ t->p, from });
            uint32_t cp;
            char_len((struct str){ t->p + at, from - at }, &cp);
            if (char_is_space(cp))
                break;
            from = at;
        }
        if (push_part(rt, l, t, from, n))
            return -1;
        n = from;
    }
}

static void reverse_list(struct val_list *l)
{
    for (size_t i = 0; i < l->n / 2; i++) {
        struct val v = l->v[i];
        l->v[i] = l->v[l->n - 1 - i];
        l->v[l->n - 1 - i] = v;
    }
}

static int split_at(
    struct rt *rt, struct text *t, struct text *sep, int64_t max, struct val_list *l)
{
    size_t from = 0;

    for (;;) {
        struct str rest = str_skip(text_str(t), from);
        ptrdiff_t at = max >= 0 && (int64_t)l->n >= max ? -1 : str_find(rest, text_str(sep));
        if (at < 0)
            return push_part(rt, l, t, from, t->n);
        if (push_part(rt, l, t, from, from + (size_t)at))
            return -1;
        from += (size_t)at + sep->n;
    }
}

static int split_at_right(
    struct rt *rt, struct text *t, struct text *sep, int64_t max, struct val_list *l)
{
    size_t n = t->n;

    for (;;) {
        struct str rest = { t->p, n };
        ptrdiff_t at = max >= 0 && (int64_t)l->n >= max ? -1 : find_last(rest, text_str(sep));
        if (at < 0)
            return push_part(rt, l, t, 0, n);
        if (push_part(rt, l, t, (size_t)at + sep->n, n))
            return -1;
        n = (size_t)at;
    }
}

static int split_any(struct rt *rt, const struct val *in, bool right, struct val *out)
{
    struct text *t = in[0].u.s, *sep = NULL;
    struct val_list *l = list_new(rt, 0);
    int64_t max = -1;
    int rc;

    if (!l || rt_spend_bytes(rt, t->n * 4) ||
        (in[2].type != T_MISSING && want_int(rt, in[2], &max)))
        return -1;
    if (in[1].type == T_MISSING || in[1].type == T_NONE) {
        rc = right ? split_blanks_right(rt, t, max, l) : split_blanks(rt, t, max, l);
    } else {
        if (want_text(rt, in[1], &sep))
            return -1;
        if (!sep->n)
            return rt_fail(rt, "empty separator");
        rc = right ? split_at_right(rt, t, sep, max, l) : split_at(rt, t, sep, max, l);
    }
    if (right)
        reverse_list(l);
    *out = V(T_LIST, list, l);
    return rc;
}

static int split(struct rt *rt, const struct val *in, struct val *out)
{
    return split_any(rt, in, false, out);
}

static int rsplit(struct rt *rt, const struct val *in, struct val *out)
{
    return split_any(rt, in, true, out);
}

static int splitlines(struct rt *rt, const struct val *in, struct val *out)
{
    struct text *t = in[0].u.s;
    struct val_list *l = list_new(rt, 0);
    bool keep = in[1].type != T_MISSING && val_truth(in[1]);

    if (!l || rt_spend_bytes(rt, t->n * 4))
        return -1;
    for (size_t i = 0, from = 0; i < t->n;) {
        uint32_t cp;
        size_t n = char_len(str_skip(text_str(t), i), &cp);
        bool ends = (cp >= 0x0A && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 ||
                    cp == 0x2028 || cp == 0x2029;
        if (cp == '\r' && i + 1 < t->n && t->p[i + 1] == '\n')
            n = 2;
        if (ends && push_part(rt, l, t, from, keep ? i + n : i))
            return -1;
        i += n;
        if (ends)
            from = i;
        else if (i >= t->n && push_part(rt, l, t, from, t->n))
            return -1;
    }
    *out = V(T_LIST, list, l);
    return 0;
}

static int partition_at(struct rt *rt, const struct val *in, bool last, struct val *out)
{
    struct text *t = in[0].u.s, *sep = NULL;
    struct val_list *l = list_new(rt, 3);

    if (!l || want_text(rt, in[1], &sep))
        return -1;
    if (!sep->n)
        return rt_fail(rt, "empty separator");
    if (rt_spend_bytes(rt, t->n * 4))
        return -1;
    ptrdiff_t at =
        last ? find_last(text_str(t), text_str(sep)) : str_find(text_str(t), text_str(sep));
    size_t from = at >= 0 ? (size_t)at : last ? 0 : t->n;
    size_t to = at >= 0 ? from + sep->n : from;
    *out = V(T_TUPLE, list, l);
    return push_part(rt, l, t, 0, from) || push_part(rt, l, t, from, to) ||
                   push_part(rt, l, t, to, t->n)
               ? -1
               : 0;
}

static int partition(struct rt *rt, const struct val *in, struct val *out)
{
    return partition_at(rt, in, false, out);
}

static int rpartition(struct rt *rt, const struct val *in, struct val *out)
{
    return partition_at(rt, in, true, out);
}

static int join(struct rt *rt, const struct val *in, struct val *out)
{
    struct blob *b = blob_new(rt);
    struct text *t = NULL;
    struct val_list *l;

    if (!b || val_iterate(rt, in[1], &l))
        return -1;
    for (size_t i = 0; i < l->n; i++)
        if (rt_spend(rt, 1) || want_text(rt, l->v[i], &t) ||
            (i && blob_put_text(rt, b, in[0].u.s)) || blob_put_text(rt, b, t))
            return -1;
    if (!(t = blob_text(rt, b)))
        return -1;
    *out = V_STR(t);
    return 0;
}

/* ---- replace and padding */

static int replace_empty(
    struct rt *rt, struct text *t, struct text *to, int64_t max, struct blob *b)
{
    size_t i = 0;

    for (int64_t n = 0; max < 0 || n < max; n++) {
        if (rt_spend(rt, 1) || blob_put_text(rt, b, to))
            return -1;
        if (i >= t->n)
            return 0;
        size_t len = char_len(str_skip(text_str(t), i), NULL);
        if (blob_put_part(rt, b, t, i, len))
            return -1;
        i += len;
    }
    return blob_put_part(rt, b, t, i, t->n - i);
}

int str_replace(struct rt *rt, struct text *t, const struct val *arg, struct val *out)
{
    struct text *from = NULL, *to = NULL, *result;
    struct blob *b;
    int64_t max = -1;
    size_t at = 0;

    if (want_text(rt, arg[0], &from) || want_text(rt, arg[1], &to) ||
        (arg[2].type != T_MISSING && arg[2].type != T_NONE && want_int(rt, arg[2], &max)))
        return -1;
    if (rt_spend_bytes(rt, t->n))
        return -1;
    ptrdiff_t found = max ? str_find(text_str(t), text_str(from)) : -1;
    if (found < 0)
        return put_part(rt, t, 0, t->n, out);
    if (!(b = blob_new(rt)))
        return -1;
    if (!from->n) {
        if (replace_empty(rt, t, to, max, b))
            return -1;
    } else {
        for (int64_t n = 0; found >= 0 && (max < 0 || n < max); n++) {
            if (rt_spend(rt, 1) || blob_put_part(rt, b, t, at, (size_t)found) ||
                blob_put_text(rt, b, to))
                return -1;
            at += (size_t)found + from->n;
            found = str_find(str_skip(text_str(t), at), text_str(from));
        }
        if (blob_put_part(rt, b, t, at, t->n - at))
            return -1;
    }
    if (!(result = blob_text(rt, b)))
        return -1;
    *out = V_STR(result);
    return 0;
}

static int replace(struct rt *rt, const struct val *in, struct val *out)
{
    return str_replace(rt, in[0].u.s, in + 1, out);
}

/* Pads to a width, with `left` / 2 of the padding on the left. */
static int pad(struct rt *rt, const struct val *in, int left, struct val *out)
{
    struct text *t = in[0].u.s, *fill = NULL, *result;
    struct blob *b = blob_new(rt);
    int64_t width;
    size_t n;

    if (!b || want_int(rt, in[1], &width) || text_n_chars(rt, t, &n))
        return -1;
    if (in[2].type == T_MISSING ? !(fill = text_new(rt, STR(" "), true))
                                : want_text(rt, in[2], &fill))
        return -1;
    int64_t missing = MAX(width - (int64_t)n, 0);
    if ((uint64_t)missing > rt->max_output)
        return err_set(rt->e, ERR_TOO_LARGE, "line %u: a width is too large", rt->line);
    int64_t before = left == 2 ? missing : left ? missing / 2 + (missing & width & 1) : 0;
    for (int64_t i = 0; i <= missing; i++) {
        if (i == before && blob_put_text(rt, b, t))
            return -1;
        if (i < missing && (rt_spend(rt, 1) || blob_put_text(rt, b, fill)))
            return -1;
    }
    if (!(result = blob_text(rt, b)))
        return -1;
    *out = V_STR(result);
    return 0;
}

static int ljust(struct rt *rt, const struct val *in, struct val *out)
{
    return pad(rt, in, 0, out);
}

static int center(struct rt *rt, const struct val *in, struct val *out)
{
    return pad(rt, in, 1, out);
}

static int rjust(struct rt *rt, const struct val *in, struct val *out)
{
    return pad(rt, in, 2, out);
}

static int zfill(struct rt *rt, const struct val *in, struct val *out)
{
    struct text *t = in[0].u.s;
    size_t sign = t->n && (t->p[0] == '-' || t->p[0] == '+');
    struct val args[3], padded;
    struct text *zero = text_new(rt, STR("0"), true), *digits = text_part(rt, t, sign, t->n - sign);
    struct text *head = text_part(rt, t, 0, sign);
    int64_t width;

    if (!zero || !digits || !head || want_int(rt, in[1], &width))
        return -1;
    args[0] = V_STR(digits);
    args[1] = V_INT(width - (int64_t)sign);
    args[2] = V_STR(zero);
    if (pad(rt, args, 2, &padded))
        return -1;
    struct text *result = text_cat(rt, head, padded.u.s);
    if (result)
        *out = V_STR(result);
    return result ? 0 : -1;
}

static int format(struct rt *rt, struct val self, const struct args *args, struct val *out)
{
    return str_format(rt, self.u.s, args, out);
}

/* ---- case and character classes */

#define CASE_METHOD(name, how)                                                                     \
    static int name(struct rt *rt, const struct val *in, struct val *out)                          \
    {                                                                                              \
        return str_case(rt, in[0].u.s, how, out);                                                  \
    }
CASE_METHOD(upper, CASE_UPPER)
CASE_METHOD(lower, CASE_LOWER)
CASE_METHOD(title, CASE_TITLE)
CASE_METHOD(capitalize, CASE_CAPITALIZE)
CASE_METHOD(swapcase, CASE_SWAP)

#define CLASS_METHOD(name, cls)                                                                    \
    static int name(struct rt *rt, const struct val *in, struct val *out)                          \
    {                                                                                              \
        *out = V_BOOL(str_is_class(text_str(in[0].u.s), cls));                                     \
        return rt_spend_bytes(rt, in[0].u.s->n * 4);                                               \
    }
CLASS_METHOD(isalpha_, CLASS_ALPHA)
CLASS_METHOD(isdigit_, CLASS_DIGIT)
CLASS_METHOD(isdecimal, CLASS_DECIMAL)
CLASS_METHOD(isnumeric, CLASS_NUMERIC)
CLASS_METHOD(isalnum_, CLASS_ALNUM)
CLASS_METHOD(isspace_, CLASS_SPACE)
CLASS_METHOD(isascii_, CLASS_ASCII)
CLASS_METHOD(isupper_, CLASS_UPPER)
CLASS_METHOD(islower_, CLASS_LOWER)

/* "_" is a parameter that cannot be given by name. */
const struct callable str_methods[] = {
    { "capitalize", capitalize, "", 0, NULL },
    { "casefold", NULL, "", 0, NULL },
    { "center", center, "_ _", 1, NULL },
    { "count", count, "_ _ _", 1, NULL },
    { "encode", NULL, "", 0, NULL },
    { "endswith", endswith, "_ _ _", 1, NULL },
    { "expandtabs", NULL, "", 0, NULL },
    { "find", find, "_ _ _", 1, NULL },
    { "format", NULL, "", 0, format },
    { "format_map", NULL, "", 0, NULL },
    { "index", index_of, "_ _ _", 1, NULL },
    { "isalnum", isalnum_, "", 0, NULL },
    { "isalpha", isalpha_, "", 0, NULL },
    { "isascii", isascii_, "", 0, NULL },
    { "isdecimal", isdecimal, "", 0, NULL },
    { "isdigit", isdigit_, "", 0, NULL },
    { "isidentifier", NULL, "", 0, NULL },
    { "islower", islower_, "", 0, NULL },
    { "isnumeric", isnumeric, "", 0, NULL },
    { "isprintable", NULL, "", 0, NULL },
    { "isspace", isspace_, "", 0, NULL },
    { "istitle", NULL, "", 0, NULL },
    { "isupper", isupper_, "", 0, NULL },
    { "join", join, "_", 1, NULL },
    { "ljust", ljust, "_ _", 1, NULL },
    { "lower", lower, "", 0, NULL },
    { "lstrip", lstrip, "_", 0, NULL },
    { "maketrans", NULL, "", 0, NULL },
    { "partition", partition, "_", 1, NULL },
    { "removeprefix", removeprefix, "_", 1, NULL },
    { "removesuffix", removesuffix, "_", 1, NULL },
    { "replace", replace, "_ _ _", 2, NULL },
    { "rfind", rfind, "_ _ _", 1, NULL },
    { "rindex", rindex_of, "_ _ _", 1, NULL },
    { "rjust", rjust, "_ _", 1, NULL },
    { "rpartition", rpartition, "_", 1, NULL },
    { "rsplit", rsplit, "sep maxsplit", 0, NULL },
    { "rstrip", rstrip, "_", 0, NULL },
    { "split", split, "sep maxsplit", 0, NULL },
    { "splitlines", splitlines, "keepends", 0, NULL },
    { "startswith", startswith, "_ _ _", 1, NULL },
    { "strip", strip, "_", 0, NULL },
    { "swapcase", swapcase, "", 0, NULL },
    { "title", title, "", 0, NULL },
    { "translate", NULL, "", 0, NULL },
    { "upper", upper, "", 0, NULL },
    { "zfill", zfill, "_", 1, NULL },
    { NULL, NULL, NULL, 0, NULL },
};
