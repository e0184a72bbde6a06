/* sched_pages.c: page allocation for running sequences, with eviction and preemption, and room for
 * admissions.
 *
 * Owner: the engine thread. */
#include "engine/sched/sched_in.h"

static void evict_pages_of(struct sched *sc, struct seq *s)
{
    sched_holder_remove(sc, s);
    sched_free_pages(sc, s);
    if (s->is_fresh) { /* never ran: it loses only pages found in the prefix cache */
        s->n_cached = 0;
        return;
    }
    s->n_preempted++;
    sc->counts.preemptions++;
}

/* Frees a page of the class that is short. */
static bool evict_cached(struct sched *sc)
{
    if (!sc->l.tree)
        return false;
    if (sc->l.windows && page_n_free(sc->l.windows) == 0 && tree_evict_window(sc->l.tree))
        return true;
    return page_n_free(sc->pool) == 0 && tree_evict(sc->l.tree);
}

/* The next row is written to a page that only the prefix cache shares, and there is no page for a
 * copy: removes the page from the prefix cache. */
static bool uncache_tail(struct sched *sc, struct seq *s)
{
    int tail = s->n_kv / PAGE_TOKENS;

    if (!sc->l.tree)
        return false;
    if (seq_shares_tail(s, sc->pool) && tree_remove_page(sc->l.tree, s->pages[tail]))
        return true;
    return seq_shares_window_tail(s, sc->l.windows) &&
           tree_remove_window(sc->l.tree, s->windows[tail]);
}

static bool evict_holder(struct sched *sc, uint64_t now)
{
    struct seq *last = NULL;

    for (uint32_t id = sc->holders.first; id != NO_SEQ; id = sc->seqs[id].holder.next)
        if (!last || sched_ranks_before(sc, last, &sc->seqs[id], now))
            last = &sc->seqs[id];
    if (last)
        evict_pages_of(sc, last);
    return last;
}

static void unplan_rows(struct sched *sc, struct seq *s)
{
    struct planner *pl = &sc->planner;

    pl->rows_left += s->plan_rows;
    pl->logits_left += s->plan_logits;
    if (s->plan_rows == 1 && s->n_tokens - s->n_kv == 1) {
        pl->decode_size.rows--;
        pl->decode_size.keys -= s->n_kv + 1;
    }
    s->plan_rows = s->plan_logits = s->plan_end_layer = 0;
}

/* Preempts the lowest running sequence below `s` that has pages. */
static bool preempt_below(struct sched *sc, const struct seq *s, uint64_t now)
{
    uint32_t id = sc->running.last;

    while (&sc->seqs[id] != s && sc->seqs[id].n_pages == 0)
        id = sc->seqs[id].running.prev;
    struct seq *victim = &sc->seqs[id];
    if (victim == s)
        return false;
    unplan_rows(sc, victim);
    sc->planner.promised -= sched_missing_pages(victim);
    evict_pages_of(sc, victim);
    sc->planner.promised += sched_missing_pages(victim);
    sched_set_state(sc, victim, SEQ_WAITING, now);
    return true;
}

int sched_get_pages(struct sched *sc, struct seq *s, int upto, uint64_t now)
{
    int got;

    while ((got = seq_reserve(s, &sc->pools, upto)) < upto)
        if (!evict_cached(sc) && !evict_holder(sc, now) && !preempt_below(sc, s, now) &&
            !uncache_tail(sc, s))
            break;
    return MIN(got, upto);
}

/* A slot that the next run writes; `is_required` = take it from other sequences if necessary. */
static bool get_slot_out(struct sched *sc, struct seq *s, bool is_required, uint64_t now)
{
    while ((s->slot_out = page_take(sc->l.states)).i == STATE_NONE.i) {
        if (sc->l.tree && tree_evict_checkpoint(sc->l.tree))
            continue;
        if (!is_required || (!evict_holder(sc, now) && !preempt_below(sc, s, now)))
            return false;
    }
    return true;
}

int sched_get_slots(struct sched *sc, struct seq *s, int n, uint64_t now)
{
    if (!sc->l.states || n == 0 || s->slot_out.i != STATE_NONE.i)
        return n;
    bool is_required = seq_needs_slot(s, sc->l.states);
    if (!is_required && n <= STATE_LOG_ROWS)
        return n;
    if (get_slot_out(sc, s, is_required, now))
        return n;
    /* The slot may have become private by the eviction of its checkpoint. */
    return seq_needs_slot(s, sc->l.states) ? 0 : MIN(n, (int)STATE_LOG_ROWS);
}

/* For a sequence that would run alone while all pages do not suffice for a copy of the shared tail
 * page: releases that page. */
static bool drop_shared_tail(struct sched *sc, struct seq *s)
{
    if (!sc->l.tree)
        return false;
    prefix_insert(s, sc->l.tree); /* n_tree_pages may be off by one page */
    if (uncache_tail(sc, s))
        return true;
    if (!seq_shares_tail(s, sc->pool) && !seq_shares_window_tail(s, sc->l.windows))
        return false;
    /* A state or window pages cannot resume at the start of the page. */
    if (sc->l.states || sc->l.windows) {
        sched_free_pages(sc, s);
        s->n_cached = s->is_fresh ? 0 : s->n_cached;
    } else
        prefix_drop_tail(s, sc->pool);
    return true;
}

/* Computed once per step; later changes of running sequences update it. */
static int64_t promised_pages(struct sched *sc)
{
    struct planner *pl = &sc->planner;

    if (pl->has_promised)
        return pl->promised;
    pl->has_promised = true;
    pl->promised = 0;
    for (uint32_t id = sc->running.first; id != NO_SEQ; id = sc->seqs[id].running.next)
        pl->promised += sched_missing_pages(&sc->seqs[id]);
    return pl->promised;
}

/* Promised pages and a reserve for the growth of running sequences. A sequence that would run alone
 * needs no reserve. */
static int64_t reserved_pages(struct sched *sc)
{
    if (!sc->counts.running)
        return 0;
    return promised_pages(sc) + MIN(sc->counts.running, page_n_total(sc->pool) / 16 + 1);
}

static int64_t unused_pages(const struct sched *sc)
{
    return (int64_t)page_n_free(sc->pool) + page_n_idle(sc->pool);
}

/* A sequence needs a slot unless it has one that it may change, and another one while a run is
 * longer than the log. */
static bool has_state_for(struct sched *sc, const struct seq *s)
{
    if (!sc->l.states)
        return true;
    uint32_t n_unused = page_n_free(sc->l.states) + page_n_idle(sc->l.states);
    return n_unused >= (sc->counts.running ? 2 : 1) || !seq_needs_slot(s, sc->l.states);
}

/* Some sequence that does not run holds a slot that no other one uses. */
static bool has_holder_with_slot(const struct sched *sc)
{
    for (uint32_t id = sc->holders.first; id != NO_SEQ; id = sc->seqs[id].holder.next) {
        const struct seq *s = &sc->seqs[id];
        if (s->slot_out.i != STATE_NONE.i || !seq_needs_slot(s, sc->l.states))
            return true;
    }
    return false;
}

/* ---- window pages */

/* Pages that contain `n` positions wherever these begin. */
static int spanned_pages(int n)
{
    return pages_for(n - 1) + 1;
}

uint32_t sched_least_windows(const struct kv_window *w, int n_tokens)
{
    /* the window of the row at tree_window_base(), and the positions from there to the next row */
    int n_most = w->size + w->align + MAX((int)PAGE_TOKENS, (int)STATE_LOG_ROWS);

    return (uint32_t)MIN(spanned_pages(n_most), pages_for(n_tokens));
}

void sched_release_windows(struct sched *sc, struct seq *s)
{
    if (!sc->l.windows)
        return;
    int first = kv_window_from(&sc->l.window, tree_window_base(s->n_kv)) / PAGE_TOKENS;
    for (; s->window_from < MIN(first, s->n_windows); s->window_from++) {
        page_id *page = &s->windows[s->window_from];
        if (sc->l.tree)
            tree_unref_window(sc->l.tree, *page);
        else
            page_unref(sc->l.windows, *page);
        *page = PAGE_NONE;
    }
}

/* Window pages that the sequence needs for its known tokens and does not have: those of the window
 * and of one prefill chunk, as far as there are so many. */
static int64_t missing_windows(const struct sched *sc, const struct seq *s)
{
    int n_chunk = MAX(MIN(s->n_tokens - s->n_kv, sc->l.prefill_chunk), 1);
    int64_t n = (int64_t)sched_least_windows(&sc->l.window, s->n_tokens) + pages_for(n_chunk);

    n = MIN(MIN(n, pages_for(s->n_tokens)), (int64_t)page_n_total(sc->l.windows));
    return MAX(n - seq_held_windows(s), 0);
}

/* Window pages that are promised to running sequences, and a reserve for their growth. */
static int64_t reserved_windows(const struct sched *sc)
{
    int64_t n = MIN(sc->counts.running, page_n_total(sc->l.windows) / 16 + 1);

    for (uint32_t id = sc->running.first; id != NO_SEQ; id = sc->seqs[id].running.next)
        n += missing_windows(sc, &sc->seqs[id]);
    return n;
}

/* Window pages that sequences hold which do not run: upper bound on what evicting them frees. */
static int64_t windows_of_holders(const struct sched *sc)
{
    int64_t n = 0;

    for (uint32_t id = sc->holders.first; id != NO_SEQ; id = sc->seqs[id].holder.next)
        n += seq_held_windows(&sc->seqs[id]);
    return n;
}

/* Window pages suffice for `s`, with n_more to be freed. */
static bool has_windows_for(const struct sched *sc, const struct seq *s, int64_t n_more)
{
    if (!sc->l.windows)
        return true;
    int64_t need = missing_windows(sc, s) + seq_shares_window_tail(s, sc->l.windows);
    int64_t n_unused = (int64_t)page_n_free(sc->l.windows) + page_n_idle(sc->l.windows);
    return need + reserved_windows(sc) <= n_unused + n_more;
}

bool sched_has_room_for(struct sched *sc, const struct seq *s, int n_more)
{
    return pages_for(s->n_tokens + n_more) - s->n_pages + reserved_pages(sc) <= unused_pages(sc) &&
           has_state_for(sc, s) && has_windows_for(sc, s, 0);
}

/* Room for all known tokens of `s` and the reserve; with less it would soon be preempted again. */
bool sched_make_room(struct sched *sc, struct seq *s, uint64_t now)
{
    int64_t reserved = reserved_pages(sc);

    sched_holder_remove(sc, s);
    for (;;) {
        int64_t need =
            pages_for(s->n_tokens) - s->n_pages + seq_shares_tail(s, sc->pool) + reserved;
        int64_t n_free = unused_pages(sc);
        bool has_state = has_state_for(sc, s), has_windows = has_windows_for(sc, s, 0);
        if (need <= n_free && has_state && has_windows)
            return true;
        if (need <= n_free + (int64_t)sc->held_pages &&
            (has_state || !sc->counts.running || has_holder_with_slot(sc)) &&
            (has_windows || has_windows_for(sc, s, windows_of_holders(sc))) &&
            evict_holder(sc, now))
            continue;
        if (sc->counts.running || !drop_shared_tail(sc, s)) {
            sched_holder_add(sc, s);
            return false;
        }
    }
}
