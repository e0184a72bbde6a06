#include "base/err.h"
#include "base/fault.h"
#include "base/rng.h"
#include "../check.h"
#include "os/team.h"
#include "os/clock.h"
#include "os/thread.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <time.h>

enum { MAX_MEMBERS = 4, PHASES = 1500 };

struct relay {
    struct team *team;
    int cells[MAX_MEMBERS]; /* plain memory: only barriers order it */
    long total;
    int took[MAX_MEMBERS];
    int wrong[MAX_MEMBERS]; /* a failed check may only be reported by the test's own thread */
};

/* Every member writes its cell, then after a barrier reads everybody's. */
static void pass_on(void *arg, int member, int n)
{
    struct relay *r = arg;

    for (int phase = 1; phase <= PHASES / n; phase++) {
        r->cells[member] = phase * (member + 1);
        team_barrier(r->team, member);
        for (int i = 0; i < n; i++)
            r->wrong[member] += r->cells[i] != phase * (i + 1);
        team_barrier(r->team, member);
    }
}

static void barriers_order_plain_memory(void)
{
    for (int n = 1; n <= MAX_MEMBERS; n++) {
        struct relay r = { 0 };
        struct err e;
        EXPECT_EQ(team_open(&r.team, n, &e), 0);
        EXPECT_EQ(team_size(r.team), n);
        for (int job = 0; job < 3; job++)
            team_run(r.team, pass_on, &r);
        for (int i = 0; i < n; i++)
            EXPECT_EQ(r.wrong[i], 0);
        team_close(r.team);
    }
}

enum { PIECES = 37 };

static void share(void *arg, int member, int n)
{
    struct relay *r = arg;

    for (int phase = 0; phase < 50; phase++) {
        static int who[PIECES]; /* of this phase; cleared by member 0 between barriers */
        for (int i; (i = team_next(r->team)) < PIECES;)
            who[i] += member + 1;
        team_barrier(r->team, member);
        if (member == 0)
            for (int i = 0; i < PIECES; i++) {
                r->wrong[0] += who[i] < 1 || who[i] > n; /* one member, once */
                r->total++;
                who[i] = 0;
            }
        team_barrier(r->team, member);
    }
}

static void pieces_are_handed_out_once_each(void)
{
    for (int n = 1; n <= MAX_MEMBERS; n++) {
        struct relay r = { 0 };
        struct err e;
        EXPECT_EQ(team_open(&r.team, n, &e), 0);
        team_run(r.team, share, &r);
        team_run(r.team, share, &r);
        EXPECT_EQ(r.total, 2L * 50 * PIECES);
        EXPECT_EQ(r.wrong[0], 0);
        team_close(r.team);
    }
}

enum { N_JOBS = 600 };

static void count(void *arg, int member, int n)
{
    struct relay *r = arg;
    r->took[member]++;
}

static void every_member_does_every_job(void)
{
    struct rng rng = { .key = 7 };

    for (int n = 1; n <= MAX_MEMBERS; n++) {
        struct relay r = { 0 };
        struct err e;
        EXPECT_EQ(team_open(&r.team, n, &e), 0);
        for (int job = 0; job < N_JOBS; job++) {
            /* Gaps of very different lengths, so that members are found spinning and asleep. */
            volatile uint64_t idle = job % 100 ? rng_below(&rng, 2000) : 200000;
            while (idle)
                idle--;
            team_run(r.team, count, &r);
        }
        team_close(r.team);
        for (int i = 0; i < n; i++)
            EXPECT_EQ(r.took[i], N_JOBS);
    }
}

static void a_team_of_none_is_refused(void)
{
    struct team *t;
    struct err e;

    EXPECT_EQ(team_open(&t, 0, &e), -1);
    EXPECT_EQ((int)e.code, ERR_RANGE);
    EXPECT_EQ(team_open(&t, 1 << 20, &e), -1);
}

/* Whatever fails on the way, nothing is left behind (the address sanitizer looks). */
static void a_team_that_cannot_open_leaves_nothing(void)
{
#ifndef TESTING
    printf("skipped: nothing can be made to fail in a release build\n");
    return;
#endif
    static const enum fault_site sites[] = { FAULT_ALLOC, FAULT_THREAD };

    for (int site = 0; site < 2; site++)
        for (uint64_t nth = 1; nth <= (site ? 3 : 2); nth++) {
            struct team *t = NULL;
            struct err e;
            fault_arm(sites[site], nth);
            EXPECT_EQ(team_open(&t, 4, &e), -1);
            EXPECT(!t && e.msg[0]);
        }
}

/* ---- what waiting costs */

/* Member 0 works a while before each barrier, the others only wait. */
struct waiting {
    struct team *team;
    int n_barriers, work_us;
    bool is_last[2];               /* of this barrier and of the next; by member 0 before it */
    const _Atomic bool *has_ended; /* if not NULL, until then */
    _Atomic bool has_begun;
    _Atomic uint64_t cpu_ns; /* of those who wait, together */
    _Atomic long n_sleeps;
};

static uint64_t my_cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static long my_sleeps(void)
{
    struct rusage u;
    getrusage(RUSAGE_THREAD, &u);
    return u.ru_nvcsw;
}

static void work_or_wait(void *arg, int member, int n)
{
    struct waiting *w = arg;
    uint64_t cpu = my_cpu_ns();
    long sleeps = my_sleeps();

    (void)n;
    bool is_last = false;
    for (int i = 1; !is_last; i++) {
        if (member == 0) {
            uint64_t until = clock_ns() + (uint64_t)w->work_us * 1000;
            while (clock_ns() < until)
                ;
            w->is_last[i % 2] = w->has_ended ? atomic_load(w->has_ended) : i == w->n_barriers;
            atomic_store(&w->has_begun, true);
        }
        team_barrier(w->team, member);
        is_last = w->is_last[i % 2];
    }
    if (member > 0) {
        atomic_fetch_add(&w->cpu_ns, my_cpu_ns() - cpu);
        atomic_fetch_add(&w->n_sleeps, my_sleeps() - sleeps);
    }
}

static void open_waiting(struct waiting *w, int n, int n_barriers, int work_us)
{
    struct err e;

    *w = (struct waiting){ .n_barriers = n_barriers, .work_us = work_us };
    EXPECT_EQ(team_open(&w->team, n, &e), 0);
}

/* Microseconds of processor that one who waits takes at each barrier. */
static double waits_for(struct waiting *w)
{
    int n_waiting = team_size(w->team) - 1;

    atomic_store(&w->cpu_ns, 0);
    atomic_store(&w->n_sleeps, 0);
    team_run(w->team, work_or_wait, w);
    return (double)atomic_load(&w->cpu_ns) * 1e-3 / n_waiting / w->n_barriers;
}

enum {
    SHORT_US = 40, /* less than a member spins */
    LONG_US = 150,
    LONG_MOST_US = 35, /* less than it spins if it always does */
    AT_FIRST = 3,      /* barriers before a member can have learnt that spinning is in vain */
};

/* The same of teams that have just been opened. */
static double waits_at_first(int n_members)
{
    enum { TEAMS = 40 };
    double us = 0;

    for (int i = 0; i < TEAMS; i++) {
        struct waiting w;
        open_waiting(&w, n_members, AT_FIRST, SHORT_US);
        us += waits_for(&w) / TEAMS;
        team_close(w.team);
    }
    return us;
}

/* The best of some, as the machine may be busy. */
static void expect_no_spinning(int n_members)
{
    const double most = SHORT_US * 2 / 3.0;
    double us = SHORT_US;

    for (int i = 0; i < 20 && us >= most; i++)
        us = waits_at_first(n_members);
    printf("%.1f of %d us\n", us, SHORT_US);
    EXPECT(us < most);
}

static void more_members_than_processors_do_not_spin(void)
{
    expect_no_spinning(thread_count_online() + 1);
}

static void *run_beside(void *arg)
{
    struct waiting *w = arg;
    team_run(w->team, work_or_wait, w);
    return NULL;
}

/* Each has as many members as there are processors. */
static void two_teams_at_once_do_not_spin(void)
{
    const int n = MAX(thread_count_online(), 2);
    _Atomic bool has_ended = false;
    struct waiting other;
    pthread_t thread;
    struct err e;

    open_waiting(&other, n, 0, SHORT_US);
    other.has_ended = &has_ended;
    EXPECT_EQ(thread_start(&thread, "other", run_beside, &other, &e), 0);
    while (!atomic_load(&other.has_begun))
        sched_yield();
    expect_no_spinning(n);
    atomic_store(&has_ended, true);
    pthread_join(thread, NULL);
    team_close(other.team);
}

/* Nobody else takes a processor, but spinning has been in vain. */
static void members_who_wait_long_sleep(void)
{
    struct waiting w;
    double us = LONG_US;

    open_waiting(&w, 2, 200, LONG_US);
    for (int i = 0; i < 10 && us >= LONG_MOST_US; i++)
        us = waits_for(&w);
    printf("%.1f of %d us\n", us, LONG_US);
    EXPECT(us < LONG_MOST_US);
    team_close(w.team);
}

/* As soon as the others have ended, and though other teams are there; in one of many tries, as the
 * machine may be busy. */
static void short_waits_are_spun_through(void)
{
    enum { BARRIERS = 100 };
    const int n = thread_count_online();
    struct waiting other;
    long least = BARRIERS;

    if (n < 2) {
        printf("skipped: one processor\n");
        return;
    }
    open_waiting(&other, n, 3, SHORT_US);
    for (int i = 0; i < 300 && least > BARRIERS / 4; i++) {
        struct waiting one;
        open_waiting(&one, 2, BARRIERS, 5);
        waits_for(&other);
        waits_for(&one);
        least = MIN(least, atomic_load(&one.n_sleeps));
        team_close(one.team);
    }
    printf("%ld sleeps at %d barriers\n", least, BARRIERS);
    EXPECT(least <= BARRIERS / 4);
    team_close(other.team);
}

TESTS(TEST(barriers_order_plain_memory), TEST(pieces_are_handed_out_once_each),
    TEST(every_member_does_every_job), TEST(a_team_of_none_is_refused),
    TEST(a_team_that_cannot_open_leaves_nothing), TEST(more_members_than_processors_do_not_spin),
    TEST(two_teams_at_once_do_not_spin), TEST(members_who_wait_long_sleep),
    TEST(short_waits_are_spun_through))
