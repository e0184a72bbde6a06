/* timed.h: model that computes nothing; each forward pass advances a simulated clock.
 *
 * For server simulations: the output of a request is its script, and the duration of a forward pass
 * is given by a cost function. The contract is that of lm.h, without logits.
 *
 * Owner: the thread of the simulation. */
#pragma once

#include "model/lm.h"

struct timed_law { /* nanoseconds; keys: sum of the positions that the rows attend to */
    double fixed, per_row, per_key;
    /* the first rows of a step cost nothing: the time to read the weights hides them */
    double free_rows;
    double jitter; /* the duration increases by a random share between 0 and this value */
    uint64_t seed;
};

struct timed_options {
    int n_vocab, n_ctx_train, max_rows;
    uint32_t n_pages;
    int n_layers; /* layers share the time of a row equally; 0 = 1: no partial runs */
    struct timed_law law;
    uint64_t *clock; /* advanced by each pass; owned by the caller, outlives the model */
};

int lm_open_timed(struct lm **out, const struct timed_options *o, struct err *e) MUST_CHECK;
