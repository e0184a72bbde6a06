/* worker.h: worker thread of an io thread: parses, renders and tokenises large bodies, so that the
 * event loop does not block.
 *
 * Megabytes of text take tenths of a second, and tokenising one long word cannot be split into
 * slices. Jobs run one after the other, oldest first. They wait in a mailbox; their number is
 * bounded by the limit of the bodies that they hold (http_options.bodies).
 *
 *     io thread: worker_post ----> worker thread: run, unless is_stopped
 *     io thread: done        <---- mailbox of the loop, WORKER_DONE -> worker_done
 *
 * Owner: a job belongs to the thread that holds it. Between worker_post and done its io thread may
 * only set is_stopped. */
#pragma once

#include "base/err.h"
#include "os/mailbox.h"

#include <stdatomic.h>

struct worker;

enum { WORKER_DONE = 210 }; /* msg.kind of a job that returns to the io thread */

struct worker_job {                    /* embedded; the caller sets the first two fields */
    void (*run)(struct worker_job *j); /* on the worker thread */
    /* On the io thread, exactly once. NULL: the job does not return and run frees it; freeing
     * hundreds of megabytes takes time, too. */
    void (*done)(struct worker_job *j);
    _Atomic bool is_stopped; /* the result is not needed; run may end early */
    struct msg msg;
};

/* A body of at least this many bytes is handled by the worker thread. */
enum { WORKER_MIN_BODY_BYTES = 32 * 1024 };

/* `home`: mailbox of the io thread, which receives finished jobs. */
int worker_open(struct worker **out, struct mailbox *home, struct err *e);
/* Runs the queued jobs that are not stopped, returns all, and joins the thread. Accepts NULL. */
void worker_close(struct worker *c);

void worker_post(struct worker *c, struct worker_job *take);
void worker_done(struct msg *m); /* handles a message of kind WORKER_DONE: calls the job's done */
