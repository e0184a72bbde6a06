/* Fake model: its logits depend on all earlier tokens, and only through the KV pages. */
#include "support/check.h"
#include "testing/fake.h"

enum { N = 5 * PAGE_TOKENS + 1, VOCAB = 48 };

static const struct fake_options options = {
    .n_vocab = VOCAB, .n_ctx_train = N, .max_rows = N, .n_pages = 16, .seed = 7
};

static int32_t tokens[N];
static page_id pages[6] = { { 3 }, { 9 }, { 0 }, { 15 }, { 7 }, { 4 } };

static void write_tokens(void)
{
    for (int i = 0; i < N; i++)
        tokens[i] = (i * 31 + i / 7) % VOCAB;
}

static struct lm *open_model(void)
{
    struct lm *m;
    struct err e;

    EXPECT_EQ(lm_open_fake(&m, &options, &e), 0);
    write_tokens();
    return m;
}

static void run_prompt(struct lm *m, const page_id *table, int from, int to, float *logits)
{
    struct lm_run r = {
        .tokens = tokens + from, .n = to - from, .pos = from, .pages = table, .n_logits = 1
    };

    EXPECT(m->ops->forward(m, &r, 1, NULL));
    memcpy(logits, r.logits, VOCAB * sizeof(float));
}

static void expected_logits(float *logits, int n)
{
    uint64_t scratch[N];

    fake_reference_logits(&options, tokens, n, scratch, logits);
}

static void logits_equal_the_formula_for_any_chunks(void)
{
    float a[VOCAB], b[VOCAB];

    write_tokens();
    expected_logits(b, N);
    for (int chunk = 1; chunk <= N; chunk += 1 + chunk / 2) {
        struct lm *m = open_model();
        for (int at = 0; at < N; at += chunk)
            run_prompt(m, pages, at, at + chunk < N ? at + chunk : N, a);
        EXPECT(!memcmp(a, b, sizeof(a)));
        m->ops->close(m);
    }
}

static void every_earlier_token_changes_the_logits(void)
{
    float a[VOCAB], b[VOCAB];

    for (int i = 0; i < N; i++)
        tokens[i] = i % VOCAB;
    expected_logits(a, N);
    for (int i = 0; i < N; i++) {
        tokens[i] = (tokens[i] + 1) % VOCAB;
        expected_logits(b, N);
        EXPECT(memcmp(a, b, sizeof(a)));
        tokens[i] = (tokens[i] + VOCAB - 1) % VOCAB;
    }
}

static void a_wrong_page_changes_the_logits(void)
{
    float a[VOCAB], b[VOCAB];

    for (int wrong = 0; wrong < 5; wrong++) {
        struct lm *m = open_model();
        run_prompt(m, pages, 0, N - 1, a);
        page_id table[6];
        memcpy(table, pages, sizeof(table));
        table[wrong].i = 11; /* never written */
        run_prompt(m, table, N - 1, N, a);
        expected_logits(b, N);
        EXPECT(memcmp(a, b, sizeof(a)));
        m->ops->close(m);
    }
}

static void copied_page_gives_equal_logits(void)
{
    struct lm *m = open_model();
    float a[VOCAB], b[VOCAB];
    page_id table[6];

    memcpy(table, pages, sizeof(table));
    run_prompt(m, pages, 0, N - 2, a);
    table[4].i = 12;
    m->ops->copy_page(m, pages[4], table[4]);
    run_prompt(m, table, N - 2, N, a);
    expected_logits(b, N);
    EXPECT(!memcmp(a, b, sizeof(a)));
    m->ops->close(m);
}

static void logits_are_returned_for_the_requested_last_rows(void)
{
    struct lm *m = open_model();
    float b[VOCAB];
    struct lm_run r = { .tokens = tokens, .n = N, .pages = pages, .n_logits = 3 };

    EXPECT(m->ops->forward(m, &r, 1, NULL));
    for (int i = 0; i < 3; i++) {
        expected_logits(b, N - 2 + i);
        EXPECT(!memcmp(r.logits + i * VOCAB, b, sizeof(b)));
    }
    m->ops->close(m);
}

static void interrupted_pass_can_be_repeated(void)
{
    struct lm *m = open_model();
    float a[VOCAB], b[VOCAB];
    _Atomic bool stop = true;
    struct lm_run r = { .tokens = tokens + 4, .n = N - 5, .pos = 4, .pages = pages };

    run_prompt(m, pages, 0, N - 1, a);
    EXPECT(!m->ops->forward(m, &r, 1, &stop));
    run_prompt(m, pages, N - 1, N, a);
    expected_logits(b, N);
    EXPECT(memcmp(a, b, sizeof(a)));
    stop = false;
    EXPECT(m->ops->forward(m, &r, 1, &stop));
    run_prompt(m, pages, N - 1, N, a);
    EXPECT(!memcmp(a, b, sizeof(a)));
    m->ops->close(m);
}

static void invalid_options_are_errors(void)
{
    struct fake_options o = options;
    struct lm *m;
    struct err e;

    o.n_vocab = 1;
    EXPECT_EQ(lm_open_fake(&m, &o, &e), -1);
    EXPECT(e.code == ERR_RANGE);
}

TESTS(TEST(logits_equal_the_formula_for_any_chunks), TEST(every_earlier_token_changes_the_logits),
    TEST(a_wrong_page_changes_the_logits), TEST(copied_page_gives_equal_logits),
    TEST(logits_are_returned_for_the_requested_last_rows), TEST(interrupted_pass_can_be_repeated),
    TEST(invalid_options_are_errors))
