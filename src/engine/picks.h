/* picks.h: the tokens of a step, chosen on all the threads that compute.
 *
 * Choosing from a large vocabulary takes some fifty microseconds; for a hundred sequences, one
 * after the other, that would be as long as a small model's forward pass. Which thread chooses
 * does not show: a token is a function of its logits, its request and its place.
 *
 * A pick is one choice and the rows that it takes tokens from: one, or with guesses one more for
 * each, of which those behind a wrong guess do not count.
 *
 * Owner: the engine thread. Allocates nothing but in picks_open. */
#pragma once

#include "engine/gen.h"
#include "engine/sampler.h"

struct pick {
    struct choice *ch;
    const struct lm_run *run;
    int first;              /* of the run's logits */
    int n_guesses;          /* they lie behind the choice's tokens; -1: it takes no token */
    int n;                  /* chosen, in advance */
    struct sampled *tokens; /* [n] */
};

struct picks {
    struct lm *lm;
    struct sampler **samplers; /* [n_samplers] one for each thread; the first is the engine's */
    int n_samplers;
    struct sampled *tokens; /* [max_logits] */
    struct pick *list;      /* of those that are being chosen */
    int n;
    _Atomic int next;
};

int picks_open(struct picks *p, struct lm *lm, const struct kernels *k, struct err *e);
void picks_close(struct picks *p); /* also after a failed open */

/* list[i].tokens are set and filled, where there are threads for it. */
void picks_choose(struct picks *p, struct pick *list, int n);

/* The i-th token of a pick, chosen now if it was not in advance: then it lies in *room. Of those
 * before it none was a wrong guess, and all are appended to the choice. */
const struct sampled *picks_get(
    const struct picks *p, const struct pick *pick, int i, struct sampled *room);
