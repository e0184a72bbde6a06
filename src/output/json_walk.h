/* json_walk.h: one JSON value, checked byte by byte as it arrives, copied as it is.
 *
 * The copy is always a prefix of a good JSON text (RFC 8259, valid UTF-8 taken for granted) and
 * complete when the walk is done. Two faults that models make inside strings are mended on the
 * way: control characters are escaped, and lone halves of surrogate pairs become U+FFFD.
 * Everything else that is wrong ends the walk at that byte; which byte that is does not depend
 * on how the text was cut. A nesting level costs a bit; WALK_DEPTH_MAX levels are too deep.
 *
 *     json_walk_put(&w, in, &out, &is)   more of the value; *is says how it stands
 *     json_walk_end(&w)                  the text ends here: is the value complete?
 *
 * Owner: whoever holds it; one thread at a time. */
#pragma once

#include "output/json_text.h"

enum { WALK_DEPTH_MAX = 1 << 20 };

enum walk {
    WALK_MORE, /* the value goes on */
    WALK_DONE, /* complete; what follows was not used */
    WALK_BAD   /* the byte behind what was used cannot stand there */
};

struct json_walk {
    struct buf levels; /* a bit per open container, 1 = object */
    uint32_t depth;
    uint8_t state, n_hex;
    bool in_key;
    const char *word; /* the rest of true, false or null */
    uint16_t unit;
    struct json_units units;
};

void json_walk_init(struct json_walk *w);
void json_walk_clear(struct json_walk *w); /* frees */
void json_walk_begin(struct json_walk *w); /* another value; keeps the memory */

/* Returns the bytes used. A number at the top ends before the first byte that is none of it. */
size_t json_walk_put(struct json_walk *w, struct str in, struct buf *out, enum walk *is);
bool json_walk_end(const struct json_walk *w);
/* In the middle of a string, where plain text goes in and out as it is. */
bool json_walk_in_text(const struct json_walk *w);
