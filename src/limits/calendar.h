/* calendar.h: the date for budgets per day and month (UTC), safe against jumps of the wall clock.
 *
 * The time is that of the wall clock at the start, and advances with the monotonic clock. The wall
 * clock is followed while it deviates by at most CALENDAR_DRIFT_S per call. A larger deviation is
 * adopted after it has lasted for CALENDAR_SETTLE_S, so that a clock that jumps and returns does
 * not begin a new budget.
 *
 * Pure: the caller passes both clocks. Owner: the lock of the limiter. */
#pragma once

#include "base/base.h"

enum { CALENDAR_DRIFT_S = 2, CALENDAR_SETTLE_S = 300 };

struct calendar { /* zeroed: not started */
    bool has_begun;
    int64_t anchor_s; /* Unix time at anchor_ns */
    uint64_t anchor_ns;
    bool deviates;
    int64_t deviation_s; /* error of the wall clock, while `deviates` */
    uint64_t since_ns;
};

/* The Unix time for budgets. ns: clock_ns, never decreasing; wall_s: the wall clock. */
int64_t calendar_now(struct calendar *c, uint64_t ns, int64_t wall_s);

/* Number of the day, of the month, and of the hour since 1970. */
int64_t calendar_day(int64_t unix_s);
int64_t calendar_month(int64_t unix_s);
int64_t calendar_hour(int64_t unix_s);
/* Unix time at which the next day or month begins. */
int64_t calendar_next_day(int64_t unix_s);
int64_t calendar_next_month(int64_t unix_s);
