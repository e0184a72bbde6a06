#include "../check.h"

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
    b.next = &c;
    c.next = &a; /* need not be set, so may be anything */
    mailbox_post_chain(m, &b, &c);
    struct msg *at = mailbox_drain(m);
    EXPECT(at == &a && a.next == &b && b.next == &c && !c.next);
    mailbox_close(m);
}

static void the_descriptor_is_readable_while_messages_wait(void)
{
    struct mailbox *m = opened();
    struct msg a = { 0 }, b = { 0 };

    EXPECT(!is_readable(m));
    mailbox_post(m, &a);
    EXPECT(is_readable(m));
    mailbox_post(m, &b);
    EXPECT(is_readable(m));
    EXPECT(mailbox_drain(m));
    EXPECT(!is_readable(m));
    mailbox_post(m, &a);
    EXPECT(is_readable(m));
    EXPECT(mailbox_drain(m));
    mailbox_close(m);
}

static void what_is_quiet_wakes_nobody_before_there_is_much_of_it(void)
{
    struct mailbox *m = opened();
    struct msg a = { .kind = 1 }, b = { .kind = 2 }, many[MAILBOX_QUIET];

    mailbox_post_quiet(m, &a);
    EXPECT(!is_readable(m));
    mailbox_post(m, &b); /* the first is not in its way */
    EXPECT(is_readable(m));
    EXPECT(mailbox_drain(m) == &a && a.next == &b && !b.next);
    EXPECT(!is_readable(m));
    mailbox_post_quiet(m, &a);
    EXPECT(mailbox_drain(m) == &a); /* found by who looks */
    for (int i = 0; i < MAILBOX_QUIET; i++) {
        EXPECT(!is_readable(m));
        mailbox_post_quiet(m, &many[i]);
    }
    EXPECT(is_readable(m));
    mailbox_post(m, &b);
    EXPECT(mailbox_drain(m) == &many[0]);
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

enum { POSTERS = 4, PER_POSTER = 20000 };

struct poster {
    struct mailbox *to;
    struct numbered {
        struct msg m;
        int from, number;
    } * all;
    pthread_t thread;
};

static void *post_all(void *arg)
{
    struct poster *p = arg;

    for (int i = 0; i < PER_POSTER; i++)
        mailbox_post(p->to, &p->all[i].m);
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
    for (int got = 0; got < POSTERS * PER_POSTER;) {
        mailbox_wait(m, clock_ns() + 5000000000u);
        struct msg *at = mailbox_drain(m);
        EXPECT(at); /* a wake-up was lost */
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

TESTS(TEST(messages_come_in_the_order_posted), TEST(a_chain_is_posted_as_one),
    TEST(the_descriptor_is_readable_while_messages_wait),
    TEST(what_is_quiet_wakes_nobody_before_there_is_much_of_it),
    TEST(waiting_ends_at_the_deadline_or_with_a_message),
    TEST(nothing_is_lost_between_threads_and_each_keeps_its_order))
