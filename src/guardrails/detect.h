/* detect.h: detectors of well-known values in a text: e-mail addresses, card numbers (Luhn), IBANs
 * (mod 97), secret keys by their prefixes.
 *
 * A detector examines one position. It sees at most DETECT_WINDOW bytes from there, and the byte
 * before. The result is the same for every longer text, unless it is DETECT_MORE. Pure; any
 * thread. */
#pragma once

#include "guardrails/guard_set.h"

enum { DETECT_WINDOW = 256 };
enum detect_result { DETECT_NONE, DETECT_FOUND, DETECT_MORE };
/* what else belongs to a value that was found: bytes of a token, or the lines of a key block */
enum detect_tail { TAIL_NONE, TAIL_TOKEN, TAIL_KEY_BLOCK };

/* `s` begins at the position and has at most DETECT_WINDOW bytes; `before` is the byte before, 0 at
 * the start. is_end: the text ends with s, or s has DETECT_WINDOW bytes. FOUND sets *n, and *tail
 * for what follows these n bytes. */
enum detect_result detect(enum guard_detector d, struct str s, unsigned char before, bool is_end,
    size_t *n, enum detect_tail *tail);

/* Continues a value of kind *tail in s. Returns the number of bytes that belong to it; *tail is
 * TAIL_NONE if the value ends there. Fewer bytes than s has without the end: more text is
 * needed. */
size_t detect_tail(enum detect_tail *tail, struct str s, bool is_end);
