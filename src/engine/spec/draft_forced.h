/* draft_forced.h: drafter that proposes the tokens that the constraint of a choice forces next.
 *
 * The proposals come from the constraint (sample_constraint.h), in its own tokenisation; the model
 * may choose another one, so they are verified like all draft tokens.
 *
 * Owner: the engine thread. Stateless. */
#pragma once

#include "engine/spec/draft.h"

extern struct drafter draft_forced;
