/* waitq.h: who waits, and who is first at this moment.
 *
 * First is chosen in two steps. The priority of the sequence that is first by rank (priority +
 * age), then by arrival, has its turn; a low priority that waited long enough so comes before a
 * high one. Of the tenants that have something of that priority, the one that was served least, in
 * turns among equals; of all its sequences the one of the highest rank, then who came first. With
 * one tenant this is: the highest rank, then who came first. Age decides between priorities and not
 * between tenants, or whoever brings a backlog would come first by it.
 *
 * Ranks change with the clock and what tenants were served with each step; the order hardly does:
 *
 *   rank = priority + (now - since + waited) / age = (now - v) / age, rounded down, with
 *   v = since - waited - priority * age, which does not change while one waits. The highest rank is
 *   that of the least v; who shares it lies below a bound, and of those the first is looked for.
 *
 *   What a tenant was served only grows. So it is sorted by what it was served when that was last
 *   looked at: when the first of them is as it was, it is the least; else it is put back in.
 *
 * Nothing looks at all that wait (sorted.h): any of it costs the logarithm of their number, beside
 * one look more for each tenant that was served since.
 *
 *   fresh lane   never ran
 *   back lane    ran before, or forked off; may come in when no more may begin
 *   line         the sequences of one tenant, priority and lane; there while it has some
 *
 * Owner: the engine thread. Allocates only when opened. */
#pragma once

#include "engine/seq.h"
#include "engine/sched/tenants.h"

enum { LANE_BACK, LANE_FRESH }; /* LANES of them */

struct waitq_class { /* of priorities that somebody waits with */
    uint32_t lines[LANES];
    uint32_t n; /* of them */
    uint32_t next_free;
};

struct waitq_line {
    uint32_t tenant, class_of, lane;
    uint32_t n; /* sequences */
    uint32_t next_free;
};

struct waitq {
    struct seq *seqs;
    struct tenants *tenants;
    uint64_t age_ns;
    uint32_t n, n_back;
    uint64_t n_turns; /* so many times lines got a new place among equals */

    struct waitq_class *classes; /* [cap] */
    struct waitq_line *lines;    /* [cap] */
    uint32_t cap;
    uint32_t free_class, n_classes, free_line, n_lines;

    struct sorted by_rank;      /* sequences by v: a set for each lane */
    struct sorted of_tenant;    /* likewise: for each tenant and lane */
    struct sorted by_priority;  /* classes */
    struct sorted by_name;      /* lines */
    struct sorted by_service;   /* lines of a class and lane by what their tenants were served */
    uint32_t all[LANES];        /* in by_rank */
    uint32_t priorities, names; /* in those */
};

/* Room for n sequences. Borrows both. ERR_MEMORY. */
int waitq_init(struct waitq *q, struct seq *seqs, uint32_t n, struct tenants *tenants,
    uint64_t age_ns, struct err *e) MUST_CHECK;
void waitq_clear(struct waitq *q);

void waitq_push(struct waitq *q, uint32_t id); /* is_fresh says where; state is WAITING */
void waitq_remove(struct waitq *q, uint32_t id);
/* NO_SEQ: empty. with_fresh false: among those that ran before. */
uint32_t waitq_first(struct waitq *q, uint64_t now, bool with_fresh);

uint64_t waitq_n_looks(const struct waitq *q); /* at anything sorted, ever */
