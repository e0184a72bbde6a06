/* sched_in.h: private state of the scheduler and the state transitions of sequences.
 *
 *   sched.c         sequences: add, change of state, end
 *   sched_pages.c   page allocation, eviction and preemption
 *   sched_admit.c   admission and fairness
 *   sched_plan.c    batch rows of one step
 *   sched_check.c   invariants
 *
 * Owner: the engine thread. */
#pragma once

#include "cache/windows.h"
#include "engine/prefix.h"
#include "engine/sched/planner.h"
#include "engine/sched/sched.h"
#include "engine/sched/tenants.h"
#include "engine/sched/timers.h"
#include "engine/sched/waitq.h"

struct sched {
    struct page_pool *pool;
    struct seq_pools pools; /* the same pool, and those of l */
    struct sched_limits l;
    struct seq *seqs;   /* [max_seqs] */
    uint32_t free;      /* free list through running.next */
    uint32_t n_touched; /* entries from here on were never used and their memory is untouched */
    struct index_list running; /* in rank order; ranks do not change while running */
    struct sorted by_rank;     /* finds the list position of a new running sequence */
    uint32_t ranked;           /* root of the set of running sequences in by_rank */
    struct index_list holders; /* sequences that hold pages and do not run, newest first */
    uint64_t held_pages;       /* sum of their pages; upper bound on what preempting them frees */
    struct tenants tenants;
    struct waitq waiting;
    struct fairness fair;
    uint64_t n_orders;
    struct timers timers;
    struct sched_counts counts;
    uint32_t *page_refs;   /* [n_pages] scratch of sched_check */
    uint32_t *state_refs;  /* [state slots] the same; NULL = none */
    uint32_t *window_refs; /* [window pages] the same; NULL = none */
    uint32_t partial_seq;  /* sequence with partial rows; NO_SEQ */
    struct step_time step_time;
    struct planner planner; /* scratch of sched_plan */
};

static inline uint32_t sched_index(const struct sched *sc, const struct seq *s)
{
    return (uint32_t)(s - sc->seqs);
}

/* Pages that the known tokens need and the sequence does not have: promised at admission. */
static inline int sched_missing_pages(const struct seq *s)
{
    return MAX(pages_for(s->n_tokens) - s->n_pages, 0);
}

/* Rank order at time `now`; the order of running sequences does not depend on `now`. */
static inline bool sched_ranks_before(
    const struct sched *sc, const struct seq *a, const struct seq *b, uint64_t now)
{
    return seq_is_before(a, b, now, sc->l.age_ns);
}

/* ---- sched.c */

/* Ends the partial state of a sequence, if any. */
void sched_partial_end(struct sched *sc, struct seq *s);
/* Same, and counts the partial rows as lost: they are computed again. */
void sched_partial_discard(struct sched *sc, struct seq *s);

/* Adds to and removes from the list of sequences that hold pages without running. */
void sched_holder_add(struct sched *sc, struct seq *s);
void sched_holder_remove(struct sched *sc, struct seq *s);
/* Changes the state of a sequence, which keeps its pages. */
void sched_set_state(struct sched *sc, struct seq *s, enum seq_state state, uint64_t now);
/* Frees all pages; the prefix cache keeps the computed ones. */
void sched_free_pages(struct sched *sc, struct seq *s);

/* ---- sched_pages.c */

/* Reserves pages for positions below `upto`, taking them from others if none is free. Returns the
 * position up to which pages are reserved. */
int sched_get_pages(struct sched *sc, struct seq *s, int upto, uint64_t now);
/* Number of the n next rows for which the sequence has state slots, taken from others if necessary:
 * n, STATE_LOG_ROWS if it has no second slot, or 0. */
int sched_get_slots(struct sched *sc, struct seq *s, int n, uint64_t now);
/* True if unused pages suffice for the known tokens of `s` and n_more, without preemption. */
bool sched_has_room_for(struct sched *sc, const struct seq *s, int n_more);
/* Releases the window pages that no later row of `s` reads. */
void sched_release_windows(struct sched *sc, struct seq *s);
/* Makes room for all known tokens of `s` in addition to the promised pages; false = not
 * possible. */
bool sched_make_room(struct sched *sc, struct seq *s, uint64_t now);

/* ---- sched_admit.c */

void sched_apply_fairness(struct sched *sc, uint64_t now);
/* First sequence that may be admitted; NO_SEQ = none. */
uint32_t sched_first_waiting(struct sched *sc, uint64_t now);
bool sched_admit(struct sched *sc, struct seq *s, uint64_t now); /* false = no room */
