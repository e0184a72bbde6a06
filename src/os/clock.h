/* clock.h: time. Monotonic time for all comparisons, wall-clock time only for output to people.
 *
 * Any thread. */
#pragma once

#include "base/base.h"

uint64_t clock_ns(void);    /* monotonic */
uint64_t clock_ms(void);    /* monotonic */
int64_t clock_wall_s(void); /* Unix time */
