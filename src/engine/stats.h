/* stats.h: counters of an engine. The engine thread writes, any thread reads; no decision depends
 * on them. */
#pragma once

#include "base/histogram.h"
#include "engine/prefix_counts.h"

enum { ENGINE_PRIORITIES = 32 };

enum draft_kind {
    DRAFT_BY_PREDICTION,
    DRAFT_BY_HISTORY,
    DRAFT_BY_MODEL,
    DRAFT_BY_CONSTRAINT, /* forced tokens */
    N_DRAFT_KINDS
};

struct draft_counts { /* speculative decoding; see spec.h */
    _Atomic uint64_t drafts, drafted_tokens, accepted_tokens;
};

struct constraint_counts {           /* constrained.h */
    _Atomic uint64_t masks, mask_ns; /* masks of all choices, without draft tokens; with them */
    _Atomic uint64_t pauses;         /* masks that took several steps */
    _Atomic uint64_t completed;      /* choices that ended because nothing may follow */
    _Atomic uint64_t not_met, over_bound; /* ended without a permitted token; MASK_ERROR */
};

struct engine_stats {
    _Atomic uint64_t steps, prompt_tokens, generated_tokens, preemptions;
    /* requests; `rejected` is counted by the submitting threads. */
    _Atomic uint64_t cancelled, finished, rejected;
    /* Forward passes of steps with and without prefill rows. */
    _Atomic uint64_t prefill_ns, decode_ns;
    struct draft_counts drafts_by_source[N_DRAFT_KINDS];
    struct constraint_counts constraints;
    _Atomic uint64_t fairness_preempted, fairness_yielded, fairness_resumed; /* struct fairness */
    _Atomic uint32_t fairness_waiting; /* sequences that yielded and wait to resume */
    struct {                           /* output tokens by priority, in the order of first use */
        _Atomic int priority;
        _Atomic uint64_t tokens;
    } by_priority[ENGINE_PRIORITIES];
    _Atomic int n_priorities;
    _Atomic uint64_t other_priorities; /* tokens of further priorities */
    /* Requests: first step to first token, first token to end. */
    struct histogram prefill, decode;
    struct histogram waited; /* waiting time of choices after the prompt was computed */
    struct histogram step_prefill, step_decode; /* step time with and without prefill rows */
    struct histogram batch_size, batch_tokens;  /* per step: sequences, batch rows */
    /* Per step: prefilling and decoding sequences, if any. */
    struct histogram batch_prefill, batch_decode;
    _Atomic uint32_t running; /* sequences, including those delayed by a script */
    _Atomic uint32_t queued;  /* requests that have not started */
    _Atomic uint32_t pages_used, pages_total;
    /* Coefficients of the step-time model. */
    _Atomic uint64_t step_fixed_ns, step_row_ns, step_key_ps;
    /* Unused pages in the prefix cache, which can be evicted; not in pages_used. */
    _Atomic uint32_t pages_cached;
    /* State slots of recurrent layers: used by sequences; held by the prefix cache only. */
    _Atomic uint32_t states_used, states_cached, states_total;
    /* Pages of windowed layers, the same. */
    _Atomic uint32_t windows_used, windows_cached, windows_total;
    struct prefix_counts prefix;
};

struct draft_sum {
    uint64_t drafts, drafted, accepted; /* drafts; draft tokens */
};

/* Sum over all kinds of drafts. */
static inline struct draft_sum draft_sum(const struct engine_stats *s)
{
    struct draft_sum n = { 0 };
    for (int i = 0; i < N_DRAFT_KINDS; i++) {
        n.drafts += s->drafts_by_source[i].drafts;
        n.drafted += s->drafts_by_source[i].drafted_tokens;
        n.accepted += s->drafts_by_source[i].accepted_tokens;
    }
    return n;
}
