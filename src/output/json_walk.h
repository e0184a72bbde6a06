/* json_walk.h: streaming JSON validator (RFC 8259) that copies one value from input to output.
 *
 * The copy is always a prefix of a valid JSON text, and complete when the validator is done. The
 * input must be valid UTF-8. Two errors that models make inside strings are corrected: control
 * characters are escaped, and unpaired surrogates become U+FFFD. Any other error ends validation at
 * its byte, which does not depend on how the text is cut into calls. A nesting level costs one bit;
 * at most WALK_DEPTH_MAX levels are accepted.
 *
 *     json_walk_put(&w, in, &out, &result)   more input; *result is the state of the value
 *     json_walk_end(&w)                      end of input: true if the value is complete
 *
 * Owner: the caller; one thread at a time. */
#pragma once

#include "output/json_text.h"

enum { WALK_DEPTH_MAX = 1 << 20 };

enum walk_result {
    WALK_MORE, /* the value is not complete */
    WALK_DONE, /* complete; the rest of the input was not consumed */
    WALK_BAD   /* the byte after the consumed ones is not allowed there */
};

struct json_walk {
    struct buf levels; /* one bit per open container, 1 = object */
    uint32_t depth;
    uint8_t state, n_hex;
    bool in_key;
    const char *word; /* the rest of true, false or null */
    uint16_t unit;
    struct json_units units;
};

void json_walk_init(struct json_walk *w);
void json_walk_clear(struct json_walk *w); /* frees memory */
void json_walk_begin(struct json_walk *w); /* starts another value; keeps the memory */

/* Returns the bytes consumed. A number at the top level ends before the first byte that is not part
 * of it. */
size_t json_walk_put(struct json_walk *w, struct str in, struct buf *out, enum walk_result *result);
bool json_walk_end(const struct json_walk *w);
/* True inside a string, where plain text is copied unchanged. */
bool json_walk_in_text(const struct json_walk *w);
