/* Threads have enough stack for kernels, whatever limit the shell sets. */
#include "support/check.h"
#include "base/base.h"
#include "os/thread.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FRAME = 64 * 1024, DEPTH = 64, SHELL_BYTES = 512 * 1024 };

/* Touches every page of a frame, then of the next. */
__attribute__((noinline)) static unsigned touch_stack(int depth)
{
    volatile uint8_t frame[FRAME];

    for (size_t i = 0; i < FRAME; i += 1024)
        frame[i] = (uint8_t)(depth + 1);
    unsigned below = depth > 1 ? touch_stack(depth - 1) : 0;
    return below + frame[0];
}

static void *run_deep(void *arg)
{
    *(unsigned *)arg = touch_stack(DEPTH);
    return NULL;
}

static void thread_has_enough_stack(void)
{
    unsigned sum = 0;
    pthread_t t;
    struct err e;

    EXPECT_EQ(thread_start(&t, "deep", run_deep, &sum, &e), 0);
    EXPECT(!pthread_join(t, NULL));
    EXPECT_EQ(sum, (unsigned)(DEPTH * (DEPTH + 1) / 2 + DEPTH));
}

/* The limit applies when a process starts, so this test restarts its own program for the test
 * above. */
static void stack_size_ignores_the_shell_limit(void)
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

TESTS(TEST(thread_has_enough_stack), TEST(stack_size_ignores_the_shell_limit))
