/* common_fields.h: read functions for field tables (fields.h) that several dialects share.
 *
 * Each function reads a value that is not null into f->request; 0, or -1 with the field in the
 * error. Any thread. */
#pragma once

#include "api/common/fields.h"

/* Reads {"id": bias}. */
int row_logit_bias(struct fields *f, const char *name, const struct json *v);
/* Reads an object of up to 16 short strings. */
int row_metadata(struct fields *f, const char *name, const struct json *v);
/* Reads one prompt or several. */
int row_prompt(struct fields *f, const char *name, const struct json *v);
/* Sets a single fill-in-the-middle prompt. */
int row_fill(struct fields *f, const struct infill *fill);
/* Reads the output of the `script` back end. */
int row_script(struct fields *f, const char *name, const struct json *v);
/* Reads a seed; -1: random. */
int row_seed(struct fields *f, const char *name, const struct json *v);
/* Reads a stop string or an array of them. */
int row_stop(struct fields *f, const char *name, const struct json *v);

/* Passes request->reasoning_effort and request->thinking to the chat template, as reasoning_effort
 * and enable_thinking; the client's chat_template_kwargs take precedence. */
int tell_template(struct fields *f);
