/* str.h: borrowed byte string. Not NUL-terminated, may contain NUL; valid as long as the owner of
 * the bytes. Any thread. */
#pragma once

#include "base/base.h"

struct str {
    const char *p;
    size_t n;
};

#define STR(literal) ((struct str){ "" literal, sizeof(literal) - 1 })
#define STR_NONE     ((struct str){ NULL, 0 }) /* absent, as opposed to empty */
#define STR_FMT      "%.*s"
#define STR_ARG(s)   (int)(s).n, (s).p

static inline struct str str_of(const char *z)
{
    return (struct str){ z, z ? strlen(z) : 0 };
}
static inline bool str_eq(struct str a, struct str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}
static inline bool str_is(struct str a, const char *z)
{
    return str_eq(a, str_of(z));
}
static inline bool str_starts(struct str a, struct str prefix)
{
    return a.n >= prefix.n && (prefix.n == 0 || memcmp(a.p, prefix.p, prefix.n) == 0);
}
static inline bool str_ends(struct str a, struct str suffix)
{
    return a.n >= suffix.n && (!suffix.n || !memcmp(a.p + a.n - suffix.n, suffix.p, suffix.n));
}
/* The part of `a` from offset `from`; empty if there is none. */
static inline struct str str_skip(struct str a, size_t from)
{
    from = MIN(from, a.n);
    return (struct str){ a.p ? a.p + from : a.p, a.n - from };
}
bool str_eq_nocase(struct str a, struct str b);        /* ASCII only */
ptrdiff_t str_find(struct str hay, struct str needle); /* -1: absent */
struct str str_trim(struct str s);                     /* removes ASCII whitespace at both ends */
/* The whole string must be a decimal number in range; on false *out is unchanged. */
bool str_to_u64(struct str s, uint64_t *out);
bool str_to_i64(struct str s, int64_t *out);
bool str_to_f64(struct str s, double *out);
