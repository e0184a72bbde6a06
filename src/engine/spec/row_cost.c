#include "engine/spec/row_cost.h"

#include <math.h>

static const double FORGET = 1.0 / 128, ERROR_LIMIT = 3, UPDATE_MAX = 1;
static const double NOISE_INITIAL = 0.7, NOISE_MIN = 0.005;
static const double SLOPE_MAX = 1e3, SLOPE_MIN = 1e-5;
static const double INITIAL_SHARE = 0.125, AGE = 1.0 / 1024, EXPLORE_STEPS = 50;
enum { NOISE_WINDOW = 32, PAIRS_MIN = 6, PAIRS_MAX = 1000 };

static double clip(double x, double limit)
{
    return x > limit ? limit : x < -limit ? -limit : x;
}

/* log(1 + slope * n); *derivative is its derivative with respect to log(slope). */
static double log_time(double slope, int n, double *derivative)
{
    *derivative = slope * n / (1 + slope * n);
    return log1p(slope * n);
}

/* Limits an error to a multiple of the usual error, since a larger one has another cause; until
 * enough pairs are known, to a constant. */
static double limit_error(const struct row_cost *s, double error)
{
    bool is_known = s->n_noises > 0 && s->n_pairs >= PAIRS_MIN;

    return clip(error, ERROR_LIMIT * (is_known ? MAX(s->noise, NOISE_MIN) : NOISE_INITIAL));
}

static void update_noise(struct row_cost *s, double error)
{
    s->n_noises = MIN(s->n_noises + 1, (int)NOISE_WINDOW);
    s->noise += (fabs(error) - s->noise) / s->n_noises;
}

static void update_slope(struct row_cost *s, int n, double log_ns)
{
    double before, after;
    if (s->n_pairs == 0)
        s->log_slope = log(INITIAL_SHARE / (1 - INITIAL_SHARE) / MIN(n, s->last_rows));
    double slope = exp(s->log_slope);
    double error =
        log_ns - s->last_log - log_time(slope, n, &after) + log_time(slope, s->last_rows, &before);
    double sensitivity = after - before;

    error = limit_error(s, error);
    if (n == s->last_rows || s->n_pairs >= PAIRS_MIN)
        update_noise(s, error);
    if (n == s->last_rows)
        return;
    s->n_since = 0;
    s->weight += sensitivity * sensitivity - s->weight * FORGET;
    s->log_slope += clip(sensitivity * error / s->weight, UPDATE_MAX);
    s->log_slope = MIN(MAX(s->log_slope, log(SLOPE_MIN)), log(SLOPE_MAX));
    s->n_pairs = MIN(s->n_pairs + 1, (int)PAIRS_MAX);
}

void row_cost_add(struct row_cost *s, int n_rows, double ns)
{
    double log_ns = log(MAX(ns, 1));

    if (s->last_rows > 0)
        update_slope(s, n_rows, log_ns);
    s->last_rows = n_rows;
    s->last_log = log_ns;
}

void row_cost_skip(struct row_cost *s)
{
    s->last_rows = 0;
}

void row_cost_age(struct row_cost *s)
{
    s->weight *= 1 - AGE;
    s->n_since++;
}

double row_cost_exploration(const struct row_cost *s)
{
    return s->n_since / EXPLORE_STEPS;
}

double row_cost_share(const struct row_cost *s, int base, double margin)
{
    if (s->n_pairs == 0)
        return (margin > 0 ? 1 : INITIAL_SHARE) / base;
    double std_error = MAX(1.25 * MAX(s->noise, NOISE_MIN) / sqrt(s->weight), 1.0 / s->n_pairs);
    double slope = exp(MIN(s->log_slope + margin * std_error, log(SLOPE_MAX)));
    return slope / (1 + slope * base);
}
