/* Split-KV attention of long rows over several threads: the logits equal those of one thread,
 * which does not split, for any other rows in the step. */
#include "support/check.h"
#include "../../kernel/kit.h"
#include "base/mem.h"
#include "model/forward.h"
#include "model/llama.h"
#include "support/tiny.h"
#include "testing/synth.h"

/* Sequences: length before the compared part, and number of compared tokens. The first is the
 * longest, and its number of splits is not divisible by any number of threads; the last is a
 * prompt. */
enum { LONGEST = 0, N_COMPARED = 6, MOST_ROWS = 2400, CHUNK = 9 };
static const struct {
    int before, n_compared;
} shape[] = { { 2200, N_COMPARED }, { 40, N_COMPARED }, { 1100, N_COMPARED }, { 1020, N_COMPARED },
    { 0, 40 } };
enum { SEQS = ARRAY_LEN(shape), PROMPT = SEQS - 1, PAGES = MOST_ROWS / PAGE_TOKENS };

struct seq {
    int32_t tokens[MOST_ROWS];
    page_id pages[PAGES];
    float *want; /* expected logits [n_compared][n_vocab] */
    int done;    /* number of compared tokens computed so far */
};

struct split_fixture {
    const struct gguf *g;
    enum kv_type type;
    struct seq s[SEQS];
    uint8_t *arena, *window_arena; /* KV cache before the compared part */
    int n_split_steps;             /* steps in which a row was split over threads */
};

static struct lm *open_lm(const struct split_fixture *sc, int n_threads)
{
    struct llama_options o = { .n_threads = n_threads,
        .n_pages = SEQS * PAGES,
        .kv_type = sc->type,
        .max_rows = MOST_ROWS,
        .max_logits = 64 };
    struct lm *m = NULL;
    struct err e;

    if (lm_open_llama(&m, sc->g, &o, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        fail();
    }
    return m;
}

static struct llama *llama_of(struct lm *m)
{
    return container_of(m, struct llama, lm);
}

static struct lm_run run_of(const struct split_fixture *sc, int i, int n, int n_logits)
{
    const struct seq *s = &sc->s[i];
    const int pos = shape[i].before + s->done;

    return (struct lm_run){
        .tokens = s->tokens + pos, .n = n, .pos = pos, .pages = s->pages, .n_logits = n_logits
    };
}

static void fill_seqs(struct split_fixture *sc, int n_vocab)
{
    struct rng r = { .key = 3 };

    for (int i = 0; i < SEQS; i++) {
        for (int t = 0; t < MOST_ROWS; t++)
            sc->s[i].tokens[t] = (int32_t)rng_below(&r, (uint64_t)n_vocab);
        for (int p = 0; p < PAGES; p++)
            sc->s[i].pages[p].i = (uint32_t)(p * SEQS + i);
    }
}

static size_t arena_bytes(const struct lm *m)
{
    return m->n_pages * m->page_bytes;
}

static size_t window_arena_bytes(const struct lm *m)
{
    return m->n_window_pages * m->window_page_bytes;
}

/* Computes the expected logits with one thread: first the part before, from which every
 * comparison starts, then the compared part. */
static void compute_alone(struct split_fixture *sc)
{
    struct lm *m = open_lm(sc, 1);
    const size_t row = (size_t)m->n_vocab * sizeof(float);

    fill_seqs(sc, m->n_vocab);
    for (int i = 0; i < SEQS; i++) {
        sc->s[i].done = -shape[i].before;
        struct lm_run run = run_of(sc, i, shape[i].before, 0);
        if (run.n > 0)
            EXPECT(m->ops->forward(m, &run, 1, NULL));
        sc->s[i].done = 0;
    }
    sc->arena = xmalloc(arena_bytes(m));
    memcpy(sc->arena, m->arena, arena_bytes(m));
    sc->window_arena = xmalloc(window_arena_bytes(m));
    if (m->window.size)
        memcpy(sc->window_arena, m->window_arena, window_arena_bytes(m));
    for (int i = 0; i < SEQS; i++) {
        sc->s[i].want = xmalloc((size_t)shape[i].n_compared * row);
        for (; sc->s[i].done < shape[i].n_compared; sc->s[i].done++) {
            struct lm_run run = run_of(sc, i, 1, 1);
            EXPECT(m->ops->forward(m, &run, 1, NULL));
            EXPECT_EQ(llama_of(m)->n_pieces, 0);
            memcpy(sc->s[i].want + (size_t)sc->s[i].done * (size_t)m->n_vocab, run.logits, row);
        }
    }
    m->ops->close(m);
}

/* The previous content of the states must not matter, so they are filled with NaN. */
static void fill_states_with_nan(struct lm *m)
{
    const struct llama *l = llama_of(m);
    const int group = l->max_q_per_kv_head;

    memset(l->states, 0xff, l->n_states * attn_state_floats(l->kv, group) * sizeof(float));
}

/* Each split row has its own states, the last row's first; all counters are ready for the next
 * layer. */
static void expect_separate_states(const struct llama *l)
{
    for (int i = l->n_whole_groups; i < l->n_attn_groups; i++) {
        const struct attn_group *p = &l->attn_groups[i], *next = p + 1;
        const size_t end = p->state + (size_t)(p->n_splits * l->max_kv_heads);
        EXPECT_EQ(p->n, 1);
        EXPECT_EQ(p->n_splits, (l->attn_rows[p->from].n_keys + KV_SPLIT - 1) / KV_SPLIT);
        EXPECT_EQ(p->n_pieces, (p->n_splits + p->splits_per_piece - 1) / p->splits_per_piece);
        EXPECT(end <= l->n_states);
        EXPECT_EQ(p->state, i + 1 < l->n_attn_groups
                                ? next->state + (size_t)(next->n_splits * l->max_kv_heads)
                                : 0);
        for (int h = 0; h < l->max_kv_heads; h++)
            EXPECT_EQ(atomic_load(&l->n_done[p->state + (size_t)h]), 0);
    }
}

/* If all rows are decode rows, the longest is split, since it has more than half of the keys.
 * With more than one KV head, whole heads may already balance the threads. */
static void expect_split(const struct llama *l)
{
    if (l->max_kv_heads > 1)
        return;
    EXPECT(l->n_whole_groups < l->n_attn_groups);
    EXPECT(l->n_pieces >= 2);
    EXPECT(isfinite(l->states[l->attn_groups[l->n_whole_groups].state]));
}

static void expect_logits(
    const struct split_fixture *sc, const struct lm *m, const struct lm_run *run, int i)
{
    const size_t n_vocab = (size_t)m->n_vocab;
    const int first = sc->s[i].done + run->n - run->n_logits;

    if (!memcmp(run->logits, sc->s[i].want + (size_t)first * n_vocab,
            (size_t)run->n_logits * n_vocab * sizeof(float)))
        return;
    fprintf(stderr, "sequence %d differs in row %d, of %d\n", i, first, run->n);
    fail();
}

/* Runs one step of some sequences. Sometimes the pass is stopped first, a sequence has several
 * rows, or a row needs no logits. */
static void run_step(struct split_fixture *sc, struct lm *m, struct rng *r)
{
    static const _Atomic bool stop = true;
    struct lm_run runs[SEQS];
    int who[SEQS], n = 0;
    bool has_longest = false, has_runs = false;

    for (int i = 0; i < SEQS; i++) {
        int left = shape[i].n_compared - sc->s[i].done;
        if (left == 0 || rng_below(r, i == LONGEST ? 4 : 2) == 0)
            continue;
        int rows = i == PROMPT ? CHUNK : rng_below(r, 8) ? 1 : 2;
        rows = MIN(rows, left);
        has_longest |= i == LONGEST && rows == 1;
        has_runs |= rows > 1;
        who[n] = i;
        runs[n++] = run_of(sc, i, rows, (int)rng_below(r, 8) ? rows : 0);
    }
    if (n == 0)
        return;
    fill_states_with_nan(m);
    if (rng_below(r, 3) || !m->ops->forward(m, runs, n, &stop))
        EXPECT(m->ops->forward(m, runs, n, NULL));
    expect_separate_states(llama_of(m));
    sc->n_split_steps += llama_of(m)->n_whole_groups < llama_of(m)->n_attn_groups;
    if (has_longest && !has_runs)
        expect_split(llama_of(m));
    for (int j = 0; j < n; j++) {
        expect_logits(sc, m, &runs[j], who[j]);
        sc->s[who[j]].done += runs[j].n;
    }
}

static void compute_together(struct split_fixture *sc, int n_threads)
{
    struct lm *m = open_lm(sc, n_threads);
    struct rng r = { .key = (uint64_t)n_threads };

    memcpy(m->arena, sc->arena, arena_bytes(m));
    if (m->window.size)
        memcpy(m->window_arena, sc->window_arena, window_arena_bytes(m));
    for (int i = 0; i < SEQS; i++)
        sc->s[i].done = 0;
    sc->n_split_steps = 0;
    for (int step = 0; step < 3 * N_COMPARED; step++)
        run_step(sc, m, &r);
    EXPECT(sc->n_split_steps > 0);
    for (int i = 0; i < PROMPT; i++)
        EXPECT(sc->s[i].done > N_COMPARED / 2);
    m->ops->close(m);
}

/* Query biases and query norms are applied by each thread for its own split. */
static void expect_same_logits_of(struct gguf *g, enum kv_type type)
{
    static struct split_fixture sc;

    EXPECT(g);
    sc = (struct split_fixture){ .g = g, .type = type };
    compute_alone(&sc);
    for (int n_threads = 2; n_threads <= 8; n_threads++)
        compute_together(&sc, n_threads);
    for (int i = 0; i < SEQS; i++)
        mem_free(sc.s[i].want);
    mem_free(sc.arena);
    mem_free(sc.window_arena);
    gguf_close(g);
}

static void expect_same_logits(const struct tiny_model *t, enum kv_type type)
{
    expect_same_logits_of(tiny_open(t), type);
}

static struct tiny_model model_shape(const char *arch, int heads, int kv_heads)
{
    struct tiny_model t = tiny_default;

    t.arch = arch;
    t.heads = heads;
    t.kv_heads = kv_heads;
    t.ctx = MOST_ROWS;
    return t;
}

static void one_kv_head(void)
{
    struct tiny_model t = model_shape("qwen3", 4, 1);

    expect_same_logits(&t, KV_F16);
}

static void two_kv_heads_with_biases(void)
{
    struct tiny_model t = model_shape("qwen2", 4, 2);

    expect_same_logits(&t, KV_BF16);
}

/* GQA group of nine heads: more than the attention kernels process at once. */
static void gqa_group_larger_than_the_kernel_takes(void)
{
    struct tiny_model t = model_shape("llama", 27, 3);

    t.layers = 1; /* in the last layer only rows that need logits are computed */
    expect_same_logits(&t, KV_Q8_0);
}

/* Wo reads quantisation blocks of 256: with this head size they span two KV heads. */
static void blocks_that_span_two_kv_heads(void)
{
    struct tiny_model t = model_shape("llama", 8, 4);

    t.type = t.type_v = Q_Q4_K;
    t.d = t.ff = 256;
    t.head_dim = 64;
    t.vocab = 71;
    expect_same_logits(&t, KV_F16);
}

/* Layers with two KV heads of 32 dimensions and a window, and layers with one of 48 without. */
static void layers_of_different_shapes(void)
{
    char path[] = "/tmp/inferflux-split-XXXXXX";
    struct gguf *g = NULL;
    struct synth s;
    struct err e;

    EXPECT(synth_preset(&s, "tiny-gemma4"));
    close(mkstemp(path));
    EXPECT(!synth_write(&s, path, &e) && !gguf_open(&g, path, &e));
    unlink(path);
    expect_same_logits_of(g, KV_Q8_0);
}

TESTS(TEST(one_kv_head), TEST(two_kv_heads_with_biases),
    TEST(gqa_group_larger_than_the_kernel_takes), TEST(blocks_that_span_two_kv_heads),
    TEST(layers_of_different_shapes))
