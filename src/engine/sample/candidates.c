#include "engine/sample/candidates.h"
#include "base/mem.h"

#include <float.h>
#include <math.h>

bool candidates_init(struct candidates *c, const struct kernels *k, int n_vocab)
{
    size_t n = (size_t)n_vocab, n_groups = (size_t)logit_groups(n_vocab);

    *c = (struct candidates){ .k = k, .n_vocab = n_vocab };
    c->own = try_calloc(n, sizeof(*c->own));
    c->peak = try_calloc(n_groups, sizeof(*c->peak));
    c->id = try_calloc(n, sizeof(*c->id));
    c->value = try_calloc(n, sizeof(*c->value));
    c->weight = try_calloc(n, sizeof(*c->weight));
    c->sum = try_calloc(n_groups, sizeof(*c->sum));
    bool is_selecting = select_init(&c->sel, n);
    return c->own && c->peak && c->id && c->value && c->weight && c->sum && is_selecting;
}

void candidates_clear(struct candidates *c)
{
    mem_free(c->own);
    mem_free(c->peak);
    mem_free(c->id);
    mem_free(c->value);
    mem_free(c->weight);
    mem_free(c->sum);
    select_clear(&c->sel);
    *c = (struct candidates){ 0 };
}

/* ---- the row */

static int group_size(int n, int from)
{
    return MIN(LOGIT_GROUP, n - from);
}

void candidates_set_row(struct candidates *c, const struct logits *row)
{
    const int n = c->n_vocab;

    c->row = *row;
    c->total = 0;
    if (!row->peak) {
        for (int from = 0; from < n; from += LOGIT_GROUP)
            c->peak[from / LOGIT_GROUP] = c->k->max(row->x + from, group_size(n, from));
        c->row.peak = c->peak;
    }
    c->max = c->k->max(c->row.peak, logit_groups(n));
}

float *candidates_copy(struct candidates *c)
{
    memcpy(c->own, c->row.x, (size_t)c->n_vocab * sizeof(*c->own));
    return c->own;
}

/* Replaces NaN by -inf and +inf by the largest float. */
static void replace_non_finite(struct candidates *c)
{
    for (int id = 0; id < c->n_vocab; id++) {
        float x = c->row.x[id];
        c->own[id] = x > -INFINITY ? MIN(x, FLT_MAX) : -INFINITY;
    }
    candidates_set_row(c, &(struct logits){ c->own, NULL });
}

int32_t candidates_best(const struct candidates *c)
{
    int g = 0;

    if (c->max == -INFINITY)
        return 0;
    while (c->row.peak[g] != c->max)
        g++;
    for (int id = g * LOGIT_GROUP;; id++)
        if (c->row.x[id] == c->max)
            return id;
}

/* ---- weights */

static double compute_weights(
    struct candidates *c, const float *x, int n, float max, float temperature)
{
    double total = 0.0;

    for (int from = 0; from < n; from += LOGIT_GROUP) {
        double sum =
            c->k->softmax(c->weight + from, x + from, group_size(n, from), max, temperature);
        c->sum[from / LOGIT_GROUP] = sum;
        total += sum;
    }
    return total;
}

/* Weights of the whole row. Only here NaN, or the difference of two infinities, becomes visible. */
static double compute_row_weights(struct candidates *c, float temperature)
{
    double total = compute_weights(c, c->row.x, c->n_vocab, c->max, temperature);

    if (isfinite(total))
        return total;
    replace_non_finite(c);
    return compute_weights(c, c->row.x, c->n_vocab, c->max, temperature);
}

/* Equals compute_row_weights(c, 1) without keeping the weights: all groups use the same memory,
 * which stays in the CPU cache. */
static double sum_row(struct candidates *c)
{
    double total = 0.0;

    for (int from = 0; from < c->n_vocab; from += LOGIT_GROUP)
        total +=
            c->k->softmax(c->weight, c->row.x + from, group_size(c->n_vocab, from), c->max, 1.0f);
    return isfinite(total) ? total : compute_row_weights(c, 1.0f);
}

static double compute_candidate_weights(struct candidates *c)
{
    return compute_weights(c, c->value, c->n, c->k->max(c->value, c->n), 1.0f);
}

double candidates_log_sum(struct candidates *c)
{
    if (c->max == -INFINITY)
        return INFINITY;
    double total = sum_row(c);
    /* sum_row may have replaced non-finite logits, and with them the maximum. */
    return (double)c->max + log(total);
}

/* ---- filters: each removes candidates in place and keeps id order */

static void keep_above(struct candidates *c, uint64_t cut)
{
    int n = 0;

    for (int i = 0; i < c->n; i++) {
        c->id[n] = c->id[i];
        c->value[n] = c->value[i];
        n += c->sel.keys[i] >= cut;
    }
    c->n = n;
}

static void filter_top_k(struct candidates *c, int k)
{
    if (k >= c->n)
        return;
    for (int i = 0; i < c->n; i++)
        c->sel.keys[i] = select_key(c->value[i], i);
    keep_above(c, select_nth(&c->sel, c->n, k));
}

/* Candidates are ordered by the distance of their surprisal from the entropy, nearest first. */
static void filter_typical(struct candidates *c, double want)
{
    float max = c->k->max(c->value, c->n);
    double total = compute_candidate_weights(c), log_total = log(total), entropy = 0.0;

    for (int i = 0; i < c->n; i++)
        entropy += (double)c->weight[i] * (log_total - ((double)c->value[i] - max));
    entropy /= total;
    for (int i = 0; i < c->n; i++) {
        double surprise = log_total - ((double)c->value[i] - max);
        c->sel.keys[i] = select_key(-(float)fabs(surprise - entropy), i);
    }
    keep_above(c, select_mass(&c->sel, c->n, c->weight, want * total));
}

/* If it is the first filter, only candidates above the floor are left: the mass refers to the
 * whole row. */
static void filter_top_p(struct candidates *c, double want)
{
    double total = compute_candidate_weights(c);

    if (c->total > 0)
        total = c->total;
    for (int i = 0; i < c->n; i++)
        c->sel.keys[i] = select_key(c->value[i], i);
    keep_above(c, select_mass(&c->sel, c->n, c->weight, want * total));
}

/* Lowest kept logit relative to the maximum. */
static double min_p_depth(double min_p)
{
    return log(MIN(min_p, 1.0));
}

static void filter_min_p(struct candidates *c, double min_p)
{
    double max = c->k->max(c->value, c->n), depth = min_p_depth(min_p);
    int n = 0;

    for (int i = 0; i < c->n; i++) {
        c->id[n] = c->id[i];
        c->value[n] = c->value[i];
        n += (double)c->value[i] - max >= depth;
    }
    c->n = n;
}

/* ---- floor: the first active filter keeps no logit below it */

float candidates_floor(struct candidates *c, int k)
{
    int n = logit_groups(c->n_vocab);

    if (k > n)
        return -INFINITY;
    for (int g = 0; g < n; g++)
        c->sel.keys[g] = select_key(c->row.peak[g], g);
    return c->row.peak[select_place(select_nth(&c->sel, n, k))];
}

/* If all n_vocab tokens were just below the floor, their weight would be less than a third (the -1)
 * of the mass that top-p removes, so rounding of the sums does not matter. */
static float top_p_floor(struct candidates *c, double want)
{
    c->total = compute_row_weights(c, 1.0f);
    double spare = (1.0 - MAX(want, 0.0)) * c->total / c->n_vocab;
    return MIN((float)((double)c->max + log(spare) - 1), c->max);
}

static float floor_of(struct candidates *c, const struct filters *f)
{
    if (f->top_k > 0)
        return candidates_floor(c, f->top_k);
    if (f->typical_p < 1.0f)
        return -INFINITY;
    if (f->top_p < 1.0f)
        return top_p_floor(c, f->top_p);
    return nextafterf((float)((double)c->max + min_p_depth(f->min_p)), -INFINITY);
}

static void collect_candidates(struct candidates *c, float floor)
{
    const float lowest = MAX(floor, -FLT_MAX); /* -inf and NaN are banned */
    int n = 0; /* in a register: each index depends on the previous one */

    for (int from = 0; from < c->n_vocab; from += LOGIT_GROUP) {
        int end = from + group_size(c->n_vocab, from);
        if (!(c->row.peak[from / LOGIT_GROUP] >= lowest))
            continue;
        for (int id = from; id < end; id++) {
            c->id[n] = id;
            c->value[n] = c->row.x[id];
            n += c->row.x[id] >= lowest;
        }
    }
    c->n = n;
}

static void apply_filters(struct candidates *c, const struct filters *f)
{
    if (f->top_k > 0)
        filter_top_k(c, f->top_k);
    if (f->typical_p < 1.0f)
        filter_typical(c, f->typical_p);
    if (f->top_p < 1.0f)
        filter_top_p(c, f->top_p);
    if (f->min_p > 0.0f)
        filter_min_p(c, f->min_p);
}

/* ---- the draw */

/* Index at which the cumulative weight exceeds `goal`. `goal` is below the total or, by rounding,
 * equal to it. A group sum was added in another order than here, so the sum within the selected
 * group may stay below goal: then the last candidate with a positive weight is used. */
static int draw_place(const struct candidates *c, int n, double goal)
{
    double sum = 0.0, before = 0.0;
    int last = 0;

    for (int from = 0; from < n && sum <= goal; from += LOGIT_GROUP) {
        double group = c->sum[from / LOGIT_GROUP];
        if (group > 0) {
            last = from;
            before = sum;
        }
        sum += group;
    }
    int end = last + group_size(n, last), place = last;
    sum = before;
    for (int i = last; i < end && sum <= goal; i++) {
        if (c->weight[i] <= 0.0f)
            continue;
        place = i;
        sum += (double)c->weight[i];
    }
    return place;
}

static int32_t draw_candidate(struct candidates *c, float temperature, double u)
{
    double total = compute_weights(c, c->value, c->n, c->k->max(c->value, c->n), temperature);

    return c->id[draw_place(c, c->n, u * total)];
}

int32_t candidates_draw(struct candidates *c, const struct filters *f, float temperature, double u)
{
    temperature = MIN(temperature, FLT_MAX); /* with infinity, -inf / temperature would be NaN */
    if (f->top_k <= 0 && !(f->typical_p < 1.0f) && !(f->top_p < 1.0f) && !(f->min_p > 0.0f)) {
        double total = compute_row_weights(c, temperature);
        return draw_place(c, c->n_vocab, u * total);
    }
    if (c->max == INFINITY)
        replace_non_finite(c);
    collect_candidates(c, floor_of(c, f));
    apply_filters(c, f);
    return draw_candidate(c, temperature, u);
}

int32_t candidates_best_listed(const struct candidates *c)
{
    int best = 0;

    for (int i = 1; i < c->n; i++)
        if (c->value[i] > c->value[best])
            best = i;
    return c->id[best];
}

int32_t candidates_draw_listed(
    struct candidates *c, const struct filters *f, float temperature, double u)
{
    c->total = 0;
    apply_filters(c, f);
    return draw_candidate(c, MIN(temperature, FLT_MAX), u);
}
