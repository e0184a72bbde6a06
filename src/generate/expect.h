/* expect.h: what a request expects of its answers besides text: which parts are looked for, which
 * tools may be called, and a call that has to come. In the request's arena; its thread. */
#pragma once

#include "generate/prompt.h"

/* Fills *out for the prompt; where a call is forced, the prompt's end becomes its beginning. What
 * cannot be satisfied is refused here, before anything is computed: ERR_UNSUPPORTED, and the field
 * is "tool_choice". */
int expect_parts(struct parts_params *out, struct rendered *prompt, const struct ask *ask,
    const struct workplace *at, struct err *e);

/* What an answer has to look like, and cannot be held to: ERR_UNSUPPORTED with the field. */
int expect_shape(const struct ask *ask, struct err *e);

/* A choice has ended by itself: 0, or ERR_UNMET, since the call that was asked for is not there. */
int expect_met(const struct ask *ask, const struct choice_end *c, struct err *e);

int expect_n_earlier_calls(const struct ask *ask); /* of the conversation */
