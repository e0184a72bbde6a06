/* thread.h: named threads, and the owner check of debug builds.
 *
 * Any thread. */
#pragma once

#include "base/err.h"

#include <pthread.h>

/* Starts a thread with a stack of 8 MB, independent of `ulimit -s`, and all signals but SIGBUS
 * blocked: the main thread handles signals. The stack size of the main thread is set by the shell,
 * so kernels run on other threads. ERR_IO. */
int thread_start(
    pthread_t *out, const char *name, void *(*fn)(void *arg), void *arg, struct err *e);

/* Number of processors that this process may use: CPU affinity, limited by the quota of the control
 * group, rounded up. */
int thread_count_online(void);

/* The thread that owns a struct; set by owner_take(), checked by OWNED(). */
struct owner {
    pthread_t thread;
    bool is_set;
};
void owner_take(struct owner *o);
bool owner_is_current(const struct owner *o); /* true if no thread has taken it */

#define OWNED(o) DCHECK(owner_is_current(&(o)))
