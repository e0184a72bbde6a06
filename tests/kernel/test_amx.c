/* Tests of the AMX set on machines without AMX: detection of missing features, encoding of the tile
 * instructions, and the emulated tiles that replace them in test_gemm.c, which must be as strict as
 * hardware and released by every thread. */
#include "kit.h"
#include "kernel/cpu.h"
#include "os/thread_pool.h"
#include "kernel/x86/x86_amx_tile.h"
#include "os/thread.h"

#include <errno.h>
#include <float.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- detection of missing features */

struct fake_cpu {
    unsigned leaf1[4], leaf7[4], leaf7_1[4], palette[4], palette1[4], tmul[4];
    unsigned highest;
    uint64_t xcr0;
    int request_result, n_asked;
};

static struct fake_cpu fake_cpu;

static const struct fake_cpu sapphire_rapids = {
    .leaf1 = { 0, 0, 1u << 28 | 1u << 27 | 1u << 12 | 1u << 29, 0 },
    .leaf7 = { 0, 1u << 5 | 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31, 1u << 11,
        1u << 22 | 1u << 24 | 1u << 25 },
    .leaf7_1 = { 1u << 4 | 1u << 5 },
    .palette = { 1 },
    .palette1 = { 8192 | 1024u << 16, 64 | 8u << 16, 16 },
    .tmul = { 0, 16 | 64u << 8 },
    .highest = 0x1e,
    .xcr0 = 0x602e7,
};

static bool fake_cpuid(unsigned leaf, unsigned sub, unsigned r[4])
{
    const unsigned *from = leaf == 1             ? fake_cpu.leaf1
                           : leaf == 7 && sub    ? fake_cpu.leaf7_1
                           : leaf == 7           ? fake_cpu.leaf7
                           : leaf == 0x1d && sub ? fake_cpu.palette1
                           : leaf == 0x1d        ? fake_cpu.palette
                           : leaf == 0x1e        ? fake_cpu.tmul
                                                 : NULL;

    if (!from || leaf > fake_cpu.highest)
        return false;
    memcpy(r, from, 4 * sizeof(*r));
    return true;
}

static uint64_t fake_xcr0(void)
{
    EXPECT(fake_cpu.leaf1[2] >> 27 & 1); /* XGETBV would raise SIGILL */
    return fake_cpu.xcr0;
}

static int fake_request_tiles(void)
{
    fake_cpu.n_asked++;
    return fake_cpu.request_result;
}

static const struct cpu_source source = { fake_cpuid, fake_xcr0, fake_request_tiles };

/* Clears bits of a CPUID word and expects `what` in the reported feature, without a tile
 * request. */
static void expect_lacks(unsigned *word, unsigned bits, const char *what)
{
    *word &= ~bits;
    const char *missing = cpu_source_lacks_amx(&source);
    EXPECT(missing && strstr(missing, what));
    EXPECT_EQ(fake_cpu.n_asked, 0);
    fake_cpu = sapphire_rapids;
}

static void missing_features_are_named(void)
{
    fake_cpu = sapphire_rapids;
    EXPECT(!cpu_source_lacks_amx(&source));
    EXPECT_EQ(fake_cpu.n_asked, 1);
    fake_cpu = sapphire_rapids;
    expect_lacks(&fake_cpu.leaf1[2], 1u << 12, "FMA");
    expect_lacks(&fake_cpu.leaf1[2], 1u << 27, "YMM");
    expect_lacks(&fake_cpu.leaf7[1], 1u << 5, "AVX2");
    expect_lacks(&fake_cpu.leaf7[2], 1u << 11, "AVX-512 VNNI");
    expect_lacks(&fake_cpu.leaf7[3], 1u << 24, "AMX-TILE");
    expect_lacks(&fake_cpu.leaf7[3], 1u << 25, "AMX-INT8");
    expect_lacks(&fake_cpu.leaf7[3], 1u << 22, "AMX-BF16");
    expect_lacks(&fake_cpu.leaf7_1[0], 1u << 5, "AVX-512 BF16");
    expect_lacks(&fake_cpu.palette[0], 1, "16 rows of 64 bytes");
    expect_lacks(&fake_cpu.palette1[1], 64, "16 rows of 64 bytes");
    expect_lacks(&fake_cpu.palette1[1], 8u << 16, "16 rows of 64 bytes");
    expect_lacks(&fake_cpu.palette1[2], 16, "16 rows of 64 bytes");
    expect_lacks(&fake_cpu.tmul[1], 16, "16 rows of 64 bytes");
    expect_lacks(&fake_cpu.tmul[1], 64u << 8, "16 rows of 64 bytes");
    fake_cpu.highest = 0x1c;
    expect_lacks(&fake_cpu.palette[0], 0, "16 rows of 64 bytes");
    for (int bit = 0; bit < 19; bit++) {
        if (!(sapphire_rapids.xcr0 >> bit & 1) || bit == 0 || bit == 9)
            continue;
        fake_cpu.xcr0 &= ~(1ull << bit);
        expect_lacks(&fake_cpu.palette[0], 0,
            bit < 3   ? "YMM"
            : bit < 8 ? "ZMM"
                      : "system support for AMX tiles");
    }
}

static void a_refused_tile_request_is_reported(void)
{
    static const struct {
        int request_result;
        const char *what;
    } cases[] = { { ENOSPC, "signal stacks" }, { EINVAL, "permission" }, { EPERM, "permission" },
        { ENOSYS, "permission" } };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        fake_cpu = sapphire_rapids;
        fake_cpu.request_result = cases[i].request_result;
        const char *missing = cpu_source_lacks_amx(&source);
        EXPECT(missing && strstr(missing, cases[i].what));
        EXPECT_EQ(fake_cpu.n_asked, 1);
    }
}

/* This machine: amx is chosen or rejected with a reason, consistently, and "auto" always finds a
 * set. */
static void choosing_amx_agrees_with_detection(void)
{
    const struct kernels *k = NULL;
    struct err e;

    const char *missing = cpu_lacks_amx(), *again = cpu_lacks_amx();
    EXPECT(missing == again);
    if (!missing) {
        EXPECT_EQ(kernels_choose(&k, "amx", &e), 0);
        EXPECT_STR(k->name, "amx");
    } else {
        EXPECT_EQ(kernels_choose(&k, "amx", &e), -1);
        EXPECT_EQ((int)e.code, ERR_UNSUPPORTED);
        EXPECT(strstr(e.msg, missing));
    }
    EXPECT_EQ(kernels_choose(&k, "auto", &e), 0);
    EXPECT_EQ(!missing, !strcmp(k->name, "amx"));
}

/* ---- signals */

struct stack {
    size_t bytes, alternate;
};

static void *measure_stack(void *arg)
{
    struct stack *s = arg;
    pthread_attr_t attr;
    stack_t alternate;

    if (!pthread_getattr_np(pthread_self(), &attr)) {
        pthread_attr_getstacksize(&attr, &s->bytes);
        pthread_attr_destroy(&attr);
    }
    if (!sigaltstack(NULL, &alternate) && !(alternate.ss_flags & SS_DISABLE))
        s->alternate = alternate.ss_size;
    return NULL;
}

/* A signal frame contains all state that the processor can save, including tiles. */
static void a_signal_with_tiles_fits_a_thread(void)
{
    size_t frame = getauxval(AT_MINSIGSTKSZ);
    struct stack s = { 0 };
    pthread_t t;
    struct err e;

    EXPECT(frame > 0 && frame < 64 * 1024);
    EXPECT_EQ(thread_start(&t, "stack", measure_stack, &s, &e), 0);
    pthread_join(t, NULL);
    EXPECT(s.bytes >= 16 * frame);
    EXPECT(s.alternate == 0 || s.alternate >= frame); /* the address sanitizer installs one */
}

/* ---- instructions */

#if defined(__x86_64__)
/* Intel's manual, volume 2: VEX.128.{F2,F3}.0F38.W0 5E 11:rrr:bbb is the int8 dot product; F3 .. 5C
 * the bf16 dot product; 4B load and store; 49 the others. The last operand in AT&T syntax is
 * ModRM.reg, the first is VEX.vvvv. */
__attribute__((noinline, used)) static void dot_ss(void)
{
    TILE_DOT_SS(3, 5, 6);
}

__attribute__((noinline, used)) static void dot_su(void)
{
    TILE_DOT_SU(3, 5, 6);
}

__attribute__((noinline, used)) static void dot_bf16(void)
{
    TILE_DOT_BF16(3, 5, 6);
}

__attribute__((noinline, used)) static void zero(void)
{
    TILE_ZERO(7);
}

__attribute__((noinline, used)) static void release(void)
{
    tile_release();
}

static bool holds(void (*fn)(void), const uint8_t bytes[5])
{
    uint8_t code[24];

    memcpy(code, (const void *)(uintptr_t)fn, sizeof(code));
    return memmem(code, sizeof(code), bytes, 5) != NULL;
}

static void instructions_are_encoded_as_the_manual_says(void)
{
    EXPECT(holds(dot_ss, (const uint8_t[]){ 0xc4, 0xe2, 0x4b, 0x5e, 0xdd }));
    EXPECT(holds(dot_su, (const uint8_t[]){ 0xc4, 0xe2, 0x4a, 0x5e, 0xdd }));
    EXPECT(holds(dot_bf16, (const uint8_t[]){ 0xc4, 0xe2, 0x4a, 0x5c, 0xdd }));
    EXPECT(holds(zero, (const uint8_t[]){ 0xc4, 0xe2, 0x7b, 0x49, 0xf8 }));
    EXPECT(holds(release, (const uint8_t[]){ 0xc4, 0xe2, 0x78, 0x49, 0xc0 }));
    EXPECT(sizeof(struct tile_config) == 64);
    EXPECT(offsetof(struct tile_config, row_bytes) == 16);
    EXPECT(offsetof(struct tile_config, rows) == 48);
}
#endif

/* ---- emulated tiles */

static struct tile_config valid_config(void)
{
    struct tile_config c = { .palette = 1 };

    for (int t = 0; t < 3; t++) {
        c.rows[t] = 16;
        c.row_bytes[t] = 64;
    }
    return c;
}

/* In a child process: applies a configuration (NULL: none) and calls amx_soft_use (-1: does not).
 * Returns true if the child aborts. */
static bool aborts(const struct tile_config *c, int use)
{
    int status = 0;

    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
        if (!freopen("/dev/null", "w", stderr))
            _exit(1);
        signal(SIGABRT, SIG_DFL);
        if (c)
            amx_soft_configure(c);
        if (use >= 0)
            amx_soft_use(use);
        _exit(0);
    }
    EXPECT(pid > 0 && waitpid(pid, &status, 0) == pid);
    EXPECT(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

/* The emulated tiles are compiled with the flags of the AMX set. */
static bool has_avx512_bf16(void)
{
    if (kit_amx_soft())
        return true;
    printf("skipped: emulated tiles need AVX-512 BF16\n");
    return false;
}

static void wrong_configurations_abort(void)
{
    if (!has_avx512_bf16())
        return;
    struct tile_config c = valid_config();

    EXPECT(!aborts(&c, -1));
    c.palette = 2;
    EXPECT(aborts(&c, -1));
    c = valid_config();
    c.start_row = 1;
    EXPECT(aborts(&c, -1));
    c = valid_config();
    c.zero[13] = 1;
    EXPECT(aborts(&c, -1));
    c = valid_config();
    c.rows[2] = 17;
    EXPECT(aborts(&c, -1));
    c = valid_config();
    c.row_bytes[2] = 65;
    EXPECT(aborts(&c, -1));
    c = valid_config();
    c.rows[7] = 1; /* rows without bytes */
    EXPECT(aborts(&c, -1));
    c = valid_config();
    c.row_bytes[7] = 4; /* bytes without rows */
    EXPECT(aborts(&c, -1));
    c = valid_config();
    c.rows[8] = c.rows[0];
    c.row_bytes[8] = 64;
    EXPECT(aborts(&c, -1));
}

static void wrong_uses_abort(void)
{
    if (!has_avx512_bf16())
        return;
    struct tile_config c = valid_config();

    for (int use = 0; use < 7; use++)
        EXPECT(aborts(NULL, use)); /* no configuration */
    for (int use = 0; use < 4; use++)
        EXPECT(!aborts(&c, use));
    EXPECT(aborts(&c, 4)); /* C is also A */
    EXPECT(!aborts(&c, 5));
    EXPECT(aborts(&c, 6)); /* A and B are the same tile */
    for (int t = 0; t < 3; t++) {
        c = valid_config();
        c.rows[t] = 8; /* the sizes of the three tiles do not match */
        EXPECT(aborts(&c, 3));
        c = valid_config();
        c.row_bytes[t] = 32;
        EXPECT(aborts(&c, 3));
        c = valid_config();
        c.rows[t] = c.row_bytes[t] = 0;
        EXPECT(aborts(&c, 3) && aborts(&c, t));
    }
    c = valid_config();
    c.rows[0] = c.rows[1] = 5; /* fewer activation rows, blocks of 32 */
    c.row_bytes[1] = 32;
    c.rows[2] = 8;
    EXPECT(!aborts(&c, 3) && !aborts(&c, 5));
    c.row_bytes[0] = c.row_bytes[2] = 62; /* bytes that are not a multiple of a sum */
    EXPECT(aborts(&c, 3) && aborts(&c, 5));
}

/* ---- bf16 dot products */

struct bf16_tiles {
    float c[16][16];
    uint16_t a[16][32], b[16][32]; /* rows of b are pairs of k: [16 columns][2] */
};

static void put_a(struct bf16_tiles *t, int k, float v)
{
    t->a[0][k] = f32_to_bf16(v);
    EXPECT(bf16_to_f32(t->a[0][k]) == v || v != v);
}

static void put_b(struct bf16_tiles *t, int k, float v)
{
    t->b[k / 2][k % 2] = f32_to_bf16(v);
    EXPECT(bf16_to_f32(t->b[k / 2][k % 2]) == v || v != v);
}

static float product(struct bf16_tiles *t)
{
    amx_soft_dot_bf16(t->c, t->a, t->b);
    return t->c[0][0];
}

static void whole_numbers_multiply_exactly(void)
{
    if (!has_avx512_bf16())
        return;
    struct rng r = { .key = 11 };
    struct bf16_tiles t;

    for (int round = 0; round < 20; round++) {
        int a[16][32], b[32][16];
        for (int m = 0; m < 16; m++)
            for (int k = 0; k < 32; k++) {
                a[m][k] = (int)rng_below(&r, 511) - 255;
                b[k][m] = (int)rng_below(&r, 511) - 255;
                t.a[m][k] = f32_to_bf16((float)a[m][k]);
                t.b[k / 2][2 * m + k % 2] = f32_to_bf16((float)b[k][m]);
                t.c[m][k / 2] = (float)(m * k);
            }
        float before[16][16];
        memcpy(before, t.c, sizeof(before));
        amx_soft_dot_bf16(t.c, t.a, t.b);
        for (int m = 0; m < 16; m++)
            for (int n = 0; n < 16; n++) {
                int sum = (int)before[m][n];
                for (int k = 0; k < 32; k++)
                    sum += a[m][k] * b[k][n];
                EXPECT_EQ(t.c[m][n], (float)sum);
            }
    }
}

/* The results of these sums depend on the order. */
static void even_and_odd_k_have_separate_sums_that_are_added_last(void)
{
    if (!has_avx512_bf16())
        return;
    struct bf16_tiles t = { 0 };

    put_a(&t, 0, 0x1p24f); /* even sum: 2^24 + 1 + 1 stays 2^24; odd sum: 1 */
    put_a(&t, 1, 1);
    put_a(&t, 2, 1);
    put_a(&t, 4, 1);
    for (int k = 0; k < 5; k++)
        put_b(&t, k, 1);
    EXPECT_EQ(product(&t), 0x1p24f); /* 2^24 + 1 is a tie and rounds to even */
    t.c[0][0] = 2;
    EXPECT_EQ(product(&t), 0x1p24f + 2); /* not (2 + 1) + 2^24, which is 4 more */
    put_a(&t, 3, 2);                     /* odd sum: 3 */
    t.c[0][0] = -0x1p24f;
    EXPECT_EQ(product(&t), 4.0f); /* 2^24 + 3 rounds to 2^24 + 4 before c is added */
    memset(&t, 0, sizeof(t));
    for (int k = 0; k < 6; k += 2) { /* ascending k: (1 + 2^24) - 2^24 */
        put_a(&t, k, k == 0 ? 1 : 0x1p24f);
        put_b(&t, k, k == 4 ? -1 : 1);
    }
    EXPECT_EQ(product(&t), 0.0f);
}

static void products_are_fused(void)
{
    if (!has_avx512_bf16())
        return;
    struct bf16_tiles t = { 0 };

    put_a(&t, 0, 0x1p24f);
    put_b(&t, 0, 1);
    put_a(&t, 2, 1 + 0x1p-7f); /* squared: 1 + 2^-6 + 2^-14, above the tie */
    put_b(&t, 2, 1 + 0x1p-7f);
    EXPECT_EQ(product(&t), 0x1p24f + 2);
}

static void subnormals_are_zero(void)
{
    if (!has_avx512_bf16())
        return;
    struct bf16_tiles t = { 0 };

    t.a[0][0] = 1; /* 2^-133 */
    put_b(&t, 0, 0x1p120f);
    EXPECT_EQ(product(&t), 0.0f);
    put_a(&t, 0, 0x1p120f);
    t.b[0][0] = 1;
    EXPECT_EQ(product(&t), 0.0f);
    put_a(&t, 0, 0x1p-70f); /* a product below FLT_MIN */
    put_b(&t, 0, -0x1p-70f);
    put_a(&t, 2, 0x1p-70f);
    put_b(&t, 2, 0x1p-56f);
    EXPECT_EQ(product(&t), 0x1p-126f);
    memset(&t, 0, sizeof(t));
    t.c[0][0] = 0x1p-127f; /* flushed before and after the sum */
    EXPECT_EQ(product(&t), 0.0f);
    t.c[0][0] = -0x1.8p-126f;
    put_a(&t, 0, 0x1p-63f);
    put_b(&t, 0, 0x1p-63f);
    EXPECT_EQ(product(&t), 0.0f);
    EXPECT(signbit(t.c[0][0]));
}

static void nan_and_infinity_stay_in_their_row_and_column(void)
{
    if (!has_avx512_bf16())
        return;
    static const float special[] = { NAN, INFINITY, -INFINITY };

    for (size_t i = 0; i < ARRAY_LEN(special); i++) {
        struct bf16_tiles t = { 0 };
        t.a[3][5] = f32_to_bf16(special[i]);
        t.b[7][2 * 9 + 1] = f32_to_bf16(special[i]); /* k = 15, column 9 */
        for (int k = 0; k < 32; k++)
            for (int m = 0; m < 16; m++) {
                t.a[m][k] = m == 3 && k == 5 ? t.a[m][k] : f32_to_bf16(1);
                if (k != 15 || m != 9)
                    t.b[k / 2][2 * m + k % 2] = f32_to_bf16(2);
            }
        amx_soft_dot_bf16(t.c, t.a, t.b);
        for (int m = 0; m < 16; m++)
            for (int n = 0; n < 16; n++)
                if (m != 3 && n != 9)
                    EXPECT_EQ(t.c[m][n], 64.0f);
                else
                    EXPECT(special[i] != special[i] ? t.c[m][n] != t.c[m][n]
                                                    : t.c[m][n] == special[i]);
    }
    struct bf16_tiles t = { 0 };
    put_a(&t, 0, INFINITY); /* infinity times zero */
    EXPECT(isnan(product(&t)));
    put_b(&t, 0, 1);
    put_a(&t, 1, INFINITY);
    put_b(&t, 1, -1);
    t.c[0][0] = 0;
    EXPECT(isnan(product(&t)));
}

#if defined(__x86_64__)
/* fma of this processor with flush-to-zero and denormals-are-zero, MXCSR 0x9fc0. */
static float flushing_fma(float x, float w, float acc)
{
    const uint32_t flush = 0x9fc0, normal = 0x1f80;

    __asm__ volatile("ldmxcsr %3\n"
                     "vfmadd231ss %2, %1, %0\n"
                     "ldmxcsr %4"
                     : "+x"(acc)
                     : "x"(x), "x"(w), "m"(flush), "m"(normal));
    return acc;
}

static void an_emulated_step_equals_fma_with_flush_to_zero(void)
{
    enum { SEED = 12, ROUNDS = 400000 };
    struct rng r = { .key = SEED };

    if (!kit_amx_soft()) {
        printf("skipped: no FMA\n");
        return;
    }
    printf("seed %d\n", SEED);
    for (int i = 0; i < ROUNDS; i++) {
        float x = bf16_to_f32((uint16_t)rng_next(&r)), w = bf16_to_f32((uint16_t)rng_next(&r));
        float acc = f32_from_bits((uint32_t)rng_next(&r));
        if (i % 4) { /* close to the smallest normal number */
            x = ldexpf(1 + (float)rng_below(&r, 128) / 128, -70 + (int)rng_below(&r, 8));
            w = ldexpf(1 + (float)rng_below(&r, 128) / 128, -84 + (int)rng_below(&r, 30));
            w = i & 4 ? -w : w;
            acc = f32_from_bits(0x00800000 + (i & 8 ? 0 : (uint32_t)rng_below(&r, 1 << 23)));
        }
        if (i % 4 == 1) { /* close to FLT_MIN - 2^-151, on either side */
            x = -0x1p-75f * (1 + (float)rng_below(&r, 4) / 128);
            w = 0x1p-76f * (1 + (float)rng_below(&r, 4) / 128) * (i & 16 ? 1 : 2);
            acc = FLT_MIN;
        }
        float want = flushing_fma(x, w, acc), got = amx_soft_fma(x, w, acc);
        if (f32_to_bits(got) != f32_to_bits(want) && !(got != got && want != want)) {
            fprintf(stderr, "fma(%a, %a, %a): %a, not %a\n", (double)x, (double)w, (double)acc,
                (double)got, (double)want);
            fail();
        }
    }
}

/* On hardware with tiles the emulation gives the same bits. */
static void emulated_tiles_equal_hardware(void)
{
    static const struct tile_config all = {
        .palette = 1, .row_bytes = { 64, 64, 64 }, .rows = { 16, 16, 16 }
    };
    struct rng r = { .key = 13 };
    struct bf16_tiles t, hardware;

    if (cpu_lacks_amx()) {
        printf("skipped: this machine lacks %s\n", cpu_lacks_amx());
        return;
    }
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < 16 * 32; i++) {
            bool any = round % 2; /* random bits, or numbers with finite normal sums */
            t.a[i / 32][i % 32] = any ? (uint16_t)rng_next(&r) : f32_to_bf16(kit_normal(&r));
            t.b[i / 32][i % 32] = any ? (uint16_t)rng_next(&r) : f32_to_bf16(kit_normal(&r));
            t.c[i / 32][i / 2 % 16] = kit_normal(&r);
        }
        hardware = t;
        amx_soft_dot_bf16(t.c, t.a, t.b);
        tile_configure(&all);
        TILE_LOAD(0, hardware.c, 64);
        TILE_LOAD(1, hardware.a, 64);
        TILE_LOAD(2, hardware.b, 64);
        TILE_DOT_BF16(0, 1, 2);
        TILE_STORE(0, hardware.c, 64);
        tile_release();
        EXPECT(kit_same_floats(hardware.c[0], t.c[0], 16 * 16));
    }
}
#endif

/* ---- threads */

enum { THREADS = 3, M = 40, ROWS = 16 * 9, COLS = 512 };

struct job {
    const struct kernels *k;
    const struct packed *w;
    const struct acts *x;
    float *y;
    bool released[THREADS];
};

static void multiply(void *arg, int thread, int n)
{
    struct job *j = arg;
    struct gemm_args g = { j->w, j->x, j->w->n_panels * thread / n,
        j->w->n_panels * (thread + 1) / n, j->y, ROWS };

    j->k->gemm[gemm_slot(j->w->type)](&g);
    j->released[thread] = amx_soft_is_released();
}

/* Tiles are state of a thread: every thread configures and releases its own. */
static void every_thread_releases_its_tiles(void)
{
    struct rng r = { .key = 1 };
    struct job j = { .k = kit_amx_soft() };
    struct thread_pool *thread_pool;
    struct err e;

    if (!j.k) {
        printf("skipped: no AVX-512\n");
        return;
    }
    EXPECT_EQ(thread_pool_open(&thread_pool, THREADS, &e), 0);
    for (int t = 1; t < KIT_N_TYPES; t++) {
        float *x = xmalloc(M * COLS * sizeof(float)), *y = xmalloc(M * ROWS * sizeof(float));
        float *want = xmalloc(M * ROWS * sizeof(float));
        uint8_t *rows = kit_random_rows(&r, &kit_types[t], ROWS, COLS);
        struct packed w = kit_pack(kit_types[t].type, ROWS, COLS, rows);
        kit_fill(&r, x, M * COLS, 1);
        struct acts a = kit_acts(kit_ref(), w.type, M, COLS, x);
        struct gemm_args g = { &w, &a, 0, w.n_panels, want, ROWS };
        kit_amx_definition()->gemm[gemm_slot(w.type)](&g);
        j.w = &w;
        j.x = &a;
        j.y = y;
        thread_pool_run(thread_pool, multiply, &j);
        EXPECT(kit_same_floats(y, want, M * ROWS));
        for (int i = 0; i < THREADS; i++)
            EXPECT(j.released[i]);
        mem_free(x);
        mem_free(y);
        mem_free(want);
        mem_free(rows);
        mem_free(w.data);
        mem_free(a.data);
    }
    thread_pool_close(thread_pool);
}

TESTS(TEST(missing_features_are_named), TEST(a_refused_tile_request_is_reported),
    TEST(choosing_amx_agrees_with_detection), TEST(a_signal_with_tiles_fits_a_thread),
    TEST(instructions_are_encoded_as_the_manual_says), TEST(wrong_configurations_abort),
    TEST(wrong_uses_abort), TEST(whole_numbers_multiply_exactly),
    TEST(even_and_odd_k_have_separate_sums_that_are_added_last), TEST(products_are_fused),
    TEST(subnormals_are_zero), TEST(nan_and_infinity_stay_in_their_row_and_column),
    TEST(an_emulated_step_equals_fma_with_flush_to_zero), TEST(emulated_tiles_equal_hardware),
    TEST(every_thread_releases_its_tiles))
