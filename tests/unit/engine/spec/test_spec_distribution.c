/* One million draws over 32 tokens with draft tokens in every step: the frequency of each token
 * equals its probability, whatever was drafted at its position, and also where the draft was
 * accepted. */
#include "base/mem.h"
#include "base/rng.h"
#include "engine/core.h"
#include "support/check.h"

#include <math.h>

enum { VOCAB = 32, OUT = 4000, STREAMS = 8, DRAWS = 1000000, ROWS = 256 };

/* For 31 degrees of freedom, exceeded once in 10,000 times. The seeds are fixed. */
static const double chi_square_most = 69.0;

static float logits[ROWS][VOCAB];
static double share[VOCAB];

static void make_random_odds(float temperature)
{
    struct rng r = { .key = 12 };
    double sum = 0;

    for (int i = 0; i < VOCAB; i++)
        logits[0][i] = (float)rng_next_unit(&r) * 3.0f;
    for (int i = 1; i < ROWS; i++)
        memcpy(logits[i], logits[0], sizeof(logits[0]));
    for (int i = 0; i < VOCAB; i++)
        sum += exp((double)logits[0][i] / temperature);
    for (int i = 0; i < VOCAB; i++)
        share[i] = exp((double)logits[0][i] / temperature) / sum;
}

/* ---- a model with constant logits */

static bool forward(struct lm *m, struct lm_run *runs, int n_runs, const _Atomic bool *stop)
{
    int n = 0;

    for (int i = 0; i < n_runs; i++) {
        CHECK(n + runs[i].n_logits <= ROWS);
        runs[i].logits = logits[n];
        n += runs[i].n_logits;
    }
    return true;
}

static void close_lm(struct lm *m)
{
}

static const struct lm_ops ops = {
    .forward = forward, .copy_page = lm_copy_page, .clear_page = lm_clear_page, .close = close_lm
};
static struct lm constant_model = { .ops = &ops,
    .n_vocab = VOCAB,
    .n_ctx_train = OUT + 1,
    .max_rows = ROWS,
    .max_logits = ROWS,
    .n_pages = 2 * STREAMS * (OUT / PAGE_TOKENS + 1) };

/* ---- a drafter that proposes random tokens, mostly likely ones, and records them */

static int8_t drafted[STREAMS][OUT]; /* -1: no draft */
static struct rng draft_rng;

static int random_offer(struct drafter *d, struct draft_job *job)
{
    job->source = DRAFT_HISTORY_LONG;
    return job->n_max;
}

static void random_propose(
    struct drafter *d, struct draft_job *jobs, int n_jobs, const _Atomic bool *stop)
{
    for (int j = 0; j < n_jobs; j++)
        for (int i = 0; i < jobs[j].n_max; i++) {
            int at = jobs[j].n - jobs[j].n_prompt + i;
            int32_t draft = (int32_t)rng_below(&draft_rng, VOCAB);
            if (share[draft] < 1.0 / VOCAB)
                draft = (int32_t)rng_below(&draft_rng, VOCAB);
            jobs[j].out[jobs[j].n_out++] = draft;
            drafted[*(int *)jobs[j].user][at] = (int8_t)draft;
        }
}

static void random_forget(struct drafter *d, uint64_t key)
{
}

static void close_drafter(struct drafter *d)
{
}

static const struct draft_ops drafter_ops = { random_offer, random_propose, random_forget,
    close_drafter };
static struct drafter drafter = { &drafter_ops };

/* ---- counting */

static uint64_t drawn[VOCAB];                 /* all tokens */
static uint64_t drawn_by_draft[VOCAB][VOCAB]; /* counts for each drafted token */
static uint64_t n_drawn, n_at[VOCAB], n_undrafted;

static void count_draw(int stream, int at, int32_t token)
{
    int draft = drafted[stream][at];

    drawn[token]++;
    n_drawn++;
    if (draft < 0) {
        n_undrafted++;
        return;
    }
    drawn_by_draft[draft][token]++;
    n_at[draft]++;
}

static double chi_square(const uint64_t *n, uint64_t all)
{
    double sum = 0;

    for (int i = 0; i < VOCAB; i++) {
        double want = share[i] * (double)all, off = (double)n[i] - want;
        sum += off * off / want;
    }
    return sum;
}

static int read_events(struct mailbox *box)
{
    struct msg *next;
    int n_over = 0;

    for (struct msg *m = mailbox_drain(box); m; m = next) {
        next = m->next;
        struct gen_event *ev = container_of(m, struct gen_event, msg);
        struct gen *g = ev->gen;
        int stream = *(int *)gen_user(g);
        if (m->kind == GEN_TOKEN) {
            count_draw(stream, ev->index, ev->token.id);
            drafted[stream][ev->index] = -1;
        }
        gen_event_done(ev);
        if (m->kind == GEN_END) {
            gen_free(g);
            n_over++;
        }
    }
    return n_over;
}

static void submit(
    struct submit_queue *queue, struct mailbox *box, int *stream, uint64_t seed, float t)
{
    static const int32_t prompt[] = { 0 };
    struct gen_input in = { .cache_prompt = true,
        .prompt = prompt,
        .n_prompt = 1,
        .max_tokens = OUT,
        .n_choices = 1,
        .sample = sample_params_default };
    struct gen *g;
    struct err e;

    in.sample.seed = seed;
    in.sample.temperature = t;
    memset(drafted[*stream], -1, sizeof(drafted[*stream]));
    EXPECT_EQ(gen_new(&g, &in, box, stream, &e), 0);
    EXPECT_EQ(submit_queue_submit(queue, g, 0, &e), 0);
}

static void run_draws(float temperature)
{
    static int streams[STREAMS];
    struct engine_options o = engine_options_default;
    const struct kernels *k;
    struct mailbox *box;
    struct submit_queue *queue;
    struct core *c;
    struct err e;
    uint64_t seed = 1;

    o.max_batch = o.max_sequences = STREAMS;
    o.prefill_chunk = 16;
    o.spec = (struct spec_options){ .max = 5, .min = 5, .drafter = &drafter };
    EXPECT_EQ(kernels_choose(&k, NULL, &e), 0);
    EXPECT_EQ(submit_queue_open(&queue, &e), 0);
    EXPECT_EQ(core_open(&c, &constant_model, k, &o, queue, &e), 0);
    EXPECT_EQ(mailbox_open(&box, &e), 0);
    for (int i = 0; n_drawn < DRAWS; i = 0) {
        for (; i < STREAMS; i++) {
            streams[i] = i;
            submit(queue, box, &streams[i], seed++, temperature);
        }
        for (int n_over = 0; n_over < STREAMS; n_over += read_events(box)) {
            core_drain(c, 0);
            core_step(c, 0);
        }
    }
    core_drain(c, 0);
    printf("temperature %.1f: %lu draws, %lu of %lu draft tokens accepted\n", (double)temperature,
        (unsigned long)n_drawn, (unsigned long)draft_sum(&queue->stats).accepted,
        (unsigned long)draft_sum(&queue->stats).drafted);
    core_close(c);
    submit_queue_unref(queue);
    mailbox_close(box);
}

static void check_draws(float temperature)
{
    double all;

    memset(drawn, 0, sizeof(drawn));
    memset(drawn_by_draft, 0, sizeof(drawn_by_draft));
    memset(n_at, 0, sizeof(n_at));
    n_drawn = n_undrafted = 0;
    draft_rng = (struct rng){ .key = 77 };
    make_random_odds(temperature);
    run_draws(temperature);
    all = chi_square(drawn, n_drawn);
    printf("chi-square of all: %.1f\n", all);
    EXPECT(all < chi_square_most);
    for (int g = 0; g < VOCAB; g++) {
        if (n_at[g] * share[g] < 100)
            continue; /* too few draws for a test */
        double x = chi_square(drawn_by_draft[g], n_at[g]);
        EXPECT(x < chi_square_most);
    }
    EXPECT(n_undrafted < n_drawn / 2);
}

static void million_draws_follow_the_model(void)
{
    check_draws(1.0f);
}

TESTS(TEST(million_draws_follow_the_model))
