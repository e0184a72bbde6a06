/* literal.h: a literal of Python, or of a family that writes nearly that, as JSON.
 *
 * Strings ('..', "..", tripled, with Python's escapes), numbers, True, False, None (and JSON's
 * words for them), lists, tuples, dicts; commas before a closing bracket are allowed. A dialect
 * may have quotes of its own, between which everything stands for itself, and dict keys without
 * quotes. Names, calls, prefixed strings and arithmetic are none of it.
 *
 * Incremental like json_walk.h, and with the same promises: what is written is always a prefix of
 * a good JSON text, the byte at which it turns out bad does not depend on how the text was cut.
 * Numbers and words appear when they have ended. Owner: whoever holds it. */
#pragma once

#include "output/json_walk.h"

enum { LITERAL_DEPTH_MAX = 1 << 20, LITERAL_WORD_MAX = 64 };

struct literal {
    struct str quote;  /* of the dialect; empty: none. Its first byte occurs in it only once. */
    bool bare_keys;    /* {key: 1} */
    struct buf levels; /* the closing bracket of each open container */
    uint8_t state, n_digits, want_digits, n_quotes, n_matched;
    bool is_key, needs_comma;
    char mark; /* the quote that ends the string */
    uint32_t code;
    struct json_units units;
    char word[LITERAL_WORD_MAX]; /* a number, a word or a bare key */
    uint8_t n_word;
};

void literal_init(struct literal *l, struct str quote, bool bare_keys);
void literal_clear(struct literal *l); /* frees */
void literal_begin(struct literal *l); /* another one; keeps the memory */

/* Returns the bytes used; see json_walk_put. */
size_t literal_put(struct literal *l, struct str in, struct buf *out, enum walk *is);
/* The text ends here: true when the literal is complete; what was held back is in out. */
bool literal_end(struct literal *l, struct buf *out);
