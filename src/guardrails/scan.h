/* scan.h: applies guardrails to one text that arrives in pieces.
 *
 * Definition, for the whole text: a hit is a range of characters that an entry, a pattern or a
 * detector of a selected set matches. The text ends where the first hit of a set with the action
 * `block` begins. Of what remains, each longest run of characters that hits of sets with `redact`
 * cover is replaced by GUARD_MARKER. So the result does not depend on the pieces, and equals that
 * for a text in one piece.
 *
 * What may still become a hit is held back: the longest suffix that begins an entry, and what a
 * pattern or detector has not decided, at most GUARD_WINDOW bytes.
 *
 * A character can have another form in the output than in the text that is searched, for JSON
 * strings with escapes (guard_scan_put_char).
 *
 * Owner: one thread at a time. */
#pragma once

#include "base/buf.h"
#include "guardrails/detect.h"
#include "guardrails/guardrails.h"

#define GUARD_MARKER "[redacted]"

enum { GUARD_SPAN_MAX = 512 }; /* bytes of the text that a hit of a blocklist can have */

struct guard_hit {
    enum guard_kind kind;
    int set, entry;
    size_t begin, end; /* bytes of the text */
};

struct guard_cursor { /* progress of one pattern or detector */
    int matcher;
    enum detect_tail tail;
    size_t at; /* byte of the text: everything before it is decided */
};

struct guard_scan {
    const struct guardrails *g;
    uint64_t sets;
    /* Output in order; `raw` is in the form of the output. May be NULL: the result is dropped. */
    void (*on_text)(void *ctx, struct str raw);
    void (*on_hit)(void *ctx, const struct guard_hit *hit); /* may be NULL */
    /* Bytes that a set with `redact` covers, as they are found; may be NULL. */
    void (*on_cover)(void *ctx, size_t begin, size_t end);
    void *ctx;
    struct guard_search *search; /* NULL: no patterns are selected */
    struct guard_cursor *cursors;
    int n_cursors;

    uint32_t state;      /* of the matcher of blocklists */
    uint32_t pending;    /* entries of whole words that end at the last character; ROOT: none */
    struct buf text;     /* context, then what is held */
    struct buf raw;      /* of what is held */
    struct buf chars;    /* struct guard_char of what is held */
    size_t base;         /* position of text.p[0] in the text */
    size_t held;         /* position of the first byte that is held */
    int n_since_step;    /* characters */
    size_t block_at;     /* where the text ends; SIZE_MAX: not blocked */
    bool is_word_before; /* the character before `held` is part of a word */
    bool is_covered;     /* the last character of the output was redacted */
    bool is_redacted;    /* some character of the output was redacted */
    bool is_blocked;     /* the output has ended */
    bool has_failed;     /* no memory: the output has ended */
};

/* ERR_MEMORY; then the scan needs no guard_scan_clear. */
int guard_scan_init(
    struct guard_scan *s, const struct guardrails *g, uint64_t sets, struct err *e) MUST_CHECK;
void guard_scan_clear(struct guard_scan *s); /* accepts a zeroed scan */

/* Whole characters of valid UTF-8. */
void guard_scan_put(struct guard_scan *s, struct str text);
/* One character, and its form in the output. The caller calls guard_scan_step after the last one
 * that is available. */
void guard_scan_put_char(struct guard_scan *s, struct str character, struct str raw);
void guard_scan_step(struct guard_scan *s);
/* The end of the text: decides and writes what is held. The scan can be used for another text. */
void guard_scan_end(struct guard_scan *s);
void guard_scan_drop(struct guard_scan *s); /* the same, without output */
