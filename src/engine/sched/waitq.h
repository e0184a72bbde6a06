/* waitq.h: queue of the waiting sequences, ordered by priority, age and tenant service.
 *
 * The first sequence is selected in two steps. The sequence of highest rank (priority + age, ties
 * by arrival) determines the priority to serve, so an old low priority precedes a high one. Of the
 * tenants with waiting sequences of that priority, the one with the least service is chosen, in
 * rotation among equals, and of all its sequences the one of highest rank by its priority within
 * the tenant, ties by arrival. With one tenant this is the order by rank and arrival. Age decides
 * between priorities, not between tenants: otherwise a tenant with a backlog would always be first.
 *
 * The priority of a sequence is limited by the key of its tenant; the priority within the tenant is
 * that of the request, so a high number gives no advantage over other tenants.
 *
 * Ranks change with the clock and service changes with each step, but the order hardly does:
 *
 *   rank = priority + (now - since + waited) / age = (now - v) / age, rounded down, where
 *   v = since - waited - priority * age is constant while a sequence waits. The highest rank is
 *   that of the smallest v; equal ranks are below a bound of v, and the first arrival is searched
 *   there.
 *
 *   Service only grows. Lines are sorted by an earlier value: if that of the first one is
 *   still current, it is the smallest; otherwise the line is inserted again.
 *
 * Cost (sorted.h): logarithmic in the number of waiting sequences, plus one step for each tenant
 * that was served since the last call.
 *
 *   fresh lane   sequences that never ran
 *   back lane    sequences that ran before or were forked; admitted also if no more may start
 *   line         sequences of one tenant, priority and lane; exists while it is not empty
 *
 * Owner: the engine thread. Allocates only in waitq_init. */
#pragma once

#include "engine/seq.h"
#include "engine/sched/tenants.h"

enum { LANE_STARTED, LANE_NEW }; /* LANES of them */

struct waitq_class { /* a priority of waiting sequences */
    uint32_t lines[LANES];
    uint32_t n; /* lines */
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
    uint32_t n, n_started;
    uint64_t n_swaps; /* counter for the rotation of lines with equal service */

    struct waitq_class *classes; /* [cap] */
    struct waitq_line *lines;    /* [cap] */
    uint32_t cap;
    uint32_t free_class, n_classes, free_line, n_lines;

    struct sorted by_rank;      /* sequences by v: one set per lane */
    struct sorted of_tenant;    /* sequences by v: one set per tenant and lane */
    struct sorted by_priority;  /* classes */
    struct sorted by_name;      /* lines */
    struct sorted by_service;   /* lines of a class and lane by the service of their tenants */
    uint32_t all[LANES];        /* sets in by_rank */
    uint32_t priorities, names; /* sets in by_priority and by_name */
};

/* Room for n sequences. Borrows seqs and tenants. ERR_MEMORY. */
int waitq_init(struct waitq *q, struct seq *seqs, uint32_t n, struct tenants *tenants,
    uint64_t age_ns, struct err *e) MUST_CHECK;
void waitq_clear(struct waitq *q);

/* is_fresh selects the lane; the state is SEQ_WAITING. */
void waitq_push(struct waitq *q, uint32_t id);
void waitq_remove(struct waitq *q, uint32_t id);
/* NO_SEQ = empty. with_fresh == false: only sequences that ran before. */
uint32_t waitq_first(struct waitq *q, uint64_t now, bool with_fresh);

uint64_t waitq_n_visited(const struct waitq *q); /* visited nodes of all sets, in total */
