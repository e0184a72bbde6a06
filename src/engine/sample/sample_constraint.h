/* sample_constraint.h: interface of the engine to a constraint: one object per choice.
 *
 * The state is a function of the tokens pushed so far. The engine pushes each token that it appends
 * to a choice, and pushes and pops draft tokens; it never skips one. A preemption does not change
 * the state, since it does not depend on the KV cache.
 *
 * No function allocates. Calls for one choice are on one thread at a time; choices are independent.
 *
 * Owner: the engine thread, or the pool thread that samples the choice in a step. */
#pragma once

#include "base/err.h"

enum mask_form {
    MASK_FORM_ALL,  /* every token; neither array is set */
    MASK_FORM_BITS, /* bit `id % 32` of word `id / 32` */
    MASK_FORM_IDS,  /* few tokens: ids in ascending order; 0 of them: none is permitted */
};

struct token_mask {
    enum mask_form form;
    const uint32_t *bits; /* [(n_vocab + 31) / 32] */
    const int32_t *ids;   /* [n_ids] */
    int n_ids;
};

enum mask_progress { MASK_DONE, MASK_MORE, MASK_ERROR };

struct constraint_ops {
    /* Computes the mask after the pushed tokens, for about `steps` byte steps. MASK_MORE: call
     * again; the choice pauses meanwhile. The mask is valid until the next push or pop, and
     * contains the end tokens. A finished mask is returned again without work. The mask does not
     * depend on how the work was divided. MASK_ERROR: a bound was exceeded; *e names it. */
    enum mask_progress (*mask)(void *self, uint64_t steps, struct token_mask *out, struct err *e);
    /* False: the token is not permitted, and nothing changes. End tokens are not pushed. */
    bool (*push)(void *self, int32_t token);
    void (*pop)(void *self, int n); /* removes the last n tokens, at most CONSTRAINT_POP_MAX */
    /* Tokens that the constraint forces next, as draft tokens; returns their number, at most
     * `cap`. */
    int (*forced)(void *self, int32_t *ids, int cap);
    /* The output is accepted and no token may follow except an end token. */
    bool (*is_complete)(void *self);
    bool (*accepts)(void *self);
    /* Returns to the state before the first push. */
    void (*reset)(void *self);
};

enum { CONSTRAINT_POP_MAX = 64 }; /* at least the draft tokens of a step */

struct sample_constraint {
    const struct constraint_ops *ops; /* NULL: the choice has no constraint */
    void *self;
};
