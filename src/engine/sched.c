#include "engine/sched.h"
#include "base/mem.h"
#include "engine/prefix.h"
#include "engine/tenants.h"
#include "engine/timers.h"
#include "engine/waitq.h"

#include <stdlib.h>

struct sched {
    struct page_pool *pool;
    struct sched_limits l;
    struct seq *seqs; /* [max_seqs] */
    uint32_t free;    /* stack of entries that were used and are not, through next */
    uint32_t n_seen;  /* those from here on were never used, nor their memory touched */
    uint32_t running; /* in the order of rank, which does not change while running */
    uint32_t running_tail;
    uint32_t holders;    /* keep pages, do not run */
    uint64_t held_pages; /* sum of theirs; an upper bound on what evicting them gives */
    struct tenants tenants;
    struct waitq waiting;
    struct fairness fair;
    uint64_t n_orders;
    struct timers timers;
    struct sched_counts counts;
    uint32_t *decode, *fill; /* [max_batch], [2 max_batch]: who runs, while planning */
    int n_decode, n_fill;
    uint32_t *page_refs;          /* [n_pages] scratch of sched_check */
    int rows_left, logits_left;   /* while planning */
    struct step_size decode_size; /* while planning: rows of those that decode */
    double ride_ns;               /* while planning: what prompts may still add beside decodes */
    int n_riders;                 /* to share that */
    bool is_riding;               /* some decode in this step */
    bool has_ridden;              /* the least that a prompt gets was given away */
    struct cost cost;
    struct plan *plan; /* while planning */
};

int sched_new(
    struct sched **out, struct page_pool *pool, const struct sched_limits *l, struct err *e)
{
    struct sched *sc = xcalloc(1, sizeof(*sc));

    CHECK(l->max_batch >= 1 && l->max_batch <= l->max_rows && l->max_batch <= l->max_logits);
    CHECK(l->prefill_chunk >= 1 && l->age_ns > 0 && l->max_seqs < NO_SEQ);
    CHECK(l->stretch == 0 || l->stretch >= 1);
    CHECK(l->max_begun >= l->max_batch);
    sc->pool = pool;
    sc->l = *l;
    sc->seqs = try_calloc(l->max_seqs, sizeof(*sc->seqs));
    sc->timers.heap = try_calloc(l->max_seqs, sizeof(*sc->timers.heap));
    sc->decode = try_calloc(3 * (size_t)l->max_batch, sizeof(*sc->decode));
    sc->fill = sc->decode ? sc->decode + l->max_batch : NULL;
    sc->page_refs = try_calloc(page_n_total(pool), sizeof(*sc->page_refs));
    if (!sc->seqs || !sc->timers.heap || !sc->decode || !sc->page_refs) {
        sched_free(sc);
        return err_set(e, ERR_MEMORY, "no memory to schedule %u sequences", l->max_seqs);
    }
    if (tenants_init(&sc->tenants, l->max_seqs, e)) {
        sched_free(sc);
        return -1;
    }
    sc->timers.seqs = sc->seqs;
    waitq_init(&sc->waiting, sc->seqs, &sc->tenants, l->age_ns);
    sc->fair = fairness_default;
    sc->running = sc->running_tail = sc->holders = sc->free = NO_SEQ;
    *out = sc;
    return 0;
}

void sched_free(struct sched *sc)
{
    if (!sc)
        return;
    CHECK(sc->counts.seqs == 0);
    tenants_clear(&sc->tenants);
    mem_free(sc->seqs);
    mem_free(sc->timers.heap);
    mem_free(sc->decode);
    mem_free(sc->page_refs);
    mem_free(sc);
}

struct seq *sched_seq(struct sched *sc, seq_id id)
{
    CHECK(id.i < sc->l.max_seqs && sc->seqs[id.i].state != SEQ_FREE);
    return &sc->seqs[id.i];
}

static uint32_t index_of(const struct sched *sc, const struct seq *s)
{
    return (uint32_t)(s - sc->seqs);
}

/* ---- lists */

static void hold(struct sched *sc, struct seq *s)
{
    if (s->n_pages == 0)
        return;
    s->is_holder = true;
    s->prev_holder = NO_SEQ;
    s->next_holder = sc->holders;
    if (sc->holders != NO_SEQ)
        sc->seqs[sc->holders].prev_holder = index_of(sc, s);
    sc->holders = index_of(sc, s);
    sc->held_pages += (uint64_t)s->n_pages;
}

static void unhold(struct sched *sc, struct seq *s)
{
    if (!s->is_holder)
        return;
    s->is_holder = false;
    if (s->prev_holder != NO_SEQ)
        sc->seqs[s->prev_holder].next_holder = s->next_holder;
    else
        sc->holders = s->next_holder;
    if (s->next_holder != NO_SEQ)
        sc->seqs[s->next_holder].prev_holder = s->prev_holder;
    sc->held_pages -= (uint64_t)s->n_pages;
}

static bool goes_before(
    const struct sched *sc, const struct seq *a, const struct seq *b, uint64_t now)
{
    return seq_is_before(a, b, now, sc->l.age_ns);
}

static void running_insert(struct sched *sc, struct seq *s)
{
    uint32_t after = sc->running_tail; /* newcomers mostly rank last */

    while (after != NO_SEQ && goes_before(sc, s, &sc->seqs[after], 0))
        after = sc->seqs[after].prev;
    s->prev = after;
    s->next = after == NO_SEQ ? sc->running : sc->seqs[after].next;
    *(after == NO_SEQ ? &sc->running : &sc->seqs[after].next) = index_of(sc, s);
    *(s->next == NO_SEQ ? &sc->running_tail : &sc->seqs[s->next].prev) = index_of(sc, s);
}

static void running_remove(struct sched *sc, struct seq *s)
{
    *(s->prev == NO_SEQ ? &sc->running : &sc->seqs[s->prev].next) = s->next;
    *(s->next == NO_SEQ ? &sc->running_tail : &sc->seqs[s->next].prev) = s->prev;
}

static uint32_t *count_of(struct sched *sc, enum seq_state state)
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
    CHECK(!"a state");
}

/* Out of its present state's lists, with all its pages. */
static void leave(struct sched *sc, struct seq *s)
{
    unhold(sc, s);
    if (s->state == SEQ_RUNNING)
        running_remove(sc, s);
    else if (s->state == SEQ_WAITING)
        waitq_remove(&sc->waiting, index_of(sc, s));
    --*count_of(sc, s->state);
}

static void enter(struct sched *sc, struct seq *s, enum seq_state state)
{
    s->state = state;
    ++*count_of(sc, state);
    if (state == SEQ_RUNNING) {
        if (s->begin_by_ns != UINT64_MAX) {
            s->begin_by_ns = UINT64_MAX;
            timers_update(&sc->timers, index_of(sc, s));
        }
        s->is_fresh = false;
        running_insert(sc, s);
        return;
    }
    if (state == SEQ_WAITING)
        waitq_push(&sc->waiting, index_of(sc, s));
    hold(sc, s);
}

static void move(struct sched *sc, struct seq *s, enum seq_state state, uint64_t now)
{
    leave(sc, s);
    if (s->state == SEQ_WAITING && now > s->since_ns)
        s->waited_ns += now - s->since_ns;
    s->since_ns = now;
    enter(sc, s, state);
}

/* ---- events */

seq_id sched_add(struct sched *sc, uint64_t now, const struct seq_spec *spec)
{
    uint32_t id = sc->free == NO_SEQ ? sc->n_seen++ : sc->free;

    CHECK(id < sc->l.max_seqs); /* the letter box admits no more */
    struct seq *s = &sc->seqs[id];
    if (id == sc->free)
        sc->free = s->next;
    CHECK(spec->n_prompt >= 1 && spec->credits >= 1);
    *s = (struct seq){
        .is_fresh = !spec->is_held,
        .timer_at = NO_SEQ,
        .priority = spec->priority,
        .choice = spec->choice,
        .tenant = tenants_enter(&sc->tenants, spec->tenant, spec->weight),
        .order = spec->choice && sc->n_orders ? sc->n_orders - 1 : sc->n_orders++,
        .since_ns = now,
        .deadline_ns = spec->deadline_ns,
        .delay_until_ns = UINT64_MAX,
        .begin_by_ns = spec->begin_by_ns ? spec->begin_by_ns : UINT64_MAX,
        .n_prompt = spec->n_prompt,
        .n_tokens = spec->n_prompt,
        .is_scripted = spec->is_scripted,
        .score_from = spec->score_from,
        .credits = spec->credits,
        .pages = spec->pages,
        .copy_from = PAGE_NONE,
        .copy_to = PAGE_NONE,
        .tokens = spec->tokens,
        .root = TREE_NONE,
        .writer = spec->scope.tenant,
        .user = spec->user,
    };
    if (sc->l.tree && !spec->is_uncached)
        s->root = tree_enter(sc->l.tree, &spec->scope);
    s->node = s->root;
    sc->counts.seqs++;
    enter(sc, s, spec->is_held ? SEQ_HELD : SEQ_WAITING);
    timers_update(&sc->timers, id);
    return (seq_id){ id };
}

void sched_fork(struct sched *sc, seq_id leader, seq_id held, uint64_t now)
{
    struct seq *from = sched_seq(sc, leader), *s = sched_seq(sc, held);

    CHECK(s->state == SEQ_HELD && from->n_kv == s->n_tokens);
    leave(sc, s);
    /* First: should the cache know its pages as others, all choices refer to those. */
    prefix_keep(from, sc->l.tree);
    seq_share(s, from, sc->pool);
    s->waited_ns = from->waited_ns;
    s->since_ns = now;
    enter(sc, s, SEQ_WAITING);
}

void sched_push(struct sched *sc, seq_id id, int n)
{
    struct seq *s = sched_seq(sc, id);

    s->n_tokens += n;
    s->n_slice += n;
}

/* What it has computed stays behind in the prefix cache. */
static void give_pages(struct sched *sc, struct seq *s)
{
    seq_undo_copy(s, sc->pool);
    prefix_keep_all(s, sc->l.tree);
    seq_release(s, sc->pool);
}

void sched_end(struct sched *sc, seq_id id)
{
    struct seq *s = sched_seq(sc, id);

    leave(sc, s);
    give_pages(sc, s);
    if (s->root.i != TREE_NONE.i)
        tree_leave(sc->l.tree, s->root);
    s->deadline_ns = s->delay_until_ns = s->begin_by_ns = UINT64_MAX;
    timers_update(&sc->timers, id.i);
    tenants_leave(&sc->tenants, s->tenant);
    sc->counts.turns_waiting -= s->has_yielded;
    s->state = SEQ_FREE;
    s->next = sc->free;
    sc->free = id.i;
    sc->counts.seqs--;
}

void sched_park(struct sched *sc, seq_id id, uint64_t now)
{
    struct seq *s = sched_seq(sc, id);

    CHECK(s->state == SEQ_RUNNING || s->state == SEQ_WAITING);
    move(sc, s, SEQ_PARKED, now);
}

void sched_unpark(struct sched *sc, seq_id id, uint64_t now)
{
    struct seq *s = sched_seq(sc, id);

    CHECK(s->state == SEQ_PARKED);
    move(sc, s, SEQ_WAITING, now);
}

void sched_delay(struct sched *sc, seq_id id, uint64_t now, uint64_t until_ns)
{
    struct seq *s = sched_seq(sc, id);

    CHECK(s->state == SEQ_RUNNING || s->state == SEQ_WAITING);
    CHECK(s->n_kv == s->n_tokens);
    s->n_kv--;
    s->delay_until_ns = until_ns;
    move(sc, s, SEQ_DELAYED, now);
    timers_update(&sc->timers, id.i);
}

seq_id sched_expired(struct sched *sc, uint64_t now)
{
    for (;;) {
        uint32_t id = timers_first(&sc->timers);
        if (id == NO_SEQ || timer_key(&sc->seqs[id]) > now)
            return SEQ_NONE;
        struct seq *s = &sc->seqs[id];
        if (MIN(s->deadline_ns, s->begin_by_ns) <= now)
            return (seq_id){ id };
        s->delay_until_ns = UINT64_MAX;
        timers_update(&sc->timers, id);
        move(sc, s, SEQ_WAITING, now);
    }
}

uint64_t sched_next_wake(const struct sched *sc)
{
    uint32_t id = timers_first(&sc->timers);

    return id == NO_SEQ ? UINT64_MAX : timer_key(&sc->seqs[id]);
}

/* ---- pages */

static void take_pages_of(struct sched *sc, struct seq *s)
{
    unhold(sc, s);
    give_pages(sc, s);
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
        if (!last || goes_before(sc, last, &sc->seqs[id], now))
            last = &sc->seqs[id];
    if (last)
        take_pages_of(sc, last);
    return last;
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
    take_pages_of(sc, victim);
    sc->rows_left += victim->plan_rows;
    sc->logits_left += victim->plan_logits;
    victim->plan_rows = victim->plan_logits = 0;
    move(sc, victim, SEQ_WAITING, now);
    return true;
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

/* Pages of the running ones below full: promised when they were admitted. */
static int64_t promised_pages(const struct sched *sc)
{
    int64_t n = 0;

    for (uint32_t id = sc->running; id != NO_SEQ; id = sc->seqs[id].next)
        n += MAX(pages_for(sc->seqs[id].n_tokens) - sc->seqs[id].n_pages, 0);
    return n;
}

/* Room for all that `s` knows so far, beside what others were promised and a little for them to
 * grow; else it would only be preempted again. Alone it needs no such margin. */
static bool make_way_for(struct sched *sc, struct seq *s, uint64_t now)
{
    int64_t margin = 0;

    if (sc->counts.running)
        margin = promised_pages(sc) + MIN(sc->counts.running, page_n_total(sc->pool) / 16 + 1);
    unhold(sc, s);
    for (;;) {
        int64_t need = pages_for(s->n_tokens) - s->n_pages + seq_shares_tail(s, sc->pool) + margin;
        int64_t n_free = (int64_t)page_n_free(sc->pool) + page_n_idle(sc->pool);
        if (need <= n_free)
            return true;
        if (need <= n_free + (int64_t)sc->held_pages && evict_holder(sc, now))
            continue;
        if (sc->counts.running || !give_up_tail(sc, s)) {
            hold(sc, s);
            return false;
        }
    }
}

/* ---- planning */

/* Rows from here on want logits: one event each. The last row always does, prompt rows until they
 * were all scored, which is before anything else is known. */
static int logits_begin(const struct seq *s)
{
    if (s->is_scripted)
        return s->n_tokens;
    return s->score_from < s->n_prompt - 1 ? MAX(s->n_kv, s->score_from) : s->n_tokens - 1;
}

/* More than its next token's row is missing: it fills, and may have to ride. */
static bool is_filling(const struct seq *s)
{
    return s->n_tokens - s->n_kv > 1;
}

/* Of n rows, those that do not hold up the ones that decode. What may be added is shared equally,
 * so that a short prompt need not wait for a long one, but no share is below the least; who comes
 * later then gets none. The very first gets that in any case. */
static int rows_to_ride(struct sched *sc, const struct seq *s, int n)
{
    const int least = MIN(n, (int)RIDING_ROWS_MIN);

    if (!sc->is_riding || !is_filling(s))
        return n;
    int fit = cost_rows_within(&sc->cost, s->n_kv, sc->ride_ns / MAX(sc->n_riders, 1), n);
    if (fit < least)
        fit = sc->has_ridden ? cost_rows_within(&sc->cost, s->n_kv, sc->ride_ns, least) : least;
    if (fit == 0)
        sc->ride_ns = 0;
    sc->n_riders--;
    return fit;
}

static void count_ride(struct sched *sc, const struct seq *s)
{
    struct step_size added = { 0 };

    if (!is_filling(s))
        step_size_add(&sc->decode_size, s->n_kv, s->plan_rows);
    if (!sc->is_riding || !is_filling(s) || s->plan_rows == 0)
        return;
    step_size_add(&added, s->n_kv, s->plan_rows);
    sc->ride_ns -= cost_of(&sc->cost, &added) - sc->cost.fixed;
    sc->has_ridden = true;
}

/* Takes over what others have computed for the same prefix. True: one that is planned already is at
 * the very next tokens, which it better waits for. */
static bool follow(struct sched *sc, struct seq *s)
{
    prefix_keep(s, sc->l.tree);
    if (s->root.i == TREE_NONE.i || !is_filling(s))
        return false;
    prefix_catch_up(s, sc->l.tree);
    for (int i = 0; i < sc->n_fill && &sc->seqs[sc->fill[i]] != s; i++)
        if (prefix_is_ahead(&sc->seqs[sc->fill[i]], s))
            return true;
    return false;
}

/* Gives `s` as many rows as it may have; pages may come from others. */
static void plan_seq(struct sched *sc, struct seq *s, uint64_t now)
{
    if (follow(sc, s))
        return;
    int n = MIN(MIN(s->n_tokens - s->n_kv, sc->l.prefill_chunk), sc->rows_left);
    int logits_from = logits_begin(s);

    n = rows_to_ride(sc, s, n);

    n = MIN(n, logits_from - s->n_kv + MIN(s->credits, sc->logits_left));
    if (n <= 0)
        return;
    int upto = s->n_kv + n, got;
    while ((got = seq_reserve(s, sc->pool, upto)) < upto)
        if (!evict_idle(sc) && !evict_holder(sc, now) && !preempt_below(sc, s, now) &&
            !take_back_tail(sc, s))
            break;
    s->plan_rows = MIN(got, upto) - s->n_kv;
    s->plan_logits = MAX(s->n_kv + s->plan_rows - logits_from, 0);
    sc->rows_left -= s->plan_rows;
    sc->logits_left -= s->plan_logits;
    count_ride(sc, s);
}

/* Planning goes over copies of the list: planning one may preempt others. */
static void list_running(struct sched *sc)
{
    sc->n_decode = sc->n_fill = 0;
    for (uint32_t id = sc->running; id != NO_SEQ; id = sc->seqs[id].next)
        if (is_filling(&sc->seqs[id]))
            sc->fill[sc->n_fill++] = id;
        else
            sc->decode[sc->n_decode++] = id;
}

static void plan_listed(struct sched *sc, const uint32_t *ids, int n, uint64_t now)
{
    for (int i = 0; i < n; i++) {
        if (i + 2 < n)
            __builtin_prefetch(&sc->seqs[ids[i + 2]].n_prompt);
        if (sc->seqs[ids[i]].state == SEQ_RUNNING)
            plan_seq(sc, &sc->seqs[ids[i]], now);
    }
}

/* What decodes is planned: prompts may make the step so much longer. */
static void begin_riding(struct sched *sc)
{
    sc->has_ridden = false;
    sc->n_riders = sc->n_fill;
    sc->is_riding = sc->l.stretch > 0 && sc->decode_size.rows > 0;
    sc->ride_ns = (sc->l.stretch - 1) * cost_of(&sc->cost, &sc->decode_size);
}

/* Before it comes in, so that it needs no room for what is there. Should there be no room for the
 * rest, it keeps what it found as long as nobody needs it more. */
static void find_prefix(struct sched *sc, struct seq *s)
{
    if (s->n_pages > 0)
        return;
    prefix_find(s, sc->l.tree);
    hold(sc, s);
}

/* ---- turns */

static void tell_turn(struct sched *sc, const struct seq *s, bool is_resumed, bool is_preempted)
{
    struct plan *p = sc->plan;

    if (p->n_turns < 4 * sc->l.max_batch)
        p->turns[p->n_turns++] = (struct plan_turn){ s->user, is_resumed, is_preempted };
}

static void admit(struct sched *sc, struct seq *s, uint64_t now)
{
    move(sc, s, SEQ_RUNNING, now);
    s->n_slice = 0;
    if (!s->has_yielded)
        return;
    s->has_yielded = false;
    sc->counts.turns_waiting--;
    sc->counts.turns_resumed++;
    tell_turn(sc, s, true, false);
}

/* When there is room for it. */
static bool let_in(struct sched *sc, struct seq *s, uint64_t now)
{
    find_prefix(sc, s);
    if (!make_way_for(sc, s, now))
        return false;
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
static uint32_t first_waiting(const struct sched *sc, uint64_t now)
{
    bool is_full = sc->counts.running + sc->waiting.n_back >= (uint32_t)sc->l.max_begun;
    uint32_t id = waitq_first(&sc->waiting, now, true);

    if (!is_full || id == NO_SEQ || !sc->seqs[id].is_fresh)
        return id;
    if (sc->fair.enable_preemption && !is_low(sc, &sc->seqs[id]))
        return id;
    return waitq_first(&sc->waiting, now, false);
}

/* `s` gives its place to the first of those who wait, it among them. False: it keeps it. */
static bool change_turn(struct sched *sc, struct seq *s, bool is_preempted, uint64_t now)
{
    move(sc, s, SEQ_WAITING, now); /* its pages count as free for the other from here on */
    struct seq *first = &sc->seqs[first_waiting(sc, now)];
    if (first == s || !let_in(sc, first, now)) {
        move(sc, s, SEQ_RUNNING, now);
        return false;
    }
    s->has_yielded = true;
    sc->counts.turns_waiting++;
    ++*(is_preempted ? &sc->counts.turns_preempted : &sc->counts.turns_yielded);
    tell_turn(sc, s, false, is_preempted);
    return true;
}

/* After its slice one goes behind all that wait. */
static void end_slices(struct sched *sc, uint64_t now)
{
    int n = 0;

    if (sc->fair.max_timeslice_tokens <= 0)
        return;
    for (uint32_t id = sc->running; id != NO_SEQ; id = sc->seqs[id].next)
        if (is_low(sc, &sc->seqs[id]) && sc->seqs[id].n_slice >= sc->fair.max_timeslice_tokens)
            sc->decode[n++] = id;
    for (int i = 0; i < n; i++) {
        struct seq *s = &sc->seqs[sc->decode[i]];
        uint64_t order = s->order;
        running_remove(sc, s);
        s->order = sc->n_orders++;
        running_insert(sc, s);
        s->n_slice = 0;
        if (change_turn(sc, s, false, now))
            continue;
        running_remove(sc, s);
        s->order = order;
        running_insert(sc, s);
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
        uint32_t id = first_waiting(sc, now);
        if (id == NO_SEQ || is_low(sc, &sc->seqs[id]))
            return;
        struct seq *low = lower_than(sc, &sc->seqs[id], now);
        if (!low || !change_turn(sc, low, true, now))
            return;
    }
}

/* When all places are taken and others wait. Whoever comes in is planned with those who run. */
static void change_turns(struct sched *sc, uint64_t now)
{
    if (sc->waiting.n == 0 || sc->counts.running < (uint32_t)sc->l.max_batch)
        return;
    end_slices(sc, now);
    let_high_ones_in(sc, now);
}

static void plan_waiting(struct sched *sc, uint64_t now)
{
    while (sc->counts.running < (uint32_t)sc->l.max_batch && sc->rows_left > 0 &&
           sc->logits_left > 0) {
        uint32_t id = first_waiting(sc, now);
        if (id == NO_SEQ || !let_in(sc, &sc->seqs[id], now))
            return;
        if (is_filling(&sc->seqs[id]) && sc->n_fill < 2 * sc->l.max_batch)
            sc->fill[sc->n_fill++] = id; /* some were listed and preempted: two lists' room */
        plan_seq(sc, &sc->seqs[id], now);
    }
}

/* Pages that a run is the first to write to, and that hold another tenant's rows. */
static void clear_pages(struct sched *sc, struct plan *p, const struct seq *s, int from, int upto)
{
    for (int i = pages_for(from); i < pages_for(upto); i++)
        if (page_claim(sc->pool, s->pages[i], s->writer))
            p->clears[p->n_clears++] = s->pages[i];
}

static void write_down(struct sched *sc, struct plan *p)
{
    p->n_runs = p->n_copies = p->n_clears = p->n_rows = 0;
    p->has_prefill = p->has_decode = false;
    p->size = (struct step_size){ 0 };
    for (uint32_t id = sc->running; id != NO_SEQ; id = sc->seqs[id].next) {
        struct seq *s = &sc->seqs[id];
        if (s->copy_from.i != PAGE_NONE.i) {
            p->copies[p->n_copies++] = (struct plan_copy){ s->copy_from, s->copy_to };
            (void)!page_claim(sc->pool, s->copy_to, s->writer); /* the copy overwrites all */
            page_unref(sc->pool, s->copy_from); /* from here on nobody takes before the copy */
            s->copy_from = s->copy_to = PAGE_NONE;
        }
        if (s->plan_rows == 0)
            continue;
        clear_pages(sc, p, s, s->n_kv, s->n_kv + s->plan_rows);
        *(is_filling(s) ? &p->has_prefill : &p->has_decode) = true;
        step_size_add(&p->size, s->n_kv, s->plan_rows);
        p->n_rows += s->plan_rows;
        p->runs[p->n_runs++] = (struct plan_run){
            .seq = { id },
            .pos = s->n_kv,
            .n = s->plan_rows,
            .n_logits = s->plan_logits,
            .is_whole = s->n_kv + s->plan_rows == s->n_tokens,
        };
        s->plan_rows = s->plan_logits = 0;
    }
}

void sched_plan(struct sched *sc, uint64_t now, struct plan *p)
{
    sc->rows_left = sc->l.max_rows;
    sc->logits_left = sc->l.max_logits;
    sc->is_riding = false;
    sc->decode_size = (struct step_size){ 0 };
    if (sc->l.tree)
        tree_set_time(sc->l.tree, now);
    sc->plan = p;
    p->n_turns = 0;
    change_turns(sc, now);
    list_running(sc);
    plan_listed(sc, sc->decode, sc->n_decode, now);
    begin_riding(sc);
    plan_listed(sc, sc->fill, sc->n_fill, now);
    plan_waiting(sc, now);
    write_down(sc, p);
    sc->plan = NULL;
}

void sched_set_fairness(struct sched *sc, const struct fairness *f)
{
    sc->fair = *f;
}

void sched_set_cost(struct sched *sc, const struct cost *c)
{
    sc->cost = *c;
}

/* What was computed before, or found, was paid for or costs nothing. */
static void charge(struct sched *sc, struct seq *s, int pos, int n)
{
    int from = MAX(pos, s->n_charged), end = pos + n;
    int n_prompt = MAX(MIN(end, s->n_prompt) - from, 0),
        n_output = MAX(end - MAX(from, s->n_prompt), 0);

    s->n_charged = MAX(end, s->n_charged);
    if (n_prompt + n_output > 0)
        tenants_charge(&sc->tenants, s->tenant,
            n_prompt * (double)CHARGE_PROMPT + n_output * (double)CHARGE_OUTPUT);
}

void sched_commit(struct sched *sc, const struct plan *p)
{
    for (int i = 0; i < p->n_runs; i++) {
        struct seq *s = sched_seq(sc, p->runs[i].seq);
        int n = p->runs[i].n - p->runs[i].n_drafts;
        charge(sc, s, p->runs[i].pos, n);
        s->n_kv += n;
    }
}

/* ---- drafts */

static void add_drafts(struct sched *sc, struct plan *p, int i, int n)
{
    struct plan_run *r = &p->runs[i];
    struct step_size size = { 0 };

    step_size_add(&size, r->pos + MIN(r->n, r->n + n), abs(n));
    p->size.rows += n < 0 ? -size.rows : size.rows;
    p->size.keys += n < 0 ? -size.keys : size.keys;
    r->n += n;
    r->n_logits += n;
    r->n_drafts += n;
    p->n_rows += n;
    sc->rows_left -= n;
    sc->logits_left -= n;
}

int sched_extend(struct sched *sc, struct plan *p, int i, int n)
{
    struct plan_run *r = &p->runs[i];
    struct seq *s = sched_seq(sc, r->seq);

    CHECK(r->is_whole && !s->is_scripted && s->state == SEQ_RUNNING);
    n = MIN(n, MIN(sc->rows_left, sc->logits_left));
    n = MIN(n, MIN(s->credits - r->n_logits, sc->l.prefill_chunk - r->n));
    if (n <= 0)
        return 0;
    int from = r->pos + r->n, got = seq_reserve(s, sc->pool, from + n);
    n = MIN(got - from, n);
    clear_pages(sc, p, s, from, from + n);
    add_drafts(sc, p, i, n);
    return n;
}

void sched_retract(struct sched *sc, struct plan *p, int i, int n)
{
    CHECK(n >= 0 && n <= p->runs[i].n_drafts);
    add_drafts(sc, p, i, -n);
}

void sched_accept(struct sched *sc, seq_id id)
{
    struct seq *s = sched_seq(sc, id);

    CHECK(s->n_kv < s->n_tokens);
    charge(sc, s, s->n_kv, 1);
    s->n_kv++;
}

void sched_trim(struct sched *sc, seq_id id)
{
    struct seq *s = sched_seq(sc, id);

    CHECK(s->state == SEQ_RUNNING);
    while (s->n_pages > pages_for(s->n_tokens))
        page_unref(sc->pool, s->pages[--s->n_pages]);
}

void plan_init(struct plan *p, const struct sched_limits *l)
{
    *p = (struct plan){
        .runs = xcalloc((size_t)l->max_batch, sizeof(*p->runs)),
        .copies = xcalloc((size_t)l->max_batch, sizeof(*p->copies)),
        .clears = xcalloc((size_t)(l->max_batch + l->max_rows), sizeof(*p->clears)),
        .turns = xcalloc(4 * (size_t)l->max_batch, sizeof(*p->turns)),
    };
}

void plan_clear(struct plan *p)
{
    mem_free(p->runs);
    mem_free(p->copies);
    mem_free(p->clears);
    mem_free(p->turns);
    *p = (struct plan){ 0 };
}

/* ---- checking */

void sched_counts(const struct sched *sc, struct sched_counts *out)
{
    *out = sc->counts;
}

static const char *check_seq(struct sched *sc, const struct seq *s)
{
    if (s->n_kv < 0 || s->n_kv > s->n_tokens || s->n_kv > s->n_pages * PAGE_TOKENS)
        return "a sequence claims more than its pages hold";
    if (s->plan_rows || s->copy_from.i != PAGE_NONE.i)
        return "a plan was left behind";
    if (s->state == SEQ_HELD && s->n_pages)
        return "a held sequence has pages";
    if (s->is_holder != (s->state != SEQ_RUNNING && s->n_pages > 0))
        return "the list of holders is wrong";
    if ((timer_key(s) != UINT64_MAX) != (s->timer_at != NO_SEQ))
        return "a timer is lost";
    for (int i = 0; i < s->n_pages; i++) {
        if (s->pages[i].i >= page_n_total(sc->pool))
            return "a page that does not exist";
        sc->page_refs[s->pages[i].i]++;
        if (i < s->n_kept && !page_is_kept(sc->pool, s->pages[i]))
            return "a page that is said to be in the prefix cache is not";
        if (i > s->n_kv / PAGE_TOKENS && page_refs(sc->pool, s->pages[i]) != 1)
            return "a page to be written is shared";
    }
    return NULL;
}

static const char *check_lists(const struct sched *sc)
{
    uint32_t n_running = 0;
    uint64_t held_pages = 0;

    for (uint32_t id = sc->running; id != NO_SEQ; id = sc->seqs[id].next) {
        const struct seq *s = &sc->seqs[id];
        if (s->state != SEQ_RUNNING || ++n_running > sc->counts.running)
            return "the list of running sequences is wrong";
        if (s->next != NO_SEQ && !goes_before(sc, s, &sc->seqs[s->next], 0))
            return "the running are out of order";
    }
    for (uint32_t id = sc->holders; id != NO_SEQ; id = sc->seqs[id].next_holder)
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
    for (uint32_t i = 0; i < sc->n_seen; i++) {
        const char *wrong = NULL;
        n[sc->seqs[i].state]++;
        if (sc->seqs[i].state != SEQ_FREE)
            wrong = check_seq(sc, &sc->seqs[i]);
        if (wrong)
            return wrong;
    }
    for (uint32_t i = 0; i < page_n_total(sc->pool); i++) {
        uint32_t n_kept = sc->l.tree ? tree_refs(sc->l.tree, (page_id){ i }) : 0;
        n_owned += sc->page_refs[i] > 0 || n_kept > 1; /* by sequences or pins */
        sc->page_refs[i] += n_kept;
        if (sc->page_refs[i] != page_refs(sc->pool, (page_id){ i }))
            return "a page has other holders than it counts";
    }
    if (n_owned + page_n_idle(sc->pool) + page_n_free(sc->pool) != page_n_total(sc->pool))
        return "pages owned, cached and free are not all pages";
    if (sc->l.tree && tree_check(sc->l.tree))
        return tree_check(sc->l.tree);
    if (n[SEQ_HELD] != c->held || n[SEQ_WAITING] != c->waiting || n[SEQ_RUNNING] != c->running ||
        n[SEQ_PARKED] != c->parked || n[SEQ_DELAYED] != c->delayed ||
        n[SEQ_FREE] + c->seqs != sc->n_seen)
        return "the counts of states are wrong";
    return check_lists(sc);
}
