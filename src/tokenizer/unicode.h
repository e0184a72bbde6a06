/* unicode.h: character classes for the pre-tokenizers.
 *
 * ASCII classes come from a table, the others from utf8proc (Unicode 15). Every character has
 * exactly one of LETTER, NUMBER, SPACE and OTHER. NEWLINE (\r, \n) occurs with SPACE; UPPER and
 * LOWER with LETTER; PUNCT, SYMBOL, MARK and UNMARKED with OTHER; HAN with any. Pure functions;
 * any thread. */
#pragma once

#include "base/utf8.h"

enum {
    U_LETTER = 1,      /* \p{L} */
    U_NUMBER = 2,      /* \p{N} */
    U_SPACE = 4,       /* \s: the White_Space property */
    U_NEWLINE = 8,     /* [\r\n] */
    U_OTHER = 16,      /* none of LETTER, NUMBER, SPACE */
    U_PUNCT = 32,      /* \p{P} */
    U_MARK = 64,       /* \p{M} */
    U_SYMBOL = 128,    /* \p{S} */
    U_UPPER = 256,     /* \p{Lu}, \p{Lt} */
    U_LOWER = 512,     /* \p{Ll} */
    U_UNMARKED = 1024, /* OTHER and not MARK */
    U_HAN = 2048,      /* \p{Han} */
};

extern const uint16_t unicode_ascii[128];

uint16_t unicode_class(uint32_t cp);

/* Length, code point and class of the character at p < end. An invalid byte is a character of its
 * own, U+FFFD and OTHER. */
int unicode_next_slow(const char *p, const char *end, uint32_t *cp, uint16_t *class);

static inline int unicode_next(const char *p, const char *end, uint32_t *cp, uint16_t *class)
{
    if ((signed char)*p < 0)
        return unicode_next_slow(p, end, cp, class);
    *cp = (uint32_t)*p;
    *class = unicode_ascii[*cp];
    return 1;
}
