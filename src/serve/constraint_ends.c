#include "serve/constraint_ends.h"

#include "generate/request.h"

#include <stdatomic.h>
#include <stdio.h>

void constraint_ends_add(
    struct constraint_ends *c, enum constraint_kind kind, enum constraint_cause cause, int64_t n)
{
    atomic_fetch_add_explicit(&c->n[kind][cause], (uint64_t)n, memory_order_relaxed);
}

enum constraint_cause constraint_cause_of(const struct choice_end *end)
{
    if (end->finish == FINISH_LENGTH)
        return ENDED_LENGTH;
    if (end->finish == FINISH_UNMET)
        return ENDED_ERROR;
    return end->is_constraint_met ? ENDED_COMPLETE : ENDED_STOP;
}

void constraint_ends_copy(const struct constraint_ends *c, struct metrics *m)
{
    static const char *const causes[N_CONSTRAINT_CAUSES] = { [ENDED_COMPLETE] = "complete",
        [ENDED_LENGTH] = "length",
        [ENDED_STOP] = "stop",
        [ENDED_CANCELLED] = "cancelled",
        [ENDED_ERROR] = "error" };
    char label[80];

    for (size_t kind = 0; kind < ARRAY_LEN(c->n); kind++)
        for (size_t i = 0; i < ARRAY_LEN(causes); i++) {
            uint64_t n = atomic_load_explicit(&c->n[kind][i], memory_order_relaxed);
            snprintf(label, sizeof(label), "kind=\"%s\",cause=\"%s\"",
                constraint_kind_name((enum constraint_kind)kind), causes[i]);
            if (n)
                metric_add_series(m, METRIC_constraint_ends_total, label, n);
        }
}
