#include "base/mem.h"
#include "base/fault.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static _Atomic uint64_t n_failures;

#ifdef TESTING
static _Thread_local const char *forbidden;

void noalloc_begin(const char *what)
{
    forbidden = what;
}

void noalloc_end(void)
{
    forbidden = NULL;
}

static void guard(void)
{
    if (forbidden) {
        fprintf(stderr, "heap used inside '%s'\n", forbidden);
        abort();
    }
}
#else
static void guard(void)
{
}
#endif

static void *or_die(void *p)
{
    CHECK(p && "out of memory");
    return p;
}

static bool told_to_fail(void)
{
    if (!fault_hit(FAULT_ALLOC))
        return false;
    atomic_fetch_add(&n_failures, 1);
    return true;
}

void *xmalloc(size_t n)
{
    guard();
    return or_die(malloc(n ? n : 1));
}

void *xcalloc(size_t n, size_t size)
{
    guard();
    return or_die(calloc(n ? n : 1, size ? size : 1));
}

void *xrealloc(void *p, size_t n)
{
    guard();
    return or_die(realloc(p, n ? n : 1));
}

char *xstrdup(const char *s)
{
    guard();
    return or_die(strdup(s));
}

void *try_malloc(size_t n)
{
    guard();
    return told_to_fail() ? NULL : malloc(n ? n : 1);
}

void *try_calloc(size_t n, size_t size)
{
    guard();
    return told_to_fail() ? NULL : calloc(n ? n : 1, size ? size : 1);
}

void *try_realloc(void *p, size_t n)
{
    guard();
    return told_to_fail() ? NULL : realloc(p, n ? n : 1);
}

void *try_aligned(size_t align, size_t n)
{
    void *p;

    guard();
    if (told_to_fail() || posix_memalign(&p, align, n ? n : 1))
        return NULL;
    return p;
}

void mem_free(void *p)
{
    guard();
    free(p);
}

void mem_fail_after(uint64_t nth)
{
    fault_arm(FAULT_ALLOC, nth);
}

uint64_t mem_failures(void)
{
    return atomic_load(&n_failures);
}
