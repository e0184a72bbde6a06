/* derive.h: derivatives of expressions (Brzozowski 1964; Owens, Reppy, Turon 2009).
 *
 * The derivative of a language by a byte contains the rest of each word that begins with it:
 *
 *     D(S)      = empty word if the byte is in S          D(a or b)  = D(a) or D(b), also and, not
 *     D(a b)    = D(a) b  or  look(D(N(a))) D(b)          D(a{m,n})  = D(a) a{m-1,n-1}
 *     D(look)   = D(caret) = D(boundary) = none           D(scope a) = scope D(a)
 *
 * N(a) is the language of the rests after which `a` accepts the empty word: all or nothing for pure
 * expressions, a lookahead's language otherwise. If N(a) is conditional, a{m,n} with m > 1 has the
 * additional term look(D(N(a))) D(a) a{0,n-1}: iterations that are empty.
 *
 * Work is counted as if no derivative were cached, so that a limit does not depend on the history.
 *
 * Owner: that of the pool. */
#pragma once

#include "constrain/regular/expr.h"

/* `a` is pure. EXPR_NONE if no word of `a` begins with the byte, or if the pool has failed. */
expr_id expr_derive(struct exprs *x, expr_id a, uint8_t byte);
bool expr_accepts(const struct exprs *x, expr_id a); /* the empty word; `a` is pure */

struct byte_partition {
    uint8_t class_of[256];
    uint8_t first[256]; /* smallest byte of each class */
    uint32_t n;         /* 1..256 */
};

/* Bytes of one class have the same derivative. The classes are numbered by their smallest byte. */
void expr_partition(struct exprs *x, expr_id a, struct byte_partition *p);
