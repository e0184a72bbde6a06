#include "kernel/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>

enum { EBX, ECX, EDX };

struct want {
    const char *name;
    unsigned leaf; /* 1, or 7 (subleaf 0) */
    int reg, bit;
};

/* Intel's manual, volume 2, CPUID; AMD's, volume 3, appendix E: the same bits. */
static const struct want for_avx2[] = {
    { "AVX", 1, ECX, 28 },
    { "FMA", 1, ECX, 12 },
    { "F16C", 1, ECX, 29 },
    { "AVX2", 7, EBX, 5 },
};

static const struct want for_avx512[] = {
    { "AVX-512 F", 7, EBX, 16 },
    { "AVX-512 DQ", 7, EBX, 17 },
    { "AVX-512 BW", 7, EBX, 30 },
    { "AVX-512 VL", 7, EBX, 31 },
    { "AVX-512 VNNI", 7, ECX, 11 },
};

enum {
    XCR0_YMM = 0x06, /* SSE and upper halves of YMM */
    XCR0_ZMM = 0xe6, /* also opmasks, upper halves of ZMM 0-15, ZMM 16-31 */
};

static bool has(const struct want *w)
{
    unsigned eax, r[3] = { 0 };

    return __get_cpuid_count(w->leaf, 0, &eax, &r[EBX], &r[ECX], &r[EDX]) &&
           (r[w->reg] >> w->bit & 1);
}

/* XGETBV itself needs OSXSAVE: the system has turned XSAVE on. */
static bool system_saves(unsigned mask)
{
    static const struct want osxsave = { "OSXSAVE", 1, ECX, 27 };
    unsigned low, high;

    if (!has(&osxsave))
        return false;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & mask) == mask;
}

static const char *lacks(const struct want *w, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!has(&w[i]))
            return w[i].name;
    return NULL;
}

const char *cpu_lacks_avx2(void)
{
    const char *missing = lacks(for_avx2, ARRAY_LEN(for_avx2));

    return missing || system_saves(XCR0_YMM) ? missing : "system support for YMM registers";
}

const char *cpu_lacks_avx512(void)
{
    const char *missing = cpu_lacks_avx2();

    if (!missing)
        missing = lacks(for_avx512, ARRAY_LEN(for_avx512));
    return missing || system_saves(XCR0_ZMM) ? missing : "system support for ZMM registers";
}

#else

const char *cpu_lacks_avx2(void)
{
    return "an x86-64 processor";
}

const char *cpu_lacks_avx512(void)
{
    return "an x86-64 processor";
}
#endif
