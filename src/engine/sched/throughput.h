/* throughput.h: throughput of the queue, measured while requests wait, and the estimated wait of a
 * new request.
 *
 * While sequences wait, the prompt tokens completed per second are the rate at which the queue
 * drains, whatever limits it: rows, pages, or places in the running set. Finished responses provide
 * the length of the output and the time per token.
 *
 * Owner: the engine thread measures (struct throughput) and publishes three numbers (struct
 * wait_estimate), which other threads read for load shedding and for Retry-After. */
#pragma once

#include "base/base.h"

struct throughput { /* zeroed = nothing is measured */
    /* Steps during which requests waited: their time, and the prompt tokens completed in them. */
    double busy_ns, busy_tokens;
    /* Number of averaged responses (limited), and averages: output tokens, their square, time per
     * token. */
    double n_responses, out_tokens, out_squares, token_ns;
};

struct wait_estimate {                /* 0 = unknown */
    _Atomic uint64_t prompt_tokens_s; /* throughput of the queue in prompt tokens per second */
    /* Output length one standard deviation above the mean, and time per token. */
    _Atomic uint64_t out_tokens, token_ns;
};

struct wait_times {            /* from submission on */
    uint64_t first_ns, end_ns; /* 0 = unknown */
};

void throughput_add_step(
    struct throughput *p, uint64_t took_ns, int64_t prompt_tokens, bool have_waited);
void throughput_add_response(struct throughput *p, int n_tokens, uint64_t took_ns);
/* Estimated time of a long response with at most max_out tokens; 0 = unknown. */
uint64_t throughput_response_ns(const struct throughput *p, int max_out);
void throughput_publish(const struct throughput *p, struct wait_estimate *f);

/* Estimate for a request that is queued after `n_before` prompt tokens. */
struct wait_times wait_estimate_of(
    const struct wait_estimate *f, int64_t n_before, int n_prompt, int max_out);
