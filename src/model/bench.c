#include "model/bench.h"
#include "base/mem.h"
#include "kernel/kernels.h"
#include "kernel/team.h"
#include "model/block.h"
#include "os/clock.h"

#include <stdlib.h>

/* ---- roofs */

enum { READ_STREAMS = 8, LINE = 64, READ_BYTES = 256 * 1024 * 1024, REPEATS = 5 };

struct roof_job {
    struct team *team;
    const uint8_t *bytes; /* [READ_BYTES] */
    void (*loop)(uint64_t n);
    uint64_t n_loops;
    _Atomic uint64_t sink; /* so that nothing is optimised away */
};

/* One word of each line, in turns of two lines from each stream: as the kernels read weights. */
static uint64_t read_part(const uint8_t *p, size_t n)
{
    const size_t stream = n / READ_STREAMS / (2 * LINE) * (2 * LINE);
    uint64_t sum = 0;

    for (size_t at = 0; at < stream; at += 2 * LINE)
        for (int s = 0; s < READ_STREAMS; s++) {
            const uint8_t *q = p + (size_t)s * stream + at;
            uint64_t a, b;
            memcpy(&a, q, sizeof(a));
            memcpy(&b, q + LINE, sizeof(b));
            sum += a + b;
        }
    return sum;
}

static void read_all(void *arg, int member, int n_members)
{
    struct roof_job *j = arg;
    size_t part = READ_BYTES / (size_t)n_members;
    j->sink += read_part(j->bytes + (size_t)member * part, part);
}

static void compute_all(void *arg, int member, int n_members)
{
    struct roof_job *j = arg;
    (void)member;
    (void)n_members;
    j->loop(j->n_loops);
}

/* The best of some: what else runs on the machine can only make it slower. */
static double best_seconds(struct roof_job *j, team_fn fn)
{
    double best = 1e9;
    for (int i = 0; i < REPEATS; i++) {
        uint64_t from = clock_ns();
        team_run(j->team, fn, j);
        best = MIN(best, (double)(clock_ns() - from) * 1e-9);
    }
    return best;
}

/* Each loop: 12 independent chains of one instruction, enough to hide its latency. */
#define CHAINS(insn, reg)                                                                          \
    insn " %%" reg "13, %%" reg "12, %%" reg "0\n" insn " %%" reg "13, %%" reg "12, %%" reg        \
         "1\n" insn " %%" reg "13, %%" reg "12, %%" reg "2\n" insn " %%" reg "13, %%" reg          \
         "12, %%" reg "3\n" insn " %%" reg "13, %%" reg "12, %%" reg "4\n" insn " %%" reg          \
         "13, %%" reg "12, %%" reg "5\n" insn " %%" reg "13, %%" reg "12, %%" reg "6\n" insn       \
         " %%" reg "13, %%" reg "12, %%" reg "7\n" insn " %%" reg "13, %%" reg "12, %%" reg        \
         "8\n" insn " %%" reg "13, %%" reg "12, %%" reg "9\n" insn " %%" reg "13, %%" reg          \
         "12, %%" reg "10\n" insn " %%" reg "13, %%" reg "12, %%" reg "11\n"

enum { N_CHAINS = 12 };

#define CLOBBERS                                                                                   \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",       \
        "xmm11", "xmm12", "xmm13"

#define LOOP(name, body)                                                                           \
    static void name(uint64_t n)                                                                   \
    {                                                                                              \
        while (n--)                                                                                \
            __asm__ volatile(body ::: CLOBBERS);                                                   \
    }

struct compute_loop {
    const char *kernels; /* the set that shows that the instruction is there */
    int macs;            /* per instruction */
    void (*loop)(uint64_t n);
};

#if defined(__x86_64__)
LOOP(loop_dot_512, CHAINS("vpdpbusd", "zmm"))
LOOP(loop_fma_512, CHAINS("vfmadd231ps", "zmm"))
LOOP(loop_fma_256, CHAINS("vfmadd231ps", "ymm"))
LOOP(loop_vnni_256, CHAINS("%{vex%} vpdpbusd", "ymm"))
LOOP(loop_dot_256, CHAINS("vpmaddubsw", "ymm")) /* and two more to sum up: a third each */

static const struct compute_loop dots[] = { { "avx512", 64, loop_dot_512 },
    { "avxvnni", 32, loop_vnni_256 }, { "avx2", 32 / 3, loop_dot_256 } };
static const struct compute_loop fmas[] = { { "avx512", 16, loop_fma_512 },
    { "avx2", 8, loop_fma_256 } };
#else
static const struct compute_loop dots[] = { { "none", 1, NULL } };
static const struct compute_loop fmas[] = { { "none", 1, NULL } };
#endif

static double compute_roof(struct roof_job *j, const struct compute_loop *rows, size_t n)
{
    const struct kernels *k;
    struct err e;

    for (size_t i = 0; i < n; i++) {
        if (kernels_choose(&k, rows[i].kernels, &e))
            continue;
        j->loop = rows[i].loop;
        j->n_loops = 2 * 1000 * 1000;
        double macs = (double)j->n_loops * N_CHAINS * rows[i].macs * team_size(j->team);
        return macs / best_seconds(j, compute_all) * 1e-9;
    }
    return 0;
}

int bench_roof(struct bench_roof *out, int n_threads, struct err *e)
{
    struct roof_job j = { 0 };
    uint8_t *bytes = block_take(READ_BYTES);

    if (!bytes)
        return err_set(e, ERR_MEMORY, "no memory to measure memory with");
    if (team_open(&j.team, n_threads, e)) {
        block_give(bytes);
        return -1;
    }
    memset(bytes, 1, READ_BYTES);
    j.bytes = bytes;
    out->read_gb_s = READ_BYTES / best_seconds(&j, read_all) * 1e-9;
    out->dot_gmac_s = compute_roof(&j, dots, ARRAY_LEN(dots));
    out->fma_gmac_s = compute_roof(&j, fmas, ARRAY_LEN(fmas));
    team_close(j.team);
    block_give(bytes);
    return 0;
}

/* ---- cases */

struct bench {
    struct lm *m;
    const struct bench_case *c;
    int n_pages; /* per sequence */
    int32_t *tokens;
    page_id *pages; /* [n_seqs][n_pages] */
    struct lm_run *runs;
    double *seconds; /* [n_steps] */
};

static int pages_per_seq(const struct bench_case *c)
{
    int64_t n = c->n_ctx + (int64_t)c->n_rows * c->n_steps;
    return (int)((n + PAGE_TOKENS - 1) / PAGE_TOKENS);
}

uint32_t bench_pages(const struct bench_case *c)
{
    return (uint32_t)pages_per_seq(c) * (uint32_t)c->n_seqs;
}

static int bench_take(struct bench *b, struct lm *m, const struct bench_case *c, struct err *e)
{
    *b = (struct bench){ .m = m, .c = c, .n_pages = pages_per_seq(c) };
    if (c->n_ctx < 0 || c->n_rows < 1 || c->n_seqs < 1 || c->n_steps < 1 ||
        (int64_t)c->n_rows * c->n_seqs > m->max_rows || c->n_seqs > m->max_logits)
        return err_set(e, ERR_RANGE, "%d sequences of %d rows: the model was opened for %d",
            c->n_seqs, c->n_rows, m->max_rows);
    if (bench_pages(c) > m->n_pages)
        return err_set(e, ERR_RANGE, "%u pages of keys and values are needed, there are %u",
            bench_pages(c), m->n_pages);
    size_t n_tokens = MAX((size_t)c->n_rows, (size_t)PAGE_TOKENS);
    b->tokens = try_calloc(n_tokens, sizeof(*b->tokens));
    b->pages = try_calloc(bench_pages(c), sizeof(*b->pages));
    b->runs = try_calloc((size_t)c->n_seqs, sizeof(*b->runs));
    b->seconds = try_calloc((size_t)c->n_steps, sizeof(*b->seconds));
    if (!b->tokens || !b->pages || !b->runs || !b->seconds)
        return err_set(e, ERR_MEMORY, "no memory for a benchmark");
    for (size_t i = 0; i < n_tokens; i++)
        b->tokens[i] = (int32_t)((i * 7919 + 11) % (size_t)m->n_vocab);
    for (uint32_t i = 0; i < bench_pages(c); i++)
        b->pages[i].i = i;
    if (c->is_shared)
        for (int s = 1; s < c->n_seqs; s++)
            for (int i = 0; i < c->n_ctx / PAGE_TOKENS; i++)
                b->pages[s * b->n_pages + i] = b->pages[i];
    return 0;
}

static void bench_give(struct bench *b)
{
    mem_free(b->tokens);
    mem_free(b->pages);
    mem_free(b->runs);
    mem_free(b->seconds);
}

/* One page is computed, the others are its copies. */
static void fill_pages(struct bench *b)
{
    const int chunk = MIN((int)PAGE_TOKENS, b->m->max_rows);

    for (int at = 0; at < PAGE_TOKENS; at += chunk) {
        int n = MIN(chunk, PAGE_TOKENS - at);
        struct lm_run run = { .tokens = b->tokens, .n = n, .pos = at, .pages = b->pages };
        b->m->ops->forward(b->m, &run, 1, NULL);
    }
    for (uint32_t i = 1; i < bench_pages(b->c); i++)
        if (b->pages[i].i != b->pages[0].i)
            b->m->ops->copy_page(b->m, b->pages[0], b->pages[i]);
}

static double step(struct bench *b, int at)
{
    const struct bench_case *c = b->c;

    for (int i = 0; i < c->n_seqs; i++)
        b->runs[i] = (struct lm_run){ .tokens = b->tokens,
            .n = c->n_rows,
            .pos = c->n_ctx + at * c->n_rows,
            .pages = b->pages + i * b->n_pages,
            .n_logits = 1 };
    uint64_t from = clock_ns();
    b->m->ops->forward(b->m, b->runs, c->n_seqs, NULL);
    return (double)(clock_ns() - from) * 1e-9;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int bench_run(struct bench_figure *out, struct lm *m, const struct bench_case *c,
    const struct bench_roof *roof, struct err *e)
{
    struct bench b;

    if (bench_take(&b, m, c, e)) {
        bench_give(&b);
        return -1;
    }
    fill_pages(&b);
    step(&b, 0); /* warms up; the first that counts does the same again */
    for (int i = 0; i < c->n_steps; i++)
        b.seconds[i] = step(&b, i);
    qsort(b.seconds, (size_t)c->n_steps, sizeof(*b.seconds), by_size);
    double s = b.seconds[c->n_steps / 2];
    bench_give(&b);

    double rows = (double)c->n_seqs * c->n_rows;
    double keys = c->n_ctx + c->n_rows * (c->n_steps / 2 + 0.5); /* of a row of the median step */
    double again = c->is_shared ? (double)c->n_ctx * (c->n_seqs - 1) : 0;
    double kv_bytes = (keys * c->n_seqs - again) * (double)m->page_bytes / PAGE_TOKENS;
    double macs = rows * ((double)m->row_macs + keys * (double)m->key_macs) +
                  c->n_seqs * (double)m->logit_macs;
    double compute = m->is_integer ? roof->dot_gmac_s : roof->fma_gmac_s;
    *out = (struct bench_figure){ .tokens_s = rows / s,
        .step_ms = s * 1e3,
        .gb_s = ((double)m->step_bytes + kv_bytes) / s * 1e-9,
        .gmac_s = macs / s * 1e-9 };
    out->read_share = roof->read_gb_s > 0 ? out->gb_s / roof->read_gb_s : 0;
    out->compute_share = compute > 0 ? out->gmac_s / compute : 0;
    return 0;
}
