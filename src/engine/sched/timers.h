/* timers.h: which sequence's deadline or delay comes first: a binary heap of indices.
 *
 * A sequence is in it while it has either; its key is the earlier of the two. Owner: the engine
 * thread. */
#pragma once

#include "engine/seq.h"

struct timers {
    struct seq *seqs;
    uint32_t *heap;
    uint32_t n;
};

uint64_t timer_key(const struct seq *s);           /* UINT64_MAX: nothing to wait for */
void timers_update(struct timers *t, uint32_t id); /* after either time has changed */
uint32_t timers_first(const struct timers *t);     /* NO_SEQ: empty */
