/* value.h: values of a template: the subset of Python's types that templates use.
 *
 * A value is a 16-byte cell; data it points to is in the arena of the rendering. Scalars and
 * containers have an origin too: digits and brackets of a request are as untrusted as its strings.
 * Lists and dicts are shared by reference, as in Python.
 *
 * Functions return -1 with the error set. Owner: the thread that renders. */
#pragma once

#include "base/json.h"
#include "jinja/text.h"

enum val_type {
    T_MISSING, /* no value: a variable that was never set, an argument that was not given */
    T_UNDEFINED,
    T_NONE,
    T_BOOL,
    T_INT,
    T_BIG, /* integer beyond 64 bits, stored as digits; prints and compares, no arithmetic */
    T_FLOAT,
    T_STR,
    T_LIST,
    T_TUPLE,
    T_RANGE, /* immutable list */
    T_VIEW,  /* dict.items(), keys(), values(): iterable, has a length, no index */
    T_ITER,  /* generator: iterable once */
    T_DICT,
    T_NAMESPACE,
    T_LOOP,
    T_MACRO,
    T_FUNCTION, /* global function: range, raise_exception ... */
    T_METHOD,   /* method bound to its object */
    T_CYCLER,
    T_JOINER,
};

struct val {
    uint8_t type;
    bool trusted; /* origin of scalars */
    union {
        bool b;
        int64_t i;
        double f;
        struct text *s;        /* STR, BIG */
        struct val_list *list; /* LIST .. ITER, CYCLER, JOINER */
        struct dict *dict;     /* DICT, NAMESPACE */
        /* UNDEFINED: name of the missing variable or member; may be NULL */
        const struct text *name;
        struct for_loop *loop;
        struct macro *macro;
        const struct global_function *function;
        struct bound_method *bound;
    } u;
};

struct val_list {
    struct val *v;
    size_t n, cap;
    size_t at; /* CYCLER: next index; JOINER: number of uses */
    bool trusted;
    bool is_shared; /* other lists read v[0..n): a change copies the values first */
};

struct dict_entry {
    struct val key, value;
    uint64_t hash;
};

struct dict {
    struct dict_entry *e; /* in insertion order */
    size_t n, cap;
    uint32_t *index; /* entry number + 1, open addressing; NULL for a small dict */
    size_t index_cap;
    bool trusted;
};

#define V(t, member, x) ((struct val){ .type = (t), .trusted = true, .u.member = (x) })
#define V_NONE          ((struct val){ .type = T_NONE, .trusted = true })
#define V_BOOL(x)       V(T_BOOL, b, (x))
#define V_INT(x)        V(T_INT, i, (x))
#define V_FLOAT(x)      V(T_FLOAT, f, (x))
#define V_STR(x)        V(T_STR, s, (x))
#define V_UNDEFINED(x)  V(T_UNDEFINED, name, (x))

const char *type_name(struct val v); /* Python's names: "str", "dict" ... */

struct val_list *list_new(struct rt *rt, size_t room) MUST_CHECK;
int list_push(struct rt *rt, struct val_list *l, struct val v) MUST_CHECK;
/* The n members from index `from`, without copying them. */
struct val_list *list_part(struct rt *rt, struct val_list *l, size_t from, size_t n) MUST_CHECK;
/* call before members are moved, changed or removed */
int list_own(struct rt *rt, struct val_list *l) MUST_CHECK;

struct dict *dict_new(struct rt *rt) MUST_CHECK;
int dict_put(struct rt *rt, struct dict *d, struct val key, struct val v) MUST_CHECK;
int dict_put_z(struct rt *rt, struct dict *d, const char *key, struct val v) MUST_CHECK;
/* *out is NULL if there is no such key. An unhashable key is an error. */
int dict_find(struct rt *rt, struct dict *d, struct val key, struct dict_entry **out) MUST_CHECK;
struct val *dict_get_z(struct dict *d, const char *key); /* lookup by a string key; NULL: none */
int dict_remove(struct rt *rt, struct dict *d, struct dict_entry *e) MUST_CHECK;

bool val_truth(struct val v);
static inline bool val_is_number(struct val v)
{
    return v.type == T_INT || v.type == T_FLOAT || v.type == T_BOOL;
}
static inline bool val_has_list(struct val v)
{
    return v.type >= T_LIST && v.type <= T_ITER;
}
static inline int64_t val_int(struct val v) /* for an INT or BOOL */
{
    return v.type == T_BOOL ? v.u.b : v.u.i;
}
static inline double val_float(struct val v) /* for any number */
{
    return v.type == T_FLOAT ? v.u.f : (double)val_int(v);
}
static inline bool val_is(struct val v, const char *z)
{
    return v.type == T_STR && str_is(text_str(v.u.s), z);
}
bool val_same(struct val a, struct val b); /* same object: Python's `is` */
int val_equal(struct rt *rt, struct val a, struct val b, bool *out) MUST_CHECK;
/* *out is <0, 0 or >0 */
int val_order(struct rt *rt, struct val a, struct val b, int *out) MUST_CHECK;
int val_contains(struct rt *rt, struct val hay, struct val needle, bool *out) MUST_CHECK;
int val_length(struct rt *rt, struct val v, size_t *out) MUST_CHECK; /* Python's len() */

/* The members of an iterable as a list: characters of a string, keys of a dict. A list is returned
 * itself, not copied; a generator is consumed. */
int val_iterate(struct rt *rt, struct val v, struct val_list **out) MUST_CHECK;

int val_from_json(struct rt *rt, const struct json *j, bool trusted, struct val *out) MUST_CHECK;
int val_z(struct rt *rt, const char *z, struct val *out) MUST_CHECK; /* trusted; borrowed */

/* ---- print.c: str(), repr() and json.dumps(). */
int val_text(struct rt *rt, struct val v, struct text **out) MUST_CHECK;
int val_print(struct rt *rt, struct val v, struct blob *out) MUST_CHECK;
int val_repr(struct rt *rt, struct val v, struct blob *out) MUST_CHECK;

struct json_style {
    bool ascii, sort_keys;
    const struct text *indent;     /* NULL: single line */
    const struct text *item, *key; /* separators */
};
int val_dump(struct rt *rt, struct val v, const struct json_style *s, struct blob *out) MUST_CHECK;
size_t float_text(double f, char out[40]); /* repr(float) */

/* ---- ops.c: operators, items and attributes. */
int op_binary(struct rt *rt, int op, struct val a, struct val b, struct val *out) MUST_CHECK;
int op_item(struct rt *rt, struct val v, struct val key, struct val *out) MUST_CHECK; /* v[key] */
/* v.name */
int op_attr(struct rt *rt, struct val v, struct text *name, struct val *out) MUST_CHECK;
/* start, stop and step are T_MISSING if not written. */
int op_slice(struct rt *rt, struct val v, const struct val part[3], struct val *out) MUST_CHECK;
/* Sets the error for the use of an undefined value; returns -1. */
int fail_undefined(struct rt *rt, struct val v);
