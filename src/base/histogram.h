/* histogram.h: histograms for Prometheus.
 *
 * One thread adds, any thread may read: the counters are atomic, and no decision depends on
 * them. */
#pragma once

#include "base/base.h"

enum histogram_kind {
    SECONDS, /* values in ns; bounds from 100 us to 10 min, steps 1-2.5-5 */
    SIZES,   /* counts; the bounds are powers of two up to 1 M */
};

enum { HISTOGRAM_BUCKETS = 22 }; /* the last bucket is +Inf */

struct histogram {                              /* zeroed = empty */
    _Atomic uint64_t bucket[HISTOGRAM_BUCKETS]; /* not cumulative */
    _Atomic uint64_t sum;
};

int histogram_bucket_index(enum histogram_kind kind, uint64_t value);
/* Upper bound of bucket i < HISTOGRAM_BUCKETS - 1, in seconds or as a count. */
double histogram_bound(enum histogram_kind kind, int i);
void histogram_add(struct histogram *h, enum histogram_kind kind, uint64_t value);
