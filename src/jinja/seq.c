/* seq.c: filters on sequences. Filters that are lazy in Python return a T_ITER whose items are
 * already computed. Owner: the thread that renders. */
#include "jinja/ast.h"

/* ---- sorting: a stable merge sort whose comparisons consume steps and may fail */

struct item {
    struct val key, value;
};

static int merge(struct rt *rt, struct item *v, struct item *tmp, size_t n, bool reverse)
{
    size_t mid = n / 2, i = 0, k = mid;

    memcpy(tmp, v, n * sizeof(*v));
    for (size_t at = 0; at < n; at++) {
        int order = -1;
        if (i < mid && k < n && (rt_spend(rt, 1) || val_order(rt, tmp[k].key, tmp[i].key, &order)))
            return -1;
        bool right = i == mid || (k < n && (reverse ? order > 0 : order < 0));
        v[at] = right ? tmp[k++] : tmp[i++];
    }
    return 0;
}

static int sort(struct rt *rt, struct item *v, struct item *tmp, size_t n, bool reverse)
{
    if (n < 2)
        return 0;
    return sort(rt, v, tmp, n / 2, reverse) || sort(rt, v + n / 2, tmp, n - n / 2, reverse) ||
                   merge(rt, v, tmp, n, reverse)
               ? -1
               : 0;
}

/* ---- keys */

/* item.a.0.b for the path "a.0.b"; v itself if there is no path. */
static int follow_path(struct rt *rt, struct val path, struct val v, struct val *out)
{
    *out = v;
    if (path.type == T_MISSING || path.type == T_NONE)
        return 0;
    if (path.type != T_STR)
        return op_item(rt, v, path, out);
    for (size_t at = 0; at <= path.u.s->n;) {
        struct str rest = str_skip(text_str(path.u.s), at);
        const char *dot = rest.n ? memchr(rest.p, '.', rest.n) : NULL;
        size_t n = dot ? (size_t)(dot - rest.p) : rest.n;
        struct text *part = text_part(rt, path.u.s, at, n);
        uint64_t number;
        if (!part)
            return -1;
        struct val key = V_STR(part), from = *out;
        if (str_to_u64((struct str){ rest.p, n }, &number) && number < INT32_MAX)
            key = V_INT((int64_t)number);
        if (op_item(rt, from, key, out))
            return -1;
        at += n + 1;
    }
    return 0;
}

/* Sort key: in lower case unless case_sensitive. */
static int sort_key(
    struct rt *rt, struct val path, bool case_sensitive, struct val v, struct val *out)
{
    if (follow_path(rt, path, v, out))
        return -1;
    return !case_sensitive && out->type == T_STR ? str_case(rt, out->u.s, CASE_LOWER, out) : 0;
}

static bool is_true_flag(struct val v)
{
    return v.type != T_MISSING && val_truth(v);
}

static int sort_into(
    struct rt *rt, struct item *items, size_t n, struct val reverse, struct val *out)
{
    struct item *tmp = rt_alloc(rt, MAX(n, (size_t)1) * sizeof(*tmp));
    struct val_list *l = list_new(rt, n);

    int64_t down = 0;
    if (!tmp || !l || (reverse.type != T_MISSING && want_int(rt, reverse, &down)) ||
        sort(rt, items, tmp, n, down != 0))
        return -1;
    for (size_t i = 0; i < n; i++)
        l->v[l->n++] = items[i].value;
    *out = V(T_LIST, list, l);
    return 0;
}

static int filter_sort(struct rt *rt, const struct val *in, struct val *out)
{
    struct val_list *l;

    if (val_iterate(rt, in[0], &l))
        return -1;
    struct item *items = rt_alloc(rt, MAX(l->n, (size_t)1) * sizeof(*items));
    if (!items)
        return -1;
    for (size_t i = 0; i < l->n; i++) {
        items[i].value = l->v[i];
        if (sort_key(rt, in[3], is_true_flag(in[2]), l->v[i], &items[i].key))
            return -1;
    }
    if (sort_into(rt, items, l->n, in[1], out))
        return -1;
    out->u.list->trusted = l->trusted;
    return 0;
}

static int pairs_of(struct rt *rt, struct dict *d, struct val_list **out)
{
    struct args none = { 0 };
    struct val self = V(T_DICT, dict, d), v;

    if (callable_call(rt, method_find(self, STR("items")), self, &none, &v))
        return -1;
    *out = v.u.list;
    return 0;
}

static int filter_dictsort(struct rt *rt, const struct val *in, struct val *out)
{
    bool by_value = in[2].type != T_MISSING && val_is(in[2], "value");
    struct val_list *l;

    if (in[0].type == T_UNDEFINED)
        return fail_undefined(rt, in[0]);
    if (in[0].type != T_DICT)
        return rt_fail(rt, "dictsort needs a dict, not a %s", type_name(in[0]));
    if (in[2].type != T_MISSING && !by_value && !val_is(in[2], "key"))
        return rt_fail(rt, "dictsort sorts by 'key' or 'value'");
    if (pairs_of(rt, in[0].u.dict, &l))
        return -1;
    struct item *items = rt_alloc(rt, MAX(l->n, (size_t)1) * sizeof(*items));
    if (!items)
        return -1;
    for (size_t i = 0; i < l->n; i++) {
        struct val key = l->v[i].u.list->v[by_value];
        items[i].value = l->v[i];
        if (sort_key(rt, V_NONE, is_true_flag(in[1]), key, &items[i].key))
            return -1;
    }
    return sort_into(rt, items, l->n, in[3], out);
}

static int extreme(struct rt *rt, const struct val *in, int sign, struct val *out)
{
    struct val best = { 0 }, key;
    struct val_list *l;
    int order;

    *out = V_UNDEFINED(NULL);
    if (val_iterate(rt, in[0], &l))
        return -1;
    for (size_t i = 0; i < l->n; i++) {
        if (rt_spend(rt, 1) || sort_key(rt, in[2], is_true_flag(in[1]), l->v[i], &key))
            return -1;
        if (i && val_order(rt, key, best, &order))
            return -1;
        if (!i || order * sign > 0) {
            best = key;
            *out = l->v[i];
        }
    }
    return 0;
}

static int filter_min(struct rt *rt, const struct val *in, struct val *out)
{
    return extreme(rt, in, -1, out);
}

static int filter_max(struct rt *rt, const struct val *in, struct val *out)
{
    return extreme(rt, in, 1, out);
}

/* ---- selection */

static int filter_unique(struct rt *rt, const struct val *in, struct val *out)
{
    struct val_list *l, *made = list_new(rt, 0);
    struct dict *seen = dict_new(rt);
    struct dict_entry *e;
    struct val key;

    if (!made || !seen || val_iterate(rt, in[0], &l))
        return -1;
    made->trusted = l->trusted;
    for (size_t i = 0; i < l->n; i++) {
        if (rt_spend(rt, 1) || sort_key(rt, in[2], is_true_flag(in[1]), l->v[i], &key) ||
            dict_find(rt, seen, key, &e))
            return -1;
        if (!e && (dict_put(rt, seen, key, V_NONE) || list_push(rt, made, l->v[i])))
            return -1;
    }
    *out = V(T_ITER, list, made);
    return 0;
}

/* Applies the test named by the first argument, or truth if there is none. */
static int passes_test(struct rt *rt, struct val v, const struct args *args, bool *out)
{
    struct val name, result = v;

    if (args->n) {
        name = args->v[0];
        const struct callable *c = name.type == T_STR ? test_find(text_str(name.u.s)) : NULL;
        struct args rest = { args->v + 1, args->kw, args->n - 1, args->n_kw };
        if (!c)
            return rt_fail(rt, "no such test");
        if (callable_call(rt, c, v, &rest, &result))
            return -1;
    }
    *out = val_truth(result);
    return 0;
}

static int select_items(struct rt *rt, struct val self, const struct args *args, bool by_attr,
    bool want, struct val *out)
{
    struct val_list *l, *made = list_new(rt, 0);
    struct val path = { .type = T_MISSING };
    struct args rest = *args;

    if (!made || (val_truth(self) && val_iterate(rt, self, &l)))
        return -1;
    *out = V(T_ITER, list, made);
    if (!val_truth(self))
        return 0;
    if (by_attr) {
        if (!args->n)
            return rt_fail(rt, "the name of an attribute is missing");
        path = args->v[0];
        rest.v++;
        rest.n--;
    }
    made->trusted = l->trusted;
    for (size_t i = 0; i < l->n; i++) {
        struct val v;
        bool pass = false;
        if (rt_spend(rt, 1) || follow_path(rt, path, l->v[i], &v) ||
            passes_test(rt, v, &rest, &pass))
            return -1;
        if (pass == want && list_push(rt, made, l->v[i]))
            return -1;
    }
    return 0;
}

static int filter_select(struct rt *rt, struct val self, const struct args *args, struct val *out)
{
    return select_items(rt, self, args, false, true, out);
}

static int filter_reject(struct rt *rt, struct val self, const struct args *args, struct val *out)
{
    return select_items(rt, self, args, false, false, out);
}

static int filter_selectattr(
    struct rt *rt, struct val self, const struct args *args, struct val *out)
{
    return select_items(rt, self, args, true, true, out);
}

static int filter_rejectattr(
    struct rt *rt, struct val self, const struct args *args, struct val *out)
{
    return select_items(rt, self, args, true, false, out);
}

/* ---- mapping */

static int map_attribute(
    struct rt *rt, struct val_list *l, const struct args *args, struct val_list *made)
{
    struct val path = { 0 }, fallback = { 0 };

    for (int i = 0; i < args->n_kw; i++) {
        if (str_is(args->kw[i].name, "attribute"))
            path = args->kw[i].v;
        else if (str_is(args->kw[i].name, "default"))
            fallback = args->kw[i].v;
        else
            return rt_fail(rt, "map takes no argument '" STR_FMT "'", STR_ARG(args->kw[i].name));
    }
    for (size_t i = 0; i < l->n; i++) {
        struct val v;
        if (rt_spend(rt, 1) || follow_path(rt, path, l->v[i], &v))
            return -1;
        if (v.type == T_UNDEFINED && fallback.type != T_MISSING && fallback.type != T_NONE)
            v = fallback;
        if (list_push(rt, made, v))
            return -1;
    }
    return 0;
}

static int filter_map(struct rt *rt, struct val self, const struct args *args, struct val *out)
{
    struct val_list *l, *made = list_new(rt, 0);

    if (!made || (val_truth(self) && val_iterate(rt, self, &l)))
        return -1;
    *out = V(T_ITER, list, made);
    if (!val_truth(self))
        return 0;
    made->trusted = l->trusted;
    if (!args->n && args->n_kw)
        return map_attribute(rt, l, args, made);
    if (!args->n || args->v[0].type != T_STR)
        return rt_fail(rt, "map needs the name of a filter");
    const struct callable *c = filter_find(text_str(args->v[0].u.s));
    struct args rest = { args->v + 1, args->kw, args->n - 1, args->n_kw };
    if (!c)
        return rt_fail(rt, "no such filter");
    for (size_t i = 0; i < l->n; i++) {
        struct val v;
        if (rt_enter(rt) || callable_call(rt, c, l->v[i], &rest, &v) || list_push(rt, made, v))
            return -1;
        rt_leave(rt);
    }
    return 0;
}

static int filter_join(struct rt *rt, const struct val *in, struct val *out)
{
    struct blob *b = blob_new(rt);
    struct text *sep = NULL, *t;
    struct val_list *l;

    if (!b || val_iterate(rt, in[0], &l) || (in[1].type != T_MISSING && val_text(rt, in[1], &sep)))
        return -1;
    for (size_t i = 0; i < l->n; i++) {
        struct val v;
        if (rt_spend(rt, 1) || follow_path(rt, in[2], l->v[i], &v) ||
            (i && sep && blob_put_text(rt, b, sep)) || val_print(rt, v, b))
            return -1;
    }
    if (!(t = blob_text(rt, b)))
        return -1;
    *out = V_STR(t);
    return 0;
}

static int filter_sum(struct rt *rt, const struct val *in, struct val *out)
{
    struct val_list *l;

    if (val_iterate(rt, in[0], &l))
        return -1;
    if (in[2].type == T_STR)
        return rt_fail(rt, "strings are joined, not summed");
    *out = in[2].type == T_MISSING ? V_INT(0) : in[2];
    for (size_t i = 0; i < l->n; i++) {
        struct val v, sum = *out;
        if (rt_spend(rt, 1) || follow_path(rt, in[1], l->v[i], &v) ||
            op_binary(rt, OP_ADD, sum, v, out))
            return -1;
    }
    return 0;
}

/* ---- structure */

static int filter_list(struct rt *rt, const struct val *in, struct val *out)
{
    struct val_list *l, *made;

    if (val_iterate(rt, in[0], &l) || !(made = list_new(rt, l->n)))
        return -1;
    made->trusted = l->trusted;
    for (size_t i = 0; i < l->n; i++)
        made->v[made->n++] = l->v[i];
    *out = V(T_LIST, list, made);
    return 0;
}

static int filter_first(struct rt *rt, const struct val *in, struct val *out)
{
    struct val_list *l;

    if (val_iterate(rt, in[0], &l))
        return -1;
    *out = l->n ? l->v[0] : V_UNDEFINED(NULL);
    return 0;
}

static int filter_last(struct rt *rt, const struct val *in, struct val *out)
{
    struct val_list *l;

    if (in[0].type == T_ITER)
        return rt_fail(rt, "a generator has no last item");
    if (val_iterate(rt, in[0], &l))
        return -1;
    *out = l->n ? l->v[l->n - 1] : V_UNDEFINED(NULL);
    return 0;
}

static int filter_reverse(struct rt *rt, const struct val *in, struct val *out)
{
    struct val step[3] = { { .type = T_MISSING }, { .type = T_MISSING }, V_INT(-1) };
    struct val list;

    if (in[0].type == T_STR)
        return op_slice(rt, in[0], step, out);
    if (filter_list(rt, in, &list) || op_slice(rt, list, step, out))
        return -1;
    out->type = T_ITER;
    return 0;
}

static int filter_items(struct rt *rt, const struct val *in, struct val *out)
{
    struct val_list *l;

    if (in[0].type == T_UNDEFINED) {
        if (!(l = list_new(rt, 0)))
            return -1;
    } else if (in[0].type != T_DICT) {
        return rt_fail(rt, "items needs a mapping, not a %s", type_name(in[0]));
    } else if (pairs_of(rt, in[0].u.dict, &l)) {
        return -1;
    }
    *out = V(T_ITER, list, l);
    return 0;
}

static int filter_batch(struct rt *rt, const struct val *in, struct val *out)
{
    struct val_list *l, *rows = list_new(rt, 0), *row = NULL;
    int64_t width;

    if (!rows || want_int(rt, in[1], &width) || val_iterate(rt, in[0], &l))
        return -1;
    if (width < 1)
        return rt_fail(rt, "batch: at least 1 item is needed");
    for (size_t i = 0; i < l->n; i++) {
        if (!row || (int64_t)row->n == width) {
            if (!(row = list_new(rt, 0)) || list_push(rt, rows, V(T_LIST, list, row)))
                return -1;
        }
        if (rt_spend(rt, 1) || list_push(rt, row, l->v[i]))
            return -1;
    }
    while (row && in[2].type != T_MISSING && in[2].type != T_NONE && (int64_t)row->n < width)
        if (rt_spend(rt, 1) || list_push(rt, row, in[2]))
            return -1;
    *out = V(T_ITER, list, rows);
    return 0;
}

const struct callable seq_filters[] = {
    { "batch", filter_batch, "linecount fill_with", 1, NULL },
    { "dictsort", filter_dictsort, "case_sensitive by reverse", 0, NULL },
    { "first", filter_first, "", 0, NULL },
    { "items", filter_items, "", 0, NULL },
    { "join", filter_join, "d attribute", 0, NULL },
    { "last", filter_last, "", 0, NULL },
    { "list", filter_list, "", 0, NULL },
    { "map", NULL, "", 0, filter_map },
    { "max", filter_max, "case_sensitive attribute", 0, NULL },
    { "min", filter_min, "case_sensitive attribute", 0, NULL },
    { "reject", NULL, "", 0, filter_reject },
    { "rejectattr", NULL, "", 0, filter_rejectattr },
    { "reverse", filter_reverse, "", 0, NULL },
    { "select", NULL, "", 0, filter_select },
    { "selectattr", NULL, "", 0, filter_selectattr },
    { "sort", filter_sort, "reverse case_sensitive attribute", 0, NULL },
    { "sum", filter_sum, "attribute start", 0, NULL },
    { "unique", filter_unique, "case_sensitive attribute", 0, NULL },
    { NULL, NULL, NULL, 0, NULL },
};
