/* Event loop: descriptors, timers, tasks, messages and stopping. */
#include "support/check.h"

#include "base/fault.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/rng.h"
#include "os/clock.h"
#include "os/loop.h"
#include "os/thread.h"

#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

static struct loop *opened(void)
{
    struct loop *l = NULL;
    struct err e;

    EXPECT_EQ(loop_open(&l, &e), 0);
    return l;
}

/* ---- descriptors */

struct pipe_io {
    struct loop_io io;
    struct loop *l;
    int w, n_calls;
    struct pipe_io *kill; /* pipe to remove when called */
};

static void on_pipe(struct loop_io *io, uint32_t events)
{
    struct pipe_io *p = container_of(io, struct pipe_io, io);
    char c;

    EXPECT(events & EPOLLIN);
    EXPECT_EQ(read(io->fd, &c, 1), 1);
    p->n_calls++;
    if (p->kill) {
        loop_del(p->l, &p->kill->io);
        p->kill = NULL;
    }
}

static void pipe_add(struct pipe_io *p, struct loop *l)
{
    struct err e;
    int fds[2];

    EXPECT_EQ(pipe(fds), 0);
    *p = (struct pipe_io){ .io = { .fd = fds[0], .fn = on_pipe }, .l = l, .w = fds[1] };
    EXPECT_EQ(loop_add(l, &p->io, EPOLLIN, &e), 0);
}

static void pipe_close(struct pipe_io *p)
{
    close(p->io.fd);
    close(p->w);
}

static void a_descriptor_is_reported_until_it_is_removed(void)
{
    struct loop *l = opened();
    struct pipe_io p;

    pipe_add(&p, l);
    loop_once(l, 0);
    EXPECT_EQ(p.n_calls, 0);
    EXPECT_EQ(write(p.w, "ab", 2), 2);
    loop_once(l, 0);
    EXPECT_EQ(p.n_calls, 1);
    loop_mod(l, &p.io, 0); /* watched for no event */
    loop_once(l, 0);
    EXPECT_EQ(p.n_calls, 1);
    loop_mod(l, &p.io, EPOLLIN);
    loop_once(l, 0);
    EXPECT_EQ(p.n_calls, 2);
    EXPECT_EQ(write(p.w, "c", 1), 1);
    loop_del(l, &p.io);
    loop_once(l, 0);
    EXPECT_EQ(p.n_calls, 2);
    pipe_close(&p);
    loop_close(l);
}

static void removed_descriptor_is_not_called_in_the_same_batch(void)
{
    struct loop *l = opened();
    struct pipe_io a, b;

    /* The callback that runs first removes the other pipe. */
    pipe_add(&a, l);
    pipe_add(&b, l);
    a.kill = &b;
    b.kill = &a;
    EXPECT_EQ(write(a.w, "x", 1), 1);
    EXPECT_EQ(write(b.w, "x", 1), 1);
    loop_once(l, 0);
    loop_once(l, 0);
    EXPECT_EQ(a.n_calls + b.n_calls, 1);
    loop_del(l, a.n_calls ? &a.io : &b.io);
    pipe_close(&a);
    pipe_close(&b);
    loop_close(l);
}

static void callback_may_remove_and_free_its_descriptor(void)
{
    struct loop *l = opened();
    struct pipe_io *p = xmalloc(sizeof(*p));

    pipe_add(p, l);
    p->kill = p;
    EXPECT_EQ(write(p->w, "xy", 2), 2);
    loop_once(l, 0);
    EXPECT_EQ(p->n_calls, 1);
    pipe_close(p);
    mem_free(p);
    loop_once(l, 0);
    loop_close(l);
}

static void a_descriptor_that_cannot_be_watched_is_an_error(void)
{
    struct loop *l = opened();
    struct loop_io io = { .fd = -1, .fn = on_pipe };
    struct err e = { 0 };

    EXPECT_EQ(loop_add(l, &io, EPOLLIN, &e), -1);
    EXPECT_EQ((int)e.code, (int)ERR_IO);
    loop_close(l);
}

/* ---- timers */

struct counted_timer {
    struct loop_timer t;
    int n_fired, order;
};
static int n_fired_total;
static uint64_t last_due;

static void on_timer(struct loop_timer *t)
{
    struct counted_timer *c = container_of(t, struct counted_timer, t);

    EXPECT(t->due_ns >= last_due);
    last_due = t->due_ns;
    c->n_fired++;
    c->order = n_fired_total++;
}

static void timers_fire_in_order_and_once(void)
{
    struct loop *l = opened();
    struct counted_timer c[3] = { 0 };
    uint64_t now = clock_ns();

    last_due = 0;
    n_fired_total = 0;
    for (int i = 0; i < 3; i++)
        c[i].t.fn = on_timer;
    loop_timer_set(l, &c[0].t, now + 3000000);
    loop_timer_set(l, &c[1].t, now + 1000000);
    loop_timer_set(l, &c[2].t, now + 2000000);
    loop_timer_stop(l, &c[2].t);
    loop_timer_stop(l, &c[2].t); /* stopping an idle timer is allowed */
    while (n_fired_total < 2)
        loop_once(l, -1);
    EXPECT(clock_ns() >= now + 3000000);
    EXPECT(c[1].order == 0 && c[0].order == 1 && !c[2].n_fired);
    loop_once(l, 2);
    EXPECT_EQ(n_fired_total, 2);
    loop_close(l);
}

static void iteration_waits_at_most_its_timeout(void)
{
    struct loop *l = opened();
    struct counted_timer c = { .t.fn = on_timer };
    uint64_t now = clock_ns();

    loop_timer_set(l, &c.t, now + 3600ull * 1000000000u);
    loop_once(l, 5);
    EXPECT(clock_ns() - now < 600 * 1000000000ull); /* the timer is an hour away */
    EXPECT_EQ(c.n_fired, 0);
    loop_close(l);
}

static void the_heap_agrees_with_a_plain_array(void)
{
    enum { N = 200 };
    struct counted_timer c[N] = { 0 };
    struct loop *l = opened();
    struct rng rng = { .key = 20261121 };
    uint64_t base = clock_ns() + 3600ull * 1000000000u;

    printf("seed %llu\n", (unsigned long long)rng.key);
    for (int i = 0; i < N; i++)
        c[i].t.fn = on_timer;
    for (int step = 0; step < 20000; step++) {
        struct counted_timer *x = &c[rng_below(&rng, N)];
        if (rng_below(&rng, 3))
            loop_timer_set(l, &x->t, base + rng_below(&rng, 1000));
        else
            loop_timer_stop(l, &x->t);
    }
    int n_running = 0;
    last_due = 0;
    n_fired_total = 0;
    for (int i = 0; i < N; i++) {
        c[i].n_fired = 0;
        if (c[i].t.heap_index) { /* the same order, with deadlines in the past */
            loop_timer_set(l, &c[i].t, c[i].t.due_ns - base);
            n_running++;
        }
    }
    EXPECT(n_running > 50);
    loop_once(l, 0);
    EXPECT_EQ(n_fired_total, n_running);
    for (int i = 0; i < N; i++)
        EXPECT(!c[i].t.heap_index);
    loop_close(l);
}

static struct loop *rearm_loop;
static void on_rearm(struct loop_timer *t)
{
    container_of(t, struct counted_timer, t)->n_fired++;
    loop_timer_set(rearm_loop, t, 0);
}

static void timer_rearmed_in_the_past_does_not_starve_others(void)
{
    struct counted_timer c = { .t.fn = on_rearm }, others[10] = { 0 };

    rearm_loop = opened();
    for (int i = 0; i < 10; i++) {
        others[i].t.fn = on_timer;
        loop_timer_set(rearm_loop, &others[i].t, clock_ns() + 3600ull * 1000000000u);
    }
    loop_timer_set(rearm_loop, &c.t, 0);
    for (int round = 1; round < 5; round++) {
        loop_once(rearm_loop, -1);
        EXPECT_EQ(c.n_fired, round);
    }
    loop_close(rearm_loop);
}

/* ---- tasks */

struct counted_task {
    struct loop_task t;
    struct loop *l;
    int n_done;
    bool is_repeated;
    struct counted_task *cancel;
};

static void on_task(struct loop_task *t)
{
    struct counted_task *c = container_of(t, struct counted_task, t);

    c->n_done++;
    if (c->cancel)
        loop_undefer(c->l, &c->cancel->t);
    if (c->is_repeated)
        loop_defer(c->l, t);
}

static void task_runs_once_at_the_end_of_the_iteration(void)
{
    struct loop *l = opened();
    struct counted_task a = { .t.fn = on_task, .l = l }, b = a, again = a;

    again.is_repeated = true;
    a.cancel = &b;
    loop_defer(l, &a.t);
    loop_defer(l, &a.t);
    loop_defer(l, &b.t);
    loop_defer(l, &again.t);
    loop_once(l, -1);
    EXPECT_EQ(a.n_done, 1);
    EXPECT_EQ(b.n_done, 0);
    EXPECT_EQ(again.n_done, 1); /* the second run is in the next iteration... */
    loop_once(l, -1);           /* ...which does not sleep */
    EXPECT_EQ(again.n_done, 2);
    loop_undefer(l, &again.t);
    loop_undefer(l, &again.t);
    loop_once(l, 0);
    EXPECT_EQ(a.n_done + again.n_done, 3);
    loop_close(l);
}

/* ---- messages and stopping */

struct message_log {
    struct loop *l;
    int n, last, stop_at;
};

static void on_message(void *ctx, struct msg *m)
{
    struct message_log *in = ctx;

    EXPECT_EQ(m->kind, in->last + 1);
    in->last = m->kind;
    if (++in->n == in->stop_at)
        loop_stop(in->l);
}

static void messages_per_iteration_are_limited(void)
{
    enum { N = MAILBOX_BATCH * 2 + 1 };
    struct loop *l = opened();
    struct message_log in = { .l = l };
    struct msg *all = xcalloc(N, sizeof(*all));

    loop_on_message(l, on_message, &in);
    for (int i = 0; i < N; i++) {
        all[i].kind = i + 1;
        mailbox_post(loop_mailbox(l), &all[i]);
    }
    loop_once(l, 0);
    EXPECT_EQ(in.n, (int)MAILBOX_BATCH);
    loop_once(l, -1); /* does not sleep while messages are left */
    EXPECT_EQ(in.n, 2 * (int)MAILBOX_BATCH);
    loop_close(l); /* the last message is handled here, not lost */
    EXPECT_EQ(in.n, (int)N);
    mem_free(all);
}

struct sender {
    struct mailbox *to;
    struct msg *all;
    int n;
};

static void *send_all(void *arg)
{
    struct sender *s = arg;

    for (int i = 0; i < s->n; i++) {
        s->all[i].kind = i + 1;
        mailbox_post(s->to, &s->all[i]);
    }
    return NULL;
}

static void message_from_another_thread_wakes_the_loop(void)
{
    enum { N = 50000 };
    struct loop *l = opened();
    struct message_log in = { .l = l, .stop_at = N };
    struct sender s = { .to = loop_mailbox(l), .all = xcalloc(N, sizeof(struct msg)), .n = N };
    struct err e;
    pthread_t t;

    loop_on_message(l, on_message, &in);
    EXPECT_EQ(thread_start(&t, "sender", send_all, &s, &e), 0);
    loop_run(l);
    pthread_join(t, NULL);
    EXPECT_EQ(in.n, (int)N);
    loop_close(l);
    mem_free(s.all);
}

static void *run_loop(void *arg)
{
    loop_run(arg);
    return NULL;
}

static void stop_works_from_another_thread_and_before_the_start(void)
{
    struct loop *l = opened();
    struct err e;
    pthread_t t;

    for (int i = 0; i < 50; i++) {
        EXPECT_EQ(thread_start(&t, "loop", run_loop, l, &e), 0);
        loop_stop(l); /* before or during the run, whichever comes first */
        pthread_join(t, NULL);
    }
    loop_close(l);
}

static struct loop *to_stop;
static void on_alarm(int sig)
{
    loop_stop(to_stop);
}

static void stop_works_from_a_signal_handler(void)
{
    struct sigaction act = { .sa_handler = on_alarm }, old;

    to_stop = opened();
    sigaction(SIGALRM, &act, &old);
    ualarm(2000, 0);
    loop_run(to_stop);
    sigaction(SIGALRM, &old, NULL);
    loop_close(to_stop);
}

#ifdef TESTING
static void failed_loop_open_is_an_error(void)
{
    for (uint64_t nth = 1; nth <= 2; nth++) {
        struct loop *l = NULL;
        struct err e = { 0 };
        fault_arm(FAULT_EPOLL, nth);
        EXPECT_EQ(loop_open(&l, &e), -1);
        EXPECT_EQ((int)e.code, (int)ERR_IO);
    }
    fault_arm(FAULT_EPOLL, 0);
}
#else
static void failed_loop_open_is_an_error(void)
{
    printf("skipped: faults exist in test builds only\n");
}
#endif

TESTS(TEST(a_descriptor_is_reported_until_it_is_removed),
    TEST(removed_descriptor_is_not_called_in_the_same_batch),
    TEST(callback_may_remove_and_free_its_descriptor),
    TEST(a_descriptor_that_cannot_be_watched_is_an_error), TEST(timers_fire_in_order_and_once),
    TEST(iteration_waits_at_most_its_timeout), TEST(the_heap_agrees_with_a_plain_array),
    TEST(timer_rearmed_in_the_past_does_not_starve_others),
    TEST(task_runs_once_at_the_end_of_the_iteration), TEST(messages_per_iteration_are_limited),
    TEST(message_from_another_thread_wakes_the_loop),
    TEST(stop_works_from_another_thread_and_before_the_start),
    TEST(stop_works_from_a_signal_handler), TEST(failed_loop_open_is_an_error))
