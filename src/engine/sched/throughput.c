#include "engine/sched/throughput.h"

#include <math.h>

static const double HALVE_AFTER_NS = 20e9;
enum { AVERAGED_RESPONSES = 32 };

void throughput_add_step(
    struct throughput *p, uint64_t took_ns, int64_t prompt_tokens, bool have_waited)
{
    if (!have_waited)
        return;
    p->busy_ns += (double)took_ns;
    p->busy_tokens += (double)prompt_tokens;
    if (p->busy_ns > HALVE_AFTER_NS) { /* earlier measurements count half */
        p->busy_ns *= 0.5;
        p->busy_tokens *= 0.5;
    }
}

void throughput_add_response(struct throughput *p, int n_tokens, uint64_t took_ns)
{
    if (n_tokens < 1)
        return;
    p->n_responses = MIN(p->n_responses + 1, (double)AVERAGED_RESPONSES);
    p->out_tokens += (n_tokens - p->out_tokens) / p->n_responses;
    p->out_squares += ((double)n_tokens * n_tokens - p->out_squares) / p->n_responses;
    p->token_ns += ((double)took_ns / n_tokens - p->token_ns) / p->n_responses;
}

/* Mean output length plus one standard deviation. */
static double long_response(const struct throughput *p)
{
    return p->out_tokens + sqrt(MAX(p->out_squares - p->out_tokens * p->out_tokens, 0));
}

uint64_t throughput_response_ns(const struct throughput *p, int max_out)
{
    return (uint64_t)(MIN(long_response(p), (double)max_out) * p->token_ns);
}

void throughput_publish(const struct throughput *p, struct wait_estimate *f)
{
    f->prompt_tokens_s = p->busy_ns > 0 ? (uint64_t)(p->busy_tokens * 1e9 / p->busy_ns) : 0;
    f->out_tokens = (uint64_t)long_response(p);
    f->token_ns = (uint64_t)p->token_ns;
}

struct wait_times wait_estimate_of(
    const struct wait_estimate *f, int64_t n_before, int n_prompt, int max_out)
{
    uint64_t rate = f->prompt_tokens_s, n_out = MIN(f->out_tokens, (uint64_t)max_out);
    struct wait_times e = { 0, 0 };

    if (rate == 0)
        return e;
    e.first_ns = (uint64_t)((double)(n_before + n_prompt) * 1e9 / (double)rate) + 1;
    e.end_ns = e.first_ns + n_out * f->token_ns;
    return e;
}
