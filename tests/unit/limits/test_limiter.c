/* Rate limits: windows, calendar, budgets, queues; 1,000 simulated clients on one window. */
#include "support/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "limits/calendar.h"
#include "limits/limiter.h"
#include "limits/pace.h"
#include "limits/window.h"

#include <stdio.h>
#include <stdlib.h>

enum { WIDTH_S = 60 };
#define WIDTH (WIDTH_S * NS_PER_S)
#define START (1000 * NS_PER_S)

static void a_window_counts_amounts_for_its_length(void)
{
    struct window w = { 0 };
    uint64_t part = WIDTH / WINDOW_PARTS;

    window_reserve(&w, 10);
    window_settle(&w, 4, WIDTH, START);
    EXPECT_EQ(w.used, 4);
    EXPECT_EQ(w.reserved, 6);
    window_settle(&w, 3, WIDTH, START + WIDTH / 2);
    window_advance(&w, WIDTH, START + WIDTH - 1);
    EXPECT_EQ(w.used, 7);
    window_advance(&w, WIDTH, START + WIDTH + part);
    EXPECT_EQ(w.used, 3);
    EXPECT_EQ(w.reserved, 3);
    EXPECT(window_room_at(&w, 4, 7, WIDTH, START + WIDTH + part) >= START + WIDTH * 3 / 2);
    EXPECT_EQ(window_room_at(&w, 5, 7, WIDTH, START + WIDTH + part), UINT64_MAX);
    window_refund(&w, 3);
    window_advance(&w, WIDTH, START + 2 * WIDTH);
    EXPECT_EQ(w.used, 0);
    EXPECT(!w.entries);
    window_clear(&w);
}

/* Without memory an amount is counted too long rather than not at all. */
static void a_window_without_memory_keeps_its_amounts(void)
{
    struct window w = { 0 };

    window_reserve(&w, 100);
    for (int i = 0; i < 20; i++) {
        mem_fail_after(1);
        window_settle(&w, 5, WIDTH, START + (uint64_t)i * NS_PER_S);
        mem_fail_after(0);
    }
    EXPECT_EQ(w.used, 100);
    EXPECT_EQ(w.reserved, 0);
    EXPECT(window_room_at(&w, 100, 100, WIDTH, START + 20 * NS_PER_S) < START + 2 * WIDTH);
    window_advance(&w, WIDTH, START + 2 * WIDTH);
    EXPECT_EQ(w.used, 0);
    window_clear(&w);
}

static void the_date_follows_jumps_that_last(void)
{
    struct calendar c = { 0 };
    const int64_t t0 = 1800000000, day = 86400;

    EXPECT_EQ(calendar_now(&c, START, t0), t0);
    EXPECT_EQ(calendar_now(&c, START + 10 * NS_PER_S, t0 + 11), t0 + 11); /* drift */
    EXPECT_EQ(calendar_now(&c, START + 20 * NS_PER_S, t0 + day), t0 + 21);
    EXPECT_EQ(calendar_now(&c, START + 30 * NS_PER_S, t0 + 31), t0 + 31); /* it has returned */
    EXPECT_EQ(calendar_now(&c, START + 40 * NS_PER_S, t0 - day), t0 + 41);
    EXPECT_EQ(calendar_now(&c, START + 339 * NS_PER_S, t0 - day + 299), t0 + 340);
    EXPECT_EQ(calendar_now(&c, START + 341 * NS_PER_S, t0 - day + 301), t0 - day + 301);
    EXPECT_EQ(calendar_month(0), 0);
    EXPECT_EQ(calendar_month(31 * day), 1);
    EXPECT_EQ(calendar_next_month(0), 31 * day);
    EXPECT_EQ(calendar_next_month(334 * day), 365 * day);
    EXPECT_EQ(calendar_next_day(day - 1), day);
}

/* ---- limiter */

struct setup {
    struct limiter *l;
    struct limit_time now;
    int64_t key[N_POLICY_LIMITS], tenant[N_POLICY_LIMITS], model[N_POLICY_LIMITS];
    struct limit_waker waker;
    int n_wakes;
};

static void on_wake(struct limit_waker *w)
{
    container_of(w, struct setup, waker)->n_wakes++;
}

static void set_up(struct setup *s)
{
    struct err e;

    *s = (struct setup){ .now = { START, 1800000000 }, .waker = { .wake = on_wake } };
    EXPECT_EQ(limiter_open(&s->l, WIDTH, &e), 0);
}

static void tear_down(struct setup *s)
{
    limiter_check(s->l);
    limiter_close(s->l);
}

static void begin(struct setup *s, struct limit_hold *h)
{
    const struct limit_subject_of subjects[] = { { LIMIT_OF_KEY, "k", s->key },
        { LIMIT_OF_TENANT, "t", s->tenant }, { LIMIT_OF_MODEL, "m", s->model } };
    struct err e;

    *h = (struct limit_hold){ .waker = &s->waker };
    EXPECT_EQ(limiter_begin(s->l, h, subjects, 3, &e), 0);
}

static enum limit_state reserve(
    struct setup *s, struct limit_hold *h, int64_t prompt, int64_t output, bool may_wait)
{
    const struct limit_want want = { { 1, prompt, output }, { 0, prompt, output }, may_wait };
    struct limit_refusal why;

    return limiter_reserve(s->l, h, &want, &s->now, &why);
}

static void a_full_window_refuses_until_it_has_moved(void)
{
    struct setup s;
    struct limit_hold a, b;
    struct limit_refusal why;
    const struct limit_want want = { { 1, 30, 30 }, { 0, 30, 30 }, false };
    const struct limit_amounts used = { 1, 30, 10 };

    set_up(&s);
    s.key[POLICY_LIMIT_tokens_per_minute] = 100;
    begin(&s, &a);
    begin(&s, &b);
    EXPECT(reserve(&s, &a, 30, 30, false) == LIMIT_GRANTED);
    EXPECT(limiter_reserve(s.l, &b, &want, &s.now, &why) == LIMIT_IDLE);
    EXPECT(why.limit == POLICY_LIMIT_tokens_per_minute);
    EXPECT(why.kind == LIMIT_OF_KEY);
    EXPECT_STR(why.name, "k");
    EXPECT_EQ(why.max, 100);
    EXPECT_EQ(why.requested, 60);
    EXPECT(!why.is_never && why.retry_ns > 0 && why.retry_ns <= WIDTH);
    limiter_settle(s.l, &a, &used, &s.now);
    limiter_end(s.l, &a, &s.now); /* refunds 20 */
    EXPECT_EQ(limiter_used(s.l, LIMIT_OF_KEY, "k", POLICY_LIMIT_tokens_per_minute, &s.now), 40);
    EXPECT(reserve(&s, &b, 30, 30, false) == LIMIT_GRANTED);
    limiter_end(s.l, &b, &s.now);
    s.now.ns += WIDTH + WIDTH / WINDOW_PARTS;
    EXPECT_EQ(limiter_used(s.l, LIMIT_OF_KEY, "k", POLICY_LIMIT_tokens_per_minute, &s.now), 0);
    begin(&s, &a);
    EXPECT(reserve(&s, &a, 101, 0, true) == LIMIT_IDLE); /* more than the limit never waits */
    limiter_end(s.l, &a, &s.now);
    tear_down(&s);
}

static void a_reservation_takes_all_amounts_or_none(void)
{
    struct setup s;
    struct limit_hold a, b;

    set_up(&s);
    s.key[POLICY_LIMIT_requests_per_minute] = 10;
    s.tenant[POLICY_LIMIT_concurrent_requests] = 1;
    begin(&s, &a);
    begin(&s, &b);
    EXPECT(reserve(&s, &a, 1, 1, false) == LIMIT_GRANTED);
    EXPECT(reserve(&s, &b, 1, 1, false) == LIMIT_IDLE);
    EXPECT_EQ(limiter_used(s.l, LIMIT_OF_KEY, "k", POLICY_LIMIT_requests_per_minute, &s.now), 1);
    limiter_end(s.l, &a, &s.now);
    EXPECT_EQ(limiter_used(s.l, LIMIT_OF_KEY, "k", POLICY_LIMIT_requests_per_minute, &s.now), 0);
    EXPECT(reserve(&s, &b, 1, 1, false) == LIMIT_GRANTED);
    limiter_end(s.l, &b, &s.now);
    tear_down(&s);
}

static void waiting_requests_are_served_in_order(void)
{
    struct setup s;
    struct limit_hold a, b, c, d;

    set_up(&s);
    s.model[POLICY_LIMIT_output_tokens_per_minute] = 100;
    begin(&s, &a), begin(&s, &b), begin(&s, &c), begin(&s, &d);
    EXPECT(reserve(&s, &a, 0, 60, true) == LIMIT_GRANTED);
    EXPECT(reserve(&s, &b, 0, 80, true) == LIMIT_WAITING);
    EXPECT(reserve(&s, &c, 0, 10, true) == LIMIT_WAITING); /* although there is room for it */
    EXPECT(reserve(&s, &d, 0, 10, true) == LIMIT_WAITING);
    limiter_end(s.l, &d, &s.now); /* the client has left */
    limiter_settle(s.l, &a, &(struct limit_amounts){ 1, 0, 60 }, &s.now);
    uint64_t due = limiter_advance(s.l, &s.now);
    EXPECT(due > s.now.ns && due <= s.now.ns + WIDTH + WIDTH / WINDOW_PARTS);
    EXPECT(!limiter_granted(s.l, &s.waker));
    s.now.ns = due - 1;
    EXPECT_EQ(limiter_advance(s.l, &s.now), due);
    s.now.ns = due;
    EXPECT_EQ(limiter_advance(s.l, &s.now), UINT64_MAX);
    EXPECT_EQ(s.n_wakes, 1);
    EXPECT(limiter_granted(s.l, &s.waker) == &b);
    EXPECT(limiter_granted(s.l, &s.waker) == &c);
    EXPECT(!limiter_granted(s.l, &s.waker));
    limiter_end(s.l, &a, &s.now), limiter_end(s.l, &b, &s.now), limiter_end(s.l, &c, &s.now);
    tear_down(&s);
}

/* A waiting request that needs more than a reduced limit is refused and delays no other. */
static void a_reduced_limit_refuses_what_waits(void)
{
    struct setup s;
    struct limit_hold a, b, c;

    set_up(&s);
    s.key[POLICY_LIMIT_output_tokens_per_minute] = 100;
    begin(&s, &a), begin(&s, &b), begin(&s, &c);
    EXPECT(reserve(&s, &a, 0, 60, true) == LIMIT_GRANTED);
    EXPECT(reserve(&s, &b, 0, 80, true) == LIMIT_WAITING);
    EXPECT(reserve(&s, &c, 0, 10, true) == LIMIT_WAITING);
    s.key[POLICY_LIMIT_output_tokens_per_minute] = 70;
    limiter_end(s.l, &a, &s.now);
    begin(&s, &a);
    limiter_advance(s.l, &s.now);
    struct limit_hold *first = limiter_granted(s.l, &s.waker);
    EXPECT(first == &b);
    limiter_end(s.l, &a, &s.now), limiter_end(s.l, &b, &s.now), limiter_end(s.l, &c, &s.now);
    tear_down(&s);
}

static void budgets_end_with_their_period_and_never_wait(void)
{
    struct setup s;
    struct limit_hold h;
    struct limit_refusal why;
    const struct limit_amounts used = { 1, 600, 400 };
    const struct limit_want want = { { 1, 600, 400 }, { 0, 600, 400 }, true };

    set_up(&s);
    s.now.wall_s = 1800000000 / 86400 * 86400;
    s.key[POLICY_LIMIT_tokens_per_day] = 1500;
    s.tenant[POLICY_LIMIT_cost_per_month] = 3600; /* millionths */
    begin(&s, &h);
    h.price = (struct limit_price){ 1000000, 3000000 }; /* 600 + 1200 millionths */
    EXPECT(limiter_reserve(s.l, &h, &want, &s.now, &why) == LIMIT_GRANTED);
    EXPECT_EQ(limiter_used(s.l, LIMIT_OF_TENANT, "t", POLICY_LIMIT_cost_per_month, &s.now), 1800);
    limiter_settle(s.l, &h, &used, &s.now);
    EXPECT(limiter_reserve(s.l, &h, &want, &s.now, &why) == LIMIT_IDLE);
    EXPECT(why.limit == POLICY_LIMIT_tokens_per_day);
    EXPECT_EQ(why.retry_ns, 86400 * NS_PER_S);
    EXPECT_EQ(limiter_max_output(s.l, &h, 100, true, &s.now), 400);
    s.now.wall_s += 86400; /* a jump, which does not begin a new day at once */
    EXPECT(limiter_reserve(s.l, &h, &want, &s.now, &why) == LIMIT_IDLE);
    s.now.wall_s -= 86400;
    EXPECT_EQ(limiter_date(s.l, &s.now), s.now.wall_s);
    s.now.wall_s += 86400, s.now.ns += 86400 * NS_PER_S;
    EXPECT(limiter_reserve(s.l, &h, &want, &s.now, &why) == LIMIT_GRANTED);
    limiter_settle(s.l, &h, &used, &s.now);
    s.now.wall_s += 86400, s.now.ns += 86400 * NS_PER_S;
    EXPECT(limiter_reserve(s.l, &h, &want, &s.now, &why) == LIMIT_IDLE);
    EXPECT(why.limit == POLICY_LIMIT_cost_per_month);
    limiter_end(s.l, &h, &s.now);
    tear_down(&s);
}

static void idle_subjects_are_forgotten_and_budgets_are_not(void)
{
    struct setup s;
    struct limit_hold h;
    struct err e;
    char name[32];

    set_up(&s);
    const struct limit_restored kept = { LIMIT_OF_KEY, "kept", 7, 9000000, true };
    EXPECT_EQ(limiter_restore(s.l, &kept, &s.now, &e), 0);
    for (int i = 0; i < 5000; i++) {
        const struct limit_subject_of subject = { LIMIT_OF_KEY, name, s.key };
        snprintf(name, sizeof(name), "key-%d", i);
        h = (struct limit_hold){ 0 };
        EXPECT_EQ(limiter_begin(s.l, &h, &subject, 1, &e), 0);
        limiter_end(s.l, &h, &s.now);
    }
    EXPECT_EQ(limiter_used(s.l, LIMIT_OF_KEY, "kept", POLICY_LIMIT_tokens_per_day, &s.now), 7);
    EXPECT_EQ(limiter_used(s.l, LIMIT_OF_KEY, "kept", POLICY_LIMIT_cost_per_day, &s.now), 9);
    tear_down(&s);
}

/* ---- simulation: 1,000 clients on one window, compared with the exact sum of every window */

enum { N_CLIENTS = 1000, STEP_MS = 10, TOKENS_MAX = 1000 };

struct client {
    struct limit_hold hold;
    bool is_on, has_begun;
    int left, slice;             /* tokens of the response; events of a choice */
    int n_events;                /* tokens that the engine may generate */
    int n_withheld, n_unsettled; /* processed, and not returned; used, and not settled */
    uint64_t next_ns;            /* time of the next token */
};

struct oracle { /* exact times of the last window */
    struct {
        uint64_t ns;
        int64_t n;
    } * log;
    size_t first, end, n_max;
    int64_t sum, n_all;
};

static void oracle_add(struct oracle *o, uint64_t now, int64_t n, int64_t limit)
{
    for (; o->first < o->end && o->log[o->first % o->n_max].ns + WIDTH < now; o->first++)
        o->sum -= o->log[o->first % o->n_max].n;
    EXPECT(o->end - o->first < o->n_max);
    o->log[o->end % o->n_max].ns = now;
    o->log[o->end++ % o->n_max].n = n;
    o->sum += n;
    o->n_all += n;
    EXPECT(o->sum <= limit);
}

static void start_client(struct setup *s, struct client *c, struct rng *r)
{
    const struct limit_subject_of subject = { LIMIT_OF_KEY, "k", s->key };
    struct err e;

    *c = (struct client){ .is_on = true };
    c->left = 1 + (int)rng_below(r, TOKENS_MAX);
    c->slice = pace_slice(INT64_MAX, 1, c->left);
    c->hold.waker = &s->waker;
    EXPECT_EQ(limiter_begin(s->l, &c->hold, &subject, 1, &e), 0);
}

static void give(struct client *c)
{
    int group = pace_group(c->slice);

    if (!c->has_begun) {
        c->has_begun = true;
        c->n_events = c->slice;
    } else {
        c->n_withheld -= group;
        c->n_events += group;
    }
}

static void ask(struct setup *s, struct client *c, int n)
{
    const struct limit_want want = { { 0, 0, n }, { 0, 0, n }, true };
    struct limit_refusal why;

    if (limiter_reserve(s->l, &c->hold, &want, &s->now, &why) == LIMIT_GRANTED)
        give(c);
}

static void settle(struct setup *s, struct client *c)
{
    limiter_settle(s->l, &c->hold, &(struct limit_amounts){ 0, 0, c->n_unsettled }, &s->now);
    c->n_unsettled = 0;
}

static void run_client(struct setup *s, struct client *c, struct oracle *o, struct rng *r)
{
    const int group = pace_group(c->slice);

    while (c->n_events > 0 && c->left > 0 && c->next_ns <= s->now.ns) {
        c->n_events--, c->left--, c->n_withheld++, c->n_unsettled++;
        c->next_ns = MAX(c->next_ns, s->now.ns) + (10 + rng_below(r, 20)) * NS_PER_MS;
        oracle_add(o, s->now.ns, 1, s->key[POLICY_LIMIT_tokens_per_minute]);
    }
    if (c->n_unsettled >= PACE_SETTLE)
        settle(s, c);
    if (c->hold.state == LIMIT_IDLE && c->n_withheld >= group && c->left > 0)
        ask(s, c, group);
}

static void one_thousand_clients_use_one_window_completely_and_never_more(void)
{
    const char *text = getenv("LIMITS_SIM_STEPS");
    int64_t n_steps = 15000;
    struct client *clients = xcalloc(N_CLIENTS, sizeof(*clients));
    struct oracle o = { .n_max = 1 << 20 };
    struct rng r = { 1, 0 };
    struct setup s;

    if (text)
        EXPECT(str_to_i64(str_of(text), &n_steps));
    set_up(&s);
    o.log = xcalloc(o.n_max, sizeof(*o.log));
    s.key[POLICY_LIMIT_tokens_per_minute] = 60000;
    for (int64_t step = 0; step < n_steps; step++) {
        s.now.ns += STEP_MS * NS_PER_MS;
        /* jumps of the wall clock, by up to a year in both directions */
        s.now.wall_s += rng_below(&r, 50) ? 0 : (int64_t)rng_below(&r, 2 * 31536000) - 31536000;
        limiter_advance(s.l, &s.now);
        for (struct limit_hold *h; (h = limiter_granted(s.l, &s.waker));)
            give(container_of(h, struct client, hold));
        for (int i = 0; i < N_CLIENTS; i++) {
            struct client *c = &clients[i];
            if (!c->is_on) {
                start_client(&s, c, &r);
                ask(&s, c, c->slice);
            }
            run_client(&s, c, &o, &r);
            bool has_left = !rng_below(&r, 20000);
            if (c->left == 0 || has_left) {
                settle(&s, c);
                limiter_end(s.l, &c->hold, &s.now);
                c->is_on = false;
            }
        }
    }
    /* A full window may be used at once at the start, and then a window per window. */
    double windows = 1 + (double)n_steps * STEP_MS / (WIDTH_S * 1000.0);
    double unused = 1 - (double)o.n_all / (60000 * (double)(int64_t)windows);
    printf("  %lld steps: %lld tokens, %.2f %% of the windows unused\n", (long long)n_steps,
        (long long)o.n_all, 100 * unused);
    EXPECT(unused <= 0.01);
    for (int i = 0; i < N_CLIENTS; i++)
        limiter_end(s.l, &clients[i].hold, &s.now);
    EXPECT(limiter_used(s.l, LIMIT_OF_KEY, "k", POLICY_LIMIT_tokens_per_minute, &s.now) <= 60000);
    tear_down(&s);
    mem_free(o.log);
    mem_free(clients);
}

TESTS(TEST(a_window_counts_amounts_for_its_length), TEST(a_window_without_memory_keeps_its_amounts),
    TEST(the_date_follows_jumps_that_last), TEST(a_full_window_refuses_until_it_has_moved),
    TEST(a_reservation_takes_all_amounts_or_none), TEST(waiting_requests_are_served_in_order),
    TEST(a_reduced_limit_refuses_what_waits), TEST(budgets_end_with_their_period_and_never_wait),
    TEST(idle_subjects_are_forgotten_and_budgets_are_not),
    TEST(one_thousand_clients_use_one_window_completely_and_never_more))
