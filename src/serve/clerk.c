#include "serve/clerk.h"

#include "base/mem.h"
#include "os/thread.h"

enum { CLERK_JOB = 1, CLERK_STOP };

struct clerk {
    struct mailbox *inbox, *home;
    pthread_t thread;
    struct msg stop;
};

static void run_job(struct clerk *c, struct clerk_job *j)
{
    bool returns = j->done != NULL;

    if (!j->is_stopped || !returns)
        j->run(j);
    if (!returns)
        return; /* run has freed the job */
    j->msg.kind = CLERK_DONE;
    mailbox_post(c->home, &j->msg);
}

static void *clerk_main(void *arg)
{
    struct clerk *c = arg;

    for (bool is_over = false; !is_over;) {
        struct msg *m = mailbox_drain(c->inbox), *next;
        if (!m)
            mailbox_wait(c->inbox, UINT64_MAX);
        for (; m; m = next) {
            next = m->next;
            if (m->kind == CLERK_STOP)
                is_over = true;
            else
                run_job(c, container_of(m, struct clerk_job, msg));
        }
    }
    return NULL;
}

int clerk_open(struct clerk **out, struct mailbox *home, struct err *e)
{
    struct clerk *c = xcalloc(1, sizeof(*c));

    c->home = home;
    c->stop.kind = CLERK_STOP;
    if (mailbox_open(&c->inbox, e)) {
        mem_free(c);
        return -1;
    }
    if (thread_start(&c->thread, "clerk", clerk_main, c, e)) {
        mailbox_close(c->inbox);
        mem_free(c);
        return -1;
    }
    *out = c;
    return 0;
}

void clerk_close(struct clerk *c)
{
    if (!c)
        return;
    mailbox_post(c->inbox, &c->stop);
    pthread_join(c->thread, NULL);
    mailbox_close(c->inbox);
    mem_free(c);
}

void clerk_post(struct clerk *c, struct clerk_job *take)
{
    take->msg.kind = CLERK_JOB;
    mailbox_post(c->inbox, &take->msg);
}

void clerk_done(struct msg *m)
{
    struct clerk_job *j = container_of(m, struct clerk_job, msg);

    j->done(j);
}
