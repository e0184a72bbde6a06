#include "base/err.h"
#include "base/fault.h"
#include "base/rng.h"
#include "../check.h"
#include "kernel/team.h"

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

TESTS(TEST(barriers_order_plain_memory), TEST(pieces_are_handed_out_once_each),
    TEST(every_member_does_every_job), TEST(a_team_of_none_is_refused),
    TEST(a_team_that_cannot_open_leaves_nothing))
