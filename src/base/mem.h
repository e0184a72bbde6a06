/* mem.h: all heap allocations use these functions.
 *
 *   x...    small internal allocations: abort if there is no memory
 *   try...  sizes that depend on a file or a client: NULL if there is no memory or a fault is
 *           injected; the caller has bounded the size before
 *
 * noalloc_begin/end enclose code that must not allocate (the engine's step). In test builds an
 * allocation or a free in between aborts; in release builds the calls cost nothing.
 *
 * INFERFLUX_FAULT=alloc:N (test builds) makes the Nth `try` allocation of the process fail;
 * mem_fail_after() does the same from a test.
 *
 * Any thread. */
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

void mem_free(void *p); /* accepts NULL */

/* For tests: the nth try_* call from now (1 = the next) returns NULL, once; 0 = never.
 * mem_failures() returns the number of injected failures since the start. */
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
