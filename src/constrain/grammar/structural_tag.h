/* structural_tag.h: reads structural tags, the JSON notation of XGrammar for texts with tags.
 *
 *   {"type": "structural_tag", "format": FORMAT}
 *   {"type": "structural_tag", "structures": [{"begin", "schema", "end"}, ..], "triggers": [..]}
 *
 * FORMAT is an object with "type":
 *
 *   const_string {value}, literal {text}    the text
 *   json_schema {json_schema, style}        a value of the schema; style "json"
 *   grammar {grammar}, regex {pattern}      GBNF; ECMA-262, matches the whole part
 *   any_text {excludes}, wildcard_text      UTF-8 text without these strings
 *   token {token}                           a token by id or text
 *   exclude_token, any_tokens {exclude_tokens}  one token, any tokens, that are not listed
 *   sequence, or {elements}; optional, plus, star {content}; repeat {min, max, content}
 *   tag {begin, content, end}               begin, end: text or token; end: also a list of texts
 *   triggered_tags {triggers, tags, at_least_one, stop_after_first, excludes}
 *   token_triggered_tags {trigger_tokens, tags, at_least_one, stop_after_first, exclude_tokens}
 *   tags_with_separator {tags, separator, at_least_one, stop_after_first}
 *   dispatch {rules: [[trigger, FORMAT], ..], loop, excludes}
 *   token_dispatch {rules: [[token, FORMAT], ..], loop, exclude_tokens}
 *   tag_dispatch, token_tag_dispatch {pairs: [{trigger, content}, ..], loop_after_dispatch, ..}
 *
 * Free text of any_text, triggered_tags and dispatch does not contain an end of the innermost tag
 * around it; free tokens are not its end token. Unknown members are errors.
 *
 * Pure, except for the grammar. The recursion is bounded by the depth of JSON. */
#pragma once

#include "constrain/grammar/grammar.h"

/* Adds the rules to `g`, and sets *root to the start. -1: ERR_SYNTAX, ERR_INVALID, ..
 * "#/format/elements/0/type: ..". */
int structural_tag_read(
    struct grammar *g, struct str text, rule_id *root, struct err *e) MUST_CHECK;
