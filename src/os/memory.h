/* memory.h: amount of available memory.
 *
 * Any thread; reads /proc and the control group on each call. */
#pragma once

#include "base/base.h"

/* Bytes that can be used without swapping: the kernel's MemAvailable, limited by the control group.
 * 0 = unknown. */
uint64_t memory_available(void);
