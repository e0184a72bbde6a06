/* The AMX set where there may be no AMX: whether a machine has it, what the assembler makes of the
 * tile instructions, and that the unit in software, which stands in for them in test_gemm.c, is as
 * strict as hardware and is left released by every thread. */
#include "kit.h"
#include "kernel/cpu.h"
#include "kernel/team.h"
#include "kernel/x86_amx_tile.h"
#include "os/thread.h"

#include <errno.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- what a machine lacks */

struct fake {
    unsigned leaf1[4], leaf7[4], palette[4], palette1[4], tmul[4];
    unsigned highest;
    uint64_t xcr0;
    int answer, n_asked;
};

static struct fake fake;

static const struct fake sapphire_rapids = {
    .leaf1 = { 0, 0, 1u << 28 | 1u << 27 | 1u << 12 | 1u << 29, 0 },
    .leaf7 = { 0, 1u << 5 | 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31, 1u << 11,
        1u << 22 | 1u << 24 | 1u << 25 },
    .palette = { 1 },
    .palette1 = { 8192 | 1024u << 16, 64 | 8u << 16, 16 },
    .tmul = { 0, 16 | 64u << 8 },
    .highest = 0x1e,
    .xcr0 = 0x602e7,
};

static bool fake_cpuid(unsigned leaf, unsigned sub, unsigned r[4])
{
    const unsigned *from = leaf == 1             ? fake.leaf1
                           : leaf == 7           ? fake.leaf7
                           : leaf == 0x1d && sub ? fake.palette1
                           : leaf == 0x1d        ? fake.palette
                           : leaf == 0x1e        ? fake.tmul
                                                 : NULL;

    if (!from || leaf > fake.highest)
        return false;
    memcpy(r, from, 4 * sizeof(*r));
    return true;
}

static uint64_t fake_xcr0(void)
{
    EXPECT(fake.leaf1[2] >> 27 & 1); /* XGETBV would be a SIGILL */
    return fake.xcr0;
}

static int fake_ask(void)
{
    fake.n_asked++;
    return fake.answer;
}

static const struct cpu_source source = { fake_cpuid, fake_xcr0, fake_ask };

/* Without some bits of a word there is a refusal that says so, before the system is asked. */
static void expect_lacks(unsigned *word, unsigned bits, const char *what)
{
    *word &= ~bits;
    const char *missing = cpu_source_lacks_amx(&source);
    EXPECT(missing && strstr(missing, what));
    EXPECT_EQ(fake.n_asked, 0);
    fake = sapphire_rapids;
}

static void a_machine_says_what_it_lacks(void)
{
    fake = sapphire_rapids;
    EXPECT(!cpu_source_lacks_amx(&source));
    EXPECT_EQ(fake.n_asked, 1);
    fake = sapphire_rapids;
    expect_lacks(&fake.leaf1[2], 1u << 12, "FMA");
    expect_lacks(&fake.leaf1[2], 1u << 27, "YMM");
    expect_lacks(&fake.leaf7[1], 1u << 5, "AVX2");
    expect_lacks(&fake.leaf7[2], 1u << 11, "AVX-512 VNNI");
    expect_lacks(&fake.leaf7[3], 1u << 24, "AMX-TILE");
    expect_lacks(&fake.leaf7[3], 1u << 25, "AMX-INT8");
    expect_lacks(&fake.palette[0], 1, "16 rows of 64 bytes");
    expect_lacks(&fake.palette1[1], 64, "16 rows of 64 bytes");
    expect_lacks(&fake.palette1[1], 8u << 16, "16 rows of 64 bytes");
    expect_lacks(&fake.palette1[2], 16, "16 rows of 64 bytes");
    expect_lacks(&fake.tmul[1], 16, "16 rows of 64 bytes");
    expect_lacks(&fake.tmul[1], 64u << 8, "16 rows of 64 bytes");
    fake.highest = 0x1c;
    expect_lacks(&fake.palette[0], 0, "16 rows of 64 bytes");
    for (int bit = 0; bit < 19; bit++) {
        if (!(sapphire_rapids.xcr0 >> bit & 1) || bit == 0 || bit == 9)
            continue;
        fake.xcr0 &= ~(1ull << bit);
        expect_lacks(&fake.palette[0], 0,
            bit < 3   ? "YMM"
            : bit < 8 ? "ZMM"
                      : "system support for AMX tiles");
    }
}

static void the_system_may_refuse(void)
{
    static const struct {
        int answer;
        const char *what;
    } cases[] = { { ENOSPC, "signal stacks" }, { EINVAL, "permission" }, { EPERM, "permission" },
        { ENOSYS, "permission" } };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        fake = sapphire_rapids;
        fake.answer = cases[i].answer;
        const char *missing = cpu_source_lacks_amx(&source);
        EXPECT(missing && strstr(missing, cases[i].what));
        EXPECT_EQ(fake.n_asked, 1);
    }
}

/* Here: chosen or refused with a reason, the same each time; and "auto" is never without a set. */
static void this_machine_is_asked_too(void)
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

/* A signal's frame holds all that the processor could save, tiles too. */
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
    EXPECT(s.alternate == 0 || s.alternate >= frame); /* the address sanitizer has one */
}

/* ---- instructions */

#if defined(__x86_64__)
/* Intel's manual, volume 2: VEX.128.{F2,F3}.0F38.W0 5E 11:rrr:bbb, the product; 4B, from and to
 * memory; 49, the rest. The last operand in AT&T's order is ModRM.reg, the first is VEX.vvvv. */
__attribute__((noinline, used)) static void dot_ss(void)
{
    TILE_DOT_SS(3, 5, 6);
}

__attribute__((noinline, used)) static void dot_su(void)
{
    TILE_DOT_SU(3, 5, 6);
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
    EXPECT(holds(zero, (const uint8_t[]){ 0xc4, 0xe2, 0x7b, 0x49, 0xf8 }));
    EXPECT(holds(release, (const uint8_t[]){ 0xc4, 0xe2, 0x78, 0x49, 0xc0 }));
    EXPECT(sizeof(struct tile_config) == 64);
    EXPECT(offsetof(struct tile_config, row_bytes) == 16);
    EXPECT(offsetof(struct tile_config, rows) == 48);
}
#endif

/* ---- the unit in software */

static struct tile_config sane(void)
{
    struct tile_config c = { .palette = 1 };

    for (int t = 0; t < 3; t++) {
        c.rows[t] = 16;
        c.row_bytes[t] = 64;
    }
    return c;
}

/* In a child: with a configuration (NULL: none), use it (-1: do not). True when it aborts. */
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

static void wrong_configurations_abort(void)
{
    struct tile_config c = sane();

    EXPECT(!aborts(&c, -1));
    c.palette = 2;
    EXPECT(aborts(&c, -1));
    c = sane();
    c.start_row = 1;
    EXPECT(aborts(&c, -1));
    c = sane();
    c.zero[13] = 1;
    EXPECT(aborts(&c, -1));
    c = sane();
    c.rows[2] = 17;
    EXPECT(aborts(&c, -1));
    c = sane();
    c.row_bytes[2] = 65;
    EXPECT(aborts(&c, -1));
    c = sane();
    c.rows[7] = 1; /* of no bytes */
    EXPECT(aborts(&c, -1));
    c = sane();
    c.row_bytes[7] = 4; /* in no rows */
    EXPECT(aborts(&c, -1));
    c = sane();
    c.rows[8] = c.rows[0];
    c.row_bytes[8] = 64;
    EXPECT(aborts(&c, -1));
}

static void wrong_uses_abort(void)
{
    struct tile_config c = sane();

    for (int use = 0; use < 5; use++)
        EXPECT(aborts(NULL, use)); /* nothing configured */
    for (int use = 0; use < 4; use++)
        EXPECT(!aborts(&c, use));
    EXPECT(aborts(&c, 4)); /* a sum that is a factor */
    for (int t = 0; t < 3; t++) {
        c = sane();
        c.rows[t] = 8; /* two of the three do not fit each other */
        EXPECT(aborts(&c, 3));
        c = sane();
        c.row_bytes[t] = 32;
        EXPECT(aborts(&c, 3));
        c = sane();
        c.rows[t] = c.row_bytes[t] = 0;
        EXPECT(aborts(&c, 3) && aborts(&c, t));
    }
    c = sane();
    c.rows[0] = c.rows[1] = 5; /* fewer rows of activations, blocks of 32 */
    c.row_bytes[1] = 32;
    c.rows[2] = 8;
    EXPECT(!aborts(&c, 3));
    c.row_bytes[0] = c.row_bytes[2] = 62; /* not whole sums */
    EXPECT(aborts(&c, 3));
}

/* ---- threads */

enum { MEMBERS = 3, M = 40, ROWS = 16 * 9, COLS = 512 };

struct job {
    const struct kernels *k;
    const struct packed *w;
    const struct acts *x;
    float *y;
    bool released[MEMBERS];
};

static void multiply(void *arg, int member, int n)
{
    struct job *j = arg;
    struct gemm_args g = { j->w, j->x, j->w->n_panels * member / n,
        j->w->n_panels * (member + 1) / n, j->y, ROWS };

    j->k->gemm[gemm_slot(j->w->type)](&g);
    j->released[member] = amx_soft_is_released();
}

/* Tiles are each thread's own: configured where they are used, and given back. */
static void every_thread_has_tiles_and_releases_them(void)
{
    struct rng r = { .key = 1 };
    struct job j = { .k = kit_amx_soft() };
    struct team *team;
    struct err e;

    if (!j.k) {
        printf("skipped: no AVX-512\n");
        return;
    }
    EXPECT_EQ(team_open(&team, MEMBERS, &e), 0);
    for (int t = 3; t < KIT_N_TYPES; t++) {
        float *x = xmalloc(M * COLS * sizeof(float)), *y = xmalloc(M * ROWS * sizeof(float));
        float *want = xmalloc(M * ROWS * sizeof(float));
        uint8_t *rows = kit_random_rows(&r, &kit_types[t], ROWS, COLS);
        struct packed w = kit_pack(kit_types[t].type, ROWS, COLS, rows);
        kit_fill(&r, x, M * COLS, 1);
        struct acts a = kit_acts(kit_ref(), w.type, M, COLS, x);
        struct gemm_args g = { &w, &a, 0, w.n_panels, want, ROWS };
        kit_ref()->gemm[gemm_slot(w.type)](&g);
        j.w = &w;
        j.x = &a;
        j.y = y;
        team_run(team, multiply, &j);
        EXPECT(kit_same_floats(y, want, M * ROWS));
        for (int i = 0; i < MEMBERS; i++)
            EXPECT(j.released[i]);
        mem_free(x);
        mem_free(y);
        mem_free(want);
        mem_free(rows);
        mem_free(w.data);
        mem_free(a.data);
    }
    team_close(team);
}

TESTS(TEST(a_machine_says_what_it_lacks), TEST(the_system_may_refuse),
    TEST(this_machine_is_asked_too), TEST(a_signal_with_tiles_fits_a_thread),
    TEST(instructions_are_encoded_as_the_manual_says), TEST(wrong_configurations_abort),
    TEST(wrong_uses_abort), TEST(every_thread_has_tiles_and_releases_them))
