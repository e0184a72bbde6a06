#include "base/mem.h"
#include "base/fault.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static _Atomic uint64_t n_failures;

#ifdef TESTING
static _Thread_local const char *noalloc_section;

void noalloc_begin(const char *what)
{
    noalloc_section = what;
}

void noalloc_end(void)
{
    noalloc_section = NULL;
}

static void check_noalloc(void)
{
    if (noalloc_section) {
        fprintf(stderr, "heap allocation inside '%s'\n", noalloc_section);
        abort();
    }
}
#else
static void check_noalloc(void)
{
}
#endif

static void *check_memory(void *p)
{
    CHECK(p && "out of memory");
    return p;
}

static bool has_injected_failure(void)
{
    if (!fault_hit(FAULT_ALLOC))
        return false;
    atomic_fetch_add(&n_failures, 1);
    return true;
}

void *xmalloc(size_t n)
{
    check_noalloc();
    return check_memory(malloc(n ? n : 1));
}

void *xcalloc(size_t n, size_t size)
{
    check_noalloc();
    return check_memory(calloc(n ? n : 1, size ? size : 1));
}

void *xrealloc(void *p, size_t n)
{
    check_noalloc();
    return check_memory(realloc(p, n ? n : 1));
}

char *xstrdup(const char *s)
{
    check_noalloc();
    return check_memory(strdup(s));
}

void *try_malloc(size_t n)
{
    check_noalloc();
    return has_injected_failure() ? NULL : malloc(n ? n : 1);
}

void *try_calloc(size_t n, size_t size)
{
    check_noalloc();
    return has_injected_failure() ? NULL : calloc(n ? n : 1, size ? size : 1);
}

void *try_realloc(void *p, size_t n)
{
    check_noalloc();
    return has_injected_failure() ? NULL : realloc(p, n ? n : 1);
}

void *try_aligned(size_t align, size_t n)
{
    void *p;

    check_noalloc();
    if (has_injected_failure() || posix_memalign(&p, align, n ? n : 1))
        return NULL;
    return p;
}

void mem_free(void *p)
{
    check_noalloc();
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
