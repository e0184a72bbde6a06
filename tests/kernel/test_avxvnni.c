/* The AVX-VNNI set: which processors can run it, and that its copy with the AVX-512 encoding, which
 * test_gemm.c compares with ref.c on machines that cannot run the set itself, has the same
 * structure. */
#include "kit.h"
#include "kernel/cpu.h"

extern const struct kernels avxvnni_kernels; /* has NULL entries; kit.h contains the copy */

struct fake_cpu {
    const char *vendor; /* EBX, EDX, ECX of leaf 0 */
    unsigned leaf1[4], leaf7[4], leaf7_1[4];
    uint64_t xcr0;
};

static struct fake_cpu fake_cpu;

static const struct fake_cpu alder_lake = {
    .vendor = "GenuineIntel",
    .leaf1 = { 0, 0, 1u << 28 | 1u << 27 | 1u << 12 | 1u << 29, 0 },
    .leaf7 = { 2, 1u << 5, 0, 0 },
    .leaf7_1 = { 1u << 4 },
    .xcr0 = 7,
};

static bool fake_cpuid(unsigned leaf, unsigned sub, unsigned r[4])
{
    if (leaf == 0) {
        r[0] = 7;
        memcpy(&r[1], fake_cpu.vendor, 4);
        memcpy(&r[3], fake_cpu.vendor + 4, 4);
        memcpy(&r[2], fake_cpu.vendor + 8, 4);
        return true;
    }
    const unsigned *from = leaf == 1 ? fake_cpu.leaf1 : sub ? fake_cpu.leaf7_1 : fake_cpu.leaf7;

    memcpy(r, from, 4 * sizeof(*r));
    return leaf == 1 || leaf == 7;
}

static uint64_t fake_xcr0(void)
{
    return fake_cpu.xcr0;
}

static const struct cpu_source source = { fake_cpuid, fake_xcr0, NULL };

static void expect_lacks(const char *what)
{
    const char *missing = cpu_source_lacks_avxvnni(&source);

    EXPECT(missing && strstr(missing, what));
    fake_cpu = alder_lake;
}

static void missing_features_are_named(void)
{
    fake_cpu = alder_lake;
    EXPECT(!cpu_source_lacks_avxvnni(&source));
    fake_cpu.leaf7_1[0] = ~(1u << 4);
    expect_lacks("AVX-VNNI");
    fake_cpu.leaf7[0] = 0; /* without subleaf 1 its content is undefined */
    expect_lacks("AVX-VNNI");
    fake_cpu.leaf7[1] = 0;
    expect_lacks("AVX2");
    fake_cpu.leaf1[2] &= ~(1u << 12);
    expect_lacks("FMA");
    fake_cpu.xcr0 = 3;
    expect_lacks("YMM");
}

/* None of its entries fills a gap of AVX-512, which runs on machines without AVX-VNNI. */
static void only_its_gemms_differ_from_avx2(void)
{
    const struct kernels *avx2, *avx512, *own;
    struct err e;

    if (kernels_choose(&avx2, "avx2", &e))
        return;
    if (!kernels_choose(&own, "avxvnni", &e)) {
        EXPECT_STR(own->name, "avxvnni");
        EXPECT(own->attend == avx2->attend);
        EXPECT(own->gemm[GEMM_Q4_0] == avxvnni_kernels.gemm[GEMM_Q4_0]);
    } else {
        EXPECT(cpu_lacks_avxvnni() && strstr(e.msg, cpu_lacks_avxvnni()));
    }
    if (kernels_choose(&avx512, "avx512", &e))
        return;
    for (int i = 0; i < N_GEMM_SLOTS; i++)
        EXPECT(avx512->gemm[i] != avxvnni_kernels.gemm[i]);
}

static void the_gemv_plan_depends_on_the_vendor(void)
{
    fake_cpu = alder_lake;
    EXPECT_EQ(cpu_source_gemv_plan(&source)->plain.n_streams, 4);
    fake_cpu.vendor = "AuthenticAMD";
    EXPECT_EQ(cpu_source_gemv_plan(&source)->plain.n_streams, 1);
}

TESTS(TEST(missing_features_are_named), TEST(the_gemv_plan_depends_on_the_vendor),
    TEST(only_its_gemms_differ_from_avx2))
