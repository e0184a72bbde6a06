/* sample_batch.h: samples the output tokens and computes the prompt logprobs of a step in parallel
 * on the threads of the model's pool.
 *
 * One row takes about 50 microseconds with a large vocabulary; 100 rows on one thread would take as
 * long as a forward pass of a small model. The result does not depend on the thread: a token is a
 * function of its logits, its request and its position.
 *
 * A job is one choice and its rows with logits. The first rows are prompt rows: each yields the
 * logprob of the next prompt token. The others yield output tokens: one, plus one per draft token;
 * those after a rejected draft token are not used.
 *
 * Owner: the engine thread. Allocates only in sample_batch_open. */
#pragma once

#include "engine/gen.h"
#include "engine/sample/sampler.h"

struct sample_job {
    struct gen_choice *ch;
    const struct lm_run *run;
    int n_scores;       /* prompt rows, the first of the run's logits */
    int first;          /* index of the first logits row that yields an output token */
    int n_draft_tokens; /* draft tokens, stored after the choice's tokens; -1: yields no token */
    int n;              /* tokens sampled in parallel */
    struct sampled *tokens; /* [n] */
    struct sampled *scores; /* [n_scores]; NULL: not computed in parallel */
};

struct sample_task { /* unit of work of one thread */
    struct sample_job *job;
    int score; /* prompt row; -1: output tokens */
};

struct sample_batch {
    struct lm *lm;
    struct sampler **samplers; /* [n_samplers] one per thread; the engine thread uses the first */
    int n_samplers;
    struct sampled *tokens;    /* [max_logits] */
    struct sample_task *tasks; /* [max_logits]; n tasks of this step */
    int n;
    _Atomic int next;
};

int sample_batch_open(
    struct sample_batch *p, struct lm *lm, const struct kernels *k, struct err *e);
void sample_batch_close(struct sample_batch *p); /* also after a failed open */

/* Fills tokens and scores of all jobs if the model has several threads. */
void sample_batch_run(struct sample_batch *p, struct sample_job *list, int n);

/* Logprob of the i-th prompt row, computed into *room if it was not computed in parallel. */
const struct sampled *sample_batch_score(
    const struct sample_batch *p, const struct sample_job *job, int i, struct sampled *scratch);

/* The i-th output token of a job, sampled into *room if it was not sampled in parallel. All tokens
 * before it were accepted draft tokens and are appended to the choice. */
const struct sampled *sample_batch_token(
    const struct sample_batch *p, const struct sample_job *job, int i, struct sampled *scratch);
