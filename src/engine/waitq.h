/* waitq.h: who waits, and who is first at this moment.
 *
 * First is chosen in two steps. The priority whose longest waiting sequence has the highest rank
 * (priority + age) has its turn; a low priority that waited long enough so comes before a high one.
 * Of the tenants that have something of that priority, the one that was served least; of all its
 * sequences the one of the highest rank, then who came first. With one tenant this is: the highest
 * rank, then who came first. Age decides between priorities and not between tenants, or whoever
 * brings a backlog would come first by it.
 *
 * Ranks change with the clock and what tenants were served with each step, so nothing is sorted;
 * two kinds of waiting make finding the first cheap all the same:
 *
 *   fresh  never ran. Of one tenant and priority they have waited in the order they came, so the
 *          head of each such queue is its best, now and later. One look per queue.
 *   back   ran before, or forked off. They have waited in pieces; all are looked at. Few: each
 *          has been admitted once.
 *
 * Links are indices into the table of sequences. Owner: the engine thread. */
#pragma once

#include "engine/seq.h"
#include "engine/tenants.h"

struct waitq {
    struct seq *seqs;
    struct tenants *tenants;
    uint32_t back;
    uint32_t n, n_back;
    uint64_t age_ns;
};

void waitq_init(struct waitq *q, struct seq *seqs, struct tenants *tenants, uint64_t age_ns);
void waitq_push(struct waitq *q, uint32_t id); /* is_fresh says where; state is WAITING */
void waitq_remove(struct waitq *q, uint32_t id);
/* NO_SEQ: empty. with_fresh false: among those that ran before. */
uint32_t waitq_first(const struct waitq *q, uint64_t now, bool with_fresh);
