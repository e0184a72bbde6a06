/* cpu.h: what this processor and its operating system let us use. Pure; any thread.
 *
 * CPUID says what the chip can do; XCR0 says which registers the system saves on a context
 * switch. Both must agree, or the first wide instruction is a SIGILL. */
#pragma once

#include "base/base.h"

/* NULL when the set can run here, else the first thing that is missing, for people to read. */
const char *cpu_lacks_avx2(void);   /* AVX2, FMA, F16C */
const char *cpu_lacks_avx512(void); /* that, and AVX-512 F, BW, VL, DQ, VNNI */
