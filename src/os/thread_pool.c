/* thread_pool.c: compute threads and barriers.
 *
 * All synchronisation uses words that only increase:
 *
 *   job      counts jobs. The owner writes fn and arg, then increments job (release); a thread that
 *            reads the new number (acquire) sees them.
 *   phase    counts barriers. Each thread that arrives increments `arrived` (acq_rel, so the last
 *            one has seen the writes of all threads); the last resets `arrived` and `next` and
 *            increments `phase` (release); a thread that reads the new phase (acquire) sees all of
 *            it. No thread can be two phases ahead: the next phase needs all arrivals.
 *
 * A job ends with a barrier, so fn and arg are not changed while a thread may read them.
 *
 * Waiting: poll SPIN_HOT times, then poll with PAUSE for about SPIN_NS, then sleep on the word
 * (futex). A sleeper first increments `sleepers`, then the futex compares the word; a waker first
 * changes the word, then reads `sleepers`. These four operations are seq_cst: either the waker
 * sees the sleeper, or the sleeper sees the new word.
 *
 * Spin limit: running.n counts the threads of all pools of the process that are in a job. It grows
 * after the start of a job and shrinks before the last barrier opens, so a pool between two jobs
 * does not count itself. A processor that another process uses is detected by its effect:
 * consecutive spins that time out (struct spin_history). */
#include "os/thread_pool.h"
#include "base/mem.h"
#include "os/clock.h"
#include "os/thread.h"

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    MAX_THREADS = 1024,
    SPIN_HOT = 200,      /* polls without PAUSE, which under a hypervisor may take microseconds */
    SPIN_NS = 50 * 1000, /* longer than a barrier of a decode step, shorter than the sampler */
    /* consecutive barriers at which spinning timed out, after which it is suspended */
    TIMEOUTS_TO_SUSPEND = 4,
    SUSPENDED_BARRIERS = 64, /* barriers for which it is suspended: a pass of a small model */
};

struct wait_word { /* one cache line each, since the other words are polled */
    ALIGNED(64) _Atomic uint32_t v;
    _Atomic uint32_t sleepers;
};

struct spin_history {
    /* consecutive time-outs; barriers left at which to sleep without spinning */
    int n_timeouts, n_suspended;
};

struct pool_thread {
    struct thread_pool *thread_pool;
    pthread_t thread;
    int index;
    struct spin_history spin_history;
};

struct thread_pool {
    struct wait_word job, phase;
    ALIGNED(64) _Atomic uint32_t arrived;
    ALIGNED(64) _Atomic int next;
    ALIGNED(64) thread_pool_fn fn; /* NULL: the threads exit */
    void *arg;
    int n;
    int n_cpus;                  /* processors that the process may use */
    struct pool_thread *threads; /* [n]; 0 is the caller */
};

static struct {
    ALIGNED(64) _Atomic int n;
} running; /* written twice per job, read by all spinning threads */

static inline void cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* True if there is a processor for each running thread and for `others` that are about to run. */
static bool may_spin(const struct thread_pool *t, int others)
{
    return atomic_load_explicit(&running.n, memory_order_relaxed) + others <= t->n_cpus;
}

enum spin_result { SPIN_CHANGED, SPIN_NO_CPU, SPIN_TIMEOUT };

static enum spin_result spin(
    const struct thread_pool *t, const struct wait_word *w, uint32_t old, int others)
{
    if (!may_spin(t, others))
        return SPIN_NO_CPU;
    for (int i = 0; i < SPIN_HOT; i++)
        if (atomic_load_explicit(&w->v, memory_order_acquire) != old)
            return SPIN_CHANGED;
    uint64_t until = clock_ns() + SPIN_NS;
    do {
        for (int i = 0; i < 32; i++) {
            if (atomic_load_explicit(&w->v, memory_order_acquire) != old)
                return SPIN_CHANGED;
            cpu_relax();
        }
        if (!may_spin(t, others))
            return SPIN_NO_CPU;
    } while (clock_ns() < until);
    return SPIN_TIMEOUT;
}

static void wait_word_sleep(struct wait_word *w, uint32_t old)
{
    atomic_fetch_add(&w->sleepers, 1);
    while (atomic_load(&w->v) == old)
        syscall(SYS_futex, &w->v, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
    atomic_fetch_sub(&w->sleepers, 1);
}

static void wait_word_increment(struct wait_word *w)
{
    atomic_fetch_add(&w->v, 1);
    if (atomic_load(&w->sleepers))
        syscall(SYS_futex, &w->v, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

static void wait_for_job(struct thread_pool *t, uint32_t job)
{
    if (spin(t, &t->job, job, t->n) != SPIN_CHANGED)
        wait_word_sleep(&t->job, job);
}

static void wait_for_phase(struct thread_pool *t, uint32_t phase, struct spin_history *p)
{
    if (p->n_suspended > 0) {
        p->n_suspended--;
        wait_word_sleep(&t->phase, phase);
        return;
    }
    enum spin_result result = spin(t, &t->phase, phase, 0);
    p->n_timeouts = result == SPIN_TIMEOUT ? p->n_timeouts + 1 : 0;
    if (p->n_timeouts == TIMEOUTS_TO_SUSPEND) {
        p->n_timeouts--; /* the next time-out suspends spinning again */
        p->n_suspended = SUSPENDED_BARRIERS;
    }
    if (result != SPIN_CHANGED)
        wait_word_sleep(&t->phase, phase);
}

static void arrive_and_wait(struct thread_pool *t, int thread, int n_leave)
{
    uint32_t phase = atomic_load_explicit(&t->phase.v, memory_order_relaxed);

    DCHECK(thread >= 0 && thread < t->n);
    if (atomic_fetch_add_explicit(&t->arrived, 1, memory_order_acq_rel) + 1 == (uint32_t)t->n) {
        atomic_store_explicit(&t->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&t->next, 0, memory_order_relaxed);
        if (n_leave)
            atomic_fetch_sub_explicit(&running.n, n_leave, memory_order_relaxed);
        wait_word_increment(&t->phase);
        return;
    }
    wait_for_phase(t, phase, &t->threads[thread].spin_history);
}

void thread_pool_barrier(struct thread_pool *t, int thread)
{
    arrive_and_wait(t, thread, 0);
}

int thread_pool_next_task(struct thread_pool *t)
{
    return atomic_fetch_add_explicit(&t->next, 1, memory_order_relaxed);
}

static void *thread_main(void *arg)
{
    struct pool_thread *m = arg;
    struct thread_pool *t = m->thread_pool;
    uint32_t job = 0;

    for (;;) {
        wait_for_job(t, job++);
        if (!t->fn)
            return NULL;
        t->fn(t->arg, m->index, t->n);
        arrive_and_wait(t, m->index, t->n);
    }
}

void thread_pool_run(struct thread_pool *t, thread_pool_fn fn, void *arg)
{
    CHECK(!t->fn); /* must not be called inside a job */
    t->fn = fn;
    t->arg = arg;
    if (t->n > 1)
        wait_word_increment(&t->job);
    atomic_fetch_add_explicit(&running.n, t->n, memory_order_relaxed);
    fn(arg, 0, t->n);
    arrive_and_wait(t, 0, t->n);
    t->fn = NULL;
}

static void stop_threads(struct thread_pool *t, int n_started)
{
    wait_word_increment(&t->job);
    for (int i = 1; i < n_started; i++)
        pthread_join(t->threads[i].thread, NULL);
    mem_free(t->threads);
    mem_free(t);
}

int thread_pool_open(struct thread_pool **out, int n_threads, struct err *e)
{
    if (n_threads < 1 || n_threads > MAX_THREADS)
        return err_set(e, ERR_RANGE, "threads: %d is out of range 1 to %d", n_threads, MAX_THREADS);

    struct thread_pool *t = try_aligned(64, sizeof(*t));
    struct pool_thread *threads = try_calloc((size_t)n_threads, sizeof(*threads));
    if (!t || !threads) {
        mem_free(t);
        mem_free(threads);
        return err_set(e, ERR_MEMORY, "no memory for a thread pool of %d threads", n_threads);
    }
    memset(t, 0, sizeof(*t));
    t->n = n_threads;
    t->n_cpus = thread_count_online();
    t->threads = threads;
    for (int i = 1; i < n_threads; i++) {
        char name[16];
        snprintf(name, sizeof(name), "compute-%d", i);
        threads[i] = (struct pool_thread){ .thread_pool = t, .index = i };
        if (thread_start(&threads[i].thread, name, thread_main, &threads[i], e)) {
            stop_threads(t, i);
            return -1;
        }
    }
    *out = t;
    return 0;
}

void thread_pool_close(struct thread_pool *t)
{
    if (t)
        stop_threads(t, t->n);
}

int thread_pool_size(const struct thread_pool *t)
{
    return t->n;
}
