/* candidates.h: filters of the sampler (top-k, typical-p, top-p, min-p) and the random draw.
 *
 * Few tokens of a vocabulary pass a filter, and the group maxima of the logits (model/lm.h) show
 * where they are: the first active filter provides a lower bound of the logits it keeps, and only
 * groups that reach it are examined. The drawn token does not depend on this shortcut.
 *
 * Weights are kernels->softmax over groups of LOGIT_GROUP candidates in id order; the sums of the
 * groups are added in double, in that order.
 *
 * Owner: the sampler. Allocates nothing after candidates_init. */
#pragma once

#include "engine/sample/select.h"
#include "kernel/kernels.h"
#include "model/lm.h"

struct candidates {
    const struct kernels *k;
    int n_vocab;
    struct logits row; /* present logits */
    float max;         /* maximum of the row; -inf = all tokens are banned */
    float *own;        /* [n_vocab] modified copy of a row */
    float *peak;       /* [n_groups] group maxima if the model provides none */
    /* Remaining candidates in id order. */
    int n;
    int32_t *id;
    float *value;
    float *weight; /* weights of the candidates, or of the whole row */
    double *sum;   /* sum of the weights per group */
    double total;  /* sum of the weights of the whole row at temperature 1; 0 = unknown */
    struct select sel;
};

bool candidates_init(struct candidates *c, const struct kernels *k, int n_vocab) MUST_CHECK;
void candidates_clear(struct candidates *c); /* also after a failed init */

/* Sets the row of the following calls, which do not change it. NaN and -inf are banned. */
void candidates_set_row(struct candidates *c, const struct logits *row);
/* Returns a copy of the row to be modified and set with candidates_set_row. */
float *candidates_copy(struct candidates *c);

/* Arg-max, ties by lowest id; 0 if all are banned. */
int32_t candidates_best(const struct candidates *c);

struct filters {
    int top_k;                     /* 0 = off */
    float typical_p, top_p, min_p; /* 1, 1, 0 = off */
};

/* Requires c->max > -inf, temperature > 0, 0 <= u < 1. */
int32_t candidates_draw(struct candidates *c, const struct filters *f, float temperature, double u);

/* The same for candidates that the caller has listed: id and value [n], n >= 1, finite, in id
 * order. They replace the row. */
int32_t candidates_best_listed(const struct candidates *c);
int32_t candidates_draw_listed(
    struct candidates *c, const struct filters *f, float temperature, double u);

/* Lower bound of the k-th highest logit: the k-th highest group maximum. -inf if there are fewer
 * than k groups. */
float candidates_floor(struct candidates *c, int k);

/* log of the sum of exp(logit) over the row; +inf if all tokens are banned. */
double candidates_log_sum(struct candidates *c);
