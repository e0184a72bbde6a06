/* Sampler with constraint masks, compared with the sampler without a mask on logits in which the
 * forbidden tokens are -inf. */
#include "base/rng.h"
#include "engine/sample/sampler.h"
#include "engine/sample/token_mask.h"
#include "support/check.h"

#include <math.h>

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

static struct sampled sample(struct sampler *s, const struct sample_params *p, const float *logits,
    int choice, const struct sample_past *past)
{
    struct sampled out;

    memset(&out, 0x5a, sizeof(out));
    sampler_sample(s, p, &(struct logits){ .x = logits }, past, choice, &out);
    return out;
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

enum { MASK_VOCAB = 700 };

/* A mask of random density in a random form; the content does not depend on the form. */
struct random_mask {
    struct token_mask m[3]; /* in all forms: bits, ids, and all if it permits all */
    uint32_t bits[(MASK_VOCAB + 31) / 32];
    int32_t ids[MASK_VOCAB];
    bool has[MASK_VOCAB];
    int n;
};

static void make_random_mask(struct random_mask *r, struct rng *g, int n_vocab)
{
    static const int chances[] = { 0, 1, 3, 50, 100 };
    const uint64_t chance = (uint64_t)chances[rng_below(g, ARRAY_LEN(chances))];

    memset(r, 0, sizeof(*r));
    for (int id = 0; id < n_vocab; id++) {
        r->has[id] = rng_below(g, 100) < chance;
        if (!r->has[id])
            continue;
        r->bits[id / 32] |= 1u << id % 32;
        r->ids[r->n++] = id;
    }
    for (int id = n_vocab; id % 32 && rng_below(g, 2); id++)
        r->bits[id / 32] |= 1u << id % 32; /* bits after the vocabulary have no meaning */
    r->m[0] = (struct token_mask){ .form = MASK_FORM_BITS, .bits = r->bits };
    r->m[1] = (struct token_mask){ .form = MASK_FORM_IDS, .ids = r->ids, .n_ids = r->n };
    r->m[2] = r->n == n_vocab ? (struct token_mask){ .form = MASK_FORM_ALL } : r->m[0];
}

/* Parameters with filters, penalties and bans. */
static void random_masked_params(
    struct sample_params *p, struct rng *g, int n_vocab, struct token_bias *biases, int32_t *ids)
{
    *p = sample_params_default;
    p->seed = rng_next(g);
    p->temperature = rng_below(g, 3) ? 0.3f + (float)rng_next_unit(g) : 0;
    p->top_k = rng_below(g, 2) ? (int)rng_below(g, 30) : 0;
    p->top_p = rng_below(g, 2) ? (float)rng_next_unit(g) : 1;
    p->min_p = rng_below(g, 3) ? 0 : (float)rng_next_unit(g) * 0.3f;
    p->typical_p = rng_below(g, 3) ? 1 : 0.2f + (float)rng_next_unit(g) * 0.7f;
    p->repeat_penalty = rng_below(g, 2) ? 1.3f : 1;
    p->presence_penalty = rng_below(g, 2) ? 0.5f : 0;
    p->n_bias = (int)rng_below(g, 5);
    for (int i = 0; i < p->n_bias; i++)
        biases[i] = (struct token_bias){ (int32_t)rng_below(g, (uint64_t)n_vocab),
            rng_below(g, 2) ? -100 : 4 };
    p->bias = biases;
    for (int i = 0; i < 4; i++)
        ids[i] = i * (n_vocab / 4);
    if (rng_below(g, 4) == 0) {
        p->allowed = ids;
        p->n_allowed = 4;
    }
    if (rng_below(g, 2)) {
        p->banned_until_min = ids;
        p->n_banned_until_min = 2;
        p->min_tokens = 9;
    }
}

/* True if the client bans the token. */
static bool is_banned(const struct sample_params *p, int32_t id)
{
    bool is = false, is_allowed = !p->allowed;

    for (int i = 0; i < p->n_allowed; i++)
        is_allowed |= p->allowed[i] == id;
    for (int i = 0; i < p->n_bias; i++)
        is |= p->bias[i].id == id && p->bias[i].bias <= -100;
    for (int i = 0; i < p->n_banned_until_min; i++)
        is |= p->banned_until_min[i] == id;
    return is || !is_allowed;
}

/* The definition: the unconstrained sampler on logits in which all other tokens are -inf. The bans
 * of the client are removed if they leave no token. */
static int32_t masked_reference(struct sampler *s, const struct sample_params *p, const float *x,
    const struct random_mask *r, const struct sample_past *h)
{
    static float masked[MASK_VOCAB];
    struct token_bias biases[8];
    struct sample_params free = *p;
    struct sample_past past = *h;
    struct sampled out;
    int n_left = 0;

    for (int id = 0; id < vocab; id++) {
        masked[id] = r->has[id] ? x[id] : -INFINITY;
        n_left += r->has[id] && x[id] > -INFINITY && !is_banned(p, id);
    }
    if (n_left == 0) {
        free.allowed = free.banned_until_min = NULL;
        free.n_allowed = free.n_banned_until_min = free.n_bias = 0;
        for (int i = 0; i < p->n_bias; i++)
            if (p->bias[i].bias > -100)
                biases[free.n_bias++] = p->bias[i];
        free.bias = biases;
    }
    past.mask = NULL;
    sampler_sample(s, &free, &(struct logits){ .x = masked }, &past, 3, &out);
    return out.id;
}

static void masked_samples_equal_the_definition(void)
{
    static const int vocabs[] = { 7, 64, 333, MASK_VOCAB };
    static struct random_mask r;
    static float x[MASK_VOCAB];
    struct rng g = { .key = 77 };
    int32_t past[6] = { 1, 2, 3, 4, 5, 6 };
    int n_unmet = 0, n_overridden = 0;

    for (int round = 0; round < 8000; round++) {
        const int n_vocab = vocabs[round % 4];
        struct sampler *s = open_sampler(n_vocab);
        struct sample_params p;
        struct token_bias biases[8];
        int32_t ids[4], want = -1;
        random_logits(&g, x, n_vocab, 4);
        random_masked_params(&p, &g, n_vocab, biases, ids);
        make_random_mask(&r, &g, n_vocab);
        for (int form = 0; form < 3; form++) {
            const struct sample_past h = { past, 2, 6, &r.m[form] };
            struct sampled out = sample(s, &p, x, 3, &h);
            EXPECT_EQ(out.is_unmet, r.n == 0);
            EXPECT(!out.is_invalid);
            if (r.n == 0)
                continue;
            if (want < 0)
                want = masked_reference(s, &p, x, &r, &h);
            EXPECT_EQ(out.id, want);
            EXPECT(r.has[out.id]);
            n_overridden += form == 0 && is_banned(&p, out.id);
        }
        n_unmet += r.n == 0;
        sampler_close(s);
    }
    EXPECT(n_unmet > 500 && n_overridden > 100);
}

/* Only permitted logits are read, so that a model may leave out the others. */
static void forbidden_logits_are_not_read(void)
{
    enum { N = 500 };
    static float x[N], y[N];
    static struct random_mask r;
    struct rng g = { .key = 5 };
    struct sampler *s = open_sampler(N);

    for (int round = 0; round < 2000; round++) {
        struct sample_params p;
        struct token_bias biases[8];
        int32_t ids[4];
        struct sampled a, b;
        random_logits(&g, x, N, 4);
        random_masked_params(&p, &g, N, biases, ids);
        make_random_mask(&r, &g, N);
        for (int id = 0; id < N; id++)
            y[id] = r.has[id] ? x[id] : (const float[]){ NAN, INFINITY, -INFINITY, 1e30f }[id % 4];
        const struct sample_past h = { ids, 1, 1, &r.m[round % 2] };
        sampler_sample(s, &p, &(struct logits){ .x = x }, &h, 0, &a);
        sampler_sample(s, &p, &(struct logits){ .x = y }, &h, 0, &b);
        EXPECT(a.is_unmet == b.is_unmet && a.id == b.id && !b.is_invalid);
    }
    sampler_close(s);
}

static void masked_tokens_without_logits_are_invalid(void)
{
    struct sampler *s = open_sampler(300);
    struct sample_params p = sample_params_default;
    float x[300] = { 0 };
    uint32_t many[10] = { UINT32_MAX, 0, 0, 0 };
    const struct token_mask masks[] = {
        { .form = MASK_FORM_IDS, .ids = &(int32_t){ 2 }, .n_ids = 1 },
        { .form = MASK_FORM_BITS, .bits = many }
    };

    for (int id = 0; id < 32; id++)
        x[id] = id % 2 ? NAN : -INFINITY;
    for (int i = 0; i < 2; i++) {
        struct sample_past h = { NULL, 0, 0, &masks[i] };
        struct sampled out = sample(s, &p, x, 0, &h);
        EXPECT(out.is_invalid && !out.is_unmet);
    }
    sampler_close(s);
}

static void ids_outside_the_vocabulary_are_ignored(void)
{
    struct sampler *s = open_sampler(100);
    struct sample_params p = sample_params_default;
    const struct token_mask bad = {
        .form = MASK_FORM_IDS, .ids = (const int32_t[]){ INT32_MIN, -1, 100, INT32_MAX }, .n_ids = 4
    };
    struct sample_past h = { NULL, 0, 0, &bad };
    float x[100] = { 0 };

    EXPECT(sample(s, &p, x, 0, &h).is_unmet);
    sampler_close(s);
}

static void logprobs_do_not_depend_on_the_mask(void)
{
    struct sampler *s = open_sampler(100);
    struct sample_params p = sample_params_default;
    const struct token_mask one = { .form = MASK_FORM_IDS, .ids = &(int32_t){ 7 }, .n_ids = 1 };
    struct sample_past h = { NULL, 0, 0, &one };
    struct rng g = { .key = 2 };
    struct sampled score;
    float x[100];

    p.want_logprobs = true;
    p.n_top = 5;
    random_logits(&g, x, 100, 4);
    struct sampled out = sample(s, &p, x, 0, &h);
    sampler_score(s, &(struct logits){ .x = x }, 7, 5, &score);
    EXPECT_EQ(out.id, 7);
    EXPECT(out.logprob == score.logprob && out.logprob < -0.01f && out.n_top == 5);
    EXPECT(!memcmp(out.top, score.top, 5 * sizeof(out.top[0])));
    sampler_close(s);
}

/* The operations on masks agree with each other. */
static void mask_forms_are_equivalent(void)
{
    static struct random_mask r;
    struct rng g = { .key = 8 };

    for (int round = 0; round < 3000; round++) {
        const int n_vocab = 1 + (int)rng_below(&g, MASK_VOCAB);
        uint32_t bits[2][(MASK_VOCAB + 31) / 32] = { 0 }, memory[(MASK_VOCAB + 31) / 32];
        int32_t ids[MASK_VOCAB];
        struct token_mask copy;
        make_random_mask(&r, &g, n_vocab);
        for (int form = 0; form < 3; form++) {
            EXPECT_EQ(token_mask_count(&r.m[form], n_vocab, n_vocab), r.n);
            EXPECT_EQ(token_mask_count(&r.m[form], n_vocab, 3), MIN(r.n, 3));
            EXPECT_EQ(token_mask_list(&r.m[form], n_vocab, ids, MASK_VOCAB), r.n);
            EXPECT(!memcmp(ids, r.ids, (size_t)r.n * sizeof(*ids)));
            EXPECT_EQ(token_mask_list(&r.m[form], n_vocab, ids, 2), MIN(r.n, 2));
            token_mask_copy(&copy, &r.m[form], n_vocab, memory);
            token_mask_bits(&copy, n_vocab, bits[form > 0]);
            for (int id = 0; id < n_vocab; id++) {
                EXPECT_EQ(token_mask_has(&r.m[form], id), r.has[id]);
                EXPECT_EQ(token_mask_has(&copy, id), r.has[id]);
                EXPECT_EQ((int)(bits[form > 0][id / 32] >> id % 32 & 1), (int)r.has[id]);
            }
        }
    }
}

TESTS(TEST(mask_forms_are_equivalent), TEST(masked_samples_equal_the_definition),
    TEST(forbidden_logits_are_not_read), TEST(masked_tokens_without_logits_are_invalid),
    TEST(ids_outside_the_vocabulary_are_ignored), TEST(logprobs_do_not_depend_on_the_mask))
