/* Sparse output head: the needed logits have the same bits as with all panels, the others are not
 * computed; for every kernel set and several weight types, numbers of rows and threads. */
#include "base/rng.h"
#include "model/llama.h"
#include "model/sparse_head.h"
#include "support/check.h"
#include "support/tiny.h"

enum { VOCAB = 1003, N_ROWS = 20, N_PANELS = (VOCAB + LOGIT_PANEL - 1) / LOGIT_PANEL };

static float want[N_ROWS][VOCAB];
static int32_t tokens[N_ROWS];
static page_id pages[N_ROWS / PAGE_TOKENS + 1];

static struct lm *open_lm(const struct gguf *g, const char *kernels, int n_threads)
{
    struct llama_options o = { .n_threads = n_threads,
        .n_pages = 64 / PAGE_TOKENS,
        .max_rows = 2 * N_ROWS,
        .max_logits = N_ROWS };
    struct lm *m = NULL;
    struct err e;

    if (kernels_choose(&o.kernels, kernels, &e))
        return NULL; /* the processor lacks the instructions */
    EXPECT_EQ(lm_open_llama(&m, g, &o, &e), 0);
    return m;
}

static bool needs(const uint32_t *panels, int id)
{
    return panels[id / LOGIT_PANEL / 32] >> id / LOGIT_PANEL % 32 & 1;
}

static void run_forward(struct lm *m, struct lm_run *run, int n_logits, const uint32_t *panels)
{
    *run = (struct lm_run){
        .tokens = tokens, .n = N_ROWS, .pages = pages, .n_logits = n_logits, .panels = panels
    };
    EXPECT(m->ops->forward(m, run, 1, NULL));
}

static void make_panels(struct rng *r, uint32_t *panels, int chance)
{
    memset(panels, 0, (N_PANELS + 31) / 32 * sizeof(*panels));
    for (int p = 0; p < N_PANELS; p++)
        if (rng_below(r, 100) < (uint64_t)chance)
            panels[p / 32] |= 1u << p % 32;
}

/* Overwrites the logits of the last pass, then computes some panels. */
static void expect_needed_logits(
    struct lm *m, struct rng *r, const struct lm_run *whole, int n_logits, int chance)
{
    uint32_t panels[(N_PANELS + 31) / 32];
    struct lm_run run;
    int n_set = 0;

    for (int i = 0; i < n_logits; i++)
        for (int id = 0; id < VOCAB; id++)
            ((float *)(uintptr_t)whole->logits)[i * VOCAB + id] = -777;
    make_panels(r, panels, chance);
    for (int p = 0; p < N_PANELS; p++)
        n_set += panels[p / 32] >> p % 32 & 1;
    run_forward(m, &run, n_logits, panels);
    bool is_sparse = 2 * n_set <= N_PANELS;
    EXPECT_EQ(!run.peaks, is_sparse);
    for (int i = 0; i < n_logits; i++)
        for (int id = 0; id < VOCAB; id++) {
            float x = run.logits[i * VOCAB + id];
            if (!is_sparse || needs(panels, id))
                EXPECT(!memcmp(&x, &want[N_ROWS - n_logits + i][id], sizeof(x)));
            else
                EXPECT(x == -777);
        }
}

static void check_type(enum qtype type, const char *kernels)
{
    static const int chances[] = { 0, 2, 10, 40, 70, 100 };
    struct tiny_model t = tiny_default;
    struct rng r = { .key = 3 };
    struct lm_run run;

    t.type = t.type_v = type;
    t.d = t.ff = 256;
    t.head_dim = 64;
    t.vocab = VOCAB;
    struct gguf *g = tiny_open(&t);
    EXPECT(g);
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        struct lm *m = open_lm(g, kernels, n_threads);
        if (!m)
            break;
        run_forward(m, &run, N_ROWS, NULL);
        EXPECT(run.peaks);
        memcpy(want, run.logits, sizeof(want));
        for (size_t i = 0; i < ARRAY_LEN(chances); i++)
            for (int n_logits = 1; n_logits <= N_ROWS; n_logits += 6)
                expect_needed_logits(m, &r, &run, n_logits, chances[i]);
        m->ops->close(m);
    }
    gguf_close(g);
}

/* The sanitizers observe memory accesses, which are those of a few types and sets. */
#if defined(__SANITIZE_THREAD__)
enum { N_TYPES = 1, N_SETS = 1 };
#elif defined(__SANITIZE_ADDRESS__)
enum { N_TYPES = 2, N_SETS = 4 };
#else
enum { N_TYPES = 8, N_SETS = 5 };
#endif

static void needed_logits_have_the_same_bits(void)
{
    static const enum qtype types[] = { Q_Q4_K, Q_BF16, Q_F32, Q_F16, Q_Q4_0, Q_Q8_0, Q_Q6_K,
        Q_IQ4_NL };
    static const char *const kernels[] = { "avx2", "avxvnni", "avx512", "amx", "ref" };

    for (int i = 0; i < N_ROWS; i++)
        tokens[i] = i * 37 % VOCAB;
    for (size_t i = 0; i < ARRAY_LEN(pages); i++)
        pages[i].i = (uint32_t)i;
    for (int k = 0; k < N_SETS; k++)
        for (int i = 0; i < N_TYPES; i++)
            check_type(types[i], kernels[k]);
}

/* ---- the ranges */

static void ranges_cover_the_union_exactly(void)
{
    uint32_t sets[3][(N_PANELS + 31) / 32], all[(N_PANELS + 31) / 32];
    struct panel_range ranges[N_PANELS];
    struct sparse_head h = { all, ranges, 0 };
    struct rng r = { .key = 9 };

    for (int round = 0; round < 3000; round++) {
        bool covered[N_PANELS] = { false };
        struct lm_run runs[3] = { { 0 } };
        int n_set = 0, at = 0;
        for (int i = 0; i < 3; i++) {
            make_panels(&r, sets[i], (int)rng_below(&r, 30));
            runs[i] = (struct lm_run){ .n_logits = (int)rng_below(&r, 3),
                .panels = rng_below(&r, 20) ? sets[i] : NULL };
        }
        sparse_head_set(&h, runs, 3, VOCAB, 1 + round % 4);
        bool is_whole = true, wants_all = false;
        for (int i = 0; i < 3; i++) {
            is_whole &= runs[i].n_logits == 0;
            wants_all |= runs[i].n_logits > 0 && !runs[i].panels;
        }
        for (int p = 0; p < N_PANELS; p++)
            for (int i = 0; i < 3; i++)
                covered[p] |= runs[i].n_logits > 0 && runs[i].panels &&
                              needs(runs[i].panels, p * LOGIT_PANEL);
        for (int p = 0; p < N_PANELS; p++)
            n_set += covered[p];
        if (is_whole || wants_all || 2 * n_set > N_PANELS) {
            EXPECT_EQ(h.n_ranges, -1);
            continue;
        }
        for (int i = 0; i < h.n_ranges; i++) {
            EXPECT(ranges[i].from >= at && ranges[i].to > ranges[i].from);
            for (at = ranges[i].from; at < ranges[i].to; at++)
                EXPECT(covered[at] && n_set-- > 0);
        }
        EXPECT_EQ(n_set, 0);
    }
}

TESTS(TEST(ranges_cover_the_union_exactly), TEST(needed_logits_have_the_same_bits))
