#include "kernel/cpu.h"

#include <stdatomic.h>
#include <string.h>

/* ---- reading */

static const struct cpu_reading one_stream = { { 1, 32768 }, { 2, 1024 } };
static _Atomic(const struct cpu_reading *) reading;

void cpu_read_as(const struct cpu_reading *r)
{
    atomic_store_explicit(&reading, r, memory_order_relaxed);
}

static const struct cpu_reading *reading_here(void);

/* Everybody who looks finds the same, and any of them may put it down. */
const struct cpu_reading *cpu_reading(void)
{
    const struct cpu_reading *r = atomic_load_explicit(&reading, memory_order_relaxed);

    if (!r) {
        r = reading_here();
        cpu_read_as(r);
    }
    return r;
}

#if defined(__x86_64__)
#include <cpuid.h>
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { EAX, EBX, ECX, EDX };

struct want {
    const char *name;
    unsigned leaf, sub;
    int reg, bit;
};

/* Intel's manual, volume 2, CPUID; AMD's, volume 3, appendix E: the same bits. */
static const struct want for_avx2[] = {
    { "AVX", 1, 0, ECX, 28 },
    { "FMA", 1, 0, ECX, 12 },
    { "F16C", 1, 0, ECX, 29 },
    { "AVX2", 7, 0, EBX, 5 },
};

static const struct want for_avxvnni[] = {
    { "AVX-VNNI", 7, 1, EAX, 4 },
};

static const struct want for_avx512[] = {
    { "AVX-512 F", 7, 0, EBX, 16 },
    { "AVX-512 DQ", 7, 0, EBX, 17 },
    { "AVX-512 BW", 7, 0, EBX, 30 },
    { "AVX-512 VL", 7, 0, EBX, 31 },
    { "AVX-512 VNNI", 7, 0, ECX, 11 },
};

static const struct want for_amx[] = {
    { "AMX-TILE", 7, 0, EDX, 24 },
    { "AMX-INT8", 7, 0, EDX, 25 },
    { "AMX-BF16", 7, 0, EDX, 22 },
    { "AVX-512 BF16", 7, 1, EAX, 5 },
};

enum {
    XCR0_YMM = 0x06,      /* SSE and upper halves of YMM */
    XCR0_ZMM = 0xe6,      /* also opmasks, upper halves of ZMM 0-15, ZMM 16-31 */
    XCR0_TILES = 0x60000, /* their configuration, their data */
};

static bool has(const struct cpu_source *s, const struct want *w)
{
    unsigned r[4] = { 0 };

    return s->cpuid(w->leaf, w->sub, r) && (r[w->reg] >> w->bit & 1);
}

/* XGETBV itself needs OSXSAVE: the system has turned XSAVE on. */
static bool system_saves(const struct cpu_source *s, unsigned mask)
{
    static const struct want osxsave = { "OSXSAVE", 1, 0, ECX, 27 };

    return has(s, &osxsave) && (s->xcr0() & mask) == mask;
}

static const char *lacks(const struct cpu_source *s, const struct want *w, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!has(s, &w[i]))
            return w[i].name;
    return NULL;
}

static const char *lacks_avx2(const struct cpu_source *s)
{
    const char *missing = lacks(s, for_avx2, ARRAY_LEN(for_avx2));

    return missing || system_saves(s, XCR0_YMM) ? missing : "system support for YMM registers";
}

/* Where leaf 7 has no subleaf 1, what it answers to that is not said. */
const char *cpu_source_lacks_avxvnni(const struct cpu_source *s)
{
    const char *missing = lacks_avx2(s);
    unsigned r[4] = { 0 };

    if (!missing && (!s->cpuid(7, 0, r) || r[EAX] < 1))
        missing = for_avxvnni[0].name;
    return missing ? missing : lacks(s, for_avxvnni, ARRAY_LEN(for_avxvnni));
}

static const char *lacks_avx512(const struct cpu_source *s)
{
    const char *missing = lacks_avx2(s);

    if (!missing)
        missing = lacks(s, for_avx512, ARRAY_LEN(for_avx512));
    return missing || system_saves(s, XCR0_ZMM) ? missing : "system support for ZMM registers";
}

/* Palette 1 (leaf 0x1d) has eight tiles of 16 rows x 64 bytes or more, and they can be multiplied
 * whole (leaf 0x1e): what x86_amx.c configures. */
static bool tiles_are_large_enough(const struct cpu_source *s)
{
    unsigned r[4] = { 0 };

    if (!s->cpuid(0x1d, 0, r) || r[EAX] < 1 || !s->cpuid(0x1d, 1, r))
        return false;
    if ((r[EBX] & 0xffff) < 64 || r[EBX] >> 16 < 8 || (r[ECX] & 0xffff) < 16)
        return false;
    return s->cpuid(0x1e, 0, r) && (r[EBX] & 0xff) >= 16 && (r[EBX] >> 8 & 0xffff) >= 64;
}

const char *cpu_source_lacks_amx(const struct cpu_source *s)
{
    const char *missing = lacks_avx512(s);

    if (!missing)
        missing = lacks(s, for_amx, ARRAY_LEN(for_amx));
    if (missing)
        return missing;
    if (!tiles_are_large_enough(s))
        return "AMX tiles of 16 rows of 64 bytes";
    if (!system_saves(s, XCR0_ZMM | XCR0_TILES))
        return "system support for AMX tiles";
    switch (s->ask_for_tiles()) {
    case 0:
        return NULL;
    case ENOSPC:
        return "alternate signal stacks large enough for AMX tiles";
    default:
        return "the system's permission to use AMX tiles";
    }
}

/* The manuals cited above: the maker's name is in leaf 0. */
const struct cpu_reading *cpu_source_reading(const struct cpu_source *s)
{
    static const struct cpu_reading four_streams = { { CPU_STREAMS, 1024 }, { CPU_STREAMS, 1024 } };
    unsigned r[4];

    if (!s->cpuid(0, 0, r))
        return &one_stream;
    const unsigned name[] = { r[EBX], r[EDX], r[ECX] };
    return memcmp(name, "GenuineIntel", sizeof(name)) ? &one_stream : &four_streams;
}

/* ---- this machine */

static bool cpuid_here(unsigned leaf, unsigned sub, unsigned r[4])
{
    return __get_cpuid_count(leaf, sub, &r[EAX], &r[EBX], &r[ECX], &r[EDX]);
}

static uint64_t xcr0_here(void)
{
    unsigned low, high;

    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* arch_prctl(2); for the process, in force for threads that run already too. */
static int ask_here(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };

    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) ? errno : 0;
}

static const struct cpu_source here = { cpuid_here, xcr0_here, ask_here };

const char *cpu_lacks_avx2(void)
{
    return lacks_avx2(&here);
}

const char *cpu_lacks_avxvnni(void)
{
    return cpu_source_lacks_avxvnni(&here);
}

const char *cpu_lacks_avx512(void)
{
    return lacks_avx512(&here);
}

const char *cpu_lacks_amx(void)
{
    return cpu_source_lacks_amx(&here);
}

static const struct cpu_reading *reading_here(void)
{
    return cpu_source_reading(&here);
}

#else

const char *cpu_lacks_avx2(void)
{
    return "an x86-64 processor";
}

const char *cpu_lacks_avxvnni(void)
{
    return "an x86-64 processor";
}

const char *cpu_source_lacks_avxvnni(const struct cpu_source *s)
{
    return "an x86-64 processor";
}

const char *cpu_lacks_avx512(void)
{
    return "an x86-64 processor";
}

const char *cpu_lacks_amx(void)
{
    return "an x86-64 processor";
}

const char *cpu_source_lacks_amx(const struct cpu_source *s)
{
    return "an x86-64 processor";
}

const struct cpu_reading *cpu_source_reading(const struct cpu_source *s)
{
    return &one_stream;
}

static const struct cpu_reading *reading_here(void)
{
    return &one_stream;
}
#endif
