/* timed.h: script model (script.h) whose forward passes advance a simulated clock.
 *
 * For server simulations: the output of a request is its script, and the duration of a forward pass
 * is given by a cost function. The contract is that of lm.h, without logits.
 *
 * Owner: the thread of the simulation. */
#pragma once

#include "model/lm.h"

/* Duration of a forward pass in nanoseconds:
 *     (fixed + per_row * max(rows - free_rows, 0) + per_key * keys) * (1 + jitter * u)
 * `keys` is the sum of the positions that the rows attend to, u is uniform in 0 .. 1. */
struct timed_cost {
    double fixed, per_row, per_key;
    /* the first rows of a step cost nothing: the time to read the weights hides them */
    double free_rows;
    double jitter; /* maximum relative increase */
    uint64_t seed; /* seed of u */
};

struct timed_options {
    int n_vocab, n_ctx_train, max_rows;
    uint32_t n_pages;
    int n_layers; /* layers share the time of a row equally; 0 = 1: no partial runs */
    struct timed_cost cost;
    uint64_t *clock; /* advanced by each pass; owned by the caller, outlives the model */
};

int lm_open_timed(struct lm **out, const struct timed_options *o, struct err *e) MUST_CHECK;
