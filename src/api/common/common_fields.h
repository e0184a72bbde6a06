/* common_fields.h: read functions for field tables (fields.h) that several dialects share.
 *
 * Each function reads a value that is not null into f->request; 0, or -1 with the field in the
 * error. Any thread. */
#pragma once

#include "api/common/fields.h"

/* Reads {"id": bias}. */
int common_field_logit_bias(struct fields *f, const char *name, const struct json *v);
/* Reads an object of up to 16 short strings. */
int common_field_metadata(struct fields *f, const char *name, const struct json *v);
/* Reads one prompt or several. */
int common_field_prompt(struct fields *f, const char *name, const struct json *v);
/* Sets a single fill-in-the-middle prompt. */
int common_field_infill(struct fields *f, const struct infill *infill);
/* The sampler order of llama-server: a string or an array of names. */
int common_field_samplers(struct fields *f, const char *name, const struct json *v);
/* OpenAI's service_tier; the note of no_effect.def unless it is auto or default. */
int common_field_service_tier(struct fields *f, const char *name, const struct json *v);
/* Reads the output of the `script` back end. */
int common_field_script(struct fields *f, const char *name, const struct json *v);
/* Reads a seed; -1: random. */
int common_field_seed(struct fields *f, const char *name, const struct json *v);
/* Reads a stop string or an array of them. */
int common_field_stop(struct fields *f, const char *name, const struct json *v);

/* Passes request->reasoning_effort and request->thinking to the chat template, as reasoning_effort
 * and enable_thinking; the client's chat_template_kwargs take precedence. */
int common_field_set_template_kwargs(struct fields *f);
