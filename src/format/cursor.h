/* cursor.h: reads little-endian numbers from bytes that somebody else wrote.
 *
 * A cursor cannot leave its bytes and stays failed: after the first read beyond the end every
 * further one gives zero, and `at` stays where the failing read began. So a record is read
 * whole and tested once. Owner: whoever holds it. */
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

/* n bytes, borrowed; NULL and failed when fewer are left. */
static inline const uint8_t *cursor_take(struct cursor *c, uint64_t n)
{
    if (c->failed || n > cursor_left(c)) {
        c->failed = true;
        return NULL;
    }
    c->at += (size_t)n;
    return c->p + (c->at - n);
}

/* A number of n <= 8 bytes. */
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

/* A string with its length in front (u64). A failed one leaves `at` before the length. */
static inline struct str cursor_str(struct cursor *c)
{
    size_t start = c->at;
    uint64_t n = cursor_u64(c);
    const uint8_t *p = cursor_take(c, n);

    if (!p)
        c->at = start;
    return p ? (struct str){ (const char *)p, (size_t)n } : STR_NONE;
}
