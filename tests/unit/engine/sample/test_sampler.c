/* Sampler compared with a slow reference in double precision, and edge cases. */
#include "base/mem.h"
#include "base/rng.h"
#include "engine/sample/sampler.h"
#include "engine/sample/select.h"
#include "support/check.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

enum { MAX_VOCAB = 3000 };

static int vocab; /* size of the vocabulary of the sampler opened last */

static struct sampler *open_sampler(int n_vocab)
{
    const struct kernels *k;
    struct sampler *s;
    struct err e;

    EXPECT_EQ(kernels_choose(&k, "ref", &e), 0);
    EXPECT_EQ(sampler_open(&s, k, n_vocab, &e), 0);
    vocab = n_vocab;
    return s;
}

/* Group maxima, as a model provides them. */
static const float *peaks_of(const float *x)
{
    static float peak[(MAX_VOCAB + LOGIT_GROUP - 1) / LOGIT_GROUP];

    for (int g = 0; g < logit_groups(vocab); g++) {
        peak[g] = -INFINITY;
        for (int id = g * LOGIT_GROUP; id < MIN((g + 1) * LOGIT_GROUP, vocab); id++)
            peak[g] = x[id] > peak[g] ? x[id] : peak[g];
    }
    return peak;
}

/* Samples with and without group maxima: these affect only the time. */
static struct sampled sample(struct sampler *s, const struct sample_params *p, const float *logits,
    int choice, const struct sample_past *past)
{
    static const struct sample_past none;
    struct sampled out, same;

    memset(&out, 0x5a, sizeof(out));
    sampler_sample(s, p, &(struct logits){ .x = logits }, past ? past : &none, choice, &out);
    sampler_sample(
        s, p, &(struct logits){ logits, peaks_of(logits) }, past ? past : &none, choice, &same);
    EXPECT_EQ(same.id, out.id);
    EXPECT_EQ(same.logprob, out.logprob);
    EXPECT(same.n_top == out.n_top &&
           !memcmp(same.top, out.top, sizeof(out.top[0]) * (size_t)out.n_top));
    return out;
}

static int32_t sample_once(struct sampler *s, const struct sample_params *p, const float *logits)
{
    return sample(s, p, logits, 0, NULL).id;
}

/* ---- reference sampler in double precision, with its own sorting and exp */

struct reference {
    int n;
    int id[MAX_VOCAB];
    double x[MAX_VOCAB], w[MAX_VOCAB], rank[MAX_VOCAB];
    double margin; /* distance of the closest decision to the other result */
};

static struct reference *sorting;

static int by_rank(const void *a, const void *b)
{
    int i = *(const int *)a, j = *(const int *)b;

    if (sorting->rank[i] != sorting->rank[j])
        return sorting->rank[i] > sorting->rank[j] ? -1 : 1;
    return i - j;
}

static void reference_margin(struct reference *s, double a, double b)
{
    s->margin = fmin(s->margin, fabs(a - b));
}

static void reference_weigh(struct reference *s, double temperature)
{
    double max = -INFINITY, sum = 0;

    for (int i = 0; i < s->n; i++)
        max = fmax(max, s->x[i]);
    for (int i = 0; i < s->n; i++)
        sum += s->w[i] = exp((s->x[i] - max) / temperature);
    for (int i = 0; i < s->n; i++)
        s->w[i] /= sum;
}

/* Keeps the best by rank until `mass` of the weight, or `most` of them, is reached. */
static void reference_keep(struct reference *s, double mass, int most)
{
    int order[MAX_VOCAB], n = 0;
    bool keep[MAX_VOCAB] = { 0 };
    double sum = 0;

    for (int i = 0; i < s->n; i++)
        order[i] = i;
    sorting = s;
    qsort(order, (size_t)s->n, sizeof(*order), by_rank);
    for (int i = 0; i < s->n && i < most; i++) {
        keep[order[i]] = true;
        sum += s->w[order[i]];
        if (mass < 2)
            reference_margin(s, sum, mass);
        if (sum >= mass)
            break;
    }
    for (int i = 0; i < s->n; i++)
        if (keep[i]) {
            s->id[n] = s->id[i];
            s->x[n++] = s->x[i];
        }
    s->n = n;
}

static void reference_filter(struct reference *s, const struct sample_params *p)
{
    if (p->top_k > 0) {
        memcpy(s->rank, s->x, sizeof(s->rank));
        reference_keep(s, 3, p->top_k);
    }
    if (p->typical_p < 1) {
        double entropy = 0;
        reference_weigh(s, 1);
        for (int i = 0; i < s->n; i++)
            entropy -= s->w[i] > 0 ? s->w[i] * log(s->w[i]) : 0;
        for (int i = 0; i < s->n; i++)
            s->rank[i] = -(float)fabs(-log(s->w[i]) - entropy);
        reference_keep(s, p->typical_p, s->n);
    }
    if (p->top_p < 1) {
        reference_weigh(s, 1);
        memcpy(s->rank, s->x, sizeof(s->rank));
        reference_keep(s, p->top_p, s->n);
    }
    if (p->min_p > 0) {
        double max = 0;
        int n = 0;
        reference_weigh(s, 1);
        for (int i = 0; i < s->n; i++)
            max = fmax(max, s->w[i]);
        for (int i = 0; i < s->n; i++) {
            reference_margin(s, s->w[i], max * p->min_p);
            if (s->w[i] >= max * p->min_p) {
                s->id[n] = s->id[i];
                s->x[n++] = s->x[i];
            }
        }
        s->n = n;
    }
}

static double reference_adjusted(
    const struct sample_params *p, float logit, int id, const struct sample_past *h)
{
    double x = logit;
    int n_before = 0, n_out = 0;

    for (int i = 0; i < p->n_bias; i++)
        if (p->bias[i].id == id)
            x = p->bias[i].bias <= -100 ? -INFINITY : (float)(x + p->bias[i].bias);
    for (int i = 0; i < h->n; i++) {
        n_before += h->tokens[i] == id && (p->repeat_last_n < 0 || i >= h->n - p->repeat_last_n);
        n_out += h->tokens[i] == id && i >= h->n_prompt;
    }
    if (n_before)
        x = x > 0 ? (float)(x / p->repeat_penalty) : (float)(x * p->repeat_penalty);
    if (n_out)
        x = (float)(x - (p->presence_penalty + p->frequency_penalty * (float)n_out));
    return x;
}

static int reference_sample(struct reference *s, const struct sample_params *p, const float *logits,
    int n_vocab, const struct sample_past *h)
{
    s->n = 0;
    s->margin = 1;
    for (int id = 0; id < n_vocab; id++) {
        double x = reference_adjusted(p, logits[id], id, h);
        if (x > -INFINITY) {
            s->id[s->n] = id;
            s->x[s->n++] = x;
        }
    }
    reference_filter(s, p);
    reference_weigh(s, p->temperature);
    double u = rng_unit(rng_at(p->seed, 0, (uint64_t)h->n), 0), sum = 0;
    for (int i = 0; i < s->n; i++) {
        sum += s->w[i];
        if (i + 1 < s->n)
            reference_margin(s, sum, u);
        if (sum > u)
            return s->id[i];
    }
    return s->id[s->n - 1];
}

static void random_logits(struct rng *r, float *x, int n, float spread)
{
    for (int i = 0; i < n; i++) {
        double u = rng_next_unit(r) + rng_next_unit(r) + rng_next_unit(r) - 1.5;
        x[i] = (float)u * spread;
        if (rng_below(r, 8) == 0)
            x[i] = rintf(x[i]); /* some equal values */
    }
}

static void compare_with_reference(uint64_t seed, void (*set)(struct sample_params *, struct rng *))
{
    enum { ROUNDS = 150 };
    static struct reference reference;
    static float x[MAX_VOCAB];
    static int32_t past[64];
    int n_compared = 0;
    struct rng r = { .key = seed };

    for (int i = 0; i < ROUNDS; i++) {
        int n_vocab = i % 5 ? 2 + (int)rng_below(&r, 300) : 2000 + (int)rng_below(&r, 1000);
        struct sampler *s = open_sampler(n_vocab);
        struct sample_params p = sample_params_default;
        int n = (int)rng_below(&r, 64), n_prompt = (int)rng_below(&r, (uint64_t)n + 1);
        struct sample_past h = { past, n_prompt, n };
        for (int j = 0; j < n; j++)
            past[j] = (int32_t)rng_below(&r, (uint64_t)n_vocab);
        random_logits(&r, x, n_vocab, (float)(1 + rng_below(&r, 12)));
        p.seed = rng_next(&r);
        set(&p, &r);
        int got = sample(s, &p, x, 0, &h).id;
        int want = reference_sample(&reference, &p, x, n_vocab, &h);
        sampler_close(s);
        if (reference.margin < 1e-6)
            continue; /* float and double may differ here */
        n_compared++;
        if (got != want)
            fprintf(stderr, "seed %lu round %d\n", (unsigned long)seed, i);
        EXPECT_EQ(got, want);
    }
    EXPECT(n_compared > ROUNDS * 8 / 10);
}

static void set_nothing(struct sample_params *p, struct rng *r)
{
}

static void set_temperature(struct sample_params *p, struct rng *r)
{
    p->temperature = 0.05f + 2 * (float)rng_next_unit(r);
}

static void set_top_k(struct sample_params *p, struct rng *r)
{
    p->top_k = 1 + (int)rng_below(r, 400); /* often more than there are */
}

static void set_top_p(struct sample_params *p, struct rng *r)
{
    p->top_p = (float)rng_next_unit(r);
}

static void set_min_p(struct sample_params *p, struct rng *r)
{
    p->min_p = (float)rng_next_unit(r) * (rng_below(r, 2) ? 1.0f : 0.02f);
}

static void set_typical(struct sample_params *p, struct rng *r)
{
    p->typical_p = 0.05f + 0.9f * (float)rng_next_unit(r);
}

static void set_repeat(struct sample_params *p, struct rng *r)
{
    p->repeat_penalty = 0.5f + (float)rng_next_unit(r);
    p->repeat_last_n = (int)rng_below(r, 80) - 1;
}

static void set_presence(struct sample_params *p, struct rng *r)
{
    p->presence_penalty = 4 * (float)rng_next_unit(r) - 2;
    p->frequency_penalty = 4 * (float)rng_next_unit(r) - 2;
}

static struct token_bias bias[3];

static void set_bias(struct sample_params *p, struct rng *r)
{
    for (int i = 0; i < 3; i++)
        bias[i] = (struct token_bias){ i, (float)rng_below(r, 3) * 60 - 100 };
    p->bias = bias;
    p->n_bias = 3;
}

static void set_everything(struct sample_params *p, struct rng *r)
{
    set_temperature(p, r);
    set_top_k(p, r);
    set_typical(p, r);
    set_top_p(p, r);
    set_min_p(p, r);
    set_repeat(p, r);
    set_presence(p, r);
    p->bias = NULL;
}

static void each_parameter_agrees_with_the_reference_sampler(void)
{
    void (*const sets[])(struct sample_params *, struct rng *) = { set_nothing, set_temperature,
        set_top_k, set_top_p, set_min_p, set_typical, set_repeat, set_presence, set_bias,
        set_everything };

    for (size_t i = 0; i < ARRAY_LEN(sets); i++)
        compare_with_reference(100 + i, sets[i]);
}

/* ---- distribution */

static double chi_square(struct sampler *s, const struct sample_params *base, const float *x,
    const double *want, int n_draws)
{
    enum { N = 32 };
    int got[N] = { 0 };
    double sum = 0;
    struct sample_params p = *base;

    for (int i = 0; i < n_draws; i++) {
        p.seed = (uint64_t)i / 4;
        got[sample(s, &p, x, i % 4, NULL).id]++;
    }
    for (int i = 0; i < N; i++) {
        double expected = want[i] * n_draws;
        if (expected == 0) {
            EXPECT_EQ(got[i], 0);
            continue;
        }
        EXPECT(expected > 5);
        sum += (got[i] - expected) * (got[i] - expected) / expected;
    }
    return sum;
}

/* 31 degrees of freedom: 61.1 is exceeded once in a thousand. The seeds are fixed, so the result
 * is always the same. */
static void draws_follow_the_distribution(void)
{
    enum { N = 32, DRAWS = 100000 };
    const float temperatures[] = { 0.5f, 1.0f, 1.7f };
    struct sampler *s = open_sampler(N);
    float x[N];
    double want[N];
    struct rng r = { .key = 3 };

    for (size_t t = 0; t < ARRAY_LEN(temperatures); t++) {
        struct sample_params p = sample_params_default;
        double sum = 0;
        p.temperature = temperatures[t];
        for (int i = 0; i < N; i++)
            x[i] = (float)rng_next_unit(&r) * 3;
        for (int i = 0; i < N; i++)
            sum += want[i] = exp(x[i] / p.temperature);
        for (int i = 0; i < N; i++)
            want[i] /= sum;
        EXPECT(chi_square(s, &p, x, want, DRAWS) < 61.1);
    }
    sampler_close(s);
}

static void draws_after_filters_are_renormalised(void)
{
    enum { N = 32, DRAWS = 50000 };
    struct sampler *s = open_sampler(N);
    struct sample_params p = sample_params_default;
    float x[N];
    double want[N] = { 0 };

    for (int i = 0; i < N; i++)
        x[i] = (float)((i * 7) % N) / 8;
    p.top_k = 8; /* the ids with (7 i) mod 32 in 24..31 */
    for (int i = 0; i < N; i++)
        want[i] = (i * 7) % N >= 24 ? exp(x[i]) : 0;
    double sum = 0;
    for (int i = 0; i < N; i++)
        sum += want[i];
    for (int i = 0; i < N; i++)
        want[i] /= sum;
    EXPECT(chi_square(s, &p, x, want, DRAWS) < 24.3); /* 7 degrees of freedom, one in a thousand */
    sampler_close(s);
}

static void draw_depends_only_on_seed_choice_and_position(void)
{
    enum { N = 200 };
    struct sampler *s = open_sampler(N);
    struct sample_params p = sample_params_default;
    int32_t past[40] = { 0 };
    float x[N] = { 0 };
    int n_same[3] = { 0 };

    for (int i = 0; i < 40; i++) {
        struct sample_past h = { past, 1, i }, next = { past, 1, i + 1 };
        p.seed = 5;
        int32_t id = sample(s, &p, x, 0, &h).id;
        p.temperature = 0.7f; /* another call in between */
        sample(s, &p, x, 3, &h);
        p.temperature = 1.0f;
        EXPECT_EQ(sample(s, &p, x, 0, &h).id, id);
        n_same[0] += sample(s, &p, x, 1, &h).id == id;
        n_same[1] += sample(s, &p, x, 0, &next).id == id;
        p.seed = 6;
        n_same[2] += sample(s, &p, x, 0, &h).id == id;
    }
    for (int i = 0; i < 3; i++)
        EXPECT(n_same[i] < 5);
    sampler_close(s);
}

/* ---- edge cases */

static void greedy_takes_the_best_and_the_lowest_id_of_equals(void)
{
    struct sampler *s = open_sampler(6);
    struct sample_params p = sample_params_default;
    float a[6] = { 1, 3, -2, 3, 0, 3 }, b[6] = { -5, -0.0f, 0.0f, -1, -2, -3 };

    p.temperature = 0;
    EXPECT_EQ(sample_once(s, &p, a), 1);
    EXPECT_EQ(sample_once(s, &p, b), 1);
    p.bias = (struct token_bias[]){ { 1, -100 }, { 77, 5 }, { -1, 5 } };
    p.n_bias = 3;
    EXPECT_EQ(sample_once(s, &p, a), 3);
    p.n_bias = 0;
    p.temperature = -1;
    EXPECT_EQ(sample_once(s, &p, a), 1);
    p.temperature = NAN;
    EXPECT_EQ(sample_once(s, &p, a), 1);
    p.temperature = 1e-30f;
    EXPECT(a[sample_once(s, &p, a)] == 3);
    p.temperature = FLT_TRUE_MIN;
    EXPECT(a[sample_once(s, &p, a)] == 3);
    p.temperature = INFINITY;
    EXPECT(sample_once(s, &p, a) < 6);
    sampler_close(s);
}

static void extreme_settings_keep_at_least_the_best_token(void)
{
    struct sampler *s = open_sampler(5);
    float x[5] = { 0, 4, 4, 1, 2 };

    for (int seed = 0; seed < 50; seed++) {
        struct sample_params p = sample_params_default;
        p.seed = (uint64_t)seed;
        p.top_k = 1;
        EXPECT_EQ(sample_once(s, &p, x), 1);
        p.top_k = 1000;
        EXPECT(sample_once(s, &p, x) < 5);
        p.top_k = -3;
        EXPECT(sample_once(s, &p, x) < 5);
        p.top_p = 0;
        EXPECT_EQ(sample_once(s, &p, x), 1);
        p.top_p = 1e-9f;
        EXPECT_EQ(sample_once(s, &p, x), 1);
        p.top_p = 1;
        p.min_p = 1;
        EXPECT(x[sample_once(s, &p, x)] == 4);
        p.min_p = 7;
        EXPECT(x[sample_once(s, &p, x)] == 4);
        p.min_p = 0;
        p.typical_p = 0;
        EXPECT(sample_once(s, &p, x) < 5);
        p.typical_p = 1;
    }
    sampler_close(s);
}

static void infinite_and_nan_logits_are_safe(void)
{
    enum { N = 9 };
    struct sampler *s = open_sampler(N);
    float nan[N], mixed[N] = { NAN, -INFINITY, 2, NAN, 5, -INFINITY, NAN, 1, -INFINITY };
    float inf[N] = { 1, 2, INFINITY, 3, NAN, -INFINITY, 0, 0, 0 };
    float none[N];

    for (int i = 0; i < N; i++) {
        nan[i] = NAN;
        none[i] = -INFINITY;
    }
    for (int seed = 0; seed < 60; seed++) {
        struct sample_params p = sample_params_default;
        p.seed = (uint64_t)seed;
        p.temperature = (float)(seed % 3);
        p.top_k = seed % 4;
        p.top_p = seed % 5 ? 0.9f : 1;
        p.typical_p = seed % 7 ? 1 : 0.8f;
        p.min_p = seed % 2 ? 0.1f : 0;
        p.want_logprobs = true;
        p.n_top = 4;
        struct sampled a = sample(s, &p, mixed, 0, NULL), b = sample(s, &p, nan, 0, NULL),
                       c = sample(s, &p, none, 0, NULL), d = sample(s, &p, inf, 0, NULL);
        EXPECT(a.id == 2 || a.id == 4 || a.id == 7);
        EXPECT(isfinite(a.logprob) && a.logprob <= 0);
        EXPECT_EQ(b.id, 0);
        EXPECT_EQ(b.logprob, -9999.0f);
        EXPECT_EQ(c.id, 0);
        EXPECT_EQ(d.id, 2);
        EXPECT_EQ(d.logprob, 0.0f);
        EXPECT_EQ(d.top[0].id, 2);
        EXPECT_EQ(a.top[3].logprob, -9999.0f);
    }
    sampler_close(s);
}

/* Three groups of logits; two of them are empty. */
static void empty_groups_are_skipped(void)
{
    enum { N = 3 * LOGIT_GROUP - 5 };
    struct sampler *s = open_sampler(N);
    float x[N];

    for (int there = 0; there < 3; there++) {
        int first = there * LOGIT_GROUP + 7;
        for (int i = 0; i < N; i++)
            x[i] = i / LOGIT_GROUP == (there + 1) % 3 ? NAN : -INFINITY;
        x[first] = 1;
        x[first + 100] = 3;
        x[first + 200] = -1e30f;
        for (int seed = 0; seed < 64; seed++) {
            struct sample_params p = sample_params_default;
            p.seed = (uint64_t)seed;
            p.temperature = seed % 8 ? 1 : 0;
            p.top_k = seed % 4 == 1 ? 2 + 500 * (seed % 3) : 0;
            p.top_p = seed % 4 == 2 ? 0.999f : 1;
            p.min_p = seed % 4 == 3 ? 0.001f : 0;
            p.want_logprobs = true;
            p.n_top = 3;
            struct sampled a = sample(s, &p, x, 0, NULL);
            EXPECT(a.id == first || a.id == first + 100);
            EXPECT(a.top[0].id == first + 100 && a.top[1].id == first);
            EXPECT_EQ(a.top[2].id, first + 200);
        }
    }
    sampler_close(s);
}

/* The floor of the first filter is at its maximum: the tokens to keep must be above it. */
static void narrow_top_p_mass_is_complete(void)
{
    enum { N = 2900 };
    struct sampler *s = open_sampler(N);
    float x[N];
    const float shares[] = { 0.0f, 1e-6f, 0.5f, 0.999999f, 0.99999994f };

    for (int i = 0; i < N; i++)
        x[i] = 3; /* all equal: the first ids are kept */
    for (size_t i = 0; i < ARRAY_LEN(shares); i++) {
        int most = -1;
        for (int seed = 0; seed < 400; seed++) {
            struct sample_params p = sample_params_default;
            p.seed = (uint64_t)seed;
            p.top_p = shares[i];
            most = MAX(most, sample_once(s, &p, x));
        }
        EXPECT(most <= shares[i] * N);
        EXPECT(most >= (int)(shares[i] * N * 0.97f) - 1);
    }
    sampler_close(s);
}

static void bans_are_ignored_if_no_token_remains(void)
{
    struct sampler *s = open_sampler(3);
    struct sample_params p = sample_params_default;
    float x[3] = { 0, 2, 1 };

    p.bias = (struct token_bias[]){ { 0, -100 }, { 1, -100 }, { 2, -1e9f } };
    p.n_bias = 3;
    EXPECT_EQ(sample_once(s, &p, x), 1);
    p.temperature = 0;
    EXPECT_EQ(sample_once(s, &p, x), 1);
    p.allowed = (int32_t[]){ 2 };
    p.n_allowed = 1;
    EXPECT_EQ(sample_once(s, &p, x), 2);
    p.n_allowed = 0;
    EXPECT_EQ(sample_once(s, &p, x), 1);
    sampler_close(s);
}

static void only_allowed_tokens_are_sampled(void)
{
    enum { N = 100 };
    struct sampler *s = open_sampler(N);
    const int32_t allowed[] = { -4, 3, 31, 32, 64, 99, 100, 5000 };
    int seen[N] = { 0 };
    float x[N] = { 0 };

    for (int seed = 0; seed < 300; seed++) {
        struct sample_params p = sample_params_default;
        p.allowed = allowed;
        p.n_allowed = ARRAY_LEN(allowed);
        p.seed = (uint64_t)seed;
        seen[sample_once(s, &p, x)]++;
    }
    EXPECT(seen[3] && seen[31] && seen[32] && seen[64] && seen[99]);
    EXPECT_EQ(seen[3] + seen[31] + seen[32] + seen[64] + seen[99], 300);
    sampler_close(s);
}

static void stop_tokens_are_banned_until_min_tokens(void)
{
    struct sampler *s = open_sampler(4);
    struct sample_params p = sample_params_default;
    int32_t past[8] = { 0 };
    float x[4] = { 0, 9, 3, 8 };

    p.temperature = 0;
    p.min_tokens = 3;
    p.banned_until_min = (int32_t[]){ 1, 3, 44 };
    p.n_banned_until_min = 3;
    for (int n_out = 0; n_out < 5; n_out++) {
        struct sample_past h = { past, 2, 2 + n_out };
        EXPECT_EQ(sample(s, &p, x, 0, &h).id, n_out < 3 ? 2 : 1);
    }
    sampler_close(s);
}

/* ---- log-probabilities */

static void logprobs_are_the_models_own(void)
{
    enum { N = 500 };
    struct sampler *s = open_sampler(N);
    struct rng r = { .key = 11 };
    float x[N];

    for (int round = 0; round < 40; round++) {
        struct sample_params p = sample_params_default;
        double sum = 0;
        int order[N];
        static struct reference reference;
        random_logits(&r, x, N, 10);
        for (int i = 0; i < N; i++)
            sum += exp((double)x[i]);
        p.want_logprobs = true;
        p.n_top = round % 22;
        p.temperature = 0.3f; /* with a bias as well: neither affects the logprobs */
        p.bias = (struct token_bias[]){ { 0, 30 } };
        p.n_bias = round % 2;
        struct sampled a = sample(s, &p, x, 0, NULL), b;
        EXPECT(fabs(a.logprob - (x[a.id] - log(sum))) < 2e-5);
        EXPECT_EQ(a.n_top, MIN(p.n_top, 20));
        for (int i = 0; i < N; i++) {
            reference.rank[i] = x[i];
            order[i] = i;
        }
        sorting = &reference;
        qsort(order, N, sizeof(*order), by_rank);
        for (int i = 0; i < a.n_top; i++) {
            EXPECT_EQ(a.top[i].id, order[i]);
            EXPECT(fabs(a.top[i].logprob - (x[order[i]] - log(sum))) < 2e-5);
        }
        sampler_score(s, &(struct logits){ .x = x }, a.id, p.n_top, &b);
        EXPECT_EQ(a.logprob, b.logprob);
        EXPECT_EQ(a.n_top, b.n_top);
        EXPECT(!memcmp(a.top, b.top, sizeof(a.top[0]) * (size_t)a.n_top));
    }
    sampler_close(s);
}

/* One logit in four equals others; some groups are empty or contain a unique maximum. */
static void top_logprobs_are_found_in_any_groups(void)
{
    enum { N = 11 * LOGIT_GROUP + 3 };
    static struct reference reference;
    static float x[N];
    struct sampler *s = open_sampler(N);
    struct rng r = { .key = 31 };

    for (int round = 0; round < 60; round++) {
        struct sampled a, b;
        int order[N], n_top = 1 + round % 20, n_values = 3 + round * round;
        for (int i = 0; i < N; i++) {
            x[i] = (float)rng_below(&r, (uint64_t)n_values) / 16;
            if (i / LOGIT_GROUP % 5 == round % 7)
                x[i] = i % 2 ? NAN : -INFINITY;
            order[i] = i;
        }
        x[N - 1] = x[2 * LOGIT_GROUP] = (float)n_values;
        for (int i = 0; i < N; i++)
            reference.rank[i] = x[i] > -INFINITY ? x[i] : -INFINITY;
        sorting = &reference;
        qsort(order, N, sizeof(*order), by_rank);
        sampler_score(s, &(struct logits){ .x = x }, 5, n_top, &a);
        sampler_score(s, &(struct logits){ x, peaks_of(x) }, 5, n_top, &b);
        EXPECT(a.n_top == n_top && b.n_top == n_top && a.logprob == b.logprob);
        for (int i = 0; i < n_top; i++) {
            EXPECT_EQ(a.top[i].id, order[i]);
            EXPECT_EQ(b.top[i].id, order[i]);
            EXPECT_EQ(a.top[i].logprob, b.top[i].logprob);
        }
    }
    sampler_close(s);
}

static void unwanted_logprobs_are_zero(void)
{
    struct sampler *s = open_sampler(3);
    struct sample_params p = sample_params_default;
    struct sampled a = sample(s, &p, (float[]){ 1, 2, 3 }, 0, NULL);

    EXPECT_EQ(a.logprob, 0.0f);
    EXPECT_EQ(a.n_top, 0);
    sampler_close(s);
}

/* ---- selection */

static int by_key_down(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? 1 : x > y ? -1 : 0;
}

static void selection_equals_sorting(void)
{
    enum { N = 1500 };
    struct select sel;
    uint64_t sorted[N];
    float weight[N];
    struct rng r = { .key = 21 };

    EXPECT(select_init(&sel, N));
    for (int round = 0; round < 60; round++) {
        int n = 1 + (int)rng_below(&r, N), n_values = 1 + (int)rng_below(&r, 2000);
        for (int i = 0; i < n; i++) {
            sel.keys[i] = select_key((float)rng_below(&r, (uint64_t)n_values) - 500.5f, i);
            sorted[i] = sel.keys[i];
            weight[i] = 1.0f;
            EXPECT_EQ(select_place(sel.keys[i]), i);
        }
        qsort(sorted, (size_t)n, sizeof(*sorted), by_key_down);
        for (int j = 0; j < 10; j++) {
            int m = 1 + (int)rng_below(&r, (uint64_t)n);
            EXPECT_EQ(select_nth(&sel, n, m), sorted[m - 1]);
            EXPECT_EQ(select_mass(&sel, n, weight, m - 0.5), sorted[m - 1]);
        }
        EXPECT_EQ(select_mass(&sel, n, weight, n + 1), sorted[n - 1]);
        EXPECT_EQ(select_mass(&sel, n, weight, 0), sorted[0]);
    }
    EXPECT(select_key(-0.0f, 3) == select_key(0.0f, 3));
    EXPECT(select_key(-1, 0) > select_key(-INFINITY, 0));
    EXPECT(select_key(INFINITY, 9) > select_key(FLT_MAX, 0));
    select_clear(&sel);
}

#ifdef TESTING
static void missing_memory_is_an_error(void)
{
    const struct kernels *k;
    struct sampler *s;
    struct err e;

    EXPECT_EQ(kernels_choose(&k, "ref", &e), 0);
    for (uint64_t nth = 1; nth <= 10; nth++) {
        mem_fail_after(nth);
        EXPECT_EQ(sampler_open(&s, k, 100, &e), -1);
        EXPECT(e.code == ERR_MEMORY);
    }
    mem_fail_after(0);
}
#else
static void missing_memory_is_an_error(void)
{
}
#endif

TESTS(TEST(each_parameter_agrees_with_the_reference_sampler), TEST(draws_follow_the_distribution),
    TEST(draws_after_filters_are_renormalised), TEST(draw_depends_only_on_seed_choice_and_position),
    TEST(greedy_takes_the_best_and_the_lowest_id_of_equals),
    TEST(extreme_settings_keep_at_least_the_best_token), TEST(infinite_and_nan_logits_are_safe),
    TEST(empty_groups_are_skipped), TEST(narrow_top_p_mass_is_complete),
    TEST(bans_are_ignored_if_no_token_remains), TEST(only_allowed_tokens_are_sampled),
    TEST(stop_tokens_are_banned_until_min_tokens), TEST(logprobs_are_the_models_own),
    TEST(top_logprobs_are_found_in_any_groups), TEST(unwanted_logprobs_are_zero),
    TEST(selection_equals_sorting), TEST(missing_memory_is_an_error))
