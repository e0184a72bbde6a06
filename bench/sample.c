/* sample: benchmark of the sampler: microseconds per sampled token and per scored prompt token, for
 * a vocabulary of 128,256 tokens.
 *
 *     sample
 *
 * Two kinds of logits: `peaked`, where about fifty are far above the others, as in a trained model;
 * and `flat`, as from random weights. The maxima per group of logits (`peaks`) are given, as from
 * the model's output layer. Prints medians. */
#include "base/rng.h"
#include "engine/sample/sampler.h"
#include "os/clock.h"

#include <stdio.h>
#include <stdlib.h>

enum { N_VOCAB = 128256, N_GROUPS = (N_VOCAB + LOGIT_GROUP - 1) / LOGIT_GROUP, N_RUNS = 201 };

static const struct sampler_case {
    const char *name;
    float temperature, top_p, min_p, typical_p, repeat_penalty;
    int top_k, n_top;
    bool is_score;
} cases[] = {
    { "greedy", 0, 1, 0, 1, 1, 0, 0 },
    { "temperature 0.8", 0.8f, 1, 0, 1, 1, 0, 0 },
    { "top_p 0.95", 0.8f, 0.95f, 0, 1, 1, 0, 0 },
    { "top_k 40, top_p 0.95", 0.8f, 0.95f, 0, 1, 1, 40, 0 },
    { "min_p 0.05", 0.8f, 1, 0.05f, 1, 1, 0, 0 },
    { "typical_p 0.9", 0.8f, 1, 0, 0.9f, 1, 0, 0 },
    { "repeat_penalty 1.1, 1,500 tokens", 0.8f, 1, 0, 1, 1.1f, 0, 0 },
    { "5 log-probabilities", 0.8f, 1, 0, 1, 1, 0, 5 },
    { "score", .is_score = true },
    { "score, best 5", .n_top = 5, .is_score = true },
    { "score, best 20", .n_top = 20, .is_score = true },
};

static float x[N_VOCAB], peak[N_GROUPS];
static int32_t past[1500];

static void fill_logits(struct rng *r, const struct kernels *k, bool is_peaked)
{
    for (int i = 0; i < N_VOCAB; i++)
        x[i] = (float)(rng_next_unit(r) + rng_next_unit(r) + rng_next_unit(r) - 1.5) * 3;
    for (int i = 0; is_peaked && i < 50; i++)
        x[rng_below(r, N_VOCAB)] = 12 + (float)rng_next_unit(r) * 8;
    for (int g = 0; g < N_GROUPS; g++)
        peak[g] =
            k->max(x + g * LOGIT_GROUP, MIN((int)LOGIT_GROUP, N_VOCAB - g * (int)LOGIT_GROUP));
    for (size_t i = 0; i < ARRAY_LEN(past); i++)
        past[i] = (int32_t)rng_below(r, N_VOCAB);
}

static int compare_doubles(const void *a, const void *b)
{
    double d = *(const double *)a - *(const double *)b;
    return (d > 0) - (d < 0);
}

static double measure_case(struct sampler *s, const struct sampler_case *w)
{
    const struct sample_past h = { past, 1000, (int)ARRAY_LEN(past) };
    struct sample_params p = sample_params_default;
    double us[N_RUNS];

    p.temperature = w->temperature;
    p.top_p = w->top_p;
    p.min_p = w->min_p;
    p.typical_p = w->typical_p;
    p.repeat_penalty = w->repeat_penalty;
    p.top_k = w->top_k;
    p.n_top = w->n_top;
    p.want_logprobs = w->n_top > 0;
    p.banned_until_min = (const int32_t[]){ 1, 2 }; /* every request has stop tokens */
    p.n_banned_until_min = 2;
    for (int i = 0; i < N_RUNS; i++) {
        struct sampled out;
        p.seed = (uint64_t)i;
        uint64_t start = clock_ns();
        if (w->is_score)
            sampler_score(s, &(struct logits){ x, peak }, past[i], p.n_top, &out);
        else
            sampler_sample(s, &p, &(struct logits){ x, peak }, &h, 0, &out);
        us[i] = (double)(clock_ns() - start) / 1e3;
    }
    qsort(us, N_RUNS, sizeof(*us), compare_doubles);
    return us[N_RUNS / 2];
}

int main(void)
{
    const struct kernels *k;
    struct sampler *s;
    struct err e;
    struct rng r = { .key = 1 };
    double us[2][ARRAY_LEN(cases)];

    if (kernels_choose(&k, "auto", &e) || sampler_open(&s, k, N_VOCAB, &e)) {
        fprintf(stderr, "sample: %s\n", e.msg);
        return 1;
    }
    for (int kind = 0; kind < 2; kind++) {
        fill_logits(&r, k, kind == 0);
        for (size_t i = 0; i < ARRAY_LEN(cases); i++)
            us[kind][i] = measure_case(s, &cases[i]);
    }
    printf("%s, %d tokens, us\n%-34s %8s %8s\n", k->name, N_VOCAB, "", "peaked", "flat");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        printf("%-34s %8.1f %8.1f\n", cases[i].name, us[0][i], us[1][i]);
    sampler_close(s);
    return 0;
}
