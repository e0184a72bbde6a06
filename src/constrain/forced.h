/* forced.h: text that a constraint forces, as draft tokens for speculative decoding.
 *
 * The tokens are proposals: the sampler accepts a draft token only if it selects the same token, so
 * a tokenisation that differs from the model's costs time and never changes the output.
 *
 * Owner: that of the acceptor. */
#pragma once

#include "constrain/acceptor.h"
#include "constrain/vocab/token_trie.h"

/* Writes the longest text that every completion begins with, at most `cap` bytes; returns its
 * length. *end is the position after it; the caller frees the positions. */
size_t forced_text(struct acceptor *a, pos_id p, char *out, size_t cap, pos_id *end);

/* The control token that must follow; TOKEN_NONE if there is none. */
int32_t forced_control(struct acceptor *a, pos_id p);

/* Splits the text into tokens, the longest token first; returns their number, at most `cap`. Ends
 * early if no token continues the text. */
size_t forced_tokens(const struct token_trie *t, struct str text, int32_t *ids, size_t cap);
