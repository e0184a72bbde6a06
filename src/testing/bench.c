#include "testing/bench.h"
#include "base/hash.h"
#include "base/mem.h"
#include "kernel/kernels.h"
#include "os/thread_pool.h"
#include "kernel/x86/x86_amx_tile.h"
#include "model/block.h"
#include "os/clock.h"

#include <stdlib.h>

/* ---- limits of the machine */

enum { LINE = 64, READ_BYTES = 256 * 1024 * 1024, REPEATS = 4 };
/* minimum duration of a measurement of the bandwidth */
static const uint64_t READ_NS = 200 * 1000 * 1000;

struct bench_meter {
    struct thread_pool *thread_pool;
    uint8_t *bytes; /* [READ_BYTES] */
    void (*loop)(uint64_t n);
    uint64_t n_loops;
    int run;               /* index of the run within a measurement */
    _Atomic uint64_t sink; /* keeps the loads from being optimised away */
};

/* Access patterns: blocks of lines from several streams in turn, like kernels that read weights,
 * and others. Which is fastest differs between machines and over time. */
static const struct {
    int streams, lines;
    size_t ahead; /* prefetch distance of a stream, in bytes; 0: hardware prefetch only */
} patterns[BENCH_PATTERNS] = { { 8, 2, 0 }, { 4, 4, 0 }, { 1, 64, 0 }, { 1, 64, 6144 } };

static uint64_t read_lines(const uint8_t *p, size_t n, size_t ahead)
{
    uint64_t sum = 0, word;

    for (size_t i = 0; i < n; i += LINE) {
        if (ahead)
            __builtin_prefetch(p + i + ahead, 0, 2);
        memcpy(&word, p + i, sizeof(word));
        sum += word;
    }
    return sum;
}

uint64_t bench_read(const uint8_t *p, size_t n, int pattern)
{
    const size_t n_streams = (size_t)patterns[pattern].streams,
                 burst = (size_t)patterns[pattern].lines * LINE;
    const size_t stream = n / n_streams / burst * burst;
    uint64_t sum = 0;

    for (size_t at = 0; at < stream; at += burst)
        for (size_t s = 0; s < n_streams; s++)
            sum += read_lines(p + s * stream + at, burst, patterns[pattern].ahead);
    return sum;
}

static void read_all(void *arg, int thread, int n_threads)
{
    struct bench_meter *j = arg;
    size_t part = READ_BYTES / (size_t)n_threads;

    j->sink += bench_read(j->bytes + (size_t)thread * part, part, j->run % BENCH_PATTERNS);
}

static void compute_all(void *arg, int thread, int n_threads)
{
    struct bench_meter *j = arg;
    (void)thread;
    (void)n_threads;
    j->loop(j->n_loops);
}

/* The fastest of at least REPEATS runs and of all runs within least_ns: other load on the machine
 * can only increase the time. */
static double best_seconds(struct bench_meter *j, thread_pool_fn fn, uint64_t least_ns)
{
    const uint64_t begin = clock_ns();
    double best = 1e9;

    for (int i = 0; i < REPEATS || clock_ns() - begin < least_ns; i++) {
        uint64_t from = clock_ns();
        j->run = i;
        thread_pool_run(j->thread_pool, fn, j);
        best = MIN(best, (double)(clock_ns() - from) * 1e-9);
    }
    return best;
}

/* Each loop has 12 independent chains of one instruction, enough to hide its latency. */
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
    const char *kernels; /* kernel set whose availability implies that of the instruction */
    double macs;         /* multiply-adds per iteration */
    uint64_t n;          /* iterations per measurement: some milliseconds */
    void (*loop)(uint64_t n);
};

#if defined(__x86_64__)
LOOP(loop_dot_512, CHAINS("vpdpbusd", "zmm"))
LOOP(loop_fma_512, CHAINS("vfmadd231ps", "zmm"))
LOOP(loop_fma_256, CHAINS("vfmadd231ps", "ymm"))
LOOP(loop_vnni_256, CHAINS("%{vex%} vpdpbusd", "ymm"))
/* plus two instructions to add up: counted as a third */
LOOP(loop_dot_256, CHAINS("vpmaddubsw", "ymm"))

/* Four accumulator tiles: a tile product is issued every 16 cycles, and its latency is about 50. */
static const struct tile_config full_tiles = {
    .palette = 1, .row_bytes = { 64, 64, 64, 64, 64, 64 }, .rows = { 16, 16, 16, 16, 16, 16 }
};

static void loop_tiles_dot(uint64_t n)
{
    tile_configure(&full_tiles);
    while (n--) {
        TILE_DOT_SS(0, 4, 5);
        TILE_DOT_SS(1, 4, 5);
        TILE_DOT_SS(2, 4, 5);
        TILE_DOT_SS(3, 4, 5);
    }
    tile_release();
}

static void loop_tiles_bf16(uint64_t n)
{
    tile_configure(&full_tiles);
    while (n--) {
        TILE_DOT_BF16(0, 4, 5);
        TILE_DOT_BF16(1, 4, 5);
        TILE_DOT_BF16(2, 4, 5);
        TILE_DOT_BF16(3, 4, 5);
    }
    tile_release();
}

enum { N_ITERATIONS = 1000 * 1000, TILE_MACS = 4 * 16 * 16 };

static const struct compute_loop dots[] = { { "amx", TILE_MACS * 64, N_ITERATIONS / 10,
                                                loop_tiles_dot },
    { "avx512", N_CHAINS * 64, N_ITERATIONS, loop_dot_512 },
    { "avxvnni", N_CHAINS * 32, N_ITERATIONS, loop_vnni_256 },
    { "avx2", N_CHAINS * 32 / 3.0, N_ITERATIONS, loop_dot_256 } };
static const struct compute_loop fmas[] = { { "amx", TILE_MACS * 32, N_ITERATIONS / 10,
                                                loop_tiles_bf16 },
    { "avx512", N_CHAINS * 16, N_ITERATIONS, loop_fma_512 },
    { "avx2", N_CHAINS * 8, N_ITERATIONS, loop_fma_256 } };
#else
static const struct compute_loop dots[] = { { "none", 1, 1, NULL } };
static const struct compute_loop fmas[] = { { "none", 1, 1, NULL } };
#endif

static double compute_roof(struct bench_meter *j, const struct compute_loop *rows, size_t n)
{
    const struct kernels *k;
    struct err e;

    for (size_t i = 0; i < n; i++) {
        if (kernels_choose(&k, rows[i].kernels, &e))
            continue;
        j->loop = rows[i].loop;
        j->n_loops = rows[i].n;
        double macs = (double)rows[i].n * rows[i].macs * thread_pool_size(j->thread_pool);
        return macs / best_seconds(j, compute_all, 0) * 1e-9;
    }
    return 0;
}

int bench_meter_open(struct bench_meter **out, int n_threads, struct err *e)
{
    struct bench_meter *b = try_calloc(1, sizeof(*b));

    if (!b || !(b->bytes = block_alloc(READ_BYTES))) {
        bench_meter_close(b);
        return err_set(e, ERR_MEMORY, "no memory for the bandwidth measurement");
    }
    if (thread_pool_open(&b->thread_pool, n_threads, e)) {
        b->thread_pool = NULL;
        bench_meter_close(b);
        return -1;
    }
    memset(b->bytes, 1, READ_BYTES);
    *out = b;
    return 0;
}

void bench_meter_close(struct bench_meter *b)
{
    if (!b)
        return;
    if (b->thread_pool)
        thread_pool_close(b->thread_pool);
    if (b->bytes)
        block_free(b->bytes);
    mem_free(b);
}

struct bench_roof bench_meter_read(struct bench_meter *b)
{
    struct bench_roof r;

    r.read_gb_s = READ_BYTES / best_seconds(b, read_all, READ_NS) * 1e-9;
    r.dot_gmac_s = compute_roof(b, dots, ARRAY_LEN(dots));
    r.fma_gmac_s = compute_roof(b, fmas, ARRAY_LEN(fmas));
    return r;
}

int bench_measure_roof(struct bench_roof *out, int n_threads, struct err *e)
{
    struct bench_meter *b;

    if (bench_meter_open(&b, n_threads, e))
        return -1;
    *out = bench_meter_read(b);
    bench_meter_close(b);
    return 0;
}

struct bench_roof bench_roof_max(struct bench_roof a, struct bench_roof b)
{
    return (struct bench_roof){ .read_gb_s = MAX(a.read_gb_s, b.read_gb_s),
        .dot_gmac_s = MAX(a.dot_gmac_s, b.dot_gmac_s),
        .fma_gmac_s = MAX(a.fma_gmac_s, b.fma_gmac_s) };
}

/* ---- benchmark cases */

struct bench {
    struct lm *m;
    const struct bench_case *c;
    int n_pages;     /* per sequence */
    int32_t *tokens; /* [n_seqs][n_rows] tokens of a step, or the tokens of one page */
    int64_t n_fed;   /* number of tokens given to the model */
    page_id *pages;  /* [n_seqs][n_pages] */
    struct lm_run *runs;
    state_id common_state; /* after n_ctx positions */
    double *seconds;       /* [n_steps] */
};

struct bench_span { /* range of tokens of a sequence */
    uint64_t seed;
    int seq, pos, n;
};

static int pages_per_seq(const struct bench_case *c)
{
    int64_t n = c->n_ctx + (int64_t)c->n_rows * c->n_steps;
    return (int)((n + PAGE_TOKENS - 1) / PAGE_TOKENS);
}

uint32_t bench_n_pages(const struct bench_case *c)
{
    return (uint32_t)pages_per_seq(c) * (uint32_t)c->n_seqs;
}

/* Two slots for the common positions, and two for each sequence. */
uint32_t bench_n_states(const struct bench_case *c)
{
    return 2 * (uint32_t)c->n_seqs + 2;
}

static int bench_alloc(struct bench *b, struct lm *m, const struct bench_case *c, struct err *e)
{
    *b = (struct bench){ .m = m, .c = c, .n_pages = pages_per_seq(c) };
    if (c->n_ctx < 0 || c->n_rows < 1 || c->n_seqs < 1 || c->n_steps < 1 ||
        (int64_t)c->n_rows * c->n_seqs > m->max_rows || c->n_seqs > m->max_logits)
        return err_set(e, ERR_RANGE, "%d sequences of %d rows: the model was opened for %d",
            c->n_seqs, c->n_rows, m->max_rows);
    if (bench_n_pages(c) > m->n_pages)
        return err_set(e, ERR_RANGE, "%u KV pages are needed, and the model has %u",
            bench_n_pages(c), m->n_pages);
    if (m->window.size && bench_n_pages(c) > m->n_window_pages)
        return err_set(e, ERR_RANGE, "%u window pages are needed, and the model has %u",
            bench_n_pages(c), m->n_window_pages);
    if (m->state_bytes && bench_n_states(c) > m->n_states)
        return err_set(e, ERR_RANGE, "%u state slots are needed, and the model has %u",
            bench_n_states(c), m->n_states);
    size_t n_tokens = MAX((size_t)c->n_rows * (size_t)c->n_seqs, (size_t)PAGE_TOKENS);
    b->tokens = try_calloc(n_tokens, sizeof(*b->tokens));
    b->pages = try_calloc(bench_n_pages(c), sizeof(*b->pages));
    b->runs = try_calloc((size_t)c->n_seqs, sizeof(*b->runs));
    b->seconds = try_calloc((size_t)c->n_steps, sizeof(*b->seconds));
    if (!b->tokens || !b->pages || !b->runs || !b->seconds)
        return err_set(e, ERR_MEMORY, "no memory for a benchmark");
    for (uint32_t i = 0; i < bench_n_pages(c); i++)
        b->pages[i].i = i;
    if (c->is_shared)
        for (int s = 1; s < c->n_seqs; s++)
            for (int i = 0; i < c->n_ctx / PAGE_TOKENS; i++)
                b->pages[s * b->n_pages + i] = b->pages[i];
    return 0;
}

static void bench_free(struct bench *b)
{
    mem_free(b->tokens);
    mem_free(b->pages);
    mem_free(b->runs);
    mem_free(b->seconds);
}

int32_t bench_token(uint64_t seed, int seq, int pos, int n_vocab)
{
    uint64_t z = hash_mix(seed + HASH_GOLDEN * ((uint64_t)seq << 32 | (uint32_t)pos));

    return (int32_t)(z % (uint64_t)n_vocab);
}

static void draw_tokens(struct bench *b, int32_t *out, struct bench_span of)
{
    for (int i = 0; i < of.n; i++)
        out[i] = bench_token(of.seed, of.seq, of.pos + i, b->m->n_vocab);
}

/* Slots of run number `at` of a group of slots: 0 is that of the common positions, 1 + i that of
 * sequence i, whose first run resumes from the last slot of the common positions. */
static void set_slots(const struct bench *b, struct lm_run *r, int group, int at)
{
    const uint32_t first = 2 * (uint32_t)group;
    const bool is_in_place = r->n <= STATE_LOG_ROWS;

    if (!b->m->state_bytes)
        return;
    r->state_out.i = first + (is_in_place ? 0 : (uint32_t)at % 2);
    r->state = r->pos == 0 ? STATE_NONE
               : at == 0   ? b->common_state
                           : (state_id){ first + (is_in_place ? 0 : (uint32_t)(at - 1) % 2) };
}

/* The state of the common positions, which cannot be copied from other positions. */
static void fill_state(struct bench *b)
{
    const int chunk = MIN(b->m->max_rows, 64);

    for (int at = 0, i = 0; b->m->state_bytes && at < b->c->n_ctx; at += chunk, i++) {
        int32_t tokens[64];
        struct lm_run run = {
            .tokens = tokens, .n = MIN(chunk, b->c->n_ctx - at), .pos = at, .pages = b->pages
        };
        draw_tokens(b, tokens, (struct bench_span){ b->c->seed, 0, at, run.n });
        run.state = at ? b->common_state : STATE_NONE;
        run.state_out.i = (uint32_t)i % 2;
        b->common_state = run.state_out;
        b->m->ops->forward(b->m, &run, 1, NULL);
    }
}

/* Computes one page and copies it to the others. */
static void fill_pages(struct bench *b)
{
    const int chunk = MIN((int)PAGE_TOKENS, b->m->max_rows);

    draw_tokens(b, b->tokens, (struct bench_span){ ~b->c->seed, 0, 0, PAGE_TOKENS });
    for (int at = 0; at < PAGE_TOKENS; at += chunk) {
        int n = MIN(chunk, PAGE_TOKENS - at);
        struct lm_run run = { .tokens = b->tokens + at, .n = n, .pos = at, .pages = b->pages };
        set_slots(b, &run, 0, at / chunk);
        b->m->ops->forward(b->m, &run, 1, NULL);
    }
    for (uint32_t i = 1; i < bench_n_pages(b->c); i++)
        if (b->pages[i].i != b->pages[0].i) {
            b->m->ops->copy_page(b->m, b->pages[0], b->pages[i]);
            if (b->m->window.size) /* the same numbers: see lm_run.window_pages */
                lm_copy_window_page(b->m, b->pages[0], b->pages[i]);
        }
}

static double timed_step(struct bench *b, uint64_t seed, int at)
{
    const struct bench_case *c = b->c;

    for (int i = 0; i < c->n_seqs; i++) {
        struct lm_run *r = &b->runs[i];
        int32_t *tokens = b->tokens + (size_t)i * (size_t)c->n_rows;
        *r = (struct lm_run){ .tokens = tokens,
            .n = c->n_rows,
            .pos = c->n_ctx + at * c->n_rows,
            .pages = b->pages + i * b->n_pages,
            .n_logits = 1 };
        set_slots(b, r, 1 + i, at);
        draw_tokens(b, tokens, (struct bench_span){ seed, i, r->pos, r->n });
        b->n_fed += r->n;
    }
    uint64_t from = clock_ns();
    b->m->ops->forward(b->m, b->runs, c->n_seqs, NULL);
    return (double)(clock_ns() - from) * 1e-9;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

void bench_set_shares(struct bench_result *f, const struct lm *m, const struct bench_roof *roof)
{
    double compute = m->is_integer ? roof->dot_gmac_s : roof->fma_gmac_s;

    f->read_share = roof->read_gb_s > 0 ? f->gb_s / roof->read_gb_s : 0;
    f->compute_share = compute > 0 ? f->gmac_s / compute : 0;
}

int bench_run(struct bench_result *out, struct lm *m, const struct bench_case *c,
    const struct bench_roof *roof, struct err *e)
{
    struct bench b;

    if (bench_alloc(&b, m, c, e)) {
        bench_free(&b);
        return -1;
    }
    fill_pages(&b);
    fill_state(&b);
    timed_step(&b, ~c->seed, 0); /* warm-up, with other tokens than the first timed step */
    b.n_fed = 0;
    for (int i = 0; i < c->n_steps; i++)
        b.seconds[i] = timed_step(&b, c->seed, i);
    qsort(b.seconds, (size_t)c->n_steps, sizeof(*b.seconds), compare_doubles);
    double s = b.seconds[c->n_steps / 2];
    bench_free(&b);

    double rows = (double)c->n_seqs * c->n_rows;
    /* keys of a row in the median step */
    double keys = c->n_ctx + c->n_rows * (c->n_steps / 2 + 0.5);
    double shared_keys = c->is_shared ? (double)c->n_ctx * (c->n_seqs - 1) : 0;
    double kv_bytes =
        (keys * c->n_seqs - shared_keys) * (double)m->page_bytes / PAGE_TOKENS +
        MIN(keys, (double)m->window.size) * c->n_seqs * (double)m->window_page_bytes / PAGE_TOKENS;
    double macs = rows * ((double)m->row_macs + keys * (double)m->key_macs) +
                  c->n_seqs * (double)m->logit_macs;
    *out = (struct bench_result){ .tokens_s = rows / s,
        .step_ms = s * 1e3,
        .gb_s = ((double)m->step_bytes + kv_bytes) / s * 1e-9,
        .gmac_s = macs / s * 1e-9,
        .n_cached = (int64_t)rows * c->n_steps - b.n_fed };
    bench_set_shares(out, m, roof);
    return 0;
}
