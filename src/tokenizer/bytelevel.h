/* bytelevel.h: the alphabet of byte-level BPE: every byte is written as one printable character
 * (GPT-2's table: "Ġ" is a blank, "Ċ" a newline). Pure; any thread. */
#pragma once

#include "base/str.h"

/* Writes the bytes that `text` spells to out, which has room for text.n; returns how many, or -1
 * when a character is not of the alphabet. */
ptrdiff_t bytelevel_decode(struct str text, char *out);

/* The character that spells a byte, 1 or 2 bytes of UTF-8. Returns their number. */
int bytelevel_encode(uint8_t byte, char out[4]);
