/* seq.h: one sequence as the scheduler sees it: lengths, times and pages.
 *
 * A sequence is one choice of one request. `n_tokens` tokens are known (prompt, then output); the
 * KV of the first `n_kv` is in its pages. The rows n_kv .. n_tokens - 1 are computed next: one row
 * is decode, more rows are prefill. Preemption frees the pages and sets n_kv to 0; nothing else
 * changes.
 *
 *               add                         admission                   no credits
 *      (free) ------> WAITING ----------------------> RUNNING -----------------------> PARKED
 *         |              ^   ^ preemption, yield          | |                              |
 *         | add, with    |   +----------------------------+ | sched_delay     credits      |
 *         | a leader     | prompt of leader computed        v                 returned     |
 *         +---> HELD ----+ <--------------------------- DELAYED                            |
 *                        +-----------------------------------------------------------------+
 *      any state --- sched_end ---> (free)
 *
 * Pages are kept in the states WAITING, PARKED and DELAYED until another sequence needs them.
 * Owner: the engine thread. */
#pragma once

#include "base/list.h"
#include "cache/tree.h"

typedef struct {
    uint32_t i;
} seq_id;

#define SEQ_NONE ((seq_id){ UINT32_MAX })
#define NO_SEQ   UINT32_MAX

enum { SEQ_CHOICES_MAX = 128 }; /* choices of one request */

enum seq_state { SEQ_FREE, SEQ_HELD, SEQ_WAITING, SEQ_RUNNING, SEQ_PARKED, SEQ_DELAYED };

struct page_copy { /* pending copy-on-write; holds a reference to `from`. PAGE_NONE = none */
    page_id from, to;
};

#define PAGE_COPY_NONE ((struct page_copy){ PAGE_NONE, PAGE_NONE })

struct seq_pools { /* page pools of a model */
    struct page_pool *pages;
    struct page_pool *windows; /* NULL = no windowed layers */
    struct page_pool *states;  /* NULL = no recurrent state */
};

struct seq {
    /* First cache line: fields that each step reads and writes for a decoding sequence. */
    ALIGNED(64) enum seq_state state;
    struct index_link running; /* in the list of running sequences; `next` also in the free list */
    bool is_scripted;          /* output comes from a script: no logits */
    bool is_fresh;             /* was never admitted */
    bool is_holder;            /* is in the list of sequences that hold pages without running */
    bool has_yielded;          /* waits because it yielded its place */
    bool was_planned;          /* was part of a plan */
    bool is_paused;            /* the row that yields its next token is not planned */
    int n_prompt, n_tokens, n_kv;
    /* Single-token rows at positions below it are written to an existing page that no other
     * sequence shares, so they need no page management. 0 = must be determined. */
    int decode_only_until;
    int credits;   /* events that it may still send; limits the rows with logits in a step */
    int n_slice;   /* tokens since the last admission */
    int n_charged; /* positions charged to the tenant; recomputation is not charged */
    int plan_rows, plan_logits; /* in the step being planned */
    int plan_end_layer;         /* layer at which the planned rows stop; 0 = all layers */
    uint32_t tenant;            /* index in struct tenants */

    /* Second cache line. */
    void *user;
    const int32_t *tokens; /* borrowed; n_tokens are known */
    page_id *pages;        /* borrowed; capacity for the maximum length */
    page_id *windows; /* pages of the windowed layers, with the same indices; see window_from */
    int score_from;   /* first prompt row with logits; n_prompt - 1 = only the last row */
    int n_pages;
    int n_tree_pages; /* see below */
    /* Pages [window_from, n_windows) of `windows` are held; both 0 without windowed layers. Those
     * before were released, since no later row reads them. n_windows <= n_pages. */
    int window_from, n_windows;
    struct page_copy copy, window_copy;

    /* Prefix cache (prefix.h): the first n_tree_pages pages, all full, are also in the tree; `node`
     * is the last of them, `root` the root of the scope (TREE_NONE: no prefix caching). */
    tree_node root, node;
    int n_partial_rows,
        layer; /* partial rows after n_kv, and the layer at which they resume; 0 = none */
    /* Slots of the recurrent state, if the model has one. `slot` can resume at slot_from .. n_kv;
     * STATE_NONE: n_kv is 0. slot_out: slot that the planned or interrupted run writes, if it
     * cannot write to `slot` itself; it replaces `slot` when the run has passed all layers. */
    state_id slot, slot_out;
    int slot_from;
    int checkpoint_at; /* make a checkpoint when this position is computed; 0 = none */
    int n_admit_rows;  /* rows to compute at the last admission */
    int n_cached;      /* prompt tokens found in the prefix cache before the first run */
    uint64_t writer;   /* tenant of the KV */

    int priority, choice;
    int tenant_priority; /* order among the waiting sequences of the tenant; >= priority */
    /* number of the arrival, equal for the choices of a request, or of the last yield */
    uint64_t order;
    uint64_t waited_ns;                   /* total waiting time before since_ns */
    uint64_t since_ns;                    /* start of the present state */
    uint64_t queued_ns;                   /* part of waited_ns before the first run */
    uint64_t deadline_ns, delay_until_ns; /* UINT64_MAX = none */
    uint64_t start_deadline_ns;           /* deadline of the first admission; UINT64_MAX = none */
    struct index_link holder;             /* in the list of holders, while is_holder */
    uint32_t line;                        /* while waiting: see waitq.c */
    uint32_t timer_at;                    /* index in the heap of timers; NO_SEQ = not in it */
    int n_preempted;

    /* Odd number of cache lines: the first lines of all sequences spread over all cache sets. */
    ALIGNED(64) char gap[64];
};

static inline int seq_held_windows(const struct seq *s)
{
    return s->n_windows - s->window_from;
}

static inline int pages_for(int n_tokens)
{
    return (n_tokens + PAGE_TOKENS - 1) / PAGE_TOKENS;
}

static inline void seq_push(struct seq *s, int n) /* appends n tokens */
{
    s->n_tokens += n;
    s->n_slice += n;
}

/* priority + 1 per age_ns of total waiting time. Never decreases. */
int64_t seq_rank(const struct seq *s, uint64_t now, uint64_t age_ns);
/* Tie break of equal ranks: arrival, then choice index. */
bool seq_came_before(const struct seq *a, const struct seq *b);
/* Number with the order of seq_came_before. */
static inline uint64_t seq_arrival(const struct seq *s)
{
    return s->order * SEQ_CHOICES_MAX + (uint64_t)s->choice;
}
/* Order by rank, then arrival, then choice index. */
bool seq_is_before(const struct seq *a, const struct seq *b, uint64_t now, uint64_t age_ns);

/* The page that the next row is written to is shared. */
bool seq_shares_tail(const struct seq *s, const struct page_pool *pool);
bool seq_shares_window_tail(const struct seq *s, const struct page_pool *windows);

/* Reserves pages of both classes for positions n_kv .. upto - 1, and a copy-on-write of shared tail
 * pages. Returns the position that it reached, n_kv .. upto; a pool is empty if that is below
 * upto. */
int seq_reserve(struct seq *s, const struct seq_pools *p, int upto);
/* Releases the pages after those that the known tokens need. */
void seq_trim(struct seq *s, const struct seq_pools *p);
/* The sequence has no state slot that a run may change. */
bool seq_needs_slot(const struct seq *s, const struct page_pool *states);
/* Undoes a copy-on-write that was reserved and not executed. */
void seq_undo_copy(struct seq *s, const struct seq_pools *p);
/* Frees all pages and state slots; n_kv = 0. */
void seq_release(struct seq *s, const struct seq_pools *p);
/* Lets `s` share the pages of the first n_kv positions of `from`, and its state slot. */
void seq_share(struct seq *s, struct seq *from, const struct seq_pools *p);
