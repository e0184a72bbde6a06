/* call.h: callables of a template: filters, tests, methods, global functions, macros.
 *
 * Each callable is a table entry. Most have a parameter list ("chars count"): the arguments are
 * bound to it in in[1..], T_MISSING if not given, and in[0] is the subject. Entries with `raw`
 * receive the arguments unbound. Read-only tables; any thread. */
#pragma once

#include "jinja/value.h"

enum { PARAMS_MAX = 6, ARGS_MAX = 64 };

struct kwarg {
    struct str name;
    struct val v;
};

struct args {
    const struct val *v;
    const struct kwarg *kw;
    int n, n_kw;
};

typedef int (*bound_fn)(struct rt *rt, const struct val *in, struct val *out);
typedef int (*raw_fn)(struct rt *rt, struct val self, const struct args *args, struct val *out);

struct callable {
    const char *name;
    bound_fn fn;        /* NULL, with `raw` NULL too: exists in Python, not supported here */
    const char *params; /* names in order, separated by blanks */
    int min;            /* number of mandatory arguments */
    raw_fn raw;
};

struct global_function {
    struct callable c;
};

struct bound_method { /* a method bound to its object */
    const struct callable *method;
    struct val self;
};

struct for_loop {
    struct val_list *items;
    size_t i;
    size_t depth0;
    struct val changed; /* last argument of loop.changed() */
};

int callable_call(struct rt *rt, const struct callable *c, struct val self, const struct args *args,
    struct val *out) MUST_CHECK;

const struct callable *filter_find(struct str name); /* NULL if there is none */
const struct callable *test_find(struct str name);
const struct callable *method_find(struct val self, struct str name);
const struct global_function *function_find(struct str name);

extern const struct callable str_methods[]; /* ends with a NULL name */
extern const struct callable seq_filters[];
extern const struct callable text_filters[];
extern const struct callable loop_methods[];

/* Requires a string argument; any other type is an error. */
int want_text(struct rt *rt, struct val v, struct text **out) MUST_CHECK;
int want_int(struct rt *rt, struct val v, int64_t *out) MUST_CHECK;

int loop_attr(struct rt *rt, struct for_loop *l, struct str name, struct val *out) MUST_CHECK;

/* ---- str.c, case.c, format.c: string operations shared by filters and methods. */
enum { STRIP_LEFT = 1, STRIP_RIGHT = 2, STRIP_BOTH = 3 };
int str_strip(
    struct rt *rt, struct text *t, struct val chars, int sides, struct val *out) MUST_CHECK;
int str_replace(
    struct rt *rt, struct text *t, const struct val *from_to_count, struct val *out) MUST_CHECK;
int str_format(struct rt *rt, struct text *fmt, const struct args *args,
    struct val *out) MUST_CHECK; /* "{} {name}" */
int str_percent(
    struct rt *rt, struct text *fmt, struct val arg, struct val *out) MUST_CHECK; /* "%s" */

enum change_case { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITALIZE, CASE_SWAP, CASE_WORDS };
enum char_class {
    CLASS_ALPHA,
    CLASS_DIGIT,
    CLASS_DECIMAL,
    CLASS_NUMERIC,
    CLASS_ALNUM,
    CLASS_SPACE,
    CLASS_ASCII,
    CLASS_UPPER,
    CLASS_LOWER
};
bool str_is_class(struct str s, enum char_class cls);
int str_case(struct rt *rt, struct text *t, enum change_case how, struct val *out) MUST_CHECK;
