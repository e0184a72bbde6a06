/* ops.c: operators, slices, items and attributes, with the semantics of Python and Jinja's sandbox.
 * Owner: the thread that renders. */
#include "jinja/call.h"
#include "jinja/ast.h"

#include <math.h>

int fail_undefined(struct rt *rt, struct val v)
{
    if (v.type == T_UNDEFINED && v.u.name)
        return rt_fail(rt, "'" STR_FMT "' is undefined", STR_ARG(text_str(v.u.name)));
    return rt_fail(rt, "a value is undefined");
}

static int bad_operands(struct rt *rt, int op, struct val a, struct val b)
{
    static const char *const names[] = { [OP_ADD] = "+",
        [OP_SUB] = "-",
        [OP_MUL] = "*",
        [OP_DIV] = "/",
        [OP_FLOORDIV] = "//",
        [OP_MOD] = "%",
        [OP_POW] = "**" };

    if (a.type == T_UNDEFINED || b.type == T_UNDEFINED)
        return fail_undefined(rt, a.type == T_UNDEFINED ? a : b);
    return rt_fail(rt, "%s %s %s is not possible", type_name(a), names[op], type_name(b));
}

/* ---- numbers */

static int int_pow(int64_t base, int64_t exp, int64_t *out)
{
    int64_t result = 1;

    while (exp) {
        if (exp & 1 && __builtin_mul_overflow(result, base, &result))
            return -1;
        exp >>= 1;
        if (exp && __builtin_mul_overflow(base, base, &base))
            return -1;
    }
    *out = result;
    return 0;
}

static int int_op(struct rt *rt, int op, int64_t a, int64_t b, struct val *out)
{
    int64_t i = 0;
    bool over = false;

    if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && b == 0)
        return rt_fail(rt, "division by zero");
    switch (op) {
    case OP_ADD:
        over = __builtin_add_overflow(a, b, &i);
        break;
    case OP_SUB:
        over = __builtin_sub_overflow(a, b, &i);
        break;
    case OP_MUL:
        over = __builtin_mul_overflow(a, b, &i);
        break;
    case OP_DIV:
        *out = V_FLOAT((double)a / (double)b);
        return 0;
    case OP_FLOORDIV:
        over = a == INT64_MIN && b == -1;
        if (!over)
            i = a / b - (a % b != 0 && (a < 0) != (b < 0));
        break;
    case OP_MOD:
        i = b == -1 ? 0 : a % b;
        i += i != 0 && (i < 0) != (b < 0) ? b : 0;
        break;
    case OP_POW:
        if (b < 0) {
            if (a == 0)
                return rt_fail(rt, "division by zero");
            *out = V_FLOAT(pow((double)a, (double)b));
            return 0;
        }
        over = int_pow(a, b, &i);
        break;
    }
    if (over)
        return rt_fail(rt, "an integer does not fit 64 bits");
    *out = V_INT(i);
    return 0;
}

static int float_op(struct rt *rt, int op, double a, double b, struct val *out)
{
    double f = 0;

    if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && b == 0)
        return rt_fail(rt, "division by zero");
    switch (op) {
    case OP_ADD:
        f = a + b;
        break;
    case OP_SUB:
        f = a - b;
        break;
    case OP_MUL:
        f = a * b;
        break;
    case OP_DIV:
        f = a / b;
        break;
    case OP_FLOORDIV:
        f = floor(a / b);
        break;
    case OP_MOD:
        f = fmod(a, b);
        f = f != 0 && (f < 0) != (b < 0) ? f + b : f == 0 ? copysign(0, b) : f;
        break;
    case OP_POW:
        f = pow(a, b);
        if (isnan(f) && !isnan(a) && !isnan(b))
            return rt_fail(rt, "complex numbers are not supported");
        break;
    }
    *out = V_FLOAT(f);
    return 0;
}

/* ---- strings and lists */

static int repeat_text(struct rt *rt, struct text *t, int64_t times, struct val *out)
{
    struct blob *b = blob_new(rt);
    struct text *result;

    if (!b || (times > 0 && t->n && (size_t)times > rt->max_output / t->n))
        return b ? err_set(rt->e, ERR_TOO_LARGE, "line %u: a repeated string is too long", rt->line)
                 : -1;
    for (int64_t i = 0; i < times && t->n; i++)
        if (rt_spend(rt, 1) || blob_put_text(rt, b, t))
            return -1;
    if (!(result = blob_text(rt, b)))
        return -1;
    *out = V_STR(result);
    return 0;
}

static int repeat_list(struct rt *rt, struct val v, int64_t times, struct val *out)
{
    struct val_list *l = list_new(rt, 0);

    if (!l)
        return -1;
    l->trusted = v.u.list->trusted;
    for (int64_t i = 0; i < times && v.u.list->n; i++)
        for (size_t k = 0; k < v.u.list->n; k++)
            if (rt_spend(rt, 1) || list_push(rt, l, v.u.list->v[k]))
                return -1;
    *out = V(v.type, list, l);
    return 0;
}

static int join_lists(struct rt *rt, struct val a, struct val b, struct val *out)
{
    struct val_list *l = list_new(rt, a.u.list->n + b.u.list->n);

    if (!l)
        return -1;
    l->trusted = a.u.list->trusted && b.u.list->trusted;
    for (size_t i = 0; i < a.u.list->n; i++)
        l->v[l->n++] = a.u.list->v[i];
    for (size_t i = 0; i < b.u.list->n; i++)
        l->v[l->n++] = b.u.list->v[i];
    *out = V(a.type, list, l);
    return 0;
}

static bool is_repeatable(struct val v)
{
    return v.type == T_STR || v.type == T_LIST || v.type == T_TUPLE;
}

static int repeat(struct rt *rt, struct val v, struct val times, struct val *out)
{
    int64_t n = val_int(times);

    return v.type == T_STR ? repeat_text(rt, v.u.s, n, out) : repeat_list(rt, v, n, out);
}

int op_binary(struct rt *rt, int op, struct val a, struct val b, struct val *out)
{
    bool is_int_b = b.type == T_INT || b.type == T_BOOL;
    bool is_int_a = a.type == T_INT || a.type == T_BOOL;
    int rc;

    if (val_is_number(a) && val_is_number(b)) {
        rc = is_int_a && is_int_b ? int_op(rt, op, val_int(a), val_int(b), out)
                                  : float_op(rt, op, val_float(a), val_float(b), out);
        out->trusted = a.trusted && b.trusted;
        return rc;
    }
    if (op == OP_ADD && a.type == T_STR && b.type == T_STR) {
        struct text *t = text_cat(rt, a.u.s, b.u.s);
        if (t)
            *out = V_STR(t);
        return t ? 0 : -1;
    }
    if (op == OP_ADD && a.type == b.type && (a.type == T_LIST || a.type == T_TUPLE))
        return join_lists(rt, a, b, out);
    if (op == OP_MUL && is_repeatable(a) && is_int_b)
        return repeat(rt, a, b, out);
    if (op == OP_MUL && is_repeatable(b) && is_int_a)
        return repeat(rt, b, a, out);
    if (op == OP_MOD && a.type == T_STR)
        return str_percent(rt, a.u.s, b, out);
    return bad_operands(rt, op, a, b);
}

/* ---- items, slices, attributes */

static int list_at(struct rt *rt, struct val v, struct val key, struct val *out)
{
    size_t n;

    *out = V_UNDEFINED(NULL);
    if (key.type != T_INT && key.type != T_BOOL)
        return 0;
    if (val_length(rt, v, &n))
        return -1;
    int64_t i = val_int(key);
    i += i < 0 ? (int64_t)n : 0;
    if (i < 0 || (uint64_t)i >= n)
        return 0;
    if (v.type != T_STR) {
        *out = v.u.list->v[i];
        return 0;
    }
    size_t at;
    if (text_offset(rt, v.u.s, (size_t)i, &at))
        return -1;
    size_t len = char_len((struct str){ v.u.s->p + at, v.u.s->n - at }, NULL);
    struct text *t = text_part(rt, v.u.s, at, len);
    if (t)
        *out = V_STR(t);
    return t ? 0 : -1;
}

/* getattr(): methods, loop members, namespace members. T_MISSING if there is none. */
static int get_attribute(struct rt *rt, struct val v, struct text *name, struct val *out)
{
    const struct callable *m = method_find(v, text_str(name));

    *out = (struct val){ .type = T_MISSING };
    if (m) {
        struct bound_method *b = rt_alloc(rt, sizeof(*b));
        if (!b)
            return -1;
        *b = (struct bound_method){ m, v };
        *out = V(T_METHOD, bound, b);
    } else if (v.type == T_NAMESPACE) {
        struct dict_entry *e;
        if (dict_find(rt, v.u.dict, V_STR(name), &e))
            return -1;
        if (e)
            *out = e->value;
    } else if (v.type == T_LOOP) {
        return loop_attr(rt, v.u.loop, text_str(name), out);
    }
    return 0;
}

/* Lists and dicts cannot be keys, nor can tuples of them; deeper nesting fails when it is
 * hashed. */
static bool is_hashable(struct val v)
{
    if (v.type != T_TUPLE)
        return v.type != T_LIST && v.type != T_DICT;
    for (size_t i = 0; i < v.u.list->n; i++)
        if (v.u.list->v[i].type == T_LIST || v.u.list->v[i].type == T_DICT)
            return false;
    return true;
}

static int dict_at(struct rt *rt, struct val v, struct val key, struct val *out)
{
    struct dict_entry *e = NULL;

    if (key.type == T_TUPLE && rt_spend(rt, key.u.list->n / 8))
        return -1;
    if (is_hashable(key) && dict_find(rt, v.u.dict, key, &e))
        return -1;
    *out = e ? e->value : (struct val){ .type = T_MISSING };
    return 0;
}

int op_item(struct rt *rt, struct val v, struct val key, struct val *out)
{
    *out = (struct val){ .type = T_MISSING };
    if (v.type == T_UNDEFINED)
        return fail_undefined(rt, v);
    if (v.type == T_DICT && dict_at(rt, v, key, out))
        return -1;
    if (out->type == T_MISSING && key.type == T_STR && get_attribute(rt, v, key.u.s, out))
        return -1;
    if (out->type != T_MISSING)
        return 0;
    if (v.type == T_LIST || v.type == T_TUPLE || v.type == T_RANGE || v.type == T_STR)
        return list_at(rt, v, key, out);
    *out = V_UNDEFINED(key.type == T_STR ? key.u.s : NULL);
    return 0;
}

int op_attr(struct rt *rt, struct val v, struct text *name, struct val *out)
{
    if (v.type == T_UNDEFINED)
        return fail_undefined(rt, v);
    if (get_attribute(rt, v, name, out))
        return -1;
    if (out->type == T_MISSING && v.type == T_DICT && dict_at(rt, v, V_STR(name), out))
        return -1;
    if (out->type == T_MISSING)
        *out = V_UNDEFINED(name);
    return 0;
}

/* Result of Python's slice.indices(): first index, number of items, step. */
struct slice_indices {
    int64_t start, n, step;
};

static int64_t clamp(int64_t i, int64_t n, int64_t lo, int64_t hi)
{
    if (i < 0)
        i = i < -n ? lo : i + n;
    return i < lo ? lo : i > hi ? hi : i;
}

static struct slice_indices steps_of(const struct val part[3], int64_t n)
{
    int64_t step = part[2].type == T_INT || part[2].type == T_BOOL ? val_int(part[2]) : 1;
    int64_t lo = step < 0 ? -1 : 0, hi = step < 0 ? n - 1 : n;
    bool has_start = part[0].type == T_INT || part[0].type == T_BOOL;
    bool has_stop = part[1].type == T_INT || part[1].type == T_BOOL;
    int64_t start = has_start ? clamp(val_int(part[0]), n, lo, hi) : step < 0 ? hi : lo;
    int64_t stop = has_stop ? clamp(val_int(part[1]), n, lo, hi) : step < 0 ? lo : hi;
    int64_t count = 0;

    if (step > 0 && stop > start)
        count = (stop - start - 1) / step + 1;
    else if (step < 0 && stop < start)
        count = (start - stop - 1) / -(step == INT64_MIN ? step + 1 : step) + 1;
    return (struct slice_indices){ start, count, step };
}

static int slice_text(struct rt *rt, struct text *t, struct slice_indices s, struct val *out)
{
    struct blob *b;
    struct text *result;
    size_t from, to;

    if (s.step == 1 || s.n == 0) {
        if (text_offset(rt, t, (size_t)MAX(s.start, 0), &from) ||
            text_offset(rt, t, (size_t)(MAX(s.start, 0) + s.n), &to))
            return -1;
        result = text_part(rt, t, from, to - from);
    } else {
        struct val_list *chars;
        if (val_iterate(rt, V_STR(t), &chars) || !(b = blob_new(rt)))
            return -1;
        for (int64_t i = 0; i < s.n; i++)
            if (rt_spend(rt, 1) || blob_put_text(rt, b, chars->v[s.start + i * s.step].u.s))
                return -1;
        result = blob_text(rt, b);
    }
    if (result)
        *out = V_STR(result);
    return result ? 0 : -1;
}

static bool is_index(struct val v)
{
    return v.type == T_MISSING || v.type == T_NONE || v.type == T_INT || v.type == T_BOOL;
}

int op_slice(struct rt *rt, struct val v, const struct val part[3], struct val *out)
{
    bool is_seq = v.type == T_LIST || v.type == T_TUPLE || v.type == T_RANGE;
    size_t n;

    if (v.type == T_UNDEFINED)
        return fail_undefined(rt, v);
    if ((!is_seq && v.type != T_STR) || !is_index(part[0]) || !is_index(part[1]) ||
        !is_index(part[2]))
        return rt_fail(rt, "a %s cannot be sliced like this", type_name(v));
    if ((part[2].type == T_INT || part[2].type == T_BOOL) && val_int(part[2]) == 0)
        return rt_fail(rt, "slice step cannot be zero");
    if (val_length(rt, v, &n))
        return -1;
    struct slice_indices s = steps_of(part, (int64_t)n);
    if (v.type == T_STR)
        return slice_text(rt, v.u.s, s, out);
    bool is_part = s.step == 1 && s.n > 0;
    struct val_list *l =
        is_part ? list_part(rt, v.u.list, (size_t)s.start, (size_t)s.n) : list_new(rt, (size_t)s.n);
    if (!l)
        return -1;
    l->trusted = v.u.list->trusted;
    for (int64_t i = 0; i < s.n && !is_part; i++)
        l->v[l->n++] = v.u.list->v[s.start + i * s.step];
    *out = V(v.type, list, l);
    return 0;
}
