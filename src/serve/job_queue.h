/* job_queue.h: queue of worker jobs in which the tenants take turns (start-time fair queueing by
 * the size of the bodies, served in the order of the virtual ends).
 *
 * Each tenant has a virtual time, which advances by the cost of its jobs. The virtual time of the
 * queue is the latest start of a job that was taken; the time of a tenant whose jobs begin to wait
 * is at least that. The next job is the one that ends first in virtual time. Therefore tenants with
 * large and with small jobs receive equal numbers of bytes, and a small job of a tenant that used
 * less than the others waits only for the job that runs.
 *
 * Pure: no threads, no clock. At most JOB_FLOWS_MAX tenants have waiting jobs, so that nothing is
 * allocated. Owner: the thread that uses it. */
#pragma once

#include "auth/keys.h"
#include "os/mailbox.h"

#include <stdatomic.h>

struct worker_job {                    /* embedded; the caller sets the first four fields */
    void (*run)(struct worker_job *j); /* on the worker thread */
    /* On the io thread, exactly once. NULL: the job does not return and run frees it; freeing
     * hundreds of megabytes takes time, too. */
    void (*done)(struct worker_job *j);
    uint64_t tenant;
    uint64_t cost;           /* bytes of the body, divided by the weight of the tenant; not 0 */
    _Atomic bool is_stopped; /* the result is not needed; run may end early */
    struct msg msg;
};

/* A body of at least this many bytes is handled by the worker thread. */
enum { WORKER_MIN_BODY_BYTES = 32 * 1024 };

enum { JOB_FLOWS_MAX = KEYS_MAX + 1 };

struct job_flow { /* jobs of one tenant */
    uint64_t tenant;
    uint64_t start; /* virtual start of the first waiting job; none waits: end of the last job */
    struct msg_queue jobs;
};

struct job_queue { /* zeroed: empty */
    uint64_t now;  /* virtual time */
    int n_flows;
    struct job_flow flows[JOB_FLOWS_MAX];
};

void job_queue_put(struct job_queue *q, struct worker_job *take);
/* The next job; NULL: empty. A job that is stopped has no cost and precedes the others. */
struct worker_job *job_queue_take(struct job_queue *q);
