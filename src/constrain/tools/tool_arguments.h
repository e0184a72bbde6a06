/* tool_arguments.h: arguments of a tool call between tags (BODY_TAGS), as a part of a grammar.
 *
 * Owner: that of the grammar. */
#pragma once

#include "base/json.h"
#include "constrain/grammar/grammar.h"
#include "output/format_table.h"

/* The format has a tag for each argument; otherwise arguments are JSON. */
bool tool_arguments_are_tagged(const struct tool_format *f);

/* schema NULL: any arguments. -1: ERR_UNSUPPORTED, a keyword that
 * arguments between tags cannot enforce, "#/properties/a/not: ..". */
int tool_arguments_tagged(struct grammar *g, const struct tool_format *f, const struct json *schema,
    part_id *out, struct err *e) MUST_CHECK;
