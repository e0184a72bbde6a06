/* thread.h: threads with names, and the owner check of debug builds. */
#pragma once

#include "base/err.h"

#include <pthread.h>

/* With a stack of 8 MB, whatever `ulimit -s` says, and all signals blocked: those go to the main
 * thread. That one's stack is the shell's to choose, so kernels run on others. ERR_IO. */
int thread_start(
    pthread_t *out, const char *name, void *(*fn)(void *arg), void *arg, struct err *e);

/* Processors this process may use, by its affinity and by its control group's quota, rounded up. */
int thread_count_online(void);

/* The thread that owns a struct; set by owner_take(), checked by OWNED(). */
struct owner {
    pthread_t who;
    bool is_set;
};
void owner_take(struct owner *o);
bool owner_is_me(const struct owner *o); /* true while nobody has taken it */

#define OWNED(o) DCHECK(owner_is_me(&(o)))
