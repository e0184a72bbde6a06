/* token_mask.h: operations on the masks of constraints.
 *
 * Pure functions; any thread. */
#pragma once

#include "engine/sample/sample_constraint.h"

static inline size_t token_mask_words(int n_vocab)
{
    return ((size_t)n_vocab + 31) / 32;
}

/* The mask permits the token; `id` is below n_vocab. */
bool token_mask_has(const struct token_mask *m, int32_t id);

/* Number of permitted tokens, at most `most`; ids outside the vocabulary do not count. */
int token_mask_count(const struct token_mask *m, int n_vocab, int most);

/* Writes the permitted ids in ascending order, at most `cap`, and returns their number. */
int token_mask_list(const struct token_mask *m, int n_vocab, int32_t *ids, int cap);

/* Sets the bits of the permitted tokens and clears the others: [token_mask_words(n_vocab)]. */
void token_mask_bits(const struct token_mask *m, int n_vocab, uint32_t *bits);

/* Copies a mask; `memory` has token_mask_words(n_vocab) words. A list of more ids becomes a bit
 * set. */
void token_mask_copy(
    struct token_mask *to, const struct token_mask *from, int n_vocab, uint32_t *memory);

/* Adds the panels of logits (model/lm.h) that hold a permitted token: bits of [token_mask_words(
 * logit_panels(n_vocab))] words. */
void token_mask_panels(const struct token_mask *m, int n_vocab, uint32_t *panels);
