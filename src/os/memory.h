/* memory.h: how much memory there is to be had. Any thread. */
#pragma once

#include "base/base.h"

/* Bytes that can be used without swapping: what the kernel says is available, within the limit of
 * our control group. 0 = the system does not say. */
uint64_t memory_available(void);
