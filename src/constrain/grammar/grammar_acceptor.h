/* grammar_acceptor.h: reads texts of a grammar byte by byte (acceptor.h).
 *
 * The method is that of Earley (1970) with the closure over empty rules of Aycock and Horspool
 * (2002), on bytes instead of tokens. All expressions of the grammar are one lazy automaton, so an
 * item needs no steps of its own inside an expression, and there is no lexer: every division of a
 * text into expressions is followed.
 *
 * A position does not depend on its place in the text: it contains the rules in progress and what
 * follows them (grammar_positions.h). Equal positions at several places of a text are one, so that
 * masks can be cached and repetitions need no memory. A call at the end of an alternative passes on
 * the callers of its rule (compare Leo 1991), so right recursion needs neither memory nor time.
 *
 * Owner: one thread at a time. */
#pragma once

#include "constrain/acceptor.h"
#include "constrain/regular/automaton.h"
#include "constrain/grammar/grammar.h"

enum { GRAMMAR_ITEMS_MAX = 2000 }; /* items of a position */

struct grammar_acceptor_limits {
    size_t bytes_max; /* positions */
    struct automaton_limits automaton;
};
extern const struct grammar_acceptor_limits grammar_acceptor_limits_default;

/* `g` is finished and outlives the acceptor. `subs` are the acceptors of the JSON values, by their
 * number (grammar_json_count of them); they belong to the new acceptor, also after a failure.
 * -1: no memory, or the start exceeds a bound. */
int grammar_acceptor_new(struct acceptor **out, const struct grammar *g,
    const struct grammar_acceptor_limits *l, struct acceptor *const *take_subs,
    struct err *e) MUST_CHECK;
