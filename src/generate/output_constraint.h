/* output_constraint.h: compiles the constraint of a request and makes the states of its choices.
 *
 * Compilation takes up to 100 ms and belongs to a worker thread. Errors of the client's text are
 * ERR_INVALID or ERR_UNSUPPORTED, also if a bound is exceeded, and name the field and the place:
 *
 *     response_format.json_schema.schema#/properties/a/pattern: lookbehind is not supported
 *
 * Any thread. */
#pragma once

#include "generate/request.h"
#include "registry/registry.h"

/* `field`: name of the request field that contains src->text. The model outlives *out. */
int output_constraint_compile(struct constraint **out, const struct constraint_source *src,
    const char *field, const struct model *m, struct err *e);
