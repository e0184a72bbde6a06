/* Draft model drafter: drafts over a fake model, with slots and KV pages. */
#include "engine/spec/draft_lm.h"
#include "base/rng.h"
#include "testing/fake.h"
#include "support/check.h"

enum { VOCAB = 30, CTX = 300, SEQS = 5 };

static int32_t tokens[SEQS][CTX + DRAFT_MAX];

struct draft_fixture {
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

static void open_fixture(struct draft_fixture *d, uint32_t n_pages, int n_slots)
{
    struct lm *lm;
    struct err e;

    *d = (struct draft_fixture){ .o = { .n_vocab = VOCAB,
                                     .n_ctx_train = CTX,
                                     .max_rows = 128,
                                     .n_pages = n_pages,
                                     .seed = 7 } };
    d->sample = sample_params_default;
    d->sample.seed = 11;
    EXPECT_EQ(lm_open_fake(&lm, &d->o, &e), 0);
    EXPECT_EQ(draft_lm_open(&d->d, lm, kernels(), n_slots, CTX, &e), 0);
}

static void close_fixture(struct draft_fixture *d)
{
    d->d->ops->close(d->d);
}

/* Token that the model itself samples next, computed without KV pages. */
static int32_t sample_directly(
    struct draft_fixture *d, struct sampler *s, const int32_t *t, int n, int choice)
{
    static uint64_t scratch[CTX + DRAFT_MAX];
    float logits[VOCAB];
    struct sample_past past = { t, 1, n };
    struct sampled out;

    fake_reference_logits(&d->o, t, n, scratch, logits);
    sampler_sample(s, &d->sample, &(struct logits){ .x = logits }, &past, choice, &out);
    return out.id;
}

static struct draft_job job_of(struct draft_fixture *d, int i, int n_max)
{
    return (struct draft_job){ .seq = &d->seq[i],
        .key = (uint64_t)i + 100,
        .tokens = tokens[i],
        .n = d->n[i],
        .n_prompt = 1,
        .sample = &d->sample,
        .choice = i,
        .n_max = n_max,
        .out = tokens[i] + d->n[i] };
}

/* Random sequences side by side, some tokens equal to the draft and some not, with more
 * sequences than slots and too few pages. All draft tokens equal the tokens that the model
 * samples. */
static void drafts_equal_the_samples_of_the_model(void)
{
    struct rng r = { .key = 1 };
    struct sampler *s;
    struct draft_fixture d;
    struct err e;
    int n_guessed = 0, n_asked = 0;

    EXPECT_EQ(sampler_open(&s, kernels(), VOCAB, &e), 0);
    open_fixture(&d, 2 * CTX / PAGE_TOKENS, 3);
    for (int i = 0; i < SEQS; i++)
        for (d.n[i] = 0; d.n[i] < 10 + 30 * i; d.n[i]++)
            tokens[i][d.n[i]] = (int32_t)rng_below(&r, VOCAB);
    for (int step = 0; step < 400; step++) {
        struct draft_job jobs[2];
        int n_jobs = 1 + (int)rng_below(&r, 2), first = (int)rng_below(&r, SEQS);
        for (int j = 0; j < n_jobs; j++) {
            int i = (first + j) % SEQS;
            if (d.n[i] > CTX - 20) { /* the sequence ends, and another one begins */
                d.d->ops->forget(d.d, (uint64_t)i + 100);
                d.n[i] = 10;
            }
            jobs[j] = job_of(&d, i, 1 + (int)rng_below(&r, 9));
            jobs[j].n_max = d.d->ops->offer(d.d, &jobs[j]);
            EXPECT(jobs[j].n_max > 0);
        }
        d.d->ops->propose(d.d, jobs, n_jobs, NULL);
        for (int j = 0; j < n_jobs; j++) {
            int i = (first + j) % SEQS, n_accepted = 0;
            EXPECT(jobs[j].n_out <= jobs[j].n_max);
            for (int k = 0; k < jobs[j].n_out; k++)
                EXPECT_EQ(jobs[j].out[k], sample_directly(&d, s, tokens[i], d.n[i] + k, i));
            n_guessed += jobs[j].n_out;
            n_asked += jobs[j].n_max;
            n_accepted = (int)rng_below(&r, (uint64_t)jobs[j].n_out + 1);
            d.n[i] += n_accepted;
            /* the sampled token differs from the draft */
            tokens[i][d.n[i]++] = (int32_t)rng_below(&r, VOCAB);
        }
    }
    EXPECT(n_guessed > n_asked / 2);
    close_fixture(&d);
    sampler_close(s);
}

static void interrupted_pass_leaves_no_state(void)
{
    _Atomic bool stop = true;
    struct sampler *s;
    struct draft_fixture d;
    struct err e;

    EXPECT_EQ(sampler_open(&s, kernels(), VOCAB, &e), 0);
    open_fixture(&d, CTX / PAGE_TOKENS + 1, 1);
    d.n[0] = 5;
    for (int step = 0; step < 20; step++) {
        struct draft_job job = job_of(&d, 0, 4);
        stop = step % 3 == 0;
        d.d->ops->propose(d.d, &job, 1, &stop);
        EXPECT_EQ(job.n_out, stop ? 0 : 4);
        for (int k = 0; k < job.n_out; k++)
            EXPECT_EQ(job.out[k], sample_directly(&d, s, tokens[0], d.n[0] + k, 0));
        d.n[0] += step % 4;
    }
    close_fixture(&d);
    sampler_close(s);
}

static void unknown_token_ends_drafting(void)
{
    struct draft_fixture d;

    open_fixture(&d, CTX / PAGE_TOKENS + 1, 1);
    d.n[0] = 5;
    memset(tokens[0], 0, sizeof(tokens[0]));
    tokens[0][3] = VOCAB; /* the target model has one token more */
    struct draft_job job = job_of(&d, 0, 4);
    d.d->ops->propose(d.d, &job, 1, NULL);
    EXPECT_EQ(job.n_out, 0);
    EXPECT_EQ(d.d->ops->offer(d.d, &job), 0);
    close_fixture(&d);
}

static void drafting_stops_at_the_end_of_its_context(void)
{
    struct draft_fixture d;

    open_fixture(&d, CTX / PAGE_TOKENS + 1, 1);
    d.n[0] = CTX - 2;
    struct draft_job job = job_of(&d, 0, 9);
    EXPECT_EQ(d.d->ops->offer(d.d, &job), 2);
    d.n[0] = CTX + 5;
    job = job_of(&d, 0, 9);
    EXPECT_EQ(d.d->ops->offer(d.d, &job), 0);
    close_fixture(&d);
}

TESTS(TEST(drafts_equal_the_samples_of_the_model), TEST(interrupted_pass_leaves_no_state),
    TEST(unknown_token_ends_drafting), TEST(drafting_stops_at_the_end_of_its_context))
