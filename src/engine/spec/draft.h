/* draft.h: interface of a drafter for speculative decoding:
 *
 *   offer     returns how many tokens it can propose for a sequence, and their source; cheap
 *   propose   generates the first job->n_max tokens of the selected jobs
 *   forget    a sequence has ended
 *   close     frees the drafter
 *
 * An accepted draft token saves a step, a rejected one costs a row. The output is the same, since
 * step.c compares each draft token with the sampled one. Ids outside the vocabulary are never
 * computed. The two calls allow a drafter with a model to process all sequences of a step in one
 * batch; spec.h decides which drafter is used and how many tokens a sequence gets.
 *
 * Drafters: tokens that the constraint forces (draft_forced.h), n-gram matches in the request
 * itself and the client's prediction (draft_text.h), a draft model (draft_lm.h), and adversarial
 * ones in tests. No data may pass from one request to another.
 *
 * Owner: the engine thread. offer, propose and forget allocate nothing. */
#pragma once

#include "engine/sample/sampler.h"
#include "engine/stats.h"

enum { DRAFT_MAX = 64 }; /* tokens of one draft */

enum draft_source { /* evidence for a draft; acceptance rates are kept per source */
    DRAFT_PREDICTION,
    DRAFT_PREDICTION_EDITED,
    DRAFT_HISTORY_LONG, /* match in the history (prompt and output), by match length */
    DRAFT_HISTORY_MIDDLE,
    DRAFT_HISTORY_SHORT,
    DRAFT_HISTORY_EDITED,
    DRAFT_MODEL,
    DRAFT_FORCED,
    N_DRAFT_SOURCES
};

struct draft_job {         /* request for drafts of one decoding sequence */
    struct draft_seq *seq; /* state between steps: draft_text.h */
    uint64_t key;          /* constant for a sequence, unique while it exists */
    const int32_t *tokens;
    int n, n_prompt; /* known tokens: prompt and output */
    const struct sample_params *sample;
    const struct sample_constraint *constraint; /* NULL = none */
    int choice;
    void *user;               /* user pointer of the gen */
    int n_max;                /* offer: upper limit; propose: number of tokens requested */
    enum draft_source source; /* result of offer */
    int n_out;                /* result of propose: tokens in `out` */
    bool is_prompt;           /* result of propose: the time includes the prefill of its prompt */
    int32_t *out;             /* room for `n_max` tokens directly after the known ones */
};

struct drafter {
    const struct draft_ops *ops;
};

struct draft_ops {
    /* Returns 0 .. job->n_max; sets job->source. */
    int (*offer)(struct drafter *d, struct draft_job *job);
    /* Sets out and n_out (0 .. n_max) of each job; `stop` may interrupt it. */
    void (*propose)(
        struct drafter *d, struct draft_job *jobs, int n_jobs, const _Atomic bool *stop);
    void (*forget)(struct drafter *d, uint64_t key); /* also for unknown keys */
    void (*close)(struct drafter *d);
};

static inline enum draft_kind draft_kind_of(enum draft_source source)
{
    if (source >= DRAFT_MODEL)
        return source == DRAFT_MODEL ? DRAFT_BY_MODEL : DRAFT_BY_CONSTRAINT;
    return source <= DRAFT_PREDICTION_EDITED ? DRAFT_BY_PREDICTION : DRAFT_BY_HISTORY;
}
