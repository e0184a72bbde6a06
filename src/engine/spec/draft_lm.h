/* draft_lm.h: a small model with the vocabulary of the large one guesses what that will say.
 *
 * It has pages of its own and computes the same tokens a second time: for each sequence that
 * drafts it remembers how far it came, catches up, and goes on token by token, all sequences of a
 * step together. It takes its tokens with the request's own sampling and the random numbers of
 * their positions, so where both models agree on the odds they agree on the token.
 *
 * Pages are taken from the sequence that drafted least recently when none are free; it catches up
 * when it drafts again. A prompt that is longer than one pass takes some steps, in which nothing is
 * proposed for it.
 *
 * Owner: the engine thread. Steps allocate nothing. */
#pragma once

#include "engine/spec/draft_text.h"
#include "model/lm.h"

/* Takes the model, also on failure. n_seqs: that may draft by turns; n_ctx: longest sequence.
 * ERR_MEMORY. */
int draft_lm_open(struct drafter **out, struct lm *take, const struct kernels *k, int n_seqs,
    int n_ctx, struct err *e) MUST_CHECK;
