#include "engine/sched/sched.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/sched/timers.h"
#include "../check.h"

enum { MAX_SEQS = 64, MAX_PAGES = 100 };
#define SECOND ((uint64_t)1000000000)

/* A scheduler of its own, with the tokens only counted. */
struct desk {
    struct page_pool *pool;
    struct sched *sc;
    struct sched_limits l;
    struct plan plan;
    page_id pages[MAX_SEQS][MAX_PAGES];
    uint64_t n_added;
};

static struct desk *desk_open(uint32_t n_pages, int max_batch, int max_rows, int chunk)
{
    static struct desk d;
    struct err e;

    memset(&d, 0, sizeof(d));
    d.l = (struct sched_limits){ .max_batch = max_batch,
        .max_rows = max_rows,
        .max_logits = max_rows,
        .prefill_chunk = chunk,
        .max_begun = MAX_SEQS,
        .max_seqs = MAX_SEQS,
        .age_ns = 2u * SECOND };
    EXPECT_EQ(page_pool_new(&d.pool, n_pages, &e), 0);
    EXPECT_EQ(sched_new(&d.sc, d.pool, &d.l, &e), 0);
    plan_init(&d.plan, &d.l);
    return &d;
}

static void desk_close(struct desk *d)
{
    plan_clear(&d->plan);
    sched_free(d->sc);
    page_pool_free(d->pool);
}

static seq_id add(struct desk *d, uint64_t now, int priority, int n_prompt)
{
    struct seq_spec spec = { .priority = priority,
        .n_prompt = n_prompt,
        .deadline_ns = UINT64_MAX,
        .score_from = n_prompt - 1,
        .credits = 1000,
        .pages = d->pages[d->n_added] };

    d->n_added++;
    return sched_add(d->sc, now, &spec);
}

static seq_id add_text(struct desk *d, int priority, const int32_t *tokens, int n)
{
    struct seq_spec spec = { .priority = priority,
        .n_prompt = n,
        .deadline_ns = UINT64_MAX,
        .score_from = n - 1,
        .credits = 1000,
        .tokens = tokens,
        .pages = d->pages[d->n_added++] };

    return sched_add(d->sc, 0, &spec);
}

static void step(struct desk *d, uint64_t now)
{
    sched_plan(d->sc, now, &d->plan);
    sched_commit(d->sc, &d->plan);
    for (int i = 0; i < d->plan.n_runs; i++)
        if (d->plan.runs[i].is_whole)
            sched_push(d->sc, d->plan.runs[i].seq, 1);
    const char *wrong = sched_check(d->sc);
    if (wrong)
        fprintf(stderr, "%s\n", wrong);
    EXPECT(!wrong);
}

static int rows_of(const struct desk *d, seq_id id)
{
    for (int i = 0; i < d->plan.n_runs; i++)
        if (d->plan.runs[i].seq.i == id.i)
            return d->plan.runs[i].n;
    return 0;
}

static enum seq_state state_of(struct desk *d, seq_id id)
{
    return sched_seq(d->sc, id)->state;
}

/* ---- order */

static void decode_goes_before_chunks_and_chunks_before_newcomers(void)
{
    struct desk *d = desk_open(50, 8, 10, 6);
    seq_id a = add(d, 0, 0, 3);

    step(d, 0);
    EXPECT_EQ(rows_of(d, a), 3);
    seq_id b = add(d, 0, 5, 20), c = add(d, 0, 5, 20);
    step(d, 0); /* one row decodes, six are b's chunk, three are left for c */
    EXPECT_EQ(rows_of(d, a), 1);
    EXPECT_EQ(rows_of(d, b), 6);
    EXPECT_EQ(rows_of(d, c), 3);
    seq_id n = add(d, 0, 9, 20); /* the highest of all, but those in the middle go first */
    step(d, 0);
    EXPECT_EQ(rows_of(d, a), 1);
    EXPECT_EQ(rows_of(d, b), 6);
    EXPECT_EQ(rows_of(d, c), 3);
    EXPECT_EQ(rows_of(d, n), 0);
    EXPECT(d->plan.has_prefill);
    sched_end(d->sc, a), sched_end(d->sc, b), sched_end(d->sc, c), sched_end(d->sc, n);
    desk_close(d);
}

static void a_higher_priority_starts_first_and_equals_in_their_order(void)
{
    struct desk *d = desk_open(50, 1, 10, 10);
    seq_id low = add(d, 0, -1, 3), a = add(d, 0, 0, 3), b = add(d, 0, 0, 3), top = add(d, 0, 7, 3);
    const seq_id want[] = { top, a, b, low };

    for (int i = 0; i < 4; i++) {
        step(d, 1000);
        EXPECT_EQ(rows_of(d, want[i]), 3);
        sched_end(d->sc, want[i]);
    }
    desk_close(d);
}

static void two_seconds_of_waiting_are_worth_one_priority(void)
{
    for (int early = 0; early < 2; early++) {
        struct desk *d = desk_open(50, 1, 10, 10);
        seq_id old = add(d, 0, 0, 3);
        seq_id young = add(d, 6u * SECOND - 1, 3, 3);
        uint64_t now = 6u * SECOND - (early ? 1 : 0);
        step(d, now);
        EXPECT_EQ(rows_of(d, old), early ? 0 : 3); /* equal ranks: first come */
        EXPECT_EQ(rows_of(d, young), early ? 3 : 0);
        sched_end(d->sc, old), sched_end(d->sc, young);
        desk_close(d);
    }
}

/* Newcomers of a higher priority without end: the low one still gets its turn, when its age has
 * made up for the difference. */
static void nobody_waits_for_ever(void)
{
    struct desk *d = desk_open(50, 1, 10, 10);
    seq_id low = add(d, 0, 0, 3);
    uint64_t now = 0;
    int n_before = 0;

    for (;; now += SECOND, n_before++) {
        d->n_added = 1 + (uint64_t)n_before % (MAX_SEQS - 1);
        seq_id high = add(d, now, 4, 3);
        step(d, now);
        bool is_lows_turn = rows_of(d, low) > 0;
        sched_end(d->sc, high);
        if (is_lows_turn)
            break;
        EXPECT(n_before < 20);
    }
    EXPECT_EQ(now, 8u * SECOND);
    sched_end(d->sc, low);
    desk_close(d);
}

static void age_counts_all_waits_together(void)
{
    struct desk *d = desk_open(50, 1, 10, 10);
    seq_id a = add(d, 0, 0, 3);

    step(d, 3u * SECOND); /* waited 3 s, then runs for long */
    EXPECT_EQ(seq_rank(sched_seq(d->sc, a), 50 * SECOND, d->l.age_ns), 1);
    sched_park(d->sc, a, 50 * SECOND);
    EXPECT_EQ(seq_rank(sched_seq(d->sc, a), 90 * SECOND, d->l.age_ns), 1);
    sched_unpark(d->sc, a, 90 * SECOND);
    EXPECT_EQ(seq_rank(sched_seq(d->sc, a), 92 * SECOND, d->l.age_ns), 2);
    sched_end(d->sc, a);
    desk_close(d);
}

/* ---- pages */

static void the_lowest_is_preempted_and_comes_back(void)
{
    struct desk *d = desk_open(4, 4, 200, 200);
    int n = 2 * PAGE_TOKENS - 1;
    seq_id high = add(d, 0, 1, n), low = add(d, 0, 0, PAGE_TOKENS - 1);

    step(d, 0);
    EXPECT_EQ(rows_of(d, high), n);
    EXPECT(state_of(d, low) == SEQ_RUNNING);
    for (int i = 0; state_of(d, low) == SEQ_RUNNING; i++) {
        EXPECT(i < 3 * PAGE_TOKENS);
        step(d, 0);
        EXPECT_EQ(rows_of(d, high), 1);
    }
    struct seq *s = sched_seq(d->sc, low);
    int n_known = s->n_tokens;
    EXPECT(s->state == SEQ_WAITING && s->n_kv == 0 && s->n_pages == 0 && s->n_preempted == 1);
    EXPECT(n_known > PAGE_TOKENS - 1); /* what it knew is kept */
    sched_end(d->sc, high);
    step(d, 0);
    EXPECT_EQ(rows_of(d, low), n_known);
    sched_end(d->sc, low);
    desk_close(d);
}

static void a_large_prompt_waits_for_room_and_is_not_overtaken(void)
{
    struct desk *d = desk_open(6, 4, 500, 500);
    seq_id a = add(d, 0, 0, 3 * PAGE_TOKENS);

    step(d, 0);
    seq_id large = add(d, 0, 0, 5 * PAGE_TOKENS), small = add(d, 0, 0, 1);
    step(d, 0);
    EXPECT_EQ(rows_of(d, large), 0);
    EXPECT_EQ(rows_of(d, small), 0);
    sched_end(d->sc, a);
    step(d, 0);
    EXPECT_EQ(rows_of(d, large), 5 * PAGE_TOKENS);
    sched_end(d->sc, large), sched_end(d->sc, small);
    desk_close(d);
}

static void those_who_do_not_run_give_their_pages_first(void)
{
    struct desk *d = desk_open(4, 4, 500, 500);
    seq_id parked = add(d, 0, 9, 2 * PAGE_TOKENS), a = add(d, 0, 0, PAGE_TOKENS - 1);

    step(d, 0);
    sched_park(d->sc, parked, 0);
    EXPECT_EQ(sched_seq(d->sc, parked)->n_pages, 2);
    seq_id b = add(d, 0, 0, 2 * PAGE_TOKENS);
    step(d, 0);
    EXPECT_EQ(rows_of(d, b), 2 * PAGE_TOKENS);
    EXPECT_EQ(rows_of(d, a), 1);
    EXPECT_EQ(sched_seq(d->sc, parked)->n_pages, 0);
    EXPECT(state_of(d, parked) == SEQ_PARKED);
    sched_end(d->sc, parked), sched_end(d->sc, a), sched_end(d->sc, b);
    desk_close(d);
}

static void a_fork_shares_the_prompt_and_copies_its_last_page(void)
{
    struct desk *d = desk_open(10, 4, 500, 500);
    int n = 2 * PAGE_TOKENS - 1; /* the second page is not full */
    struct seq_spec held = { .choice = 1,
        .n_prompt = n,
        .deadline_ns = UINT64_MAX,
        .score_from = n - 1,
        .credits = 9,
        .pages = d->pages[40],
        .is_held = true };
    seq_id a = add(d, 0, 0, n), b = sched_add(d->sc, 0, &held);

    sched_plan(d->sc, 0, &d->plan);
    EXPECT_EQ(d->plan.n_runs, 1);
    sched_commit(d->sc, &d->plan);
    sched_fork(d->sc, a, b, 0);
    EXPECT_EQ(page_n_free(d->pool), 8u);
    EXPECT_EQ(page_refs(d->pool, d->pages[0][1]), 2u);
    sched_push(d->sc, a, 1);
    sched_push(d->sc, b, 1);
    page_id shared = d->pages[0][1];
    step(d, 0);
    EXPECT_EQ(d->plan.n_runs, 2);
    EXPECT(d->plan.n_copies >= 1);
    EXPECT_EQ(d->plan.copies[0].from.i, shared.i);
    EXPECT(d->pages[0][1].i != d->pages[40][1].i);
    EXPECT_EQ(d->pages[0][0].i, d->pages[40][0].i);
    EXPECT_EQ(page_refs(d->pool, d->pages[0][0]), 2u);
    sched_end(d->sc, a), sched_end(d->sc, b);
    EXPECT_EQ(page_n_free(d->pool), 10u);
    desk_close(d);
}

static void an_interrupted_step_is_planned_again(void)
{
    struct desk *d = desk_open(40, 4, 500, 9);
    seq_id a = add(d, 0, 0, 30);

    sched_plan(d->sc, 0, &d->plan);
    EXPECT_EQ(d->plan.runs[0].pos, 0);
    sched_plan(d->sc, 0, &d->plan);
    EXPECT_EQ(d->plan.runs[0].pos, 0);
    EXPECT_EQ(rows_of(d, a), 9);
    step(d, 0);
    sched_plan(d->sc, 0, &d->plan);
    EXPECT_EQ(d->plan.runs[0].pos, 9);
    sched_end(d->sc, a);
    desk_close(d);
}

/* L decodes and is planned first; H, above it, then needs its page: L's row goes to T. */
static void rows_of_a_preempted_sequence_go_to_others(void)
{
    struct desk *d = desk_open(8, 3, 10, 8);

    if (PAGE_TOKENS != 32) { /* the numbers are for pages of 32 */
        desk_close(d);
        return;
    }
    seq_id l = add(d, 0, 0, 1);
    step(d, 0);
    seq_id h = add(d, 0, 2, 90), t = add(d, 0, 1, 90);
    for (int i = 0; i < 4; i++) {
        step(d, 0);
        EXPECT_EQ(rows_of(d, l), 1);
        EXPECT_EQ(rows_of(d, h), 8);
        EXPECT_EQ(rows_of(d, t), 1);
    }
    page_id hog[8];
    int n_hogged = 0;
    while (page_n_free(d->pool))
        hog[n_hogged++] = page_take(d->pool);
    sched_plan(d->sc, 0, &d->plan);
    EXPECT(state_of(d, l) == SEQ_WAITING);
    EXPECT_EQ(rows_of(d, l), 0);
    EXPECT_EQ(rows_of(d, h), 8);
    EXPECT_EQ(rows_of(d, t), 2);
    while (n_hogged)
        page_unref(d->pool, hog[--n_hogged]);
    sched_end(d->sc, l), sched_end(d->sc, h), sched_end(d->sc, t);
    desk_close(d);
}

/* ---- limits */

static void prompt_scores_stay_within_credits_and_logits(void)
{
    struct desk *d = desk_open(50, 4, 8, 100);
    struct seq_spec spec = { .n_prompt = 20,
        .deadline_ns = UINT64_MAX,
        .score_from = 0,
        .credits = 5,
        .pages = d->pages[0] };
    seq_id a = sched_add(d->sc, 0, &spec);
    struct seq *s = sched_seq(d->sc, a);

    step(d, 0);
    EXPECT_EQ(rows_of(d, a), 5);
    EXPECT_EQ(d->plan.runs[0].n_logits, 5);
    s->score_from = 5;
    s->credits = 1000;
    step(d, 0);
    EXPECT_EQ(rows_of(d, a), 8);
    s->score_from = 19; /* all scored */
    step(d, 0);
    EXPECT_EQ(rows_of(d, a), 7);
    EXPECT_EQ(d->plan.runs[0].n_logits, 1);
    EXPECT(d->plan.runs[0].is_whole);
    sched_end(d->sc, a);
    desk_close(d);
}

static void delays_and_deadlines_come_in_their_order(void)
{
    struct desk *d = desk_open(50, 8, 100, 100);
    struct rng r = { .key = 1 };
    seq_id id[30];
    uint64_t last = 0;

    for (int i = 0; i < 30; i++) {
        struct seq_spec spec = { .n_prompt = 1,
            .credits = 1,
            .deadline_ns = 1 + rng_below(&r, 1000),
            .pages = d->pages[d->n_added] };
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

    seq_id a = add(d, 0, 0, 3);
    step(d, 0);
    sched_seq(d->sc, a)->n_tokens--; /* as if its token were not known yet */
    sched_delay(d->sc, a, 0, 500);
    step(d, 499);
    EXPECT_EQ(sched_expired(d->sc, 499).i, SEQ_NONE.i);
    EXPECT_EQ(d->plan.n_runs, 0);
    EXPECT_EQ(sched_next_wake(d->sc), 500u);
    EXPECT_EQ(sched_expired(d->sc, 500).i, SEQ_NONE.i);
    step(d, 500);
    EXPECT_EQ(rows_of(d, a), 1);
    EXPECT(d->plan.runs[0].is_whole);
    sched_end(d->sc, a);
    desk_close(d);
}

/* One that rides has found a page that another, above it, has computed: where no page is left for a
 * copy it stalls, and the cache forgets nothing that the other goes on from. */
static void a_page_that_others_go_on_from_is_not_forgotten(void)
{
    enum { P = PAGE_TOKENS, N = 40 };
    static int32_t tokens[N * P], same[3 * P];
    const struct tree_options to = { .n_users = MAX_SEQS, .depth_weight = 1, .quota = N };
    const struct cost dear = { .fixed = 1, .per_row = 1 }, free_of_cost = { 0 };
    page_id taken[N];
    int n_taken = 0;
    struct err e;

    for (int i = 0; i < N * P; i++)
        tokens[i] = i + 1;
    memcpy(same, tokens, (2 * P - 1) * sizeof(*same)); /* all but the last of the second page */
    struct desk *d = desk_open(N, 8, 4 * P, 2 * P);
    desk_close(d);
    d->l.stretch = d->l.short_stretch = 1; /* beside those that decode only what must */
    EXPECT_EQ(page_pool_new(&d->pool, N, &e), 0);
    EXPECT_EQ(tree_new(&d->l.tree, d->pool, &to, &e), 0);
    EXPECT_EQ(sched_new(&d->sc, d->pool, &d->l, &e), 0);
    plan_init(&d->plan, &d->l);
    sched_set_cost(d->sc, &dear);
    seq_id high = add_text(d, 9, tokens, 2 * P), low = add_text(d, 0, tokens + 2 * P, 8 * P);
    step(d, 0);
    seq_id mid = add_text(d, 1, same, 3 * P);
    step(d, 0);
    EXPECT(state_of(d, mid) == SEQ_RUNNING && rows_of(d, mid) == 0);
    EXPECT_EQ(sched_seq(d->sc, mid)->n_kv, 2 * P - 1);

    sched_end(d->sc, low);
    tree_flush(d->l.tree);
    for (page_id p = page_take(d->pool); p.i != PAGE_NONE.i; p = page_take(d->pool))
        taken[n_taken++] = p; /* as pages are that come from disk */
    sched_set_cost(d->sc, &free_of_cost);
    sched_plan(d->sc, 0, &d->plan);
    EXPECT_EQ(rows_of(d, high), 1);
    EXPECT_EQ(rows_of(d, mid), 0);
    while (n_taken)
        page_unref(d->pool, taken[--n_taken]);
    step(d, 0);
    step(d, 0);
    EXPECT(sched_seq(d->sc, mid)->n_kv > 2 * P);
    sched_end(d->sc, high), sched_end(d->sc, mid);
    tree_free(d->l.tree);
    desk_close(d);
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

static void drafts_get_what_is_left_over_and_go_back(void)
{
    struct desk *d = desk_open(4, 2, 8, 64);
    seq_id a = add(d, 0, 0, 2 * PAGE_TOKENS - 1);
    while (sched_seq(d->sc, a)->n_tokens < 2 * PAGE_TOKENS)
        step(d, 0);
    sched_plan(d->sc, 0, &d->plan); /* its last token fills the page */
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
    EXPECT_EQ(sched_seq(d->sc, a)->n_kv, 2 * PAGE_TOKENS); /* drafts are not counted */
    sched_push(d->sc, a, 1);
    sched_accept(d->sc, a);
    EXPECT_EQ(sched_seq(d->sc, a)->n_kv, 2 * PAGE_TOKENS + 1);
    sched_push(d->sc, a, 1);
    sched_trim(d->sc, a); /* one was right: the pages of the others come home */
    EXPECT_EQ(sched_seq(d->sc, a)->n_pages, pages_for(2 * PAGE_TOKENS + 2));
    EXPECT_EQ(page_n_free(d->pool), 4u - (uint32_t)pages_for(2 * PAGE_TOKENS + 2));
    EXPECT(!sched_check(d->sc));
    sched_end(d->sc, a);
    desk_close(d);
}

static void drafts_take_no_page_from_anybody(void)
{
    struct desk *d = desk_open(5, 2, 200, 64);
    seq_id a = add(d, 0, 0, 2 * PAGE_TOKENS), b = add(d, 0, 0, PAGE_TOKENS);
    step(d, 0);
    EXPECT_EQ(sched_seq(d->sc, b)->n_tokens, PAGE_TOKENS + 1);
    sched_plan(d->sc, 0, &d->plan); /* both need a page more: the last two */
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
    desk_close(d);
}

static void drafts_keep_to_rows_logits_chunk_and_credits(void)
{
    struct desk *d = desk_open(50, 2, 40, 4);
    seq_id a = add(d, 0, 0, 1), b = add(d, 0, 0, 1);

    step(d, 0);
    sched_plan(d->sc, 0, &d->plan);
    EXPECT_EQ(sched_extend(d->sc, &d->plan, 0, 100), 3); /* the chunk is four rows */
    EXPECT_EQ(sched_extend(d->sc, &d->plan, 0, 100), 0);
    sched_seq(d->sc, d->plan.runs[1].seq)->credits = 3;
    EXPECT_EQ(sched_extend(d->sc, &d->plan, 1, 100), 2); /* an event for each of three logits */
    EXPECT_EQ(d->plan.n_rows, 7);
    sched_trim(d->sc, a);
    sched_trim(d->sc, b);
    sched_end(d->sc, a);
    sched_end(d->sc, b);
    desk_close(d);
}

/* ---- short prompts beside those that decode */

/* n decode; a step of one of them takes ten times what a row adds. */
static struct desk *desk_that_rides(double stretch, double short_stretch, int n)
{
    struct desk *d = desk_open(90, 8, 200, 100);
    struct err e;

    sched_free(d->sc);
    d->l.stretch = stretch;
    d->l.short_stretch = short_stretch;
    EXPECT_EQ(sched_new(&d->sc, d->pool, &d->l, &e), 0);
    for (int i = 0; i < n; i++)
        add(d, 0, 9, 1);
    step(d, 0);
    sched_set_cost(d->sc, &(struct cost){ .fixed = 9, .per_row = 1 });
    return d;
}

static void end_all(struct desk *d)
{
    for (uint32_t i = 0; i < d->n_added; i++)
        sched_end(d->sc, (seq_id){ i });
    desk_close(d);
}

static void short_prompts_go_one_after_the_other(void)
{
    struct desk *d = desk_that_rides(1.4, 3, 1);
    seq_id a = add(d, 0, 0, 50), b = add(d, 0, 0, 50);

    for (int i = 0; i < 2; i++) {
        step(d, 0);
        EXPECT(rows_of(d, a) == 20 && rows_of(d, b) == 0);
    }
    step(d, 0);
    EXPECT(rows_of(d, a) == 10 && rows_of(d, b) == 10);
    seq_id brief = add(d, 0, 0, 3), other = add(d, 0, 0, 50);
    step(d, 0); /* two decode now; a newcomer has what is left */
    EXPECT(rows_of(d, b) == 19 && rows_of(d, brief) + rows_of(d, other) == 0);
    step(d, 0);
    EXPECT(rows_of(d, brief) == 3 && rows_of(d, b) == 16 && rows_of(d, other) == 0);
    end_all(d);
}

static void a_short_prompt_makes_no_step_longer_than_it_may(void)
{
    static const struct {
        double stretch, short_stretch;
        int n, rows;
    } cases[] = { { 1.4, 3, 1, 20 }, { 1.4, 3, 5, 16 }, { 1.4, 2, 5, 14 }, { 1.5, 1, 5, 7 },
        { 3, 2, 1, 20 }, { 1.4, 0, 1, 50 } };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct desk *d = desk_that_rides(cases[i].stretch, cases[i].short_stretch, cases[i].n);
        seq_id a = add(d, 0, 0, 50);
        step(d, 0);
        EXPECT_EQ(rows_of(d, a), cases[i].rows);
        end_all(d);
    }
}

/* Nothing decodes: who is first is computed first, and those that fit into its step. */
static void a_first_prompt_does_not_wait_for_the_next(void)
{
    struct desk *d = desk_open(90, 8, 200, 100);
    struct err e;

    sched_free(d->sc);
    d->l.stretch = d->l.short_stretch = 1.4;
    d->l.pass_ns = 60;
    EXPECT_EQ(sched_new(&d->sc, d->pool, &d->l, &e), 0);
    sched_set_cost(d->sc, &(struct cost){ .fixed = 9, .per_row = 1 });
    seq_id a = add(d, 0, 0, 50), b = add(d, 0, 0, 50), c = add(d, 0, 0, 10);
    step(d, 0);
    EXPECT(rows_of(d, a) == 50 && rows_of(d, b) == 0 && rows_of(d, c) == 10);
    end_all(d);
}

/* ---- pauses */

static struct desk *desk_with_layers(int n_layers, double pass_ns)
{
    struct desk *d = desk_open(90, 4, 200, 100);
    struct err e;

    sched_free(d->sc);
    d->l.stretch = 1.4;
    d->l.short_stretch = 1.4;
    d->l.n_layers = n_layers;
    d->l.max_paused = 100;
    d->l.pass_ns = pass_ns;
    EXPECT_EQ(sched_new(&d->sc, d->pool, &d->l, &e), 0);
    return d;
}

static const struct plan_run *run_of(const struct desk *d, seq_id id)
{
    int i = 0;

    while (i < d->plan.n_runs && d->plan.runs[i].seq.i != id.i)
        i++;
    EXPECT(i < d->plan.n_runs);
    return &d->plan.runs[i];
}

/* A row takes ten times what decoding does: it passes layer by layer, and the next after it. */
static void a_row_that_is_too_long_pauses_behind_each_layer(void)
{
    struct desk *d = desk_with_layers(4, 0);
    seq_id a = add(d, 0, 0, 1), b;

    step(d, 0);
    b = add(d, 0, 0, 3);
    sched_set_cost(d->sc, &(struct cost){ .per_row = 10 });
    for (int row = 0; row < 2; row++)
        for (int layer = 0; layer < 4; layer++) {
            step(d, 0);
            const struct plan_run *r = run_of(d, b);
            EXPECT_EQ(rows_of(d, a), 1);
            EXPECT(r->pos == row && r->n == 1 && r->n_logits == 0 && !r->is_whole);
            EXPECT(r->from_layer == layer && r->end_layer == layer + 1);
        }
    step(d, 0); /* the last is like any other that decodes */
    EXPECT(run_of(d, b)->is_whole && run_of(d, b)->end_layer == 0);
    sched_end(d->sc, a), sched_end(d->sc, b);
    desk_close(d);
}

static void rows_that_are_scored_pause_too(void)
{
    struct desk *d = desk_with_layers(4, 25);
    struct seq_spec spec = {
        .n_prompt = 20, .deadline_ns = UINT64_MAX, .credits = 12, .pages = d->pages[0]
    };
    seq_id a = sched_add(d->sc, 0, &spec);

    sched_set_cost(d->sc, &(struct cost){ .per_row = 4 }); /* a layer of 12 rows takes as many */
    step(d, 0);
    EXPECT(run_of(d, a)->n == 12 && run_of(d, a)->n_logits == 0 && run_of(d, a)->end_layer == 2);
    step(d, 0);
    EXPECT(run_of(d, a)->n == 12 && run_of(d, a)->n_logits == 12);
    EXPECT(run_of(d, a)->from_layer == 2 && run_of(d, a)->end_layer == 4);
    EXPECT(!run_of(d, a)->is_whole && sched_seq(d->sc, a)->n_kv == 12);
    sched_end(d->sc, a);
    desk_close(d);
}

static void a_pause_that_was_interrupted_is_where_it_was(void)
{
    struct desk *d = desk_with_layers(4, 25);
    seq_id a = add(d, 0, 0, 20);

    sched_set_cost(d->sc, &(struct cost){ .per_row = 2 }); /* a layer of all takes 10 */
    step(d, 0);
    EXPECT(run_of(d, a)->n == 20 && run_of(d, a)->end_layer == 2);
    sched_plan(d->sc, 0, &d->plan); /* and not committed */
    EXPECT(run_of(d, a)->from_layer == 2 && run_of(d, a)->end_layer == 4);
    step(d, 0);
    EXPECT(run_of(d, a)->from_layer == 2 && run_of(d, a)->end_layer == 4);
    EXPECT(run_of(d, a)->is_whole && run_of(d, a)->n_logits == 1);
    EXPECT_EQ(sched_seq(d->sc, a)->n_kv, 20);
    sched_end(d->sc, a);
    desk_close(d);
}

static void a_pause_is_lost_when_its_sequence_does_not_run(void)
{
    struct desk *d = desk_with_layers(4, 25);
    struct sched_counts n;
    seq_id a = add(d, 0, 0, 20);

    sched_set_cost(d->sc, &(struct cost){ .per_row = 2 });
    step(d, 0);
    EXPECT_EQ(sched_seq(d->sc, a)->layer, 2);
    sched_park(d->sc, a, 0);
    sched_unpark(d->sc, a, 0);
    step(d, 0);
    EXPECT(run_of(d, a)->from_layer == 0 && run_of(d, a)->end_layer == 2);
    sched_end(d->sc, a); /* while it is paused */
    seq_id b = add(d, 0, 0, 20);
    step(d, 0);
    EXPECT(run_of(d, b)->from_layer == 0 && run_of(d, b)->end_layer == 2);
    sched_counts(d->sc, &n);
    EXPECT(n.pauses == 3 && n.pauses_lost == 2);
    sched_end(d->sc, b);
    desk_close(d);
}

/* The higher one gets the place, and keeps it; the lower one begins again behind it. */
static void a_pause_is_lost_to_who_is_higher(void)
{
    struct desk *d = desk_with_layers(4, 0);
    struct sched_counts n;
    seq_id a = add(d, 0, 0, 1);

    step(d, 0);
    sched_set_cost(d->sc, &(struct cost){ .per_row = 10 });
    seq_id low = add(d, 0, 1, 3);
    step(d, 0);
    EXPECT_EQ(run_of(d, low)->end_layer, 1);
    seq_id high = add(d, 0, 2, 3);
    step(d, 0); /* comes in, and finds no time */
    EXPECT(run_of(d, low)->from_layer == 1 && rows_of(d, high) == 0);
    step(d, 0);
    EXPECT(run_of(d, high)->from_layer == 0 && rows_of(d, low) == 0);
    for (int i = 0; i < 7; i++)
        step(d, 0);
    EXPECT(run_of(d, high)->end_layer == 4 && run_of(d, high)->pos == 1 && rows_of(d, low) == 0);
    step(d, 0);
    EXPECT(run_of(d, high)->is_whole && run_of(d, low)->from_layer == 0);
    sched_counts(d->sc, &n);
    EXPECT_EQ(n.pauses_lost, 1u);
    sched_end(d->sc, a), sched_end(d->sc, low), sched_end(d->sc, high);
    desk_close(d);
}

TESTS(TEST(short_prompts_go_one_after_the_other),
    TEST(a_short_prompt_makes_no_step_longer_than_it_may),
    TEST(a_first_prompt_does_not_wait_for_the_next),
    TEST(a_row_that_is_too_long_pauses_behind_each_layer), TEST(rows_that_are_scored_pause_too),
    TEST(a_pause_that_was_interrupted_is_where_it_was),
    TEST(a_pause_is_lost_when_its_sequence_does_not_run), TEST(a_pause_is_lost_to_who_is_higher),
    TEST(drafts_get_what_is_left_over_and_go_back), TEST(drafts_take_no_page_from_anybody),
    TEST(drafts_keep_to_rows_logits_chunk_and_credits),
    TEST(decode_goes_before_chunks_and_chunks_before_newcomers),
    TEST(a_higher_priority_starts_first_and_equals_in_their_order),
    TEST(two_seconds_of_waiting_are_worth_one_priority), TEST(nobody_waits_for_ever),
    TEST(age_counts_all_waits_together), TEST(the_lowest_is_preempted_and_comes_back),
    TEST(a_large_prompt_waits_for_room_and_is_not_overtaken),
    TEST(those_who_do_not_run_give_their_pages_first),
    TEST(a_fork_shares_the_prompt_and_copies_its_last_page),
    TEST(a_page_that_others_go_on_from_is_not_forgotten),
    TEST(an_interrupted_step_is_planned_again), TEST(rows_of_a_preempted_sequence_go_to_others),
    TEST(prompt_scores_stay_within_credits_and_logits),
    TEST(delays_and_deadlines_come_in_their_order), TEST(missing_memory_is_an_error))
