/* tool_choice.h: tool calls of a request: which output parser is used, which tools may be called,
 * and whether a call is forced. Memory comes from the request's arena. Owner: the thread that owns
 * the request. */
#pragma once

#include "generate/prompt.h"

/* Fills *out for the prompt. If a call is forced, the start of the call is appended to the prompt.
 * A tool choice that cannot be satisfied is rejected before generation: ERR_UNSUPPORTED with the
 * field "tool_choice". */
int expect_parts(struct parts_params *out, struct rendered *prompt, const struct ask *ask,
    const struct workplace *ctx, struct err *e);

/* Rejects a constraint on the output, which is not supported: ERR_UNSUPPORTED with the field. */
int expect_shape(const struct ask *ask, struct err *e);

/* Called when a choice has finished: 0, or ERR_UNMET if a forced tool call is missing. */
int expect_met(const struct ask *ask, const struct choice_end *c, struct err *e);

int expect_n_earlier_calls(const struct ask *ask); /* tool calls in the conversation */
