/* cpu.h: what this processor and its operating system let us use. Any thread.
 *
 * CPUID says what the chip can do; XCR0 says which registers the system saves on a context
 * switch. Both must agree, or the first wide instruction is a SIGILL. Tiles are a third case: the
 * system saves them only for a process that has asked (arch_prctl), since a signal's frame grows by
 * eight kilobytes; it refuses when a thread has an alternate signal stack too small for that. */
#pragma once

#include "base/base.h"

/* NULL when the set can run here, else the first thing that is missing, for people to read. */
const char *cpu_lacks_avx2(void);    /* AVX2, FMA, F16C */
const char *cpu_lacks_avxvnni(void); /* that, and AVX-VNNI */
const char *cpu_lacks_avx512(void);  /* those of AVX2, and AVX-512 F, BW, VL, DQ, VNNI */
/* Those, and AMX-TILE, AMX-INT8, AMX-BF16, AVX-512 BF16; asks the system, if all is there. */
const char *cpu_lacks_amx(void);

/* How a thread that multiplies few rows reads weights: so many panels in turns of so many bytes.
 * One sequential stream of reads gets the most where it is prefetched far ahead; Intel's cores draw
 * little more than half of what they can through one. */
struct cpu_turns {
    int streams, bytes;
};
enum { CPU_STREAMS = 4 }; /* at most */
struct cpu_reading {
    struct cpu_turns plain;
    /* Of weights of two bytes that are multiplied as floats: every product waits for the one
     * before, and less than eight such chains leave the processor idle. */
    struct cpu_turns chained;
};
const struct cpu_reading *cpu_reading(void);
void cpu_read_as(const struct cpu_reading *r); /* from now on; NULL: as is best here */

/* Where the answers come from, so that a test can be any processor. */
struct cpu_source {
    /* EAX .. EDX of a leaf and subleaf; false: there is no such leaf */
    bool (*cpuid)(unsigned leaf, unsigned sub, unsigned r[4]);
    uint64_t (*xcr0)(void);     /* asked only when CPUID says OSXSAVE */
    int (*ask_for_tiles)(void); /* 0 or an errno */
};
const char *cpu_source_lacks_avxvnni(const struct cpu_source *s);
const char *cpu_source_lacks_amx(const struct cpu_source *s);
const struct cpu_reading *cpu_source_reading(const struct cpu_source *s);
