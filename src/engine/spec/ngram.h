/* ngram.h: n-gram index of a growing token list: positions after the last tokens.
 *
 * For each position, the hashes of the preceding NGRAM_SHORT and NGRAM_LONG tokens select two
 * slots, which store the position; a later position replaces an earlier one. A found position is
 * compared with the tokens, so a hash collision causes a miss and never a false match.
 *
 * A suffix automaton finds the longest match, but needs two states with edges per token (about 60
 * bytes), cannot delete and cannot bound its memory. Here a position costs two writes of 4 bytes,
 * memory is fixed when the request is created, and a long text loses its oldest positions first.
 * The longest match matters if there are several; following one text as long as it agrees
 * (draft_text.h) has that effect.
 *
 * Owner: the owner of the request (gen.h). Allocates nothing. */
#pragma once

#include "base/base.h"

enum { NGRAM_SHORT = 2, NGRAM_LONG = 6 };

struct ngram {
    uint32_t *slots; /* [mask + 1] position + 1; 0 = none. NULL: the index is always empty */
    uint32_t mask;
    int n; /* positions below n are indexed */
};

/* Number of slots for n_tokens, a power of two, at most `most`. */
size_t ngram_slots(int n_tokens, size_t most);
void ngram_init(struct ngram *g, uint32_t *slots, size_t n_slots); /* clears the slots */
/* Adds positions from .. upto - 1, none of which is indexed. tokens[upto - 1] exists. */
void ngram_add(struct ngram *g, const int32_t *tokens, int from, int upto);
/* Latest indexed position of `tokens` that follows the `len` (short or long) tokens before `end`;
 * -1 = none. */
int ngram_find(const struct ngram *g, const int32_t *tokens, const int32_t *end, int len);
