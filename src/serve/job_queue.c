#include "serve/job_queue.h"

/* The flow of the tenant; else the flow without jobs that ended first, if it ended before now or
 * the table is full; else a new one. A search takes less time than the smallest job. */
static struct job_flow *flow_of(struct job_queue *q, uint64_t tenant)
{
    struct job_flow *idle = NULL;

    for (struct job_flow *f = q->flows; f < q->flows + q->n_flows; f++) {
        if (f->tenant == tenant)
            return f;
        if (!f->jobs.first && (!idle || f->start < idle->start))
            idle = f;
    }
    if (!(idle && idle->start <= q->now) && q->n_flows < JOB_FLOWS_MAX)
        idle = &q->flows[q->n_flows++];
    CHECK(idle);
    *idle = (struct job_flow){ .tenant = tenant };
    return idle;
}

void job_queue_put(struct job_queue *q, struct worker_job *take)
{
    struct job_flow *f = flow_of(q, take->tenant);

    if (!f->jobs.first)
        f->start = MAX(f->start, q->now);
    msg_queue_put(&f->jobs, &take->msg);
}

/* Virtual end of the first job; 0 if it is stopped, so that its memory is released at once. */
static uint64_t first_end(const struct job_flow *f)
{
    const struct worker_job *j = container_of(f->jobs.first, struct worker_job, msg);

    return j->is_stopped ? 0 : f->start + j->cost;
}

struct worker_job *job_queue_take(struct job_queue *q)
{
    struct job_flow *best = NULL;
    uint64_t best_end = 0;

    for (struct job_flow *f = q->flows; f < q->flows + q->n_flows; f++) {
        if (!f->jobs.first)
            continue;
        uint64_t end = first_end(f); /* once, since another thread sets is_stopped */
        if (!best || end < best_end) {
            best = f;
            best_end = end;
        }
    }
    if (!best) {
        q->n_flows = 0; /* without contention, no tenant has used more than another */
        return NULL;
    }
    if (best_end) {
        q->now = MAX(q->now, best->start);
        best->start = best_end;
    }
    return container_of(msg_queue_take(&best->jobs), struct worker_job, msg);
}
