/* automaton_acceptor.h: an automaton (automaton.h) as an acceptor (acceptor.h).
 *
 * A position is an entry of a stack of states; the states on the stack survive a flush of the
 * automaton. At most AUTOMATON_POSITIONS_MAX positions exist at a time.
 *
 * Owner: one thread at a time. */
#pragma once

#include "constrain/acceptor.h"
#include "constrain/regular/automaton.h"

enum { AUTOMATON_POSITIONS_MAX = 8192 };

/* `root` is pure; `x` is only read. If the language is empty, every step is dead. -1: no memory,
 * or a bound. */
int automaton_acceptor_new(struct acceptor **out, const struct exprs *x, expr_id root,
    struct automaton_limits limits, struct err *e) MUST_CHECK;
