/* special.h: finds special tokens written out in text: "<|im_end|>", "[INST]".
 *
 * At the earliest position with a match, the longest token wins. A marked token (control tokens,
 * and user-defined ones that look like mark-up) matches only if every byte of it is trusted. Plain
 * ones (user-defined runs of blanks or letters in some vocabularies) match everywhere. Read-only
 * after initialisation: any thread. */
#pragma once

#include "base/str.h"

struct vocab;

enum { SPECIAL_MAX_BYTES = 256 }; /* longer tokens are not matched */

struct special {
    uint32_t *ids; /* sorted by text */
    size_t n;
    uint8_t first[32];       /* one bit per first byte of a special token */
    uint8_t first_plain[32]; /* one bit per first byte of a plain token */
};

/* True if untrusted text must never become this token. Also used for tokens found by merging. */
bool special_needs_trust(const struct vocab *v, uint32_t id);

int special_init(struct special *s, const struct vocab *v) MUST_CHECK; /* -1: no memory */
void special_clear(struct special *s);

/* The next special token in text[from..]. trusted[i] is the origin of byte i; if NULL, all_trusted
 * is the origin of all bytes. Returns the id and sets *at and *n; TOKEN_NONE if there is none. */
struct special_text {
    struct str text;
    const uint8_t *trusted;
    bool all_trusted;
};
int32_t special_next(
    const struct vocab *v, const struct special_text *t, size_t from, size_t *at, size_t *n);
