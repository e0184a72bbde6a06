/* shrink.h: reduces a failing simulation to the smallest one that still fails.
 *
 * A shape describes a run: seed, participating requests, disabled features, and maximum lengths
 * of prompt and output. Each shape is tried in a child process, so that an abort or a hang
 * counts as a failure. */
#pragma once

#include "base/base.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum shape_omission { /* features disabled in a shape */
    NO_CANCELS = 1,
    NO_STOPPED_CHOICES = 2,
    NO_SLOW_CLIENTS = 4,
    ONE_CHOICE = 8,
    NO_DEADLINES = 16,
    NO_SCRIPTS = 32,
    NO_DRAFTS = 64,
    NO_FAIRNESS = 128,
    NO_MIXED_STEP_LIMIT = 256,
    NO_CACHE = 512,
    NO_INTERRUPTS = 1024,
    NO_PARTIAL_CHUNKS = 2048,
    NO_STATES = 4096,
    NO_TIER = 8192,
    NO_WINDOW = 16384,
    NO_CONSTRAINTS = 32768,
    OMISSION_END = 65536,
};

struct shape {
    uint64_t seed;
    uint32_t dropped; /* bit i: request i is left out */
    unsigned omitted;
    int prompt, out;
};

typedef void (*shape_fn)(const struct shape *s);

static bool is_child; /* this process only tries a shape */

static inline bool shape_fails(const struct shape *s, shape_fn run)
{
    int status = 0;

    fflush(stdout);
    fflush(stderr);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        is_child = true;
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 1), dup2(null, 2);
        alarm(20);
        run(s);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    return status != 0;
}

/* Tries `smaller`; keeps it if it fails as well. */
static inline bool shape_try(struct shape *s, struct shape smaller, shape_fn run)
{
    if (!memcmp(s, &smaller, sizeof(smaller)) || !shape_fails(&smaller, run))
        return false;
    *s = smaller;
    return true;
}

static inline bool shape_drop_requests(struct shape *s, int n_requests, shape_fn run)
{
    bool is_less = false;

    for (int size = (n_requests + 1) / 2; size >= 1; size /= 2)
        for (int at = 0; at < n_requests; at += size) {
            struct shape t = *s;
            t.dropped |= ((1u << size) - 1) << at;
            is_less |= shape_try(s, t, run);
        }
    return is_less;
}

/* Shrinks until nothing can be removed any more. */
static inline void shape_shrink(struct shape *s, int n_requests, shape_fn run)
{
    for (bool is_less = true; is_less;) {
        is_less = shape_drop_requests(s, n_requests, run);
        for (unsigned bit = 1; bit < OMISSION_END; bit *= 2) {
            struct shape t = *s;
            t.omitted |= bit;
            is_less |= shape_try(s, t, run);
        }
        /* reduces lengths by a half, a quarter, an eighth */
        for (int part = 2; part <= 8; part *= 2) {
            struct shape t = *s;
            t.prompt -= MAX(t.prompt / part, t.prompt > 1);
            is_less |= shape_try(s, t, run);
            t = *s;
            t.out -= MAX(t.out / part, t.out > 1);
            is_less |= shape_try(s, t, run);
        }
    }
}
