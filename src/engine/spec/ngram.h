/* ngram.h: where did these tokens stand before? An index over a list of tokens that grows.
 *
 * For each place of the list, what its last NGRAM_SHORT and its last NGRAM_LONG tokens hash to
 * names a slot, and the slot remembers the place: the latest one wins. A place found is compared
 * with the tokens themselves, so a collision costs a miss and never a wrong match.
 *
 * Why not a suffix automaton: that finds the longest match of all, but takes two states and their
 * edges per token, some 60 bytes, cannot forget, and cannot stop growing. Here a place costs two
 * writes of four bytes, memory is fixed when the request is made, and a long text forgets its
 * oldest places first. The longest match matters when there are several: whoever follows one
 * text (draft.h) stays with it as long as it is right, which is the longest match in effect.
 *
 * Owner: whoever owns the request (gen.h). Allocates nothing. */
#pragma once

#include "base/base.h"

enum { NGRAM_SHORT = 2, NGRAM_LONG = 6 };

struct ngram {
    uint32_t *slots; /* [mask + 1] the place + 1; 0 = none. NULL: the index is always empty */
    uint32_t mask;
    int n; /* places below this one are in it */
};

/* How many slots a list of n_tokens takes, at most `most`: a power of two. */
size_t ngram_slots(int n_tokens, size_t most);
void ngram_init(struct ngram *g, uint32_t *slots, size_t n_slots); /* clears the slots */
/* Places from .. upto - 1 of the list, none of which is in it yet. tokens[upto - 1] exists. */
void ngram_add(struct ngram *g, const int32_t *tokens, int from, int upto);
/* The latest place in `tokens` behind the same `len` (short or long) tokens that end at
 * `end`; -1 = none. */
int ngram_find(const struct ngram *g, const int32_t *tokens, const int32_t *end, int len);
