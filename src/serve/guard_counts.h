/* guard_counts.h: counters of the hits of guardrails, by place and action.
 *
 * Owner of a struct: its io thread; any thread may read it. */
#pragma once

#include "guardrails/guard_set.h"
#include "serve/metrics.h"

struct guard_counts { /* zeroed = ready */
    _Atomic uint64_t n[N_GUARD_PLACES][N_GUARD_ACTIONS];
};

void guard_counts_add(
    struct guard_counts *c, enum guard_place place, enum guard_action action, uint64_t n);
/* Adds the counters to the shard of a scrape. */
void guard_counts_copy(const struct guard_counts *c, struct metrics *m);
