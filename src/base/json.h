/* json.h: JSON (RFC 8259), strict parser and writer.
 *
 * The parser builds a tree in an arena. Object members keep their order; duplicate keys are kept,
 * and json_get finds the last. Numbers keep their text, so that 2^53+1 and 1.10 survive a round
 * trip. Depth, number of nodes and size are bounded; errors contain line and column. The whole
 * input must be one value.
 *
 * The writer appends to a struct buf and inserts commas itself.
 *
 * Any thread; a tree or writer belongs to one thread at a time. */
#pragma once

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

enum json_kind { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json {
    enum json_kind kind;
    bool b;             /* value of a BOOL */
    bool is_int;        /* NUMBER: no fraction, no exponent */
    uint32_t n;         /* ARRAY, OBJECT: number of children */
    struct str s;       /* STRING: decoded; NUMBER: source text */
    struct str key;     /* decoded key, if this is a member of an object */
    struct json *child; /* ARRAY, OBJECT: first child */
    struct json *next;  /* next sibling */
    struct str raw;     /* source text of this value */
};

struct json_limits {
    uint32_t max_depth, max_nodes;
    /* not RFC 8259: Infinity, -Infinity and NaN, which Python's json module writes, are read as
     * strings */
    bool has_infinity;
};
extern const struct json_limits json_limits_default; /* depth 128, 4 million nodes */

/* `text` must outlive the tree (strings without escapes point into it). ERR_SYNTAX "line 3, column
 * 7: ...", ERR_TOO_LARGE, ERR_MEMORY. */
int json_parse(struct json **out, struct str text, struct arena *a, const struct json_limits *l,
    struct err *e);

/* Deep copy in `a` that does not point into the tree, its arena or its text. The source text of the
 * root is copied with it; `raw` of a value from another text becomes STR_NONE. NULL: no memory. */
struct json *json_copy(const struct json *j, struct arena *a) MUST_CHECK;

/* NULL: absent, or not an object */
const struct json *json_get(const struct json *object, const char *key);
/* Appends `take`, which is in no tree, to an object or array. *tail points to the link that ends
 * its children, at first &all->child. */
static inline void json_append(struct json *all, struct json ***tail, struct json *take)
{
    take->next = NULL;
    **tail = take;
    *tail = &take->next;
    all->n++;
}

static inline bool json_is_null(const struct json *j) /* true for an absent value */
{
    return !j || j->kind == JSON_NULL;
}
bool json_i64(const struct json *j, int64_t *out); /* integral number in range, also 1e3 and 2.0 */
bool json_f64(const struct json *j, double *out);
/* compares values; ignores the order of members */
bool json_equal(const struct json *a, const struct json *b);

/* ---- writing: each jw_* call writes one value or key; containers nest up to 64 deep */

struct jw {
    struct buf *b;
    uint64_t has_items; /* one bit per depth */
    int depth;
    bool after_key;
};

void jw_init(struct jw *w, struct buf *b);
void jw_object(struct jw *w);
void jw_end_object(struct jw *w);
void jw_array(struct jw *w);
void jw_end_array(struct jw *w);
void jw_key(struct jw *w, const char *key);
void jw_key_str(struct jw *w, struct str key);
void jw_str(struct jw *w, struct str s); /* invalid UTF-8 is written as U+FFFD */
void jw_z(struct jw *w, const char *z);  /* NULL = null */
void jw_i64(struct jw *w, int64_t v);
void jw_u64(struct jw *w, uint64_t v);
/* shortest text that parses to the same double; not finite = null */
void jw_f64(struct jw *w, double v);
void jw_f32(struct jw *w, float v); /* shortest text that parses to the same float */
void jw_bool(struct jw *w, bool v);
void jw_null(struct jw *w);
void jw_raw(struct jw *w, struct str json); /* inserts JSON text without changes */
void jw_json(struct jw *w, const struct json *j);
/* A key and its value. */
void jw_member_i64(struct jw *w, const char *key, int64_t v);
void jw_member_u64(struct jw *w, const char *key, uint64_t v);
void jw_member_f32(struct jw *w, const char *key, float v);
void jw_member_bool(struct jw *w, const char *key, bool v);
void jw_member_str(struct jw *w, const char *key, struct str s);

/* Writes the escaped text without quotes. */
void json_escape(struct buf *b, struct str s);
