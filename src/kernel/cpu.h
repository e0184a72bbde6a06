/* cpu.h: which instruction sets the processor and the operating system support, and how GEMV should
 * read weights on this processor.
 *
 * CPUID reports what the processor supports; XCR0 reports which registers the system saves on a
 * context switch. Both are required, or the first wide instruction raises SIGILL. AMX tiles need a
 * third step: the system saves them only for a process that has requested them (arch_prctl), since
 * the signal frame grows by eight kilobytes. It refuses if a thread has an alternate signal stack
 * that is too small for that. Any thread. */
#pragma once

#include "base/base.h"

/* NULL if the set can run on this machine, otherwise the first missing feature as text. */
const char *cpu_lacks_avx2(void);    /* AVX2, FMA, F16C */
const char *cpu_lacks_avxvnni(void); /* also AVX-VNNI */
const char *cpu_lacks_avx512(void);  /* the features of AVX2, and AVX-512 F, BW, VL, DQ, VNNI */
/* Also AMX-TILE, AMX-INT8, AMX-BF16, AVX-512 BF16; requests the tiles from the system if all are
 * present. */
const char *cpu_lacks_amx(void);

/* How a GEMV thread reads weights: alternately from `n_streams` panels, `bytes` bytes of each at a
 * time. A single sequential stream is fastest if the processor prefetches far ahead; Intel cores
 * reach little more than half of their bandwidth with one stream. */
struct cpu_streams {
    int n_streams, bytes;
};
enum { CPU_MAX_STREAMS = 4 }; /* largest n_streams */
struct cpu_gemv_plan {
    struct cpu_streams plain;
    /* For 16-bit weights that are multiplied as floats: every FMA depends on the previous one, and
     * fewer than eight such chains do not occupy the processor. */
    struct cpu_streams chained;
};
const struct cpu_gemv_plan *cpu_gemv_plan(void);
void cpu_set_gemv_plan(
    const struct cpu_gemv_plan *r); /* overrides the plan; NULL: detect it again */

/* Source of CPUID, XCR0 and permissions; tests replace it to simulate other processors. */
struct cpu_source {
    /* EAX .. EDX of a leaf and subleaf; false if the leaf does not exist */
    bool (*cpuid)(unsigned leaf, unsigned sub, unsigned r[4]);
    uint64_t (*xcr0)(void);     /* called only if CPUID reports OSXSAVE */
    int (*request_tiles)(void); /* returns 0 or an errno */
};
const char *cpu_source_lacks_avxvnni(const struct cpu_source *s);
const char *cpu_source_lacks_amx(const struct cpu_source *s);
const struct cpu_gemv_plan *cpu_source_gemv_plan(const struct cpu_source *s);
