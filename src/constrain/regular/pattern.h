/* pattern.h: ECMA-262 patterns with the flag `u` as expressions.
 *
 * Supported: alternatives; greedy and lazy quantifiers; groups, with and without names; classes,
 * `.`, \d \w \s \p{..} and their complements; escapes; `^`, `$`, `\b`, `\B`; lookaheads anywhere.
 * Characters are code points. A lazy quantifier denotes the same language as a greedy one.
 *
 * Beyond the flag `u`, as in patterns without it (annex B): `{`, `}` and `]` that are no syntax
 * are characters, and a backslash before a punctuation character or a blank denotes the
 * character.
 *
 * The flags i, m and s are options, since they have no place in a pattern.
 *
 * Refused with the construct and its offset in bytes: backreferences, lookbehinds, inline flags,
 * groups of other dialects, escapes of letters without meaning, unknown properties.
 *
 * The state of the parser is on the stack of the call; the recursion is bounded by
 * PATTERN_DEPTH_MAX. */
#pragma once

#include "constrain/regular/text.h"

enum { PATTERN_DEPTH_MAX = 100, PATTERN_BYTES_MAX = 1 << 18 };

enum pattern_extent {
    PATTERN_SEARCH, /* texts that contain a match, like `pattern` of JSON Schema */
    PATTERN_FULL    /* texts that are a match from start to end */
};

enum {
    PATTERN_IGNORE_CASE = 1, /* i: simple case folding */
    PATTERN_LINES = 2,       /* m: `^` and `$` also match at newlines; TEXT_UTF8 only */
    PATTERN_DOT_ALL = 4,     /* s: `.` is any character */
    PATTERN_LINE_FEED = 8    /* `.` is any character except a newline, as in Python and Rust */
};

struct pattern_options {
    enum text_mode mode;
    enum pattern_extent extent;
    unsigned flags;
};

/* Sets *out to a pure expression for the texts in the encoding `mode`, TEXT_UTF8 or TEXT_JSON.
 * -1: syntax error, a construct that is refused, or a bound of the pool. */
int pattern_compile_with(struct exprs *x, struct str pattern, const struct pattern_options *o,
    expr_id *out, struct err *e) MUST_CHECK;
/* The same without flags. */
int pattern_compile(struct exprs *x, struct str pattern, enum text_mode mode,
    enum pattern_extent extent, expr_id *out, struct err *e) MUST_CHECK;
