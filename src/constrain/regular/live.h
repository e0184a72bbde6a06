/* live.h: decides whether a language is empty.
 *
 * Unions, concatenations and repetitions of languages that are not empty are not empty. For
 * intersections, complements and scopes the derivatives are searched, depth first and those with
 * the shortest minimal length first. If the search finds a word, all expressions on its path are
 * marked; otherwise all expressions that it visited are empty. The marks make later searches
 * short.
 *
 * Owner: that of the pool. */
#pragma once

#include "constrain/regular/expr.h"

enum { LIVE_SEARCH_MAX = 100000 }; /* expressions visited by one search */

/* True if `a` contains a word; exact. If a bound is exceeded, the pool fails and the result is
 * false. `a` is pure. */
bool expr_is_live(struct exprs *x, expr_id a);
