/* base.h: definitions for every file. It includes no other header of this project.
 *
 * Three kinds of conditions:
 *
 *   CHECK(x)   internal invariant; aborts with file and line, in every build
 *   DCHECK(x)  the same for inner loops; only in test builds
 *   if (...)   all input from outside */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define MUST_CHECK   __attribute__((warn_unused_result))
#define PRINTF(f, a) __attribute__((format(printf, f, a)))
#define NORETURN     __attribute__((noreturn))
#define EXPORT       __attribute__((visibility("default")))
#define ALIGNED(n)   __attribute__((aligned(n)))

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)    ((a) < (b) ? (a) : (b))
#define MAX(a, b)    ((a) > (b) ? (a) : (b))
#define KB           ((size_t)1024)
#define MB           (1024 * KB)
#define GB           (1024 * MB)
#define NS_PER_MS    ((uint64_t)1000000)
#define NS_PER_S     ((uint64_t)1000000000)

NORETURN void check_failed(const char *file, int line, const char *what);

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (__builtin_expect(!(x), 0))                                                             \
            check_failed(__FILE__, __LINE__, #x);                                                  \
    } while (0)

#ifdef TESTING
#define DCHECK(x) CHECK(x)
#else
#define DCHECK(x) ((void)0)
#endif

#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))
