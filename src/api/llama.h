/* llama.h: llama-server's own completion, as local user interfaces speak it. Source of the
 * formats: its public documentation. */
#pragma once

#include "api/fields.h"
#include "api/wire.h"

/* llama_request.c */
int llama_parse(struct ask *ask, const struct json *body, struct arena *a, struct err *e);
