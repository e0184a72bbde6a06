#include "os/thread.h"
#include "base/fault.h"
#include "os/quota.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>

/* Kernels need up to one megabyte of stack. Untouched pages need no memory. */
enum { STACK_BYTES = 8 * 1024 * 1024 };

static int create_with_stack(pthread_t *out, void *(*fn)(void *arg), void *arg)
{
    pthread_attr_t attr;
    int failed = pthread_attr_init(&attr);

    if (failed)
        return failed;
    failed = pthread_attr_setstacksize(&attr, STACK_BYTES);
    if (!failed)
        failed = pthread_create(out, &attr, fn, arg);
    pthread_attr_destroy(&attr);
    return failed;
}

int thread_start(pthread_t *out, const char *name, void *(*fn)(void *arg), void *arg, struct err *e)
{
    sigset_t all, old;

    /* The main thread receives all signals and converts them to messages. */
    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* the thread that reads a page receives it; see mapfile.h */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int failed = fault_hit(FAULT_THREAD) ? EAGAIN : create_with_stack(out, fn, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed)
        return err_set(e, ERR_IO, "thread %s: %s", name, strerror(failed));
    pthread_setname_np(*out, name);
    return 0;
}

int thread_count_online(void)
{
    cpu_set_t set;
    int quota = quota_cpus("");

    if (sched_getaffinity(0, sizeof(set), &set))
        return 1;
    int n = MAX(CPU_COUNT(&set), 1);
    return quota ? MIN(n, quota) : n;
}

void owner_take(struct owner *o)
{
    *o = (struct owner){ pthread_self(), true };
}

bool owner_is_current(const struct owner *o)
{
    return !o->is_set || pthread_equal(o->thread, pthread_self());
}
