/* literal.h: streaming conversion of a Python literal, or of a similar dialect, to JSON.
 *
 * Input: strings ('..', "..", triple-quoted, with Python's escapes), numbers, True, False, None
 * (and their JSON spellings), lists, tuples, dicts; commas before a closing bracket are allowed. A
 * dialect may have its own quotes, between which there are no escapes, and dict keys without
 * quotes. Names, calls, prefixed strings and arithmetic are errors.
 *
 * The guarantees are those of json_walk.h: the output is always a prefix of a valid JSON text, and
 * the byte at which an error is found does not depend on how the text is cut. Numbers and words are
 * written when they are complete. Owner: the caller; one thread at a time. */
#pragma once

#include "output/json_walk.h"

enum { LITERAL_DEPTH_MAX = 1 << 20, LITERAL_WORD_MAX = 64 };

struct literal {
    /* quote of the dialect; empty: none. Its first byte occurs in it only once. */
    struct str quote;
    bool bare_keys;    /* keys without quotes are allowed: {key: 1} */
    struct buf levels; /* the closing bracket of each open container */
    uint8_t state, n_digits, want_digits, n_quotes, n_matched;
    bool is_key, needs_comma;
    char mark; /* the quote that ends the current string */
    uint32_t code;
    struct json_units units;
    char word[LITERAL_WORD_MAX]; /* a number, a word or a key without quotes */
    uint8_t n_word;
};

void literal_init(struct literal *l, struct str quote, bool bare_keys);
void literal_clear(struct literal *l); /* frees memory */
void literal_begin(struct literal *l); /* starts another literal; keeps the memory */

/* Returns the bytes consumed; see json_walk_put. */
size_t literal_put(struct literal *l, struct str in, struct buf *out, enum walk_result *result);
/* End of input: true if the literal is complete. Held bytes are written to out. */
bool literal_end(struct literal *l, struct buf *out);
