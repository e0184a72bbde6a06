/* llama.h: internal interface of llama-server's native completion dialect, which local user
 * interfaces use. Source of the formats: its public documentation.
 *
 * Owner: parsers run on any thread; functions on a response run on its io thread. */
#pragma once

#include "api/common/fields.h"
#include "api/common/dialect.h"

/* llama_request.c */
int llama_parse(struct request *request, const struct json *body, struct arena *a, struct err *e);
/* The same body for /infill: generates the text between `input_prefix` and `input_suffix`. */
int llama_parse_infill(
    struct request *request, const struct json *body, struct arena *a, struct err *e);

/* llama_response.c: writes the default value of each request field, as an object; the members that
 * state sampling parameters. */
void llama_put_defaults(struct jw *w);
void llama_put_sample_params(struct jw *w, const struct sample_params *s);

/* llama_prompt.c: the prompt fields of the body -> f->request->prompts. */
int llama_read_prompts(struct fields *f);
int llama_read_infill(struct fields *f);
