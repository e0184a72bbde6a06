/* Queue of waiting sequences compared with a linear search, and its cost. */
#include "engine/sched/waitq.h"
#include "base/mem.h"
#include "base/rng.h"
#include "support/check.h"

#include <math.h>

enum { AGE = 500 };

static bool counts(const struct seq *s, bool with_fresh)
{
    return s->state == SEQ_WAITING && (with_fresh || !s->is_fresh);
}

static bool is_before(const struct seq *a, const struct seq *b, uint64_t now, bool is_in_tenant)
{
    struct seq x = *a, y = *b;

    if (is_in_tenant) {
        x.priority = x.tenant_priority;
        y.priority = y.tenant_priority;
    }
    return seq_is_before(&x, &y, now, AGE);
}

/* Reference: the first sequence by rank and arrival, of all tenants or of one. */
static uint32_t first_of(
    const struct seq *seqs, uint32_t n, uint64_t now, bool with_fresh, int64_t tenant)
{
    uint32_t best = NO_SEQ;

    for (uint32_t i = 0; i < n; i++)
        if (counts(&seqs[i], with_fresh) && (tenant < 0 || seqs[i].tenant == tenant) &&
            (best == NO_SEQ || is_before(&seqs[i], &seqs[best], now, tenant >= 0)))
            best = i;
    return best;
}

static double least_served(
    const struct seq *seqs, uint32_t n, const struct tenants *ts, bool with_fresh, int priority)
{
    double least = INFINITY;

    for (uint32_t i = 0; i < n; i++)
        if (counts(&seqs[i], with_fresh) && seqs[i].priority == priority)
            least = MIN(least, ts->t[seqs[i].tenant].served);
    return least;
}

/* Expects the order that waitq.h documents, over all waiting sequences. */
static void expect_first(struct waitq *q, uint32_t n, uint64_t now, bool with_fresh)
{
    uint32_t got = waitq_first(q, now, with_fresh);
    uint32_t top = first_of(q->seqs, n, now, with_fresh, -1);
    bool is_in_turn = false;

    EXPECT_EQ(got == NO_SEQ, top == NO_SEQ);
    if (got == NO_SEQ)
        return;
    uint32_t tenant = q->seqs[got].tenant;
    int priority = q->seqs[top].priority;
    EXPECT_EQ(
        q->tenants->t[tenant].served, least_served(q->seqs, n, q->tenants, with_fresh, priority));
    for (uint32_t i = 0; i < n; i++)
        is_in_turn |= counts(&q->seqs[i], with_fresh) && q->seqs[i].tenant == tenant &&
                      q->seqs[i].priority == priority;
    EXPECT(is_in_turn);
    EXPECT_EQ(got, first_of(q->seqs, n, now, with_fresh, tenant));
}

/* Adds a sequence, or removes and adds it again: fresh or not, with its own rank or by age. */
static void add_or_requeue(
    struct waitq *q, struct rng *r, uint32_t at, uint64_t now, uint64_t n_tenants)
{
    struct seq *s = &q->seqs[at];
    struct tenants *ts = q->tenants;

    if (s->state == SEQ_WAITING) {
        waitq_remove(q, at);
        s->waited_ns += now - s->since_ns;
        s->state = SEQ_RUNNING;
        tenants_charge(ts, s->tenant, (double)rng_below(r, 4));
        return;
    }
    bool is_new = s->state == SEQ_FREE || rng_below(r, 2);
    if (is_new) {
        static uint64_t n_orders;
        if (s->state != SEQ_FREE)
            tenants_leave(ts, s->tenant);
        s->tenant = tenants_enter(ts, rng_below(r, n_tenants), 1);
        s->priority = rng_below(r, 10) ? (int)rng_below(r, 5) - 2 : (int)(uint32_t)rng_next(r);
        s->tenant_priority = rng_below(r, 3) ? s->priority : MAX(s->priority, 1000000);
        s->order = n_orders++;
        s->waited_ns = 0;
    }
    s->state = SEQ_WAITING;
    s->is_fresh = is_new;
    s->since_ns = now;
    waitq_push(q, at);
}

static void first_sequence_equals_a_linear_search(void)
{
    enum { N = 60 };
    static struct seq seqs[N];

    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct rng r = { .key = seed };
        struct tenants ts;
        struct waitq q;
        struct err e;
        uint64_t now = 0;
        memset(seqs, 0, sizeof(seqs));
        EXPECT_EQ(tenants_init(&ts, N, &e), 0);
        EXPECT_EQ(waitq_init(&q, seqs, N, &ts, AGE, &e), 0);
        for (int i = 0; i < 600; i++) {
            uint32_t n = 0;
            now += rng_below(&r, 100);
            add_or_requeue(&q, &r, (uint32_t)rng_below(&r, N), now, 1 + seed % 6);
            for (uint32_t j = 0; j < N; j++)
                n += seqs[j].state == SEQ_WAITING;
            EXPECT_EQ(q.n, n);
            expect_first(&q, N, now, true);
            expect_first(&q, N, now, false);
        }
        waitq_clear(&q);
        tenants_clear(&ts);
    }
}

static void equal_tenants_alternate(void)
{
    static struct seq seqs[12];
    struct tenants ts;
    struct waitq q;
    struct err e;

    EXPECT_EQ(tenants_init(&ts, 12, &e), 0);
    EXPECT_EQ(waitq_init(&q, seqs, 12, &ts, AGE, &e), 0);
    for (uint32_t i = 0; i < 12; i++) { /* nine of the first tenant arrive before all others */
        seqs[i] = (struct seq){ .state = SEQ_WAITING, .is_fresh = true, .order = i };
        seqs[i].tenant = tenants_enter(&ts, i < 9 ? 1 : i, 1);
        waitq_push(&q, i);
    }
    const uint32_t want[] = { 0, 9, 10, 11, 1, 2 };
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        EXPECT_EQ(waitq_first(&q, 0, true), want[i]);
        waitq_remove(&q, want[i]);
        seqs[want[i]].state = SEQ_RUNNING;
    }
    waitq_clear(&q);
    tenants_clear(&ts);
}

/* ---- cost, in comparisons */

struct load {
    uint32_t n_waiting, n_tenants;
    int n_priorities, n_back_of_10, n_served; /* tenants served between two operations */
};

static void add_random(
    struct waitq *q, struct rng *r, uint32_t id, const struct load *l, uint64_t now)
{
    static uint64_t n_orders;

    q->seqs[id] = (struct seq){ .state = SEQ_WAITING,
        .is_fresh = (int)rng_below(r, 10) >= l->n_back_of_10,
        .priority = (int)rng_below(r, (uint64_t)l->n_priorities),
        .order = n_orders++,
        .since_ns = now,
        .tenant = tenants_enter(q->tenants, rng_below(r, l->n_tenants), 1) };
    waitq_push(q, id);
}

/* Removes the first sequence and adds another while all tenants are served. Returns the mean
 * number of comparisons, and the maximum. */
static double count_comparisons(const struct load *l, uint64_t *most)
{
    enum { ROUNDS = 2000 };
    struct seq *seqs = try_aligned(_Alignof(struct seq), l->n_waiting * sizeof(*seqs));
    struct rng r = { .key = 1 };
    uint64_t now = 0, all = 0;
    struct tenants ts;
    struct waitq q;
    struct err e;

    EXPECT(seqs);
    memset(seqs, 0, l->n_waiting * sizeof(*seqs));
    EXPECT_EQ(tenants_init(&ts, l->n_waiting, &e), 0);
    EXPECT_EQ(waitq_init(&q, seqs, l->n_waiting, &ts, 2000000000, &e), 0);
    for (uint32_t i = 0; i < l->n_waiting; i++)
        add_random(&q, &r, i, l, now += 100000);
    *most = 0;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t before = waitq_n_visited(&q);
        now += 5000000;
        uint32_t id = waitq_first(&q, now, true), tenant = seqs[id].tenant;
        waitq_remove(&q, id);
        tenants_charge(&ts, tenant, 100);
        for (int j = 0; j < l->n_served; j++)
            tenants_charge(&ts, (uint32_t)rng_below(&r, ts.n), 2);
        tenants_leave(&ts, tenant);
        add_random(&q, &r, id, l, now);
        uint64_t n = waitq_n_visited(&q) - before;
        *most = MAX(*most, n);
        all += n;
    }
    waitq_clear(&q);
    tenants_clear(&ts);
    mem_free(seqs);
    return (double)all / ROUNDS;
}

/* The cost depends on the logarithm of the numbers of sequences, tenants and priorities. In
 * addition each served tenant may have to be sorted in again once. */
static void operations_cost_at_most_logarithms(void)
{
    static const struct load loads[] = { { 64, 1, 1, 0, 0 }, { 4096, 1, 1, 0, 0 },
        { 4096, 64, 4, 0, 64 }, { 4096, 4096, 1, 0, 256 }, { 4096, 4096, 4, 3, 256 },
        { 4096, 256, 4, 0, 256 }, { 4096, 64, 4096, 5, 64 }, { 4096, 1, 4096, 0, 0 },
        { 65536, 65536, 65536, 5, 256 } };

    for (size_t i = 0; i < ARRAY_LEN(loads); i++) {
        const struct load *l = &loads[i];
        uint64_t most;
        double mean = count_comparisons(l, &most), log2_n = 0;
        for (uint32_t n = l->n_waiting; n > 1; n /= 2)
            log2_n++;
        printf("%u wait, %u tenants, %d priorities, %d served: %.0f comparisons, %llu at most\n",
            l->n_waiting, l->n_tenants, l->n_priorities, l->n_served, mean,
            (unsigned long long)most);
        EXPECT(mean < 30 * log2_n + 10 * l->n_served);
    }
}

#ifdef TESTING
static void missing_memory_is_an_error(void)
{
    struct seq seqs[4];
    struct tenants ts;
    struct waitq q;
    struct err e;

    EXPECT_EQ(tenants_init(&ts, 4, &e), 0);
    for (uint64_t nth = 1; nth <= 7; nth++) {
        mem_fail_after(nth);
        EXPECT_EQ(waitq_init(&q, seqs, 4, &ts, AGE, &e), -1);
        EXPECT(e.code == ERR_MEMORY);
    }
    mem_fail_after(0);
    tenants_clear(&ts);
}
#else
static void missing_memory_is_an_error(void)
{
}
#endif

TESTS(TEST(first_sequence_equals_a_linear_search), TEST(equal_tenants_alternate),
    TEST(operations_cost_at_most_logarithms), TEST(missing_memory_is_an_error))
