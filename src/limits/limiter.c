#include "limits/limiter.h"

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "limits/calendar.h"
#include "limits/window.h"

#include <pthread.h>

enum { SLOTS_MIN = 64, COST_UNIT = 1000000 }; /* COST_UNIT: counted units per millionth */

/* ---- the limits */

enum row_kind { ROW_NONE, ROW_WINDOW, ROW_RUNNING, ROW_DAY, ROW_MONTH };

static const struct row {
    enum row_kind kind;
    bool requests, prompt, output, is_cost; /* amounts that it counts */
} rows[N_POLICY_LIMITS] = {
    [POLICY_LIMIT_requests_per_minute] = { ROW_WINDOW, true, false, false, false },
    [POLICY_LIMIT_tokens_per_minute] = { ROW_WINDOW, false, true, true, false },
    [POLICY_LIMIT_prompt_tokens_per_minute] = { ROW_WINDOW, false, true, false, false },
    [POLICY_LIMIT_output_tokens_per_minute] = { ROW_WINDOW, false, false, true, false },
    [POLICY_LIMIT_concurrent_requests] = { ROW_RUNNING, false, false, false, false },
    [POLICY_LIMIT_tokens_per_day] = { ROW_DAY, false, true, true, false },
    [POLICY_LIMIT_tokens_per_month] = { ROW_MONTH, false, true, true, false },
    [POLICY_LIMIT_cost_per_day] = { ROW_DAY, false, true, true, true },
    [POLICY_LIMIT_cost_per_month] = { ROW_MONTH, false, true, true, true },
};

static bool is_budget(const struct row *r)
{
    return r->kind == ROW_DAY || r->kind == ROW_MONTH;
}

static int64_t sum(int64_t a, int64_t b)
{
    int64_t s;

    return __builtin_add_overflow(a, b, &s) ? INT64_MAX : s;
}

static int64_t amount(
    const struct row *r, const struct limit_amounts *a, const struct limit_price *price)
{
    int64_t per_prompt = r->is_cost ? price->prompt : 1;
    int64_t per_output = r->is_cost ? price->output : 1;

    return (r->requests ? a->requests : 0) + (r->prompt ? a->prompt * per_prompt : 0) +
           (r->output ? a->output * per_output : 0);
}

/* ---- counters */

struct counter {
    int64_t limit;        /* in counted units; 0 = none */
    struct window window; /* ROW_WINDOW; the others use its `used` and `reserved` */
    int64_t period;       /* day or month of `used` */
    struct list queue;    /* struct limit_hold */
    struct list_link in_waiting;
};

struct limit_subject {
    struct limit_subject *next; /* in the slot */
    uint64_t hash;
    enum limit_kind kind;
    int n_holds;
    struct counter counters[N_POLICY_LIMITS];
    char name[];
};

struct limiter {
    pthread_mutex_t mu;
    uint64_t width_ns, seed;
    struct calendar calendar;
    struct limit_subject **slots;
    size_t n_slots, n_subjects;
    struct list waiting; /* struct counter with a queue */
    /* Time of the call that holds the mutex. */
    uint64_t now_ns;
    int64_t date_s;
};

struct wakers { /* to be called after the mutex is released */
    struct limit_waker *w[64];
    int n;
};

static void lock(struct limiter *l, const struct limit_time *t)
{
    pthread_mutex_lock(&l->mu);
    l->now_ns = MAX(l->now_ns, t->ns); /* threads may arrive in another order */
    l->date_s = calendar_now(&l->calendar, l->now_ns, t->wall_s);
}

static void unlock(struct limiter *l, const struct wakers *wakers)
{
    pthread_mutex_unlock(&l->mu);
    for (int i = 0; wakers && i < wakers->n; i++)
        wakers->w[i]->wake(wakers->w[i]);
}

/* A period that has passed is emptied. If the date has returned to an earlier one, the amounts
 * remain, so that no budget is granted twice. */
static void advance_counter(struct limiter *l, const struct row *r, struct counter *c)
{
    if (r->kind == ROW_WINDOW)
        window_advance(&c->window, l->width_ns, l->now_ns);
    if (!is_budget(r))
        return;
    int64_t period = r->kind == ROW_DAY ? calendar_day(l->date_s) : calendar_month(l->date_s);
    if (period > c->period)
        c->window.used = 0;
    c->period = period;
}

/* The amount that may be granted; the limit applies to used and reserved amounts together. */
static int64_t room(const struct counter *c)
{
    return MAX(c->limit - sum(c->window.used, c->window.reserved), 0);
}

static void settle_counter(struct limiter *l, const struct row *r, struct counter *c, int64_t n)
{
    advance_counter(l, r, c);
    if (r->kind == ROW_WINDOW && c->limit) {
        window_settle(&c->window, n, l->width_ns, l->now_ns);
        return;
    }
    window_refund(&c->window, n);
    if (is_budget(r))
        c->window.used = sum(c->window.used, n);
}

/* ---- subjects */

static uint64_t hash_of(const struct limiter *l, enum limit_kind kind, const char *name)
{
    return hash_bytes(l->seed + (uint64_t)kind, name, strlen(name));
}

static struct limit_subject *find(struct limiter *l, enum limit_kind kind, const char *name)
{
    uint64_t hash = hash_of(l, kind, name);
    struct limit_subject *s = l->slots[hash & (l->n_slots - 1)];

    while (s && (s->hash != hash || s->kind != kind || strcmp(s->name, name)))
        s = s->next;
    return s;
}

static bool is_idle(struct limiter *l, struct limit_subject *s)
{
    for (int i = 0; i < N_POLICY_LIMITS; i++) {
        advance_counter(l, &rows[i], &s->counters[i]);
        if (s->counters[i].window.used || s->counters[i].window.reserved)
            return false;
    }
    return !s->n_holds;
}

static void free_subject(struct limit_subject *s)
{
    for (int i = 0; i < N_POLICY_LIMITS; i++)
        window_clear(&s->counters[i].window);
    mem_free(s);
}

/* Frees the subjects whose counters are all 0, and doubles the table if most of them remain. */
static bool grow(struct limiter *l)
{
    for (size_t i = 0; i < l->n_slots; i++)
        for (struct limit_subject **at = &l->slots[i], *s; (s = *at);) {
            bool is_removed = is_idle(l, s);
            *at = is_removed ? s->next : s;
            at = is_removed ? at : &s->next;
            l->n_subjects -= is_removed;
            if (is_removed)
                free_subject(s);
        }
    if (l->n_subjects * 2 < l->n_slots)
        return true;
    size_t n = 2 * l->n_slots;
    struct limit_subject **grown = try_calloc(n, sizeof(struct limit_subject *));
    for (size_t i = 0; grown && i < l->n_slots; i++)
        for (struct limit_subject *s = l->slots[i], *next; s; s = next) {
            next = s->next;
            s->next = grown[s->hash & (n - 1)];
            grown[s->hash & (n - 1)] = s;
        }
    if (!grown)
        return false;
    mem_free(l->slots);
    l->slots = grown;
    l->n_slots = n;
    return true;
}

/* NULL: no memory. */
static struct limit_subject *find_or_add(struct limiter *l, enum limit_kind kind, const char *name)
{
    struct limit_subject *s = find(l, kind, name);

    if (s || (l->n_subjects >= l->n_slots && !grow(l)))
        return s;
    s = try_calloc(1, sizeof(*s) + strlen(name) + 1);
    if (!s)
        return NULL;
    s->hash = hash_of(l, kind, name);
    s->kind = kind;
    memcpy(s->name, name, strlen(name) + 1);
    struct limit_subject **slot = &l->slots[s->hash & (l->n_slots - 1)];
    s->next = *slot;
    *slot = s;
    l->n_subjects++;
    return s;
}

int limiter_begin(struct limiter *l, struct limit_hold *h, const struct limit_subject_of *subjects,
    int n, struct err *e)
{
    int failed = 0;

    pthread_mutex_lock(&l->mu);
    for (int i = 0; i < n && !failed; i++) {
        struct limit_subject *s = find_or_add(l, subjects[i].kind, subjects[i].name);
        failed = !s;
        if (!s)
            break;
        for (int r = 0; r < N_POLICY_LIMITS; r++) {
            int64_t limit = subjects[i].limits[r];
            if (rows[r].is_cost)
                limit = MIN(limit, INT64_MAX / COST_UNIT) * COST_UNIT;
            if (rows[r].kind == ROW_WINDOW && limit) {
                __int128 share = (__int128)limit * l->width_ns / (60 * NS_PER_S);
                limit = MAX((int64_t)share, 1);
            }
            s->counters[r].limit = limit;
        }
        s->n_holds++;
        h->subjects[h->n_subjects++] = s;
    }
    pthread_mutex_unlock(&l->mu);
    return failed ? err_set(e, ERR_MEMORY, "no memory for the rate limits") : 0;
}

/* ---- reservations */

static int64_t need_of(
    const struct limit_hold *h, const struct row *r, const struct limit_price *price)
{
    if (r->kind == ROW_RUNNING)
        return !h->is_running;
    return amount(r, is_budget(r) ? &h->want.budget : &h->want.window, price);
}

struct block { /* the first counter that does not grant a reservation */
    struct limit_subject *subject;
    int row;
    int64_t need;
};

static struct counter *counter_of(const struct block *b)
{
    return &b->subject->counters[b->row];
}

/* is_new: waiting requests precede it. */
static bool find_block(
    struct limiter *l, const struct limit_hold *h, bool is_new, struct block *out)
{
    for (int i = 0; i < h->n_subjects; i++)
        for (int r = 0; r < N_POLICY_LIMITS; r++) {
            struct counter *c = &h->subjects[i]->counters[r];
            int64_t need = c->limit ? need_of(h, &rows[r], &h->price) : 0;
            if (!need)
                continue;
            advance_counter(l, &rows[r], c);
            if (need <= room(c) && !(is_new && c->queue.first))
                continue;
            *out = (struct block){ h->subjects[i], r, need };
            return true;
        }
    return false;
}

static void add(struct limit_amounts *to, const struct limit_amounts *n, int64_t sign)
{
    to->requests += sign * n->requests;
    to->prompt += sign * n->prompt;
    to->output += sign * n->output;
}

static void take(struct limit_hold *h)
{
    for (int i = 0; i < h->n_subjects; i++)
        for (int r = 0; r < N_POLICY_LIMITS; r++)
            window_reserve(&h->subjects[i]->counters[r].window, need_of(h, &rows[r], &h->price));
    add(&h->window, &h->want.window, 1);
    add(&h->budget, &h->want.budget, 1);
    h->is_running = true;
}

static uint64_t retry_ns(struct limiter *l, const struct block *b)
{
    const struct row *r = &rows[b->row];
    const struct counter *c = counter_of(b);

    if (r->kind == ROW_RUNNING)
        return NS_PER_S;
    if (is_budget(r)) {
        int64_t next_s =
            r->kind == ROW_DAY ? calendar_next_day(l->date_s) : calendar_next_month(l->date_s);
        return (uint64_t)MAX(next_s - l->date_s, 1) * NS_PER_S;
    }
    uint64_t at = window_room_at(&c->window, b->need, c->limit, l->width_ns, l->now_ns);
    return at == UINT64_MAX ? l->width_ns : MAX(at - l->now_ns, 1);
}

static void explain(struct limiter *l, const struct block *b, struct limit_refusal *why)
{
    const struct counter *c = counter_of(b);
    int64_t unit = rows[b->row].is_cost ? COST_UNIT : 1;

    *why = (struct limit_refusal){ .limit = (enum policy_limit)b->row,
        .kind = b->subject->kind,
        .max = c->limit / unit,
        .requested = b->need / unit,
        .retry_ns = retry_ns(l, b),
        .is_never = b->need > c->limit };
    memcpy(why->name, b->subject->name, MIN(strlen(b->subject->name), (size_t)LIMIT_NAME_MAX));
}

static void enqueue(struct limiter *l, struct counter *c, struct limit_hold *h, bool is_first)
{
    if (is_first)
        list_add_first(&c->queue, &h->link);
    else
        list_add_last(&c->queue, &h->link);
    if (!c->in_waiting.list)
        list_add_last(&l->waiting, &c->in_waiting);
}

static void grant(struct limit_hold *h, bool is_refused, struct wakers *wakers)
{
    struct limit_waker *w = h->waker;
    int i = 0;

    if (!is_refused)
        take(h);
    h->is_refused = is_refused;
    h->state = LIMIT_GRANTED;
    list_add_last(&w->granted, &h->link);
    while (i < wakers->n && wakers->w[i] != w)
        i++;
    if (i == wakers->n && i < (int)ARRAY_LEN(wakers->w))
        wakers->w[wakers->n++] = w; /* the others find it when they call limiter_advance */
}

/* Grants the heads of a queue until one has no room. One that has no room at another counter moves
 * to the front there: it has waited before. One that can never have room, since a limit was
 * reduced, is refused. */
static void serve_queue(struct limiter *l, struct counter *c, struct wakers *wakers)
{
    struct limit_hold *h;
    struct block b;

    while ((h = LIST_ELEMENT(c->queue.first, struct limit_hold, link))) {
        bool is_blocked = find_block(l, h, false, &b);
        bool is_refused = is_blocked && b.need > counter_of(&b)->limit;
        if (is_blocked && !is_refused && counter_of(&b) == c)
            return;
        list_remove(&h->link);
        if (is_blocked && !is_refused)
            enqueue(l, counter_of(&b), h, true);
        else
            grant(h, is_refused, wakers);
    }
    list_remove(&c->in_waiting);
}

static void serve_queues(struct limiter *l, struct wakers *wakers)
{
    wakers->n = 0;
    LIST_EACH (struct counter, c, &l->waiting, in_waiting)
        serve_queue(l, c, wakers);
}

enum limit_state limiter_reserve(struct limiter *l, struct limit_hold *h,
    const struct limit_want *want, const struct limit_time *t, struct limit_refusal *why)
{
    enum limit_state state = LIMIT_GRANTED;
    struct wakers wakers;
    struct block b;

    lock(l, t);
    CHECK(h->state == LIMIT_IDLE);
    serve_queues(l, &wakers);
    h->want = *want;
    if (!find_block(l, h, want->may_wait, &b)) {
        take(h);
    } else if (want->may_wait && !is_budget(&rows[b.row]) && b.need <= counter_of(&b)->limit) {
        state = h->state = LIMIT_WAITING;
        enqueue(l, counter_of(&b), h, false);
    } else {
        state = LIMIT_IDLE;
        explain(l, &b, why);
    }
    unlock(l, &wakers);
    return state;
}

int64_t limiter_settle(struct limiter *l, struct limit_hold *h, const struct limit_amounts *used,
    const struct limit_time *t)
{
    struct wakers wakers;

    lock(l, t);
    for (int i = 0; i < h->n_subjects; i++)
        for (int r = 0; r < N_POLICY_LIMITS; r++)
            if (rows[r].kind != ROW_RUNNING)
                settle_counter(
                    l, &rows[r], &h->subjects[i]->counters[r], amount(&rows[r], used, &h->price));
    add(&h->window, used, -1);
    add(&h->budget, &(struct limit_amounts){ 0, used->prompt, used->output }, -1);
    CHECK(h->window.requests >= 0 && h->window.prompt >= 0 && h->window.output >= 0);
    CHECK(h->budget.prompt >= 0 && h->budget.output >= 0);
    serve_queues(l, &wakers);
    int64_t date_s = l->date_s;
    unlock(l, &wakers);
    return date_s;
}

/* A waiting request of several counters is in the queue of one of them, which may be empty now. */
static void leave_queue(struct limiter *l, struct limit_hold *h)
{
    if (h->state == LIMIT_IDLE)
        return;
    list_remove(&h->link);
    h->state = LIMIT_IDLE;
    LIST_EACH (struct counter, c, &l->waiting, in_waiting)
        if (!c->queue.first)
            list_remove(&c->in_waiting);
}

void limiter_end(struct limiter *l, struct limit_hold *h, const struct limit_time *t)
{
    struct wakers wakers;

    if (!h->n_subjects)
        return;
    lock(l, t);
    leave_queue(l, h);
    for (int i = 0; i < h->n_subjects; i++) {
        struct limit_subject *s = h->subjects[i];
        for (int r = 0; r < N_POLICY_LIMITS; r++) {
            const struct row *row = &rows[r];
            int64_t n = row->kind == ROW_RUNNING
                            ? h->is_running
                            : amount(row, is_budget(row) ? &h->budget : &h->window, &h->price);
            window_refund(&s->counters[r].window, n);
        }
        s->n_holds--;
    }
    memset(h, 0, sizeof(*h));
    serve_queues(l, &wakers);
    unlock(l, &wakers);
}

uint64_t limiter_advance(struct limiter *l, const struct limit_time *t)
{
    uint64_t due = UINT64_MAX;
    struct wakers wakers;
    struct block b;

    lock(l, t);
    serve_queues(l, &wakers);
    LIST_EACH (struct counter, c, &l->waiting, in_waiting) {
        const struct limit_hold *h = LIST_ELEMENT(c->queue.first, struct limit_hold, link);
        if (!h || !find_block(l, h, false, &b) || rows[b.row].kind != ROW_WINDOW)
            continue;
        uint64_t at = window_room_at(
            &counter_of(&b)->window, b.need, counter_of(&b)->limit, l->width_ns, l->now_ns);
        due = MIN(due, at);
    }
    unlock(l, &wakers);
    return due;
}

struct limit_hold *limiter_granted(struct limiter *l, struct limit_waker *w)
{
    pthread_mutex_lock(&l->mu);
    struct limit_hold *h = LIST_ELEMENT(w->granted.first, struct limit_hold, link);
    if (h) {
        list_remove(&h->link);
        h->state = LIMIT_IDLE;
    }
    pthread_mutex_unlock(&l->mu);
    return h;
}

/* ---- reports */

int64_t limiter_max_output(struct limiter *l, const struct limit_hold *h, int64_t prompt,
    bool with_windows, const struct limit_time *t)
{
    int64_t least = INT64_MAX;

    lock(l, t);
    for (int i = 0; i < h->n_subjects; i++)
        for (int r = 0; r < N_POLICY_LIMITS; r++) {
            struct counter *c = &h->subjects[i]->counters[r];
            const struct row *row = &rows[r];
            int64_t each = row->is_cost ? h->price.output : 1;
            if (!c->limit || !row->output || !each || (!is_budget(row) && !with_windows))
                continue;
            advance_counter(l, row, c);
            int64_t max = is_budget(row) ? room(c) : c->limit;
            int64_t used = row->prompt ? prompt * (row->is_cost ? h->price.prompt : 1) : 0;
            least = MIN(least, MAX(max - used, 0) / each);
        }
    unlock(l, NULL);
    return least;
}

void limiter_status(struct limiter *l, const struct limit_hold *h, enum policy_limit limit,
    const struct limit_time *t, struct limit_status *out)
{
    const struct row *row = &rows[limit];

    *out = (struct limit_status){ 0 };
    CHECK(row->kind == ROW_WINDOW);
    lock(l, t);
    for (int i = 0; i < h->n_subjects; i++) {
        struct counter *c = &h->subjects[i]->counters[limit];
        if (!c->limit)
            continue;
        advance_counter(l, row, c);
        if (out->max && room(c) >= out->left)
            continue;
        uint64_t at = window_room_at(&c->window, c->limit, c->limit, l->width_ns, l->now_ns);
        out->max = c->limit;
        out->left = room(c);
        out->full_ns = at == UINT64_MAX ? l->width_ns : at - l->now_ns;
    }
    unlock(l, NULL);
}

int64_t limiter_used(struct limiter *l, enum limit_kind kind, const char *name,
    enum policy_limit limit, const struct limit_time *t)
{
    const struct row *row = &rows[limit];
    int64_t n = 0;

    lock(l, t);
    struct limit_subject *s = find(l, kind, name);
    if (s) {
        struct counter *c = &s->counters[limit];
        advance_counter(l, row, c);
        n = sum(c->window.used, c->window.reserved) / (row->is_cost ? COST_UNIT : 1);
    }
    unlock(l, NULL);
    return n;
}

int limiter_restore(struct limiter *l, const struct limit_restored *restored,
    const struct limit_time *t, struct err *e)
{
    lock(l, t);
    struct limit_subject *s = find_or_add(l, restored->kind, restored->name);
    for (int r = 0; s && r < N_POLICY_LIMITS; r++) {
        struct counter *c = &s->counters[r];
        if (rows[r].kind != (restored->is_today ? ROW_DAY : ROW_MONTH))
            continue;
        advance_counter(l, &rows[r], c);
        int64_t n = rows[r].is_cost ? restored->cost : restored->tokens;
        c->window.used = sum(c->window.used, MAX(n, 0));
    }
    unlock(l, NULL);
    return s ? 0 : err_set(e, ERR_MEMORY, "no memory for the rate limits");
}

int64_t limiter_date(struct limiter *l, const struct limit_time *t)
{
    lock(l, t);
    int64_t date = l->date_s;
    unlock(l, NULL);
    return date;
}

/* ---- life */

int limiter_open(struct limiter **out, uint64_t width_ns, struct err *e)
{
    CHECK(width_ns >= WINDOW_PARTS);
    struct limiter *l = xcalloc(1, sizeof(*l));

    l->slots = try_calloc(SLOTS_MIN, sizeof(struct limit_subject *));
    if (!l->slots) {
        mem_free(l);
        return err_set(e, ERR_MEMORY, "no memory for the rate limits");
    }
    l->n_slots = SLOTS_MIN;
    l->width_ns = width_ns;
    l->seed = rng_entropy();
    pthread_mutex_init(&l->mu, NULL);
    *out = l;
    return 0;
}

void limiter_close(struct limiter *l)
{
    if (!l)
        return;
    for (size_t i = 0; i < l->n_slots; i++)
        for (struct limit_subject *s = l->slots[i], *next; s; s = next) {
            next = s->next;
            CHECK(!s->n_holds);
            free_subject(s);
        }
    pthread_mutex_destroy(&l->mu);
    mem_free(l->slots);
    mem_free(l);
}

void limiter_check(struct limiter *l)
{
    pthread_mutex_lock(&l->mu);
    for (size_t i = 0; i < l->n_slots; i++)
        for (const struct limit_subject *s = l->slots[i]; s; s = s->next)
            for (int r = 0; r < N_POLICY_LIMITS; r++) {
                const struct counter *c = &s->counters[r];
                CHECK(c->window.used >= 0 && c->window.reserved >= 0);
                CHECK(!c->queue.first || list_has(&l->waiting, &c->in_waiting));
                if (!s->n_holds)
                    CHECK(!c->window.reserved && !c->queue.first);
            }
    pthread_mutex_unlock(&l->mu);
}
