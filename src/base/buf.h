/* buf.h: growing byte buffer with a cap that is set at initialisation.
 *
 * Above the cap, or without memory, the buffer becomes `failed` and remains so: further puts have
 * no effect, and the user of the bytes checks buf_ok() once at the end. The memory of a buffer may
 * count against a budget, which can refuse more of it: the same as a failed allocation.
 *
 * Owner: one thread at a time. */
#pragma once

#include "base/budget.h"
#include "base/str.h"

struct buf {
    char *p; /* not NUL-terminated */
    size_t n, cap, max;
    struct charge *charge; /* counts `cap` bytes; set while the buffer is empty. NULL: none */
    bool failed;
};

static inline void buf_init(struct buf *b, size_t max)
{
    *b = (struct buf){ .max = max };
}
/* frees the memory; the buffer can be used again with the same cap and charge */
void buf_clear(struct buf *b);
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

/* Returns space for n more bytes at the end, or NULL (then failed). The caller commits them with
 * b->n += used. */
char *buf_reserve(struct buf *b, size_t n) MUST_CHECK;

/* removes the first n bytes and moves the rest to the front */
void buf_drop(struct buf *b, size_t n);
/* moves the contents out, which are not counted from here on; the caller frees them with mem_free;
 * b is empty */
struct str buf_steal(struct buf *b);
