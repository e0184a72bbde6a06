/* worker.h: worker thread of an io thread: parses, renders and tokenises large bodies, so that the
 * event loop does not block.
 *
 * Megabytes of text take tenths of a second, and tokenising one long word cannot be split into
 * slices. Jobs run one after the other; the tenants take turns (job_queue.h). A tenant has at most
 * WORKER_JOBS_MAX jobs at the thread; the limit of the bodies (http_options.bodies) usually
 * applies first. Jobs that free memory run before all others.
 *
 *     io thread: worker_post ----> worker thread: run, unless is_stopped
 *     io thread: done        <---- mailbox of the loop, WORKER_DONE -> worker_done
 *
 * Owner: a job belongs to the thread that holds it. Between worker_post and done its io thread may
 * only set is_stopped. The functions below are called by the io thread. */
#pragma once

#include "base/err.h"
#include "serve/job_queue.h"

struct worker;

enum { WORKER_DONE = 300 }; /* msg.kind of a job that returns to the io thread */

enum { WORKER_JOBS_MAX = 4096 };

/* `home`: mailbox of the io thread, which receives finished jobs. */
int worker_open(struct worker **out, struct mailbox *home, struct err *e);
/* All posted jobs have returned. Runs the jobs that free memory and joins the thread. Accepts
 * NULL. */
void worker_close(struct worker *c);

/* ERR_OVERLOADED: the tenant has WORKER_JOBS_MAX jobs at the worker thread; the caller keeps the
 * job. */
int worker_post(struct worker *c, struct worker_job *j, struct err *e);
/* For a job without `done`. */
void worker_post_free(struct worker *c, struct worker_job *take);
/* Handles a message of kind WORKER_DONE: calls the job's done. */
void worker_done(struct worker *c, struct msg *m);
