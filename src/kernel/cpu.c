#include "kernel/cpu.h"

#include <stdatomic.h>
#include <string.h>

/* ---- GEMV plan: how GEMV reads weights */

static const struct cpu_gemv_plan one_stream = { { 1, 32768 }, { 2, 1024 } };
static _Atomic(const struct cpu_gemv_plan *) current_plan;

void cpu_set_gemv_plan(const struct cpu_gemv_plan *r)
{
    atomic_store_explicit(&current_plan, r, memory_order_relaxed);
}

static const struct cpu_gemv_plan *detect_gemv_plan(void);

/* Any thread may store the plan first: detection gives every thread the same result. */
const struct cpu_gemv_plan *cpu_gemv_plan(void)
{
    const struct cpu_gemv_plan *r = atomic_load_explicit(&current_plan, memory_order_relaxed);

    if (!r) {
        r = detect_gemv_plan();
        cpu_set_gemv_plan(r);
    }
    return r;
}

#if defined(__x86_64__)
#include <cpuid.h>
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { EAX, EBX, ECX, EDX };

struct cpu_feature {
    const char *name;
    unsigned leaf, sub;
    int reg, bit;
};

/* Intel's manual, volume 2, CPUID; AMD's, volume 3, appendix E. Both define the same bits. */
static const struct cpu_feature avx2_features[] = {
    { "AVX", 1, 0, ECX, 28 },
    { "FMA", 1, 0, ECX, 12 },
    { "F16C", 1, 0, ECX, 29 },
    { "AVX2", 7, 0, EBX, 5 },
};

static const struct cpu_feature avxvnni_features[] = {
    { "AVX-VNNI", 7, 1, EAX, 4 },
};

static const struct cpu_feature avx512_features[] = {
    { "AVX-512 F", 7, 0, EBX, 16 },
    { "AVX-512 DQ", 7, 0, EBX, 17 },
    { "AVX-512 BW", 7, 0, EBX, 30 },
    { "AVX-512 VL", 7, 0, EBX, 31 },
    { "AVX-512 VNNI", 7, 0, ECX, 11 },
};

static const struct cpu_feature amx_features[] = {
    { "AMX-TILE", 7, 0, EDX, 24 },
    { "AMX-INT8", 7, 0, EDX, 25 },
    { "AMX-BF16", 7, 0, EDX, 22 },
    { "AVX-512 BF16", 7, 1, EAX, 5 },
};

enum {
    XCR0_YMM = 0x06,      /* SSE and upper halves of YMM */
    XCR0_ZMM = 0xe6,      /* also opmasks, upper halves of ZMM 0-15, ZMM 16-31 */
    XCR0_TILES = 0x60000, /* configuration and data of the tiles */
};

static bool has_feature(const struct cpu_source *s, const struct cpu_feature *w)
{
    unsigned r[4] = { 0 };

    return s->cpuid(w->leaf, w->sub, r) && (r[w->reg] >> w->bit & 1);
}

/* XGETBV itself requires OSXSAVE: the system has enabled XSAVE. */
static bool os_saves_registers(const struct cpu_source *s, unsigned mask)
{
    static const struct cpu_feature osxsave = { "OSXSAVE", 1, 0, ECX, 27 };

    return has_feature(s, &osxsave) && (s->xcr0() & mask) == mask;
}

static const char *first_missing(const struct cpu_source *s, const struct cpu_feature *w, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!has_feature(s, &w[i]))
            return w[i].name;
    return NULL;
}

static const char *lacks_avx2(const struct cpu_source *s)
{
    const char *missing = first_missing(s, avx2_features, ARRAY_LEN(avx2_features));

    return missing || os_saves_registers(s, XCR0_YMM) ? missing
                                                      : "system support for YMM registers";
}

/* If leaf 7 has no subleaf 1, the result for that subleaf is undefined. */
const char *cpu_source_lacks_avxvnni(const struct cpu_source *s)
{
    const char *missing = lacks_avx2(s);
    unsigned r[4] = { 0 };

    if (!missing && (!s->cpuid(7, 0, r) || r[EAX] < 1))
        missing = avxvnni_features[0].name;
    return missing ? missing : first_missing(s, avxvnni_features, ARRAY_LEN(avxvnni_features));
}

static const char *lacks_avx512(const struct cpu_source *s)
{
    const char *missing = lacks_avx2(s);

    if (!missing)
        missing = first_missing(s, avx512_features, ARRAY_LEN(avx512_features));
    return missing || os_saves_registers(s, XCR0_ZMM) ? missing
                                                      : "system support for ZMM registers";
}

/* True if palette 1 (leaf 0x1d) has at least eight tiles of 16 rows x 64 bytes and TMUL (leaf 0x1e)
 * multiplies whole tiles: the configuration that x86_amx.c uses. */
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
        missing = first_missing(s, amx_features, ARRAY_LEN(amx_features));
    if (missing)
        return missing;
    if (!tiles_are_large_enough(s))
        return "AMX tiles of 16 rows of 64 bytes";
    if (!os_saves_registers(s, XCR0_ZMM | XCR0_TILES))
        return "system support for AMX tiles";
    switch (s->request_tiles()) {
    case 0:
        return NULL;
    case ENOSPC:
        return "alternate signal stacks large enough for AMX tiles";
    default:
        return "permission of the system to use AMX tiles";
    }
}

/* Leaf 0 contains the name of the vendor (manuals cited above). */
const struct cpu_gemv_plan *cpu_source_gemv_plan(const struct cpu_source *s)
{
    static const struct cpu_gemv_plan four_streams = { { CPU_MAX_STREAMS, 1024 },
        { CPU_MAX_STREAMS, 1024 } };
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

/* arch_prctl(2): permission for the process, which also applies to threads that already run. */
static int request_tiles_here(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };

    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) ? errno : 0;
}

static const struct cpu_source this_machine = { cpuid_here, xcr0_here, request_tiles_here };

const char *cpu_lacks_avx2(void)
{
    return lacks_avx2(&this_machine);
}

const char *cpu_lacks_avxvnni(void)
{
    return cpu_source_lacks_avxvnni(&this_machine);
}

const char *cpu_lacks_avx512(void)
{
    return lacks_avx512(&this_machine);
}

const char *cpu_lacks_amx(void)
{
    return cpu_source_lacks_amx(&this_machine);
}

static const struct cpu_gemv_plan *detect_gemv_plan(void)
{
    return cpu_source_gemv_plan(&this_machine);
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

const struct cpu_gemv_plan *cpu_source_gemv_plan(const struct cpu_source *s)
{
    return &one_stream;
}

static const struct cpu_gemv_plan *detect_gemv_plan(void)
{
    return &one_stream;
}
#endif
