/* replay.h: a trace of arrivals through the real engine, on a model that only takes its time.
 *
 * Nothing waits in earnest: the clock is the trace's, moved by arrivals and by what steps take.
 * The same rows give the same result, always. One at a time in a process (it has one clock);
 * owner: the calling thread. */
#pragma once

#include "engine/engine.h"
#include "testing/timed.h"

struct replay_row { /* one request */
    double at_s;    /* not before the row above */
    int n_prompt, n_out;
    uint64_t prefix; /* requests with the same one begin alike, as far as both go; 0 = like none */
    uint64_t tenant;
    int priority;
};

struct replay_setup {
    struct engine_options engine;
    struct timed_law law;
    int n_ctx;
    uint32_t n_pages;
    double deadline_s; /* of each request; 0 = none */
    int max_rows;
};

struct replay_times { /* seconds */
    double p50, p90, p99, max;
};

struct replay_result {
    /* refused: at the door; dropped: from the queue, too late to begin; late: on the way */
    int n, n_done, n_refused, n_dropped, n_late, n_failed;
    double span_s;               /* first arrival to last end */
    double requests_s, tokens_s; /* of those that were done: goodput */
    double hit_rate;             /* of the prompt tokens of what was done */
    struct replay_times first;   /* arrival to first token, of those done */
    struct replay_times between; /* two tokens of one request */
    uint64_t steps, preemptions;
};

struct replay_samples { /* seconds; zeroed = none */
    float *v;
    size_t n, cap;
};
void replay_add(struct replay_samples *s, double seconds);
struct replay_times replay_times_of(struct replay_samples *s); /* sorts them */
void replay_samples_clear(struct replay_samples *s);

/* ERR_RANGE, ERR_MEMORY. */
int replay_run(struct replay_result *out, const struct replay_row *rows, int n,
    const struct replay_setup *s, struct err *e);
