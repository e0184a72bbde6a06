/* tool_choice.h: tool calls of a request: which output parser is used, which tools may be called,
 * and whether a call is forced. A call is forced by a grammar (constrain/tools) if the format of
 * the model has one, else by the start of a call in the prompt. Memory comes from the request's
 * arena. Owner: the thread that owns the request. */
#pragma once

#include "generate/prompt.h"

/* Fills *out for the prompt. If a call is forced without a grammar, the start of the call is
 * appended to the prompt. A tool choice that cannot be satisfied is rejected before generation:
 * ERR_UNSUPPORTED with the field "tool_choice". */
int tool_choice_output(struct output_params *out, struct rendered *prompt,
    const struct request *request, const struct prompt_ctx *ctx, struct err *e);

/* Rejects a constraint on the output of a request whose output may be a tool call in a format
 * without a grammar: ERR_UNSUPPORTED with the field. */
int tool_choice_check_constraint(
    const struct request *request, const struct prompt_ctx *ctx, struct err *e);

/* A request that may call tools; the model is not known. */
bool tool_choice_may_have_grammar(const struct request *request);
/* The output has the constraint of tool_choice_source. */
bool tool_choice_has_grammar(const struct request *request, const struct prompt_ctx *ctx);
/* That constraint permits text and calls (call_gate.h): no call is forced, and the request has no
 * constraint of its own. */
bool tool_choice_is_free(const struct request *request);
/* Some tool is strict: it is an error if the constraint does not compile. */
bool tool_choice_is_strict(const struct request *request);
/* The constraint: calls; or, if none is forced, calls or a text of the request's own constraint;
 * or, if it has none, text and calls. Arguments of strict tools satisfy their schemas. ERR_MEMORY.
 */
int tool_choice_source(struct constraint_source *out, const struct request *request,
    const struct prompt_ctx *ctx, struct err *e);

/* Called when a choice has finished: 0, or ERR_CONSTRAINT if a forced tool call is missing. */
int tool_choice_check(const struct request *request, const struct choice_end *c, struct err *e);

int tool_choice_n_earlier_calls(const struct request *request); /* tool calls in the conversation */
