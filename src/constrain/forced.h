/* forced.h: text that a constraint forces, as draft tokens for speculative decoding.
 *
 * The tokens are proposals: the sampler accepts a draft token only if it selects the same token, so
 * a tokenisation that differs from the model's costs time and never changes the output.
 *
 * Owner: that of the automaton. */
#pragma once

#include "constrain/automaton.h"
#include "constrain/token_trie.h"

/* Writes the longest text that every completion begins with, at most `cap` bytes; returns its
 * length. The caller keeps `s` as a root. */
size_t forced_text(struct automaton *a, state_id s, char *out, size_t cap);

/* Splits the text into tokens, the longest token first; returns their number, at most `cap`. Ends
 * early if no token continues the text. */
size_t forced_tokens(const struct token_trie *t, struct str text, int32_t *ids, size_t cap);
