/* sched.h: who runs in the next step, and with whose pages.
 *
 * A pure function of its state, the clock it is told and the events it is given: no input or
 * output, no threads, no allocation after sched_new, no look at any clock. The engine drives it,
 * and so does tests/sim.
 *
 *   events   sched_add, sched_fork, sched_push, sched_end, sched_park, ...
 *   plan     sched_plan: runs (rows of sequences) and page copies for one step
 *   answer   sched_commit when the step was computed; nothing when it was interrupted
 *
 * A step's rows go first to sequences with one row to go (decode), then to partly filled ones,
 * then to the first of those who wait, in the order of rank; each as far as rows, logits, its
 * chunk, its credits and pages allow. Only the very first who waits may come in: nobody is
 * overtaken for being large.
 *
 * While some decode, the rows of others ride along: as many as make the step `stretch` times as
 * long as what decodes alone would take, by what steps were measured to cost (sched_set_cost). So a
 * long prompt slows a stream down and never stops it. When there is time for a few rows only, more
 * of them pass some of the model's layers, pause, and go on in the next step; so the least that a
 * prompt gets is a layer of a row. Only one sequence is paused at a time, the others get whole rows
 * or none; where the model cannot, the least is a row or two. A pause is lost, and its rows begin
 * again, when its sequence does not run any more, or one of higher rank needs it. One that
 * had at most a chunk to compute when it came in is soon done with: waiting would cost it more than
 * it costs the others, and keep its place empty. Such ride until the step is `short_stretch` times
 * as long as that of one that decodes by itself, or twice what all that decode take; one after the
 * other, so that the first is in while the last waits, except for what an equal share of that time
 * brings in at once. Without any that decode, too, what would make a step longer than a pass may
 * take waits for the next.
 *
 * Turns change hands in two ways, both off by default (struct fairness): one of low priority that
 * has had its slice goes to the back of those who wait, when one of them is due; and one of high
 * priority that waits takes the place of the lowest. Who gives its turn away keeps its pages and
 * its age, and goes on where it was.
 *
 * When a running sequence needs a page and none is free, pages come from the prefix cache, then
 * from those who do not run (lowest rank first), then from running ones below it (lowest first,
 * preempted: they compute their pages again later). The highest always gets what it needs, so the
 * whole always moves; who gets nothing stalls with what it has.
 *
 * Owner: the engine thread. Cost of a step: running + those considered. */
#pragma once

#include "engine/sched/cost.h"
#include "engine/sched/fairness.h"
#include "engine/seq.h"

struct sched_limits {
    int max_batch;     /* sequences that run together; <= max_rows, max_logits */
    int max_rows;      /* per step */
    int max_logits;    /* per step */
    int prefill_chunk; /* rows of one sequence per step */
    int max_begun;     /* that have run and want to; fresh ones wait beyond it; >= max_batch */
    uint32_t max_seqs; /* live ones */
    uint64_t age_ns;
    double stretch;  /* >= 1; 0 = prompts take what rows there are */
    int n_layers;    /* of the model: between them rows may pause; 0, 1: nowhere */
    int max_paused;  /* rows at a time, of one sequence */
    int most_layers; /* that rows of prompts pass in a step; 0 = all; for tests */
    double pass_ns;  /* rows of a prompt pause when a step without decodes takes longer; 0: never */
    double short_stretch; /* >= 1: of those with at most a chunk to compute; 0 likewise */
    struct tree *tree;    /* the prefix cache, borrowed; NULL: nothing is remembered */
    /* Asked of one that is about to come in: true when more of its pages are on their way. It is
     * parked then, until sched_unpark. NULL: never. */
    bool (*is_coming)(void *arg, const struct seq *s);
    void *is_coming_arg;
};

/* Of age_ns: any priority times it, and the clock for years, are less than 2^63. */
#define SCHED_AGE_MAX 4000000000u

enum { RIDING_ROWS_MIN = 2 }; /* of a prompt beside decoding sequences, whatever they cost */

struct plan_run {
    seq_id seq;
    struct seq *s; /* borrowed: until it ends */
    int pos, n;
    int n_logits;              /* of the last rows */
    int n_drafts;              /* rows behind what is known: see sched_extend */
    int from_layer, end_layer; /* a part, see lm.h; both 0: all layers */
    bool is_whole;             /* after it the sequence has nothing to run: its next token is due */
    bool is_first;             /* of all runs of the sequence */
};

struct plan_copy {
    page_id from, to;
};

struct plan_turn {     /* for the log */
    void *user;        /* of the sequence */
    bool is_resumed;   /* else it gave its turn away */
    bool is_preempted; /* ... to a higher priority */
    uint64_t took_ns;  /* it ran before it gave its turn away, or waited until it went on */
};

struct plan {                 /* do the copies in order, clear pages, then the runs */
    struct plan_run *runs;    /* [max_batch] */
    struct plan_copy *copies; /* [max_batch] */
    page_id *clears;          /* pages that another tenant had */
    struct plan_turn *turns;  /* [4 max_batch]; more of them are not told */
    int n_turns;
    int n_runs, n_copies, n_clears, n_rows;
    int n_filling; /* runs of more than a next token */
    bool has_prefill, has_decode;
    struct step_size size; /* of rows that pass some layers only, this part */
    double part;           /* of the layers, that the one run passes which is not whole; else 1 */
};

struct sched;

/* Borrows the pool. ERR_MEMORY. */
int sched_new(struct sched **out, struct page_pool *pool, const struct sched_limits *l,
    struct err *e) MUST_CHECK;
void sched_free(struct sched *sc); /* every sequence must have ended */

struct seq_spec {
    int priority, choice; /* choices above 0 come right after their first one */
    uint64_t tenant;
    double weight;        /* of the tenant's service; 0 = 1 */
    uint64_t deadline_ns; /* UINT64_MAX = none */
    uint64_t begin_by_ns; /* likewise, until it is let in; 0 = none */
    int n_prompt;
    int score_from; /* see seq.h; n_prompt - 1 when no prompt logits are wanted */
    int credits;
    bool is_scripted;
    page_id *pages;           /* room for all it may ever need; the caller's until sched_end */
    const int32_t *tokens;    /* likewise; needed for the prefix cache */
    struct cache_scope scope; /* in which it takes part in it */
    bool is_uncached;         /* takes no part */
    void *user;
    bool is_held; /* waits for sched_fork, not for its turn */
};
seq_id sched_add(struct sched *sc, uint64_t now, const struct seq_spec *spec);

/* The leader has computed the prompt: a held sequence starts there, on the same pages. */
void sched_fork(struct sched *sc, seq_id leader, seq_id held, uint64_t now);
void sched_push(struct sched *sc, seq_id id, int n); /* n tokens more are known */
void sched_end(struct sched *sc, seq_id id);         /* in any state */
/* Takes no part until unparked, or until the time has come. Running ones, or just forked. */
void sched_park(struct sched *sc, seq_id id, uint64_t now);
void sched_unpark(struct sched *sc, seq_id id, uint64_t now);
/* As above, and its last row runs once more then, so that its token is due again. */
void sched_delay(struct sched *sc, seq_id id, uint64_t now, uint64_t until_ns);

/* Wakes the delayed whose time has come; returns one whose deadline has passed, to be ended by
 * the caller, or SEQ_NONE. Call until SEQ_NONE, then plan. */
seq_id sched_expired(struct sched *sc, uint64_t now);
uint64_t sched_next_wake(const struct sched *sc); /* of those; UINT64_MAX = never */

void plan_init(struct plan *p, const struct sched_limits *l);
void plan_clear(struct plan *p);
void sched_plan(struct sched *sc, uint64_t now, struct plan *p);
void sched_set_fairness(struct sched *sc, const struct fairness *f);
/* What steps cost, as far as it is known, from now on. */
void sched_set_cost(struct sched *sc, const struct cost *c);
void sched_commit(struct sched *sc, const struct plan *p);

/* Drafts: rows of run i behind the last token of a sequence that decodes. They get what nobody
 * else has wanted (rows, logits, credits, free pages) and are not counted by sched_commit: each
 * that turned out right is told by sched_accept, after the sched_push of its token. sched_trim
 * gives the pages of the others back, also after a step that was interrupted. */
int sched_extend(struct sched *sc, struct plan *p, int i, int n);   /* returns how many */
void sched_retract(struct sched *sc, struct plan *p, int i, int n); /* n of them after all not */
void sched_accept(struct sched *sc, seq_id id);
void sched_trim(struct sched *sc, seq_id id);

/* Borrowed. The caller may write credits, score_from. */
struct seq *sched_seq(struct sched *sc, seq_id id);

struct sched_counts {
    uint32_t seqs, running, waiting, parked, delayed, held;
    uint64_t preemptions;         /* for pages */
    uint64_t pauses, pauses_lost; /* of rows, between two layers */
    uint64_t turns_preempted, turns_yielded, turns_resumed;
    uint32_t turns_waiting; /* sequences that gave theirs away and wait */
};
void sched_counts(const struct sched *sc, struct sched_counts *out);

/* Walks everything between two steps: what is wrong with pages, lists and states, or NULL. */
const char *sched_check(struct sched *sc);
