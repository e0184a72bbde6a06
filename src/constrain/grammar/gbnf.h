/* gbnf.h: reads grammars in GBNF, the notation of llama.cpp (grammars/README.md there).
 *
 * Rules `name ::= alternatives`, one per line, of "literals", classes [a-z] and [^a-z], `.` for any
 * character, groups, `*`, `+`, `?`, {m}, {m,}, {m,n}, comments from `#` to the end of the line, and
 * tokens <[id]>, <text> and their complements !<..>. Escapes: \t \r \n \\ \" \[ \] \xHH \uHHHH
 * \UHHHHHHHH. A newline is permitted inside of a group and after `::=` and `|`. The start is the
 * rule `root`. A rule that is defined again replaces the earlier definition.
 *
 * Beyond llama.cpp: left recursion, `_` in names, and counts up to 2^30. The complement of a token
 * is another control token or one UTF-8 character (grammar_token_except).
 *
 * Pure, except for the grammar. */
#pragma once

#include "constrain/grammar/grammar.h"

/* Adds the rules of the text to `g`, and sets *root to the rule `root`. The names are separate from
 * those of other texts in `g`. -1: ERR_SYNTAX, ERR_NOT_FOUND.. "line 2, column 5: ..". */
int gbnf_read(struct grammar *g, struct str text, rule_id *root, struct err *e) MUST_CHECK;
