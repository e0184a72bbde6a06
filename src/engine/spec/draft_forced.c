#include "engine/spec/draft_forced.h"

static int forced(const struct draft_job *job)
{
    int n = job->constraint
                ? job->constraint->ops->forced(job->constraint->self, job->out, job->n_max)
                : 0;

    CHECK(n >= 0 && n <= job->n_max);
    return n;
}

static int offer(struct drafter *d, struct draft_job *job)
{
    job->source = DRAFT_FORCED;
    return forced(job);
}

static void propose(struct drafter *d, struct draft_job *jobs, int n_jobs, const _Atomic bool *stop)
{
    for (int i = 0; i < n_jobs; i++)
        jobs[i].n_out = forced(&jobs[i]);
}

static void forget(struct drafter *d, uint64_t key)
{
}

static void close_forced(struct drafter *d)
{
}

static const struct draft_ops forced_ops = { offer, propose, forget, close_forced };

struct drafter draft_forced = { &forced_ops };
