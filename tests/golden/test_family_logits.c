/* Logits of a tiny model of each family against those of another implementation, which
 * tests/families/reference.py computes and writes to tests/families. */
#include "base/mem.h"
#include "base/rng.h"
#include "format/gguf.h"
#include "model/llama.h"
#include "support/check.h"
#include "testing/synth.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum { N_TOKENS = 300, STEP = 3, N_IDS = 12, N_VALUES = N_TOKENS / STEP * N_IDS };

/* The largest difference as a share of the range of the logits. The reference stores keys and
 * values as F32, this implementation as f16. */
static const double MAX_DIFFERENCE = 5e-4;

static int32_t token_at(int pos, int n_vocab)
{
    return (pos * 7919 + pos * pos * 31 + 17) % n_vocab;
}

static struct gguf *open_model(const char *preset)
{
    char path[] = "/tmp/inferflux-family-XXXXXX";
    struct gguf *g = NULL;
    struct synth s;
    struct err e;

    EXPECT(synth_preset(&s, preset));
    s.type = s.head_type = Q_F32;
    close(mkstemp(path));
    if (synth_write(&s, path, &e) || gguf_open(&g, path, &e)) {
        fprintf(stderr, "%s: %s\n", preset, e.msg);
        fail();
    }
    unlink(path);
    return g;
}

/* Logits of all tokens, in chunks; is_layered: each chunk passes the layers in two steps. A
 * recurrent
 * state alternates between two slots, or remains in one slot if the chunks are short. */
static float *compute(struct lm *m, int chunk, bool is_layered)
{
    int32_t tokens[N_TOKENS];
    page_id pages[N_TOKENS];
    state_id state = STATE_NONE;
    float *out = xcalloc((size_t)N_TOKENS * (size_t)m->n_vocab, sizeof(*out));

    for (int i = 0; i < N_TOKENS; i++) {
        tokens[i] = token_at(i, m->n_vocab);
        pages[i].i = (uint32_t)MIN(i, (int)m->n_pages - 1);
    }
    for (int at = 0; at < N_TOKENS; at += chunk) {
        int n = MIN(chunk, N_TOKENS - at);
        struct lm_run run = { .tokens = tokens + at,
            .n = n,
            .pos = at,
            .pages = pages,
            .n_logits = n,
            .state = state,
            .state_out = { chunk > STATE_LOG_ROWS && state.i == 0 } };
        state = run.state_out;
        if (is_layered) {
            struct lm_run first = run;
            first.n_logits = 0;
            first.end_layer = run.from_layer = m->n_layers / 2;
            EXPECT(m->ops->forward(m, &first, 1, NULL));
        }
        EXPECT(m->ops->forward(m, &run, 1, NULL));
        memcpy(out + (size_t)at * (size_t)m->n_vocab, run.logits,
            sizeof(float) * (size_t)n * (size_t)m->n_vocab);
    }
    return out;
}

enum { N_SEQUENCES = 2, SEQ_PAGES = N_TOKENS / PAGE_TOKENS + 1, SEQ_STATES = 2 };

static struct lm *open_lm(const struct gguf *g, const char *kernels, int n_threads)
{
    struct llama_options o = { .n_threads = n_threads,
        .n_pages = N_SEQUENCES * SEQ_PAGES,
        .n_states = N_SEQUENCES * SEQ_STATES,
        .max_rows = 64,
        .max_logits = 64 };
    struct lm *m = NULL;
    struct err e;

    if (kernels_choose(&o.kernels, kernels, &e) || lm_open_llama(&m, g, &o, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        fail();
    }
    return m;
}

static bool read_reference(const char *preset, float want[N_VALUES])
{
    char path[128];
    snprintf(path, sizeof(path), "tests/families/%s.f32", preset);
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(want, sizeof(*want), N_VALUES, f) : 0;

    if (f)
        fclose(f);
    return n == N_VALUES;
}

/* The bits depend neither on the chunks of the prompt nor on its division by layers, threads and
 * kernel sets. */
static void expect_same_bits(const struct gguf *g, const float *want)
{
    static const struct {
        const char *kernels;
        int n_threads, chunk;
        bool is_layered;
    } rows[] = {
        { NULL, 1, 64, true },
#ifndef __SANITIZE_ADDRESS__ /* takes half of the test's time; test_gemm and test_attn read the
                                same memory */
        { "ref", 3, 1, false },
#endif
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct lm *m = open_lm(g, rows[i].kernels, rows[i].n_threads);
        float *got = compute(m, rows[i].chunk, rows[i].is_layered);
        EXPECT(!memcmp(got, want, sizeof(*got) * (size_t)N_TOKENS * (size_t)m->n_vocab));
        mem_free(got);
        m->ops->close(m);
    }
}

/* ---- recurrent layers: two sequences whose states are resumed in every way that lm.h allows */

struct sequence {
    page_id pages[SEQ_PAGES];
    state_id own[SEQ_STATES]; /* slots to which its runs are written */
    state_id state;           /* slot of the last run, maybe of the other sequence */
    int pos;                  /* positions that are computed */
    int n_log;                /* the state can resume at pos - n_log .. pos */
    struct lm_run run;        /* run of this step */
    int32_t tokens[64];
};

/* A slot of the sequence other than the current one. */
static state_id free_slot(const struct sequence *s)
{
    return s->own[s->state.i == s->own[0].i];
}

/* A run of random length, whose last rows may be draft tokens that are rejected afterwards. A state
 * that another sequence shares is not changed. */
static void plan_run(struct rng *r, struct sequence *s, bool is_shared, int n_vocab)
{
    const bool is_short = rng_below(r, 3) > 0;
    int n = 1 + (int)rng_below(r, is_short ? STATE_LOG_ROWS : 30);

    s->pos -= (int)rng_below(r, (uint32_t)s->n_log + 1);
    n = MIN(n, N_TOKENS - s->pos);
    for (int i = 0; i < n; i++)
        s->tokens[i] = token_at(s->pos + i, n_vocab);
    s->run = (struct lm_run){ .tokens = s->tokens,
        .n = n,
        .pos = s->pos,
        .pages = s->pages,
        .n_logits = n,
        .state = s->pos ? s->state : STATE_NONE };
    const bool is_in_place = s->pos && !is_shared && n <= STATE_LOG_ROWS && rng_below(r, 2);
    s->run.state_out = is_in_place ? s->state : free_slot(s);
    s->state = s->run.state_out;
    s->n_log = MIN(n, STATE_LOG_ROWS);
    if (n > 1 && n < N_TOKENS - s->pos && rng_below(r, 3) == 0) { /* wrong tokens at the end */
        const int n_wrong = 1 + (int)rng_below(r, (uint32_t)MIN(n - 1, STATE_LOG_ROWS));
        for (int i = n - n_wrong; i < n; i++)
            s->tokens[i] = (s->tokens[i] + 1 + (int)rng_below(r, 40)) % n_vocab;
        s->run.n_logits = n; /* logits of the wrong tokens are not compared */
        s->n_log -= n_wrong;
        n -= n_wrong;
    }
    s->pos += n;
}

/* The runs in one pass, after a pass that is stopped at its first layer; or the last run in two
 * passes of some layers each. */
static void run_step(struct rng *r, struct lm *m, struct lm_run *runs, int n_runs)
{
    atomic_bool stop = true;
    struct lm_run *last = &runs[n_runs - 1];
    const int n_logits = last->n_logits, middle = 1 + (int)rng_below(r, (uint32_t)m->n_layers - 1);

    if (rng_below(r, 3) == 0)
        EXPECT(!m->ops->forward(m, runs, n_runs, &stop));
    if (rng_below(r, 3) > 0) {
        EXPECT(m->ops->forward(m, runs, n_runs, NULL));
        return;
    }
    last->end_layer = middle;
    last->n_logits = 0;
    EXPECT(m->ops->forward(m, last, 1, NULL));
    last->from_layer = middle;
    last->end_layer = 0;
    last->n_logits = n_logits;
    if (rng_below(r, 3) == 0)
        EXPECT(!m->ops->forward(m, last, 1, &stop) || middle == m->n_layers - 1);
    EXPECT(m->ops->forward(m, runs, n_runs, NULL));
}

/* b continues where a is: it shares the state until its next run, or gets a copy by way of a
 * record. */
static void fork_sequence(
    struct rng *r, struct lm *m, const struct sequence *a, struct sequence *b, uint8_t *record)
{
    for (int i = 0; i < SEQ_PAGES; i++)
        m->ops->copy_page(m, a->pages[i], b->pages[i]);
    b->pos = a->pos;
    b->n_log = a->n_log;
    b->state = a->state;
    if (!a->pos || rng_below(r, 2))
        return;
    m->ops->read_state(m, a->state, record);
    b->state = b->own[0];
    EXPECT(m->ops->write_state(m, b->state, record, b->pos) >= 0);
}

static void expect_run_logits(const struct lm *m, const struct sequence *s, const float *want)
{
    const size_t row = (size_t)m->n_vocab;
    const int n = s->pos - s->run.pos; /* without rejected tokens */

    EXPECT(
        !memcmp(s->run.logits, want + (size_t)s->run.pos * row, (size_t)n * row * sizeof(*want)));
}

static void expect_same_bits_of_states(const struct gguf *g, const float *want)
{
    enum { N_STEPS = 60 };
    struct rng r = { .key = 5 };
    struct lm *m = open_lm(g, NULL, 2);
    uint8_t *record = xmalloc(m->state_bytes);
    struct sequence seq[N_SEQUENCES] = { { .state = STATE_NONE }, { .state = STATE_NONE } };

    for (uint32_t i = 0; i < N_SEQUENCES; i++) {
        for (uint32_t j = 0; j < SEQ_PAGES; j++)
            seq[i].pages[j].i = i * SEQ_PAGES + j;
        for (uint32_t j = 0; j < SEQ_STATES; j++)
            seq[i].own[j].i = i * SEQ_STATES + j;
    }
    for (int step = 0; step < N_STEPS; step++) {
        struct lm_run runs[N_SEQUENCES];
        if (rng_below(&r, 8) == 0)
            fork_sequence(&r, m, &seq[0], &seq[1], record);
        const bool is_shared = seq[0].state.i == seq[1].state.i;
        for (int i = 0; i < N_SEQUENCES; i++) {
            if (seq[i].pos == N_TOKENS)
                seq[i].pos = seq[i].n_log = 0;
            plan_run(&r, &seq[i], is_shared, m->n_vocab);
            runs[i] = seq[i].run;
        }
        run_step(&r, m, runs, N_SEQUENCES);
        for (int i = 0; i < N_SEQUENCES; i++) {
            seq[i].run = runs[i];
            expect_run_logits(m, &seq[i], want);
        }
    }
    mem_free(record);
    m->ops->close(m);
}

static double difference(const char *preset)
{
    enum { CHUNK = 37 }; /* divides nothing */
    struct gguf *g = open_model(preset);
    struct lm *m = open_lm(g, NULL, 2);
    float want[N_VALUES], lo = INFINITY, hi = -INFINITY, most = 0;
    float *got = compute(m, CHUNK, false);

    EXPECT(read_reference(preset, want));
    for (int i = 0; i < N_VALUES; i++) {
        int pos = i / N_IDS * STEP, id = (pos * 13 + i % N_IDS * 41) % m->n_vocab;
        most = fmaxf(most, fabsf(got[(size_t)pos * (size_t)m->n_vocab + (size_t)id] - want[i]));
        lo = fminf(lo, want[i]);
        hi = fmaxf(hi, want[i]);
    }
    expect_same_bits(g, got);
    if (m->state_bytes)
        expect_same_bits_of_states(g, got);
    mem_free(got);
    m->ops->close(m);
    gguf_close(g);
    return (double)(most / (hi - lo));
}

static void each_family_agrees_with_the_reference(void)
{
    int n_failed = 0;

    for (size_t i = 0; synth_preset_name(i); i++) {
        const char *name = synth_preset_name(i);
        if (strncmp(name, "tiny-", 5) != 0)
            continue;
        double d = difference(name);
        printf("%-20s %.1e\n", name, d);
        n_failed += !(d < MAX_DIFFERENCE);
    }
    EXPECT_EQ(n_failed, 0);
}

/* The table of per-layer inputs is not packed: its rows are read from the file. */
static void a_table_in_the_file_is_read_after_the_caller_has_closed_it(void)
{
    enum { CHUNK = 64 };
    struct gguf *g = open_model("tiny-gemma4-e");
    struct lm *m = open_lm(g, NULL, 2);
    float *want = compute(m, CHUNK, false);

    EXPECT(m->table_file == g);
    gguf_close(g);
    float *got = compute(m, CHUNK, false);
    EXPECT(!memcmp(got, want, sizeof(*got) * (size_t)N_TOKENS * (size_t)m->n_vocab));
    EXPECT(!lm_is_file_lost(m));
    mem_free(got);
    mem_free(want);
    m->ops->close(m);
}

TESTS(TEST(each_family_agrees_with_the_reference),
    TEST(a_table_in_the_file_is_read_after_the_caller_has_closed_it))
