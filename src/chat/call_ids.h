/* call_ids.h: ids of tool calls in the form in which a model's template wants them back.
 *
 * Clients give back the ids that an answer had, but also those of other servers, of other models,
 * and of their own making. Templates that insist on a form refuse them (Mistral's), or models
 * have never seen the like (Kimi's). What does not fit is renamed, in the call and in its result
 * alike; what fits stays. Pure. */
#pragma once

#include "chat/convo.h"
#include "output/parser.h"

/* ERR_MEMORY. *out may share everything with *in; the rest is in the arena. */
int call_ids_fit(
    struct convo *out, const struct convo *in, enum call_ids form, struct arena *a, struct err *e);
