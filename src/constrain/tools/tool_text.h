/* tool_text.h: the strings of a JSON Schema as raw text, for arguments between tags.
 *
 * Owner: that of the pool. */
#pragma once

#include "base/json.h"
#include "constrain/regular/expr.h"

/* Sets *out to the strings that satisfy the schema, as UTF-8; EXPR_NONE if it permits none. `root`
 * is the document to which local references refer. -1: ERR_UNSUPPORTED, a keyword for which there
 * is no expression; an error of a pattern. */
int tool_text_of_schema(struct exprs *x, const struct json *root, const struct json *schema,
    expr_id *out, struct err *e) MUST_CHECK;

/* Texts that the parser could read as JSON (coerce.h), as a superset. */
expr_id tool_text_like_json(struct exprs *x);
