/* replay.h: simulates a trace of arrivals with the real engine on a timed model without
 * computation.
 *
 * The clock is virtual and advances with arrivals and step times; nothing sleeps. Equal traces give
 * equal results. One replay at a time per process (there is one clock); owner: the calling
 * thread. */
#pragma once

#include "engine/engine.h"
#include "engine/sched/step_time.h"
#include "testing/timed.h"

struct replay_request { /* one request */
    double at_s;        /* arrival, not decreasing */
    int n_prompt, n_out;
    uint64_t prefix; /* requests with equal values share a prefix as far as both go; 0 = none */
    uint64_t tenant;
    int priority;
};

struct replay_options {
    struct engine_options engine;
    struct timed_cost cost;
    int n_ctx;
    uint32_t n_pages;
    double deadline_s; /* per request; 0 = none */
    int max_rows;
    int n_layers; /* layers of the model, for layered prefill; 0 = 1 */
    /* To measure the benefit of the estimators: constant coefficients in place of the step-time
     * model, borrowed, NULL = the model; no wait estimate. */
    const struct step_time *constant_step_time;
    bool without_wait_estimate;
};

struct replay_quantiles { /* seconds */
    double p50, p90, p99, max;
};

struct replay_result {
    /* refused: at submission; dropped: in the queue, when the deadline could not be met any more;
     * late: while running. */
    int n, n_done, n_refused, n_dropped, n_late, n_failed;
    double span_s;                /* first arrival to last completion */
    double requests_s, tokens_s;  /* goodput: completed requests only */
    double hit_rate;              /* cached fraction of the prompt tokens of completed requests */
    struct replay_quantiles ttft; /* time to first token of completed requests */
    struct replay_quantiles itl;  /* inter-token latency */
    uint64_t steps, preemptions;
};

struct replay_samples { /* seconds; zeroed = none */
    float *v;
    size_t n, cap;
};
void replay_samples_add(struct replay_samples *s, double seconds);
struct replay_quantiles replay_quantiles_of(struct replay_samples *s); /* sorts the samples */
void replay_samples_clear(struct replay_samples *s);

/* Simulates the requests rows[0 .. n - 1]. ERR_RANGE: an invalid entry; ERR_MEMORY. */
int replay_run(struct replay_result *out, const struct replay_request *rows, int n,
    const struct replay_options *s, struct err *e);
