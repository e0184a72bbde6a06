/* thread_pool.h: fork-join compute threads of one engine.
 *
 * The caller is thread 0 of the pool and computes too. Inside a job, the threads synchronise with
 * barriers: a counter of the threads that have arrived, and a word that the last one changes and
 * the others poll. A waiting thread spins briefly and then sleeps (futex). It does not spin while
 * the pools of the process that run a job have more threads in total than the process may use
 * processors (thread_count_online()), nor for a number of barriers after spinning has repeatedly
 * failed.
 *
 * Owner: one thread (an engine) calls thread_pool_run; jobs run on all threads of the pool at
 * once. */
#pragma once

#include "base/err.h"

struct thread_pool;

int thread_pool_open(
    struct thread_pool **out, int n_threads, struct err *e); /* n_threads = 1 starts no thread */
void thread_pool_close(struct thread_pool *t);
int thread_pool_size(const struct thread_pool *t);

typedef void (*thread_pool_fn)(void *arg, int thread, int n_threads);
/* returns when fn has returned on all threads */
void thread_pool_run(struct thread_pool *t, thread_pool_fn fn, void *arg);

/* Only inside a job. All writes before the barrier are visible after it on every thread. */
void thread_pool_barrier(struct thread_pool *t, int thread);

/* Only inside a job: returns 0, 1, 2, ..., each number to one thread; thread_pool_barrier resets
 * it. It distributes work items whose results do not depend on the thread that computes them. */
int thread_pool_next_task(struct thread_pool *t);
