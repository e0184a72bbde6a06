/* pace.h: how fast requests get through, measured while others wait; what a new one may expect.
 *
 * While sequences wait for their turn, the prompts that get done in a time say how fast the queue
 * drains, whatever it is that holds it up: rows, pages, or places that answers keep. Answers say
 * how long they are, and how long a token takes.
 *
 * The engine thread measures (struct pace) and publishes three numbers (struct forecast), which
 * the door reads; nothing else depends on them. */
#pragma once

#include "base/base.h"

struct pace {                    /* zeroed = nothing known */
    double busy_ns, busy_tokens; /* steps in which some waited; prompt tokens done in them */
    double answers, out_tokens, out_squares,
        token_ns; /* averages over the last answers, and how many count */
};

struct forecast {                          /* 0 = unknown */
    _Atomic uint64_t prompt_tokens_s;      /* of the queue */
    _Atomic uint64_t out_tokens, token_ns; /* of an answer that is long, but not unusually so */
};

struct expected {              /* from now on */
    uint64_t first_ns, end_ns; /* 0 = unknown */
};

void pace_step(struct pace *p, uint64_t took_ns, int64_t prompt_tokens, bool have_waited);
void pace_answer(struct pace *p, int n_tokens, uint64_t took_ns);
/* What an answer of at most max_out tokens takes, if it is not unusually long. 0 = unknown. */
uint64_t pace_answer_ns(const struct pace *p, int max_out);
void pace_publish(const struct pace *p, struct forecast *f);

/* Of a request behind `n_before` prompt tokens. */
struct expected forecast_of(const struct forecast *f, int64_t n_before, int n_prompt, int max_out);
