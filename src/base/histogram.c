#include "base/histogram.h"

#include <stdatomic.h>

static const uint64_t bounds_us[HISTOGRAM_BUCKETS - 1] = { 100, 250, 500, 1000, 2500, 5000, 10000,
    25000, 50000, 100000, 250000, 500000, 1000000, 2500000, 5000000, 10000000, 25000000, 60000000,
    120000000, 300000000, 600000000 };

int histogram_bucket_index(enum histogram_kind kind, uint64_t value)
{
    int i = 0;

    while (i < HISTOGRAM_BUCKETS - 1 &&
           value > (kind == SECONDS ? bounds_us[i] * 1000 : (uint64_t)1 << i))
        i++;
    return i;
}

double histogram_bound(enum histogram_kind kind, int i)
{
    return kind == SECONDS ? (double)bounds_us[i] * 1e-6 : (double)((uint64_t)1 << i);
}

void histogram_add(struct histogram *h, enum histogram_kind kind, uint64_t value)
{
    int i = histogram_bucket_index(kind, value);

    atomic_fetch_add_explicit(&h->bucket[i], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&h->sum, value, memory_order_relaxed);
}
