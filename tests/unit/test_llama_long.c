/* A long row whose keys several members share: the same bits as those of one thread, which shares
 * nothing, whatever rows are beside it. */
#include "../check.h"
#include "../kernel/kit.h"
#include "base/mem.h"
#include "model/forward.h"
#include "model/llama.h"
#include "tiny.h"

/* Sequences: what each has behind it before it is looked at, and what it says then. The first is
 * the longest, and of more splits than any number of threads divides; the last is a prompt. */
enum { LONGEST = 0, SAYS = 6, MOST_ROWS = 2400, CHUNK = 9 };
static const struct {
    int before, says;
} shape[] = { { 2200, SAYS }, { 40, SAYS }, { 1100, SAYS }, { 1020, SAYS }, { 0, 40 } };
enum { SEQS = ARRAY_LEN(shape), PROMPT = SEQS - 1, PAGES = MOST_ROWS / PAGE_TOKENS };

struct seq {
    int32_t tokens[MOST_ROWS];
    page_id pages[PAGES];
    float *want; /* [says][n_vocab] */
    int done;    /* of what it says */
};

struct scene {
    const struct gguf *g;
    enum kv_type type;
    struct seq s[SEQS];
    uint8_t *arena; /* when nobody has said anything yet */
    size_t bytes;
    int n_cut; /* steps in which some row was shared */
};

static struct lm *open_lm(const struct scene *sc, int n_threads)
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

static struct llama *inside(struct lm *m)
{
    return container_of(m, struct llama, lm);
}

static struct lm_run run_of(const struct scene *sc, int i, int n, int n_logits)
{
    const struct seq *s = &sc->s[i];
    const int pos = shape[i].before + s->done;

    return (struct lm_run){
        .tokens = s->tokens + pos, .n = n, .pos = pos, .pages = s->pages, .n_logits = n_logits
    };
}

static void fill_seqs(struct scene *sc, int n_vocab)
{
    struct rng r = { .key = 3 };

    for (int i = 0; i < SEQS; i++) {
        for (int t = 0; t < MOST_ROWS; t++)
            sc->s[i].tokens[t] = (int32_t)rng_below(&r, (uint64_t)n_vocab);
        for (int p = 0; p < PAGES; p++)
            sc->s[i].pages[p].i = (uint32_t)(p * SEQS + i);
    }
}

/* By one thread: what is before, which the others begin with, and then what each says. */
static void say_alone(struct scene *sc)
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
    sc->bytes = m->n_pages * m->page_bytes;
    sc->arena = xmalloc(sc->bytes);
    memcpy(sc->arena, inside(m)->arena, sc->bytes);
    for (int i = 0; i < SEQS; i++) {
        sc->s[i].want = xmalloc((size_t)shape[i].says * row);
        for (; sc->s[i].done < shape[i].says; sc->s[i].done++) {
            struct lm_run run = run_of(sc, i, 1, 1);
            EXPECT(m->ops->forward(m, &run, 1, NULL));
            EXPECT_EQ(inside(m)->n_pieces, 0);
            memcpy(sc->s[i].want + (size_t)sc->s[i].done * (size_t)m->n_vocab, run.logits, row);
        }
    }
    m->ops->close(m);
}

/* Whatever the states held before is nobody's business, so they hold no numbers. */
static void spoil_states(struct lm *m)
{
    const struct llama *l = inside(m);
    const int group = l->h.n_heads / l->h.n_kv_heads;

    memset(l->states, 0xff, l->n_states * attn_state_floats(&l->kv, group) * sizeof(float));
}

/* Each has states of its own, the last first; all counts are ready for the next layer. */
static void expect_apart(const struct llama *l)
{
    for (int i = l->n_own; i < l->n_parties; i++) {
        const struct party *p = &l->parties[i], *next = p + 1;
        const size_t end = p->state + (size_t)(p->n_splits * l->h.n_kv_heads);
        EXPECT_EQ(p->n, 1);
        EXPECT_EQ(p->n_splits, (l->list[p->from].n_keys + KV_SPLIT - 1) / KV_SPLIT);
        EXPECT_EQ(p->n_pieces, (p->n_splits + p->per_piece - 1) / p->per_piece);
        EXPECT(end <= l->n_states);
        EXPECT_EQ(p->state,
            i + 1 < l->n_parties ? next->state + (size_t)(next->n_splits * l->h.n_kv_heads) : 0);
        for (int h = 0; h < l->h.n_kv_heads; h++)
            EXPECT_EQ(atomic_load(&l->n_done[p->state + (size_t)h]), 0);
    }
}

/* Where all rows are single ones, the longest is cut: it has more than half of the keys. More than
 * one head may be as many for each member, and be whole after all. */
static void expect_cut(const struct llama *l)
{
    if (l->h.n_kv_heads > 1)
        return;
    EXPECT(l->n_own < l->n_parties);
    EXPECT(l->n_pieces >= 2);
    EXPECT(isfinite(l->states[l->parties[l->n_own].state]));
}

static void expect_said(const struct scene *sc, const struct lm *m, const struct lm_run *run, int i)
{
    const size_t n_vocab = (size_t)m->n_vocab;
    const int first = sc->s[i].done + run->n - run->n_logits;

    if (!memcmp(run->logits, sc->s[i].want + (size_t)first * n_vocab,
            (size_t)run->n_logits * n_vocab * sizeof(float)))
        return;
    fprintf(stderr, "sequence %d differs in row %d, of %d\n", i, first, run->n);
    fail();
}

/* Some of them go on; now and then the pass is stopped first, or one of more rows is among them, or
 * one wants no logits. */
static void one_step(struct scene *sc, struct lm *m, struct rng *r)
{
    static const _Atomic bool stop = true;
    struct lm_run runs[SEQS];
    int who[SEQS], n = 0;
    bool has_longest = false, has_runs = false;

    for (int i = 0; i < SEQS; i++) {
        int left = shape[i].says - sc->s[i].done;
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
    spoil_states(m);
    if (rng_below(r, 3) || !m->ops->forward(m, runs, n, &stop))
        EXPECT(m->ops->forward(m, runs, n, NULL));
    expect_apart(inside(m));
    sc->n_cut += inside(m)->n_own < inside(m)->n_parties;
    if (has_longest && !has_runs)
        expect_cut(inside(m));
    for (int j = 0; j < n; j++) {
        expect_said(sc, m, &runs[j], who[j]);
        sc->s[who[j]].done += runs[j].n;
    }
}

static void say_together(struct scene *sc, int n_threads)
{
    struct lm *m = open_lm(sc, n_threads);
    struct rng r = { .key = (uint64_t)n_threads };

    memcpy(inside(m)->arena, sc->arena, sc->bytes);
    for (int i = 0; i < SEQS; i++)
        sc->s[i].done = 0;
    sc->n_cut = 0;
    for (int step = 0; step < 3 * SAYS; step++)
        one_step(sc, m, &r);
    EXPECT(sc->n_cut > 0);
    for (int i = 0; i < PROMPT; i++)
        EXPECT(sc->s[i].done > SAYS / 2);
    m->ops->close(m);
}

/* Biases and norms of queries are those who take a piece make for themselves. */
static void expect_same(const struct tiny *t, enum kv_type type)
{
    static struct scene sc;
    struct gguf *g = tiny_open(t);

    EXPECT(g);
    sc = (struct scene){ .g = g, .type = type };
    say_alone(&sc);
    for (int n_threads = 2; n_threads <= 8; n_threads++)
        say_together(&sc, n_threads);
    for (int i = 0; i < SEQS; i++)
        mem_free(sc.s[i].want);
    mem_free(sc.arena);
    gguf_close(g);
}

static struct tiny model(const char *arch, int heads, int kv_heads)
{
    struct tiny t = tiny_default;

    t.arch = arch;
    t.heads = heads;
    t.kv_heads = kv_heads;
    t.ctx = MOST_ROWS;
    return t;
}

static void one_kv_head(void)
{
    struct tiny t = model("qwen3", 4, 1);

    expect_same(&t, KV_F16);
}

static void two_kv_heads_with_biases(void)
{
    struct tiny t = model("qwen2", 4, 2);

    expect_same(&t, KV_BF16);
}

/* A group of nine: more than kernels take together. */
static void three_kv_heads_of_many_queries(void)
{
    struct tiny t = model("llama", 27, 3);

    t.layers = 1; /* in the last layer only those that get logits */
    expect_same(&t, KV_Q8_0);
}

/* The product with o reads blocks of 256: of two kv heads where they divide, of rows elsewhere. */
static void heads_that_are_put_two_together(void)
{
    struct tiny t = model("llama", 8, 4);

    t.type = t.type_v = Q_Q4_K;
    t.d = t.ff = 256;
    t.head_dim = 64;
    t.vocab = 71;
    expect_same(&t, KV_F16);
}

TESTS(TEST(one_kv_head), TEST(two_kv_heads_with_biases), TEST(three_kv_heads_of_many_queries),
    TEST(heads_that_are_put_two_together))
