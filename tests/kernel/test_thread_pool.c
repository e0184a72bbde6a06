/* The thread pool: barriers, distribution of tasks, failed opens, and the cost of waiting. */
#include "base/err.h"
#include "base/fault.h"
#include "base/rng.h"
#include "support/check.h"
#include "os/thread_pool.h"
#include "os/clock.h"
#include "os/thread.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <time.h>

enum { MAX_THREADS = 4, PHASES = 1500 };

struct barrier_test {
    struct thread_pool *thread_pool;
    int cells[MAX_THREADS]; /* plain memory: only barriers order the accesses */
    long total;
    int n_jobs_run[MAX_THREADS];
    int wrong[MAX_THREADS]; /* only the test's own thread may report a failed check */
};

/* Every thread writes its cell and reads all cells after a barrier. */
static void exchange_cells(void *arg, int thread, int n)
{
    struct barrier_test *r = arg;

    for (int phase = 1; phase <= PHASES / n; phase++) {
        r->cells[thread] = phase * (thread + 1);
        thread_pool_barrier(r->thread_pool, thread);
        for (int i = 0; i < n; i++)
            r->wrong[thread] += r->cells[i] != phase * (i + 1);
        thread_pool_barrier(r->thread_pool, thread);
    }
}

static void barriers_order_plain_memory(void)
{
    for (int n = 1; n <= MAX_THREADS; n++) {
        struct barrier_test r = { 0 };
        struct err e;
        EXPECT_EQ(thread_pool_open(&r.thread_pool, n, &e), 0);
        EXPECT_EQ(thread_pool_size(r.thread_pool), n);
        for (int job = 0; job < 3; job++)
            thread_pool_run(r.thread_pool, exchange_cells, &r);
        for (int i = 0; i < n; i++)
            EXPECT_EQ(r.wrong[i], 0);
        thread_pool_close(r.thread_pool);
    }
}

enum { TASKS = 37 };

static void claim_tasks(void *arg, int thread, int n)
{
    struct barrier_test *r = arg;

    for (int phase = 0; phase < 50; phase++) {
        static int claims[TASKS]; /* per phase; thread 0 clears it between barriers */
        for (int i; (i = thread_pool_next_task(r->thread_pool)) < TASKS;)
            claims[i] += thread + 1;
        thread_pool_barrier(r->thread_pool, thread);
        if (thread == 0)
            for (int i = 0; i < TASKS; i++) {
                r->wrong[0] += claims[i] < 1 || claims[i] > n; /* claimed by one thread, once */
                r->total++;
                claims[i] = 0;
            }
        thread_pool_barrier(r->thread_pool, thread);
    }
}

static void every_task_is_claimed_once(void)
{
    for (int n = 1; n <= MAX_THREADS; n++) {
        struct barrier_test r = { 0 };
        struct err e;
        EXPECT_EQ(thread_pool_open(&r.thread_pool, n, &e), 0);
        thread_pool_run(r.thread_pool, claim_tasks, &r);
        thread_pool_run(r.thread_pool, claim_tasks, &r);
        EXPECT_EQ(r.total, 2L * 50 * TASKS);
        EXPECT_EQ(r.wrong[0], 0);
        thread_pool_close(r.thread_pool);
    }
}

enum { N_JOBS = 600 };

static void count_job(void *arg, int thread, int n)
{
    struct barrier_test *r = arg;
    r->n_jobs_run[thread]++;
}

static void every_thread_runs_every_job(void)
{
    struct rng rng = { .key = 7 };

    for (int n = 1; n <= MAX_THREADS; n++) {
        struct barrier_test r = { 0 };
        struct err e;
        EXPECT_EQ(thread_pool_open(&r.thread_pool, n, &e), 0);
        for (int job = 0; job < N_JOBS; job++) {
            /* idle times of very different lengths, so that a job finds threads both spinning and
             * sleeping */
            volatile uint64_t idle = job % 100 ? rng_below(&rng, 2000) : 200000;
            while (idle)
                idle--;
            thread_pool_run(r.thread_pool, count_job, &r);
        }
        thread_pool_close(r.thread_pool);
        for (int i = 0; i < n; i++)
            EXPECT_EQ(r.n_jobs_run[i], N_JOBS);
    }
}

static void a_pool_without_threads_is_rejected(void)
{
    struct thread_pool *t;
    struct err e;

    EXPECT_EQ(thread_pool_open(&t, 0, &e), -1);
    EXPECT_EQ((int)e.code, ERR_RANGE);
    EXPECT_EQ(thread_pool_open(&t, 1 << 20, &e), -1);
}

/* A failed open leaves no threads and no memory (checked by the address sanitizer). */
static void a_failed_open_leaks_nothing(void)
{
#ifndef TESTING
    printf("skipped: nothing can be made to fail in a release build\n");
    return;
#endif
    static const enum fault_site sites[] = { FAULT_ALLOC, FAULT_THREAD };

    for (int site = 0; site < 2; site++)
        for (uint64_t nth = 1; nth <= (site ? 3 : 2); nth++) {
            struct thread_pool *t = NULL;
            struct err e;
            fault_arm(sites[site], nth);
            EXPECT_EQ(thread_pool_open(&t, 4, &e), -1);
            EXPECT(!t && e.msg[0]);
        }
}

/* ---- cost of waiting */

/* Thread 0 computes for a time before each barrier, the others only wait. */
struct waiting {
    struct thread_pool *thread_pool;
    int n_barriers, work_us;
    /* for this barrier and the next; thread 0 writes it before the barrier */
    bool is_last[2];
    const _Atomic bool *has_ended; /* if not NULL, the job runs until this is true */
    _Atomic bool has_begun;
    _Atomic uint64_t cpu_ns; /* total of the waiting threads */
    _Atomic long n_sleeps;
};

static uint64_t my_cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static long my_sleeps(void)
{
    struct rusage u;
    getrusage(RUSAGE_THREAD, &u);
    return u.ru_nvcsw;
}

static void work_or_wait(void *arg, int thread, int n)
{
    struct waiting *w = arg;
    uint64_t cpu = my_cpu_ns();
    long sleeps = my_sleeps();

    (void)n;
    bool is_last = false;
    for (int i = 1; !is_last; i++) {
        if (thread == 0) {
            uint64_t until = clock_ns() + (uint64_t)w->work_us * 1000;
            while (clock_ns() < until)
                ;
            w->is_last[i % 2] = w->has_ended ? atomic_load(w->has_ended) : i == w->n_barriers;
            atomic_store(&w->has_begun, true);
        }
        thread_pool_barrier(w->thread_pool, thread);
        is_last = w->is_last[i % 2];
    }
    if (thread > 0) {
        atomic_fetch_add(&w->cpu_ns, my_cpu_ns() - cpu);
        atomic_fetch_add(&w->n_sleeps, my_sleeps() - sleeps);
    }
}

static void open_waiting(struct waiting *w, int n, int n_barriers, int work_us)
{
    struct err e;

    *w = (struct waiting){ .n_barriers = n_barriers, .work_us = work_us };
    EXPECT_EQ(thread_pool_open(&w->thread_pool, n, &e), 0);
}

/* Returns the processor time in microseconds of one waiting thread per barrier. */
static double cpu_us_per_wait(struct waiting *w)
{
    int n_waiting = thread_pool_size(w->thread_pool) - 1;

    atomic_store(&w->cpu_ns, 0);
    atomic_store(&w->n_sleeps, 0);
    thread_pool_run(w->thread_pool, work_or_wait, w);
    return (double)atomic_load(&w->cpu_ns) * 1e-3 / n_waiting / w->n_barriers;
}

enum {
    SHORT_US = 40, /* shorter than the spin time */
    LONG_US = 150,
    /* shorter than the spin time, so that a thread which always spins exceeds it */
    MAX_SPIN_US = 35,
    FIRST_BARRIERS = 3, /* barriers before a thread can have suspended spinning */
};

/* The same for pools that have just been opened. */
static double cpu_us_per_first_wait(int n_threads)
{
    enum { POOLS = 40 };
    double us = 0;

    for (int i = 0; i < POOLS; i++) {
        struct waiting w;
        open_waiting(&w, n_threads, FIRST_BARRIERS, SHORT_US);
        us += cpu_us_per_wait(&w) / POOLS;
        thread_pool_close(w.thread_pool);
    }
    return us;
}

/* Uses the best of several tries, since the machine may be busy. */
static void expect_no_spinning(int n_threads)
{
    const double most = SHORT_US * 2 / 3.0;
    double us = SHORT_US;

    for (int i = 0; i < 20 && us >= most; i++)
        us = cpu_us_per_first_wait(n_threads);
    printf("%.1f of %d us\n", us, SHORT_US);
    EXPECT(us < most);
}

static void more_threads_than_processors_do_not_spin(void)
{
    expect_no_spinning(thread_count_online() + 1);
}

static void *run_other_pool(void *arg)
{
    struct waiting *w = arg;
    thread_pool_run(w->thread_pool, work_or_wait, w);
    return NULL;
}

/* Each pool has as many threads as there are processors. */
static void two_pools_at_once_do_not_spin(void)
{
    const int n = MAX(thread_count_online(), 2);
    _Atomic bool has_ended = false;
    struct waiting other;
    pthread_t thread;
    struct err e;

    open_waiting(&other, n, 0, SHORT_US);
    other.has_ended = &has_ended;
    EXPECT_EQ(thread_start(&thread, "other", run_other_pool, &other, &e), 0);
    while (!atomic_load(&other.has_begun))
        sched_yield();
    expect_no_spinning(n);
    atomic_store(&has_ended, true);
    pthread_join(thread, NULL);
    thread_pool_close(other.thread_pool);
}

/* No other thread uses a processor, but spinning has repeatedly timed out. */
static void long_waits_sleep(void)
{
    struct waiting w;
    double us = LONG_US;

    open_waiting(&w, 2, 200, LONG_US);
    for (int i = 0; i < 10 && us >= MAX_SPIN_US; i++)
        us = cpu_us_per_wait(&w);
    printf("%.1f of %d us\n", us, LONG_US);
    EXPECT(us < MAX_SPIN_US);
    thread_pool_close(w.thread_pool);
}

/* Spinning resumes as soon as other pools have finished their jobs, although they exist. One
 * success in many tries is sufficient, since the machine may be busy. */
static void short_waits_spin(void)
{
    enum { BARRIERS = 100 };
    const int n = thread_count_online();
    struct waiting other;
    long least = BARRIERS;

    if (n < 2) {
        printf("skipped: one processor\n");
        return;
    }
    open_waiting(&other, n, 3, SHORT_US);
    for (int i = 0; i < 300 && least > BARRIERS / 4; i++) {
        struct waiting one;
        open_waiting(&one, 2, BARRIERS, 5);
        cpu_us_per_wait(&other);
        cpu_us_per_wait(&one);
        least = MIN(least, atomic_load(&one.n_sleeps));
        thread_pool_close(one.thread_pool);
    }
    printf("%ld sleeps at %d barriers\n", least, BARRIERS);
    EXPECT(least <= BARRIERS / 4);
    thread_pool_close(other.thread_pool);
}

TESTS(TEST(barriers_order_plain_memory), TEST(every_task_is_claimed_once),
    TEST(every_thread_runs_every_job), TEST(a_pool_without_threads_is_rejected),
    TEST(a_failed_open_leaks_nothing), TEST(more_threads_than_processors_do_not_spin),
    TEST(two_pools_at_once_do_not_spin), TEST(long_waits_sleep), TEST(short_waits_spin))
