/* draft.h: who guesses what comes next. This is all that one has to be:
 *
 *   offer     how many tokens could you propose here, and of what kind? Cheap.
 *   propose   the first job->most of them, for the jobs that were granted any
 *   forget    that sequence has ended
 *   close     and so have you
 *
 * A right guess saves a step, a wrong one costs a row; the answer is the same, for step.c compares
 * each with what the sampler takes. Whatever a drafter says, tokens that the vocabulary does not
 * have are never computed. It is asked in two calls so that one that computes can do so for all
 * sequences of a step together; spec.h decides between them, and who gets how many.
 *
 * Drafters: what stood in this very request before, its prediction included (draft_text.h), and a
 * small model (draft_lm.h). Tests have wicked ones. Nothing may cross from one request to another.
 *
 * Owner: the engine thread. offer, propose and forget allocate nothing. */
#pragma once

#include "engine/sample/sampler.h"
#include "engine/stats.h"

enum { DRAFT_MOST = 64 }; /* tokens of one draft */

enum draft_source { /* what a guess is founded on: how often each kind is right is learned apart */
    DRAFT_PREDICTION,
    DRAFT_PREDICTION_BENT,
    DRAFT_LONG, /* of the history */
    DRAFT_MIDDLE,
    DRAFT_SHORT,
    DRAFT_BENT,
    DRAFT_MODEL,
    N_DRAFT_SOURCES
};

struct draft_job {         /* about one sequence that decodes */
    struct draft_seq *seq; /* what is kept of it between steps: draft_text.h */
    uint64_t key;          /* the same in all steps of a sequence, no other's while it lives */
    const int32_t *tokens;
    int n, n_prompt; /* known: prompt and output so far */
    const struct sample_params *sample;
    int choice;
    void *user;               /* the gen's */
    int most;                 /* offer: at most so many may be wanted; propose: are wanted */
    enum draft_source source; /* out, of offer */
    int n_out;                /* out, of propose: so many are in `out` */
    bool is_prompt;           /* out, of propose: time went into computing its prompt */
    int32_t *out;             /* room for `most`, right behind the known tokens */
};

struct drafter {
    const struct draft_ops *ops;
};

struct draft_ops {
    /* 0 .. job->most; sets job->source. */
    int (*offer)(struct drafter *d, struct draft_job *job);
    /* Fills out and n_out (0 .. most) of each; may be interrupted by `stop`. */
    void (*propose)(
        struct drafter *d, struct draft_job *jobs, int n_jobs, const _Atomic bool *stop);
    void (*forget)(struct drafter *d, uint64_t key); /* never asked about: fine */
    void (*close)(struct drafter *d);
};

static inline enum draft_kind draft_kind_of(enum draft_source source)
{
    if (source == DRAFT_MODEL)
        return DRAFT_BY_MODEL;
    return source <= DRAFT_PREDICTION_BENT ? DRAFT_BY_PREDICTION : DRAFT_BY_HISTORY;
}
