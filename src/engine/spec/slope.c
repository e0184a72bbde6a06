#include "engine/spec/slope.h"

#include <math.h>

static const double FORGET = 1.0 / 128, CUT = 3, STEP_MOST = 1;
static const double NOISE_FIRST = 0.7, NOISE_LEAST = 0.005;
static const double DEAREST = 1e3, CHEAPEST = 1e-5;
static const double FIRST_SHARE = 0.125, AGE = 1.0 / 1024, HOPE = 50;
enum { NOISE_MEMORY = 32, PAIRS_FIRST = 6, PAIRS_MOST = 1000 };

static double clip(double x, double most)
{
    return x > most ? most : x < -most ? -most : x;
}

/* log(1 + slope * n), and how much more of it a little more of log(slope) makes. */
static double log_time(double slope, int n, double *more)
{
    *more = slope * n / (1 + slope * n);
    return log1p(slope * n);
}

/* Errors beyond this say that something else happened; at first, that little is known. */
static double cut(const struct slope *s, double error)
{
    bool is_known = s->n_noises > 0 && s->n_pairs >= PAIRS_FIRST;

    return clip(error, CUT * (is_known ? MAX(s->noise, NOISE_LEAST) : NOISE_FIRST));
}

static void learn_noise(struct slope *s, double error)
{
    s->n_noises = MIN(s->n_noises + 1, (int)NOISE_MEMORY);
    s->noise += (fabs(error) - s->noise) / s->n_noises;
}

static void learn_pair(struct slope *s, int n, double log_ns)
{
    double before, after;
    if (s->n_pairs == 0)
        s->log_slope = log(FIRST_SHARE / (1 - FIRST_SHARE) / MIN(n, s->last_rows));
    double slope = exp(s->log_slope);
    double error =
        log_ns - s->last_log - log_time(slope, n, &after) + log_time(slope, s->last_rows, &before);
    double shows = after - before;

    error = cut(s, error);
    if (n == s->last_rows || s->n_pairs >= PAIRS_FIRST)
        learn_noise(s, error);
    if (n == s->last_rows)
        return;
    s->n_since = 0;
    s->weight += shows * shows - s->weight * FORGET;
    s->log_slope += clip(shows * error / s->weight, STEP_MOST);
    s->log_slope = MIN(MAX(s->log_slope, log(CHEAPEST)), log(DEAREST));
    s->n_pairs = MIN(s->n_pairs + 1, (int)PAIRS_MOST);
}

void slope_learn(struct slope *s, int n_rows, double ns)
{
    double log_ns = log(MAX(ns, 1));

    if (s->last_rows > 0)
        learn_pair(s, n_rows, log_ns);
    s->last_rows = n_rows;
    s->last_log = log_ns;
}

void slope_skip(struct slope *s)
{
    s->last_rows = 0;
}

void slope_age(struct slope *s)
{
    s->weight *= 1 - AGE;
    s->n_since++;
}

double slope_hope(const struct slope *s)
{
    return s->n_since / HOPE;
}

double slope_share(const struct slope *s, int base, double doubt)
{
    if (s->n_pairs == 0)
        return (doubt > 0 ? 1 : FIRST_SHARE) / base;
    double unsure = MAX(1.25 * MAX(s->noise, NOISE_LEAST) / sqrt(s->weight), 1.0 / s->n_pairs);
    double slope = exp(MIN(s->log_slope + doubt * unsure, log(DEAREST)));
    return slope / (1 + slope * base);
}
