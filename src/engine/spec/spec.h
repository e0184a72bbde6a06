/* spec.h: how many guesses a step takes along, and whether they pay.
 *
 * A step of a sequence that decodes may carry drafts (draft.h): rows behind its last token, which
 * step.c compares with what the sampler takes from the row before. Nothing here reaches an answer:
 * it decides about time alone, so it may look at the clock and at what happened before.
 *
 *   what a row costs   is learned as a share of the step, from pairs of steps in a row (slope.h),
 *                      so that it matters little how fast the machine is at the moment. Drafts
 *                      vary, and now and then there are none, so there are always such pairs
 *   what it brings     draft j of a sequence comes true with chance^j, where chance is what was
 *                      learned of drafts of its kind (draft_seq_chance)
 *   the rule           a sequence gets as many as make the most of (tokens / time) of the step,
 *                      if that is better than none by 5 % of what the sequence brings; beside
 *                      others, who wait for their own next token, all of them together may make
 *                      a step SPEC_STRETCH times as long
 *   the bound          what drafts lost is paid from their drafter's budget, into which all
 *                      together one part in SPEC_PART of all steps goes. How many came true is
 *                      known, and what their rows cost is taken to be dear: so much dearer than
 *                      expected as is unlikely, by what is known so far. A step takes no more
 *                      drafts along than the budget could pay, were none of them right: with
 *                      little evidence, and rows that may cost as much as steps, that is one or two
 *
 * Owner: the engine thread. Steps allocate nothing. Costs at most SPEC_SEQS offers a step. */
#pragma once

#include "engine/gen.h"
#include "engine/sched/sched.h"

enum {
    SPEC_SEQS = 64,  /* sequences that may draft in one step; they take turns */
    SPEC_ROWS = 128, /* steps with more rows than this take no drafts along */
    SPEC_PART = 80,
    SPEC_STEPS = 3, /* all budgets begin with so many steps, and each holds so many at most; half
                     * of what was won goes in too */
    SPEC_MORE = 8,  /* and so many more where much was won lately */
};

#define SPEC_STRETCH 1.4

struct spec;

/* Takes o->drafter, also on failure. */
int spec_open(struct spec **out, const struct spec_options *o, struct err *e) MUST_CHECK;
void spec_close(struct spec *sp); /* NULL is fine */

/* Extends runs of the plan; the drafts lie behind the known tokens of their choices. */
void spec_plan(struct spec *sp, struct sched *sc, struct plan *p, const _Atomic bool *stop);
/* The plan took step_ns, without what its tokens took, and n_right of its drafts came true. */
void spec_learn(struct spec *sp, const struct plan *p, uint64_t step_ns, int n_right);
/* Of the n drafts of a choice, the first n_right came true. */
void spec_judge(struct spec *sp, struct choice *ch, int n, int n_right);
void spec_forget(struct spec *sp, const struct choice *ch); /* it has ended */
