/* call_ids.h: converts ids of tool calls to the form that the model's template requires.
 *
 * Clients return the ids of earlier responses, but also ids of other servers and models, and their
 * own. Some templates reject ids in another form (Mistral), and some models were trained on one
 * form only (Kimi). An id in the wrong form is replaced, in the call and in its result alike; all
 * other ids are unchanged. Pure functions; any thread. */
#pragma once

#include "chat/convo.h"
#include "output/parser.h"

/* ERR_MEMORY. *out may share memory with *in; new data is in the arena. */
int call_ids_convert(struct convo *out, const struct convo *in, enum call_id_form form,
    struct arena *a, struct err *e);
