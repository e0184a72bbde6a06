#include "engine/sched/sched_in.h"
#include "base/mem.h"

int sched_new(
    struct sched **out, struct page_pool *pool, const struct sched_limits *l, struct err *e)
{
    struct sched *sc = xcalloc(1, sizeof(*sc));

    CHECK(l->max_batch >= 1 && l->max_batch <= l->max_rows && l->max_batch <= l->max_logits);
    CHECK(l->prefill_chunk >= 1 && l->max_seqs < NO_SEQ);
    CHECK(l->age_ns > 0 && l->age_ns <= SCHED_AGE_MAX);
    CHECK(l->mixed_step_factor == 0 || l->mixed_step_factor >= 1);
    CHECK(l->max_started >= l->max_batch);
    CHECK(!l->states || page_n_total(l->states) >= 2);
    sc->pool = pool;
    sc->l = *l;
    sc->pools = (struct seq_pools){ pool, l->windows, l->states };
    sc->seqs = try_aligned(_Alignof(struct seq), l->max_seqs * sizeof(*sc->seqs));
    sc->timers.heap = try_calloc(l->max_seqs, sizeof(*sc->timers.heap));
    bool has_planner = planner_init(&sc->planner, l->max_batch);
    sc->page_refs = try_calloc(page_n_total(pool), sizeof(*sc->page_refs));
    sc->by_rank.n = try_calloc(l->max_seqs, sizeof(*sc->by_rank.n));
    if (l->states)
        sc->state_refs = try_calloc(page_n_total(l->states), sizeof(*sc->state_refs));
    if (l->windows)
        sc->window_refs = try_calloc(page_n_total(l->windows), sizeof(*sc->window_refs));
    if ((l->windows && !sc->window_refs) || (l->states && !sc->state_refs) || !sc->seqs ||
        !sc->timers.heap || !has_planner || !sc->page_refs || !sc->by_rank.n) {
        sched_free(sc);
        return err_set(e, ERR_MEMORY, "no memory to schedule %u sequences", l->max_seqs);
    }
    if (tenants_init(&sc->tenants, l->max_seqs, e) ||
        waitq_init(&sc->waiting, sc->seqs, l->max_seqs, &sc->tenants, l->age_ns, e)) {
        sched_free(sc);
        return -1;
    }
    sc->timers.seqs = sc->seqs;
    sc->fair = fairness_default;
    sc->partial_seq = NO_SEQ;
    sc->running = sc->holders = INDEX_LIST_EMPTY;
    sc->free = sc->ranked = NO_SEQ;
    *out = sc;
    return 0;
}

void sched_free(struct sched *sc)
{
    if (!sc)
        return;
    CHECK(sc->counts.seqs == 0);
    waitq_clear(&sc->waiting);
    tenants_clear(&sc->tenants);
    mem_free(sc->seqs);
    mem_free(sc->timers.heap);
    planner_clear(&sc->planner);
    mem_free(sc->page_refs);
    mem_free(sc->state_refs);
    mem_free(sc->window_refs);
    mem_free(sc->by_rank.n);
    mem_free(sc);
}

struct seq *sched_seq(struct sched *sc, seq_id id)
{
    CHECK(id.i < sc->n_touched && sc->seqs[id.i].state != SEQ_FREE);
    return &sc->seqs[id.i];
}

/* ---- lists */

void sched_holder_add(struct sched *sc, struct seq *s)
{
    if (s->n_pages == 0)
        return;
    s->is_holder = true;
    index_list_add_first(&sc->holders, INDEX_LINKS(sc->seqs, holder), sched_index(sc, s));
    sc->held_pages += (uint64_t)s->n_pages;
}

void sched_holder_remove(struct sched *sc, struct seq *s)
{
    if (!s->is_holder)
        return;
    s->is_holder = false;
    index_list_remove(&sc->holders, INDEX_LINKS(sc->seqs, holder), sched_index(sc, s));
    sc->held_pages -= (uint64_t)s->n_pages;
}

void sched_partial_end(struct sched *sc, struct seq *s)
{
    if (s->n_partial_rows == 0)
        return;
    CHECK(sc->partial_seq == sched_index(sc, s));
    sc->partial_seq = NO_SEQ;
    s->n_partial_rows = s->layer = 0;
}

void sched_partial_discard(struct sched *sc, struct seq *s)
{
    if (s->n_partial_rows == 0)
        return;
    sc->counts.partial_runs_lost++;
    sched_partial_end(sc, s);
}

static void running_insert(struct sched *sc, struct seq *s)
{
    uint32_t id = sched_index(sc, s);
    struct sorted_node *n = &sc->by_rank.n[id];

    n->key = -seq_rank(s, 0, sc->l.age_ns);
    n->tag = seq_arrival(s);
    uint32_t after = sorted_before(&sc->by_rank, sc->ranked, id);
    sorted_insert(&sc->by_rank, &sc->ranked, id);
    index_list_add_after(&sc->running, INDEX_LINKS(sc->seqs, running), id, after);
}

static void running_remove(struct sched *sc, struct seq *s)
{
    uint32_t id = sched_index(sc, s);

    sorted_remove(&sc->by_rank, &sc->ranked, id);
    index_list_remove(&sc->running, INDEX_LINKS(sc->seqs, running), id);
}

static uint32_t *state_count(struct sched *sc, enum seq_state state)
{
    switch (state) {
    case SEQ_HELD:
        return &sc->counts.held;
    case SEQ_WAITING:
        return &sc->counts.waiting;
    case SEQ_RUNNING:
        return &sc->counts.running;
    case SEQ_PARKED:
        return &sc->counts.parked;
    case SEQ_DELAYED:
        return &sc->counts.delayed;
    case SEQ_FREE:
        break;
    }
    CHECK(!"invalid state");
}

/* Removes the sequence from the lists of its state; it keeps its pages. */
static void leave_state(struct sched *sc, struct seq *s)
{
    sched_holder_remove(sc, s);
    if (s->state == SEQ_RUNNING) {
        sched_partial_discard(sc, s);
        running_remove(sc, s);
        sc->planner.promised -= sched_missing_pages(s);
    } else if (s->state == SEQ_WAITING)
        waitq_remove(&sc->waiting, sched_index(sc, s));
    --*state_count(sc, s->state);
}

static void enter_state(struct sched *sc, struct seq *s, enum seq_state state)
{
    s->state = state;
    ++*state_count(sc, state);
    if (state == SEQ_RUNNING) {
        if (s->start_deadline_ns != UINT64_MAX) {
            s->start_deadline_ns = UINT64_MAX;
            timers_update(&sc->timers, sched_index(sc, s));
        }
        if (s->is_fresh)
            s->queued_ns = s->waited_ns;
        s->is_fresh = false;
        running_insert(sc, s);
        sc->planner.promised += sched_missing_pages(s);
        return;
    }
    if (state == SEQ_WAITING)
        waitq_push(&sc->waiting, sched_index(sc, s));
    sched_holder_add(sc, s);
}

void sched_set_state(struct sched *sc, struct seq *s, enum seq_state state, uint64_t now)
{
    leave_state(sc, s);
    if (s->state == SEQ_WAITING && now > s->since_ns)
        s->waited_ns += now - s->since_ns;
    s->since_ns = now;
    enter_state(sc, s, state);
}

/* ---- events */

seq_id sched_add(struct sched *sc, uint64_t now, const struct seq_spec *spec)
{
    uint32_t id = sc->free == NO_SEQ ? sc->n_touched++ : sc->free;
    const struct gen_input *in = spec->in;

    CHECK(id < sc->l.max_seqs); /* the submission queue admits no more */
    struct seq *s = &sc->seqs[id];
    if (id == sc->free)
        sc->free = s->running.next;
    CHECK(in->n_prompt >= 1 && spec->credits >= 1 && spec->choice < SEQ_CHOICES_MAX);
    *s = (struct seq){
        .is_fresh = !spec->is_held,
        .timer_at = NO_SEQ,
        .priority = in->priority,
        .tenant_priority = in->priority + in->extra_priority,
        .choice = spec->choice,
        .tenant = tenants_enter(&sc->tenants, in->tenant, in->tenant_weight),
        .order = spec->choice && sc->n_orders ? sc->n_orders - 1 : sc->n_orders++,
        .since_ns = now,
        .deadline_ns = in->deadline_ns ? in->deadline_ns : UINT64_MAX,
        .delay_until_ns = UINT64_MAX,
        .start_deadline_ns = spec->start_deadline_ns ? spec->start_deadline_ns : UINT64_MAX,
        .n_prompt = in->n_prompt,
        .n_tokens = in->n_prompt,
        .is_scripted = in->script,
        .score_from = spec->score_from,
        .credits = spec->credits,
        .pages = spec->pages,
        .windows = spec->windows,
        .copy = PAGE_COPY_NONE,
        .window_copy = PAGE_COPY_NONE,
        .slot = STATE_NONE,
        .slot_out = STATE_NONE,
        .tokens = spec->tokens,
        .root = TREE_NONE,
        .writer = in->scope.tenant,
        .user = spec->user,
    };
    if (sc->l.tree && in->cache_prompt)
        s->root = tree_enter(sc->l.tree, &in->scope);
    s->node = s->root;
    sc->counts.seqs++;
    enter_state(sc, s, spec->is_held ? SEQ_HELD : SEQ_WAITING);
    timers_update(&sc->timers, id);
    return (seq_id){ id };
}

void sched_fork(struct sched *sc, seq_id leader, seq_id held, uint64_t now)
{
    struct seq *from = sched_seq(sc, leader), *s = sched_seq(sc, held);

    CHECK(s->state == SEQ_HELD && from->n_kv == s->n_tokens);
    leave_state(sc, s);
    /* Insert first: if the prefix cache has equal pages, all choices share those. */
    prefix_insert(from, sc->l.tree);
    seq_share(s, from, &sc->pools);
    s->waited_ns = s->queued_ns = from->waited_ns;
    s->since_ns = now;
    enter_state(sc, s, SEQ_WAITING);
}

void sched_push(struct sched *sc, seq_id id, int n)
{
    seq_push(sched_seq(sc, id), n);
}

void sched_free_pages(struct sched *sc, struct seq *s)
{
    seq_undo_copy(s, &sc->pools);
    prefix_insert_all(s, sc->l.tree);
    sched_release_windows(sc, s);
    seq_release(s, &sc->pools);
}

void sched_end(struct sched *sc, seq_id id)
{
    struct seq *s = sched_seq(sc, id);

    leave_state(sc, s);
    sched_free_pages(sc, s);
    if (s->root.i != TREE_NONE.i)
        tree_leave(sc->l.tree, s->root);
    s->deadline_ns = s->delay_until_ns = s->start_deadline_ns = UINT64_MAX;
    timers_update(&sc->timers, id.i);
    tenants_leave(&sc->tenants, s->tenant);
    sc->counts.fairness_waiting -= s->has_yielded;
    s->state = SEQ_FREE;
    s->running.next = sc->free;
    sc->free = id.i;
    sc->counts.seqs--;
}

void sched_park(struct sched *sc, seq_id id, uint64_t now)
{
    struct seq *s = sched_seq(sc, id);

    CHECK(s->state == SEQ_RUNNING || s->state == SEQ_WAITING);
    sched_set_state(sc, s, SEQ_PARKED, now);
}

void sched_unpark(struct sched *sc, seq_id id, uint64_t now)
{
    struct seq *s = sched_seq(sc, id);

    CHECK(s->state == SEQ_PARKED);
    sched_set_state(sc, s, SEQ_WAITING, now);
}

void sched_delay(struct sched *sc, seq_id id, uint64_t now, uint64_t until_ns)
{
    struct seq *s = sched_seq(sc, id);

    CHECK(s->state == SEQ_RUNNING || s->state == SEQ_WAITING);
    CHECK(s->n_kv == s->n_tokens);
    s->n_kv--;
    CHECK(!sc->l.states || s->n_kv >= s->slot_from);
    s->decode_only_until = 0;
    s->delay_until_ns = until_ns;
    sched_set_state(sc, s, SEQ_DELAYED, now);
    timers_update(&sc->timers, id.i);
}

seq_id sched_expired(struct sched *sc, uint64_t now)
{
    for (;;) {
        uint32_t id = timers_first(&sc->timers);
        if (id == NO_SEQ || timer_key(&sc->seqs[id]) > now)
            return SEQ_NONE;
        struct seq *s = &sc->seqs[id];
        if (MIN(s->deadline_ns, s->start_deadline_ns) <= now)
            return (seq_id){ id };
        s->delay_until_ns = UINT64_MAX;
        timers_update(&sc->timers, id);
        sched_set_state(sc, s, SEQ_WAITING, now);
    }
}

uint64_t sched_next_wake(const struct sched *sc)
{
    uint32_t id = timers_first(&sc->timers);

    return id == NO_SEQ ? UINT64_MAX : timer_key(&sc->seqs[id]);
}

void sched_set_fairness(struct sched *sc, const struct fairness *f)
{
    sc->fair = *f;
}

void sched_set_step_time(struct sched *sc, const struct step_time *c)
{
    sc->step_time = *c;
}

void sched_counts(const struct sched *sc, struct sched_counts *out)
{
    *out = sc->counts;
}
