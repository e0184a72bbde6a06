/* clock.h: time. Monotonic for everything that is compared; wall only for what people read. */
#pragma once

#include "base/base.h"

uint64_t clock_ns(void);    /* monotonic */
uint64_t clock_ms(void);    /* monotonic */
int64_t clock_wall_s(void); /* Unix time */
