/* cursor.h: bounds-checked reader of little-endian numbers from external bytes.
 *
 * A cursor cannot leave its buffer and remains in the failed state: after the first read beyond the
 * end, every read returns zero, and `at` stays at the start of the failed read. A record is
 * therefore read completely and checked once.
 *
 * Owner: one thread at a time. */
#pragma once

#include "base/str.h"

struct cursor {
    const uint8_t *p;
    size_t n, at;
    bool failed;
};

static inline size_t cursor_left(const struct cursor *c)
{
    return c->n - c->at;
}

/* Returns n bytes, borrowed; NULL and failed if fewer are left. */
static inline const uint8_t *cursor_take(struct cursor *c, uint64_t n)
{
    if (c->failed || n > cursor_left(c)) {
        c->failed = true;
        return NULL;
    }
    c->at += (size_t)n;
    return c->p + (c->at - n);
}

/* Reads a number of n <= 8 bytes. */
static inline uint64_t cursor_uint(struct cursor *c, size_t n)
{
    const uint8_t *p = cursor_take(c, n);
    uint64_t v = 0;

    for (size_t i = n; p && i-- > 0;)
        v = v << 8 | p[i];
    return v;
}

static inline uint32_t cursor_u32(struct cursor *c)
{
    return (uint32_t)cursor_uint(c, 4);
}

static inline uint64_t cursor_u64(struct cursor *c)
{
    return cursor_uint(c, 8);
}

/* Reads a string with its length (u64) before it. On failure `at` stays before the length. */
static inline struct str cursor_str(struct cursor *c)
{
    size_t start = c->at;
    uint64_t n = cursor_u64(c);
    const uint8_t *p = cursor_take(c, n);

    if (!p)
        c->at = start;
    return p ? (struct str){ (const char *)p, (size_t)n } : STR_NONE;
}
