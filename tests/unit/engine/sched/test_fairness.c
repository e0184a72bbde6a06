/* Scheduler fairness: time slices, high priorities, tenants. Only the scheduler runs; tokens are
 * counted, not computed. */
#include "engine/sched/fairness.h"
#include "base/mem.h"
#include "support/check.h"
#include "engine/sched/sched.h"
#include "engine/sched/tenants.h"

enum { MAX_SEQS = 64, MAX_PAGES = 64 };
#define SECOND ((uint64_t)1000000000)

struct sched_fixture {
    struct page_pool *pool;
    struct sched *sc;
    struct sched_limits l;
    struct step_plan plan;
    page_id pages[MAX_SEQS][MAX_PAGES];
    int n_added;
};

static struct sched_fixture *fixture_open_with(
    int max_batch, int max_started, const struct fairness *f, uint32_t n_pages, int max_rows)
{
    static struct sched_fixture d;
    struct err e;

    memset(&d, 0, sizeof(d));
    d.l = (struct sched_limits){ .max_batch = max_batch,
        .max_rows = max_rows,
        .max_logits = max_rows,
        .prefill_chunk = 100,
        .max_started = max_started,
        .max_seqs = MAX_SEQS,
        .age_ns = 2 * SECOND };
    EXPECT_EQ(page_pool_new(&d.pool, n_pages, &e), 0);
    EXPECT_EQ(sched_new(&d.sc, d.pool, &d.l, &e), 0);
    sched_set_fairness(d.sc, f);
    step_plan_init(&d.plan, &d.l);
    return &d;
}

static struct sched_fixture *fixture_open(int max_batch, int max_started, const struct fairness *f)
{
    return fixture_open_with(max_batch, max_started, f, 1000, 100);
}

static void fixture_close(struct sched_fixture *d, seq_id *ids, int n)
{
    for (int i = 0; i < n; i++)
        sched_end(d->sc, ids[i]);
    step_plan_clear(&d->plan);
    sched_free(d->sc);
    page_pool_free(d->pool);
}

static seq_id add_seq_of(
    struct sched_fixture *d, uint64_t now, int priority, uint64_t tenant, int n_prompt)
{
    const struct gen_input in = {
        .cache_prompt = true, .priority = priority, .tenant = tenant, .n_prompt = n_prompt
    };
    struct seq_spec spec = {
        .in = &in, .score_from = n_prompt - 1, .credits = 100000, .pages = d->pages[d->n_added++]
    };

    return sched_add(d->sc, now, &spec);
}

static seq_id add_seq(struct sched_fixture *d, uint64_t now, int priority)
{
    return add_seq_of(d, now, priority, 0, 3);
}

static void run_step(struct sched_fixture *d, uint64_t now)
{
    sched_plan(d->sc, now, &d->plan);
    sched_commit(d->sc, &d->plan);
    for (int i = 0; i < d->plan.n_runs; i++)
        if (d->plan.runs[i].yields_token)
            sched_push(d->sc, d->plan.runs[i].seq, 1);
    EXPECT(!sched_check(d->sc));
}

static bool is_in_step(struct sched_fixture *d, seq_id id)
{
    return sched_seq(d->sc, id)->state == SEQ_RUNNING;
}

static struct sched_counts counts(struct sched_fixture *d)
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

static void settings_fit_into_one_atomic_word(void)
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

struct slice_cost {
    int n_extra_rows; /* rows beyond one per token */
    /* cost of all steps by the cost model, as a multiple of the cost without time slices */
    double relative_cost;
};

/* Runs two sequences with time slices of four tokens until each has computed n_out tokens. */
static struct slice_cost run_with_slices(
    uint32_t n_pages, int max_rows, int n_out, struct step_time step_time)
{
    const struct fairness f = { false, 5, 4 };
    struct sched_fixture *d = fixture_open_with(1, 8, &f, n_pages, max_rows);
    const int n_prompt = 3;
    seq_id id[2] = { add_seq(d, 0, 0), add_seq(d, 0, 0) };
    int n_live = 2, most = 100 * n_out;
    struct slice_cost b = { 0 };

    sched_set_step_time(d->sc, &step_time);
    while (n_live > 0) {
        EXPECT(most-- > 0);
        run_step(d, 0);
        b.n_extra_rows += d->plan.n_rows;
        b.relative_cost += step_time_of(&step_time, &d->plan.size);
        for (int i = 0; i < 2; i++)
            if (id[i].i != SEQ_NONE.i && sched_seq(d->sc, id[i])->n_kv >= n_prompt + n_out) {
                sched_end(d->sc, id[i]);
                id[i] = SEQ_NONE;
                n_live--;
            }
    }
    fixture_close(d, id, 0);
    b.n_extra_rows -= 2 * (n_prompt + n_out);
    b.relative_cost /= 2 * ((n_out + 1) * step_time.fixed + (n_prompt + n_out) * step_time.per_row);
    return b;
}

/* With room for both sequences, a slice has the configured length and costs nothing. If the
 * pages of the preempted sequence are needed, a slice lasts until its work equals the cost of
 * recomputing that sequence: at most as much again as without slices. */
static void slices_last_longer_if_preemption_recomputes_pages(void)
{
    const struct step_time laws[] = { { 1, 0, 0 }, { 1000, 1000, 0 }, { 1000, 1, 0 } };
    const int n_out = 8 * PAGE_TOKENS;

    for (size_t i = 0; i < ARRAY_LEN(laws); i++) {
        EXPECT_EQ(run_with_slices(30, 100, n_out, laws[i]).n_extra_rows, 0);
        for (int max_rows = 1; max_rows <= 100; max_rows *= 10) {
            struct slice_cost b = run_with_slices(10, max_rows, n_out, laws[i]);
            printf("law %d, %d rows a step: %d of %d rows again, %.2f times as long\n", (int)i,
                max_rows, b.n_extra_rows, 2 * (3 + n_out), b.relative_cost);
            EXPECT(b.n_extra_rows > 0 && b.relative_cost < 2.05);
            if (max_rows == 1)
                EXPECT(b.n_extra_rows <= 2 * (3 + n_out));
        }
    }
}

static void slice_is_limited_while_others_wait(void)
{
    const struct fairness f = { false, 5, 4 };
    struct sched_fixture *d = fixture_open(1, 8, &f);
    seq_id id[2] = { add_seq(d, 0, 0), add_seq(d, 0, 0) };
    int n_run[2] = { 0 };

    for (int i = 0; i < 40; i++) {
        run_step(d, 0);
        EXPECT_EQ(d->plan.n_runs, 1);
        n_run[d->plan.runs[0].seq.i == id[1].i]++;
        if (i % 4 == 3) /* after each slice the other sequence runs */
            EXPECT_EQ(n_run[0] - n_run[1], i / 4 % 2 ? 0 : 4);
    }
    EXPECT_EQ(counts(d).fairness_yielded, 9u);
    EXPECT_EQ(counts(d).fairness_resumed, 8u);
    fixture_close(d, id, 2);
}

static void slice_is_unlimited_without_waiting_sequences(void)
{
    const struct fairness f = { false, 5, 4 };
    struct sched_fixture *d = fixture_open(1, 8, &f);
    seq_id id[2] = { add_seq(d, 0, 0) };

    for (int i = 0; i < 40; i++) {
        run_step(d, 0);
        EXPECT_EQ(d->plan.n_runs, 1);
    }
    EXPECT_EQ(counts(d).fairness_yielded, 0u);
    id[1] = add_seq(d, 0, -3); /* lower priority: not due before it has waited long enough */
    for (int i = 0; i < 10; i++)
        run_step(d, 0);
    EXPECT(is_in_step(d, id[0]));
    for (int i = 0; i < 10; i++)
        run_step(d, 6 * SECOND);
    EXPECT(counts(d).fairness_yielded > 0);
    fixture_close(d, id, 2);
}

static void high_priority_has_no_slices(void)
{
    const struct fairness f = { false, 5, 4 };
    struct sched_fixture *d = fixture_open(1, 8, &f);
    seq_id id[2] = { add_seq(d, 0, 5), add_seq(d, 0, 5) };

    for (int i = 0; i < 40; i++)
        run_step(d, 0);
    EXPECT(is_in_step(d, id[0]) && !is_in_step(d, id[1]));
    fixture_close(d, id, 2);
}

static void preempted_sequence_resumes_at_its_position(void)
{
    const struct fairness f = { false, 5, 3 };
    struct sched_fixture *d = fixture_open(1, 8, &f);
    seq_id id[2] = { add_seq(d, 0, 0), add_seq(d, 0, 0) };
    int n_kv[2] = { 0 };

    for (int i = 0; i < 60; i++) {
        for (int j = 0; j < 2; j++)
            n_kv[j] = sched_seq(d->sc, id[j])->n_kv;
        run_step(d, 0);
        for (int j = 0; j < d->plan.n_runs; j++) {
            int which = d->plan.runs[j].seq.i == id[1].i;
            EXPECT_EQ(d->plan.runs[j].pos, n_kv[which]); /* nothing is computed twice */
        }
    }
    fixture_close(d, id, 2);
}

static void waits_between_slices_add_up(void)
{
    const struct fairness f = { false, 5, 2 };
    struct sched_fixture *d = fixture_open(1, 8, &f);
    seq_id id[2] = { add_seq(d, 0, 0), add_seq(d, 0, 0) };
    uint64_t now = 0;
    int64_t rank = 0;

    for (int i = 0; i < 40; i++, now += SECOND) {
        run_step(d, now);
        int64_t r = seq_rank(sched_seq(d->sc, id[0]), now, d->l.age_ns);
        EXPECT(r >= rank);
        rank = r;
    }
    EXPECT(rank >= 8); /* half of 40 s, at 1 per 2 s, without the last wait */
    fixture_close(d, id, 2);
}

static void high_priority_displaces_the_lowest(void)
{
    for (int is_on = 0; is_on < 2; is_on++) {
        const struct fairness f = { is_on, 5, 0 };
        struct sched_fixture *d = fixture_open(3, 3, &f);
        seq_id id[5] = { add_seq(d, 0, 4), add_seq(d, 0, 1), add_seq(d, 0, 6) };
        run_step(d, 0);
        id[3] = add_seq(d, 0, 5);
        run_step(d, 0);
        EXPECT(is_in_step(d, id[0]) && is_in_step(d, id[2]));
        EXPECT(is_in_step(d, id[1]) == !is_on && is_in_step(d, id[3]) == is_on);
        EXPECT_EQ(counts(d).fairness_preempted, (uint64_t)is_on);
        if (is_on)
            EXPECT(sched_seq(d->sc, id[1])->n_pages > 0); /* the pages are kept */
        id[4] = add_seq(d, 0, 4);                         /* not a high priority */
        run_step(d, 0);
        EXPECT(!is_in_step(d, id[4]));
        sched_end(d->sc, id[0]), sched_end(d->sc, id[2]), sched_end(d->sc, id[3]);
        run_step(d, 0); /* there is room for all */
        EXPECT(is_in_step(d, id[1]) && is_in_step(d, id[4]));
        EXPECT_EQ(counts(d).fairness_resumed, (uint64_t)is_on);
        sched_end(d->sc, id[1]), sched_end(d->sc, id[4]);
        fixture_close(d, id, 0);
    }
}

static void high_priorities_do_not_displace_each_other(void)
{
    const struct fairness f = { true, 5, 0 };
    struct sched_fixture *d = fixture_open(1, 3, &f);
    seq_id id[2] = { add_seq(d, 0, 5) };

    run_step(d, 0);
    id[1] = add_seq(d, 0, 9);
    run_step(d, 0);
    EXPECT(is_in_step(d, id[0]));
    fixture_close(d, id, 2);
}

static void number_of_begun_sequences_is_limited(void)
{
    const struct fairness f = { false, 5, 1 };
    struct sched_fixture *d = fixture_open(2, 3, &f);
    seq_id id[6];

    for (int i = 0; i < 6; i++)
        id[i] = add_seq(d, 0, 0);
    for (int i = 0; i < 40; i++)
        run_step(d, 0);
    for (int i = 0; i < 6; i++)
        EXPECT(sched_seq(d->sc, id[i])->is_fresh == (i >= 3));
    sched_end(d->sc, id[0]);
    id[0] = add_seq(d, 0, 0);
    run_step(d, 0), run_step(d, 0);
    EXPECT(!sched_seq(d->sc, id[3])->is_fresh);
    EXPECT(sched_seq(d->sc, id[4])->is_fresh);
    fixture_close(d, id, 6);
}

/* ---- tenants */

static void the_tenant_with_the_least_service_goes_first(void)
{
    struct sched_fixture *d = fixture_open(1, 8, &fairness_default);
    seq_id id[8];

    for (int i = 0; i < 6; i++) /* a backlog of one tenant, then two requests of another */
        id[i] = add_seq_of(d, 0, 0, 1, 10);
    id[6] = add_seq_of(d, 3 * SECOND, 0, 2, 10), id[7] = add_seq_of(d, 3 * SECOND, 0, 2, 10);
    const int want[] = { 0, 6, 1, 7, 2, 3 };
    for (int i = 0; i < 6; i++) {
        run_step(d, 3 * SECOND);
        EXPECT_EQ(d->plan.runs[0].seq.i, id[want[i]].i);
        sched_end(d->sc, id[want[i]]);
    }
    EXPECT_EQ(counts(d).waiting, 2u);
    sched_end(d->sc, id[4]), sched_end(d->sc, id[5]);
    fixture_close(d, id, 0);
}

/* A tenant gets no credit for the time in which it had no requests. */
static void returning_tenant_is_lifted_to_the_minimum_service(void)
{
    struct tenants ts;
    struct err e;

    EXPECT_EQ(tenants_init(&ts, 4, &e), 0);
    uint32_t a = tenants_enter(&ts, 1, 0), b = tenants_enter(&ts, 2, 2);
    tenants_wait(&ts, a, true);
    tenants_charge(&ts, a, 1000);
    tenants_wait(&ts, b, true);
    EXPECT_EQ(ts.t[b].served, 1000.0);
    tenants_charge(&ts, b, 100); /* the tenant with twice the weight */
    EXPECT_EQ(ts.t[b].served, 1050.0);
    tenants_unwait(&ts, b);
    tenants_leave(&ts, b);
    tenants_charge(&ts, a, 10);
    EXPECT_EQ(tenants_enter(&ts, 2, 2), b); /* leaving for a moment resets nothing */
    tenants_wait(&ts, b, true);
    EXPECT_EQ(ts.t[b].served, 1050.0);
    tenants_unwait(&ts, a), tenants_unwait(&ts, b);
    tenants_leave(&ts, a), tenants_leave(&ts, b);
    tenants_clear(&ts);
}

static void tenant_entries_go_to_active_tenants(void)
{
    struct tenants ts;
    struct err e;

    EXPECT_EQ(tenants_init(&ts, 1, &e), 0);
    for (uint64_t id = 0; id < 5000; id++) { /* far more tenants than it stores */
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

TESTS(TEST(settings_have_limits), TEST(settings_fit_into_one_atomic_word),
    TEST(slice_is_limited_while_others_wait),
    TEST(slices_last_longer_if_preemption_recomputes_pages),
    TEST(slice_is_unlimited_without_waiting_sequences), TEST(high_priority_has_no_slices),
    TEST(preempted_sequence_resumes_at_its_position), TEST(waits_between_slices_add_up),
    TEST(high_priority_displaces_the_lowest), TEST(high_priorities_do_not_displace_each_other),
    TEST(number_of_begun_sequences_is_limited), TEST(the_tenant_with_the_least_service_goes_first),
    TEST(returning_tenant_is_lifted_to_the_minimum_service),
    TEST(tenant_entries_go_to_active_tenants))
