/* The model benchmark measures the requested cases, or reports why it cannot. */
#include "support/check.h"
#include "testing/bench.h"
#include "model/llama.h"
#include "support/tiny.h"

static struct lm *open_lm(const struct bench_case *c, uint32_t n_pages)
{
    struct gguf *g = tiny_open(&tiny_default);
    struct llama_options o = {
        .n_threads = 2, .n_pages = n_pages, .max_rows = 64, .max_logits = 8
    };
    struct lm *m;
    struct err e;

    EXPECT(n_pages >= bench_n_pages(c));
    EXPECT(!lm_open_llama(&m, g, &o, &e));
    gguf_close(g);
    return m;
}

static void figures_add_up(void)
{
    const struct bench_case c = { .n_ctx = 40, .n_seqs = 3, .n_rows = 1, .n_steps = 9 };
    const struct bench_roof roof = { .read_gb_s = 10, .dot_gmac_s = 100, .fma_gmac_s = 50 };
    struct lm *m = open_lm(&c, bench_n_pages(&c));
    struct bench_result f;
    struct err e;

    EXPECT(!bench_run(&f, m, &c, &roof, &e));
    EXPECT(f.step_ms > 0);
    EXPECT_EQ(f.n_cached, 0);
    EXPECT(fabs(f.tokens_s - 3 / (f.step_ms * 1e-3)) < 1e-6 * f.tokens_s);
    EXPECT(f.gb_s > (double)m->step_bytes / (f.step_ms * 1e-3) * 1e-9);
    EXPECT(fabs(f.read_share - f.gb_s / 10) < 1e-9);
    /* F32 weights use no integer dot product */
    EXPECT(fabs(f.compute_share - f.gmac_s / 50) < 1e-9);
    double least = 3 * (double)(m->row_macs + m->logit_macs + 40 * m->key_macs);
    EXPECT(f.gmac_s * 1e9 * f.step_ms * 1e-3 > least);
    m->ops->close(m);
}

/* The tokens of bench/compare_llama.py: tests/unit/test_compare.py has the same. */
static void tokens_equal_those_of_the_llama_cpp_comparison(void)
{
    EXPECT_EQ(bench_token(1, 0, 0, 128256), 29413);
    EXPECT_EQ(bench_token(1, 0, 511, 128256), 40836);
    EXPECT_EQ(bench_token(~5ull, 31, 4096, 1000), 181);
    EXPECT_EQ(bench_token((1ull << 60) - 1, 3, 7, 151936), 24596);
}

static void highest_measured_limit_counts_for_each_kind(void)
{
    const struct bench_roof a = { 1, 20, 3 }, b = { 10, 2, 3 };
    struct bench_roof r = bench_roof_max(a, b);

    EXPECT(r.read_gb_s == 10 && r.dot_gmac_s == 20 && r.fma_gmac_s == 3);
}

static void costs_follow_from_the_model_shape(void)
{
    const struct bench_case c = { .n_seqs = 1, .n_rows = 1, .n_steps = 1 };
    struct lm *m = open_lm(&c, 8);
    const struct tiny_model t = tiny_default;
    int q = t.heads * t.head_dim, kv = t.kv_heads * t.head_dim;

    EXPECT_EQ(m->row_macs, (uint64_t)(t.layers * t.d * (2 * q + 2 * kv + 3 * t.ff)));
    EXPECT_EQ(m->logit_macs, (uint64_t)(t.d * t.vocab));
    EXPECT_EQ(m->key_macs, (uint64_t)(2 * t.layers * q));
    EXPECT(m->step_bytes <= m->weight_bytes);
    EXPECT(!m->is_integer);
    m->ops->close(m);
}

static void case_that_does_not_fit_is_rejected(void)
{
    const struct bench_case c = { .n_ctx = 10, .n_seqs = 2, .n_rows = 4, .n_steps = 2 };
    const struct bench_case bad[] = { { .n_ctx = 10, .n_seqs = 2, .n_rows = 33, .n_steps = 2 },
        { .n_ctx = 10, .n_seqs = 9, .n_rows = 1, .n_steps = 2 },
        { .n_ctx = 100000, .n_seqs = 2, .n_rows = 4, .n_steps = 2 },
        { .n_ctx = -1, .n_seqs = 2, .n_rows = 4, .n_steps = 2 },
        { .n_ctx = 0, .n_seqs = 0, .n_rows = 4, .n_steps = 2 } };
    const struct bench_roof roof = { 0 };
    struct lm *m = open_lm(&c, bench_n_pages(&c));
    struct bench_result f;
    struct err e;

    EXPECT(!bench_run(&f, m, &c, &roof, &e));
    /* without a hardware limit there is no share */
    EXPECT(f.read_share == 0 && f.compute_share == 0);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        EXPECT(bench_run(&f, m, &bad[i], &roof, &e));
        EXPECT(e.code == ERR_RANGE);
    }
    m->ops->close(m);
}

static void measured_limits_are_positive(void)
{
    struct bench_roof roof;
    struct err e;

    EXPECT(!bench_measure_roof(&roof, 1, &e));
    EXPECT(roof.read_gb_s > 0.05);
    printf("read %.1f GB/s, dot %.0f, fma %.0f GMAC/s\n", roof.read_gb_s, roof.dot_gmac_s,
        roof.fma_gmac_s);
    EXPECT(roof.dot_gmac_s >= 0 && roof.fma_gmac_s >= 0);
}

TESTS(TEST(figures_add_up), TEST(tokens_equal_those_of_the_llama_cpp_comparison),
    TEST(highest_measured_limit_counts_for_each_kind), TEST(costs_follow_from_the_model_shape),
    TEST(case_that_does_not_fit_is_rejected), TEST(measured_limits_are_positive))
