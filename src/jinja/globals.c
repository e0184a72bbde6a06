/* globals.c: global functions of Jinja and of transformers. Owner: the thread that renders. */
#include "jinja/call.h"

enum { RANGE_MAX = 100000 }; /* limit of Jinja's sandbox */

static int namespace_new(struct rt *rt, struct val self, const struct args *args, struct val *out)
{
    struct dict *d = dict_new(rt);

    (void)self;
    if (!d)
        return -1;
    if (args->n > 1 || (args->n && args->v[0].type != T_DICT))
        return rt_fail(rt, "a dict is needed");
    for (size_t i = 0; args->n && i < args->v[0].u.dict->n; i++)
        if (rt_spend(rt, 1) ||
            dict_put(rt, d, args->v[0].u.dict->e[i].key, args->v[0].u.dict->e[i].value))
            return -1;
    for (int i = 0; i < args->n_kw; i++) {
        struct text *key = text_new(rt, args->kw[i].name, true);
        if (!key || dict_put(rt, d, V_STR(key), args->kw[i].v))
            return -1;
    }
    *out = V(T_NAMESPACE, dict, d);
    return 0;
}

static int dict_make(struct rt *rt, struct val self, const struct args *args, struct val *out)
{
    if (namespace_new(rt, self, args, out))
        return -1;
    out->type = T_DICT;
    return 0;
}

static int range(struct rt *rt, const struct val *in, struct val *out)
{
    int64_t a[3] = { 0, 0, 1 };

    for (int i = 0; i < 3; i++)
        if (in[i + 1].type != T_MISSING && want_int(rt, in[i + 1], &a[i]))
            return -1;
    if (in[2].type == T_MISSING) {
        a[1] = a[0];
        a[0] = 0;
    }
    if (a[2] == 0)
        return rt_fail(rt, "range() step must not be zero");
    double span = (double)a[1] - (double)a[0];
    if (span / (double)a[2] > RANGE_MAX)
        return rt_fail(rt, "a range has at most %d items", RANGE_MAX);
    struct val_list *l = list_new(rt, 0);
    if (!l)
        return -1;
    for (int64_t i = a[0]; a[2] > 0 ? i < a[1] : i > a[1];) {
        if (rt_spend(rt, 1) || list_push(rt, l, V_INT(i)))
            return -1;
        if (__builtin_add_overflow(i, a[2], &i))
            break;
    }
    *out = V(T_RANGE, list, l);
    return 0;
}

static int raise_exception(struct rt *rt, const struct val *in, struct val *out)
{
    struct text *t;

    (void)out;
    if (val_text(rt, in[1], &t))
        return -1;
    return err_set(rt->e, ERR_INVALID, STR_FMT, (int)MIN(t->n, sizeof(rt->e->msg)), t->p);
}

static int strftime_now(struct rt *rt, const struct val *in, struct val *out)
{
    char form[256];
    struct text *t;

    if (want_text(rt, in[1], &t))
        return -1;
    if (t->n >= sizeof(form))
        return rt_fail(rt, "strftime_now: the format is too long");
    memcpy(form, t->p, t->n);
    form[t->n] = '\0';
    struct text *made = text_of_now(rt, form, t->n && text_trusted_at(t, 0));
    if (made)
        *out = V_STR(made);
    return made ? 0 : -1;
}

static int cycler(struct rt *rt, struct val self, const struct args *args, struct val *out)
{
    struct val_list *l = list_new(rt, (size_t)args->n);

    (void)self;
    if (!l)
        return -1;
    if (!args->n || args->n_kw)
        return rt_fail(rt, "cycler() needs items");
    for (int i = 0; i < args->n; i++)
        l->v[l->n++] = args->v[i];
    *out = V(T_CYCLER, list, l);
    return 0;
}

static int joiner(struct rt *rt, const struct val *in, struct val *out)
{
    struct val_list *l = list_new(rt, 1);
    struct text *comma = text_new(rt, STR(", "), true);

    if (!l || !comma)
        return -1;
    l->v[l->n++] = in[1].type == T_MISSING ? V_STR(comma) : in[1];
    *out = V(T_JOINER, list, l);
    return 0;
}

static const struct global_function functions[] = {
    { { "namespace", NULL, "", 0, namespace_new } },
    { { "dict", NULL, "", 0, dict_make } },
    { { "range", range, "_ _ _", 1, NULL } },
    { { "raise_exception", raise_exception, "message", 1, NULL } },
    { { "strftime_now", strftime_now, "format", 1, NULL } },
    { { "cycler", NULL, "", 0, cycler } },
    { { "joiner", joiner, "sep", 0, NULL } },
};

const struct global_function *function_find(struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(functions); i++)
        if (str_is(name, functions[i].c.name))
            return &functions[i];
    return NULL;
}
