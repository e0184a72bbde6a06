/* How turns change hands: slices, high priorities, tenants. The scheduler alone; tokens are only
 * counted. */
#include "engine/sched/fairness.h"
#include "base/mem.h"
#include "check.h"
#include "engine/sched/sched.h"
#include "engine/sched/tenants.h"

enum { MAX_SEQS = 64, MAX_PAGES = 64 };
#define SECOND ((uint64_t)1000000000)

struct desk {
    struct page_pool *pool;
    struct sched *sc;
    struct sched_limits l;
    struct plan plan;
    page_id pages[MAX_SEQS][MAX_PAGES];
    int n_added;
};

static struct desk *desk_of(
    int max_batch, int max_begun, const struct fairness *f, uint32_t n_pages, int max_rows)
{
    static struct desk d;
    struct err e;

    memset(&d, 0, sizeof(d));
    d.l = (struct sched_limits){ .max_batch = max_batch,
        .max_rows = max_rows,
        .max_logits = max_rows,
        .prefill_chunk = 100,
        .max_begun = max_begun,
        .max_seqs = MAX_SEQS,
        .age_ns = 2 * SECOND };
    EXPECT_EQ(page_pool_new(&d.pool, n_pages, &e), 0);
    EXPECT_EQ(sched_new(&d.sc, d.pool, &d.l, &e), 0);
    sched_set_fairness(d.sc, f);
    plan_init(&d.plan, &d.l);
    return &d;
}

static struct desk *desk_open(int max_batch, int max_begun, const struct fairness *f)
{
    return desk_of(max_batch, max_begun, f, 1000, 100);
}

static void desk_close(struct desk *d, seq_id *ids, int n)
{
    for (int i = 0; i < n; i++)
        sched_end(d->sc, ids[i]);
    plan_clear(&d->plan);
    sched_free(d->sc);
    page_pool_free(d->pool);
}

static seq_id add_of(struct desk *d, uint64_t now, int priority, uint64_t tenant, int n_prompt)
{
    struct seq_spec spec = { .priority = priority,
        .tenant = tenant,
        .n_prompt = n_prompt,
        .deadline_ns = UINT64_MAX,
        .score_from = n_prompt - 1,
        .credits = 100000,
        .pages = d->pages[d->n_added++] };

    return sched_add(d->sc, now, &spec);
}

static seq_id add(struct desk *d, uint64_t now, int priority)
{
    return add_of(d, now, priority, 0, 3);
}

static void step(struct desk *d, uint64_t now)
{
    sched_plan(d->sc, now, &d->plan);
    sched_commit(d->sc, &d->plan);
    for (int i = 0; i < d->plan.n_runs; i++)
        if (d->plan.runs[i].is_whole)
            sched_push(d->sc, d->plan.runs[i].seq, 1);
    EXPECT(!sched_check(d->sc));
}

static bool runs(struct desk *d, seq_id id)
{
    return sched_seq(d->sc, id)->state == SEQ_RUNNING;
}

static struct sched_counts counts(struct desk *d)
{
    struct sched_counts n;

    sched_counts(d->sc, &n);
    return n;
}

static void settings_have_limits(void)
{
    struct fairness f = fairness_default;
    struct err e;

    EXPECT(!f.enable_preemption);
    EXPECT_EQ(f.high_priority_threshold, 5);
    EXPECT_EQ(f.max_timeslice_tokens, 0);
    EXPECT_EQ(fairness_check(&f, &e), 0);
    f.max_timeslice_tokens = -1;
    EXPECT_EQ(fairness_check(&f, &e), -1);
    f = fairness_default;
    f.high_priority_threshold = FAIRNESS_PRIORITY_MAX + 1;
    EXPECT_EQ(fairness_check(&f, &e), -1);
}

static void one_word_holds_all_settings(void)
{
    const struct fairness some[] = { { true, -1000000, 0 }, { false, 1000000, 1 << 24 },
        { true, 5, 77 }, { false, 0, 0 } };
    struct live_fairness l;

    for (size_t i = 0; i < ARRAY_LEN(some); i++) {
        fairness_set(&l, &some[i]);
        struct fairness f = fairness_get(&l);
        EXPECT_EQ(f.enable_preemption, some[i].enable_preemption);
        EXPECT_EQ(f.high_priority_threshold, some[i].high_priority_threshold);
        EXPECT_EQ(f.max_timeslice_tokens, some[i].max_timeslice_tokens);
    }
}

struct bill {
    int n_again;  /* rows beyond one for each token */
    double spent; /* what all steps took, by the law of cost, in multiples of what they would
                   * take without that */
};

/* Two that take turns of four tokens, until each has computed n_out. */
static struct bill take_turns(uint32_t n_pages, int max_rows, int n_out, struct cost cost)
{
    const struct fairness f = { false, 5, 4 };
    struct desk *d = desk_of(1, 8, &f, n_pages, max_rows);
    const int n_prompt = 3;
    seq_id id[2] = { add(d, 0, 0), add(d, 0, 0) };
    int n_live = 2, most = 100 * n_out;
    struct bill b = { 0 };

    sched_set_cost(d->sc, &cost);
    while (n_live > 0) {
        EXPECT(most-- > 0);
        step(d, 0);
        b.n_again += d->plan.n_rows;
        b.spent += cost_of(&cost, &d->plan.size);
        for (int i = 0; i < 2; i++)
            if (id[i].i != SEQ_NONE.i && sched_seq(d->sc, id[i])->n_kv >= n_prompt + n_out) {
                sched_end(d->sc, id[i]);
                id[i] = SEQ_NONE;
                n_live--;
            }
    }
    desk_close(d, id, 0);
    b.n_again -= 2 * (n_prompt + n_out);
    b.spent /= 2 * ((n_out + 1) * cost.fixed + (n_prompt + n_out) * cost.per_row);
    return b;
}

/* Where there is room for both, turns are as short as was said and cost nothing. Where the pages of
 * who gives way are needed, a turn lasts until it was worth what getting back to where one was will
 * take: at most as much again as without turns. */
static void turns_that_cost_more_than_they_give_last_longer(void)
{
    const struct cost laws[] = { { 1, 0, 0 }, { 1000, 1000, 0 }, { 1000, 1, 0 } };
    const int n_out = 8 * PAGE_TOKENS;

    for (size_t i = 0; i < ARRAY_LEN(laws); i++) {
        EXPECT_EQ(take_turns(30, 100, n_out, laws[i]).n_again, 0);
        for (int max_rows = 1; max_rows <= 100; max_rows *= 10) {
            struct bill b = take_turns(10, max_rows, n_out, laws[i]);
            printf("law %d, %d rows a step: %d of %d rows again, %.2f times as long\n", (int)i,
                max_rows, b.n_again, 2 * (3 + n_out), b.spent);
            EXPECT(b.n_again > 0 && b.spent < 2.05);
            if (max_rows == 1)
                EXPECT(b.n_again <= 2 * (3 + n_out));
        }
    }
}

static void a_slice_is_so_many_tokens_when_others_wait(void)
{
    const struct fairness f = { false, 5, 4 };
    struct desk *d = desk_open(1, 8, &f);
    seq_id id[2] = { add(d, 0, 0), add(d, 0, 0) };
    int n_run[2] = { 0 };

    for (int i = 0; i < 40; i++) {
        step(d, 0);
        EXPECT_EQ(d->plan.n_runs, 1);
        n_run[d->plan.runs[0].seq.i == id[1].i]++;
        if (i % 4 == 3) /* after each slice the other one */
            EXPECT_EQ(n_run[0] - n_run[1], i / 4 % 2 ? 0 : 4);
    }
    EXPECT_EQ(counts(d).turns_yielded, 9u);
    EXPECT_EQ(counts(d).turns_resumed, 8u);
    desk_close(d, id, 2);
}

static void alone_a_slice_has_no_end(void)
{
    const struct fairness f = { false, 5, 4 };
    struct desk *d = desk_open(1, 8, &f);
    seq_id id[2] = { add(d, 0, 0) };

    for (int i = 0; i < 40; i++) {
        step(d, 0);
        EXPECT_EQ(d->plan.n_runs, 1);
    }
    EXPECT_EQ(counts(d).turns_yielded, 0u);
    id[1] = add(d, 0, -3); /* lower: not due before it has waited for it */
    for (int i = 0; i < 10; i++)
        step(d, 0);
    EXPECT(runs(d, id[0]));
    for (int i = 0; i < 10; i++)
        step(d, 6 * SECOND);
    EXPECT(counts(d).turns_yielded > 0);
    desk_close(d, id, 2);
}

static void the_high_have_no_slices(void)
{
    const struct fairness f = { false, 5, 4 };
    struct desk *d = desk_open(1, 8, &f);
    seq_id id[2] = { add(d, 0, 5), add(d, 0, 5) };

    for (int i = 0; i < 40; i++)
        step(d, 0);
    EXPECT(runs(d, id[0]) && !runs(d, id[1]));
    desk_close(d, id, 2);
}

static void who_yields_goes_on_where_it_was(void)
{
    const struct fairness f = { false, 5, 3 };
    struct desk *d = desk_open(1, 8, &f);
    seq_id id[2] = { add(d, 0, 0), add(d, 0, 0) };
    int n_kv[2] = { 0 };

    for (int i = 0; i < 60; i++) {
        for (int j = 0; j < 2; j++)
            n_kv[j] = sched_seq(d->sc, id[j])->n_kv;
        step(d, 0);
        for (int j = 0; j < d->plan.n_runs; j++) {
            int which = d->plan.runs[j].seq.i == id[1].i;
            EXPECT_EQ(d->plan.runs[j].pos, n_kv[which]); /* nothing is computed twice */
        }
    }
    desk_close(d, id, 2);
}

static void waits_between_slices_add_up(void)
{
    const struct fairness f = { false, 5, 2 };
    struct desk *d = desk_open(1, 8, &f);
    seq_id id[2] = { add(d, 0, 0), add(d, 0, 0) };
    uint64_t now = 0;
    int64_t rank = 0;

    for (int i = 0; i < 40; i++, now += SECOND) {
        step(d, now);
        int64_t r = seq_rank(sched_seq(d->sc, id[0]), now, d->l.age_ns);
        EXPECT(r >= rank);
        rank = r;
    }
    EXPECT(rank >= 8); /* half of 40 s, at 1 for 2 s, short of the last wait */
    desk_close(d, id, 2);
}

static void a_high_one_takes_the_place_of_the_lowest(void)
{
    for (int is_on = 0; is_on < 2; is_on++) {
        const struct fairness f = { is_on, 5, 0 };
        struct desk *d = desk_open(3, 3, &f);
        seq_id id[5] = { add(d, 0, 4), add(d, 0, 1), add(d, 0, 6) };
        step(d, 0);
        id[3] = add(d, 0, 5);
        step(d, 0);
        EXPECT(runs(d, id[0]) && runs(d, id[2]));
        EXPECT(runs(d, id[1]) == !is_on && runs(d, id[3]) == is_on);
        EXPECT_EQ(counts(d).turns_preempted, (uint64_t)is_on);
        if (is_on)
            EXPECT(sched_seq(d->sc, id[1])->n_pages > 0); /* they are kept */
        id[4] = add(d, 0, 4);                             /* not high */
        step(d, 0);
        EXPECT(!runs(d, id[4]));
        sched_end(d->sc, id[0]), sched_end(d->sc, id[2]), sched_end(d->sc, id[3]);
        step(d, 0); /* there is room for all */
        EXPECT(runs(d, id[1]) && runs(d, id[4]));
        EXPECT_EQ(counts(d).turns_resumed, (uint64_t)is_on);
        sched_end(d->sc, id[1]), sched_end(d->sc, id[4]);
        desk_close(d, id, 0);
    }
}

static void high_ones_do_not_displace_each_other(void)
{
    const struct fairness f = { true, 5, 0 };
    struct desk *d = desk_open(1, 3, &f);
    seq_id id[2] = { add(d, 0, 5) };

    step(d, 0);
    id[1] = add(d, 0, 9);
    step(d, 0);
    EXPECT(runs(d, id[0]));
    desk_close(d, id, 2);
}

static void only_so_many_begin(void)
{
    const struct fairness f = { false, 5, 1 };
    struct desk *d = desk_open(2, 3, &f);
    seq_id id[6];

    for (int i = 0; i < 6; i++)
        id[i] = add(d, 0, 0);
    for (int i = 0; i < 40; i++)
        step(d, 0);
    for (int i = 0; i < 6; i++)
        EXPECT(sched_seq(d->sc, id[i])->is_fresh == (i >= 3));
    sched_end(d->sc, id[0]);
    id[0] = add(d, 0, 0);
    step(d, 0), step(d, 0);
    EXPECT(!sched_seq(d->sc, id[3])->is_fresh);
    EXPECT(sched_seq(d->sc, id[4])->is_fresh);
    desk_close(d, id, 6);
}

/* ---- tenants */

static void the_tenant_with_the_least_service_goes_first(void)
{
    struct desk *d = desk_open(1, 8, &fairness_default);
    seq_id id[8];

    for (int i = 0; i < 6; i++) /* a backlog of one, then two of another */
        id[i] = add_of(d, 0, 0, 1, 10);
    id[6] = add_of(d, 3 * SECOND, 0, 2, 10), id[7] = add_of(d, 3 * SECOND, 0, 2, 10);
    const int want[] = { 0, 6, 1, 7, 2, 3 };
    for (int i = 0; i < 6; i++) {
        step(d, 3 * SECOND);
        EXPECT_EQ(d->plan.runs[0].seq.i, id[want[i]].i);
        sched_end(d->sc, id[want[i]]);
    }
    EXPECT_EQ(counts(d).waiting, 2u);
    sched_end(d->sc, id[4]), sched_end(d->sc, id[5]);
    desk_close(d, id, 0);
}

/* What a tenant did not ask for while it was away it gets no credit for. */
static void who_comes_back_is_lifted(void)
{
    struct tenants ts;
    struct err e;

    EXPECT_EQ(tenants_init(&ts, 4, &e), 0);
    uint32_t a = tenants_enter(&ts, 1, 0), b = tenants_enter(&ts, 2, 2);
    tenants_wait(&ts, a, true);
    tenants_charge(&ts, a, 1000);
    tenants_wait(&ts, b, true);
    EXPECT_EQ(ts.t[b].served, 1000.0);
    tenants_charge(&ts, b, 100); /* of twice the weight */
    EXPECT_EQ(ts.t[b].served, 1050.0);
    tenants_go(&ts, b);
    tenants_leave(&ts, b);
    tenants_charge(&ts, a, 10);
    EXPECT_EQ(tenants_enter(&ts, 2, 2), b); /* leaving for a moment wipes nothing out */
    tenants_wait(&ts, b, true);
    EXPECT_EQ(ts.t[b].served, 1050.0);
    tenants_go(&ts, a), tenants_go(&ts, b);
    tenants_leave(&ts, a), tenants_leave(&ts, b);
    tenants_clear(&ts);
}

static void places_go_to_those_who_need_them(void)
{
    struct tenants ts;
    struct err e;

    EXPECT_EQ(tenants_init(&ts, 1, &e), 0);
    for (uint64_t id = 0; id < 5000; id++) { /* far more than it remembers */
        uint32_t i = tenants_enter(&ts, id * 77777, 0);
        EXPECT_EQ(ts.t[i].id, id * 77777);
        EXPECT_EQ(ts.t[i].n_live, 1u);
        EXPECT_EQ(ts.t[i].served, 0.0);
        tenants_charge(&ts, i, 1 + (double)id);
        tenants_leave(&ts, i);
    }
    for (uint64_t id = 4800; id < 5000; id++) {
        uint32_t i = tenants_enter(&ts, id * 77777, 0);
        EXPECT_EQ(ts.t[i].served, 1 + (double)id);
        tenants_leave(&ts, i);
    }
    tenants_clear(&ts);
}

TESTS(TEST(settings_have_limits), TEST(one_word_holds_all_settings),
    TEST(a_slice_is_so_many_tokens_when_others_wait),
    TEST(turns_that_cost_more_than_they_give_last_longer), TEST(alone_a_slice_has_no_end),
    TEST(the_high_have_no_slices), TEST(who_yields_goes_on_where_it_was),
    TEST(waits_between_slices_add_up), TEST(a_high_one_takes_the_place_of_the_lowest),
    TEST(high_ones_do_not_displace_each_other), TEST(only_so_many_begin),
    TEST(the_tenant_with_the_least_service_goes_first), TEST(who_comes_back_is_lifted),
    TEST(places_go_to_those_who_need_them))
