/* token_limit.h: removes from a mask the tokens after which the output cannot be completed within
 * the tokens that remain (x_constraint.close_at_limit).
 *
 * `room` is the number of tokens that may still be generated, with the end token if the output
 * needs one. A token remains in the mask if the completion (completion.h) of the position after it
 * needs at most room - 1 tokens. The completion of the position itself begins with such a token, so
 * the mask does not become empty if the position fits in `room`.
 *
 * The largest cost after a token of a mask is stored by the key of the position; as long as `room`
 * is above it, a mask needs no work.
 *
 * Owner: that of the acceptor. Allocates only at creation. */
#pragma once

#include "constrain/completion.h"
#include "engine/sample/sample_constraint.h"

struct token_limit;

/* `t` and `a` are borrowed. -1: ERR_UNSUPPORTED: the acceptor has no completions; ERR_MEMORY. */
int token_limit_new(struct token_limit **out, const struct vocab_tables *t, struct acceptor *a,
    uint32_t tokens_max, struct err *e) MUST_CHECK;
void token_limit_free(struct token_limit *l); /* accepts NULL; precedes the end of the acceptor */
size_t token_limit_bytes(const struct token_limit *l);

/* Tokens that complete the output at the position; COMPLETION_COST_NONE. */
uint32_t token_limit_cost(struct token_limit *l, pos_id p);
/* The first tokens of the completion; returns their number. */
int token_limit_tokens(struct token_limit *l, pos_id p, int32_t *ids, int cap);

/* Begins with the finished mask of a position that fits in `room`. Until it is finished or dropped,
 * the caller makes and frees no positions. */
void token_limit_begin(struct token_limit *l, pos_id p, const struct token_mask *m, uint32_t room);
void token_limit_drop(struct token_limit *l);
/* Continues for about `steps` bytes of tokens. After MASK_DONE *out is valid until the next
 * token_limit_begin, or is the mask of the call if no token was removed. MASK_ERROR: a bound of the
 * acceptor is exceeded. */
enum mask_progress token_limit_run(
    struct token_limit *l, uint64_t steps, struct token_mask *out, struct err *e) MUST_CHECK;
