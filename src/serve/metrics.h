/* metrics.h: counters, gauges and histograms of the server, in the Prometheus text format 0.0.4.
 *
 * Each io thread writes its own shard; a scrape adds the shards. No decision depends on the values,
 * so all accesses are relaxed. Owner of a shard: its io thread; any thread may read it. */
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

enum { METRIC_SERIES = 512 };

struct metric_series { /* one label value of a metric */
    enum metric which;
    char label[80]; /* `priority="5"`; "" = unused */
    uint64_t value;
};

struct metrics {                       /* zeroed = ready */
    _Atomic uint64_t value[N_METRICS]; /* counters and gauges; gauges are summed over the shards */
    struct histogram histogram[N_METRICS];
    struct metric_series series[METRIC_SERIES]; /* only used in the shard that a scrape creates */
};

void metric_add(struct metrics *m, enum metric which, int64_t n);
void metric_set(struct metrics *m, enum metric which, uint64_t v);
void metric_observe_ns(struct metrics *m, enum metric which, uint64_t ns);
void metric_add_histogram(struct metrics *m, enum metric which, const struct histogram *h);
/* Label values beyond METRIC_SERIES are dropped. */
void metric_add_series(struct metrics *m, enum metric which, const char *label, uint64_t n);

/* Writes the sum of all shards. */
void metrics_write(struct buf *out, struct metrics *const *shards, int n);
void metrics_docs(struct buf *out); /* docs/metrics.md */
