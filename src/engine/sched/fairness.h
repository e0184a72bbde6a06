/* fairness.h: settings of time slices and preemption by priority, for more sequences than can run.
 * All off by default; they may be changed while requests run.
 *
 * Owner: any thread writes struct live_fairness; the engine thread has a copy of the settings. */
#pragma once

#include "base/err.h"

struct fairness {
    /* A waiting high-priority sequence takes the place of a low-priority one. */
    bool enable_preemption;
    int high_priority_threshold; /* priorities from here on are high, those below are low */
    /* Time slice of a low-priority sequence if others wait; 0 = no limit. */
    int max_timeslice_tokens;
};

enum { FAIRNESS_PRIORITY_MAX = 1000000, FAIRNESS_SLICE_MAX = 1 << 24 };

extern const struct fairness fairness_default;

/* Settings that change at run time: one word that any thread writes and engine threads read between
 * two steps, so a partial change is never visible. */
struct live_fairness {
    _Atomic uint64_t word;
};
/* Requires values that pass fairness_check. */
void fairness_set(struct live_fairness *l, const struct fairness *f);
struct fairness fairness_get(const struct live_fairness *l);

/* ERR_RANGE with the name of the field. */
int fairness_check(const struct fairness *f, struct err *e);
