/* utf8.h: strict UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing above U+10FFFF. Pure;
 * any thread. */
#pragma once

#include "base/str.h"

/* Decodes the character at s.p. Returns its length 1..4 and sets *cp; 0 if the bytes are invalid;
 * -1 if s ends inside a character that may still be valid. */
int utf8_decode(struct str s, uint32_t *cp);
int utf8_encode(uint32_t cp, char out[4]); /* returns 1..4; cp must be a scalar value */
bool utf8_valid(struct str s);
/* Characters that a terminal interprets or that reorder text: C0, DEL, C1, bidirectional marks,
 * embeddings, overrides and isolates. */
bool utf8_is_control(uint32_t cp);
/* Valid, and without control characters of ASCII: can be written to a log or an error. */
bool utf8_is_printable(struct str s);

/* Length of the longest prefix of s that does not end inside a character. Invalid bytes count as
 * complete characters, since further bytes cannot make them valid. */
size_t utf8_complete(struct str s);

#define UTF8_REPLACEMENT STR("\xEF\xBF\xBD")
