/* fold.h: case folding of one character, for the comparison of blocklist entries with texts.
 *
 * The folding is that of Unicode (C and F: "ß" is "ss") after compatibility decomposition, so that
 * full-width letters and ligatures equal plain ones. Characters that are not displayed, such as the
 * zero-width space, fold to nothing. Pure; any thread. */
#pragma once

#include "base/str.h"

enum { FOLD_BYTES_MAX = 128 };

/* Writes the folded form of the character; returns its length, 0 to FOLD_BYTES_MAX. */
size_t fold_char(uint32_t cp, char out[FOLD_BYTES_MAX]);
/* Letters, digits, marks and connectors, such as "_". */
bool fold_is_word(uint32_t cp);
