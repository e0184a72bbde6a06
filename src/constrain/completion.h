/* completion.h: short completions of the text at a position, and the tokens that they need.
 *
 * The completion of a position is made of the elements that acceptor_ops.completion returns one
 * after the other. Its tokens are the longest ones of the vocabulary from left to right. Both are
 * functions of the position alone, and the completion after its first token is the rest of the
 * completion: a text can always be completed in the counted number of tokens.
 *
 * For a regular language the completion is the shortest text. For grammars it is the shortest text
 * except for JSON values in it; for JSON values it is chosen member by member and is short.
 *
 * Owner: that of the acceptor. Allocates only at creation. */
#pragma once

#include "constrain/acceptor.h"
#include "constrain/vocab/vocab_tables.h"

#define COMPLETION_COST_NONE UINT32_MAX

struct completions;

/* `tokens_max`: completions with more tokens are not of interest. Borrows `a`, on which
 * completion_new was called, and `t`. -1: out of memory. */
int completions_new(struct completions **out, const struct vocab_tables *t, struct acceptor *a,
    uint32_t tokens_max, struct err *e) MUST_CHECK;
void completions_free(struct completions *c); /* accepts NULL */
size_t completions_bytes(const struct completions *c);

/* Tokens of the completion, with an end token if more text may follow it; COMPLETION_COST_NONE:
 * none was found, or more than tokens_max. *work: grows by the elements that were read. */
uint32_t completion_cost(struct completions *c, pos_id p, uint64_t *work);
/* Writes the first tokens of the completion, without the end token. Returns their number. */
int completion_tokens(struct completions *c, pos_id p, int32_t *ids, int cap);
