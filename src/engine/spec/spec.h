/* spec.h: draft policy of speculative decoding: how many draft tokens a step verifies.
 *
 * A step of a decoding sequence may carry draft tokens (draft.h): rows after its last token, which
 * step.c compares with the sampled tokens. The policy affects time only, never the output, so it
 * may use the clock and earlier measurements.
 *
 *   cost         The cost of a row is estimated as a fraction of the step from pairs of consecutive
 *                steps (row_cost.h), so it does not depend on the present speed of the machine. The
 *                number of drafts varies and is sometimes 0, so such pairs always occur.
 *   benefit      Draft token j of a sequence is accepted with probability p^j, where p is the
 *                acceptance rate of drafts from its source (draft_seq_acceptance).
 *   choice       A sequence gets the number of draft tokens that maximises tokens / time of the
 *                step, if that is better than none by 0.1 / (1 + rows), 5 % for one sequence.
 *                With other decoding sequences in the step, all draft rows together may make it
 *                SPEC_STEP_FACTOR times as long.
 *   loss bound   Losses are paid from a budget per drafter. SPEC_BUDGET_STEPS steps without drafts
 *                add one step time to the budgets of n-gram drafts and draft model together, and
 *                half of that to the budget of forced tokens. The number of accepted tokens is
 *                known; the cost of a row is taken with a margin above the estimate. A step
 *                verifies no more draft tokens than the budget could pay if all were rejected: one
 *                or two while estimates are uncertain.
 *
 * Owner: the engine thread. Allocates nothing in a step. At most SPEC_SEQS offers per step. */
#pragma once

#include "engine/gen.h"
#include "engine/sched/sched.h"

enum {
    SPEC_SEQS = 64,      /* sequences that may draft in one step, in rotation */
    SPEC_ROWS_MAX = 128, /* steps with more rows have no drafts */
    SPEC_BUDGET_STEPS = 80,
    /* Initial sum of the budgets and upper bound of each, in steps; half of each gain is added
     * too. */
    SPEC_BUDGET_MAX = 3,
    SPEC_BUDGET_EXTRA = 8, /* additional upper bound after large gains */
};

#define SPEC_STEP_FACTOR 1.4

struct spec;

/* Takes o->drafter, also on failure. */
int spec_open(struct spec **out, const struct spec_options *o, struct err *e) MUST_CHECK;
void spec_close(struct spec *sp); /* NULL is fine */

/* Extends runs of the plan; draft tokens are stored after the known tokens of their choices. */
void spec_plan(struct spec *sp, struct sched *sc, struct step_plan *p, const _Atomic bool *stop);
/* Adds a measured step: its time without sampling and events, and its accepted draft tokens. */
void spec_add_step(struct spec *sp, const struct step_plan *p, uint64_t step_ns, int n_accepted);
/* The first n_accepted of n draft tokens of a choice were accepted. */
void spec_add_result(struct spec *sp, struct gen_choice *ch, int n, int n_accepted);
void spec_seq_end(struct spec *sp, const struct gen_choice *ch); /* for an ended choice */
