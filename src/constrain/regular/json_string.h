/* json_string.h: the JSON strings whose value satisfies patterns, formats and length limits.
 *
 * Without pattern and format, each character may be written in every form of JSON. With one of them
 * each has a single form (TEXT_JSON in text.h): this is the output policy, and keeps the automaton
 * small. Lengths count code points of the value.
 *
 * Pure functions on the pool. */
#pragma once

#include "constrain/regular/text.h"

struct json_string_limits {
    const struct str *patterns; /* each must match somewhere in the value */
    size_t n_patterns;
    const struct str *formats; /* names; unknown ones are ignored */
    size_t n_formats;
    uint64_t min_length, max_length; /* code points; max_length UINT64_MAX: no limit */
};

/* Sets *out to the contents of the strings, without quotation marks. -1: an error of a pattern, a
 * bound of the pool, or lengths above REPEAT_MAX, which no text reaches. */
int expr_json_string(
    struct exprs *x, const struct json_string_limits *l, expr_id *out, struct err *e) MUST_CHECK;
