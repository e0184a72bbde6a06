/* picks.h: the tokens of a step, chosen, and those of prompts scored, on all the threads that
 * compute.
 *
 * Either takes some fifty microseconds of a large vocabulary; for a hundred rows, one after the
 * other, that would be as long as a small model's forward pass. Which thread does it does not show:
 * a token is a function of its logits, its request and its place, and so is what one is worth.
 *
 * A pick is one choice and its rows with logits. The first score the prompt: each says how likely
 * the next of its tokens was. Tokens are taken from those behind: one, or with guesses one more for
 * each, of which those behind a wrong guess do not count.
 *
 * Owner: the engine thread. Allocates nothing but in picks_open. */
#pragma once

#include "engine/gen.h"
#include "engine/sample/sampler.h"

struct pick {
    struct choice *ch;
    const struct lm_run *run;
    int n_scores;           /* the first of the run's logits */
    int first;              /* of them that a token is taken from */
    int n_guesses;          /* they lie behind the choice's tokens; -1: it takes no token */
    int n;                  /* chosen, in advance */
    struct sampled *tokens; /* [n] */
    struct sampled *scores; /* [n_scores]; NULL: not in advance */
};

struct piece { /* what one thread does at a time */
    struct pick *pick;
    int score; /* row; -1: tokens are chosen */
};

struct picks {
    struct lm *lm;
    struct sampler **samplers; /* [n_samplers] one for each thread; the first is the engine's */
    int n_samplers;
    struct sampled *tokens; /* [max_logits] */
    struct piece *pieces;   /* [max_logits], n of them are being done */
    int n;
    _Atomic int next;
};

int picks_open(struct picks *p, struct lm *lm, const struct kernels *k, struct err *e);
void picks_close(struct picks *p); /* also after a failed open */

/* tokens and scores of all are set and filled, where there are threads for it. */
void picks_choose(struct picks *p, struct pick *list, int n);

/* Of the i-th row that scores the prompt, likewise. */
const struct sampled *picks_score(
    const struct picks *p, const struct pick *pick, int i, struct sampled *room);

/* The i-th token of a pick, chosen now if it was not in advance: then it lies in *room. Of those
 * before it none was a wrong guess, and all are appended to the choice. */
const struct sampled *picks_get(
    const struct picks *p, const struct pick *pick, int i, struct sampled *room);
