/* sched_check.c: checks the invariants of pages, lists and states.
 *
 * Owner: the engine thread. */
#include "engine/sched/sched_in.h"

/* The page of the next row is private, and decode_only_until is in that page. */
static bool is_tail_private(const struct sched *sc, const struct seq *s)
{
    const int page = s->n_kv / PAGE_TOKENS;

    return page < s->n_pages && (s->decode_only_until - 1) / PAGE_TOKENS == page &&
           page_refs(sc->pool, s->pages[page]) == 1 && !seq_shares_window_tail(s, sc->l.windows);
}

static const char *check_slots(struct sched *sc, const struct seq *s)
{
    if (!sc->l.states)
        return NULL;
    if (s->slot.i == STATE_NONE.i && s->n_kv > 0)
        return "a sequence with computed tokens has no state slot";
    if (s->n_kv < s->slot_from)
        return "the state of a sequence cannot resume at n_kv";
    if (s->slot.i != STATE_NONE.i)
        sc->state_refs[s->slot.i]++;
    if (s->slot_out.i == STATE_NONE.i)
        return NULL;
    sc->state_refs[s->slot_out.i]++;
    return page_refs(sc->l.states, s->slot_out) == 1 ? NULL
                                                     : "a slot to be written has other references";
}

/* Compares the references to the state slots with those of sequences and checkpoints. */
static const char *check_states(const struct sched *sc)
{
    for (uint32_t i = 0; sc->l.states && i < page_n_total(sc->l.states); i++)
        if (page_refs(sc->l.states, (state_id){ i }) !=
            sc->state_refs[i] + (sc->l.tree ? tree_state_refs(sc->l.tree, (state_id){ i }) : 0))
            return "the reference count of a state slot is wrong";
    return NULL;
}

static const char *check_windows_of(struct sched *sc, const struct seq *s)
{
    if (!sc->l.windows)
        return NULL;
    if (s->n_windows > s->n_pages || s->n_windows < pages_for(s->n_kv))
        return "a sequence has window pages for other positions than pages";
    if (s->window_from * PAGE_TOKENS > kv_window_from(&sc->l.window, s->n_kv))
        return "a sequence lacks a window page of its next row";
    for (int i = s->window_from; i < s->n_windows; i++) {
        if (s->windows[i].i >= page_n_total(sc->l.windows))
            return "the number of a window page is out of range";
        sc->window_refs[s->windows[i].i]++;
        if (i > s->n_kv / PAGE_TOKENS && page_refs(sc->l.windows, s->windows[i]) != 1)
            return "a window page to be written has other references";
    }
    return NULL;
}

/* Compares the references to the window pages with those of sequences and the tree. */
static const char *check_windows(const struct sched *sc)
{
    for (uint32_t i = 0; sc->l.windows && i < page_n_total(sc->l.windows); i++)
        if (page_refs(sc->l.windows, (page_id){ i }) !=
            sc->window_refs[i] + (sc->l.tree ? tree_window_refs(sc->l.tree, (page_id){ i }) : 0))
            return "the reference count of a window page is wrong";
    return NULL;
}

static const char *check_partial(const struct sched *sc, const struct seq *s)
{
    if ((s->n_partial_rows > 0) != (sc->partial_seq == sched_index(sc, s)) ||
        (s->layer > 0) != (s->n_partial_rows > 0))
        return "partial_seq does not match the partial rows of a sequence";
    if (s->n_partial_rows > 0 &&
        (s->state != SEQ_RUNNING || s->n_kv + s->n_partial_rows > s->n_tokens ||
            s->n_kv + s->n_partial_rows > s->n_pages * PAGE_TOKENS))
        return "partial rows exceed the tokens or pages of a sequence";
    return NULL;
}

static const char *check_seq(struct sched *sc, const struct seq *s)
{
    if (s->n_kv < 0 || s->n_kv > s->n_tokens || s->n_kv > s->n_pages * PAGE_TOKENS)
        return "n_kv exceeds the tokens or pages of a sequence";
    if (s->plan_rows || s->copy.from.i != PAGE_NONE.i || s->window_copy.from.i != PAGE_NONE.i)
        return "a sequence has planned rows between steps";
    const char *wrong = check_partial(sc, s);
    if (!wrong)
        wrong = check_slots(sc, s);
    if (!wrong)
        wrong = check_windows_of(sc, s);
    if (wrong)
        return wrong;
    if (s->state == SEQ_HELD && s->n_pages)
        return "a held sequence has pages";
    if (s->is_holder != (s->state != SEQ_RUNNING && s->n_pages > 0))
        return "the list of holders is wrong";
    if ((timer_key(s) != UINT64_MAX) != (s->timer_at != NO_SEQ))
        return "a sequence with a deadline is not in the timer heap";
    if (s->n_kv < s->decode_only_until && !is_tail_private(sc, s))
        return "decode_only_until covers a page that is not private";
    for (int i = 0; i < s->n_pages; i++) {
        if (s->pages[i].i >= page_n_total(sc->pool))
            return "a page number is out of range";
        sc->page_refs[s->pages[i].i]++;
        if (i < s->n_tree_pages && !page_is_cached(sc->pool, s->pages[i]))
            return "a tree page of a sequence is not in the prefix cache";
        if (i > s->n_kv / PAGE_TOKENS && page_refs(sc->pool, s->pages[i]) != 1)
            return "a page to be written has other references";
    }
    return NULL;
}

static const char *check_lists(const struct sched *sc)
{
    uint32_t n_running = 0;
    uint64_t held_pages = 0;

    for (uint32_t id = sc->running.first; id != NO_SEQ; id = sc->seqs[id].running.next) {
        const struct seq *s = &sc->seqs[id];
        if (s->state != SEQ_RUNNING || ++n_running > sc->counts.running)
            return "the list of running sequences is wrong";
        if (s->running.next != NO_SEQ && !sched_ranks_before(sc, s, &sc->seqs[s->running.next], 0))
            return "the list of running sequences is not in rank order";
    }
    for (uint32_t id = sc->holders.first; id != NO_SEQ; id = sc->seqs[id].holder.next)
        held_pages += (uint64_t)sc->seqs[id].n_pages;
    if (n_running != sc->counts.running || sc->waiting.n != sc->counts.waiting)
        return "the counts of running or waiting are wrong";
    return held_pages == sc->held_pages ? NULL : "the sum of held pages is wrong";
}

const char *sched_check(struct sched *sc)
{
    uint32_t n[SEQ_DELAYED + 1] = { 0 }, n_owned = 0;
    const struct sched_counts *c = &sc->counts;

    page_pool_check(sc->pool);
    memset(sc->page_refs, 0, page_n_total(sc->pool) * sizeof(*sc->page_refs));
    if (sc->l.states) {
        page_pool_check(sc->l.states);
        memset(sc->state_refs, 0, page_n_total(sc->l.states) * sizeof(*sc->state_refs));
    }
    if (sc->l.windows) {
        page_pool_check(sc->l.windows);
        memset(sc->window_refs, 0, page_n_total(sc->l.windows) * sizeof(*sc->window_refs));
    }
    for (uint32_t i = 0; i < sc->n_touched; i++) {
        const char *wrong = NULL;
        n[sc->seqs[i].state]++;
        if (sc->seqs[i].state != SEQ_FREE)
            wrong = check_seq(sc, &sc->seqs[i]);
        if (wrong)
            return wrong;
    }
    for (uint32_t i = 0; i < page_n_total(sc->pool); i++) {
        uint32_t n_tree_refs = sc->l.tree ? tree_refs(sc->l.tree, (page_id){ i }) : 0;
        /* Held by sequences, by pins, by readers, or to be filled and not in the tree yet. */
        n_owned += sc->page_refs[i] > 0 || n_tree_refs > page_is_cached(sc->pool, (page_id){ i });
        sc->page_refs[i] += n_tree_refs;
        if (sc->page_refs[i] != page_refs(sc->pool, (page_id){ i }))
            return "the reference count of a page is wrong";
    }
    if (n_owned + page_n_idle(sc->pool) + page_n_free(sc->pool) != page_n_total(sc->pool))
        return "owned, cached and free pages do not add up";
    if (check_states(sc))
        return check_states(sc);
    if (check_windows(sc))
        return check_windows(sc);
    if (sc->l.tree && tree_check(sc->l.tree))
        return tree_check(sc->l.tree);
    if (n[SEQ_HELD] != c->held || n[SEQ_WAITING] != c->waiting || n[SEQ_RUNNING] != c->running ||
        n[SEQ_PARKED] != c->parked || n[SEQ_DELAYED] != c->delayed ||
        n[SEQ_FREE] + c->seqs != sc->n_touched)
        return "the counts of states are wrong";
    return check_lists(sc);
}
