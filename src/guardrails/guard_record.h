/* guard_record.h: what guardrails found in one request, for metrics, the audit log and the log: the
 * entry, the action and the place of each hit, never the text.
 *
 * Equal hits are recorded once per place, and at most GUARD_NOTES_MAX of them. Owner: the owner of
 * the request. */
#pragma once

#include "guardrails/scan.h"

enum { GUARD_NOTES_MAX = 32 };

struct guard_note {
    uint8_t set, kind, place;
    int entry;
};

struct guard_record { /* zeroed: empty */
    struct guard_note notes[GUARD_NOTES_MAX];
    int n, n_more; /* n_more: further hits, which are not in the list */
    bool is_blocked;
    uint64_t n_hits[N_GUARD_PLACES][N_GUARD_ACTIONS]; /* all hits, equal ones too */
};

void guard_record_add(struct guard_record *r, const struct guardrails *g, enum guard_place place,
    const struct guard_hit *hit);
/* Appends "SET/word[3] block prompt", ... separated by commas. A detector has its name instead of
 * an index. */
void guard_record_write(const struct guard_record *r, const struct guardrails *g, struct buf *out);
/* "word[3]", "pattern[0]", "email" */
void guard_entry_write(enum guard_kind kind, int entry, struct buf *out);
