/* Schedule invariance of the model: the logits of a row are bit-identical for any chunks,
 * batches, KV pages and number of threads. */
#include "support/check.h"
#include "../../kernel/kit.h"
#include "base/mem.h"
#include "model/forward.h"
#include "model/llama.h"
#include "support/tiny.h"

#include <stdatomic.h>

enum { N_TOKENS = 47, MAX_TOKENS = 640, MAX_VOCAB = 128, N_SEQS = 4 };

/* The thread sanitizer is fifty times slower. It runs three threads, and one of several types with
 * the same memory accesses. */
#if defined(__SANITIZE_THREAD__)
enum { IS_WATCHED = true };
#else
enum { IS_WATCHED = false };
#endif

struct seq {
    int32_t tokens[MAX_TOKENS];
    page_id pages[MAX_TOKENS / PAGE_TOKENS + 1];
    int n, done;
};

static struct lm *open_lm_of(const struct gguf *g, const char *kernels, int n_threads, int max_rows)
{
    struct llama_options o = { .n_threads = n_threads,
        .n_pages = 4 * MAX_TOKENS / PAGE_TOKENS,
        .max_rows = max_rows,
        .max_logits = max_rows };
    struct lm *m = NULL;
    struct err e;

    if (kernels_choose(&o.kernels, kernels, &e) || lm_open_llama(&m, g, &o, &e)) {
        fprintf(stderr, "open_lm: %s\n", e.msg);
        fail();
    }
    return m;
}

static struct lm *open_lm(const struct gguf *g, const char *kernels, int n_threads)
{
    return open_lm_of(g, kernels, n_threads, MAX_TOKENS);
}

/* Fills sequences with tokens that depend only on their order, in pages scattered over the
 * arena; no two sequences share a page. */
static void fill_seqs(struct seq *s, int n_seqs, int n_tokens, const struct lm *m, uint64_t seed)
{
    struct rng words = { 7, 0 }, places = { seed, 0 };
    uint32_t free_pages[4 * MAX_TOKENS / PAGE_TOKENS], n_free = m->n_pages;

    for (uint32_t i = 0; i < n_free; i++)
        free_pages[i] = i;
    for (int i = 0; i < n_seqs; i++) {
        s[i].n = n_tokens;
        s[i].done = 0;
        for (int t = 0; t < n_tokens; t++)
            s[i].tokens[t] = (int32_t)rng_below(&words, (uint64_t)m->n_vocab);
        for (int p = 0; p <= (n_tokens - 1) / PAGE_TOKENS; p++) {
            uint64_t at = rng_below(&places, n_free);
            s[i].pages[p].i = free_pages[at];
            free_pages[at] = free_pages[--n_free];
        }
    }
}

static struct lm_run run_of(const struct seq *s, int n, int n_logits)
{
    return (struct lm_run){ .tokens = s->tokens + s->done,
        .n = n,
        .pos = s->done,
        .pages = s->pages,
        .n_logits = n_logits };
}

/* All logits of sequence 0, computed alone in one chunk: the reference of all comparisons. */
static float *reference(const struct gguf *g, const char *kernels, int n_tokens)
{
    struct lm *m = open_lm(g, kernels, 1);
    static struct seq s;
    size_t bytes = (size_t)n_tokens * (size_t)m->n_vocab * sizeof(float);
    float *all = xmalloc(bytes);

    fill_seqs(&s, 1, n_tokens, m, 1);
    struct lm_run run = run_of(&s, n_tokens, n_tokens);
    EXPECT(m->ops->forward(m, &run, 1, NULL));
    memcpy(all, run.logits, bytes);
    for (size_t i = 0; i < bytes / sizeof(float); i++)
        EXPECT(isfinite(all[i]));
    m->ops->close(m);
    return all;
}

static void expect_rows(const struct lm *m, const struct lm_run *run, const float *all)
{
    size_t row = (size_t)m->n_vocab * sizeof(float);
    int first = run->pos + run->n - run->n_logits;
    for (int i = 0; i < run->n_logits; i++)
        if (memcmp(run->logits + i * m->n_vocab, all + (first + i) * m->n_vocab, row)) {
            fprintf(stderr, "position %d of a run of %d differs\n", first + i, run->n);
            fail();
        }
}

/* the sequence whose chunk has passed only some layers; seq is -1 if there is none */
struct partial_run {
    int seq, n, layer;
};

/* Makes a run through all layers or some of them. A partial run continues at its layer, with all
 * of its rows or the first ones. */
static struct lm_run draw_run(
    const struct lm *m, struct rng *r, const struct seq *s, const struct partial_run *p, int n)
{
    struct lm_run run = run_of(s, p->layer ? 1 + (int)rng_below(r, (uint64_t)p->n) : n, 0);

    if (p->layer || rng_below(r, 2)) {
        run.from_layer = p->layer;
        run.end_layer = p->layer + 1 + (int)rng_below(r, (uint64_t)(m->n_layers - p->layer));
    }
    if (run.end_layer == 0 || run.end_layer == m->n_layers)
        run.n_logits = (int)rng_below(r, (uint64_t)run.n + 1);
    return run;
}

static bool is_complete(const struct lm *m, const struct lm_run *run)
{
    return run->end_layer == 0 || run->end_layer == m->n_layers;
}

/* Sometimes the pass is stopped first and then repeated. */
static void forward_with_stops(struct lm *m, struct rng *r, struct lm_run *runs, int n)
{
    const _Atomic bool stop = true;

    if (rng_below(r, 4) || !m->ops->forward(m, runs, n, &stop))
        EXPECT(m->ops->forward(m, runs, n, NULL));
}

/* Runs sequence 0 with up to three others in chunks of 1..max_chunk, some rows with logits. One
 * chunk is partial (layered prefill) and sometimes abandoned for another. */
static void check_schedule(
    struct lm *m, const float *all, int n_tokens, int max_chunk, uint64_t seed)
{
    static const struct partial_run none = { -1, 0, 0 };
    static struct seq s[N_SEQS];
    struct partial_run p = none;
    struct rng r = { seed, 1 };

    fill_seqs(s, N_SEQS, n_tokens, m, seed);
    while (s[0].done < s[0].n) {
        struct lm_run runs[N_SEQS];
        int who[N_SEQS], n_runs = 0, in_part = p.seq;
        for (int i = N_SEQS - 1; i >= 0; i--) {
            int left = s[i].n - s[i].done;
            if (left == 0 || (rng_below(&r, 2) && (i || n_runs)))
                continue;
            int n = 1 + (int)rng_below(&r, (uint64_t)MIN(left, max_chunk));
            if (i == p.seq && !rng_below(&r, 8))
                p = none; /* starts again from the first layer */
            if (in_part < 0 && rng_below(&r, 2))
                in_part = i;
            who[n_runs] = i;
            if (i == in_part)
                runs[n_runs++] = draw_run(m, &r, &s[i], i == p.seq ? &p : &none, n);
            else
                runs[n_runs++] = run_of(&s[i], n, (int)rng_below(&r, (uint64_t)n + 1));
        }
        forward_with_stops(m, &r, runs, n_runs);
        for (int i = 0; i < n_runs; i++) {
            const struct lm_run *run = &runs[i];
            if (who[i] == p.seq)
                p = none;
            if (is_complete(m, run))
                s[who[i]].done += run->n;
            else
                p = (struct partial_run){ who[i], run->n, run->end_layer };
            if (who[i] == 0)
                expect_rows(m, run, all);
        }
    }
}

/* ---- kernel sets */

static const char *const kernel_sets[] = { "ref", "avx2", "avxvnni", "avx512" };

static bool have_set(const char *name)
{
    const struct kernels *k;
    struct err e;
    return !kernels_choose(&k, name, &e);
}

static struct tiny_model of_type(const char *arch, enum qtype type, enum qtype type_v)
{
    struct tiny_model t = tiny_default;
    t.arch = arch;
    t.type = type;
    t.type_v = type_v;
    if (qtype_info(type)->block > 32 || qtype_info(type_v)->block > 32) {
        t.d = t.ff = 256;
        t.head_dim = 64;
        t.vocab = 71;
    }
    if (!strcmp(arch, "qwen3moe")) {
        t.experts = 6;
        t.experts_used = 3;
    }
    return t;
}

static const struct {
    const char *arch;
    enum qtype type, type_v;
} kinds[] = {
    { "llama", Q_F32, Q_F32 },
    { "llama", Q_F16, Q_F16 },
    { "llama", Q_BF16, Q_F32 },
    { "llama", Q_Q8_0, Q_Q8_0 },
    { "llama", Q_Q4_0, Q_F16 },
    { "llama", Q_Q4_K, Q_Q6_K },
    { "llama", Q_Q5_K, Q_Q8_0 },
    { "llama", Q_Q6_K, Q_Q6_K },
    { "qwen2", Q_F32, Q_F32 },
    { "qwen2", Q_Q4_0, Q_Q8_0 },
    { "qwen2", Q_Q4_K, Q_Q6_K },
    { "qwen3", Q_F32, Q_F32 },
    { "qwen3", Q_Q8_0, Q_Q4_0 },
    { "qwen3", Q_Q4_K, Q_Q5_K },
    { "qwen3moe", Q_F32, Q_F32 },
    { "qwen3moe", Q_Q4_0, Q_Q8_0 },
    { "qwen3moe", Q_Q4_K, Q_Q6_K },
    { "qwen3moe", Q_MXFP4, Q_IQ4_NL },
    { "llama", Q_IQ4_XS, Q_Q5_1 },
    { "qwen2", Q_Q5_0, Q_Q4_1 },
    { "llama", Q_Q2_K, Q_Q3_K },
    { "qwen3", Q_IQ2_S, Q_IQ3_S },
    { "llama", Q_Q1_0, Q_NVFP4 },
};

static void logits_are_independent_of_chunks_batches_and_pages(void)
{
    for (size_t i = 0; i < (IS_WATCHED ? 1 : ARRAY_LEN(kinds)); i++) {
        struct tiny_model t = of_type(kinds[i].arch, kinds[i].type, kinds[i].type_v);
        struct gguf *g = tiny_open(&t);
        float *all = reference(g, NULL, N_TOKENS);
        struct lm *m = open_lm(g, NULL, 1);

        check_schedule(m, all, N_TOKENS, 1, 11 + i); /* token by token */
        check_schedule(m, all, N_TOKENS, 20, 30 + i);
        m->ops->close(m);
        mem_free(all);
        gguf_close(g);
    }
}

static void logits_are_independent_of_threads(void)
{
    for (int n_threads = IS_WATCHED ? 3 : 2; n_threads <= 3; n_threads++)
        for (size_t i = 0; i < ARRAY_LEN(kinds); i += 2) {
            struct tiny_model t = of_type(kinds[i].arch, kinds[i].type, kinds[i].type_v);
            struct gguf *g = tiny_open(&t);
            float *all = reference(g, NULL, N_TOKENS);
            struct lm *m = open_lm(g, NULL, n_threads);

            check_schedule(m, all, N_TOKENS, 1, 50 + i);
            check_schedule(m, all, N_TOKENS, 16, 70 + i);
            m->ops->close(m);
            mem_free(all);
            gguf_close(g);
        }
}

static void logits_are_independent_of_the_kernel_set(void)
{
    for (size_t i = 0; i < (IS_WATCHED ? 1 : ARRAY_LEN(kinds)); i++) {
        struct tiny_model t = of_type(kinds[i].arch, kinds[i].type, kinds[i].type_v);
        struct gguf *g = tiny_open(&t);
        float *all = reference(g, "ref", N_TOKENS);

        for (size_t k = 0; k < ARRAY_LEN(kernel_sets); k++) {
            if (!have_set(kernel_sets[k]))
                continue;
            struct lm *m = open_lm(g, kernel_sets[k], 1);
            check_schedule(m, all, N_TOKENS, 30, 90 + i);
            m->ops->close(m);
        }
        mem_free(all);
        gguf_close(g);
    }
}

/* A tile is a block of 256 columns and a quarter of a step's rows. The feed-forward tiles are
 * blocks of all rows, of some rows, or less than a block if there are many threads and few rows;
 * the attention tiles are one head, two heads, or half a block with three threads. */
static void logits_are_independent_of_tile_assignment(void)
{
    static const enum qtype types[][2] = { { Q_Q4_K, Q_Q6_K }, { Q_Q4_0, Q_Q4_K },
        { Q_Q6_K, Q_Q4_0 }, { Q_Q4_K, Q_Q4_K } };

    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        struct tiny_model t = of_type(i % 3 ? "qwen3moe" : "llama", types[i][0], types[i][1]);
        t.layers = 2; /* all rows pass through the first */
        t.heads = i < 2 ? 4 : 8;
        t.kv_heads = i < 2 ? 1 : 4;
        t.ff = i % 3 ? 512 : 2048;
        struct gguf *g = tiny_open(&t);
        float *all = reference(g, "ref", N_TOKENS);
        for (int n_threads = IS_WATCHED ? 3 : 1; n_threads <= 3; n_threads++) {
            struct lm *m = open_lm_of(g, NULL, n_threads, N_SEQS * 12);
            check_schedule(m, all, N_TOKENS, 1, 3 + i);
            check_schedule(m, all, N_TOKENS, 12, 6 + i);
            m->ops->close(m);
        }
        mem_free(all);
        gguf_close(g);
    }
}

/* Longer than the key blocks of 256 and the KV splits of 512 of attention. */
static void logits_of_long_sequences_are_schedule_invariant(void)
{
    struct tiny_model t = tiny_default;
    t.layers = 1;
    struct gguf *g = tiny_open(&t);
    float *all = reference(g, NULL, 600);
    struct lm *m = open_lm(g, NULL, 2);

    check_schedule(m, all, 600, 150, 5);
    check_schedule(m, all, 600, 9, 6);
    m->ops->close(m);
    mem_free(all);
    gguf_close(g);
}

/* The previous content of a page, even NaN, has no effect. */
static void previous_page_content_has_no_effect(void)
{
    struct gguf *g = tiny_open(&tiny_default);
    float *all = reference(g, NULL, N_TOKENS);
    struct lm *m = open_lm(g, NULL, 1);

    memset(m->arena, 0xff, m->n_pages * m->page_bytes);
    check_schedule(m, all, N_TOKENS, 7, 3);
    m->ops->close(m);
    mem_free(all);
    gguf_close(g);
}

static void a_copied_page_continues_the_same(void)
{
    struct gguf *g = tiny_open(&tiny_default);
    float *all = reference(g, NULL, N_TOKENS);
    struct lm *m = open_lm(g, NULL, 1);
    static struct seq s[2];
    const int half = N_TOKENS / 2;

    fill_seqs(s, 2, N_TOKENS, m, 9);
    struct lm_run run = run_of(&s[0], half, 0);
    EXPECT(m->ops->forward(m, &run, 1, NULL));
    for (int p = 0; p <= (half - 1) / PAGE_TOKENS; p++)
        m->ops->copy_page(m, s[0].pages[p], s[1].pages[p]);
    memcpy(s[1].tokens, s[0].tokens, sizeof(s[0].tokens));
    s[1].done = half;
    run = run_of(&s[1], N_TOKENS - half, N_TOKENS - half);
    EXPECT(m->ops->forward(m, &run, 1, NULL));
    expect_rows(m, &run, all);
    m->ops->close(m);
    mem_free(all);
    gguf_close(g);
}

static void stopped_pass_has_no_effect(void)
{
    struct gguf *g = tiny_open(&tiny_default);
    float *all = reference(g, NULL, N_TOKENS);
    struct lm *m = open_lm(g, NULL, 2);
    static struct seq s;
    _Atomic bool stop = true;

    fill_seqs(&s, 1, N_TOKENS, m, 4);
    struct lm_run run = run_of(&s, N_TOKENS, 3);
    EXPECT(!m->ops->forward(m, &run, 1, &stop));
    atomic_store(&stop, false);
    EXPECT(m->ops->forward(m, &run, 1, &stop));
    expect_rows(m, &run, all);
    m->ops->close(m);
    mem_free(all);
    gguf_close(g);
}

static void step_allocates_nothing(void)
{
    struct gguf *g = tiny_open(&tiny_default);
    struct lm *m = open_lm(g, NULL, 2);
    static struct seq s;

    fill_seqs(&s, 1, N_TOKENS, m, 4);
    struct lm_run run = run_of(&s, N_TOKENS, 1);
    noalloc_begin("forward");
    EXPECT(m->ops->forward(m, &run, 1, NULL));
    noalloc_end();
    m->ops->close(m);
    gguf_close(g);
}

/* KV in another format: the values differ from f16, and schedule invariance holds. */
static void check_kv_type(enum kv_type type)
{
    struct gguf *g = tiny_open(&tiny_default);
    struct llama_options o = { .n_threads = 1,
        .n_pages = 4 * MAX_TOKENS / PAGE_TOKENS,
        .max_rows = MAX_TOKENS,
        .max_logits = MAX_TOKENS,
        .kv_type = type };
    float *f16 = reference(g, NULL, N_TOKENS);
    static struct seq s;
    struct lm *m;
    struct err e;

    EXPECT(!lm_open_llama(&m, g, &o, &e));
    size_t bytes = (size_t)N_TOKENS * (size_t)m->n_vocab * sizeof(float);
    float *all = xmalloc(bytes);
    fill_seqs(&s, 1, N_TOKENS, m, 2);
    struct lm_run run = run_of(&s, N_TOKENS, N_TOKENS);
    EXPECT(m->ops->forward(m, &run, 1, NULL));
    memcpy(all, run.logits, bytes);
    EXPECT(memcmp(all, f16, bytes));
    check_schedule(m, all, N_TOKENS, 5, 8);
    m->ops->close(m);
    mem_free(all);
    mem_free(f16);
    gguf_close(g);
}

/* Sequences that share their first pages to different depths, and one that shares none. */
enum { SHARERS = 9, WHOLE = 560, OWN = 6, CHUNK = 20 };
enum { PAGES = (WHOLE + OWN - 1) / PAGE_TOKENS + 1 }; /* pages of each sequence */
static const int shared_depth[SHARERS] = { 0, 544, 288, 544, 288, 0, 544, 256, 544 };
/* UNSHARED shares no page; CHUNKED is a prompt in chunks */
enum { UNSHARED = 5, CHUNKED = SHARERS };

struct shared_prefix_fixture {
    struct lm *m;
    struct seq s[SHARERS + 1];
    float *want[SHARERS + 1]; /* logits of the tokens after WHOLE; of CHUNKED, all logits */
};

/* Computes a sequence alone, in pages of its own. */
static void compute_alone(struct shared_prefix_fixture *sh, int i, struct rng *r)
{
    struct seq *s = &sh->s[i];
    int n_logits = i == CHUNKED ? WHOLE : OWN;
    size_t bytes = (size_t)n_logits * (size_t)sh->m->n_vocab * sizeof(float);

    s->n = i == CHUNKED ? WHOLE : WHOLE + OWN;
    for (int p = 0; p < PAGES; p++)
        s->pages[p].i = (uint32_t)(i * PAGES + p);
    for (int at = 0; at < s->n; at++)
        s->tokens[at] = i < SHARERS && at < shared_depth[i]
                            ? sh->s[0].tokens[at]
                            : (int32_t)rng_below(r, (uint64_t)sh->m->n_vocab);
    s->done = 0;
    struct lm_run run = run_of(s, s->n, n_logits);
    EXPECT(sh->m->ops->forward(sh->m, &run, 1, NULL));
    sh->want[i] = xmalloc(bytes);
    memcpy(sh->want[i], run.logits, bytes);
}

static void share_pages(struct shared_prefix_fixture *sh)
{
    for (int i = 0; i < SHARERS; i++) {
        sh->s[i].done = WHOLE;
        for (int p = 0; p < shared_depth[i] / PAGE_TOKENS; p++)
            sh->s[i].pages[p] = sh->s[0].pages[p];
    }
}

/* Decode rows with shared pages form shared-prefix groups, as large as leaves work for all
 * threads, whatever longer runs are in the same step. */
static void expect_groups(
    const struct shared_prefix_fixture *sh, const struct lm_run *runs, const int *who, int n)
{
    const struct llama *m = container_of(sh->m, struct llama, lm);
    int n_decode_rows = 0, n_sharers = 0;

    for (int i = 0; i < n; i++)
        if (runs[i].n == 1) {
            n_decode_rows++;
            n_sharers += who[i] != UNSHARED && who[i] != CHUNKED;
        }
    EXPECT_EQ(m->n_decode_rows, n_decode_rows);
    const int most = MAX(n_decode_rows * m->min_kv_heads / (2 * sh->m->n_threads), 1);
    EXPECT_EQ(m->n_attn_groups, n_decode_rows - n_sharers + (n_sharers + most - 1) / most);
    for (int i = 0; i < m->n_attn_groups; i++)
        EXPECT(m->attn_groups[i].n == 1 || m->attn_groups[i].n_shared >= KV_BLOCK);
}

/* Next run of a sequence: one token, sometimes more; for the prompt always a chunk. */
static struct lm_run draw_next(
    const struct shared_prefix_fixture *sh, struct rng *r, int i, bool is_mixed)
{
    const struct seq *s = &sh->s[i];
    int left = s->n - s->done, n = 1;

    if (i == CHUNKED)
        n = MIN(left, CHUNK);
    else if (is_mixed && !rng_below(r, 6))
        n = 1 + (int)rng_below(r, (uint64_t)MIN(left, 3));
    bool says_all = rng_below(r, 8) || !is_mixed;
    return run_of(s, n, says_all ? n : (int)rng_below(r, (uint64_t)n + 1));
}

static void run_common_step(struct shared_prefix_fixture *sh, struct rng *r, bool is_mixed)
{
    struct lm_run runs[SHARERS + 1];
    int who[SHARERS + 1], n = 0, turn = (int)rng_below(r, SHARERS + 1);

    for (int j = 0; j <= SHARERS; j++) {
        int i = (turn + 3 * j) % (SHARERS + 1);
        if (sh->s[i].done == sh->s[i].n || (i == CHUNKED ? !is_mixed : !rng_below(r, 8)))
            continue;
        who[n] = i;
        runs[n++] = draw_next(sh, r, i, is_mixed);
    }
    if (n == 0)
        return;
    EXPECT(sh->m->ops->forward(sh->m, runs, n, NULL));
    expect_groups(sh, runs, who, n);
    for (int j = 0; j < n; j++) {
        struct seq *s = &sh->s[who[j]];
        int first = s->done + runs[j].n - runs[j].n_logits - (who[j] == CHUNKED ? 0 : WHOLE);
        size_t n_vocab = (size_t)sh->m->n_vocab;
        EXPECT(!memcmp(runs[j].logits, sh->want[who[j]] + (size_t)first * n_vocab,
            (size_t)runs[j].n_logits * n_vocab * sizeof(float)));
        s->done += runs[j].n;
    }
}

/* The sequences run in common steps, each with the logits that it has alone, with or without
 * runs of several rows. */
static void check_shared_prefix(enum kv_type type, int n_threads, bool is_mixed)
{
    static struct shared_prefix_fixture sh;
    struct tiny_model t = tiny_default;
    struct rng r = { (uint64_t)(5 + type), 3 };
    struct err e;

    t.layers = 2;
    t.kv_heads = 2;
    t.ctx = 2 * WHOLE;
    struct gguf *g = tiny_open(&t);
    struct llama_options o = { .n_threads = n_threads,
        .n_pages = (SHARERS + 1) * PAGES,
        .kv_type = type,
        .max_rows = WHOLE + OWN,
        .max_logits = WHOLE };
    EXPECT(!lm_open_llama(&sh.m, g, &o, &e));
    for (int i = 0; i <= SHARERS; i++)
        compute_alone(&sh, i, &r);
    share_pages(&sh);
    sh.s[CHUNKED].done = 0;
    for (int step = 0; step < 2 * OWN; step++)
        run_common_step(&sh, &r, is_mixed);
    sh.m->ops->close(sh.m);
    for (int i = 0; i <= SHARERS; i++)
        mem_free(sh.want[i]);
    gguf_close(g);
}

static void logits_are_independent_of_shared_prefixes(void)
{
    for (int type = 0; type < (IS_WATCHED ? 1 : N_KV_TYPES); type++)
        for (int n_threads = IS_WATCHED ? 3 : 1; n_threads <= 3; n_threads += 2)
            for (int is_mixed = 0; is_mixed < 2; is_mixed++)
                check_shared_prefix((enum kv_type)type, n_threads, is_mixed);
}

/* Kernel set with its own float summation: AMX tiles, emulated in software if the processor has
 * none. */
static void amx_tiles_are_schedule_invariant(void)
{
    static const enum qtype types[] = { Q_BF16, Q_F16, Q_Q8_0 };
    struct llama_options o = { .n_pages = 4 * MAX_TOKENS / PAGE_TOKENS,
        .kv_type = KV_BF16,
        .max_rows = MAX_TOKENS,
        .max_logits = MAX_TOKENS };
    static struct seq s;
    struct err e;

    if (kernels_choose(&o.kernels, "amx", &e))
        o.kernels = kit_amx_soft();
    for (size_t i = 0; i < ARRAY_LEN(types) && o.kernels; i++) {
        struct tiny_model t = of_type(i ? "llama" : "qwen3moe", types[i], types[i]);
        struct gguf *g = tiny_open(&t);
        float *all = NULL;
        for (o.n_threads = 1; o.n_threads <= 3; o.n_threads += 2) {
            struct lm *m;
            EXPECT(!lm_open_llama(&m, g, &o, &e));
            if (!all) {
                fill_seqs(&s, 1, N_TOKENS, m, 2);
                struct lm_run run = run_of(&s, N_TOKENS, N_TOKENS);
                EXPECT(m->ops->forward(m, &run, 1, NULL));
                all = xmalloc((size_t)N_TOKENS * (size_t)m->n_vocab * sizeof(float));
                memcpy(all, run.logits, (size_t)N_TOKENS * (size_t)m->n_vocab * sizeof(float));
            }
            check_schedule(m, all, N_TOKENS, 1, 8);
            check_schedule(m, all, N_TOKENS, 16, 9);
            m->ops->close(m);
        }
        mem_free(all);
        gguf_close(g);
    }
}

static void bf16_kv_is_schedule_invariant(void)
{
    check_kv_type(KV_BF16);
}

static void q8_0_kv_is_schedule_invariant(void)
{
    check_kv_type(KV_Q8_0);
}

/* KV pages of one format are not read as another: each format has its own kind. */
static void each_kv_format_has_its_own_kind(void)
{
    struct gguf *g = tiny_open(&tiny_default);
    uint32_t kind[N_KV_TYPES];
    struct err e;

    for (int i = 0; i < N_KV_TYPES; i++) {
        struct llama_options o = { .n_threads = 1, .n_pages = 1, .kv_type = (enum kv_type)i };
        struct llama_needs needs;
        struct lm *m;
        EXPECT(!lm_open_llama(&m, g, &o, &e) && !llama_needs(&needs, g, o.kv_type, &e));
        EXPECT_EQ(m->page_bytes, needs.page_bytes);
        kind[i] = m->kv_kind;
        for (int j = 0; j < i; j++)
            EXPECT(kind[i] != kind[j]);
        m->ops->close(m);
    }
    EXPECT(kv_type_by_name("q8_0") == KV_Q8_0);
    EXPECT(kv_type_by_name("bf16") == KV_BF16);
    EXPECT(kv_type_by_name("f16") == KV_F16);
    EXPECT(kv_type_by_name("f1") == N_KV_TYPES);
    gguf_close(g);
}

/* If a kernel set has its own summation of float weights or over bf16 pages, its KV pages have
 * another kind. */
static void own_float_sums_have_their_own_kv_kind(void)
{
    static const enum qtype types[] = { Q_F32, Q_Q8_0, Q_F16, Q_BF16, Q_Q8_0 };
    static const enum kv_type kv_types[] = { KV_F16, KV_Q8_0, KV_F16, KV_Q8_0, KV_BF16 };
    const struct kernels *ref;
    struct err e;

    EXPECT(!kernels_choose(&ref, "ref", &e));
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        struct tiny_model t = of_type("llama", types[i], types[i]);
        struct gguf *g = tiny_open(&t);
        struct kernels own = *ref;
        uint32_t kind[2];
        own.numerics_id = 3;
        for (int j = 0; j < 2; j++) {
            struct llama_options o = { .n_threads = 1, .n_pages = 1, .kernels = j ? &own : ref };
            o.kv_type = kv_types[i];
            struct lm *m;
            EXPECT(!lm_open_llama(&m, g, &o, &e));
            kind[j] = m->kv_kind;
            m->ops->close(m);
        }
        EXPECT_EQ(kind[0] != kind[1], i >= 2);
        gguf_close(g);
    }
}

TESTS(TEST(logits_are_independent_of_chunks_batches_and_pages),
    TEST(logits_are_independent_of_threads), TEST(logits_are_independent_of_the_kernel_set),
    TEST(logits_are_independent_of_tile_assignment),
    TEST(logits_of_long_sequences_are_schedule_invariant),
    TEST(previous_page_content_has_no_effect), TEST(a_copied_page_continues_the_same),
    TEST(stopped_pass_has_no_effect), TEST(step_allocates_nothing),
    TEST(amx_tiles_are_schedule_invariant), TEST(bf16_kv_is_schedule_invariant),
    TEST(q8_0_kv_is_schedule_invariant), TEST(logits_are_independent_of_shared_prefixes),
    TEST(each_kv_format_has_its_own_kind), TEST(own_float_sums_have_their_own_kv_kind))
