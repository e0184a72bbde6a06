#include "model/rope.h"

#include <math.h>

/* Index of the pair that makes `turns` full rotations over the original context length. */
static double pair_with_rotations(const struct rope_params *p, double n_rotations)
{
    return p->n_rot * log(p->n_ctx_orig / (n_rotations * 2 * M_PI)) / (2 * log(p->base));
}

/* 1 for pairs with a high frequency (not scaled), 0 for a low frequency (scaled), linear in
 * between. */
static double yarn_unscaled_share(const struct rope_params *p, int pair)
{
    double first = pair_with_rotations(p, p->beta_fast);
    double last = pair_with_rotations(p, p->beta_slow);
    double lo = fmax(0, p->is_continuous ? first : floor(first));
    double hi = fmin(p->n_rot - 1, p->is_continuous ? last : ceil(last));
    double ramp = (pair - lo) / fmax(0.001, hi - lo);
    return 1 - fmin(1, fmax(0, ramp));
}

void rope_table_init(struct rope_table *t, const struct rope_params *p, const float *factors)
{
    t->n_pairs = p->n_rot / 2;
    t->magnitude = 1;
    if (p->scaling == ROPE_YARN && p->factor > 1)
        t->magnitude = (float)(p->attn_factor * (1 + 0.1 * p->log_share * log(p->factor)) /
                               (1 + 0.1 * p->log_multiplier * log(p->factor)));
    if (p->scaling == ROPE_LONG)
        t->magnitude = (float)p->attn_factor;
    for (int i = 0; i < t->n_pairs; i++) {
        double base_freq = pow(p->base, -2.0 * i / p->n_rot) / (factors ? (double)factors[i] : 1);
        double scaled_freq = base_freq / p->factor;
        double unscaled = p->scaling == ROPE_YARN ? yarn_unscaled_share(p, i) : 0;
        t->freq[i] = scaled_freq * (1 - unscaled) + base_freq * unscaled;
    }
}

void rope_table_at(const struct rope_table *t, int pos, float *cs)
{
    for (int i = 0; i < t->n_pairs; i++) {
        double angle = pos * t->freq[i];
        cs[2 * i] = (float)cos(angle) * t->magnitude;
        cs[2 * i + 1] = (float)sin(angle) * t->magnitude;
    }
}
