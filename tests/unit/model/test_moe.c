/* Selection of the experts of a token, and the positions of its rows in the expert batches. */
#include "support/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernel/kernels.h"
#include "model/moe.h"

#include <math.h>

enum { N = 40, ROWS = 60, USED_MOST = 8 };

static const struct kernels *ref_kernels(void)
{
    const struct kernels *k = NULL;
    struct err e;

    EXPECT(!kernels_choose(&k, "ref", &e));
    return k;
}

static bool goes_before(const float *scores, int a, int b)
{
    float x = isnan(scores[a]) ? -INFINITY : scores[a],
          y = isnan(scores[b]) ? -INFINITY : scores[b];

    return x > y || (x == y && a < b);
}

/* Reference: sorts all scores. */
static void sort_scores(const float *scores, int n, int *order)
{
    for (int i = 0; i < n; i++) {
        int at = 0;
        for (int j = 0; j < n; j++)
            at += j != i && goes_before(scores, j, i);
        order[at] = i;
    }
}

static void the_highest_scores_best_first(void)
{
    static const float odd[] = { NAN, INFINITY, -INFINITY, 0, -0.0f, 1, 1, 1e30f };
    struct rng r = { 1, 0 };

    for (int round = 0; round < 2000; round++) {
        float scores[N], weights[USED_MOST];
        int topk[USED_MOST], order[N];
        int n = 1 + (int)rng_below(&r, N),
            used = 1 + (int)rng_below(&r, (uint64_t)MIN(n, USED_MOST));
        for (int i = 0; i < n; i++)
            scores[i] = round % 3 == 0   ? odd[rng_below(&r, ARRAY_LEN(odd))]
                        : round % 3 == 1 ? (float)rng_below(&r, 5)
                                         : (float)rng_next_unit(&r);
        sort_scores(scores, n, order);
        moe_topk(scores, n, used, topk, weights);
        for (int i = 0; i < used; i++)
            EXPECT_EQ(topk[i], order[i]);
    }
}

static void weights_are_a_softmax_of_those_used(void)
{
    const struct hparams h = { .n_experts = 5,
        .n_experts_used = 3,
        .router = ROUTER_SOFTMAX_CHOSEN,
        .expert_weight_scale = 1 };
    float scores[] = { 0.5f, 2, -1, 2, 1 }, weights[3];
    const double sum = 2 + exp(-1);
    int topk[3];

    moe_route(ref_kernels(), &h, scores, NULL, topk, weights);
    EXPECT(topk[0] == 1 && topk[1] == 3 && topk[2] == 4);
    EXPECT(weights[0] == weights[1] && fabs((double)weights[0] - 1 / sum) < 1e-6);
    EXPECT(fabs((double)weights[2] - exp(-1) / sum) < 1e-6);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static void weights_of_other_routers(void)
{
    static const float scores[] = { 0.5f, 2, -1, 2, 1 }, bias[] = { 3, 0, 0, -3, 0 };
    const double all = exp(0.5) + 2 * exp(2) + exp(-1) + exp(1);
    struct hparams h = {
        .n_experts = 5, .n_experts_used = 2, .router = ROUTER_SOFTMAX, .expert_weight_scale = 1
    };
    float x[5], weights[2];
    int topk[2];

    memcpy(x, scores, sizeof(x));
    moe_route(ref_kernels(), &h, x, NULL, topk, weights);
    EXPECT(topk[0] == 1 && topk[1] == 3 && fabs((double)weights[1] - exp(2) / all) < 1e-6);

    h.router = ROUTER_SIGMOID;
    h.expert_weight_scale = 2.5f;
    memcpy(x, scores, sizeof(x));
    moe_route(ref_kernels(), &h, x, bias, topk, weights); /* the bias enters the choice only */
    EXPECT(topk[0] == 0 && topk[1] == 1);
    EXPECT(fabs((double)weights[0] - 2.5 * sigmoid(0.5)) < 1e-6);
    EXPECT(fabs((double)weights[1] - 2.5 * sigmoid(2)) < 1e-6);

    h.norms_expert_weights = true;
    memcpy(x, scores, sizeof(x));
    moe_route(ref_kernels(), &h, x, bias, topk, weights);
    EXPECT(fabs((double)weights[0] + (double)weights[1] - 2.5) < 1e-6);
}

/* The best expert is in a group whose two best have a lower sum than those of other groups. */
static void experts_are_chosen_from_the_best_groups(void)
{
    static const float scores[] = { 5, 0, 0, 3, 3.5f, 0, 2, 0.5f, 4 };
    const struct hparams h = { .n_experts = 9,
        .n_experts_used = 4,
        .n_expert_groups = 3,
        .n_groups_used = 2,
        .n_group_best = 2,
        .router = ROUTER_SIGMOID,
        .expert_weight_scale = 1 };
    float bias[9] = { 0 }, x[9], weights[4];
    int topk[4];

    memcpy(x, scores, sizeof(x));
    moe_route(ref_kernels(), &h, x, NULL, topk, weights);
    EXPECT(topk[0] == 8 && topk[1] == 4 && topk[2] == 3 && topk[3] == 6);
    EXPECT(fabs((double)weights[2] - sigmoid(3)) < 1e-6);

    bias[1] = 2; /* the bias enters the sums of the groups */
    memcpy(x, scores, sizeof(x));
    moe_route(ref_kernels(), &h, x, bias, topk, weights);
    EXPECT(topk[0] == 1 && topk[1] == 0 && topk[2] == 4 && topk[3] == 3);
    EXPECT(fabs((double)weights[0] - sigmoid(0)) < 1e-6);
}

/* DeepSeek V2: the score of a group is that of its best expert. */
static void groups_are_ranked_by_their_best_expert(void)
{
    static const float scores[] = { 5, 0, 0, 3, 3.5f, 3, 2, 0.5f, 4 };
    const struct hparams h = { .n_experts = 9,
        .n_experts_used = 4,
        .n_expert_groups = 3,
        .n_groups_used = 2,
        .n_group_best = 1,
        .router = ROUTER_SOFTMAX,
        .expert_weight_scale = 16 };
    float x[9], weights[4];
    double sum = 0;
    int topk[4];

    for (int i = 0; i < 9; i++)
        sum += exp((double)scores[i]);
    memcpy(x, scores, sizeof(x));
    moe_route(ref_kernels(), &h, x, NULL, topk, weights);
    EXPECT(topk[0] == 0 && topk[1] == 8 && topk[2] == 6 && topk[3] == 7);
    EXPECT(fabs((double)weights[0] - 16 * exp(5) / sum) < 1e-5);
    EXPECT(fabs((double)weights[3] - 16 * exp(0.5) / sum) < 1e-5);
}

static void every_use_has_its_entry(void)
{
    const struct hparams h = { .n_experts = N, .n_experts_used = 3 };
    int topk[ROWS * 3], entry[ROWS * 3], row[ROWS * 3], first[N + 1], n_seen[ROWS] = { 0 };
    struct moe x = { .topk = topk, .entry = entry, .row = row, .first = first };
    struct rng r = { 2, 0 };

    for (int i = 0; i < ROWS * 3; i++)
        topk[i] =
            /* some experts are not used */
            (int)(rng_below(&r, N / 2) * 2 + (uint64_t)(i % 3 == 0));
    moe_sort(&x, &h, ROWS);
    EXPECT(first[0] == 0 && first[N] == ROWS * 3);
    for (int e = 0; e < N; e++) {
        EXPECT(first[e] <= first[e + 1]);
        for (int i = first[e]; i < first[e + 1]; i++)
            EXPECT(i == first[e] || row[i] >= row[i - 1]); /* in the order of rows */
    }
    for (int i = 0; i < ROWS * 3; i++) {
        EXPECT(entry[i] >= first[topk[i]] && entry[i] < first[topk[i] + 1]);
        EXPECT_EQ(row[entry[i]], i / 3);
    }
    for (int i = 0; i < ROWS * 3; i++)
        n_seen[row[i]]++;
    for (int i = 0; i < ROWS; i++)
        EXPECT_EQ(n_seen[i], 3);
}

TESTS(TEST(the_highest_scores_best_first), TEST(weights_are_a_softmax_of_those_used),
    TEST(weights_of_other_routers), TEST(experts_are_chosen_from_the_best_groups),
    TEST(groups_are_ranked_by_their_best_expert), TEST(every_use_has_its_entry))
