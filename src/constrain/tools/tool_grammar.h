/* tool_grammar.h: grammar of the tool calls of a format (output/format_table.h).
 *
 * The source of a constraint of the kind CONSTRAINT_TOOLS is a JSON object:
 *
 *     format         id of the tool format
 *     max_calls      largest number of calls; 0: no limit
 *     tools          [{"name", "parameters", "optional"}]: a tool without "parameters" takes any
 *                    arguments, and so does an optional tool whose schema cannot be enforced
 *     value          optional {"kind": number of the constraint, "text"}: the output is calls, or a
 *                    text of this constraint
 *     text           optional, true: calls may follow each trigger (tool_triggers.h), and all other
 *                    text is permitted
 *
 * The grammar follows the table entry: before_name, names, after_name, arguments, after_args, and
 * next_call between two calls. Control tokens of the vocabulary match by id, other markers by their
 * bytes. Blanks between two tags and between JSON tokens may differ from those of the entry.
 *
 * Arguments are values of a JSON Schema, or, between tags, one text for each parameter, in the
 * order of the schema: raw text without a tag of the call for strings, JSON for other types.
 * Parameters that the schema does not list are not permitted there.
 *
 * Pure, except for the grammar. */
#pragma once

#include "constrain/grammar/grammar.h"
#include "output/format_table.h"

/* The entry has all that a grammar needs. */
bool tool_grammar_exists(const struct tool_format *f);

/* Adds the rules to `g`, and sets *root to the start. -1: ERR_INVALID, ERR_UNSUPPORTED, ..; errors
 * of the schema of a tool begin with "tool 'NAME': ". */
int tool_grammar_read(struct grammar *g, struct str text, rule_id *root, struct err *e) MUST_CHECK;

/* The schema of a tool does not compile: 0 if all tools with this schema are optional; else -1, and
 * the name of the tool is put in front of the error. */
int tool_grammar_name_schema(struct str text, struct str schema, struct err *e);
