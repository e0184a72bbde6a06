/* sched_admit.c: admission of waiting sequences, time slices and preemption by priority (struct
 * fairness).
 *
 * Owner: the engine thread. */
#include "engine/sched/sched_in.h"

/* Matches the prefix cache before admission, so that cached tokens need no room. If there is no
 * room for the rest, the sequence holds the found pages until another sequence needs them. */
static void match_prefix(struct sched *sc, struct seq *s)
{
    if (s->n_pages > 0)
        return;
    prefix_match(s, sc->l.tree);
    sched_holder_add(sc, s);
}

static void record_swap(struct sched *sc, const struct plan_swap *t)
{
    struct step_plan *p = sc->planner.plan;

    if (p->n_swaps < 4 * sc->l.max_batch)
        p->swaps[p->n_swaps++] = *t;
}

static uint64_t time_in_state(const struct seq *s, uint64_t now)
{
    return now > s->since_ns ? now - s->since_ns : 0;
}

static void start_running(struct sched *sc, struct seq *s, uint64_t now)
{
    struct plan_swap turn = {
        .user = s->user, .is_resumed = true, .took_ns = time_in_state(s, now)
    };

    sched_set_state(sc, s, SEQ_RUNNING, now);
    s->n_slice = 0;
    s->n_admit_rows = s->n_tokens - s->n_kv;
    if (!s->has_yielded)
        return;
    s->has_yielded = false;
    sc->counts.fairness_waiting--;
    sc->counts.fairness_resumed++;
    record_swap(sc, &turn);
}

/* Parks the sequence while the offload tier reads its pages. The pages found so far are released;
 * the match at admission finds them again together with the read ones. */
static void park_for_kv_load(struct sched *sc, struct seq *s, uint64_t now)
{
    sched_holder_remove(sc, s);
    sched_free_pages(sc, s);
    if (s->is_fresh)
        s->n_cached = 0;
    sched_set_state(sc, s, SEQ_PARKED, now);
}

bool sched_admit(struct sched *sc, struct seq *s, uint64_t now)
{
    match_prefix(sc, s);
    if (!sched_make_room(sc, s, now))
        return false;
    if (sc->l.start_kv_load && sc->l.start_kv_load(sc->l.start_kv_load_arg, s)) {
        park_for_kv_load(sc, s, now);
        return false;
    }
    prefix_count(s, sc->l.tree);
    start_running(sc, s, now);
    return true;
}

static bool is_low_priority(const struct sched *sc, const struct seq *s)
{
    return s->priority < sc->fair.high_priority_threshold;
}

/* First sequence that may be admitted. A new sequence is excluded if max_started sequences have
 * started, unless it has high priority and may preempt. */
uint32_t sched_first_waiting(struct sched *sc, uint64_t now)
{
    bool is_full = sc->counts.running + sc->waiting.n_started >= (uint32_t)sc->l.max_started;
    uint32_t id = waitq_first(&sc->waiting, now, true);

    if (!is_full || id == NO_SEQ || !sc->seqs[id].is_fresh)
        return id;
    if (sc->fair.enable_preemption && !is_low_priority(sc, &sc->seqs[id]))
        return id;
    return waitq_first(&sc->waiting, now, false);
}

/* `s` yields its place, with queue position `order`, to the first waiting sequence, `s` included.
 * Returns false if `s` keeps its place. */
static bool yield_place(
    struct sched *sc, struct seq *s, uint64_t order, bool is_preempted, uint64_t now)
{
    struct plan_swap turn = {
        .user = s->user, .is_preempted = is_preempted, .took_ns = time_in_state(s, now)
    };
    uint64_t old_order = s->order;

    s->order = order;
    /* From here on its pages count as available for the other. */
    sched_set_state(sc, s, SEQ_WAITING, now);
    struct seq *first = &sc->seqs[sched_first_waiting(sc, now)];
    if (first == s || !sched_admit(sc, first, now)) {
        s->order = old_order;
        sched_set_state(sc, s, SEQ_RUNNING, now);
        return false;
    }
    s->has_yielded = true;
    sc->counts.fairness_waiting++;
    ++*(is_preempted ? &sc->counts.fairness_preempted : &sc->counts.fairness_yielded);
    record_swap(sc, &turn);
    return true;
}

/* For a yield that costs `s` its pages: the slice must have computed at least the predicted time of
 * recomputing them. Shorter slices would mostly recompute, and no sequence would finish earlier. */
static bool has_repaid_recompute(const struct sched *sc, const struct seq *s)
{
    static const struct step_time unknown = { .fixed = 1 };
    const struct step_time *c =
        sc->step_time.fixed + sc->step_time.per_row > 0 ? &sc->step_time : &unknown;
    int chunk = MIN(sc->l.prefill_chunk, sc->l.max_rows);
    struct step_size recompute = { 0 }, slice = { s->n_slice, (double)s->n_slice * s->n_kv };

    step_size_add(&recompute, 0, s->n_kv);
    double recompute_ns = step_time_of(c, &recompute) + c->fixed * ((s->n_kv - 1) / chunk);
    double slice_ns =
        step_time_of(c, &slice) - c->fixed + c->fixed * s->n_slice / sc->counts.running;
    return slice_ns >= recompute_ns;
}

static bool is_slice_over(struct sched *sc, const struct seq *s, const struct seq *first)
{
    int slice = sc->fair.max_timeslice_tokens;

    if (!is_low_priority(sc, s) || s->n_slice < slice)
        return false;
    return sched_has_room_for(sc, first, slice) || has_repaid_recompute(sc, s);
}

/* Moves sequences at the end of their time slice to the end of the queue. */
static void end_slices(struct sched *sc, uint64_t now)
{
    uint32_t first = NO_SEQ;
    int n = 0;

    if (sc->fair.max_timeslice_tokens > 0)
        first = sched_first_waiting(sc, now);
    if (first == NO_SEQ)
        return;
    for (uint32_t id = sc->running.first; id != NO_SEQ; id = sc->seqs[id].running.next)
        if (is_slice_over(sc, &sc->seqs[id], &sc->seqs[first]))
            sc->planner.decode[n++] = id;
    for (int i = 0; i < n; i++) {
        struct seq *s = &sc->seqs[sc->planner.decode[i]];
        s->n_slice = 0;
        yield_place(sc, s, sc->n_orders++, false, now);
    }
}

/* Lowest running sequence, if `s` may take its place; NULL otherwise. */
static struct seq *find_lower_running(const struct sched *sc, const struct seq *s, uint64_t now)
{
    uint32_t id = sc->running.last;

    while (id != NO_SEQ && !is_low_priority(sc, &sc->seqs[id]))
        id = sc->seqs[id].running.prev;
    if (id == NO_SEQ ||
        seq_rank(&sc->seqs[id], now, sc->l.age_ns) >= seq_rank(s, now, sc->l.age_ns))
        return NULL;
    return &sc->seqs[id];
}

static void preempt_for_priority(struct sched *sc, uint64_t now)
{
    if (!sc->fair.enable_preemption)
        return;
    while (sc->counts.running == (uint32_t)sc->l.max_batch) {
        uint32_t id = sched_first_waiting(sc, now);
        if (id == NO_SEQ || is_low_priority(sc, &sc->seqs[id]))
            return;
        struct seq *low = find_lower_running(sc, &sc->seqs[id], now);
        if (!low || !yield_place(sc, low, low->order, true, now))
            return;
    }
}

/* Called at the start of a step: applies time slices and priorities if the running set is full and
 * sequences wait. An admitted sequence is planned with the running ones. */
void sched_apply_fairness(struct sched *sc, uint64_t now)
{
    if (sc->waiting.n == 0 || sc->counts.running < (uint32_t)sc->l.max_batch)
        return;
    end_slices(sc, now);
    preempt_for_priority(sc, now);
}
