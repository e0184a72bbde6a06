/* row_cost.h: marginal cost of a batch row, estimated from consecutive steps.
 *
 *     time of a step with n rows = speed * (1 + slope * n)
 *
 * The speed of the machine varies over time, often by half, and single steps are delayed by other
 * causes. Two consecutive steps mostly have the same speed: the logarithm of the ratio of their
 * times is log(1 + slope * m) - log(1 + slope * n) plus noise, independent of speed. log(slope) is
 * estimated from these pairs by recursive least squares with a forgetting factor (Ljung, System
 * Identification, chapter 11). Each error is limited to a multiple of the usual error. The same
 * sums yield the standard error, so that callers can request the largest plausible slope
 * (`margin`).
 *
 * Owner: the engine thread. No I/O, no clock, no allocation. */
#pragma once

#include "base/base.h"

struct row_cost {
    double log_slope;
    double weight; /* sum of squared sensitivities of the pairs, decaying */
    double noise;  /* mean absolute error of a pair, decaying */
    int n_noises;  /* errors averaged in it */
    int n_pairs;   /* pairs with different numbers of rows */
    int n_since;   /* steps since the last such pair */
    int last_rows; /* rows of the previous step; 0 = none */
    double last_log;
};

/* Adds a measured step that followed the previously added one. */
void row_cost_add(struct row_cost *s, int n_rows, double ns);
/* A step without a measurement is between the last one and the next. */
void row_cost_skip(struct row_cost *s);
/* A step without drafts: the estimate ages and the exploration bonus grows. */
void row_cost_age(struct row_cost *s);
double row_cost_exploration(
    const struct row_cost *s); /* exploration bonus in standard errors, from 0 on */

/* Cost of one more row as a fraction of a step with `base` rows, `margin` standard errors above the
 * estimate. At most 1 / base: a row of a step costs no more than its share. Without measurements
 * the result is 1 / base if margin > 0, and an eighth of that otherwise. */
double row_cost_share(const struct row_cost *s, int base, double margin);
