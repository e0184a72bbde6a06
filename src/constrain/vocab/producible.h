/* producible.h: the texts that the tokens of a vocabulary can produce.
 *
 * Most vocabularies have a token for each byte and produce all texts. Others, for example SPM
 * without byte tokens, produce the sequences of their tokens: single bytes, and units, the tokens
 * with another byte that are not sequences of shorter tokens.
 *
 * Read-only after creation: any thread. */
#pragma once

#include "constrain/regular/expr.h"
#include "constrain/vocab/token_trie.h"

struct producible {
    struct byte_set single; /* bytes with a token of one byte */
    struct byte_set any;    /* bytes of any token */
    struct token_trie units;
};

int producible_init(struct producible *p, const struct token_source *src,
    const struct token_trie *all, struct err *e) MUST_CHECK;
void producible_clear(struct producible *p); /* accepts a zeroed struct */

/* Sets *out to the texts of the pure expression `root` that the vocabulary can produce: `root`
 * itself if there is a token for each byte. -1: there is none, although the language is not empty,
 * with a byte which is missing; or a bound of the pool is exceeded. */
int producible_restrict(const struct producible *p, struct exprs *x, expr_id root, expr_id *out,
    struct err *e) MUST_CHECK;
