/* lark.h: reads grammars in Lark, as custom tools of OpenAI send them.
 *
 * Rules `name: alternatives` and terminals `NAME: ..`, of "strings" and "strings"i, ranges
 * "a".."z", patterns /../ with the flags i, m, s, groups, [optional parts], `?`, `*`, `+`, `~ n`,
 * `~ n..m`, {m}, {m,}, {,n}, {m,n}, and `%json {..}` for a value of a JSON Schema. The directive
 * `%import common.X` imports a terminal of Lark's library; `%ignore` permits a terminal before each
 * terminal of a rule and at the end. Comments begin with `//` or `#`. The start is the rule
 * `start`. Aliases and the prefixes `?`, `!` of rules have no effect.
 *
 * The language is that of Lark's Earley parser with the lexer `dynamic_complete`: each division of
 * the text into terminals is followed. Differences: terminals may be empty; patterns are those of
 * ECMA-262 (pattern.h), and a lookahead ends with its terminal; common.ESCAPED_STRING contains no
 * quotation mark, and common.C_COMMENT no end mark, inside.
 *
 * Refused by name: templates, priorities, %declare, %override, %extend, imports of other libraries,
 * lookbehinds.
 *
 * Pure, except for the grammar. */
#pragma once

#include "constrain/grammar/grammar.h"

/* Adds the rules of the text to `g`, and sets *root to the start. The names are separate from those
 * of other texts in `g`. -1: ERR_SYNTAX, ERR_UNSUPPORTED, .. "line 2, column 5: ..". */
int lark_read(struct grammar *g, struct str text, rule_id *root, struct err *e) MUST_CHECK;
