/* stats.h: what an engine counts. The engine thread writes, anyone reads; nothing depends on it. */
#pragma once

#include "base/histogram.h"
#include "engine/prefix_counts.h"

enum { ENGINE_PRIORITIES = 32 };

enum draft_kind { DRAFT_BY_PREDICTION, DRAFT_BY_HISTORY, DRAFT_BY_MODEL, N_DRAFT_KINDS };

struct draft_counts { /* guesses; see spec.h */
    _Atomic uint64_t drafts, drafted_tokens, accepted_tokens;
};

struct engine_stats { /* engine thread writes, anyone reads; nothing depends on it */
    _Atomic uint64_t steps, prompt_tokens, generated_tokens, preemptions;
    _Atomic uint64_t cancelled, finished, rejected; /* requests; rejected by the submitters */
    _Atomic uint64_t prefill_ns, decode_ns;         /* time in forward, by what the step held */
    struct draft_counts guesses[N_DRAFT_KINDS];
    _Atomic uint64_t turns_preempted, turns_yielded, turns_resumed; /* struct fairness */
    _Atomic uint32_t turns_waiting; /* sequences that gave theirs away and wait to go on */
    struct { /* tokens sampled; priorities in the order in which they came up */
        _Atomic int priority;
        _Atomic uint64_t tokens;
    } by_priority[ENGINE_PRIORITIES];
    _Atomic int n_priorities;
    _Atomic uint64_t other_priorities; /* tokens of those that found no place there */
    /* Of requests: first step to first token, and on to the end. */
    struct histogram prefill, decode;
    struct histogram waited;                      /* of choices, after they had begun */
    struct histogram step_prefill, step_decode;   /* steps, by what they held */
    struct histogram batch_size, batch_tokens;    /* of steps: sequences, rows */
    struct histogram batch_prefill, batch_decode; /* of those with some: sequences of each phase */
    _Atomic uint32_t running; /* sequences, and those that wait as a script says */
    _Atomic uint32_t queued;  /* requests that have not begun */
    _Atomic uint32_t pages_used, pages_total;
    _Atomic uint64_t cost_fixed_ns, cost_row_ns, cost_key_ps; /* of a step, as expected: cost.h */
    _Atomic uint32_t pages_cached; /* nobody uses them, and they can be had; not in pages_used */
    struct prefix_counts prefix;
};

struct draft_sum {
    uint64_t drafts, drafted, accepted; /* tokens, but for the first */
};

/* All kinds together. */
static inline struct draft_sum draft_sum(const struct engine_stats *s)
{
    struct draft_sum n = { 0 };
    for (int i = 0; i < N_DRAFT_KINDS; i++) {
        n.drafts += s->guesses[i].drafts;
        n.drafted += s->guesses[i].drafted_tokens;
        n.accepted += s->guesses[i].accepted_tokens;
    }
    return n;
}
