/* sched_pages.c: whose pages make room for whom. */
#include "engine/sched/sched_in.h"

static void take_pages_of(struct sched *sc, struct seq *s)
{
    sched_unhold(sc, s);
    sched_give_pages(sc, s);
    if (s->is_fresh) { /* it never ran: only what it had found is gone */
        s->n_cached = 0;
        return;
    }
    s->n_preempted++;
    sc->counts.preemptions++;
}

static bool evict_idle(struct sched *sc)
{
    return sc->l.tree && tree_evict(sc->l.tree);
}

/* Its next row goes to a page that only the prefix cache holds beside it: when there is no page
 * for a copy, the cache forgets it. */
static bool take_back_tail(struct sched *sc, struct seq *s)
{
    return sc->l.tree && seq_shares_tail(s, sc->pool) &&
           tree_forget(sc->l.tree, s->pages[s->n_kv / PAGE_TOKENS]);
}

static bool evict_holder(struct sched *sc, uint64_t now)
{
    struct seq *last = NULL;

    for (uint32_t id = sc->holders; id != NO_SEQ; id = sc->seqs[id].next_holder)
        if (!last || sched_goes_before(sc, last, &sc->seqs[id], now))
            last = &sc->seqs[id];
    if (last)
        take_pages_of(sc, last);
    return last;
}

static void take_rows_of(struct sched *sc, struct seq *s)
{
    sc->rows_left += s->plan_rows;
    sc->logits_left += s->plan_logits;
    if (s->plan_rows == 1 && s->n_tokens - s->n_kv == 1) {
        sc->decode_size.rows--;
        sc->decode_size.keys -= s->n_kv + 1;
    }
    s->plan_rows = s->plan_logits = s->plan_end = 0;
}

/* Preempts the lowest running sequence below `s` that has pages. */
static bool preempt_below(struct sched *sc, const struct seq *s, uint64_t now)
{
    uint32_t id = sc->running_tail;

    while (&sc->seqs[id] != s && sc->seqs[id].n_pages == 0)
        id = sc->seqs[id].prev;
    struct seq *victim = &sc->seqs[id];
    if (victim == s)
        return false;
    take_rows_of(sc, victim);
    sc->promised -= sched_missing(victim);
    take_pages_of(sc, victim);
    sc->promised += sched_missing(victim);
    sched_move(sc, victim, SEQ_WAITING, now);
    return true;
}

int sched_get_pages(struct sched *sc, struct seq *s, int upto, uint64_t now)
{
    int got;

    while ((got = seq_reserve(s, sc->pool, upto)) < upto)
        if (!evict_idle(sc) && !evict_holder(sc, now) && !preempt_below(sc, s, now) &&
            !take_back_tail(sc, s))
            break;
    return MIN(got, upto);
}

/* Alone, and all pages are not enough for a copy of the last one that it found. */
static bool give_up_tail(struct sched *sc, struct seq *s)
{
    if (!sc->l.tree)
        return false;
    prefix_keep(s, sc->l.tree); /* what it holds and what it says it holds may differ by a page */
    if (take_back_tail(sc, s))
        return true;
    if (!seq_shares_tail(s, sc->pool))
        return false;
    prefix_drop_tail(s, sc->pool);
    return true;
}

/* Counted once, and kept up while a step is planned. */
static int64_t promised_pages(struct sched *sc)
{
    if (sc->has_counted)
        return sc->promised;
    sc->has_counted = true;
    sc->promised = 0;
    for (uint32_t id = sc->running; id != NO_SEQ; id = sc->seqs[id].next)
        sc->promised += sched_missing(&sc->seqs[id]);
    return sc->promised;
}

/* What others were promised and a little for them to grow. Alone one needs no such margin. */
static int64_t margin(struct sched *sc)
{
    if (!sc->counts.running)
        return 0;
    return promised_pages(sc) + MIN(sc->counts.running, page_n_total(sc->pool) / 16 + 1);
}

static int64_t unused_pages(const struct sched *sc)
{
    return (int64_t)page_n_free(sc->pool) + page_n_idle(sc->pool);
}

bool sched_has_room_for(struct sched *sc, const struct seq *s, int n_more)
{
    return pages_for(s->n_tokens + n_more) - s->n_pages + margin(sc) <= unused_pages(sc);
}

/* Room for all that `s` knows so far, and the margin; else it would only be preempted again. */
bool sched_make_way_for(struct sched *sc, struct seq *s, uint64_t now)
{
    int64_t spare = margin(sc);

    sched_unhold(sc, s);
    for (;;) {
        int64_t need = pages_for(s->n_tokens) - s->n_pages + seq_shares_tail(s, sc->pool) + spare;
        int64_t n_free = unused_pages(sc);
        if (need <= n_free)
            return true;
        if (need <= n_free + (int64_t)sc->held_pages && evict_holder(sc, now))
            continue;
        if (sc->counts.running || !give_up_tail(sc, s)) {
            sched_hold(sc, s);
            return false;
        }
    }
}
