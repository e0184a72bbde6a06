/* rows.h: rows of request tables (fields.h) that several wires have, and what they end with.
 *
 * Each reads a value that is not null into f->ask; 0 or -1 with the field named. */
#pragma once

#include "api/common/fields.h"

int row_logit_bias(struct fields *f, const char *name, const struct json *v); /* {"id": bias} */
int row_metadata(struct fields *f, const char *name, const struct json *v);   /* 16 short strings */
int row_prompt(struct fields *f, const char *name, const struct json *v);     /* one or several */
/* The one prompt is what stands between two texts. */
int row_fill(struct fields *f, const struct infill *fill);
int row_script(struct fields *f, const char *name, const struct json *v);
int row_seed(struct fields *f, const char *name, const struct json *v); /* -1: any */
int row_stop(struct fields *f, const char *name, const struct json *v); /* one or an array */

/* The template is told of ask->reasoning_effort and ask->thinking, as reasoning_effort and
 * enable_thinking, where the client's chat_template_kwargs do not say otherwise. */
int tell_template(struct fields *f);
