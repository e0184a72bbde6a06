/* evict.h: eviction policy: order in which unused pages of the prefix cache are freed.
 *
 * An entry is a number below `n`. It is touched when its use ends, with a weight: the cost of
 * computing it again, EVICT_WEIGHT for a full page at the start of a sequence. It becomes a
 * candidate then or later; evict_take selects among candidates.
 *
 *   LRU    GreedyDual (Young, 1994): the value of an entry is its weight plus the floor at its last
 *          use; the lowest value is evicted, and the floor rises to it. With equal weights this is
 *          exact LRU. O(log candidates) per change.
 *   CLOCK  a hand cycles over the entries. After its last use an entry survives weight /
 *          EVICT_WEIGHT passes of the hand, at most EVICT_ROUNDS. O(1) per change; evict_take moves
 *          the hand, at most one round.
 *
 * Owner: the engine thread, through its tree. */
#pragma once

#include "base/err.h"

enum evict_policy { EVICT_LRU, EVICT_CLOCK };
enum { EVICT_WEIGHT = 256, EVICT_ROUNDS = 3 }; /* EVICT_ROUNDS: most passes that CLOCK grants */

#define EVICT_NONE UINT32_MAX

struct evict_entry {
    uint64_t value, tick;    /* LRU */
    uint64_t survives_until; /* CLOCK: number of passes until which the entry survives */
    uint32_t heap_at;        /* LRU: index in the heap; CLOCK: 0; EVICT_NONE: not a candidate */
};

struct evict {
    enum evict_policy policy;
    uint32_t n, n_candidates;
    uint32_t hand, next; /* CLOCK; next: examined before the hand, EVICT_NONE = none */
    uint64_t laps;       /* completed rounds of the hand */
    uint64_t floor, tick;
    struct evict_entry *entry; /* [n] */
    uint32_t *heap;            /* [n]; LRU */
};

/* ERR_MEMORY; then everything is empty and evict_clear is allowed. */
int evict_init(struct evict *ev, enum evict_policy policy, uint32_t n, struct err *e) MUST_CHECK;
void evict_clear(struct evict *ev);

/* For an entry that is not a candidate. */
void evict_touch(struct evict *ev, uint32_t i, uint32_t weight);
void evict_add(struct evict *ev, uint32_t i); /* makes it a candidate */
/* Makes a candidate of an entry that was last used no later than the entry just taken and should
 * follow it. */
void evict_add_next(struct evict *ev, uint32_t i);
void evict_remove(struct evict *ev, uint32_t i);
bool evict_has(const struct evict *ev, uint32_t i);

/* Removes and returns the next candidate; EVICT_NONE = none. */
uint32_t evict_take(struct evict *ev);

const char *evict_check(const struct evict *ev); /* description of a violated invariant, or NULL */
