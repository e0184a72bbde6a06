/* tool_choice.h: tool calls of a request: which output parser is used, which tools may be called,
 * and whether a call is forced. Memory comes from the request's arena. Owner: the thread that owns
 * the request. */
#pragma once

#include "generate/prompt.h"

/* Fills *out for the prompt. If a call is forced, the start of the call is appended to the prompt.
 * A tool choice that cannot be satisfied is rejected before generation: ERR_UNSUPPORTED with the
 * field "tool_choice". */
int tool_choice_output(struct output_params *out, struct rendered *prompt,
    const struct request *request, const struct prompt_ctx *ctx, struct err *e);

/* Rejects a constraint on the output of a request whose output may be a tool call: ERR_UNSUPPORTED
 * with the field. */
int tool_choice_check_constraint(const struct request *request, struct err *e);

/* Called when a choice has finished: 0, or ERR_CONSTRAINT if a forced tool call is missing. */
int tool_choice_check(const struct request *request, const struct choice_end *c, struct err *e);

int tool_choice_n_earlier_calls(const struct request *request); /* tool calls in the conversation */
