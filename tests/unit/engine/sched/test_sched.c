/* Scheduler: order, pages, limits, drafts, mixed steps and layered prefill. */
#include "engine/sched/sched.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/sched/timers.h"
#include "support/check.h"

enum { MAX_SEQS = 64, MAX_PAGES = 100 };
#define SECOND ((uint64_t)1000000000)

/* A scheduler with its page pool; tokens are counted, not computed. */
struct sched_fixture {
    struct page_pool *pool;
    struct sched *sc;
    struct sched_limits l;
    struct step_plan plan;
    page_id pages[MAX_SEQS][MAX_PAGES];
    uint64_t n_added;
};

static struct sched_fixture *fixture_open(uint32_t n_pages, int max_batch, int max_rows, int chunk)
{
    static struct sched_fixture d;
    struct err e;

    memset(&d, 0, sizeof(d));
    d.l = (struct sched_limits){ .max_batch = max_batch,
        .max_rows = max_rows,
        .max_logits = max_rows,
        .prefill_chunk = chunk,
        .max_started = MAX_SEQS,
        .max_seqs = MAX_SEQS,
        .age_ns = 2u * SECOND };
    EXPECT_EQ(page_pool_new(&d.pool, n_pages, &e), 0);
    EXPECT_EQ(sched_new(&d.sc, d.pool, &d.l, &e), 0);
    step_plan_init(&d.plan, &d.l);
    return &d;
}

static void fixture_close(struct sched_fixture *d)
{
    step_plan_clear(&d->plan);
    sched_free(d->sc);
    page_pool_free(d->pool);
}

static seq_id add_seq(struct sched_fixture *d, uint64_t now, int priority, int n_prompt)
{
    const struct gen_input in = {
        .cache_prompt = true, .priority = priority, .n_prompt = n_prompt
    };
    struct seq_spec spec = {
        .in = &in, .score_from = n_prompt - 1, .credits = 1000, .pages = d->pages[d->n_added]
    };

    d->n_added++;
    return sched_add(d->sc, now, &spec);
}

static seq_id add_seq_with_tokens(
    struct sched_fixture *d, int priority, const int32_t *tokens, int n)
{
    const struct gen_input in = { .cache_prompt = true, .priority = priority, .n_prompt = n };
    struct seq_spec spec = { .in = &in,
        .score_from = n - 1,
        .credits = 1000,
        .tokens = tokens,
        .pages = d->pages[d->n_added++] };

    return sched_add(d->sc, 0, &spec);
}

static void run_step(struct sched_fixture *d, uint64_t now)
{
    sched_plan(d->sc, now, &d->plan);
    sched_commit(d->sc, &d->plan);
    for (int i = 0; i < d->plan.n_runs; i++)
        if (d->plan.runs[i].yields_token)
            sched_push(d->sc, d->plan.runs[i].seq, 1);
    const char *wrong = sched_check(d->sc);
    if (wrong)
        fprintf(stderr, "%s\n", wrong);
    EXPECT(!wrong);
}

static int n_rows_of(const struct sched_fixture *d, seq_id id)
{
    for (int i = 0; i < d->plan.n_runs; i++)
        if (d->plan.runs[i].seq.i == id.i)
            return d->plan.runs[i].n;
    return 0;
}

static enum seq_state state_of(struct sched_fixture *d, seq_id id)
{
    return sched_seq(d->sc, id)->state;
}

/* ---- order */

static void decode_precedes_chunks_and_chunks_precede_new_prompts(void)
{
    struct sched_fixture *d = fixture_open(50, 8, 10, 6);
    seq_id a = add_seq(d, 0, 0, 3);

    run_step(d, 0);
    EXPECT_EQ(n_rows_of(d, a), 3);
    seq_id b = add_seq(d, 0, 5, 20), c = add_seq(d, 0, 5, 20);
    run_step(d, 0); /* one row decodes, six are the chunk of b, three are left for c */
    EXPECT_EQ(n_rows_of(d, a), 1);
    EXPECT_EQ(n_rows_of(d, b), 6);
    EXPECT_EQ(n_rows_of(d, c), 3);
    /* highest priority of all, but sequences that have begun prefill come first */
    seq_id n = add_seq(d, 0, 9, 20);
    run_step(d, 0);
    EXPECT_EQ(n_rows_of(d, a), 1);
    EXPECT_EQ(n_rows_of(d, b), 6);
    EXPECT_EQ(n_rows_of(d, c), 3);
    EXPECT_EQ(n_rows_of(d, n), 0);
    EXPECT(d->plan.has_prefill);
    sched_end(d->sc, a), sched_end(d->sc, b), sched_end(d->sc, c), sched_end(d->sc, n);
    fixture_close(d);
}

static void a_higher_priority_starts_first_and_equals_in_their_order(void)
{
    struct sched_fixture *d = fixture_open(50, 1, 10, 10);
    seq_id low = add_seq(d, 0, -1, 3), a = add_seq(d, 0, 0, 3), b = add_seq(d, 0, 0, 3),
           top = add_seq(d, 0, 7, 3);
    const seq_id want[] = { top, a, b, low };

    for (int i = 0; i < 4; i++) {
        run_step(d, 1000);
        EXPECT_EQ(n_rows_of(d, want[i]), 3);
        sched_end(d->sc, want[i]);
    }
    fixture_close(d);
}

static void two_seconds_of_waiting_are_worth_one_priority(void)
{
    for (int early = 0; early < 2; early++) {
        struct sched_fixture *d = fixture_open(50, 1, 10, 10);
        seq_id old = add_seq(d, 0, 0, 3);
        seq_id young = add_seq(d, 6u * SECOND - 1, 3, 3);
        uint64_t now = 6u * SECOND - (early ? 1 : 0);
        run_step(d, now);
        EXPECT_EQ(n_rows_of(d, old), early ? 0 : 3); /* equal ranks: in order of arrival */
        EXPECT_EQ(n_rows_of(d, young), early ? 3 : 0);
        sched_end(d->sc, old), sched_end(d->sc, young);
        fixture_close(d);
    }
}

/* Requests of a higher priority arrive without end: the low one is admitted when its age has
 * compensated for the difference. */
static void no_sequence_starves(void)
{
    struct sched_fixture *d = fixture_open(50, 1, 10, 10);
    seq_id low = add_seq(d, 0, 0, 3);
    uint64_t now = 0;
    int n_before = 0;

    for (;; now += SECOND, n_before++) {
        d->n_added = 1 + (uint64_t)n_before % (MAX_SEQS - 1);
        seq_id high = add_seq(d, now, 4, 3);
        run_step(d, now);
        bool is_lows_turn = n_rows_of(d, low) > 0;
        sched_end(d->sc, high);
        if (is_lows_turn)
            break;
        EXPECT(n_before < 20);
    }
    EXPECT_EQ(now, 8u * SECOND);
    sched_end(d->sc, low);
    fixture_close(d);
}

static void age_counts_all_waits_together(void)
{
    struct sched_fixture *d = fixture_open(50, 1, 10, 10);
    seq_id a = add_seq(d, 0, 0, 3);

    run_step(d, 3u * SECOND); /* waited 3 s, then runs for a long time */
    EXPECT_EQ(seq_rank(sched_seq(d->sc, a), 50 * SECOND, d->l.age_ns), 1);
    sched_park(d->sc, a, 50 * SECOND);
    EXPECT_EQ(seq_rank(sched_seq(d->sc, a), 90 * SECOND, d->l.age_ns), 1);
    sched_unpark(d->sc, a, 90 * SECOND);
    EXPECT_EQ(seq_rank(sched_seq(d->sc, a), 92 * SECOND, d->l.age_ns), 2);
    sched_end(d->sc, a);
    fixture_close(d);
}

/* ---- pages */

static void lowest_priority_is_preempted_and_resumed(void)
{
    struct sched_fixture *d = fixture_open(4, 4, 200, 200);
    int n = 2 * PAGE_TOKENS - 1;
    seq_id high = add_seq(d, 0, 1, n), low = add_seq(d, 0, 0, PAGE_TOKENS - 1);

    run_step(d, 0);
    EXPECT_EQ(n_rows_of(d, high), n);
    EXPECT(state_of(d, low) == SEQ_RUNNING);
    for (int i = 0; state_of(d, low) == SEQ_RUNNING; i++) {
        EXPECT(i < 3 * PAGE_TOKENS);
        run_step(d, 0);
        EXPECT_EQ(n_rows_of(d, high), 1);
    }
    struct seq *s = sched_seq(d->sc, low);
    int n_known = s->n_tokens;
    EXPECT(s->state == SEQ_WAITING && s->n_kv == 0 && s->n_pages == 0 && s->n_preempted == 1);
    EXPECT(n_known > PAGE_TOKENS - 1); /* the known tokens are kept */
    sched_end(d->sc, high);
    run_step(d, 0);
    EXPECT_EQ(n_rows_of(d, low), n_known);
    sched_end(d->sc, low);
    fixture_close(d);
}

static void a_large_prompt_waits_for_room_and_is_not_overtaken(void)
{
    struct sched_fixture *d = fixture_open(6, 4, 500, 500);
    seq_id a = add_seq(d, 0, 0, 3 * PAGE_TOKENS);

    run_step(d, 0);
    seq_id large = add_seq(d, 0, 0, 5 * PAGE_TOKENS), small = add_seq(d, 0, 0, 1);
    run_step(d, 0);
    EXPECT_EQ(n_rows_of(d, large), 0);
    EXPECT_EQ(n_rows_of(d, small), 0);
    sched_end(d->sc, a);
    run_step(d, 0);
    EXPECT_EQ(n_rows_of(d, large), 5 * PAGE_TOKENS);
    sched_end(d->sc, large), sched_end(d->sc, small);
    fixture_close(d);
}

static void waiting_sequences_lose_their_pages_first(void)
{
    struct sched_fixture *d = fixture_open(4, 4, 500, 500);
    seq_id parked = add_seq(d, 0, 9, 2 * PAGE_TOKENS), a = add_seq(d, 0, 0, PAGE_TOKENS - 1);

    run_step(d, 0);
    sched_park(d->sc, parked, 0);
    EXPECT_EQ(sched_seq(d->sc, parked)->n_pages, 2);
    seq_id b = add_seq(d, 0, 0, 2 * PAGE_TOKENS);
    run_step(d, 0);
    EXPECT_EQ(n_rows_of(d, b), 2 * PAGE_TOKENS);
    EXPECT_EQ(n_rows_of(d, a), 1);
    EXPECT_EQ(sched_seq(d->sc, parked)->n_pages, 0);
    EXPECT(state_of(d, parked) == SEQ_PARKED);
    sched_end(d->sc, parked), sched_end(d->sc, a), sched_end(d->sc, b);
    fixture_close(d);
}

static void a_fork_shares_the_prompt_and_copies_its_last_page(void)
{
    struct sched_fixture *d = fixture_open(10, 4, 500, 500);
    int n = 2 * PAGE_TOKENS - 1; /* the second page is not full */
    const struct gen_input in = { .cache_prompt = true, .n_prompt = n };
    struct seq_spec held = { .in = &in,
        .choice = 1,
        .score_from = n - 1,
        .credits = 9,
        .pages = d->pages[40],
        .is_held = true };
    seq_id a = add_seq(d, 0, 0, n), b = sched_add(d->sc, 0, &held);

    sched_plan(d->sc, 0, &d->plan);
    EXPECT_EQ(d->plan.n_runs, 1);
    sched_commit(d->sc, &d->plan);
    sched_fork(d->sc, a, b, 0);
    EXPECT_EQ(page_n_free(d->pool), 8u);
    EXPECT_EQ(page_refs(d->pool, d->pages[0][1]), 2u);
    sched_push(d->sc, a, 1);
    sched_push(d->sc, b, 1);
    page_id shared = d->pages[0][1];
    run_step(d, 0);
    EXPECT_EQ(d->plan.n_runs, 2);
    EXPECT(d->plan.n_copies >= 1);
    EXPECT_EQ(d->plan.copies[0].from.i, shared.i);
    EXPECT(d->pages[0][1].i != d->pages[40][1].i);
    EXPECT_EQ(d->pages[0][0].i, d->pages[40][0].i);
    EXPECT_EQ(page_refs(d->pool, d->pages[0][0]), 2u);
    sched_end(d->sc, a), sched_end(d->sc, b);
    EXPECT_EQ(page_n_free(d->pool), 10u);
    fixture_close(d);
}

static void an_interrupted_step_is_planned_again(void)
{
    struct sched_fixture *d = fixture_open(40, 4, 500, 9);
    seq_id a = add_seq(d, 0, 0, 30);

    sched_plan(d->sc, 0, &d->plan);
    EXPECT_EQ(d->plan.runs[0].pos, 0);
    sched_plan(d->sc, 0, &d->plan);
    EXPECT_EQ(d->plan.runs[0].pos, 0);
    EXPECT_EQ(n_rows_of(d, a), 9);
    run_step(d, 0);
    sched_plan(d->sc, 0, &d->plan);
    EXPECT_EQ(d->plan.runs[0].pos, 9);
    sched_end(d->sc, a);
    fixture_close(d);
}

/* L decodes and is planned first; then H, with a higher priority, needs its page: the rows of L
 * go to T. */
static void rows_of_a_preempted_sequence_go_to_others(void)
{
    struct sched_fixture *d = fixture_open(8, 3, 10, 8);

    if (PAGE_TOKENS != 32) { /* the numbers are for pages of 32 tokens */
        fixture_close(d);
        return;
    }
    seq_id l = add_seq(d, 0, 0, 1);
    run_step(d, 0);
    seq_id h = add_seq(d, 0, 2, 90), t = add_seq(d, 0, 1, 90);
    for (int i = 0; i < 4; i++) {
        run_step(d, 0);
        EXPECT_EQ(n_rows_of(d, l), 1);
        EXPECT_EQ(n_rows_of(d, h), 8);
        EXPECT_EQ(n_rows_of(d, t), 1);
    }
    page_id hog[8];
    int n_hogged = 0;
    while (page_n_free(d->pool))
        hog[n_hogged++] = page_take(d->pool);
    sched_plan(d->sc, 0, &d->plan);
    EXPECT(state_of(d, l) == SEQ_WAITING);
    EXPECT_EQ(n_rows_of(d, l), 0);
    EXPECT_EQ(n_rows_of(d, h), 8);
    EXPECT_EQ(n_rows_of(d, t), 2);
    while (n_hogged)
        page_unref(d->pool, hog[--n_hogged]);
    sched_end(d->sc, l), sched_end(d->sc, h), sched_end(d->sc, t);
    fixture_close(d);
}

/* ---- limits */

static void prompt_scores_stay_within_credits_and_logits(void)
{
    struct sched_fixture *d = fixture_open(50, 4, 8, 100);
    const struct gen_input in = { .cache_prompt = true, .n_prompt = 20 };
    struct seq_spec spec = { .in = &in, .score_from = 0, .credits = 5, .pages = d->pages[0] };
    seq_id a = sched_add(d->sc, 0, &spec);
    struct seq *s = sched_seq(d->sc, a);

    run_step(d, 0);
    EXPECT_EQ(n_rows_of(d, a), 5);
    EXPECT_EQ(d->plan.runs[0].n_logits, 5);
    s->score_from = 5;
    s->credits = 1000;
    run_step(d, 0);
    EXPECT_EQ(n_rows_of(d, a), 8);
    s->score_from = 19; /* all scored */
    run_step(d, 0);
    EXPECT_EQ(n_rows_of(d, a), 7);
    EXPECT_EQ(d->plan.runs[0].n_logits, 1);
    EXPECT(d->plan.runs[0].yields_token);
    sched_end(d->sc, a);
    fixture_close(d);
}

static void delays_and_deadlines_expire_in_order(void)
{
    struct sched_fixture *d = fixture_open(50, 8, 100, 100);
    struct rng r = { .key = 1 };
    seq_id id[30];
    uint64_t last = 0;

    for (int i = 0; i < 30; i++) {
        const struct gen_input in = {
            .cache_prompt = true, .n_prompt = 1, .deadline_ns = 1 + rng_below(&r, 1000)
        };
        struct seq_spec spec = { .in = &in, .credits = 1, .pages = d->pages[d->n_added] };
        d->n_added++;
        id[i] = sched_add(d->sc, 0, &spec);
    }
    for (int i = 0; i < 30; i += 7)
        sched_end(d->sc, id[i]);
    for (int n = 25; n > 0; n--) {
        uint64_t wake = sched_next_wake(d->sc);
        EXPECT(wake >= last && wake < UINT64_MAX);
        EXPECT_EQ(sched_expired(d->sc, wake - 1).i, SEQ_NONE.i);
        seq_id first = sched_expired(d->sc, wake);
        EXPECT_EQ(sched_seq(d->sc, first)->deadline_ns, wake);
        sched_end(d->sc, first);
        EXPECT(!sched_check(d->sc));
        last = wake;
    }
    EXPECT(sched_next_wake(d->sc) == UINT64_MAX);

    seq_id a = add_seq(d, 0, 0, 3);
    run_step(d, 0);
    sched_seq(d->sc, a)->n_tokens--; /* the last token counts as not sampled yet */
    sched_delay(d->sc, a, 0, 500);
    run_step(d, 499);
    EXPECT_EQ(sched_expired(d->sc, 499).i, SEQ_NONE.i);
    EXPECT_EQ(d->plan.n_runs, 0);
    EXPECT_EQ(sched_next_wake(d->sc), 500u);
    EXPECT_EQ(sched_expired(d->sc, 500).i, SEQ_NONE.i);
    run_step(d, 500);
    EXPECT_EQ(n_rows_of(d, a), 1);
    EXPECT(d->plan.runs[0].yields_token);
    sched_end(d->sc, a);
    fixture_close(d);
}

/* In a mixed step a prompt finds a cached page that a running sequence of higher priority has
 * computed. If no page is left for the copy, the prompt stalls, and the cache does not drop the
 * page that the other sequence extends. */
static void page_that_a_running_sequence_extends_is_not_evicted(void)
{
    enum { P = PAGE_TOKENS, N = 40 };
    static int32_t tokens[N * P], same[3 * P];
    const struct tree_options to = { .n_users = MAX_SEQS, .depth_weight = 1, .quota = N };
    const struct step_time dear = { .fixed = 1, .per_row = 1 }, free_of_cost = { 0 };
    page_id taken[N];
    int n_taken = 0;
    struct err e;

    for (int i = 0; i < N * P; i++)
        tokens[i] = i + 1;
    /* all but the last token of the second page */
    memcpy(same, tokens, (2 * P - 1) * sizeof(*same));
    struct sched_fixture *d = fixture_open(N, 8, 4 * P, 2 * P);
    fixture_close(d);
    d->l.mixed_step_factor = d->l.mixed_step_factor_short =
        1; /* mixed steps contain only the minimum of prefill */
    EXPECT_EQ(page_pool_new(&d->pool, N, &e), 0);
    EXPECT_EQ(tree_new(&d->l.tree, d->pool, &to, &e), 0);
    EXPECT_EQ(sched_new(&d->sc, d->pool, &d->l, &e), 0);
    step_plan_init(&d->plan, &d->l);
    sched_set_step_time(d->sc, &dear);
    seq_id high = add_seq_with_tokens(d, 9, tokens, 2 * P),
           low = add_seq_with_tokens(d, 0, tokens + 2 * P, 8 * P);
    run_step(d, 0);
    seq_id mid = add_seq_with_tokens(d, 1, same, 3 * P);
    run_step(d, 0);
    EXPECT(state_of(d, mid) == SEQ_RUNNING && n_rows_of(d, mid) == 0);
    EXPECT_EQ(sched_seq(d->sc, mid)->n_kv, 2 * P - 1);

    sched_end(d->sc, low);
    tree_flush(d->l.tree);
    for (page_id p = page_take(d->pool); p.i != PAGE_NONE.i; p = page_take(d->pool))
        taken[n_taken++] = p; /* taken like pages for a load from disk */
    sched_set_step_time(d->sc, &free_of_cost);
    sched_plan(d->sc, 0, &d->plan);
    EXPECT_EQ(n_rows_of(d, high), 1);
    EXPECT_EQ(n_rows_of(d, mid), 0);
    while (n_taken)
        page_unref(d->pool, taken[--n_taken]);
    run_step(d, 0);
    run_step(d, 0);
    EXPECT(sched_seq(d->sc, mid)->n_kv > 2 * P);
    sched_end(d->sc, high), sched_end(d->sc, mid);
    tree_free(d->l.tree);
    fixture_close(d);
}

#ifdef TESTING
static void missing_memory_is_an_error(void)
{
    struct sched_limits l = { 1, 1, 1, 1, 1, 4, 1 };
    struct page_pool *pool;
    struct sched *sc;
    struct err e;

    EXPECT_EQ(page_pool_new(&pool, 3, &e), 0);
    int n_failed = 0;
    for (uint64_t nth = 1;; nth++, n_failed++) {
        mem_fail_after(nth);
        if (!sched_new(&sc, pool, &l, &e))
            break;
        EXPECT(e.code == ERR_MEMORY);
    }
    EXPECT_EQ(n_failed, 15);
    sched_free(sc);
    mem_fail_after(0);
    page_pool_free(pool);
}
#else
static void missing_memory_is_an_error(void)
{
}
#endif

/* ---- drafts */

static void drafts_get_the_remaining_rows_and_are_trimmed(void)
{
    struct sched_fixture *d = fixture_open(4, 2, 8, 64);
    seq_id a = add_seq(d, 0, 0, 2 * PAGE_TOKENS - 1);
    while (sched_seq(d->sc, a)->n_tokens < 2 * PAGE_TOKENS)
        run_step(d, 0);
    sched_plan(d->sc, 0, &d->plan); /* the last token fills the page */
    EXPECT_EQ(d->plan.n_runs, 1);
    EXPECT_EQ(d->plan.runs[0].n, 1);
    EXPECT_EQ(sched_extend(d->sc, &d->plan, 0, 100), MIN(7, 2 * PAGE_TOKENS));
    int n = d->plan.runs[0].n_drafts;
    EXPECT_EQ(d->plan.n_rows, 1 + n);
    EXPECT_EQ(d->plan.runs[0].n_logits, 1 + n);
    EXPECT(page_n_free(d->pool) < 2);
    sched_retract(d->sc, &d->plan, 0, 1);
    EXPECT_EQ(d->plan.runs[0].n, n);
    sched_commit(d->sc, &d->plan);
    EXPECT_EQ(sched_seq(d->sc, a)->n_kv, 2 * PAGE_TOKENS); /* draft tokens are not counted */
    sched_push(d->sc, a, 1);
    sched_accept(d->sc, a);
    EXPECT_EQ(sched_seq(d->sc, a)->n_kv, 2 * PAGE_TOKENS + 1);
    sched_push(d->sc, a, 1);
    sched_trim(d->sc, a); /* one was accepted: the pages of the others are freed */
    EXPECT_EQ(sched_seq(d->sc, a)->n_pages, pages_for(2 * PAGE_TOKENS + 2));
    EXPECT_EQ(page_n_free(d->pool), 4u - (uint32_t)pages_for(2 * PAGE_TOKENS + 2));
    EXPECT(!sched_check(d->sc));
    sched_end(d->sc, a);
    fixture_close(d);
}

static void drafts_evict_and_preempt_nothing(void)
{
    struct sched_fixture *d = fixture_open(5, 2, 200, 64);
    seq_id a = add_seq(d, 0, 0, 2 * PAGE_TOKENS), b = add_seq(d, 0, 0, PAGE_TOKENS);
    run_step(d, 0);
    EXPECT_EQ(sched_seq(d->sc, b)->n_tokens, PAGE_TOKENS + 1);
    sched_plan(d->sc, 0, &d->plan); /* both need one page more: the last two */
    EXPECT_EQ(page_n_free(d->pool), 0u);
    for (int i = 0; i < d->plan.n_runs; i++)
        EXPECT_EQ(sched_extend(d->sc, &d->plan, i, 2 * PAGE_TOKENS), PAGE_TOKENS - 1);
    EXPECT_EQ(d->plan.n_runs, 2);
    sched_commit(d->sc, &d->plan);
    for (int i = 0; i < d->plan.n_runs; i++) {
        sched_push(d->sc, d->plan.runs[i].seq, 1);
        sched_trim(d->sc, d->plan.runs[i].seq);
    }
    EXPECT(!sched_check(d->sc));
    sched_end(d->sc, a);
    sched_end(d->sc, b);
    fixture_close(d);
}

static void drafts_keep_to_rows_logits_chunk_and_credits(void)
{
    struct sched_fixture *d = fixture_open(50, 2, 40, 4);
    seq_id a = add_seq(d, 0, 0, 1), b = add_seq(d, 0, 0, 1);

    run_step(d, 0);
    sched_plan(d->sc, 0, &d->plan);
    EXPECT_EQ(sched_extend(d->sc, &d->plan, 0, 100), 3); /* the chunk is four rows */
    EXPECT_EQ(sched_extend(d->sc, &d->plan, 0, 100), 0);
    sched_seq(d->sc, d->plan.runs[1].seq)->credits = 3;
    EXPECT_EQ(sched_extend(d->sc, &d->plan, 1, 100), 2); /* one event for each of three logits */
    EXPECT_EQ(d->plan.n_rows, 7);
    sched_trim(d->sc, a);
    sched_trim(d->sc, b);
    sched_end(d->sc, a);
    sched_end(d->sc, b);
    fixture_close(d);
}

/* ---- short prompts in mixed steps */

/* A fixture with n decoding sequences; a step with one of them costs ten times as much as one
 * more row. */
static struct sched_fixture *fixture_with_decoding(
    double mixed_step_factor, double mixed_step_factor_short, int n)
{
    struct sched_fixture *d = fixture_open(90, 8, 200, 100);
    struct err e;

    sched_free(d->sc);
    d->l.mixed_step_factor = mixed_step_factor;
    d->l.mixed_step_factor_short = mixed_step_factor_short;
    EXPECT_EQ(sched_new(&d->sc, d->pool, &d->l, &e), 0);
    for (int i = 0; i < n; i++)
        add_seq(d, 0, 9, 1);
    run_step(d, 0);
    sched_set_step_time(d->sc, &(struct step_time){ .fixed = 9, .per_row = 1 });
    return d;
}

static void end_all(struct sched_fixture *d)
{
    for (uint32_t i = 0; i < d->n_added; i++)
        sched_end(d->sc, (seq_id){ i });
    fixture_close(d);
}

static void short_prompts_run_one_after_the_other(void)
{
    struct sched_fixture *d = fixture_with_decoding(1.4, 3, 1);
    seq_id a = add_seq(d, 0, 0, 50), b = add_seq(d, 0, 0, 50);

    for (int i = 0; i < 2; i++) {
        run_step(d, 0);
        EXPECT(n_rows_of(d, a) == 20 && n_rows_of(d, b) == 0);
    }
    run_step(d, 0);
    EXPECT(n_rows_of(d, a) == 10 && n_rows_of(d, b) == 10);
    seq_id brief = add_seq(d, 0, 0, 3), other = add_seq(d, 0, 0, 50);
    run_step(d, 0); /* two decode now; the new prompt gets the remaining budget */
    EXPECT(n_rows_of(d, b) == 19 && n_rows_of(d, brief) + n_rows_of(d, other) == 0);
    run_step(d, 0);
    EXPECT(n_rows_of(d, brief) == 3 && n_rows_of(d, b) == 16 && n_rows_of(d, other) == 0);
    end_all(d);
}

static void short_prompt_respects_the_mixed_step_limit(void)
{
    static const struct {
        double mixed_step_factor, mixed_step_factor_short;
        int n, rows;
    } cases[] = { { 1.4, 3, 1, 20 }, { 1.4, 3, 5, 16 }, { 1.4, 2, 5, 14 }, { 1.5, 1, 5, 7 },
        { 3, 2, 1, 20 }, { 1.4, 0, 1, 50 } };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct sched_fixture *d = fixture_with_decoding(
            cases[i].mixed_step_factor, cases[i].mixed_step_factor_short, cases[i].n);
        seq_id a = add_seq(d, 0, 0, 50);
        run_step(d, 0);
        EXPECT_EQ(n_rows_of(d, a), cases[i].rows);
        end_all(d);
    }
}

/* Without decoding sequences the first prompt is computed completely, with others that fit into
 * the same step. */
static void first_prompt_does_not_share_its_budget(void)
{
    struct sched_fixture *d = fixture_open(90, 8, 200, 100);
    struct err e;

    sched_free(d->sc);
    d->l.mixed_step_factor = d->l.mixed_step_factor_short = 1.4;
    d->l.max_prefill_step_ns = 60;
    EXPECT_EQ(sched_new(&d->sc, d->pool, &d->l, &e), 0);
    sched_set_step_time(d->sc, &(struct step_time){ .fixed = 9, .per_row = 1 });
    seq_id a = add_seq(d, 0, 0, 50), b = add_seq(d, 0, 0, 50), c = add_seq(d, 0, 0, 10);
    run_step(d, 0);
    EXPECT(n_rows_of(d, a) == 50 && n_rows_of(d, b) == 0 && n_rows_of(d, c) == 10);
    end_all(d);
}

/* ---- layered prefill */

static struct sched_fixture *fixture_with_layers(int n_layers, double max_prefill_step_ns)
{
    struct sched_fixture *d = fixture_open(90, 4, 200, 100);
    struct err e;

    sched_free(d->sc);
    d->l.mixed_step_factor = 1.4;
    d->l.mixed_step_factor_short = 1.4;
    d->l.n_layers = n_layers;
    d->l.max_partial_rows = 100;
    d->l.max_prefill_step_ns = max_prefill_step_ns;
    EXPECT_EQ(sched_new(&d->sc, d->pool, &d->l, &e), 0);
    return d;
}

static const struct plan_run *run_of(const struct sched_fixture *d, seq_id id)
{
    int i = 0;

    while (i < d->plan.n_runs && d->plan.runs[i].seq.i != id.i)
        i++;
    EXPECT(i < d->plan.n_runs);
    return &d->plan.runs[i];
}

/* A row costs ten times as much as decoding: it passes one layer per step, then the next row
 * follows. */
static void row_above_the_budget_passes_one_layer_per_step(void)
{
    struct sched_fixture *d = fixture_with_layers(4, 0);
    seq_id a = add_seq(d, 0, 0, 1), b;

    run_step(d, 0);
    b = add_seq(d, 0, 0, 3);
    sched_set_step_time(d->sc, &(struct step_time){ .per_row = 10 });
    for (int row = 0; row < 2; row++)
        for (int layer = 0; layer < 4; layer++) {
            run_step(d, 0);
            const struct plan_run *r = run_of(d, b);
            EXPECT_EQ(n_rows_of(d, a), 1);
            EXPECT(r->pos == row && r->n == 1 && r->n_logits == 0 && !r->yields_token);
            EXPECT(r->from_layer == layer && r->end_layer == layer + 1);
        }
    run_step(d, 0); /* the last row is a decode row like others */
    EXPECT(run_of(d, b)->yields_token && run_of(d, b)->end_layer == 0);
    sched_end(d->sc, a), sched_end(d->sc, b);
    fixture_close(d);
}

static void scored_rows_may_be_partial(void)
{
    struct sched_fixture *d = fixture_with_layers(4, 25);
    const struct gen_input in = { .cache_prompt = true, .n_prompt = 20 };
    struct seq_spec spec = { .in = &in, .credits = 12, .pages = d->pages[0] };
    seq_id a = sched_add(d->sc, 0, &spec);

    /* one layer of 12 rows fits into the budget */
    sched_set_step_time(d->sc, &(struct step_time){ .per_row = 4 });
    run_step(d, 0);
    EXPECT(run_of(d, a)->n == 12 && run_of(d, a)->n_logits == 0 && run_of(d, a)->end_layer == 2);
    run_step(d, 0);
    EXPECT(run_of(d, a)->n == 12 && run_of(d, a)->n_logits == 12);
    EXPECT(run_of(d, a)->from_layer == 2 && run_of(d, a)->end_layer == 4);
    EXPECT(!run_of(d, a)->yields_token && sched_seq(d->sc, a)->n_kv == 12);
    sched_end(d->sc, a);
    fixture_close(d);
}

static void interrupted_partial_chunk_continues_at_its_layer(void)
{
    struct sched_fixture *d = fixture_with_layers(4, 25);
    seq_id a = add_seq(d, 0, 0, 20);

    sched_set_step_time(
        d->sc, &(struct step_time){ .per_row = 2 }); /* one layer of all rows costs 10 */
    run_step(d, 0);
    EXPECT(run_of(d, a)->n == 20 && run_of(d, a)->end_layer == 2);
    sched_plan(d->sc, 0, &d->plan); /* not committed */
    EXPECT(run_of(d, a)->from_layer == 2 && run_of(d, a)->end_layer == 4);
    run_step(d, 0);
    EXPECT(run_of(d, a)->from_layer == 2 && run_of(d, a)->end_layer == 4);
    EXPECT(run_of(d, a)->yields_token && run_of(d, a)->n_logits == 1);
    EXPECT_EQ(sched_seq(d->sc, a)->n_kv, 20);
    sched_end(d->sc, a);
    fixture_close(d);
}

static void partial_chunk_is_lost_if_its_sequence_is_not_planned(void)
{
    struct sched_fixture *d = fixture_with_layers(4, 25);
    struct sched_counts n;
    seq_id a = add_seq(d, 0, 0, 20);

    sched_set_step_time(d->sc, &(struct step_time){ .per_row = 2 });
    run_step(d, 0);
    EXPECT_EQ(sched_seq(d->sc, a)->layer, 2);
    sched_park(d->sc, a, 0);
    sched_unpark(d->sc, a, 0);
    run_step(d, 0);
    EXPECT(run_of(d, a)->from_layer == 0 && run_of(d, a)->end_layer == 2);
    sched_end(d->sc, a); /* while its chunk is partial */
    seq_id b = add_seq(d, 0, 0, 20);
    run_step(d, 0);
    EXPECT(run_of(d, b)->from_layer == 0 && run_of(d, b)->end_layer == 2);
    sched_counts(d->sc, &n);
    EXPECT(n.partial_runs == 3 && n.partial_runs_lost == 2);
    sched_end(d->sc, b);
    fixture_close(d);
}

/* The sequence of higher priority gets the partial chunk and keeps it; the other one restarts
 * its chunk afterwards. */
static void partial_chunk_is_lost_to_a_higher_priority(void)
{
    struct sched_fixture *d = fixture_with_layers(4, 0);
    struct sched_counts n;
    seq_id a = add_seq(d, 0, 0, 1);

    run_step(d, 0);
    sched_set_step_time(d->sc, &(struct step_time){ .per_row = 10 });
    seq_id low = add_seq(d, 0, 1, 3);
    run_step(d, 0);
    EXPECT_EQ(run_of(d, low)->end_layer, 1);
    seq_id high = add_seq(d, 0, 2, 3);
    run_step(d, 0); /* is admitted, and finds no budget left */
    EXPECT(run_of(d, low)->from_layer == 1 && n_rows_of(d, high) == 0);
    run_step(d, 0);
    EXPECT(run_of(d, high)->from_layer == 0 && n_rows_of(d, low) == 0);
    for (int i = 0; i < 7; i++)
        run_step(d, 0);
    EXPECT(run_of(d, high)->end_layer == 4 && run_of(d, high)->pos == 1 && n_rows_of(d, low) == 0);
    run_step(d, 0);
    EXPECT(run_of(d, high)->yields_token && run_of(d, low)->from_layer == 0);
    sched_counts(d->sc, &n);
    EXPECT_EQ(n.partial_runs_lost, 1u);
    sched_end(d->sc, a), sched_end(d->sc, low), sched_end(d->sc, high);
    fixture_close(d);
}

TESTS(TEST(short_prompts_run_one_after_the_other), TEST(short_prompt_respects_the_mixed_step_limit),
    TEST(first_prompt_does_not_share_its_budget),
    TEST(row_above_the_budget_passes_one_layer_per_step), TEST(scored_rows_may_be_partial),
    TEST(interrupted_partial_chunk_continues_at_its_layer),
    TEST(partial_chunk_is_lost_if_its_sequence_is_not_planned),
    TEST(partial_chunk_is_lost_to_a_higher_priority),
    TEST(drafts_get_the_remaining_rows_and_are_trimmed), TEST(drafts_evict_and_preempt_nothing),
    TEST(drafts_keep_to_rows_logits_chunk_and_credits),
    TEST(decode_precedes_chunks_and_chunks_precede_new_prompts),
    TEST(a_higher_priority_starts_first_and_equals_in_their_order),
    TEST(two_seconds_of_waiting_are_worth_one_priority), TEST(no_sequence_starves),
    TEST(age_counts_all_waits_together), TEST(lowest_priority_is_preempted_and_resumed),
    TEST(a_large_prompt_waits_for_room_and_is_not_overtaken),
    TEST(waiting_sequences_lose_their_pages_first),
    TEST(a_fork_shares_the_prompt_and_copies_its_last_page),
    TEST(page_that_a_running_sequence_extends_is_not_evicted),
    TEST(an_interrupted_step_is_planned_again), TEST(rows_of_a_preempted_sequence_go_to_others),
    TEST(prompt_scores_stay_within_credits_and_logits), TEST(delays_and_deadlines_expire_in_order),
    TEST(missing_memory_is_an_error))
