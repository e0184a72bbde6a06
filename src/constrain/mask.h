/* mask.h: the tokens that may follow at a position of an acceptor.
 *
 * A token is permitted if the acceptor reaches a live position after its bytes, or if it is one of
 * the control tokens of the position; an end token exactly if the position accepts. The acceptor is
 * stepped along the trie of the vocabulary: a subtree is skipped when its first byte is dead, and
 * taken as a whole when the position permits all texts. If the position permits characters of a
 * token class by their number alone (acceptor_ops.reach), the tokens of the class are added as a
 * set, and only the others are tried. Masks that took many steps are stored by the key of the
 * position. An automaton is stepped without positions.
 *
 * An expensive mask is computed in parts: mask_run returns MASK_MORE when the budget of the call is
 * used up, and continues from there. Neither the parts nor the cache change a mask.
 *
 * This module allocates only in mask_new.
 *
 * Owner: that of the acceptor. */
#pragma once

#include "constrain/acceptor.h"
#include "constrain/vocab/vocab_tables.h"
#include "engine/sample/sample_constraint.h"

enum { MASK_STEPS_MAX = 4000000 }; /* nodes of the trie in one mask; more are an error */

struct mask;

/* `t` and `a` are borrowed until mask_free, which precedes the end of the acceptor. cache_bytes:
 * memory for masks by key. -1: out of memory. */
int mask_new(struct mask **out, const struct vocab_tables *t, struct acceptor *a,
    size_t cache_bytes, struct err *e) MUST_CHECK;
void mask_free(struct mask *m); /* accepts NULL */
size_t mask_bytes(const struct mask *m);

/* Begins the mask of a position; drops one that is not finished. Until the mask is finished or
 * dropped, the caller makes and frees no positions. */
void mask_begin(struct mask *m, pos_id p);
void mask_drop(struct mask *m); /* frees the positions of a mask that is not finished */
/* Continues for about `steps` nodes of the trie (UINT64_MAX: to the end); at least one part is done
 * by each call. MASK_ERROR: a bound of the acceptor is exceeded. */
enum mask_progress mask_run(struct mask *m, uint64_t steps, struct err *e) MUST_CHECK;
/* The mask after MASK_DONE, valid until the next mask_begin: bit `id % 32` of word `id / 32`. */
const uint32_t *mask_tokens(const struct mask *m);
/* The same in its smallest form: ids if at most 2 % of the vocabulary are permitted. */
struct token_mask mask_form(const struct mask *m);
uint64_t mask_steps(const struct mask *m); /* nodes and transitions since mask_begin */
