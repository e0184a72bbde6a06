/* x86_amx_soft.h: the AMX set over tiles in software, with gaps, and its unit for tests of it. */
#pragma once

#include "kernel/kernels.h"

extern const struct kernels kernels_amx_soft; /* for processors with AVX-512 */

bool amx_soft_is_released(void);             /* this thread's tiles */
void amx_soft_configure(const void *config); /* 64 bytes; aborts where hardware raises #GP */
/* 0: zeroes tile 0; 1: loads tile 1; 2: stores tile 2; 3: tile 0 += 1 x 2; 4: 0 += 0 x 2 */
void amx_soft_use(int what);
