/* constrained.h: the masks of constrained choices between the steps of the engine.
 *
 * A choice with a constraint takes a token only when the mask after its last token is known. The
 * mask is *pending* from the moment at which the token is appended, or the request scheduled, until
 * a step has computed it (mask_batch.h). While it is pending, the sequence pauses: the row that
 * yields its next token is not planned (seq.h, is_paused), and other sequences continue. The
 * choices of a request share the last row of the prompt, so that row waits for all of them.
 *
 * The state of the constraint has the output tokens of the choice pushed at all times, except while
 * draft tokens are examined. It does not depend on pages: preemption and interrupted steps do not
 * change it.
 *
 * Owner: the engine thread. Allocates nothing. */
#pragma once

#include "engine/core.h"

/* The mask of the next token is pending from now on; no effect without a constraint. */
void constrained_begin(struct core *c, struct gen_choice *ch);
void constrained_end(struct core *c, struct gen_choice *ch); /* the choice ends */

/* Continues pending masks. Returns false if there was nothing to do. */
bool constrained_compute(struct core *c);

/* After spec_plan: removes draft tokens that the constraints do not permit from the plan, and
 * computes the masks of the logits rows. */
void constrained_cut_drafts(struct core *c);

/* Panels of logits that run `run` of the plan needs, for lm_run.panels; NULL = all. Only a run of a
 * constrained choice without logprobs needs less than all. */
const uint32_t *constrained_panels(struct core *c, int run);

/* Ends a choice for which no token is permitted, or whose mask exceeds a bound. The other choices
 * of the request continue; if all of them end in this way, the request has the error
 * ERR_CONSTRAINT. */
void constrained_end_unmet(struct core *c, struct gen_choice *ch, uint64_t now);

/* The constraint permits no further token except an end token; false without a constraint. */
bool constrained_is_complete(const struct gen_choice *ch);
/* The constraint accepts the output, or there is none. */
bool constrained_accepts(const struct gen_choice *ch);
