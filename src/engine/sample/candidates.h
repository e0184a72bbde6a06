/* candidates.h: which tokens may be drawn, and the draw. A sampler's part.
 *
 * Of a vocabulary few tokens pass a filter, and the peaks of its logits (lm.h) say where they are:
 * the first filter that is on gives a floor below which it keeps nothing, and only groups that
 * reach it are looked at. What is drawn does not depend on that, only how long it takes.
 *
 * Weights are kernels->softmax over groups of LOGIT_GROUP candidates in the order of their ids; the
 * groups' sums are added in double, in that order.
 *
 * Allocates nothing after candidates_init. Owner: the sampler. */
#pragma once

#include "engine/sample/select.h"
#include "kernel/kernels.h"
#include "model/lm.h"

struct candidates {
    const struct kernels *k;
    int n_vocab;
    struct logits row; /* looked at */
    float max;         /* of it; -inf: everything is banned */
    float *own;        /* [n_vocab] a row to be changed */
    float *peak;       /* [n_groups] where the model gives none */
    /* those that are left, in the order of their ids */
    int n;
    int32_t *id;
    float *value;
    float *weight; /* of them, or of the whole row */
    double *sum;   /* of the weights of each group */
    double total;  /* of the whole row's, at temperature 1; 0: not known */
    struct select sel;
};

bool candidates_init(struct candidates *c, const struct kernels *k, int n_vocab) MUST_CHECK;
void candidates_clear(struct candidates *c); /* also after a failed init */

/* The row that the functions below are about; it is not changed. NaN and -inf are banned. */
void candidates_look(struct candidates *c, const struct logits *row);
/* A copy of it, to be changed and then looked at. */
float *candidates_copy(struct candidates *c);

/* The best, of equals the lowest id; 0 when all are banned. */
int32_t candidates_best(const struct candidates *c);

struct filters {
    int top_k;                     /* 0: off */
    float typical_p, top_p, min_p; /* 1, 1, 0: off */
};

/* c->max is above -inf. temperature > 0, 0 <= u < 1. */
int32_t candidates_draw(struct candidates *c, const struct filters *f, float temperature, double u);

/* At least k logits are as high as this: so many groups have one as high as the k-th of their
 * peaks. -inf where there are fewer groups. */
float candidates_floor(struct candidates *c, int k);

/* The logarithm of the sum of exp(logit) over the row; +inf when everything is banned. */
double candidates_log_sum(struct candidates *c);
