/* json_text.h: incremental encoding and decoding of JSON strings.
 *
 * The output is always valid JSON: control characters are escaped, and unpaired surrogates become
 * U+FFFD. The input must be valid UTF-8, but a call may begin or end inside a character. Owner: the
 * caller; one thread at a time. */
#pragma once

#include "base/buf.h"
#include "base/json_scan.h"

/* Appends the text as the inside of a JSON string. */
void json_text_put(struct buf *out, struct str s);

/* UTF-16 units of \u escapes: a high surrogate is held until its low surrogate arrives. */
struct json_units {
    uint16_t high; /* 0: none is held */
};
void json_unit_escape(struct json_units *u, uint16_t unit, struct buf *out); /* writes \uXXXX */
void json_unit_text(struct json_units *u, uint16_t unit, struct buf *out);   /* writes UTF-8 */
/* Something other than a low surrogate follows: a held high surrogate becomes U+FFFD. */
void json_unit_end_escape(struct json_units *u, struct buf *out);
void json_unit_end_text(struct json_units *u, struct buf *out);

/* ---- decoding: from after the opening quote to the closing quote */

enum json_string_state { JSON_STRING_PLAIN, JSON_STRING_ESCAPE, JSON_STRING_HEX, JSON_STRING_END };

struct json_string {
    enum json_string_state state;
    struct json_units units;
    uint16_t unit;
    uint8_t n_hex;
};

/* One step: decodes a run of plain bytes, or one byte of an escape, into out. Returns the number of
 * bytes consumed, at least one; 0: the byte is not allowed here. The state after the closing quote
 * is JSON_STRING_END. Unescaped control characters are accepted. */
size_t json_string_step(struct json_string *s, struct str in, struct buf *out);
