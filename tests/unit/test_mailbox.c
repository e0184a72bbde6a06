#include "../check.h"

#include "base/fault.h"
#include "base/mem.h"
#include "os/clock.h"
#include "os/mailbox.h"
#include "os/thread.h"

#include <poll.h>

static struct mailbox *opened(void)
{
    struct mailbox *m = NULL;
    struct err e;

    EXPECT_EQ(mailbox_open(&m, &e), 0);
    return m;
}

static bool is_readable(struct mailbox *m)
{
    struct pollfd p = { .fd = mailbox_fd(m), .events = POLLIN };

    return poll(&p, 1, 0) == 1;
}

static void messages_come_in_the_order_posted(void)
{
    struct mailbox *m = opened();
    struct msg msgs[5];

    EXPECT(!mailbox_drain(m));
    for (int i = 0; i < 5; i++) {
        msgs[i].kind = i;
        mailbox_post(m, &msgs[i]);
    }
    int n = 0;
    for (struct msg *at = mailbox_drain(m); at; at = at->next)
        EXPECT_EQ(at->kind, n++);
    EXPECT_EQ(n, 5);
    EXPECT(!mailbox_drain(m));
    mailbox_close(m);
}

static void a_chain_is_posted_as_one(void)
{
    struct mailbox *m = opened();
    struct msg a = { .kind = 1 }, b = { .kind = 2 }, c = { .kind = 3 };

    mailbox_post(m, &a);
    c.next = &b;
    b.next = &c; /* need not be set, so may be anything */
    mailbox_post_chain(m, &c, &b);
    struct msg *at = mailbox_drain(m);
    EXPECT(at == &a && a.next == &b && b.next == &c && !c.next);
    mailbox_close(m);
}

static void the_descriptor_is_readable_when_armed_and_messages_wait(void)
{
    struct mailbox *m = opened();
    struct msg a = { 0 }, b = { 0 };

    mailbox_post(m, &a);
    EXPECT(!is_readable(m)); /* nobody sleeps: no system call */
    EXPECT(!mailbox_arm(m)); /* and nobody may */
    EXPECT(mailbox_drain(m));
    for (int i = 0; i < 3; i++) {
        EXPECT(mailbox_arm(m));
        EXPECT(mailbox_arm(m)); /* again is nothing */
        EXPECT(!is_readable(m));
        mailbox_post(m, &a);
        EXPECT(is_readable(m));
        EXPECT(!mailbox_arm(m));
        mailbox_post(m, &b);
        struct msg *at = mailbox_drain(m);
        EXPECT(at == &a && a.next == &b && !b.next);
        EXPECT(!is_readable(m));
    }
    EXPECT(mailbox_arm(m));
    EXPECT(!mailbox_drain(m)); /* awake again, for another reason */
    mailbox_post(m, &a);
    EXPECT(!is_readable(m));
    EXPECT(mailbox_drain(m) == &a);
    mailbox_close(m);
}

static void what_is_quiet_wakes_nobody_before_there_is_much_of_it(void)
{
    struct mailbox *m = opened();
    struct msg a = { .kind = 1 }, b = { .kind = 2 }, many[MAILBOX_QUIET];

    EXPECT(mailbox_arm(m));
    mailbox_post_quiet(m, &a);
    EXPECT(!is_readable(m) && mailbox_arm(m));
    mailbox_post(m, &b); /* the first is not in its way */
    EXPECT(is_readable(m) && !mailbox_arm(m));
    EXPECT(mailbox_drain(m) == &a && a.next == &b && !b.next);
    EXPECT(!is_readable(m));
    EXPECT(mailbox_arm(m));
    mailbox_post_quiet(m, &a);
    EXPECT(mailbox_drain(m) == &a && !a.next); /* found by who looks */
    EXPECT(mailbox_arm(m));
    for (int i = 2; i < MAILBOX_QUIET; i++) {
        EXPECT(!is_readable(m));
        mailbox_post_quiet(m, &many[i]);
    }
    EXPECT(is_readable(m));
    mailbox_post(m, &b);
    EXPECT(mailbox_drain(m) == &many[2]);
    EXPECT(!is_readable(m) && !mailbox_drain(m));
    mailbox_close(m);
}

static void waiting_ends_at_the_deadline_or_with_a_message(void)
{
    struct mailbox *m = opened();
    struct msg a = { 0 };

    uint64_t start = clock_ns();
    mailbox_wait(m, start + 20000000);
    EXPECT(clock_ns() - start >= 20000000);
    mailbox_wait(m, 0); /* in the past */
    mailbox_post(m, &a);
    mailbox_wait(m, UINT64_MAX);
    EXPECT(mailbox_drain(m) == &a);
    mailbox_close(m);
}

enum { POSTERS = 4, PER_POSTER = 20000, CHAIN_MAX = 5 };

struct poster {
    struct mailbox *to;
    struct numbered {
        struct msg m;
        int from, number;
    } * all;
    pthread_t thread;
};

/* Singly and in chains, 1 to CHAIN_MAX at a time. */
static void *post_all(void *arg)
{
    struct poster *p = arg;

    for (int i = 0, n; i < PER_POSTER; i += n) {
        n = MIN(1 + i % CHAIN_MAX, PER_POSTER - i);
        for (int j = 1; j < n; j++)
            p->all[i + j].m.next = &p->all[i + j - 1].m;
        mailbox_post_chain(p->to, &p->all[i + n - 1].m, &p->all[i].m);
    }
    return NULL;
}

static void nothing_is_lost_between_threads_and_each_keeps_its_order(void)
{
    struct mailbox *m = opened();
    struct poster posters[POSTERS];
    int next[POSTERS] = { 0 };
    struct err e;

    for (int p = 0; p < POSTERS; p++) {
        posters[p].to = m;
        posters[p].all = xcalloc(PER_POSTER, sizeof(struct numbered));
        for (int i = 0; i < PER_POSTER; i++) {
            posters[p].all[i].from = p;
            posters[p].all[i].number = i;
        }
        EXPECT_EQ(thread_start(&posters[p].thread, "poster", post_all, &posters[p], &e), 0);
    }
    for (int got = 0, round = 0; got < POSTERS * PER_POSTER; round++) {
        if (round % 3 != 2) /* else it is drained while awake, and may be empty */
            mailbox_wait(m, clock_ns() + 60 * 1000000000ull);
        struct msg *at = mailbox_drain(m);
        EXPECT(at || round % 3 == 2); /* a wake-up was lost */
        for (; at; at = at->next, got++) {
            struct numbered *n = container_of(at, struct numbered, m);
            EXPECT_EQ(n->number, next[n->from]++);
        }
    }
    for (int p = 0; p < POSTERS; p++) {
        pthread_join(posters[p].thread, NULL);
        mem_free(posters[p].all);
    }
    EXPECT(!mailbox_drain(m));
    mailbox_close(m);
}

enum { BALLS = 3000 };

struct game { /* one ball at a time, thrown to a box that is closed once it was caught */
    struct mailbox *to;
    struct msg ball;
};

static void *throw_back(void *arg)
{
    struct mailbox *mine = arg;

    for (int i = 0; i < BALLS; i++) {
        struct msg *m;
        while (!(m = mailbox_drain(mine)))
            mailbox_wait(mine, UINT64_MAX);
        struct game *g = container_of(m, struct game, ball);
        mailbox_post(g->to, &g->ball);
    }
    return NULL;
}

/* The poster may not have written to the descriptor yet, when its message is there already: were
 * it closed by then, the write would fail, or go to another box with the same number. */
static void a_box_may_be_closed_when_its_last_message_is_there(void)
{
    struct mailbox *there = opened();
    struct err e;
    pthread_t thread;

    EXPECT_EQ(thread_start(&thread, "thrower", throw_back, there, &e), 0);
    for (int i = 0; i < BALLS; i++) {
        struct game g = { .to = opened(), .ball.kind = i };
        fault_arm(FAULT_LATE_WAKE, i % 100 ? 0 : 2); /* 1 would be the throw there */
        EXPECT(mailbox_arm(g.to));
        mailbox_post(there, &g.ball);
        struct msg *m;
        while (!(m = mailbox_drain(g.to))) /* without the descriptor: as early as can be */
            (void)!mailbox_arm(g.to);
        EXPECT(m == &g.ball);
        mailbox_close(g.to);
    }
    pthread_join(thread, NULL);
    mailbox_close(there);
}

static void who_sleeps_may_be_woken_later(void)
{
    struct mailbox *m = opened();
    struct msg a = { .kind = 1 }, b = { .kind = 2 }, c = { .kind = 3 };

    EXPECT_EQ(mailbox_post_asleep(m, &a, &a), -1); /* nobody sleeps */
    EXPECT(mailbox_drain(m) == &a && mailbox_arm(m));
    c.next = &b;
    int fd = mailbox_post_asleep(m, &c, &b);
    EXPECT_EQ(fd, mailbox_fd(m));
    EXPECT(!is_readable(m));
    EXPECT_EQ(mailbox_post_asleep(m, &a, &a), -1); /* somebody is about to do it */
    mailbox_wake(fd);
    EXPECT(is_readable(m));
    EXPECT(mailbox_drain(m) == &b && b.next == &c && c.next == &a && !a.next);
    EXPECT(mailbox_arm(m) && !is_readable(m));
    fd = mailbox_post_asleep(m, &a, &a);
    EXPECT(mailbox_drain(m) == &a); /* found before it was woken: that comes late */
    mailbox_wake(fd);
    mailbox_close(m);
}

static void *post_one(void *arg)
{
    struct game *g = arg;

    mailbox_post(g->to, &g->ball);
    return NULL;
}

/* The wake-up for a message that was drained already wakes nobody who asks for the next. */
static void a_late_wake_up_is_none(void)
{
    struct game g = { .to = opened() };
    struct err e;
    pthread_t thread;

    EXPECT(mailbox_arm(g.to));
    fault_arm(FAULT_LATE_WAKE, 1);
    EXPECT_EQ(thread_start(&thread, "late", post_one, &g, &e), 0);
    while (!mailbox_drain(g.to))
        (void)!mailbox_arm(g.to);
    uint64_t start = clock_ns();
    mailbox_wait(g.to, start + 20000000);
    EXPECT(clock_ns() - start >= 20000000);
    pthread_join(thread, NULL);
    EXPECT(!mailbox_drain(g.to));
    mailbox_close(g.to);
}

TESTS(TEST(messages_come_in_the_order_posted), TEST(a_chain_is_posted_as_one),
    TEST(the_descriptor_is_readable_when_armed_and_messages_wait),
    TEST(what_is_quiet_wakes_nobody_before_there_is_much_of_it),
    TEST(waiting_ends_at_the_deadline_or_with_a_message),
    TEST(nothing_is_lost_between_threads_and_each_keeps_its_order),
    TEST(a_box_may_be_closed_when_its_last_message_is_there), TEST(a_late_wake_up_is_none),
    TEST(who_sleeps_may_be_woken_later))
