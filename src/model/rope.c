#include "model/rope.h"

#include <math.h>

/* The pair that makes `turns` full turns over the original context. */
static double pair_of_turns(const struct hparams *h, double turns)
{
    return h->n_rot * log(h->rope.n_ctx_orig / (turns * 2 * M_PI)) / (2 * log(h->rope.base));
}

/* 1 for pairs that turn fast (kept as they are), 0 for slow ones (stretched), a ramp between. */
static double yarn_keep(const struct hparams *h, int pair)
{
    double lo = fmax(0, floor(pair_of_turns(h, h->rope.beta_fast)));
    double hi = fmin(h->n_rot - 1, ceil(pair_of_turns(h, h->rope.beta_slow)));
    double ramp = (pair - lo) / fmax(0.001, hi - lo);
    return 1 - fmin(1, fmax(0, ramp));
}

void rope_table_init(struct rope_table *t, const struct hparams *h, const float *factors)
{
    const struct rope_params *p = &h->rope;

    t->n_pairs = h->n_rot / 2;
    t->magnitude = 1;
    if (p->scaling == ROPE_YARN && p->factor > 1)
        t->magnitude = (float)(p->attn_factor * (1 + 0.1 * log(p->factor)));
    for (int i = 0; i < t->n_pairs; i++) {
        double speed = pow(p->base, -2.0 * i / h->n_rot) / (factors ? (double)factors[i] : 1);
        double slow = speed / p->factor;
        double keep = p->scaling == ROPE_YARN ? yarn_keep(h, i) : 0;
        t->speed[i] = slow * (1 - keep) + speed * keep;
    }
}

void rope_table_at(const struct rope_table *t, int pos, float *cs)
{
    for (int i = 0; i < t->n_pairs; i++) {
        double angle = pos * t->speed[i];
        cs[2 * i] = (float)cos(angle) * t->magnitude;
        cs[2 * i + 1] = (float)sin(angle) * t->magnitude;
    }
}
