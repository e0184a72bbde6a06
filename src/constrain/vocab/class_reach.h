/* class_reach.h: how many characters of a token class a state permits.
 *
 * A state is uniform for a class if all characters of the class lead to one state. The reach is the
 * length of the chain of uniform states: every text of so many characters is permitted. It is exact
 * if no character of the class can follow it, or if it is at least as long as the longest token of
 * the class; then the tokens of the class are permitted by their number of characters alone.
 * A state that is not uniform has an unlimited reach if characters of CLASS_STRING lead from it to
 * few states, all of them live: the search for a pattern that may begin anywhere in a string.
 *
 * Results are stored by state until the automaton is flushed. Memory is fixed. Owner: that of the
 * automaton. */
#pragma once

#include "constrain/regular/automaton.h"
#include "constrain/vocab/token_class.h"

struct class_reach;

struct class_reach *class_reach_new(struct automaton *a) MUST_CHECK; /* NULL: out of memory */
void class_reach_free(struct class_reach *r);                        /* accepts NULL */
size_t class_reach_bytes(void);

/* The reach, if it is exact and above 0; otherwise 0. `n_max`: characters of the longest token of
 * the class. Adds the number of transitions to *steps. The caller keeps `s` as a root. */
uint32_t class_reach_get(
    struct class_reach *r, state_id s, enum token_class class, uint32_t n_max, uint64_t *steps);
