/* timers.h: next deadline or delay of all sequences: a binary heap of indices.
 *
 * A sequence with a deadline or delay is in the heap; its key is the earliest of them. Owner: the
 * engine thread. */
#pragma once

#include "engine/seq.h"

struct timers {
    struct seq *seqs;
    uint32_t *heap;
    uint32_t n;
};

uint64_t timer_key(const struct seq *s);           /* UINT64_MAX = none */
void timers_update(struct timers *t, uint32_t id); /* after a change of a time */
uint32_t timers_first(const struct timers *t);     /* NO_SEQ = empty */
