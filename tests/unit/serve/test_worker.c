/* serve/worker.c and serve/job_queue.c: tenants take turns at the worker thread, the jobs of one
 * tenant run in order, and each job is returned exactly once. */
#include "support/check.h"

#include "base/mem.h"
#include "os/thread.h"
#include "serve/worker.h"

#include <semaphore.h>
#include <stdlib.h>

enum { JOBS = 1000 };

struct work {
    struct worker_job job;
    int number, ran_as, n_done;
    pthread_t ran_on;
};

static int n_run;
static _Atomic int n_freed;

static void record_run(struct worker_job *j)
{
    struct work *w = container_of(j, struct work, job);

    w->ran_as = n_run++; /* only one worker thread increments this */
    w->ran_on = pthread_self();
}

static void count_done(struct worker_job *j)
{
    container_of(j, struct work, job)->n_done++;
}

static void count_nothing(struct worker_job *j)
{
}

static void run_and_free(struct worker_job *j)
{
    mem_free(container_of(j, struct work, job));
    n_freed++;
}

static struct mailbox *home;
static struct worker *worker;

static void open_worker(void)
{
    struct err e;

    n_run = 0;
    n_freed = 0;
    EXPECT_EQ(mailbox_open(&home, &e), 0);
    EXPECT_EQ(worker_open(&worker, home, &e), 0);
}

/* Receives the returned jobs; returns their number. */
static int receive_jobs(void)
{
    int n = 0;

    for (struct msg *m = mailbox_drain(home), *next; m; m = next, n++) {
        next = m->next;
        EXPECT_EQ(m->kind, (int)WORKER_DONE);
        worker_done(worker, m);
    }
    return n;
}

/* Receives n jobs in total, of which `received` have arrived, and closes the worker. */
static void close_worker(int n, int received)
{
    for (; received < n; received += receive_jobs())
        mailbox_wait(home, UINT64_MAX);
    EXPECT_EQ(receive_jobs(), 0);
    worker_close(worker);
    EXPECT_EQ(receive_jobs(), 0);
    mailbox_close(home);
}

static void post(struct worker_job *j)
{
    struct err e;

    EXPECT_EQ(worker_post(worker, j, &e), 0);
}

static void jobs_are_returned_in_order(void)
{
    static struct work work[JOBS];
    int n = 0;

    open_worker();
    for (int i = 0; i < JOBS; i++) {
        work[i] = (struct work){ .job = { .run = record_run, .done = count_done }, .ran_as = -1 };
        post(&work[i].job);
        if (i % 100 == 0)
            n += receive_jobs();
    }
    close_worker(JOBS, n);
    for (int i = 0; i < JOBS; i++) {
        EXPECT(work[i].ran_as == i && work[i].n_done == 1);
        EXPECT(!pthread_equal(work[i].ran_on, pthread_self()));
    }
}

static void stopped_job_does_not_run_and_is_returned(void)
{
    static struct work work[JOBS];

    open_worker();
    for (int i = 0; i < JOBS; i++) {
        work[i] = (struct work){ .job = { .run = record_run, .done = count_done }, .ran_as = -1 };
        work[i].job.is_stopped = i % 2;
        post(&work[i].job);
        struct work *own = xcalloc(1, sizeof(*own)); /* a job that frees itself, stopped or not */
        own->job.run = run_and_free;
        own->job.is_stopped = i % 3 == 0;
        worker_post_free(worker, &own->job);
    }
    close_worker(JOBS, 0); /* runs the jobs that free memory first */
    for (int i = 0; i < JOBS; i++)
        EXPECT(work[i].n_done == 1 && (work[i].ran_as >= 0) == (i % 2 == 0));
    EXPECT_EQ(n_freed, (int)JOBS);
}

/* ---- turns of the tenants */

enum { TENANTS = 4, LARGE = 16 * 1024 * 1024, SMALL_JOB = 40 * 1024, TURNS = 300 };

/* A queue with TURNS jobs of each tenant; the jobs of tenant t have cost[t] bytes. */
static struct job_queue *new_queue(
    struct worker_job jobs[TENANTS][TURNS], int n_tenants, const size_t cost[])
{
    struct job_queue *q = xcalloc(1, sizeof(*q));

    for (int t = 0; t < n_tenants; t++)
        for (int i = 0; i < TURNS; i++) {
            jobs[t][i] = (struct worker_job){ .tenant = (uint64_t)t, .cost = cost[t] };
            job_queue_put(q, &jobs[t][i]);
        }
    return q;
}

static void tenants_take_turns_and_jobs_of_one_stay_in_order(void)
{
    static struct worker_job jobs[TENANTS][TURNS];
    static const size_t cost[TENANTS] = { SMALL_JOB, SMALL_JOB, SMALL_JOB, SMALL_JOB };
    int n[TENANTS] = { 0 };
    struct job_queue *q = new_queue(jobs, TENANTS, cost);

    for (struct worker_job *j; (j = job_queue_take(q));) {
        int t = (int)j->tenant;
        EXPECT(j == &jobs[t][n[t]]);
        n[t]++;
        for (int i = 0; i < TENANTS; i++)
            EXPECT(n[t] <= n[i] + 1);
    }
    for (int i = 0; i < TENANTS; i++)
        EXPECT_EQ(n[i], (int)TURNS);
    mem_free(q);
}

/* A small job of another tenant, put at any time, waits only for the large job that runs, until the
 * small jobs have received as many bytes as each of the others. */
static void small_job_precedes_large_jobs(void)
{
    static struct worker_job jobs[TENANTS][TURNS];
    static const size_t cost[TENANTS] = { LARGE, LARGE, LARGE, LARGE };
    struct job_queue *q = new_queue(jobs, TENANTS - 1, cost);

    for (int i = 0; i < TURNS; i++) {
        struct worker_job small = { .tenant = 77, .cost = SMALL_JOB };
        EXPECT(job_queue_take(q) != &small); /* a large job runs */
        job_queue_put(q, &small);
        EXPECT(job_queue_take(q) == &small);
    }
    while (job_queue_take(q))
        ;
    mem_free(q);
}

/* Two tenants with one small job at a time, of which one always waits, do not starve a large
 * job. */
static void large_job_does_not_starve(void)
{
    struct job_queue *q = xcalloc(1, sizeof(*q));
    struct worker_job large = { .tenant = 9, .cost = LARGE }, small[2], *j;
    int n = 0;

    job_queue_put(q, &large);
    for (int i = 0; i < 2; i++) {
        small[i] = (struct worker_job){ .tenant = (uint64_t)i, .cost = SMALL_JOB };
        job_queue_put(q, &small[i]);
    }
    for (; (j = job_queue_take(q)) != &large; n++) {
        struct worker_job *other = job_queue_take(q);
        if (other == &large)
            break;
        job_queue_put(q, j); /* the client sends the next one */
        job_queue_put(q, other);
    }
    EXPECT(n >= LARGE / SMALL_JOB - 1 && n <= LARGE / SMALL_JOB + 1);
    while (job_queue_take(q))
        ;
    mem_free(q);
}

static void tenants_receive_equal_bytes(void)
{
    static struct worker_job jobs[TENANTS][TURNS];
    static const size_t cost[TENANTS] = { 1024 * 1024, SMALL_JOB };
    int64_t bytes[2] = { 0 };
    struct job_queue *q = new_queue(jobs, 2, cost);

    for (int i = 0; i < TURNS; i++) {
        struct worker_job *j = job_queue_take(q);
        bytes[j->tenant] += (int64_t)j->cost;
        EXPECT(llabs(bytes[0] - bytes[1]) <= 1024 * 1024);
    }
    while (job_queue_take(q))
        ;
    mem_free(q);
}

/* Jobs whose clients have left use nothing of their tenant's turn. */
static void stopped_jobs_have_no_cost(void)
{
    static struct worker_job jobs[TENANTS][TURNS];
    static const size_t cost[TENANTS] = { LARGE, SMALL_JOB };
    struct job_queue *q = new_queue(jobs, 2, cost);

    for (int i = 0; i < TURNS; i++)
        jobs[0][i].is_stopped = true;
    for (int i = 0; i < TURNS; i++)
        EXPECT(job_queue_take(q) == &jobs[0][i]);
    EXPECT(job_queue_take(q) == &jobs[1][0]);
    while (job_queue_take(q))
        ;
    mem_free(q);
}

/* A job that keeps the worker thread busy until its `go` is posted. */
struct blocker {
    struct work work;
    sem_t running, go;
};

static void block(struct worker_job *j)
{
    struct blocker *b = container_of(j, struct blocker, work.job);

    sem_post(&b->running);
    sem_wait(&b->go);
}

/* Returns when the worker thread runs the blocker. */
static void start_blocker(struct blocker *b, uint64_t tenant)
{
    *b = (struct blocker){
        .work.job = { .run = block, .done = count_done, .tenant = tenant, .cost = LARGE }
    };
    sem_init(&b->running, 0, 0);
    sem_init(&b->go, 0, 0);
    post(&b->work.job);
    sem_wait(&b->running);
}

/* Tenant 1 posts 20 large jobs, then tenant 2 a small one: it is the next to run. */
static void worker_thread_serves_tenants_in_turns(void)
{
    enum { N = 20 };
    static struct work large[N], small;
    struct blocker b;

    open_worker();
    start_blocker(&b, 1);
    for (int i = 0; i < N; i++) {
        large[i] = (struct work){ .job = { record_run, count_done, 1, LARGE } };
        post(&large[i].job);
    }
    small = (struct work){ .job = { record_run, count_done, 2, SMALL_JOB }, .ran_as = -1 };
    post(&small.job);
    sem_post(&b.go);
    close_worker(N + 2, 0);
    EXPECT_EQ(small.ran_as, 0);
    for (int i = 0; i < N; i++)
        EXPECT_EQ(large[i].ran_as, i + 1);
}

/* A tenant with WORKER_JOBS_MAX jobs gets an error and takes nothing from other tenants. Tenants
 * that exceed the table are counted together. */
static void number_of_jobs_is_limited_by_tenant(void)
{
    static struct worker_job jobs[WORKER_JOBS_MAX + JOB_FLOWS_MAX + 2];
    struct blocker b;
    struct err e;
    int n = 0;

    open_worker();
    start_blocker(&b, 1);
    for (int i = 1; i < WORKER_JOBS_MAX; i++, n++) {
        jobs[n] = (struct worker_job){ record_run, count_nothing, 1, SMALL_JOB, true };
        post(&jobs[n]);
    }
    jobs[n] = (struct worker_job){ record_run, count_nothing, 1, SMALL_JOB, true };
    EXPECT_EQ(worker_post(worker, &jobs[n], &e), -1);
    EXPECT_EQ((int)e.code, (int)ERR_OVERLOADED);
    for (int i = 0; i < JOB_FLOWS_MAX + 2; i++, n++) {
        jobs[n] = (struct worker_job){ record_run, count_nothing, 2 + (uint64_t)i, 1, true };
        post(&jobs[n]);
    }
    sem_post(&b.go);
    close_worker(n + 1, 0);
}

TESTS(TEST(jobs_are_returned_in_order), TEST(stopped_job_does_not_run_and_is_returned),
    TEST(tenants_take_turns_and_jobs_of_one_stay_in_order), TEST(small_job_precedes_large_jobs),
    TEST(large_job_does_not_starve), TEST(tenants_receive_equal_bytes),
    TEST(stopped_jobs_have_no_cost), TEST(worker_thread_serves_tenants_in_turns),
    TEST(number_of_jobs_is_limited_by_tenant))
