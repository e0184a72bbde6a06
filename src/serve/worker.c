#include "serve/worker.h"

#include "base/mem.h"
#include "os/thread.h"

enum { WORKER_JOB = 1, WORKER_FREE, WORKER_STOP };

struct tenant_jobs { /* jobs of a tenant that were posted and have not returned */
    uint64_t tenant;
    int n;
};

struct worker {
    struct mailbox *inbox, *home;
    pthread_t thread;
    struct msg stop;
    struct job_queue queue; /* owner: the worker thread */
    /* Owner: the io thread. Entries with jobs, in any order; the last entry counts all tenants that
     * exceed the table. */
    struct tenant_jobs posted[JOB_FLOWS_MAX];
    int n_posted;
};

/* ---- worker thread */

static void run_job(struct worker *c, struct worker_job *j)
{
    if (!j->is_stopped)
        j->run(j);
    j->msg.kind = WORKER_DONE;
    mailbox_post(c->home, &j->msg);
}

/* Queues the posted jobs and runs those that free memory. Returns true if one was the stop
 * message. */
static bool receive_jobs(struct worker *c)
{
    bool is_over = false;

    for (struct msg *m = mailbox_drain(c->inbox), *next; m; m = next) {
        struct worker_job *j = container_of(m, struct worker_job, msg);
        next = m->next;
        if (m->kind == WORKER_STOP)
            is_over = true;
        else if (m->kind == WORKER_FREE)
            j->run(j);
        else
            job_queue_put(&c->queue, j);
    }
    return is_over;
}

static void *worker_main(void *arg)
{
    struct worker *c = arg;
    bool is_over = false;

    for (;;) {
        is_over |= receive_jobs(c);
        struct worker_job *j = job_queue_take(&c->queue);
        if (j)
            run_job(c, j);
        else if (is_over)
            return NULL;
        else
            mailbox_wait(c->inbox, UINT64_MAX);
    }
}

/* ---- io thread */

int worker_open(struct worker **out, struct mailbox *home, struct err *e)
{
    struct worker *c = xcalloc(1, sizeof(*c));

    c->home = home;
    c->stop.kind = WORKER_STOP;
    if (mailbox_open(&c->inbox, e)) {
        mem_free(c);
        return -1;
    }
    if (thread_start(&c->thread, "worker", worker_main, c, e)) {
        mailbox_close(c->inbox);
        mem_free(c);
        return -1;
    }
    *out = c;
    return 0;
}

void worker_close(struct worker *c)
{
    if (!c)
        return;
    CHECK(!c->n_posted);
    mailbox_post(c->inbox, &c->stop);
    pthread_join(c->thread, NULL);
    mailbox_close(c->inbox);
    mem_free(c);
}

static struct tenant_jobs *posted_by(struct worker *c, uint64_t tenant)
{
    for (int i = 0; i < c->n_posted; i++)
        if (c->posted[i].tenant == tenant)
            return &c->posted[i];
    if (c->n_posted == JOB_FLOWS_MAX)
        return &c->posted[JOB_FLOWS_MAX - 1];
    c->posted[c->n_posted] = (struct tenant_jobs){ .tenant = tenant };
    return &c->posted[c->n_posted++];
}

int worker_post(struct worker *c, struct worker_job *j, struct err *e)
{
    struct tenant_jobs *t = posted_by(c, j->tenant);

    if (t->n == WORKER_JOBS_MAX)
        return err_set(e, ERR_OVERLOADED, "too many large requests wait");
    t->n++;
    j->tenant = t->tenant; /* finds the entry again in worker_done */
    j->msg.kind = WORKER_JOB;
    mailbox_post(c->inbox, &j->msg);
    return 0;
}

void worker_post_free(struct worker *c, struct worker_job *take)
{
    take->msg.kind = WORKER_FREE;
    mailbox_post(c->inbox, &take->msg);
}

void worker_done(struct worker *c, struct msg *m)
{
    struct worker_job *j = container_of(m, struct worker_job, msg);
    struct tenant_jobs *t = posted_by(c, j->tenant);

    if (--t->n == 0)
        *t = c->posted[--c->n_posted];
    j->done(j);
}
