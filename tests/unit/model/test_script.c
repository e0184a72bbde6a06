/* Script back end: size, and rejection of invalid options. */
#include "support/check.h"
#include "model/script.h"

static void script_model_has_a_size_and_computes_nothing(void)
{
    struct script_options o = { .n_vocab = 10, .n_ctx_train = 64, .max_rows = 8, .n_pages = 4 };
    int32_t token = 3;
    page_id page = { 2 };
    struct lm_run r = { .tokens = &token, .n = 1, .pages = &page };
    _Atomic bool stop = false;
    struct lm *m;
    struct err e;

    EXPECT_EQ(lm_open_script(&m, &o, &e), 0);
    EXPECT_EQ(m->n_vocab, 10);
    EXPECT_EQ(m->n_pages, 4u);
    EXPECT(m->ops->forward(m, &r, 1, &stop));
    EXPECT(m->ops->forward(m, &r, 1, NULL));
    EXPECT(!r.logits);
    stop = true;
    EXPECT(!m->ops->forward(m, &r, 1, &stop));
    m->ops->copy_page(m, page, (page_id){ 3 });
    m->ops->close(m);
}

static void invalid_options_are_errors(void)
{
    struct script_options o = { .n_vocab = 0, .n_ctx_train = 64, .max_rows = 8, .n_pages = 4 };
    struct lm *m;
    struct err e;

    EXPECT_EQ(lm_open_script(&m, &o, &e), -1);
    EXPECT(e.code == ERR_RANGE);
    o.n_vocab = 5;
    o.n_pages = 0;
    EXPECT_EQ(lm_open_script(&m, &o, &e), -1);
}

TESTS(TEST(script_model_has_a_size_and_computes_nothing), TEST(invalid_options_are_errors))
