#include "jinja/value.h"
#include "base/hash.h"
#include "base/utf8.h"

#include <math.h>
#include <stdlib.h>

/* INDEX_FROM: a dict with this number of entries gets an index */
enum { INDEX_FROM = 8, LIST_FIRST = 4 };

const char *type_name(struct val v)
{
    static const char *const names[] = {
        [T_MISSING] = "Undefined",
        [T_UNDEFINED] = "Undefined",
        [T_NONE] = "NoneType",
        [T_BOOL] = "bool",
        [T_INT] = "int",
        [T_BIG] = "int",
        [T_FLOAT] = "float",
        [T_STR] = "str",
        [T_LIST] = "list",
        [T_TUPLE] = "tuple",
        [T_RANGE] = "range",
        [T_VIEW] = "dict view",
        [T_ITER] = "generator",
        [T_DICT] = "dict",
        [T_NAMESPACE] = "Namespace",
        [T_LOOP] = "LoopContext",
        [T_MACRO] = "Macro",
        [T_FUNCTION] = "function",
        [T_METHOD] = "method",
        [T_CYCLER] = "Cycler",
        [T_JOINER] = "Joiner",
    };
    return names[v.type];
}

/* ---- lists */

struct val_list *list_new(struct rt *rt, size_t room)
{
    struct val_list *l = rt_alloc(rt, sizeof(*l));

    if (!l)
        return NULL;
    l->trusted = true;
    if (room) {
        if (room > SIZE_MAX / sizeof(struct val) || rt_spend(rt, room / 4))
            return NULL;
        l->v = rt_alloc(rt, room * sizeof(struct val));
        if (!l->v)
            return NULL;
        l->cap = room;
    }
    return l;
}

int list_push(struct rt *rt, struct val_list *l, struct val v)
{
    if (l->n == l->cap) {
        size_t cap = MAX(l->cap * 2, (size_t)LIST_FIRST);
        struct val *grown = rt_alloc(rt, cap * sizeof(*grown));
        if (!grown || rt_spend(rt, l->n / 4))
            return -1;
        if (l->n)
            memcpy(grown, l->v, l->n * sizeof(*grown));
        l->v = grown;
        l->cap = cap;
        l->is_shared = false;
    }
    l->v[l->n++] = v; /* after the shared members */
    return 0;
}

struct val_list *list_part(struct rt *rt, struct val_list *l, size_t from, size_t n)
{
    struct val_list *part = rt_alloc(rt, sizeof(*part));

    DCHECK(from <= l->n && n <= l->n - from);
    if (!part)
        return NULL;
    l->is_shared = true;
    *part = (struct val_list){
        .v = n ? l->v + from : NULL, .n = n, .cap = n, .trusted = l->trusted, .is_shared = true
    };
    return part;
}

int list_own(struct rt *rt, struct val_list *l)
{
    if (!l->is_shared)
        return 0;
    struct val *own = rt_alloc(rt, MAX(l->n, (size_t)1) * sizeof(*own));
    if (!own || rt_spend(rt, l->n / 4))
        return -1;
    if (l->n)
        memcpy(own, l->v, l->n * sizeof(*own));
    l->v = own;
    l->cap = MAX(l->n, (size_t)1);
    l->is_shared = false;
    return 0;
}

/* ---- dicts */

/* Equal values have equal hashes: 1, 1.0 and True are one key. Colliding keys cost steps, which are
 * limited per rendering, so the hash needs no secret. */
static int hash_of(struct rt *rt, struct val v, uint64_t *out)
{
    switch (v.type) {
    case T_STR:
    case T_BIG:
        *out = hash_bytes(0, text_str(v.u.s).p, v.u.s->n);
        return rt_spend_bytes(rt, v.u.s->n);
    case T_NONE:
        *out = 1;
        return 0;
    case T_BOOL:
    case T_INT:
        *out = hash_mix((uint64_t)val_int(v));
        return 0;
    case T_FLOAT:
        if (v.u.f >= -9e18 && v.u.f <= 9e18 && v.u.f == floor(v.u.f))
            *out = hash_mix((uint64_t)(int64_t)v.u.f);
        else
            memcpy(out, &v.u.f, sizeof(*out));
        return 0;
    case T_TUPLE:
        *out = v.u.list->n;
        if (rt_enter(rt))
            return -1;
        for (size_t i = 0; i < v.u.list->n; i++) {
            uint64_t h;
            if (hash_of(rt, v.u.list->v[i], &h))
                return -1;
            *out = hash_mix(*out ^ h);
        }
        rt_leave(rt);
        return 0;
    case T_LIST:
    case T_DICT:
        return rt_fail(rt, "unhashable type: '%s'", type_name(v));
    default:
        *out = (uint64_t)(uintptr_t)v.u.list;
        return 0;
    }
}

struct dict *dict_new(struct rt *rt)
{
    struct dict *d = rt_alloc(rt, sizeof(*d));

    if (d)
        d->trusted = true;
    return d;
}

static int lookup(
    struct rt *rt, struct dict *d, struct val key, uint64_t hash, struct dict_entry **out)
{
    bool equal;

    *out = NULL;
    if (!d->index) {
        for (size_t i = 0; i < d->n; i++) {
            if (d->e[i].hash != hash)
                continue;
            if (val_equal(rt, d->e[i].key, key, &equal))
                return -1;
            if (equal) {
                *out = &d->e[i];
                return 0;
            }
        }
        return 0;
    }
    for (size_t at = hash & (d->index_cap - 1);; at = (at + 1) & (d->index_cap - 1)) {
        if (!d->index[at])
            return 0;
        struct dict_entry *e = &d->e[d->index[at] - 1];
        if (rt_spend(rt, 1))
            return -1;
        if (e->hash != hash)
            continue;
        if (val_equal(rt, e->key, key, &equal))
            return -1;
        if (equal) {
            *out = e;
            return 0;
        }
    }
}

static int reindex(struct rt *rt, struct dict *d)
{
    if (d->n < INDEX_FROM) {
        d->index = NULL;
        return 0;
    }
    if (!d->index || d->n * 2 > d->index_cap) {
        size_t cap = 32;
        while (cap < d->n * 4)
            cap *= 2;
        d->index = rt_alloc(rt, cap * sizeof(*d->index));
        if (!d->index)
            return -1;
        d->index_cap = cap;
    } else {
        memset(d->index, 0, d->index_cap * sizeof(*d->index));
    }
    if (rt_spend(rt, d->n / 2))
        return -1;
    for (size_t i = 0; i < d->n; i++) {
        size_t at = d->e[i].hash & (d->index_cap - 1);
        while (d->index[at])
            at = (at + 1) & (d->index_cap - 1);
        d->index[at] = (uint32_t)i + 1;
    }
    return 0;
}

int dict_put(struct rt *rt, struct dict *d, struct val key, struct val v)
{
    struct dict_entry *e;
    uint64_t hash;

    if (hash_of(rt, key, &hash) || lookup(rt, d, key, hash, &e))
        return -1;
    if (e) {
        e->value = v;
        return 0;
    }
    if (d->n == d->cap) {
        size_t cap = MAX(d->cap * 2, (size_t)LIST_FIRST);
        struct dict_entry *grown = rt_alloc(rt, cap * sizeof(*grown));
        if (!grown || rt_spend(rt, d->n / 2))
            return -1;
        if (d->n)
            memcpy(grown, d->e, d->n * sizeof(*grown));
        d->e = grown;
        d->cap = cap;
    }
    d->e[d->n++] = (struct dict_entry){ key, v, hash };
    if (!d->index || d->n * 2 > d->index_cap)
        return reindex(rt, d);
    size_t at = hash & (d->index_cap - 1);
    while (d->index[at])
        at = (at + 1) & (d->index_cap - 1);
    d->index[at] = (uint32_t)d->n;
    return 0;
}

int dict_put_z(struct rt *rt, struct dict *d, const char *key, struct val v)
{
    struct val k;

    return val_z(rt, key, &k) ? -1 : dict_put(rt, d, k, v);
}

int dict_find(struct rt *rt, struct dict *d, struct val key, struct dict_entry **out)
{
    uint64_t hash;

    return hash_of(rt, key, &hash) ? -1 : lookup(rt, d, key, hash, out);
}

struct val *dict_get_z(struct dict *d, const char *key)
{
    for (size_t i = 0; i < d->n; i++)
        if (val_is(d->e[i].key, key))
            return &d->e[i].value;
    return NULL;
}

int dict_remove(struct rt *rt, struct dict *d, struct dict_entry *e)
{
    size_t after = d->n - (size_t)(e - d->e) - 1;

    memmove(e, e + 1, after * sizeof(*e));
    d->n--;
    return rt_spend(rt, after / 2) ? -1 : reindex(rt, d);
}

/* ---- truth, equality, order, length, iteration */

bool val_truth(struct val v)
{
    switch (v.type) {
    case T_MISSING:
    case T_UNDEFINED:
    case T_NONE:
        return false;
    case T_BOOL:
        return v.u.b;
    case T_INT:
        return v.u.i != 0;
    case T_FLOAT:
        return v.u.f != 0;
    case T_STR:
        return v.u.s->n != 0;
    case T_LIST:
    case T_TUPLE:
    case T_RANGE:
    case T_VIEW:
        return v.u.list->n != 0;
    case T_DICT:
        return v.u.dict->n != 0;
    default:
        return true;
    }
}

bool val_same(struct val a, struct val b)
{
    if (a.type != b.type)
        return false;
    switch (a.type) {
    case T_MISSING:
    case T_UNDEFINED:
    case T_NONE:
        return true;
    case T_BOOL:
        return a.u.b == b.u.b;
    case T_INT:
        return a.u.i == b.u.i;
    case T_FLOAT:
        return a.u.f == b.u.f;
    case T_STR:
        return str_eq(text_str(a.u.s), text_str(b.u.s));
    default:
        return a.u.list == b.u.list;
    }
}

static int lists_equal(struct rt *rt, const struct val_list *a, const struct val_list *b, bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n; i++)
        if (val_equal(rt, a->v[i], b->v[i], out))
            return -1;
    return 0;
}

static int dicts_equal(struct rt *rt, struct dict *a, struct dict *b, bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n; i++) {
        struct dict_entry *e;
        if (lookup(rt, b, a->e[i].key, a->e[i].hash, &e))
            return -1;
        *out = e != NULL;
        if (e && val_equal(rt, a->e[i].value, e->value, out))
            return -1;
    }
    return 0;
}

static bool numbers_equal(struct val a, struct val b)
{
    if (a.type == T_FLOAT || b.type == T_FLOAT)
        return val_float(a) == val_float(b);
    return val_int(a) == val_int(b);
}

int val_equal(struct rt *rt, struct val a, struct val b, bool *out)
{
    if (val_is_number(a) && val_is_number(b)) {
        *out = numbers_equal(a, b);
        return 0;
    }
    if (a.type != b.type) {
        *out = false;
        return 0;
    }
    switch (a.type) {
    case T_STR:
    case T_BIG:
        *out = str_eq(text_str(a.u.s), text_str(b.u.s));
        return *out ? rt_spend_bytes(rt, a.u.s->n) : 0;
    case T_LIST:
    case T_TUPLE:
    case T_RANGE:
    case T_DICT:
        *out = a.u.list == b.u.list;
        if (*out)
            return 0;
        if (rt_enter(rt) || (a.type == T_DICT ? dicts_equal(rt, a.u.dict, b.u.dict, out)
                                              : lists_equal(rt, a.u.list, b.u.list, out)))
            return -1;
        rt_leave(rt);
        return 0;
    default:
        *out = val_same(a, b);
        return 0;
    }
}

static int cannot_order(struct rt *rt, struct val a, struct val b)
{
    if (a.type == T_UNDEFINED || b.type == T_UNDEFINED)
        return fail_undefined(rt, a.type == T_UNDEFINED ? a : b);
    return rt_fail(rt, "'%s' and '%s' cannot be ordered", type_name(a), type_name(b));
}

static int order_lists(struct rt *rt, const struct val_list *a, const struct val_list *b, int *out)
{
    for (size_t i = 0; i < MIN(a->n, b->n); i++) {
        bool equal;
        if (val_equal(rt, a->v[i], b->v[i], &equal))
            return -1;
        if (!equal)
            return val_order(rt, a->v[i], b->v[i], out);
    }
    *out = (a->n > b->n) - (a->n < b->n);
    return 0;
}

int val_order(struct rt *rt, struct val a, struct val b, int *out)
{
    if (val_is_number(a) && val_is_number(b)) {
        if (a.type == T_FLOAT || b.type == T_FLOAT) {
            double x = val_float(a), y = val_float(b);
            *out = (x > y) - (x < y);
        } else {
            *out = (val_int(a) > val_int(b)) - (val_int(a) < val_int(b));
        }
        return 0;
    }
    if (a.type == T_STR && b.type == T_STR) {
        size_t n = MIN(a.u.s->n, b.u.s->n);
        int c = n ? memcmp(a.u.s->p, b.u.s->p, n) : 0;
        *out = c ? c : (a.u.s->n > b.u.s->n) - (a.u.s->n < b.u.s->n);
        return rt_spend_bytes(rt, n);
    }
    if (a.type != b.type || (a.type != T_LIST && a.type != T_TUPLE))
        return cannot_order(rt, a, b);
    if (rt_enter(rt) || order_lists(rt, a.u.list, b.u.list, out))
        return -1;
    rt_leave(rt);
    return 0;
}

int val_contains(struct rt *rt, struct val hay, struct val needle, bool *out)
{
    struct dict_entry *e;
    struct val_list *l;

    *out = false;
    if (hay.type == T_STR) {
        if (needle.type != T_STR)
            return needle.type == T_UNDEFINED ? fail_undefined(rt, needle)
                                              : rt_fail(rt, "'in <string>' requires a string");
        *out = str_find(text_str(hay.u.s), text_str(needle.u.s)) >= 0;
        return rt_spend_bytes(rt, hay.u.s->n);
    }
    if (hay.type == T_DICT) {
        if (dict_find(rt, hay.u.dict, needle, &e))
            return -1;
        *out = e != NULL;
        return 0;
    }
    if (val_iterate(rt, hay, &l))
        return -1;
    for (size_t i = 0; !*out && i < l->n; i++)
        if (rt_spend(rt, 1) || val_equal(rt, l->v[i], needle, out))
            return -1;
    return 0;
}

int val_length(struct rt *rt, struct val v, size_t *out)
{
    switch (v.type) {
    case T_UNDEFINED:
        *out = 0;
        return 0;
    case T_STR:
        return text_n_chars(rt, v.u.s, out);
    case T_LIST:
    case T_TUPLE:
    case T_RANGE:
    case T_VIEW:
        *out = v.u.list->n;
        return 0;
    case T_DICT:
        *out = v.u.dict->n;
        return 0;
    default:
        return rt_fail(rt, "object of type '%s' has no length", type_name(v));
    }
}

static int characters(struct rt *rt, struct text *t, struct val_list **out)
{
    size_t n;

    if (text_n_chars(rt, t, &n) || rt_spend(rt, n) || !(*out = list_new(rt, n)))
        return -1;
    for (size_t i = 0; i < t->n;) {
        size_t len = char_len((struct str){ t->p + i, t->n - i }, NULL);
        struct text *c = text_part(rt, t, i, len);
        if (!c || list_push(rt, *out, V_STR(c)))
            return -1;
        i += len;
    }
    return 0;
}

int val_iterate(struct rt *rt, struct val v, struct val_list **out)
{
    switch (v.type) {
    case T_UNDEFINED:
        *out = list_new(rt, 0);
        return *out ? 0 : -1;
    case T_STR:
        return characters(rt, v.u.s, out);
    case T_LIST:
    case T_TUPLE:
    case T_RANGE:
    case T_VIEW:
        *out = v.u.list;
        return 0;
    case T_ITER:
        *out = rt_alloc(rt, sizeof(**out));
        if (!*out)
            return -1;
        **out = *v.u.list;
        v.u.list->n = 0;
        return 0;
    case T_DICT:
        *out = list_new(rt, v.u.dict->n);
        for (size_t i = 0; *out && i < v.u.dict->n; i++)
            if (list_push(rt, *out, v.u.dict->e[i].key))
                return -1;
        return *out ? 0 : -1;
    default:
        return rt_fail(rt, "'%s' object is not iterable", type_name(v));
    }
}

/* ---- conversion from JSON */

static int number_from_json(struct rt *rt, const struct json *j, struct val *out)
{
    int64_t i;
    double f;

    if (j->is_int && str_to_i64(j->s, &i)) {
        *out = V_INT(i);
    } else if (j->is_int) {
        struct text *digits = text_new(rt, j->s, false);
        if (!digits)
            return -1;
        *out = V(T_BIG, s, digits);
    } else {
        char copy[400];
        /* json_f64 rejects an overflow; Python reads it as infinity. */
        if (!json_f64(j, &f)) {
            if (j->s.n >= sizeof(copy))
                return rt_fail(rt, "a number is too long");
            memcpy(copy, j->s.p, j->s.n);
            copy[j->s.n] = '\0';
            f = strtod(copy, NULL);
        }
        *out = V_FLOAT(f);
    }
    return 0;
}

static int object_from_json(struct rt *rt, const struct json *j, bool trusted, struct val *out)
{
    struct dict *d = dict_new(rt);

    if (!d)
        return -1;
    d->trusted = trusted;
    for (const struct json *c = j->child; c; c = c->next) {
        struct text *key = text_new(rt, c->key, trusted);
        struct val v;
        if (!key || val_from_json(rt, c, trusted, &v) || dict_put(rt, d, V_STR(key), v))
            return -1;
    }
    *out = V(T_DICT, dict, d);
    return 0;
}

static int array_from_json(struct rt *rt, const struct json *j, bool trusted, struct val *out)
{
    struct val_list *l = list_new(rt, j->n);

    if (!l)
        return -1;
    l->trusted = trusted;
    for (const struct json *c = j->child; c; c = c->next) {
        struct val v;
        if (val_from_json(rt, c, trusted, &v) || list_push(rt, l, v))
            return -1;
    }
    *out = V(T_LIST, list, l);
    return 0;
}

int val_from_json(struct rt *rt, const struct json *j, bool trusted, struct val *out)
{
    struct text *t;
    int rc = 0;

    if (rt_enter(rt))
        return -1;
    switch (j->kind) {
    case JSON_NULL:
        *out = V_NONE;
        break;
    case JSON_BOOL:
        *out = V_BOOL(j->b);
        break;
    case JSON_NUMBER:
        rc = number_from_json(rt, j, out);
        break;
    case JSON_STRING:
        t = text_new(rt, j->s, trusted);
        rc = t ? 0 : -1;
        if (t)
            *out = V_STR(t);
        break;
    case JSON_ARRAY:
        rc = array_from_json(rt, j, trusted, out);
        break;
    case JSON_OBJECT:
        rc = object_from_json(rt, j, trusted, out);
        break;
    }
    rt_leave(rt);
    out->trusted = trusted;
    return rc;
}

int val_z(struct rt *rt, const char *z, struct val *out)
{
    struct text *t = text_new(rt, str_of(z), true);

    if (t)
        *out = V_STR(t);
    return t ? 0 : -1;
}
