/* slope.h: what one row more costs a step, told by steps that follow each other.
 *
 *     time of a step of n rows = speed * (1 + slope * n)
 *
 * The machine is faster at one time than at another, often by half, and now and then something
 * holds a step up. Two steps in a row mostly have the same speed: the logarithm of the quotient of
 * their times is log(1 + slope * m) - log(1 + slope * n) and noise, in which speed takes no part.
 * So log(slope) is followed from pair to pair: recursive least squares that forget (Ljung, System
 * Identification, chapter 11), each error cut at some times what errors usually are. How sure the
 * result is follows from the same sums, and what follows may be asked of the dearest slope that is
 * likely.
 *
 * Owner: the engine thread. No input or output, no clock, no allocation. */
#pragma once

#include "base/base.h"

struct slope {
    double log_slope;
    double weight; /* squares of what each pair would show of it, fading */
    double noise;  /* of one pair's logarithm: mean size, fading */
    int n_noises;  /* that it is the mean of */
    int n_pairs;   /* of different rows, so far */
    int n_since;   /* steps that were not used to find out more */
    int last_rows; /* of the step before; 0: there is none */
    double last_log;
};

/* A step was measured that followed the last one told about. */
void slope_learn(struct slope *s, int n_rows, double ns);
void slope_skip(struct slope *s); /* there was another step between that says nothing */
/* A step was not used to find out more: what is known ages, and hope grows that it changed. */
void slope_age(struct slope *s);
double slope_hope(const struct slope *s); /* from 0 on, in standard deviations */

/* What a row adds to a step of `base` rows, as a share of it; `doubt` standard deviations dearer
 * than expected. At most 1 / base: a row of a step costs no more than its part. So much it is as
 * long as nothing is known, or without doubt an eighth of it. */
double slope_share(const struct slope *s, int base, double doubt);
