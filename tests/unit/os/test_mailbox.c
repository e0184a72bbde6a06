/* Mailbox: order of messages, wake-ups, and closing, with one and several threads. */
#include "support/check.h"

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

static void messages_arrive_in_the_order_posted(void)
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
    b.next = &c; /* need not be set, so it may be anything */
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
    EXPECT(!is_readable(m)); /* the owner is awake: no system call */
    EXPECT(!mailbox_arm(m)); /* and must not sleep */
    EXPECT(mailbox_drain(m));
    for (int i = 0; i < 3; i++) {
        EXPECT(mailbox_arm(m));
        EXPECT(mailbox_arm(m)); /* arming again has no effect */
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
    EXPECT(!mailbox_drain(m)); /* awake for another reason */
    mailbox_post(m, &a);
    EXPECT(!is_readable(m));
    EXPECT(mailbox_drain(m) == &a);
    mailbox_close(m);
}

static void quiet_posts_wake_the_owner_only_at_a_threshold(void)
{
    struct mailbox *m = opened();
    struct msg a = { .kind = 1 }, b = { .kind = 2 }, many[MAILBOX_QUIET];

    EXPECT(mailbox_arm(m));
    mailbox_post_quiet(m, &a);
    EXPECT(!is_readable(m) && mailbox_arm(m));
    mailbox_post(m, &b); /* the quiet message does not suppress this wake-up */
    EXPECT(is_readable(m) && !mailbox_arm(m));
    EXPECT(mailbox_drain(m) == &a && a.next == &b && !b.next);
    EXPECT(!is_readable(m));
    EXPECT(mailbox_arm(m));
    mailbox_post_quiet(m, &a);
    EXPECT(mailbox_drain(m) == &a && !a.next); /* found by an owner that drains without a wake-up */
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
    mailbox_wait(m, 0); /* deadline in the past */
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

/* Posts messages singly and in chains of 1 to CHAIN_MAX. */
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
        if (round % 3 != 2) /* otherwise it is drained while awake, and may be empty */
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

enum { N_ROUNDS = 3000 };

struct
    ping_pong { /* one message at a time, sent to a mailbox that is closed when it was received */
    struct mailbox *to;
    struct msg msg;
};

static void *reply_all(void *arg)
{
    struct mailbox *mine = arg;

    for (int i = 0; i < N_ROUNDS; i++) {
        struct msg *m;
        while (!(m = mailbox_drain(mine)))
            mailbox_wait(mine, UINT64_MAX);
        struct ping_pong *g = container_of(m, struct ping_pong, msg);
        mailbox_post(g->to, &g->msg);
    }
    return NULL;
}

/* If the owner could drain the message before the poster has written to the eventfd, it could also
 * close the mailbox: the write would fail, or reach another file with the same number. */
static void mailbox_may_be_closed_after_its_last_message(void)
{
    struct mailbox *there = opened();
    struct err e;
    pthread_t thread;

    EXPECT_EQ(thread_start(&thread, "thrower", reply_all, there, &e), 0);
    for (int i = 0; i < N_ROUNDS; i++) {
        struct ping_pong g = { .to = opened(), .msg.kind = i };
        /* the first armed fault would hit the post to the other thread */
        fault_arm(FAULT_LATE_WAKE, i % 100 ? 0 : 2);
        EXPECT(mailbox_arm(g.to));
        mailbox_post(there, &g.msg);
        struct msg *m;
        while (!(m = mailbox_drain(g.to))) /* without the eventfd: as early as possible */
            (void)!mailbox_arm(g.to);
        EXPECT(m == &g.msg);
        mailbox_close(g.to);
    }
    pthread_join(thread, NULL);
    mailbox_close(there);
}

static void *post_one(void *arg)
{
    struct ping_pong *g = arg;

    mailbox_post(g->to, &g->msg);
    return NULL;
}

/* A wake-up that is written late does not wake the owner waiting for the next message. */
static void late_wake_up_is_ignored(void)
{
    struct ping_pong g = { .to = opened() };
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

TESTS(TEST(messages_arrive_in_the_order_posted), TEST(a_chain_is_posted_as_one),
    TEST(the_descriptor_is_readable_when_armed_and_messages_wait),
    TEST(quiet_posts_wake_the_owner_only_at_a_threshold),
    TEST(waiting_ends_at_the_deadline_or_with_a_message),
    TEST(nothing_is_lost_between_threads_and_each_keeps_its_order),
    TEST(mailbox_may_be_closed_after_its_last_message), TEST(late_wake_up_is_ignored))
