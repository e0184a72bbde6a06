/* special.h: finds tokens that are written out in text: "<|im_end|>", "[INST]".
 *
 * The longest token that begins at the earliest place wins. A marked token (control, and
 * user-defined ones that look like mark-up) is found only where every byte of it is trusted;
 * plain ones (user-defined runs of blanks or letters, as some vocabularies have) everywhere. */
#pragma once

#include "base/str.h"

struct vocab;

enum { SPECIAL_MAX_BYTES = 256 }; /* longer ones are not looked for */

struct special {
    uint32_t *ids; /* sorted by their text */
    size_t n;
    uint8_t first[32];       /* bit per byte that one begins with */
    uint8_t first_plain[32]; /* the same of the plain ones */
};

/* Must text that a user wrote never become this token? Also asked of tokens found by merging. */
bool special_is_marked(const struct vocab *v, uint32_t id);

int special_init(struct special *s, const struct vocab *v) MUST_CHECK; /* -1: no memory */
void special_clear(struct special *s);

/* The next special token in text[from..]; trusted[i] says so byte by byte when it is not NULL,
 * else all bytes are as `all_trusted` says. Returns its id and sets *at and *n; TOKEN_NONE when
 * there is none. */
struct special_text {
    struct str text;
    const uint8_t *trusted;
    bool all_trusted;
};
int32_t special_next(
    const struct vocab *v, const struct special_text *t, size_t from, size_t *at, size_t *n);
