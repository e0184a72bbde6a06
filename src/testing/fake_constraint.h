/* fake_constraint.h: constraint whose mask is a pseudo-random function of the tokens, for tests of
 * the engine.
 *
 * The state after some tokens is a hash of them. From the hash follow the form of the mask (all,
 * bit set, list), its density, whether the state accepts, and the byte steps that the mask takes.
 * Some states permit one token, which is proposed as a forced token; proposals are sometimes wrong.
 *
 * The object checks its caller: a mask becomes garbage at the next push or pop, calls must not
 * overlap, pops are limited to the pushed tokens and to CONSTRAINT_POP_MAX.
 *
 * Owner: as struct sample_constraint. Allocates only in fake_constraint_new. */
#pragma once

#include "engine/sample/sample_constraint.h"

enum { FAKE_ENDS_MAX = 2 };

struct fake_constraint_options {
    uint64_t seed; /* each seed defines another constraint */
    int n_vocab, max_tokens;
    int32_t ends[FAKE_ENDS_MAX]; /* end tokens */
    int n_ends;
    int max_cost;       /* a mask takes 1 .. max_cost byte steps; 0 = 1 */
    int forced_percent; /* states that permit one token */
    int list_percent;   /* share of the others: few tokens */
    int accept_percent; /* states that accept */
    /* Numbers of tokens from which on: nothing may follow; nothing is permitted; a mask exceeds a
     * bound. 0 = never. */
    int complete_at, empty_at, error_at;
};

struct fake_constraint;

int fake_constraint_new(struct fake_constraint **out, const struct fake_constraint_options *o,
    struct err *e) MUST_CHECK;
void fake_constraint_free(struct fake_constraint *f); /* accepts NULL */
struct sample_constraint fake_constraint_ops(struct fake_constraint *f);
int fake_constraint_n(const struct fake_constraint *f); /* pushed tokens */
