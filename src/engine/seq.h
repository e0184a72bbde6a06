/* seq.h: one sequence, as the scheduler sees it: numbers, times and pages; no tokens.
 *
 * A sequence is one choice of one request. `n_tokens` are known (prompt, then output), the first
 * `n_kv` of them lie in its pages. What is missing, n_tokens - n_kv, is what it runs next: one row
 * is a decode step, more are (re)filling. Preemption sets n_kv to 0 and gives the pages back;
 * nothing else changes.
 *
 *               add                        admitted                  out of credits
 *      (free) ------> WAITING ----------------------> RUNNING -----------------------> PARKED
 *         |              ^   ^ preempted                | |                              |
 *         | add, with    |   +--------------------------+ | told to wait   credits home  |
 *         | a leader     | leader's prompt is done        v                              |
 *         +---> HELD ----+ <--------------------------- DELAYED                          |
 *                        +---------------------------------------------------------------+
 *      any of them --- sched_end ---> (free)
 *
 * Pages outlive RUNNING: whoever waits, is parked or delayed keeps them until somebody needs them
 * more. Owner: the engine thread. */
#pragma once

#include "cache/tree.h"

typedef struct {
    uint32_t i;
} seq_id;

#define SEQ_NONE ((seq_id){ UINT32_MAX })
#define NO_SEQ   UINT32_MAX

enum { SEQ_CHOICES_MAX = 128 }; /* of one request */

enum seq_state { SEQ_FREE, SEQ_HELD, SEQ_WAITING, SEQ_RUNNING, SEQ_PARKED, SEQ_DELAYED };

struct seq {
    /* What each step reads and writes of one that decodes: a line of memory, */
    ALIGNED(64) enum seq_state state;
    uint32_t next;    /* of those that run */
    bool is_scripted; /* needs no logits */
    bool is_fresh;    /* waits for the first time */
    bool is_holder;   /* in the list of those that keep pages without running */
    bool has_yielded; /* waits because it gave its turn away */
    bool was_planned; /* ever */
    int n_prompt, n_tokens, n_kv;
    /* Rows of single tokens at positions below it go to a page that has begun and that nobody
     * shares: they need nothing but to be computed. 0: to be found out. */
    int plain_until;
    int credits;   /* events it may still send: rows with logits in a step are at most these */
    int n_slice;   /* tokens since it came in the last time */
    int n_charged; /* positions its tenant was charged for, whatever is computed again */
    int plan_rows, plan_logits; /* in the step being planned */
    int plan_end;               /* layer before which these pause; 0: they do not */
    uint32_t tenant;            /* number in the table of tenants */

    /* and the beginning of another. */
    void *user;
    const int32_t *tokens; /* the owner's: n_tokens are known */
    page_id *pages;        /* the owner's memory, room for all it may ever need */
    int score_from;        /* first prompt row whose logits are wanted beside the last row's */
    int n_pages;
    int n_kept;                 /* see below */
    page_id copy_from, copy_to; /* copy-on-write before it; we hold copy_from until then */

    /* prefix.h's: the first n_kept pages, all full, are the prefix cache's, too; `node` is the
     * last of them, `root` where they begin (TREE_NONE: takes no part in the cache). */
    tree_node root, node;
    uint32_t prev;       /* of those that run */
    int n_paused, layer; /* rows behind n_kv that have passed the layers below this one; 0: none */
    int n_missing;       /* rows that it had to compute when it came in the last time */
    int n_cached;        /* prompt tokens that had not to be computed when it first ran */
    uint64_t writer;     /* the tenant whose keys and values these are */

    int priority, choice;
    uint64_t order;                       /* of arrival, which choices of one request share; or of
                                           * the last time it gave its turn away */
    uint64_t waited_ns;                   /* before `since_ns`, over all times it waited */
    uint64_t since_ns;                    /* in its state */
    uint64_t queued_ns;                   /* of waited_ns, before it first ran */
    uint64_t deadline_ns, delay_until_ns; /* UINT64_MAX = none */
    uint64_t begin_by_ns;                 /* a deadline while it never ran; UINT64_MAX = none */
    uint32_t prev_holder, next_holder;
    uint32_t line;     /* while it waits: see waitq.c */
    uint32_t timer_at; /* place in the heap of timers, NO_SEQ when in none */
    int n_preempted;

    /* An odd number of lines, so that the first ones of all lie in all sets of a cache. */
    ALIGNED(64) char gap[64];
};

static inline int pages_for(int n_tokens)
{
    return (n_tokens + PAGE_TOKENS - 1) / PAGE_TOKENS;
}

static inline void seq_push(struct seq *s, int n) /* n tokens more are known */
{
    s->n_tokens += n;
    s->n_slice += n;
}

/* priority + one per age_ns of waiting, all waits together. Never falls. */
int64_t seq_rank(const struct seq *s, uint64_t now, uint64_t age_ns);
/* Of equals: who came first, then by choice. */
bool seq_came_before(const struct seq *a, const struct seq *b);
/* Of equals: a number that goes up with who came, and then with the choice. */
static inline uint64_t seq_place(const struct seq *s)
{
    return s->order * SEQ_CHOICES_MAX + (uint64_t)s->choice;
}
/* Does a go before b: by rank, then first come, then choice. */
bool seq_is_before(const struct seq *a, const struct seq *b, uint64_t now, uint64_t age_ns);

/* The page it writes next is also somebody else's. */
bool seq_shares_tail(const struct seq *s, const struct page_pool *pool);

/* Takes pages, and a copy of a shared tail, to write positions n_kv .. upto - 1. Returns how far
 * it came: n_kv .. upto. */
int seq_reserve(struct seq *s, struct page_pool *pool, int upto);
/* Takes back a copy that was reserved and not done. */
void seq_undo_copy(struct seq *s, struct page_pool *pool);
void seq_release(struct seq *s, struct page_pool *pool); /* all pages; n_kv = 0 */
/* `s` starts where `from` is: refers to the pages of its first n_kv positions. */
void seq_share(struct seq *s, struct seq *from, struct page_pool *pool);
