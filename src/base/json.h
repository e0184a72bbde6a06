/* json.h: JSON (RFC 8259), strict, in and out.
 *
 * In: a tree in an arena. Object members keep their order; duplicate keys are kept, json_get
 * finds the last. Numbers keep their text, so that 2^53+1 and 1.10 survive a round trip. Depth,
 * nodes and bytes are bounded; errors carry line and column. The whole input must be one value.
 *
 * Out: a writer into a struct buf that puts commas itself. Any thread. */
#pragma once

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

enum json_kind { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json {
    enum json_kind kind;
    bool b;             /* BOOL */
    bool is_int;        /* NUMBER: no fraction, no exponent */
    uint32_t n;         /* ARRAY, OBJECT: children */
    struct str s;       /* STRING: decoded; NUMBER: as written */
    struct str key;     /* when a member of an object: decoded */
    struct json *child; /* ARRAY, OBJECT: first child */
    struct json *next;  /* next sibling */
    struct str raw;     /* the bytes this value was parsed from */
};

struct json_limits {
    uint32_t max_depth, max_nodes;
};
extern const struct json_limits json_limits_default; /* 128 deep, 4 million nodes */

/* `text` must outlive the tree (strings without escapes point into it). ERR_SYNTAX "line 3,
 * column 7: ...", ERR_TOO_LARGE, ERR_MEMORY. */
int json_parse(struct json **out, struct str text, struct arena *a, const struct json_limits *l,
    struct err *e);

/* NULL: absent, or no object */
const struct json *json_get(const struct json *object, const char *key);
static inline bool json_is_null(const struct json *j) /* absent counts */
{
    return !j || j->kind == JSON_NULL;
}
bool json_i64(const struct json *j, int64_t *out); /* integral number in range, also 1e3 and 2.0 */
bool json_f64(const struct json *j, double *out);
bool json_equal(const struct json *a, const struct json *b); /* values; member order ignored */

/* ---- writing: jw_* put one value or key; containers nest up to 64. */

struct jw {
    struct buf *b;
    uint64_t has_items; /* bit per depth */
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
void jw_str(struct jw *w, struct str s); /* invalid UTF-8 becomes U+FFFD */
void jw_z(struct jw *w, const char *z);  /* NULL = null */
void jw_i64(struct jw *w, int64_t v);
void jw_u64(struct jw *w, uint64_t v);
void jw_f64(struct jw *w, double v); /* shortest that reads back; not finite = null */
void jw_f32(struct jw *w, float v);  /* shortest that reads back as this float */
void jw_bool(struct jw *w, bool v);
void jw_null(struct jw *w);
void jw_raw(struct jw *w, struct str json); /* already JSON */
void jw_json(struct jw *w, const struct json *j);
/* A key and its value. */
void jw_member_i64(struct jw *w, const char *key, int64_t v);
void jw_member_u64(struct jw *w, const char *key, uint64_t v);
void jw_member_f32(struct jw *w, const char *key, float v);
void jw_member_bool(struct jw *w, const char *key, bool v);
void jw_member_str(struct jw *w, const char *key, struct str s);

/* Only the escapes and text, without quotes. */
void json_escape(struct buf *b, struct str s);
