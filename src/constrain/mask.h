/* mask.h: the tokens that may follow in a state of an automaton.
 *
 * A token is permitted if the automaton reaches a live state after its bytes; an end token exactly
 * if the state accepts. The automaton is stepped along the trie of the vocabulary: a subtree is
 * skipped when its first byte is dead, and taken as a whole when the state permits all texts. If
 * the state permits characters of a token class by their number alone (class_reach.h), the tokens
 * of the class are added as a set, and only the others are tried. Masks that took many steps are
 * stored by state.
 *
 * An expensive mask is computed in parts: mask_run returns MASK_PAUSED when the budget of the call
 * is used up, and continues from there. Neither the parts nor the cache change a mask.
 *
 * This module allocates only in mask_new; the automaton may allocate states.
 *
 * Owner: that of the automaton. */
#pragma once

#include "constrain/automaton.h"
#include "constrain/vocab_tables.h"

enum mask_status {
    MASK_READY,
    MASK_PAUSED,
    MASK_FAILED /* a bound of the automaton is exceeded */
};

struct mask;

/* `t` and `a` are borrowed until mask_free, which precedes automaton_free. cache_bytes: memory for
 * masks by state. -1: out of memory. */
int mask_new(struct mask **out, const struct vocab_tables *t, struct automaton *a,
    size_t cache_bytes, struct err *e) MUST_CHECK;
void mask_free(struct mask *m); /* accepts NULL */
size_t mask_bytes(const struct mask *m);

/* Begins the mask of a state; drops one that is not finished. The state is kept in the automaton
 * until the next call. */
void mask_begin(struct mask *m, state_id s);
/* Continues for about `steps` nodes of the trie (UINT64_MAX: to the end); at least one part is done
 * by each call. */
enum mask_status mask_run(struct mask *m, uint64_t steps, struct err *e) MUST_CHECK;
/* The mask after MASK_READY, valid until the next mask_begin: bit `id % 32` of word `id / 32`. */
const uint32_t *mask_tokens(const struct mask *m);
uint64_t mask_steps(const struct mask *m); /* nodes and transitions since mask_begin */
