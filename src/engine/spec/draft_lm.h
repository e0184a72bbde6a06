/* draft_lm.h: drafter that uses a small model with the vocabulary of the target model.
 *
 * The draft model has its own KV pages. For each drafting sequence it computes the tokens that its
 * KV lacks, then generates token by token; one forward pass per token serves all sequences of the
 * step. It samples with the parameters of the request and the random numbers of the target
 * positions, so equal distributions yield equal tokens.
 *
 * If no page is free, the least recently drafting sequence loses its pages and is computed again
 * when it drafts next. A prompt longer than one pass takes several steps, in which it gets no
 * drafts.
 *
 * Owner: the engine thread. Steps allocate nothing. */
#pragma once

#include "engine/spec/draft_text.h"
#include "model/lm.h"

/* Takes the model, also on failure. n_seqs: sequences with draft state at a time; n_ctx: maximum
 * sequence length. ERR_MEMORY. */
int draft_lm_open(struct drafter **out, struct lm *take, const struct kernels *k, int n_seqs,
    int n_ctx, struct err *e) MUST_CHECK;
