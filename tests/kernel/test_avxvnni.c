/* The AVX-VNNI set: which processors have it, and that its twin for AVX-512's encoding, which
 * test_gemm.c holds against ref.c where the set itself does not run, is the set. */
#include "kit.h"
#include "kernel/cpu.h"

extern const struct kernels avxvnni_kernels; /* with gaps; kit.h has the twin */

struct fake {
    const char *maker; /* EBX, EDX, ECX of leaf 0 */
    unsigned leaf1[4], leaf7[4], leaf7_1[4];
    uint64_t xcr0;
};

static struct fake fake;

static const struct fake alder_lake = {
    .maker = "GenuineIntel",
    .leaf1 = { 0, 0, 1u << 28 | 1u << 27 | 1u << 12 | 1u << 29, 0 },
    .leaf7 = { 2, 1u << 5, 0, 0 },
    .leaf7_1 = { 1u << 4 },
    .xcr0 = 7,
};

static bool fake_cpuid(unsigned leaf, unsigned sub, unsigned r[4])
{
    if (leaf == 0) {
        r[0] = 7;
        memcpy(&r[1], fake.maker, 4);
        memcpy(&r[3], fake.maker + 4, 4);
        memcpy(&r[2], fake.maker + 8, 4);
        return true;
    }
    const unsigned *from = leaf == 1 ? fake.leaf1 : sub ? fake.leaf7_1 : fake.leaf7;

    memcpy(r, from, 4 * sizeof(*r));
    return leaf == 1 || leaf == 7;
}

static uint64_t fake_xcr0(void)
{
    return fake.xcr0;
}

static const struct cpu_source source = { fake_cpuid, fake_xcr0, NULL };

static void expect_lacks(const char *what)
{
    const char *missing = cpu_source_lacks_avxvnni(&source);

    EXPECT(missing && strstr(missing, what));
    fake = alder_lake;
}

static void a_machine_says_what_it_lacks(void)
{
    fake = alder_lake;
    EXPECT(!cpu_source_lacks_avxvnni(&source));
    fake.leaf7_1[0] = ~(1u << 4);
    expect_lacks("AVX-VNNI");
    fake.leaf7[0] = 0; /* there is no subleaf 1: what it says means nothing */
    expect_lacks("AVX-VNNI");
    fake.leaf7[1] = 0;
    expect_lacks("AVX2");
    fake.leaf1[2] &= ~(1u << 12);
    expect_lacks("FMA");
    fake.xcr0 = 3;
    expect_lacks("YMM");
}

/* Nothing of it fills gaps of AVX-512's, which runs on machines that have no AVX-VNNI. */
static void only_its_products_are_its_own(void)
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

static void how_it_reads_is_the_makers_matter(void)
{
    fake = alder_lake;
    EXPECT_EQ(cpu_source_reading(&source)->plain.streams, 4);
    fake.maker = "AuthenticAMD";
    EXPECT_EQ(cpu_source_reading(&source)->plain.streams, 1);
}

TESTS(TEST(a_machine_says_what_it_lacks), TEST(how_it_reads_is_the_makers_matter),
    TEST(only_its_products_are_its_own))
