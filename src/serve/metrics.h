/* metrics.h: numbers about the server, for Prometheus (text format 0.0.4).
 *
 * Each io thread writes a shard of its own; a scrape adds the shards up. Nothing depends on
 * them, so the reads are relaxed. */
#pragma once

#include "base/buf.h"
#include "base/histogram.h"

enum metric {
#define COUNTER(name, help)            METRIC_##name,
#define COUNTER_BY(name, label, help)  METRIC_##name,
#define GAUGE(name, help)              METRIC_##name,
#define GAUGE_BY(name, label, help)    METRIC_##name,
#define HISTOGRAM(name, buckets, help) METRIC_##name,
#include "serve/metrics.def"
#undef COUNTER
#undef COUNTER_BY
#undef GAUGE
#undef GAUGE_BY
#undef HISTOGRAM
    N_METRICS
};

enum { METRIC_SERIES = 256 };

struct metric_series { /* one of a metric with a label */
    enum metric which;
    char label[80]; /* `priority="5"`; "" = unused */
    uint64_t value;
};

struct metrics {                       /* zeroed = ready */
    _Atomic uint64_t value[N_METRICS]; /* counters; gauges are sums over shards */
    struct histogram histogram[N_METRICS];
    struct metric_series series[METRIC_SERIES]; /* only of a shard that one thread made to show */
};

void metric_add(struct metrics *m, enum metric which, int64_t n);
void metric_set(struct metrics *m, enum metric which, uint64_t v);
void metric_observe_ns(struct metrics *m, enum metric which, uint64_t ns);
void metric_add_histogram(struct metrics *m, enum metric which, const struct histogram *h);
/* Beyond METRIC_SERIES labels more are not told. */
void metric_add_series(struct metrics *m, enum metric which, const char *label, uint64_t n);

/* One text for all shards. */
void metrics_write(struct buf *out, struct metrics *const *shards, int n);
void metrics_docs(struct buf *out); /* docs/metrics.md */
