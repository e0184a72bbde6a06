/* Fake model: its logits depend on all earlier tokens, and only through the KV pages. */
#include "base/rng.h"
#include "support/check.h"
#include "testing/fake.h"

/* five pages and a token; at least 21 tokens, also with pages of two tokens */
enum { N = PAGE_TOKENS < 4 ? 21 : 5 * PAGE_TOKENS + 1, VOCAB = 48 };

static const struct fake_options options = {
    .n_vocab = VOCAB, .n_ctx_train = N, .max_rows = N, .n_pages = 16, .seed = 7
};

static int32_t tokens[N];
static page_id pages[] = { { 3 }, { 9 }, { 0 }, { 15 }, { 7 }, { 4 }, { 13 }, { 1 }, { 10 }, { 2 },
    { 6 } };

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
        page_id table[ARRAY_LEN(pages)];
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
    page_id table[ARRAY_LEN(pages)];

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

enum { N_LAYERS = 3, STATES = 4 };

/* A sequence of a model with state slots, as an engine would hold it. */
struct stateful {
    struct lm *m;
    state_id state;   /* slot that can resume at positions `from` to `pos` */
    state_id written; /* slot of an interrupted run; STATE_NONE: none */
    int pos, from;
};

static state_id other_slot(const struct stateful *s, struct rng *r)
{
    state_id slot;

    do
        slot.i = rng_below(r, STATES);
    while (slot.i == s->state.i);
    return slot;
}

/* One pass of n rows, the last n_wrong of which have other tokens (rejected draft tokens). It may
 * be stopped, and a run of all layers may be divided into partial runs. */
static bool run_stateful(
    struct stateful *s, int n, int n_wrong, bool is_stopped, struct rng *r, float *logits)
{
    int32_t row_tokens[N];
    _Atomic bool stop = is_stopped;
    struct lm_run run = { .tokens = row_tokens, .n = n, .pos = s->pos, .pages = pages };
    bool in_place =
        s->pos > 0 && n <= STATE_LOG_ROWS && rng_below(r, 2) && s->written.i == STATE_NONE.i;

    memcpy(row_tokens, tokens + s->pos, (size_t)n * sizeof(*tokens));
    for (int i = n - n_wrong; i < n; i++)
        row_tokens[i] = (row_tokens[i] + 1) % VOCAB;
    if (!in_place && s->written.i == STATE_NONE.i)
        s->written = other_slot(s, r);
    run.state = s->pos ? s->state : STATE_NONE;
    run.state_out = in_place ? s->state : s->written;
    if (in_place)
        s->from = s->pos;
    if (!is_stopped && rng_below(r, 3) == 0) {
        run.end_layer = 1 + (int)rng_below(r, N_LAYERS - 1);
        EXPECT(s->m->ops->forward(s->m, &run, 1, &stop));
        run.from_layer = run.end_layer;
        run.end_layer = N_LAYERS;
    }
    run.n_logits = n_wrong + 1;
    if (!s->m->ops->forward(s->m, &run, 1, &stop))
        return false;
    memcpy(logits, run.logits, VOCAB * sizeof(float));
    s->state = run.state_out;
    s->from = s->pos + MAX(n - (int)STATE_LOG_ROWS, 0);
    s->written = STATE_NONE;
    s->pos += n - n_wrong;
    return true;
}

static void state_slots_resume_after_any_run(void)
{
    struct fake_options o = options;
    struct rng r = { .key = 5 };
    struct err e;

    o.n_layers = N_LAYERS;
    o.n_states = STATES;
    write_tokens();
    for (int round = 0; round < 200; round++) {
        struct stateful s = { .state = STATE_NONE, .written = STATE_NONE };
        float a[VOCAB], b[VOCAB];
        uint64_t scratch[N];
        EXPECT_EQ(lm_open_fake(&s.m, &o, &e), 0);
        while (s.pos < N - 10) {
            int n = 1 + (int)rng_below(&r, rng_below(&r, 2) ? 8 : 40);
            int n_wrong = rng_below(&r, 2) ? (int)rng_below(&r, (uint32_t)MIN(n, 8)) : 0;
            n = MIN(n, N - s.pos);
            n_wrong = MIN(n_wrong, n - 1);
            if (!run_stateful(&s, n, n_wrong, rng_below(&r, 4) == 0, &r, a))
                continue;
            fake_reference_logits(&o, tokens, s.pos, scratch, b);
            EXPECT(!memcmp(a, b, sizeof(a)));
            int back = s.pos - s.from > 0 ? (int)rng_below(&r, (uint32_t)(s.pos - s.from) + 1) : 0;
            s.pos -= s.pos > back ? back : 0;
        }
        s.m->ops->close(s.m);
    }
}

static void a_stale_state_changes_the_logits(void)
{
    struct fake_options o = options;
    struct lm *m;
    struct err e;
    float b[VOCAB];
    uint64_t scratch[N];
    const struct lm_run row = { .n = 1, .pages = pages, .n_logits = 1, .state = { 0 } };

    o.n_states = STATES;
    write_tokens();
    tokens[2] = (tokens[1] + 1) % VOCAB;
    EXPECT_EQ(lm_open_fake(&m, &o, &e), 0);
    struct lm_run r = row;
    r.tokens = tokens;
    r.n = 2;
    r.state = STATE_NONE;
    EXPECT(m->ops->forward(m, &r, 1, NULL)); /* slot 0: tokens 0 and 1 */
    r = row;
    r.pos = 1;
    r.tokens = tokens + 2;
    EXPECT(m->ops->forward(m, &r, 1, NULL)); /* slot 0: tokens 0 and 2 */
    r.pos = 2;
    r.tokens = tokens + 3;
    EXPECT(m->ops->forward(m, &r, 1, NULL));
    const int32_t claimed[] = { tokens[0], tokens[1], tokens[3] };
    fake_reference_logits(&o, claimed, 3, scratch, b);
    EXPECT(memcmp(r.logits, b, sizeof(b)));
    m->ops->close(m);
}

static void a_read_state_can_be_written(void)
{
    struct fake_options o = options;
    struct lm *m;
    struct err e;
    uint8_t bytes[1024];
    float b[VOCAB];
    uint64_t scratch[N];

    o.n_states = STATES;
    write_tokens();
    EXPECT_EQ(lm_open_fake(&m, &o, &e), 0);
    EXPECT(m->state_bytes <= sizeof(bytes));
    struct lm_run r = { .tokens = tokens, .n = 20, .pages = pages, .state = STATE_NONE };
    EXPECT(m->ops->forward(m, &r, 1, NULL));
    m->ops->read_state(m, r.state_out, bytes);
    EXPECT_EQ(m->ops->write_state(m, (state_id){ 3 }, bytes, 21), -1);
    EXPECT_EQ(m->ops->write_state(m, (state_id){ 3 }, bytes, 11), -1);
    EXPECT_EQ(m->ops->write_state(m, (state_id){ 3 }, bytes, 20), 12);
    r = (struct lm_run){ .tokens = tokens + 15,
        .n = 1,
        .pos = 15,
        .pages = pages,
        .n_logits = 1,
        .state = { 3 },
        .state_out = { 3 } };
    EXPECT(m->ops->forward(m, &r, 1, NULL));
    fake_reference_logits(&o, tokens, 16, scratch, b);
    EXPECT(!memcmp(r.logits, b, sizeof(b)));
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
    TEST(state_slots_resume_after_any_run), TEST(a_stale_state_changes_the_logits),
    TEST(a_read_state_can_be_written), TEST(invalid_options_are_errors))
