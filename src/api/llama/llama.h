/* llama.h: llama-server's own completion, as local user interfaces speak it. Source of the
 * formats: its public documentation. */
#pragma once

#include "api/common/fields.h"
#include "api/common/wire.h"

/* llama_request.c */
int llama_parse(struct ask *ask, const struct json *body, struct arena *a, struct err *e);
/* The same body, which asks for what stands between `input_prefix` and `input_suffix`. */
int llama_parse_infill(struct ask *ask, const struct json *body, struct arena *a, struct err *e);

/* llama_response.c: what a request means that says nothing, as an object. */
void llama_put_defaults(struct jw *w);

/* llama_prompt.c: found fields -> f->ask->prompts. */
int llama_read_prompts(struct fields *f);
int llama_read_fill(struct fields *f);
