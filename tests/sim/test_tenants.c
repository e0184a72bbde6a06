/* Fairness of two tenants with backlogs: the difference of their service stays below twice the
 * larger of the largest request and a full batch, also if those of one request the highest
 * priority, which their key does not have. Random traces, scheduler only, tokens counted.
 * TENANT_TRACES sets the number of traces; `test_tenants SEED` runs one. */
#include "base/mem.h"
#include "base/rng.h"
#include "support/check.h"
#include "engine/sched/sched.h"
#include "engine/sched/tenants.h"

#include <stdlib.h>

enum { MAX_SEQS = 256, MAX_PAGES = 16, N_TENANTS = 3 };

struct job {
    seq_id id;
    int tenant, n_prompt, n_out, n_done;
    page_id pages[MAX_PAGES];
};

struct trace {
    struct rng r;
    struct page_pool *pool;
    struct sched *sc;
    struct step_plan plan;
    struct job jobs[MAX_SEQS];
    int longest_prompt, longest_out;
    int backlog[N_TENANTS]; /* waiting requests of each tenant in its busy periods */
    bool is_busy[N_TENANTS];
    int extra_priority[N_TENANTS]; /* requested priority, less that of the key */
    double served[N_TENANTS];      /* counted here, from the computed rows */
    /* range of the difference of the first two tenants since both have a backlog */
    double low, high;
    bool has_both;
    double batch_tokens; /* largest number of tokens of a running batch */
    uint64_t now;
};

static int between(struct rng *r, int from, int to)
{
    return from + (int)rng_below(r, (uint64_t)(to - from + 1));
}

static int n_waiting(struct trace *t, int tenant)
{
    int n = 0;

    for (int i = 0; i < MAX_SEQS; i++)
        if (t->jobs[i].id.i != SEQ_NONE.i && t->jobs[i].tenant == tenant)
            n += sched_seq(t->sc, t->jobs[i].id)->state == SEQ_WAITING;
    return n;
}

static void add_job(struct trace *t, int tenant)
{
    for (int i = 0; i < MAX_SEQS; i++) {
        struct job *j = &t->jobs[i];
        if (j->id.i != SEQ_NONE.i)
            continue;
        /* One tenant sends small requests, the other large ones. */
        int scale = tenant == 0 ? 4 : 1;
        *j = (struct job){ .tenant = tenant,
            .n_prompt = between(&t->r, 1, MAX(t->longest_prompt / scale, 1)),
            .n_out = between(&t->r, 1, MAX(t->longest_out / scale, 1)) };
        const struct gen_input in = { .cache_prompt = true,
            .tenant = (uint64_t)tenant + 1,
            .n_prompt = j->n_prompt,
            .extra_priority = t->extra_priority[tenant] };
        struct seq_spec spec = {
            .in = &in, .score_from = j->n_prompt - 1, .credits = 100000, .pages = j->pages
        };
        j->id = sched_add(t->sc, t->now, &spec);
        return;
    }
}

static struct job *job_of(struct trace *t, seq_id id)
{
    for (int i = 0; i < MAX_SEQS; i++)
        if (t->jobs[i].id.i == id.i)
            return &t->jobs[i];
    CHECK(!"a job");
}

static void serve(struct trace *t, const struct plan_run *r)
{
    struct job *j = job_of(t, r->seq);
    int n_prompt = MAX(MIN(r->pos + r->n, j->n_prompt) - r->pos, 0);

    t->served[j->tenant] += n_prompt * CHARGE_PROMPT + (r->n - n_prompt) * CHARGE_OUTPUT;
    if (!r->yields_token)
        return;
    if (++j->n_done < j->n_out) {
        sched_push(t->sc, j->id, 1);
        return;
    }
    sched_end(t->sc, j->id);
    j->id = SEQ_NONE;
}

static void check_bound(struct trace *t)
{
    double difference = t->served[0] - t->served[1];
    double most = MAX((double)CHARGE_PROMPT * t->longest_prompt, CHARGE_OUTPUT * t->batch_tokens);

    if (!n_waiting(t, 0) || !n_waiting(t, 1)) {
        t->has_both = false;
        return;
    }
    if (!t->has_both)
        t->low = t->high = difference;
    t->has_both = true;
    t->low = MIN(t->low, difference);
    t->high = MAX(t->high, difference);
    EXPECT(t->high - t->low <= 2 * most);
}

static void run_step(struct trace *t)
{
    double tokens = 0;

    for (int i = 0; i < N_TENANTS; i++) {
        if (rng_below(&t->r, 60) == 0)
            t->is_busy[i] = !t->is_busy[i];
        while (t->is_busy[i] && n_waiting(t, i) < t->backlog[i])
            add_job(t, i);
    }
    sched_plan(t->sc, t->now, &t->plan);
    for (int i = 0; i < MAX_SEQS; i++)
        if (t->jobs[i].id.i != SEQ_NONE.i && sched_seq(t->sc, t->jobs[i].id)->state == SEQ_RUNNING)
            tokens += t->jobs[i].n_prompt + t->jobs[i].n_out;
    t->batch_tokens = MAX(t->batch_tokens, tokens);
    sched_commit(t->sc, &t->plan);
    for (int i = 0; i < t->plan.n_runs; i++)
        serve(t, &t->plan.runs[i]);
    check_bound(t);
    t->now += rng_below(&t->r, 400000000);
}

static void run_trace(uint64_t seed)
{
    static struct trace t;
    struct err e;

    memset(&t, 0, sizeof(t));
    t.r.key = seed;
    for (int i = 0; i < MAX_SEQS; i++)
        t.jobs[i].id = SEQ_NONE;
    t.longest_prompt = between(&t.r, 1, MAX_PAGES * PAGE_TOKENS / 2);
    t.longest_out = between(&t.r, 1, MIN(MAX_PAGES * PAGE_TOKENS / 2, 60));
    for (int i = 0; i < N_TENANTS; i++) {
        t.backlog[i] = between(&t.r, 1, 20);
        t.is_busy[i] = rng_below(&t.r, 2);
        t.extra_priority[i] = rng_below(&t.r, 2) ? 1000000 : 0;
    }
    struct sched_limits l = { .max_batch = between(&t.r, 1, 8),
        .max_rows = 600,
        .max_logits = 600,
        .prefill_chunk = between(&t.r, 1, 300),
        .max_started = 8,
        .max_seqs = MAX_SEQS,
        .age_ns = 2000000000u };
    EXPECT_EQ(page_pool_new(&t.pool, MAX_SEQS * MAX_PAGES, &e), 0);
    EXPECT_EQ(sched_new(&t.sc, t.pool, &l, &e), 0);
    step_plan_init(&t.plan, &l);
    for (int i = 0; i < 300; i++)
        run_step(&t);
    for (int i = 0; i < MAX_SEQS; i++)
        if (t.jobs[i].id.i != SEQ_NONE.i)
            sched_end(t.sc, t.jobs[i].id);
    step_plan_clear(&t.plan);
    sched_free(t.sc);
    page_pool_free(t.pool);
}

static uint64_t only_seed, running_seed;

#ifdef TESTING
static uint64_t n_traces = 100;
#else
static uint64_t n_traces = 2000;
#endif

static void service_difference_of_tenants_is_bounded(void)
{
    uint64_t first = only_seed ? only_seed : 1, last = only_seed ? only_seed : n_traces;

    for (running_seed = first; running_seed <= last; running_seed++)
        run_trace(running_seed);
    running_seed = 0;
    printf("%lu traces\n", (unsigned long)(last - first + 1));
}

int main(int argc, char **argv)
{
    static const struct check_test tests[] = { TEST(service_difference_of_tenants_is_bounded) };

    if (argc > 1)
        only_seed = strtoull(argv[1], NULL, 10);
    if (getenv("TENANT_TRACES"))
        n_traces = strtoull(getenv("TENANT_TRACES"), NULL, 10);
    int failed = check_main(tests, 1, 1, argv);
    if (running_seed)
        fprintf(stderr, "test_tenants: seed %lu\n", (unsigned long)running_seed);
    return failed;
}
