/* constraint_ends.h: counters of the ends of choices with a constraint, by kind and cause.
 *
 * Owner of a struct: its io thread; any thread may read it. */
#pragma once

#include "constrain/constraint.h"
#include "generate/session.h"
#include "serve/metrics.h"

enum constraint_cause {
    ENDED_COMPLETE,  /* the constraint is met */
    ENDED_LENGTH,    /* max_tokens, or the end of the context */
    ENDED_STOP,      /* stop string or stop token of the client */
    ENDED_CANCELLED, /* the client cancelled the request */
    ENDED_ERROR,     /* no permitted token, a bound of the mask, a deadline, a failure */
    N_CONSTRAINT_CAUSES
};

struct constraint_ends { /* zeroed = ready */
    _Atomic uint64_t n[CONSTRAINT_TOOLS + 1][N_CONSTRAINT_CAUSES];
};

void constraint_ends_add(
    struct constraint_ends *c, enum constraint_kind kind, enum constraint_cause cause, int64_t n);
/* The cause of a choice that was not cancelled and did not fail. */
enum constraint_cause constraint_cause_of(const struct choice_end *end);
/* Adds the counters to the shard of a scrape. */
void constraint_ends_copy(const struct constraint_ends *c, struct metrics *m);
