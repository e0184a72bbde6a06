/* evict.h: which of the pages that nobody uses is given up first.
 *
 * An entry is a number below `n`. It is touched when its use ends, with a weight: what computing
 * it again would cost, EVICT_WEIGHT for a full page at the very beginning of a sequence. Then it
 * becomes a candidate, now or later; what is taken is one of the candidates.
 *
 *   LRU    GreedyDual (Young, 1994): an entry's value is its weight above the floor at its last
 *          use, the lowest goes, and the floor rises to it. Equal weights: exactly least recently
 *          used. O(log candidates) for each change.
 *   CLOCK  a hand goes round; an entry stays until the hand has passed it, used or not, as often
 *          since its last use as it has points of weight. O(1) for each change; taking costs as far
 *          as the hand has to go, once round at most.
 *
 * Owner: the engine thread, through its tree. */
#pragma once

#include "base/err.h"

enum evict_policy { EVICT_LRU, EVICT_CLOCK };
enum { EVICT_WEIGHT = 256, EVICT_ROUNDS = 3 }; /* rounds: the most that CLOCK grants */

#define EVICT_NONE UINT32_MAX

struct evict_entry {
    uint64_t value, tick; /* LRU */
    uint64_t stays;       /* CLOCK: until the hand has passed it so often */
    uint32_t heap_at;     /* LRU: place in the heap; CLOCK: 0; EVICT_NONE: no candidate */
};

struct evict {
    enum evict_policy policy;
    uint32_t n, n_candidates;
    uint32_t hand, next; /* CLOCK: next: looked at before the hand's; EVICT_NONE */
    uint64_t laps;       /* of the hand */
    uint64_t floor, tick;
    struct evict_entry *entry; /* [n] */
    uint32_t *heap;            /* [n]; LRU */
};

/* ERR_MEMORY; then everything is empty and evict_clear is fine. */
int evict_init(struct evict *ev, enum evict_policy policy, uint32_t n, struct err *e) MUST_CHECK;
void evict_clear(struct evict *ev);

void evict_touch(struct evict *ev, uint32_t i, uint32_t weight); /* no candidate now */
void evict_add(struct evict *ev, uint32_t i);                    /* a candidate from now on */
/* The same of one that was used no later than the one just taken, and goes with it. */
void evict_add_next(struct evict *ev, uint32_t i);
void evict_remove(struct evict *ev, uint32_t i);
bool evict_has(const struct evict *ev, uint32_t i);

/* Which goes next, no candidate any more; EVICT_NONE when there is none. */
uint32_t evict_take(struct evict *ev);

const char *evict_check(const struct evict *ev); /* what is wrong, or NULL */
