/* mem.h: the only door to the heap.
 *
 *   x...    small things of our own size: never fail, abort when memory is gone
 *   try...  anything sized by a file or a client: NULL when memory is gone, or when a fault
 *           test says so. The caller has bounded the size before it asks.
 *
 * noalloc_begin/end bracket code that may not allocate (the engine's step). In test builds an
 * allocation or a free inside aborts; in release builds the brackets cost nothing.
 *
 * INFERFLUX_FAULT=alloc:N (test builds) makes the Nth `try` allocation of the process fail;
 * mem_fail_after() does the same from a test. Any thread. */
#pragma once

#include "base/base.h"

void *xmalloc(size_t n) MUST_CHECK;
void *xcalloc(size_t n, size_t size) MUST_CHECK;
void *xrealloc(void *p, size_t n) MUST_CHECK;
char *xstrdup(const char *s) MUST_CHECK;

void *try_malloc(size_t n) MUST_CHECK;
void *try_calloc(size_t n, size_t size) MUST_CHECK;
void *try_realloc(void *p, size_t n) MUST_CHECK;
void *try_aligned(size_t align, size_t n) MUST_CHECK; /* free with mem_free */

void mem_free(void *p); /* NULL is fine */

/* Tests: the nth try_* from now on (1 = the next) returns NULL, once; 0 = never.
 * mem_failures() counts how many were failed since start. */
void mem_fail_after(uint64_t nth);
uint64_t mem_failures(void);

#ifdef TESTING
void noalloc_begin(const char *what);
void noalloc_end(void);
#else
static inline void noalloc_begin(const char *what)
{
    (void)what;
}
static inline void noalloc_end(void)
{
}
#endif
