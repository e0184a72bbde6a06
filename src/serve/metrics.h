/* metrics.h: numbers about the server, for Prometheus (text format 0.0.4).
 *
 * Each io thread writes a shard of its own; a scrape adds the shards up. Nothing depends on
 * them, so the reads are relaxed. */
#pragma once

#include "base/buf.h"

enum metric {
#define COUNTER(name, help)            METRIC_##name,
#define GAUGE(name, help)              METRIC_##name,
#define HISTOGRAM(name, buckets, help) METRIC_##name,
#include "serve/metrics.def"
#undef COUNTER
#undef GAUGE
#undef HISTOGRAM
    N_METRICS
};

enum { METRIC_BUCKETS = 22 }; /* the last is +Inf */

struct metrics { /* zeroed = ready */
    _Atomic uint64_t
        value[N_METRICS]; /* counters; gauges are sums over shards; histograms: count */
    _Atomic uint64_t sum_ns[N_METRICS];
    _Atomic uint64_t bucket[N_METRICS][METRIC_BUCKETS]; /* not cumulative */
};

void metric_add(struct metrics *m, enum metric which, int64_t n);
void metric_set(struct metrics *m, enum metric which, uint64_t v);
void metric_observe_ns(struct metrics *m, enum metric which, uint64_t ns);

/* One text for all shards. */
void metrics_write(struct buf *out, struct metrics *const *shards, int n);
void metrics_docs(struct buf *out); /* docs/metrics.md */
