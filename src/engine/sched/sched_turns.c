/* sched_turns.c: who comes in, and who gives its place away. */
#include "engine/sched/sched_in.h"

/* Before it comes in, so that it needs no room for what is there. Should there be no room for the
 * rest, it keeps what it found as long as nobody needs it more. */
static void find_prefix(struct sched *sc, struct seq *s)
{
    if (s->n_pages > 0)
        return;
    prefix_find(s, sc->l.tree);
    sched_hold(sc, s);
}

static void tell_turn(struct sched *sc, const struct plan_turn *t)
{
    struct plan *p = sc->plan;

    if (p->n_turns < 4 * sc->l.max_batch)
        p->turns[p->n_turns++] = *t;
}

static uint64_t time_in_state(const struct seq *s, uint64_t now)
{
    return now > s->since_ns ? now - s->since_ns : 0;
}

static void admit(struct sched *sc, struct seq *s, uint64_t now)
{
    struct plan_turn turn = {
        .user = s->user, .is_resumed = true, .took_ns = time_in_state(s, now)
    };

    sched_move(sc, s, SEQ_RUNNING, now);
    s->n_slice = 0;
    s->n_missing = s->n_tokens - s->n_kv;
    if (!s->has_yielded)
        return;
    s->has_yielded = false;
    sc->counts.turns_waiting--;
    sc->counts.turns_resumed++;
    tell_turn(sc, &turn);
}

/* What it found meanwhile it finds again, and what is coming behind it. */
static void wait_for_pages(struct sched *sc, struct seq *s, uint64_t now)
{
    sched_unhold(sc, s);
    sched_give_pages(sc, s);
    if (s->is_fresh)
        s->n_cached = 0;
    sched_move(sc, s, SEQ_PARKED, now);
}

/* When there is room for it. */
bool sched_let_in(struct sched *sc, struct seq *s, uint64_t now)
{
    find_prefix(sc, s);
    if (!sched_make_way_for(sc, s, now))
        return false;
    if (sc->l.is_coming && sc->l.is_coming(sc->l.is_coming_arg, s)) {
        wait_for_pages(sc, s, now);
        return false;
    }
    prefix_count(s, sc->l.tree);
    admit(sc, s, now);
    return true;
}

static bool is_low(const struct sched *sc, const struct seq *s)
{
    return s->priority < sc->fair.high_priority_threshold;
}

/* The first of those who may come in: fresh ones only while not too many have begun; one of high
 * priority that may take another's place is not held up by that. */
uint32_t sched_first_waiting(struct sched *sc, uint64_t now)
{
    bool is_full = sc->counts.running + sc->waiting.n_back >= (uint32_t)sc->l.max_begun;
    uint32_t id = waitq_first(&sc->waiting, now, true);

    if (!is_full || id == NO_SEQ || !sc->seqs[id].is_fresh)
        return id;
    if (sc->fair.enable_preemption && !is_low(sc, &sc->seqs[id]))
        return id;
    return waitq_first(&sc->waiting, now, false);
}

/* `s` gives its place to the first of those who wait, it among them with this order. False: it
 * keeps it. */
static bool change_turn(
    struct sched *sc, struct seq *s, uint64_t order, bool is_preempted, uint64_t now)
{
    struct plan_turn turn = {
        .user = s->user, .is_preempted = is_preempted, .took_ns = time_in_state(s, now)
    };
    uint64_t was = s->order;

    s->order = order;
    sched_move(sc, s, SEQ_WAITING, now); /* its pages count as free for the other from here on */
    struct seq *first = &sc->seqs[sched_first_waiting(sc, now)];
    if (first == s || !sched_let_in(sc, first, now)) {
        s->order = was;
        sched_move(sc, s, SEQ_RUNNING, now);
        return false;
    }
    s->has_yielded = true;
    sc->counts.turns_waiting++;
    ++*(is_preempted ? &sc->counts.turns_preempted : &sc->counts.turns_yielded);
    tell_turn(sc, &turn);
    return true;
}

/* Its pages will go to the other and it comes back to none. Then its slice lasts until what it did
 * in it took as long as computing all again will: turns that are too short for their price would do
 * little else, and nobody would be served sooner. */
static bool is_worth_a_refill(const struct sched *sc, const struct seq *s)
{
    static const struct cost unknown = { .fixed = 1 };
    const struct cost *c = sc->cost.fixed + sc->cost.per_row > 0 ? &sc->cost : &unknown;
    int chunk = MIN(sc->l.prefill_chunk, sc->l.max_rows);
    struct step_size refill = { 0 }, slice = { s->n_slice, (double)s->n_slice * s->n_kv };

    step_size_add(&refill, 0, s->n_kv);
    double again = cost_of(c, &refill) + c->fixed * ((s->n_kv - 1) / chunk);
    double done = cost_of(c, &slice) - c->fixed + c->fixed * s->n_slice / sc->counts.running;
    return done >= again;
}

static bool has_had_its_slice(struct sched *sc, const struct seq *s, const struct seq *first)
{
    int slice = sc->fair.max_timeslice_tokens;

    if (!is_low(sc, s) || s->n_slice < slice)
        return false;
    return sched_has_room_for(sc, first, slice) || is_worth_a_refill(sc, s);
}

/* After its slice one goes behind all that wait. */
static void end_slices(struct sched *sc, uint64_t now)
{
    uint32_t first = NO_SEQ;
    int n = 0;

    if (sc->fair.max_timeslice_tokens > 0)
        first = sched_first_waiting(sc, now);
    if (first == NO_SEQ)
        return;
    for (uint32_t id = sc->running; id != NO_SEQ; id = sc->seqs[id].next)
        if (has_had_its_slice(sc, &sc->seqs[id], &sc->seqs[first]))
            sc->decode[n++] = id;
    for (int i = 0; i < n; i++) {
        struct seq *s = &sc->seqs[sc->decode[i]];
        s->n_slice = 0;
        change_turn(sc, s, sc->n_orders++, false, now);
    }
}

/* The lowest that runs, when `s` may take its place. */
static struct seq *lower_than(const struct sched *sc, const struct seq *s, uint64_t now)
{
    uint32_t id = sc->running_tail;

    while (id != NO_SEQ && !is_low(sc, &sc->seqs[id]))
        id = sc->seqs[id].prev;
    if (id == NO_SEQ ||
        seq_rank(&sc->seqs[id], now, sc->l.age_ns) >= seq_rank(s, now, sc->l.age_ns))
        return NULL;
    return &sc->seqs[id];
}

static void let_high_ones_in(struct sched *sc, uint64_t now)
{
    if (!sc->fair.enable_preemption)
        return;
    while (sc->counts.running == (uint32_t)sc->l.max_batch) {
        uint32_t id = sched_first_waiting(sc, now);
        if (id == NO_SEQ || is_low(sc, &sc->seqs[id]))
            return;
        struct seq *low = lower_than(sc, &sc->seqs[id], now);
        if (!low || !change_turn(sc, low, low->order, true, now))
            return;
    }
}

/* When all places are taken and others wait. Whoever comes in is planned with those who run. */
void sched_change_turns(struct sched *sc, uint64_t now)
{
    if (sc->waiting.n == 0 || sc->counts.running < (uint32_t)sc->l.max_batch)
        return;
    end_slices(sc, now);
    let_high_ones_in(sc, now);
}
