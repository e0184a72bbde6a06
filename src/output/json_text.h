/* json_text.h: pieces of JSON strings, written and read a few bytes at a time.
 *
 * What is written is always good JSON: control characters are escaped, halves of surrogate pairs
 * that have lost each other become U+FFFD. The bytes are taken to be valid UTF-8, but a piece may
 * begin or end inside a character. Owner: whoever holds it. */
#pragma once

#include "base/buf.h"
#include "base/json_scan.h"

/* Text as the inside of a JSON string. */
void json_text_put(struct buf *out, struct str s);

/* UTF-16 units of \u escapes: the first half of a pair waits for its second. */
struct json_units {
    uint16_t high; /* 0: none waits */
};
void json_unit_escape(struct json_units *u, uint16_t unit, struct buf *out); /* as \uXXXX */
void json_unit_text(struct json_units *u, uint16_t unit, struct buf *out);   /* as UTF-8 */
/* Something else follows: a half that waits has lost its other half. */
void json_unit_end_escape(struct json_units *u, struct buf *out);
void json_unit_end_text(struct json_units *u, struct buf *out);

/* ---- reading: behind the opening quote, to the closing one */

enum json_string_state { JSON_STRING_PLAIN, JSON_STRING_ESCAPE, JSON_STRING_HEX, JSON_STRING_END };

struct json_string {
    enum json_string_state state;
    struct json_units units;
    uint16_t unit;
    uint8_t n_hex;
};

/* One step: a run of plain bytes, or one byte of an escape, decoded into out. Returns the bytes
 * used, at least one; 0: the byte cannot stand here. Behind the closing quote state is _END.
 * Control characters stand for themselves. */
size_t json_string_step(struct json_string *s, struct str in, struct buf *out);
