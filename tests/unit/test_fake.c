#include "../check.h"
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

static struct lm *model(void)
{
    struct lm *m;
    struct err e;

    EXPECT_EQ(lm_open_fake(&m, &options, &e), 0);
    write_tokens();
    return m;
}

static void run(struct lm *m, const page_id *table, int from, int to, float *logits)
{
    struct lm_run r = {
        .tokens = tokens + from, .n = to - from, .pos = from, .pages = table, .n_logits = 1
    };

    EXPECT(m->ops->forward(m, &r, 1, NULL));
    memcpy(logits, r.logits, VOCAB * sizeof(float));
}

static void want(float *logits, int n)
{
    uint64_t scratch[N];

    fake_logits(&options, tokens, n, scratch, logits);
}

static void agrees_with_the_formula_however_the_prompt_is_cut(void)
{
    float a[VOCAB], b[VOCAB];

    write_tokens();
    want(b, N);
    for (int chunk = 1; chunk <= N; chunk += 1 + chunk / 2) {
        struct lm *m = model();
        for (int at = 0; at < N; at += chunk)
            run(m, pages, at, at + chunk < N ? at + chunk : N, a);
        EXPECT(!memcmp(a, b, sizeof(a)));
        m->ops->close(m);
    }
}

static void every_token_before_counts(void)
{
    float a[VOCAB], b[VOCAB];

    for (int i = 0; i < N; i++)
        tokens[i] = i % VOCAB;
    want(a, N);
    for (int i = 0; i < N; i++) {
        tokens[i] = (tokens[i] + 1) % VOCAB;
        want(b, N);
        EXPECT(memcmp(a, b, sizeof(a)));
        tokens[i] = (tokens[i] + VOCAB - 1) % VOCAB;
    }
}

static void a_wrong_page_changes_the_logits(void)
{
    float a[VOCAB], b[VOCAB];

    for (int wrong = 0; wrong < 5; wrong++) {
        struct lm *m = model();
        run(m, pages, 0, N - 1, a);
        page_id table[6];
        memcpy(table, pages, sizeof(table));
        table[wrong].i = 11; /* never written */
        run(m, table, N - 1, N, a);
        want(b, N);
        EXPECT(memcmp(a, b, sizeof(a)));
        m->ops->close(m);
    }
}

static void a_copied_page_is_as_good_as_the_first(void)
{
    struct lm *m = model();
    float a[VOCAB], b[VOCAB];
    page_id table[6];

    memcpy(table, pages, sizeof(table));
    run(m, pages, 0, N - 2, a);
    table[4].i = 12;
    m->ops->copy_page(m, pages[4], table[4]);
    run(m, table, N - 2, N, a);
    want(b, N);
    EXPECT(!memcmp(a, b, sizeof(a)));
    m->ops->close(m);
}

static void logits_come_for_the_last_rows_asked_for(void)
{
    struct lm *m = model();
    float b[VOCAB];
    struct lm_run r = { .tokens = tokens, .n = N, .pages = pages, .n_logits = 3 };

    EXPECT(m->ops->forward(m, &r, 1, NULL));
    for (int i = 0; i < 3; i++) {
        want(b, N - 2 + i);
        EXPECT(!memcmp(r.logits + i * VOCAB, b, sizeof(b)));
    }
    m->ops->close(m);
}

static void an_interrupted_pass_leaves_rubbish_and_can_be_repeated(void)
{
    struct lm *m = model();
    float a[VOCAB], b[VOCAB];
    _Atomic bool stop = true;
    struct lm_run r = { .tokens = tokens + 4, .n = N - 5, .pos = 4, .pages = pages };

    run(m, pages, 0, N - 1, a);
    EXPECT(!m->ops->forward(m, &r, 1, &stop));
    run(m, pages, N - 1, N, a);
    want(b, N);
    EXPECT(memcmp(a, b, sizeof(a)));
    stop = false;
    EXPECT(m->ops->forward(m, &r, 1, &stop));
    run(m, pages, N - 1, N, a);
    EXPECT(!memcmp(a, b, sizeof(a)));
    m->ops->close(m);
}

static void nonsense_options_are_errors(void)
{
    struct fake_options o = options;
    struct lm *m;
    struct err e;

    o.n_vocab = 1;
    EXPECT_EQ(lm_open_fake(&m, &o, &e), -1);
    EXPECT(e.code == ERR_RANGE);
}

TESTS(TEST(agrees_with_the_formula_however_the_prompt_is_cut), TEST(every_token_before_counts),
    TEST(a_wrong_page_changes_the_logits), TEST(a_copied_page_is_as_good_as_the_first),
    TEST(logits_come_for_the_last_rows_asked_for),
    TEST(an_interrupted_pass_leaves_rubbish_and_can_be_repeated), TEST(nonsense_options_are_errors))
