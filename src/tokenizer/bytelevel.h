/* bytelevel.h: the alphabet of byte-level BPE: every byte is written as one printable character
 * (GPT-2's table: "Ġ" is a blank, "Ċ" a newline). Pure functions; any thread. */
#pragma once

#include "base/str.h"

/* Decodes `text` to the bytes it represents. out has room for text.n bytes; returns their number,
 * or -1 if a character is not in the alphabet. */
ptrdiff_t bytelevel_decode(struct str text, char *out);

/* Writes the character of a byte, 1 or 2 bytes of UTF-8. Returns their number. */
int bytelevel_encode(uint8_t byte, char out[4]);
