/* text.h: characters as expressions over bytes.
 *
 * A text is a sequence of encoded code points. The encodings are prefix codes, and encodings of
 * different code points differ, so union, intersection and complement of sets of texts are those
 * of the sets of code point sequences.
 *
 *   TEXT_UTF8           UTF-8 (RFC 3629): no surrogates, no overlong forms
 *   TEXT_JSON           contents of a JSON string (RFC 8259): UTF-8, except that `"`, `\` and the
 *                       control characters with a short escape (\b \f \n \r \t) are escaped; `/`
 *                       has both forms; the other control characters cannot be written
 *   TEXT_JSON_U_ESCAPE  the same, and each code point also as \u with four hexadecimal digits, or
 *                       as a pair of surrogates
 *
 * Pure functions on the pool. */
#pragma once

#include "constrain/regular/code_points.h"
#include "constrain/regular/expr.h"

/* One character of the set; surrogates are ignored. `s` is sorted by the call. `mode` is TEXT_UTF8
 * or TEXT_JSON. */
expr_id text_class(struct exprs *x, struct code_points *s, enum text_mode mode);
expr_id text_any(struct exprs *x, enum text_mode mode);      /* any character */
expr_id text_any_star(struct exprs *x, enum text_mode mode); /* any text */
/* The characters of a UTF-8 string; EXPR_NONE if the mode cannot write one. */
expr_id text_literal(struct exprs *x, struct str utf8, enum text_mode mode);
