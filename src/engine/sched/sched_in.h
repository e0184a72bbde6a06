/* sched_in.h: what the files of the scheduler share: its state, and the moves between states.
 *
 *   sched.c        sequences come, change their state, go
 *   sched_pages.c  whose pages make room for whom
 *   sched_turns.c  who comes in, and who gives its place away
 *   sched_plan.c   the rows of one step
 *   sched_check.c  whether all of it agrees
 *
 * Owner: the engine thread. */
#pragma once

#include "engine/prefix.h"
#include "engine/sched/sched.h"
#include "engine/sched/tenants.h"
#include "engine/sched/timers.h"
#include "engine/sched/waitq.h"

enum { SCHED_AHEAD = 4 }; /* so many sequences further on is what the processor fetches meanwhile */

struct sched {
    struct page_pool *pool;
    struct sched_limits l;
    struct seq *seqs; /* [max_seqs] */
    uint32_t free;    /* stack of entries that were used and are not, through next */
    uint32_t n_seen;  /* those from here on were never used, nor their memory touched */
    uint32_t running; /* in the order of rank, which does not change while running */
    uint32_t running_tail;
    struct sorted by_rank; /* they, for where a newcomer goes */
    uint32_t ranked;       /* in that */
    uint32_t holders;      /* keep pages, do not run */
    uint64_t held_pages;   /* sum of theirs; an upper bound on what evicting them gives */
    int64_t promised;      /* while planning, once it was counted: sched_missing of all that run */
    bool has_counted;
    struct tenants tenants;
    struct waitq waiting;
    struct fairness fair;
    uint64_t n_orders;
    struct timers timers;
    struct sched_counts counts;
    /* While planning, [max_batch]: who decodes and needs more than a plain row; [2 max_batch]: who
     * fills; [max_batch], a few: all that run, and before it is planned those that ran. */
    uint32_t *decode, *fill, *order;
    int n_decode, n_fill;
    uint32_t *page_refs;          /* [n_pages] scratch of sched_check */
    int rows_left, logits_left;   /* while planning */
    struct step_size decode_size; /* while planning: rows of those that decode */
    /* While planning: what prompts may still add beside decodes, long ones and all together, and
     * how many are to share that. */
    double ride_ns[2];
    int n_riders[2];
    /* Likewise: short ones that take no more than this are computed at once, what is kept for those
     * of them that are not planned yet, and what all that fills takes. */
    double brief_share, brief_ns, fill_ns;
    uint32_t paused; /* whose rows are between two layers; NO_SEQ */
    bool has_part;   /* while planning: somebody's rows will be, or are */
    bool is_riding;  /* some decode in this step */
    bool has_ridden; /* the least that a prompt gets was given away */
    struct cost cost;
    struct plan *plan; /* while planning */
};

static inline uint32_t sched_index(const struct sched *sc, const struct seq *s)
{
    return (uint32_t)(s - sc->seqs);
}

/* Pages below those for all it knows: promised when it was admitted. */
static inline int sched_missing(const struct seq *s)
{
    return MAX(pages_for(s->n_tokens) - s->n_pages, 0);
}

/* By rank at this moment; among those that run, at any. */
static inline bool sched_goes_before(
    const struct sched *sc, const struct seq *a, const struct seq *b, uint64_t now)
{
    return seq_is_before(a, b, now, sc->l.age_ns);
}

/* ---- sched.c */

/* It is between two layers no more, if it was. */
void sched_end_pause(struct sched *sc, struct seq *s);
/* ... and what it has computed in part is lost. */
void sched_forget_pause(struct sched *sc, struct seq *s);

/* In and out of the list of those that keep pages without running. */
void sched_hold(struct sched *sc, struct seq *s);
void sched_unhold(struct sched *sc, struct seq *s);
/* To another state, with all its pages. */
void sched_move(struct sched *sc, struct seq *s, enum seq_state state, uint64_t now);
/* All its pages; what it has computed stays behind in the prefix cache. */
void sched_give_pages(struct sched *sc, struct seq *s);

/* ---- sched_pages.c */

/* Pages for the positions below `upto`, from others where none is free: how far it came. */
int sched_get_pages(struct sched *sc, struct seq *s, int upto, uint64_t now);
/* Are there unused pages for all it knows and n_more tokens, so that nobody loses any? */
bool sched_has_room_for(struct sched *sc, const struct seq *s, int n_more);
/* Before it comes in: is there room for all it knows, beside what others were promised? */
bool sched_make_way_for(struct sched *sc, struct seq *s, uint64_t now);

/* ---- sched_turns.c */

void sched_change_turns(struct sched *sc, uint64_t now);
/* The first of those who may come in; NO_SEQ. */
uint32_t sched_first_waiting(struct sched *sc, uint64_t now);
bool sched_let_in(struct sched *sc, struct seq *s, uint64_t now); /* when there is room for it */
