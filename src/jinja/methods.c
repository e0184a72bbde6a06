/* methods.c: methods of lists, tuples, dicts and loops, and the method lookup by type. Owner: the
 * thread that renders. */
#include "jinja/call.h"

/* ---- lists */

static int append(struct rt *rt, const struct val *in, struct val *out)
{
    *out = V_NONE;
    return list_push(rt, in[0].u.list, in[1]);
}

static int extend(struct rt *rt, const struct val *in, struct val *out)
{
    struct val_list *l;

    *out = V_NONE;
    if (val_iterate(rt, in[1], &l))
        return -1;
    for (size_t i = 0, n = l->n; i < n; i++)
        if (rt_spend(rt, 1) || list_push(rt, in[0].u.list, l->v[i]))
            return -1;
    return 0;
}

/* Clamps an index as list.insert does. */
static size_t clamp_index(int64_t i, size_t n)
{
    i += i < 0 ? (int64_t)n : 0;
    return i < 0 ? 0 : MIN((size_t)i, n);
}

static int insert(struct rt *rt, const struct val *in, struct val *out)
{
    struct val_list *l = in[0].u.list;
    int64_t i;

    *out = V_NONE;
    if (want_int(rt, in[1], &i) || list_own(rt, l) || list_push(rt, l, in[2]) ||
        rt_spend(rt, l->n / 4))
        return -1;
    size_t at = clamp_index(i, l->n - 1);
    memmove(l->v + at + 1, l->v + at, (l->n - 1 - at) * sizeof(*l->v));
    l->v[at] = in[2];
    return 0;
}

static int list_pop(struct rt *rt, const struct val *in, struct val *out)
{
    struct val_list *l = in[0].u.list;
    int64_t i = -1;

    if (in[1].type != T_MISSING && want_int(rt, in[1], &i))
        return -1;
    i += i < 0 ? (int64_t)l->n : 0;
    if (i < 0 || (uint64_t)i >= l->n)
        return rt_fail(rt, "pop index out of range");
    if (list_own(rt, l))
        return -1;
    *out = l->v[i];
    l->n--;
    memmove(l->v + i, l->v + i + 1, (l->n - (size_t)i) * sizeof(*l->v));
    return rt_spend(rt, l->n / 4);
}

static int index_of(struct rt *rt, const struct val *in, struct val *out)
{
    struct val_list *l = in[0].u.list;
    bool equal;

    for (size_t i = 0; i < l->n; i++) {
        if (rt_spend(rt, 1) || val_equal(rt, l->v[i], in[1], &equal))
            return -1;
        if (equal) {
            *out = V_INT((int64_t)i);
            return 0;
        }
    }
    return rt_fail(rt, "the value is not in the list");
}

static int count(struct rt *rt, const struct val *in, struct val *out)
{
    int64_t n = 0;
    bool equal;

    for (size_t i = 0; i < in[0].u.list->n; i++) {
        if (rt_spend(rt, 1) || val_equal(rt, in[0].u.list->v[i], in[1], &equal))
            return -1;
        n += equal;
    }
    *out = V_INT(n);
    return 0;
}

static int reverse(struct rt *rt, const struct val *in, struct val *out)
{
    struct val_list *l = in[0].u.list;

    *out = V_NONE;
    if (list_own(rt, l))
        return -1;
    for (size_t i = 0; i < l->n / 2; i++) {
        struct val v = l->v[i];
        l->v[i] = l->v[l->n - 1 - i];
        l->v[l->n - 1 - i] = v;
    }
    return rt_spend(rt, l->n / 4);
}

static int list_copy(struct rt *rt, const struct val *in, struct val *out)
{
    struct val_list *l = list_new(rt, in[0].u.list->n);

    if (!l)
        return -1;
    l->trusted = in[0].u.list->trusted;
    for (size_t i = 0; i < in[0].u.list->n; i++)
        l->v[l->n++] = in[0].u.list->v[i];
    *out = V(T_LIST, list, l);
    return 0;
}

static int list_clear(struct rt *rt, const struct val *in, struct val *out)
{
    *out = V_NONE;
    if (list_own(rt, in[0].u.list))
        return -1;
    in[0].u.list->n = 0;
    return 0;
}

static int list_remove(struct rt *rt, const struct val *in, struct val *out)
{
    struct val at, args[2];

    if (index_of(rt, in, &at))
        return -1;
    args[0] = in[0];
    args[1] = at;
    if (list_pop(rt, args, out))
        return -1;
    *out = V_NONE;
    return 0;
}

static const struct callable list_methods[] = {
    { "append", append, "_", 1, NULL },
    { "clear", list_clear, "", 0, NULL },
    { "copy", list_copy, "", 0, NULL },
    { "count", count, "_", 1, NULL },
    { "extend", extend, "_", 1, NULL },
    { "index", index_of, "_", 1, NULL },
    { "insert", insert, "_ _", 2, NULL },
    { "pop", list_pop, "_", 0, NULL },
    { "remove", list_remove, "_", 1, NULL },
    { "reverse", reverse, "", 0, NULL },
    { "sort", NULL, "", 0, NULL },
    { NULL, NULL, NULL, 0, NULL },
};

static const struct callable tuple_methods[] = {
    { "count", count, "_", 1, NULL },
    { "index", index_of, "_", 1, NULL },
    { NULL, NULL, NULL, 0, NULL },
};

/* ---- dicts */

static int get(struct rt *rt, const struct val *in, struct val *out)
{
    struct dict_entry *e;

    if (dict_find(rt, in[0].u.dict, in[1], &e))
        return -1;
    *out = e ? e->value : in[2].type == T_MISSING ? V_NONE : in[2];
    return 0;
}

enum view { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS };

static int view(struct rt *rt, struct dict *d, enum view which, struct val *out)
{
    struct val_list *l = list_new(rt, d->n);

    if (!l)
        return -1;
    l->trusted = d->trusted;
    for (size_t i = 0; i < d->n; i++) {
        struct val v = which == VIEW_KEYS ? d->e[i].key : d->e[i].value;
        if (which == VIEW_ITEMS) {
            struct val_list *pair = list_new(rt, 2);
            if (!pair)
                return -1;
            pair->trusted = d->trusted;
            pair->v[pair->n++] = d->e[i].key;
            pair->v[pair->n++] = d->e[i].value;
            v = V(T_TUPLE, list, pair);
        }
        l->v[l->n++] = v;
    }
    *out = V(T_VIEW, list, l);
    return 0;
}

static int items(struct rt *rt, const struct val *in, struct val *out)
{
    return view(rt, in[0].u.dict, VIEW_ITEMS, out);
}

static int keys(struct rt *rt, const struct val *in, struct val *out)
{
    return view(rt, in[0].u.dict, VIEW_KEYS, out);
}

static int values(struct rt *rt, const struct val *in, struct val *out)
{
    return view(rt, in[0].u.dict, VIEW_VALUES, out);
}

static int dict_pop(struct rt *rt, const struct val *in, struct val *out)
{
    struct dict_entry *e;

    if (dict_find(rt, in[0].u.dict, in[1], &e))
        return -1;
    if (!e && in[2].type == T_MISSING)
        return rt_fail(rt, "the key to pop is missing");
    *out = e ? e->value : in[2];
    return e ? dict_remove(rt, in[0].u.dict, e) : 0;
}

static int setdefault(struct rt *rt, const struct val *in, struct val *out)
{
    struct dict_entry *e;

    if (dict_find(rt, in[0].u.dict, in[1], &e))
        return -1;
    *out = e ? e->value : in[2].type == T_MISSING ? V_NONE : in[2];
    return e ? 0 : dict_put(rt, in[0].u.dict, in[1], *out);
}

static int put_all(struct rt *rt, struct dict *to, const struct dict *from)
{
    for (size_t i = 0; i < from->n; i++)
        if (rt_spend(rt, 1) || dict_put(rt, to, from->e[i].key, from->e[i].value))
            return -1;
    return 0;
}

static int update(struct rt *rt, struct val self, const struct args *args, struct val *out)
{
    *out = V_NONE;
    if (args->n > 1 || (args->n && args->v[0].type != T_DICT))
        return rt_fail(rt, "update() takes a dict");
    if (args->n && put_all(rt, self.u.dict, args->v[0].u.dict))
        return -1;
    for (int i = 0; i < args->n_kw; i++) {
        struct text *key = text_new(rt, args->kw[i].name, true);
        if (!key || dict_put(rt, self.u.dict, V_STR(key), args->kw[i].v))
            return -1;
    }
    return 0;
}

static int dict_copy(struct rt *rt, const struct val *in, struct val *out)
{
    struct dict *d = dict_new(rt);

    if (!d || put_all(rt, d, in[0].u.dict))
        return -1;
    d->trusted = in[0].u.dict->trusted;
    *out = V(T_DICT, dict, d);
    return 0;
}

static const struct callable dict_methods[] = {
    { "clear", NULL, "", 0, NULL },
    { "copy", dict_copy, "", 0, NULL },
    { "fromkeys", NULL, "", 0, NULL },
    { "get", get, "_ _", 1, NULL },
    { "items", items, "", 0, NULL },
    { "keys", keys, "", 0, NULL },
    { "pop", dict_pop, "_ _", 1, NULL },
    { "popitem", NULL, "", 0, NULL },
    { "setdefault", setdefault, "_ _", 1, NULL },
    { "update", NULL, "", 0, update },
    { "values", values, "", 0, NULL },
    { NULL, NULL, NULL, 0, NULL },
};

/* ---- loops */

static int cycle(struct rt *rt, struct val self, const struct args *args, struct val *out)
{
    if (!args->n || args->n_kw)
        return rt_fail(rt, "no items to cycle through");
    *out = args->v[self.u.loop->i % (size_t)args->n];
    return 0;
}

static int changed(struct rt *rt, struct val self, const struct args *args, struct val *out)
{
    struct val_list *l = list_new(rt, (size_t)args->n);
    struct for_loop *loop = self.u.loop;
    bool same = false;

    if (!l)
        return -1;
    for (int i = 0; i < args->n; i++)
        l->v[l->n++] = args->v[i];
    struct val now = V(T_TUPLE, list, l);
    if (loop->changed.type != T_MISSING && val_equal(rt, loop->changed, now, &same))
        return -1;
    loop->changed = now;
    *out = V_BOOL(!same);
    return 0;
}

const struct callable loop_methods[] = {
    { "cycle", NULL, "", 0, cycle },
    { "changed", NULL, "", 0, changed },
    { NULL, NULL, NULL, 0, NULL },
};

const struct callable *method_find(struct val self, struct str name)
{
    const struct callable *rows;

    switch (self.type) {
    case T_STR:
        rows = str_methods;
        break;
    case T_LIST:
        rows = list_methods;
        break;
    case T_TUPLE:
    case T_RANGE:
        rows = tuple_methods;
        break;
    case T_DICT:
        rows = dict_methods;
        break;
    case T_LOOP:
        rows = loop_methods;
        break;
    default:
        return NULL;
    }
    for (; rows->name; rows++)
        if (rows->name[0] == (name.n ? name.p[0] : 0) && str_is(name, rows->name))
            return rows;
    return NULL;
}
