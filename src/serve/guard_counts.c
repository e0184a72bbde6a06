#include "serve/guard_counts.h"

#include <stdatomic.h>
#include <stdio.h>

void guard_counts_add(
    struct guard_counts *c, enum guard_place place, enum guard_action action, uint64_t n)
{
    atomic_fetch_add_explicit(&c->n[place][action], n, memory_order_relaxed);
}

void guard_counts_copy(const struct guard_counts *c, struct metrics *m)
{
    char label[64];

    for (int place = 0; place < N_GUARD_PLACES; place++)
        for (int action = 0; action < N_GUARD_ACTIONS; action++) {
            uint64_t n = atomic_load_explicit(&c->n[place][action], memory_order_relaxed);
            snprintf(label, sizeof(label), "action=\"%s\",place=\"%s\"", guard_action_names[action],
                guard_place_names[place]);
            if (n)
                metric_add_series(m, METRIC_guardrail_hits_total, label, n);
        }
}
