/* sched.h: scheduler: selects the batch rows of each step and assigns KV pages to sequences.
 *
 * A pure function of its state, the given time and the given events: no I/O, no threads, no clock,
 * no allocation after sched_new. The engine thread and tests/sim drive it.
 *
 *   events   sched_add, sched_fork, sched_push, sched_end, sched_park, ...
 *   plan     sched_plan: row runs and page copies of one step
 *   result   sched_commit if the step was computed; nothing if it was interrupted
 *
 * Batch order: decode rows, then prefill rows of running sequences, then admission of waiting
 * sequences, each in rank order. A run is limited by the rows, logits and prefill chunk of the
 * step, the event credits of the sequence, and pages. Only the first waiting sequence may be
 * admitted, so small requests do not overtake a large one.
 *
 * Chunked prefill: while sequences decode, prefill rows are added to the step up to
 * `mixed_step_factor` times the predicted decode-only step time (sched_set_step_time). Layered
 * prefill: if that budget is below a few rows through all layers, more rows pass some layers and
 * resume at the next layer in the next step; the minimum is one layer of one row, or
 * MIXED_PREFILL_ROWS_MIN rows if the model cannot run a part of its layers. Only one sequence has
 * partial rows at a time; the others get rows through all layers or none. Partial rows are
 * discarded if their sequence leaves the running set or a sequence of higher rank needs partial
 * rows.
 *
 * A short prompt (at most one chunk to compute at admission) has a larger budget, since delaying it
 * costs the prompt more than it costs the decoding sequences: up to `mixed_step_factor_short` times
 * the step time of a single decoding sequence, or twice that of all of them. Short prompts are
 * computed one after the other, so that the first one finishes early; prompts that an equal share
 * of the budget completes in this step do not wait. In a step without decode rows, a prompt that
 * would make the step longer than max_prefill_step_ns waits for the next step.
 *
 * Fairness (struct fairness, off by default): a low-priority sequence at the end of its time slice
 * yields its place to a waiting sequence, and a waiting high-priority sequence takes the place of
 * the lowest running one. A sequence that yields keeps its pages and its age, and resumes later.
 *
 * If a running sequence needs a page and none is free, pages are taken from the prefix cache, then
 * from sequences that do not run (lowest rank first), then from running sequences of lower rank
 * (lowest first; preemption with recomputation). The sequence of highest rank always gets its
 * pages, so the scheduler makes progress; a sequence without a page stalls with the rows it has.
 *
 * Owner: the engine thread. Cost of a step: O(running + considered sequences). */
#pragma once

#include "engine/engine.h"
#include "engine/sched/step_time.h"
#include "engine/seq.h"

struct sched_limits {
    int max_batch;     /* running sequences; <= max_rows, max_logits */
    int max_rows;      /* per step */
    int max_logits;    /* per step */
    int prefill_chunk; /* rows of one sequence per step */
    int max_started; /* sequences that have run and can run; new ones wait above it; >= max_batch */
    uint32_t max_seqs; /* sequences in any state except SEQ_FREE */
    uint64_t age_ns;
    double mixed_step_factor;   /* >= 1; 0 = no prefill budget */
    int n_layers;               /* layers of the model; layered prefill needs at least 2 */
    int max_partial_rows;       /* partial rows at a time, all of one sequence */
    int max_step_layers;        /* layers that a prefill run passes in a step; 0 = all; for tests */
    double max_prefill_step_ns; /* longest step without decode rows; 0 = no limit */
    double mixed_step_factor_short; /* >= 1; for prompts of at most one chunk; 0 = no limit */
    struct tree *tree;              /* prefix cache, borrowed; NULL = none */
    struct page_pool *states; /* state slots, borrowed, at least 2; NULL = no recurrent state */
    /* Window pages, borrowed, at least sched_least_windows(); NULL = no windowed layers. */
    struct page_pool *windows;
    struct kv_window window; /* if there are windowed layers */
    /* Called before the admission of a sequence. Returns true if it has started to read more KV
     * pages of the sequence from the offload tier: the sequence is parked until sched_unpark. NULL
     * = no tier. */
    bool (*start_kv_load)(void *arg, const struct seq *s);
    void *start_kv_load_arg;
};

/* Limit of age_ns: priority * age_ns plus a clock of years stays below 2^63. */
#define SCHED_AGE_MAX 4000000000u

enum { MIXED_PREFILL_ROWS_MIN = 2 }; /* rows of a prompt in a mixed step, whatever they cost */

struct plan_run {
    seq_id seq;
    struct seq *s; /* borrowed until sched_end */
    int pos, n;
    int n_logits; /* the last rows of the run have logits */
    int n_drafts; /* draft rows after the known tokens: see sched_extend */
    /* Partial layer range (model/lm.h); both 0 = all layers. */
    int from_layer, end_layer;
    bool yields_token; /* all known tokens are computed after this run: the next token is due */
    bool is_first;     /* first run of the sequence */
};

struct plan_swap {     /* admission change by the fairness rules, for the log */
    void *user;        /* user pointer of the sequence */
    bool is_resumed;   /* the sequence resumes; otherwise it yields */
    bool is_preempted; /* it yields to a sequence of higher priority */
    uint64_t took_ns;  /* time in the running set before it yielded, or time it waited to resume */
};

struct step_plan {         /* execute the copies in order, clear the pages, then compute the runs */
    struct plan_run *runs; /* [max_batch] */
    struct page_copy *copies, *window_copies; /* [max_batch] */
    page_id *clears, *window_clears;          /* pages that held KV of another tenant */
    struct plan_swap *swaps;                  /* [4 max_batch]; further swaps are not recorded */
    int n_swaps;
    int n_runs, n_copies, n_clears, n_rows;
    int n_window_copies, n_window_clears;
    int n_prefill_runs; /* runs with prefill rows */
    bool has_prefill, has_decode;
    struct step_size size; /* rows of a partial run count with their fraction of the layers */
    double
        /* fraction of the layers that the partial run passes; 1 = no partial run */
        partial_fraction;
};

struct sched;

/* Borrows the pool. ERR_MEMORY. */
int sched_new(struct sched **out, struct page_pool *pool, const struct sched_limits *l,
    struct err *e) MUST_CHECK;
void sched_free(struct sched *sc); /* all sequences must have ended */

/* Window pages without which a sequence of at most n_tokens could not compute a row. */
uint32_t sched_least_windows(const struct kv_window *w, int n_tokens);

struct seq_spec {               /* one choice of a request */
    const struct gen_input *in; /* parameters of the request; read only by sched_add */
    int choice;                 /* choices of one request rank in index order */
    uint64_t start_deadline_ns; /* deadline of the first admission; 0 = none */
    int score_from;             /* see seq.h; in->n_prompt - 1 when no prompt logits are wanted */
    int credits;
    /* Capacity for the maximum length; owned by the caller, valid until sched_end. `windows`: only
     * for a model with windowed layers. */
    page_id *pages, *windows;
    /* Owned by the caller, valid until sched_end; keys of the prefix cache. */
    const int32_t *tokens;
    void *user;
    bool is_held; /* waits for sched_fork, not for admission */
};
seq_id sched_add(struct sched *sc, uint64_t now, const struct seq_spec *spec);

/* The leader has computed the prompt: a held sequence becomes waiting and shares the pages of the
 * leader. */
void sched_fork(struct sched *sc, seq_id leader, seq_id held, uint64_t now);
void sched_push(struct sched *sc, seq_id id, int n); /* appends n tokens */
void sched_end(struct sched *sc, seq_id id);         /* from any state */
/* Removes a running or just forked sequence from scheduling until sched_unpark. */
void sched_park(struct sched *sc, seq_id id, uint64_t now);
void sched_unpark(struct sched *sc, seq_id id, uint64_t now);
/* Removes a sequence from scheduling until the given time. Its last row is then computed once more,
 * so that its next token is due again. */
void sched_delay(struct sched *sc, seq_id id, uint64_t now, uint64_t until_ns);

/* Makes delayed sequences whose time has come waiting again. Returns a sequence whose deadline has
 * passed, which the caller must end, or SEQ_NONE. Call until SEQ_NONE before sched_plan. */
seq_id sched_expired(struct sched *sc, uint64_t now);
/* Earliest deadline or delay; UINT64_MAX = none. */
uint64_t sched_next_wake(const struct sched *sc);

void step_plan_init(struct step_plan *p, const struct sched_limits *l);
void step_plan_clear(struct step_plan *p);
void sched_plan(struct sched *sc, uint64_t now, struct step_plan *p);
void sched_set_fairness(struct sched *sc, const struct fairness *f);
/* Sets the coefficients of the step-time model. */
void sched_set_step_time(struct sched *sc, const struct step_time *c);
void sched_commit(struct sched *sc, const struct step_plan *p);

/* Speculative decoding. Draft rows of run i follow the last token of a decoding sequence. They use
 * what other sequences have left (rows, logits, event credits, free pages). sched_commit does not
 * count them: the caller reports each accepted draft token with sched_accept, after the sched_push
 * of its token. sched_trim frees the pages of rejected draft rows; it is also called after an
 * interrupted step. */
/* Adds up to n draft rows; returns the number. */
int sched_extend(struct sched *sc, struct step_plan *p, int i, int n);
void sched_retract(struct sched *sc, struct step_plan *p, int i, int n); /* removes n draft rows */
void sched_accept(struct sched *sc, seq_id id);
void sched_trim(struct sched *sc, seq_id id);

/* Borrowed. The caller may write credits and score_from. */
struct seq *sched_seq(struct sched *sc, seq_id id);

struct sched_counts {
    uint32_t seqs, running, waiting, parked, delayed, held;
    uint64_t preemptions;                     /* because of missing pages */
    uint64_t partial_runs, partial_runs_lost; /* partial runs; those discarded */
    uint64_t fairness_preempted, fairness_yielded, fairness_resumed;
    uint32_t fairness_waiting; /* sequences that yielded and wait to resume */
};
void sched_counts(const struct sched *sc, struct sched_counts *out);

/* Checks all invariants between two steps; returns a description of the violation, or NULL. */
const char *sched_check(struct sched *sc);
