/* fairness.h: how turns change hands while more want to run than can. Plain settings, all off by
 * default; they may be changed while requests run. */
#pragma once

#include "base/err.h"

struct fairness {
    bool enable_preemption;      /* one of high priority that waits takes the place of a low one */
    int high_priority_threshold; /* priorities from here on are high, those below low */
    int max_timeslice_tokens;    /* of a low one, when others wait; 0 = no limit */
};

enum { FAIRNESS_PRIORITY_MAX = 1000000, FAIRNESS_SLICE_MAX = 1 << 24 };

extern const struct fairness fairness_default;

/* The settings while they may change: one word that anybody writes and engines read between two
 * steps, so that nobody ever sees half of a change. */
struct live_fairness {
    _Atomic uint64_t word;
};
void fairness_set(struct live_fairness *l, const struct fairness *f); /* as fairness_check wants */
struct fairness fairness_get(const struct live_fairness *l);

/* ERR_RANGE names the field. */
int fairness_check(const struct fairness *f, struct err *e);
