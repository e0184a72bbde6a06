/* buf.h: bytes that grow, up to a cap given at init.
 *
 * Over the cap, or when memory is gone, the buffer becomes `failed` and stays so: every
 * further put is a no-op, and whoever uses the bytes asks buf_ok() once at the end.
 * Owner: whoever holds it. */
#pragma once

#include "base/str.h"

struct buf {
    char *p; /* not terminated */
    size_t n, cap, max;
    bool failed;
};

static inline void buf_init(struct buf *b, size_t max)
{
    *b = (struct buf){ .max = max };
}
void buf_clear(struct buf *b); /* frees; reusable with the same cap */
static inline void buf_reset(struct buf *b)
{
    b->n = 0; /* keeps the memory */
    b->failed = false;
}
static inline bool buf_ok(const struct buf *b)
{
    return !b->failed;
}
static inline struct str buf_str(const struct buf *b)
{
    return (struct str){ b->p, b->n };
}

void buf_put_slow(struct buf *b, const void *p, size_t n);
static inline void buf_put(struct buf *b, const void *p, size_t n)
{
    if (!n || n > b->cap - b->n || b->failed) {
        buf_put_slow(b, p, n);
        return;
    }
    memcpy(b->p + b->n, p, n);
    b->n += n;
}
static inline void buf_puts(struct buf *b, struct str s)
{
    buf_put(b, s.p, s.n);
}
static inline void buf_putz(struct buf *b, const char *z)
{
    buf_put(b, z, strlen(z));
}
static inline void buf_putc(struct buf *b, char c)
{
    buf_put(b, &c, 1);
}
void buf_printf(struct buf *b, const char *fmt, ...) PRINTF(2, 3);
void buf_u64(struct buf *b, uint64_t v);

/* Room for n more bytes at the end, or NULL (then failed). Commit with b->n += used. */
char *buf_reserve(struct buf *b, size_t n) MUST_CHECK;

void buf_drop(struct buf *b, size_t n); /* the first n bytes go; the rest moves down */
struct str buf_steal(struct buf *b);    /* contents move out (mem_free them); b is empty */
