/* Threads have room for what kernels keep on the stack, whatever the shell's limit is. */
#include "../check.h"
#include "base/base.h"
#include "os/thread.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FRAME = 64 * 1024, DEPTH = 64, SHELL_BYTES = 512 * 1024 };

/* Touches every page of a frame, then of the next. */
__attribute__((noinline)) static unsigned deep(int depth)
{
    volatile uint8_t frame[FRAME];

    for (size_t i = 0; i < FRAME; i += 1024)
        frame[i] = (uint8_t)(depth + 1);
    unsigned below = depth > 1 ? deep(depth - 1) : 0;
    return below + frame[0];
}

static void *go_deep(void *arg)
{
    *(unsigned *)arg = deep(DEPTH);
    return NULL;
}

static void a_thread_has_room(void)
{
    unsigned sum = 0;
    pthread_t t;
    struct err e;

    EXPECT_EQ(thread_start(&t, "deep", go_deep, &sum, &e), 0);
    EXPECT(!pthread_join(t, NULL));
    EXPECT_EQ(sum, (unsigned)(DEPTH * (DEPTH + 1) / 2 + DEPTH));
}

/* The limit counts when a process begins: so this one begins again, for the test above. */
static void whatever_the_limit_of_the_shell(void)
{
    const struct rlimit small = { SHELL_BYTES, SHELL_BYTES };
    int status = -1;
    pid_t child = fork();

    EXPECT(child >= 0);
    if (child == 0) {
        if (!setrlimit(RLIMIT_STACK, &small))
            execl("/proc/self/exe", "test_thread", "a_thread_has_room", (char *)NULL);
        _exit(99);
    }
    EXPECT(waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

TESTS(TEST(a_thread_has_room), TEST(whatever_the_limit_of_the_shell))
