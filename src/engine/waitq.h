/* waitq.h: who waits, and who is first at this moment.
 *
 * First is who has the highest rank (priority + age), then who came first. Ranks change with the
 * clock, so nothing is sorted; two kinds of waiting make finding the first cheap all the same:
 *
 *   fresh  never ran. Of one priority they have waited in the order they came, so the head of
 *          each priority's queue is its best, now and later. One look per priority.
 *   back   ran before, or forked off. They have waited in pieces; all are looked at. Few: each
 *          has been admitted once.
 *
 * Links are indices into the table of sequences. Owner: the engine thread. */
#pragma once

#include "engine/seq.h"

struct waitq {
    struct seq *seqs;
    uint32_t classes; /* heads of the priorities' queues, linked through next_class */
    uint32_t back;
    uint32_t n;
};

void waitq_init(struct waitq *q, struct seq *seqs);
void waitq_push(struct waitq *q, uint32_t id); /* is_fresh says where; state is WAITING */
void waitq_remove(struct waitq *q, uint32_t id);
uint32_t waitq_first(const struct waitq *q, uint64_t now, uint64_t age_ns); /* NO_SEQ: empty */
