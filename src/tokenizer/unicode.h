/* unicode.h: what kind of character this is, as the pre-tokenizers ask it.
 *
 * ASCII comes from a table, the rest from utf8proc (Unicode 15). Every character has exactly one
 * of LETTER, NUMBER, SPACE and OTHER; NEWLINE (\r, \n) comes with SPACE, PUNCT with OTHER.
 * Pure functions; any thread. */
#pragma once

#include "base/utf8.h"

enum {
    U_LETTER = 1,  /* \p{L} */
    U_NUMBER = 2,  /* \p{N} */
    U_SPACE = 4,   /* \s: the White_Space property */
    U_NEWLINE = 8, /* [\r\n] */
    U_OTHER = 16,  /* none of the first three */
    U_PUNCT = 32,  /* \p{P} */
};

extern const uint8_t unicode_ascii[128];

uint8_t unicode_class(uint32_t cp);

/* The character at p < end: its length, code point and class. A byte that begins no character is
 * a character of its own, U+FFFD and OTHER. */
int unicode_next_slow(const char *p, const char *end, uint32_t *cp, uint8_t *class);

static inline int unicode_next(const char *p, const char *end, uint32_t *cp, uint8_t *class)
{
    if ((signed char)*p < 0)
        return unicode_next_slow(p, end, cp, class);
    *cp = (uint32_t)*p;
    *class = unicode_ascii[*cp];
    return 1;
}
