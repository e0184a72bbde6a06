/* ollama.h: the pieces of Ollama's wire that its files share. Source of the formats: its public
 * documentation of the API and the types of its official client libraries. */
#pragma once

#include "api/fields.h"
#include "api/models.h"
#include "api/wire.h"

/* ollama_request.c */
int ollama_parse_chat(struct ask *ask, const struct json *body, struct arena *a, struct err *e);
int ollama_parse_generate(struct ask *ask, const struct json *body, struct arena *a, struct err *e);
