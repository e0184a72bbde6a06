#include "base/buf.h"
#include "base/limits.h"
#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>

/* Forgets the memory, which is counted no more. */
static void detach(struct buf *b)
{
    if (b->charge)
        charge_sub(b->charge, b->cap);
    *b = (struct buf){ .max = b->max, .charge = b->charge };
}

void buf_clear(struct buf *b)
{
    mem_free(b->p);
    detach(b);
}

/* Sets the capacity, which is not below the current one. */
static bool grow(struct buf *b, size_t cap)
{
    size_t more = cap - b->cap;

    if (b->charge && !charge_add(b->charge, more))
        return false;
    char *p = try_realloc(b->p, cap);
    if (!p) {
        if (b->charge)
            charge_sub(b->charge, more);
        return false;
    }
    b->p = p;
    b->cap = cap;
    return true;
}

char *buf_reserve(struct buf *b, size_t n)
{
    if (b->failed || n > b->max - b->n) {
        b->failed = true;
        return NULL;
    }
    if (n > b->cap - b->n || !b->p) {
        size_t cap = MAX(MAX(b->cap + b->cap / 2, b->n + n), (size_t)BUF_FIRST);
        cap = MIN(cap, b->max ? b->max : 1);
        if (!grow(b, cap)) {
            b->failed = true;
            return NULL;
        }
    }
    return b->p + b->n;
}

void buf_put_slow(struct buf *b, const void *p, size_t n)
{
    if (!n)
        return;
    char *to = buf_reserve(b, n);
    if (to) {
        memcpy(to, p, n);
        b->n += n;
    }
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    char small[256];
    va_list ap, again;

    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(small, sizeof(small), fmt, ap);
    va_end(ap);
    CHECK(n >= 0);
    if ((size_t)n < sizeof(small)) {
        buf_put(b, small, (size_t)n);
    } else {
        char *to = buf_reserve(b, (size_t)n + 1);
        if (to) {
            vsnprintf(to, (size_t)n + 1, fmt, again);
            b->n += (size_t)n;
        }
    }
    va_end(again);
}

void buf_u64(struct buf *b, uint64_t v)
{
    char digits[20];
    size_t i = sizeof(digits);

    do
        digits[--i] = (char)('0' + v % 10);
    while (v /= 10);
    buf_put(b, digits + i, sizeof(digits) - i);
}

void buf_drop(struct buf *b, size_t n)
{
    CHECK(n <= b->n);
    if (n && n < b->n)
        memmove(b->p, b->p + n, b->n - n);
    b->n -= n;
}

struct str buf_steal(struct buf *b)
{
    struct str s = { b->p, b->n };

    detach(b);
    return s;
}
