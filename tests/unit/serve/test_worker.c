/* serve/worker.c: jobs run in order on the worker thread, and each job is returned exactly once. */
#include "support/check.h"

#include "base/mem.h"
#include "os/thread.h"
#include "serve/worker.h"

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

static void run_and_free(struct worker_job *j)
{
    mem_free(container_of(j, struct work, job));
    n_freed++;
}

/* Receives the returned jobs; returns their number. */
static int receive_jobs(struct mailbox *home)
{
    int n = 0;

    for (struct msg *m = mailbox_drain(home), *next; m; m = next, n++) {
        next = m->next;
        EXPECT_EQ(m->kind, (int)WORKER_DONE);
        worker_done(m);
    }
    return n;
}

static void jobs_are_returned_in_order(void)
{
    static struct work work[JOBS];
    struct mailbox *home;
    struct worker *c;
    struct err e;
    int n = 0;

    n_run = 0;
    EXPECT_EQ(mailbox_open(&home, &e), 0);
    EXPECT_EQ(worker_open(&c, home, &e), 0);
    for (int i = 0; i < JOBS; i++) {
        work[i] = (struct work){ .job = { .run = record_run, .done = count_done }, .ran_as = -1 };
        worker_post(c, &work[i].job);
        if (i % 100 == 0)
            n += receive_jobs(home);
    }
    while (n < JOBS) {
        mailbox_wait(home, UINT64_MAX);
        n += receive_jobs(home);
    }
    for (int i = 0; i < JOBS; i++) {
        EXPECT(work[i].ran_as == i && work[i].n_done == 1);
        EXPECT(!pthread_equal(work[i].ran_on, pthread_self()));
    }
    worker_close(c);
    EXPECT_EQ(receive_jobs(home), 0);
    mailbox_close(home);
}

static void stopped_job_does_not_run_and_is_returned(void)
{
    static struct work work[JOBS];
    struct mailbox *home;
    struct worker *c;
    struct err e;

    n_run = 0;
    n_freed = 0;
    EXPECT_EQ(mailbox_open(&home, &e), 0);
    EXPECT_EQ(worker_open(&c, home, &e), 0);
    for (int i = 0; i < JOBS; i++) {
        work[i] = (struct work){ .job = { .run = record_run, .done = count_done }, .ran_as = -1 };
        work[i].job.is_stopped = i % 2;
        worker_post(c, &work[i].job);
        struct work *own = xcalloc(1, sizeof(*own)); /* a job that frees itself, stopped or not */
        own->job.run = run_and_free;
        own->job.is_stopped = i % 3 == 0;
        worker_post(c, &own->job);
    }
    worker_close(c); /* runs the queued jobs first */
    EXPECT_EQ(receive_jobs(home), (int)JOBS);
    for (int i = 0; i < JOBS; i++)
        EXPECT(work[i].n_done == 1 && (work[i].ran_as >= 0) == (i % 2 == 0));
    EXPECT_EQ(n_freed, (int)JOBS);
    mailbox_close(home);
}

TESTS(TEST(jobs_are_returned_in_order), TEST(stopped_job_does_not_run_and_is_returned))
