#include "serve/worker.h"

#include "base/mem.h"
#include "os/thread.h"

enum { WORKER_JOB = 1, WORKER_STOP };

struct worker {
    struct mailbox *inbox, *home;
    pthread_t thread;
    struct msg stop;
};

static void run_job(struct worker *c, struct worker_job *j)
{
    bool returns = j->done != NULL;

    if (!j->is_stopped || !returns)
        j->run(j);
    if (!returns)
        return; /* run has freed the job */
    j->msg.kind = WORKER_DONE;
    mailbox_post(c->home, &j->msg);
}

static void *worker_main(void *arg)
{
    struct worker *c = arg;

    for (bool is_over = false; !is_over;) {
        struct msg *m = mailbox_drain(c->inbox), *next;
        if (!m)
            mailbox_wait(c->inbox, UINT64_MAX);
        for (; m; m = next) {
            next = m->next;
            if (m->kind == WORKER_STOP)
                is_over = true;
            else
                run_job(c, container_of(m, struct worker_job, msg));
        }
    }
    return NULL;
}

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
    mailbox_post(c->inbox, &c->stop);
    pthread_join(c->thread, NULL);
    mailbox_close(c->inbox);
    mem_free(c);
}

void worker_post(struct worker *c, struct worker_job *take)
{
    take->msg.kind = WORKER_JOB;
    mailbox_post(c->inbox, &take->msg);
}

void worker_done(struct msg *m)
{
    struct worker_job *j = container_of(m, struct worker_job, msg);

    j->done(j);
}
