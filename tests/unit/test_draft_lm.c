#include "engine/spec/draft_lm.h"
#include "base/rng.h"
#include "testing/fake.h"
#include "../check.h"

enum { VOCAB = 30, CTX = 300, SEQS = 5 };

static int32_t tokens[SEQS][CTX + DRAFT_MOST];

struct desk {
    struct drafter *d;
    struct fake_options o;
    struct draft_seq seq[SEQS];
    struct sample_params sample;
    int n[SEQS];
};

static const struct kernels *kernels(void)
{
    const struct kernels *k;
    struct err e;

    EXPECT_EQ(kernels_choose(&k, "ref", &e), 0);
    return k;
}

static void open_desk(struct desk *d, uint32_t n_pages, int n_slots)
{
    struct lm *lm;
    struct err e;

    *d = (struct desk){ .o = { .n_vocab = VOCAB,
                            .n_ctx_train = CTX,
                            .max_rows = 128,
                            .n_pages = n_pages,
                            .seed = 7 } };
    d->sample = sample_params_default;
    d->sample.seed = 11;
    EXPECT_EQ(lm_open_fake(&lm, &d->o, &e), 0);
    EXPECT_EQ(draft_lm_open(&d->d, lm, kernels(), n_slots, CTX, &e), 0);
}

static void close_desk(struct desk *d)
{
    d->d->ops->close(d->d);
}

/* What the model itself would say next, computed without pages. */
static int32_t truth(struct desk *d, struct sampler *s, const int32_t *t, int n, int choice)
{
    static uint64_t scratch[CTX + DRAFT_MOST];
    float logits[VOCAB];
    struct sample_past past = { t, 1, n };
    struct sampled out;

    fake_logits(&d->o, t, n, scratch, logits);
    sampler_sample(s, &d->sample, &(struct logits){ .x = logits }, &past, choice, &out);
    return out.id;
}

static struct draft_job job_of(struct desk *d, int i, int most)
{
    return (struct draft_job){ .seq = &d->seq[i],
        .key = (uint64_t)i + 100,
        .tokens = tokens[i],
        .n = d->n[i],
        .n_prompt = 1,
        .sample = &d->sample,
        .choice = i,
        .most = most,
        .out = tokens[i] + d->n[i] };
}

/* Random sequences side by side: some tokens come as guessed, some do not; more sequences than
 * slots, fewer pages than they need. Whatever is guessed is what the model would say. */
static void what_it_guesses_is_what_its_model_says(void)
{
    struct rng r = { .key = 1 };
    struct sampler *s;
    struct desk d;
    struct err e;
    int n_guessed = 0, n_asked = 0;

    EXPECT_EQ(sampler_open(&s, kernels(), VOCAB, &e), 0);
    open_desk(&d, 2 * CTX / PAGE_TOKENS, 3);
    for (int i = 0; i < SEQS; i++)
        for (d.n[i] = 0; d.n[i] < 10 + 30 * i; d.n[i]++)
            tokens[i][d.n[i]] = (int32_t)rng_below(&r, VOCAB);
    for (int step = 0; step < 400; step++) {
        struct draft_job jobs[2];
        int n_jobs = 1 + (int)rng_below(&r, 2), first = (int)rng_below(&r, SEQS);
        for (int j = 0; j < n_jobs; j++) {
            int i = (first + j) % SEQS;
            if (d.n[i] > CTX - 20) { /* it ends, and another one begins */
                d.d->ops->forget(d.d, (uint64_t)i + 100);
                d.n[i] = 10;
            }
            jobs[j] = job_of(&d, i, 1 + (int)rng_below(&r, 9));
            jobs[j].most = d.d->ops->offer(d.d, &jobs[j]);
            EXPECT(jobs[j].most > 0);
        }
        d.d->ops->propose(d.d, jobs, n_jobs, NULL);
        for (int j = 0; j < n_jobs; j++) {
            int i = (first + j) % SEQS, n_right = 0;
            EXPECT(jobs[j].n_out <= jobs[j].most);
            for (int k = 0; k < jobs[j].n_out; k++)
                EXPECT_EQ(jobs[j].out[k], truth(&d, s, tokens[i], d.n[i] + k, i));
            n_guessed += jobs[j].n_out;
            n_asked += jobs[j].most;
            n_right = (int)rng_below(&r, (uint64_t)jobs[j].n_out + 1);
            d.n[i] += n_right;
            tokens[i][d.n[i]++] = (int32_t)rng_below(&r, VOCAB); /* something else came */
        }
    }
    EXPECT(n_guessed > n_asked / 2);
    close_desk(&d);
    sampler_close(s);
}

static void a_pass_that_is_interrupted_leaves_nothing_behind(void)
{
    _Atomic bool stop = true;
    struct sampler *s;
    struct desk d;
    struct err e;

    EXPECT_EQ(sampler_open(&s, kernels(), VOCAB, &e), 0);
    open_desk(&d, CTX / PAGE_TOKENS + 1, 1);
    d.n[0] = 5;
    for (int step = 0; step < 20; step++) {
        struct draft_job job = job_of(&d, 0, 4);
        stop = step % 3 == 0;
        d.d->ops->propose(d.d, &job, 1, &stop);
        EXPECT_EQ(job.n_out, stop ? 0 : 4);
        for (int k = 0; k < job.n_out; k++)
            EXPECT_EQ(job.out[k], truth(&d, s, tokens[0], d.n[0] + k, 0));
        d.n[0] += step % 4;
    }
    close_desk(&d);
    sampler_close(s);
}

static void tokens_it_does_not_have_end_its_help(void)
{
    struct desk d;

    open_desk(&d, CTX / PAGE_TOKENS + 1, 1);
    d.n[0] = 5;
    memset(tokens[0], 0, sizeof(tokens[0]));
    tokens[0][3] = VOCAB; /* the larger model has one more */
    struct draft_job job = job_of(&d, 0, 4);
    d.d->ops->propose(d.d, &job, 1, NULL);
    EXPECT_EQ(job.n_out, 0);
    EXPECT_EQ(d.d->ops->offer(d.d, &job), 0);
    close_desk(&d);
}

static void it_stops_where_its_context_ends(void)
{
    struct desk d;

    open_desk(&d, CTX / PAGE_TOKENS + 1, 1);
    d.n[0] = CTX - 2;
    struct draft_job job = job_of(&d, 0, 9);
    EXPECT_EQ(d.d->ops->offer(d.d, &job), 2);
    d.n[0] = CTX + 5;
    job = job_of(&d, 0, 9);
    EXPECT_EQ(d.d->ops->offer(d.d, &job), 0);
    close_desk(&d);
}

TESTS(TEST(what_it_guesses_is_what_its_model_says),
    TEST(a_pass_that_is_interrupted_leaves_nothing_behind),
    TEST(tokens_it_does_not_have_end_its_help), TEST(it_stops_where_its_context_ends))
