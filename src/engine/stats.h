/* stats.h: what an engine counts. The engine thread writes, anyone reads; nothing depends on it. */
#pragma once

#include "base/histogram.h"
#include "engine/prefix_counts.h"

enum { ENGINE_PRIORITIES = 32 };

struct engine_stats { /* engine thread writes, anyone reads; nothing depends on it */
    _Atomic uint64_t steps, prompt_tokens, generated_tokens, preemptions;
    _Atomic uint64_t cancelled, finished, rejected; /* requests; rejected by the submitters */
    _Atomic uint64_t prefill_ns, decode_ns;         /* time in forward, by what the step held */
    _Atomic uint64_t drafts, drafted_tokens, accepted_tokens;       /* guesses; see spec.h */
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
    struct histogram step_prefill, step_decode;                 /* steps, by what they held */
    struct histogram batch_size, batch_tokens;                  /* of steps: sequences, rows */
    _Atomic uint32_t running, waiting, pages_used, pages_total; /* sequences; pages */
    _Atomic uint32_t pages_cached; /* nobody uses them, and they can be had; not in pages_used */
    struct prefix_counts prefix;
};
