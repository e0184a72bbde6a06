/* check.h: unit test macros on top of cmocka.
 *
 *     static void page_take_on_empty_pool_returns_none(void)
 *     {
 *         EXPECT_EQ(page_take(p).i, PAGE_NONE.i);
 *     }
 *     TESTS(TEST(page_take_on_empty_pool_returns_none), TEST(pool_agrees_with_a_plain_array))
 *
 * A test name is a statement about behaviour. A program argument selects the tests whose names
 * contain it: `test_pages empty`. The last line of output is `N passed, N failed`. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

/* Release builds cannot inject allocation failures: there, the minimum number of failures is 0. */
#ifdef TESTING
#define FAULTS_AT_LEAST(n) (n)
#else
#define FAULTS_AT_LEAST(n) 0
#endif

/* Step of loops over all positions or shapes: sanitizers make each round ten times slower, and
 * a seventh of the rounds executes the same code. The other builds compare the results of all. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CHECK_STRIDE 7
#else
#define CHECK_STRIDE 1
#endif

struct check_test {
    const char *name;
    void (*fn)(void);
};

#define TEST(f)                                                                                    \
    {                                                                                              \
#f, f                                                                                      \
    }

#define EXPECT(x)                                                                                  \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            fprintf(stderr, "%s:%d: EXPECT(%s)\n", __FILE__, __LINE__, #x);                        \
            fail();                                                                                \
        }                                                                                          \
    } while (0)

#define CHECK_FMT(x)                                                                               \
    _Generic((x), char *: "%s", const char *: "%s", float: "%.9g", double: "%.17g",                \
        unsigned: "%u", unsigned long: "%lu", unsigned long long: "%llu", int: "%d",               \
        long: "%ld", long long: "%lld", default: "%d")

/* Compares numbers by value; prints both sides if they differ. */
#define EXPECT_EQ(a, b)                                                                            \
    do {                                                                                           \
        __typeof__((a) + 0) check_a = (a);                                                         \
        __typeof__((b) + 0) check_b = (b);                                                         \
        if (!(check_a == check_b)) {                                                               \
            fprintf(stderr, "%s:%d: %s = ", __FILE__, __LINE__, #a);                               \
            fprintf(stderr, CHECK_FMT(check_a), check_a);                                          \
            fprintf(stderr, ", %s = ", #b);                                                        \
            fprintf(stderr, CHECK_FMT(check_b), check_b);                                          \
            fprintf(stderr, "\n");                                                                 \
            fail();                                                                                \
        }                                                                                          \
    } while (0)

#define EXPECT_STR(a, b)                                                                           \
    do {                                                                                           \
        const char *check_a = (a), *check_b = (b);                                                 \
        if (strcmp(check_a, check_b)) {                                                            \
            fprintf(stderr, "%s:%d: %s\n  got:  %s\n  want: %s\n", __FILE__, __LINE__, #a,         \
                check_a, check_b);                                                                 \
            fail();                                                                                \
        }                                                                                          \
    } while (0)

static inline void check_run(void **state)
{
    const struct check_test *t = *state;
    t->fn();
}

static inline int check_main(const struct check_test *tests, size_t n, int argc, char **argv)
{
    struct CMUnitTest units[512];
    size_t n_units = 0;

    for (size_t i = 0; i < n && n_units < 512; i++)
        if (argc < 2 || strstr(tests[i].name, argv[1]))
            units[n_units++] = (struct CMUnitTest){ .name = tests[i].name,
                .test_func = check_run,
                .initial_state = (void *)(uintptr_t)&tests[i] };
    int failed = _cmocka_run_group_tests(argv[0], units, n_units, NULL, NULL);
    printf("%zu passed, %d failed\n", n_units - (size_t)failed, failed);
    return failed != 0;
}

#define TESTS(...)                                                                                 \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        static const struct check_test tests[] = { __VA_ARGS__ };                                  \
        return check_main(tests, sizeof(tests) / sizeof(tests[0]), argc, argv);                    \
    }
