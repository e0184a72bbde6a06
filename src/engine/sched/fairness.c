#include "engine/sched/fairness.h"

const struct fairness fairness_default = { .high_priority_threshold = 5 };

int fairness_check(const struct fairness *f, struct err *e)
{
    const int most = FAIRNESS_PRIORITY_MAX;

    if (f->high_priority_threshold < -most || f->high_priority_threshold > most)
        return err_param(e, ERR_RANGE, "high_priority_threshold",
            "high_priority_threshold = %d is not %d to %d", f->high_priority_threshold, -most,
            most);
    if (f->max_timeslice_tokens < 0 || f->max_timeslice_tokens > FAIRNESS_SLICE_MAX)
        return err_param(e, ERR_RANGE, "max_timeslice_tokens",
            "max_timeslice_tokens = %d is not 0 to %d", f->max_timeslice_tokens,
            (int)FAIRNESS_SLICE_MAX);
    return 0;
}

/* Layout: enable_preemption 1 bit, threshold 31 bits, time slice 32 bits. */
void fairness_set(struct live_fairness *l, const struct fairness *f)
{
    uint64_t threshold = (uint64_t)(f->high_priority_threshold + FAIRNESS_PRIORITY_MAX);

    l->word = (uint64_t)f->enable_preemption << 63 | threshold << 32 |
              (uint64_t)(uint32_t)f->max_timeslice_tokens;
}

struct fairness fairness_get(const struct live_fairness *l)
{
    uint64_t word = l->word;

    return (struct fairness){ .enable_preemption = word >> 63,
        .high_priority_threshold = (int)(word >> 32 & 0x7fffffff) - FAIRNESS_PRIORITY_MAX,
        .max_timeslice_tokens = (int)(uint32_t)word };
}
