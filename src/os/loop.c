/* loop.c: epoll for descriptors, a binary heap for timers, one mailbox, one list of tasks.
 *
 * The heap is 1-based, so that index 0 means "not running" in a zeroed timer. Removing an io clears
 * its entries in the current batch: the scan is at most one batch long, and connections close far
 * less often than they have events. */
#include "os/loop.h"
#include "base/fault.h"
#include "base/limits.h"
#include "base/mem.h"
#include "os/clock.h"
#include "os/thread.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { BATCH = SMALL ? 2 : 256 };

struct loop {
    int ep;
    int wake_fd; /* written by loop_stop */
    atomic_bool is_stopped;
    uint64_t now;
    struct owner owner;

    struct epoll_event batch[BATCH]; /* current batch: [batch_at, batch_n) is not yet reported */
    int batch_at, batch_n;

    struct loop_timer **heap; /* [1, n_timers] */
    size_t n_timers, heap_cap;
    bool is_firing; /* timers that are set now fire in the next round at the earliest */

    struct list tasks;
    struct loop_task mark; /* end of the current run: tasks queued by tasks come after it */

    struct mailbox *mailbox;
    struct msg_queue backlog; /* drained, not yet handled */
    void (*on_message)(void *ctx, struct msg *m);
    void *message_ctx;
};

static int watch_fd(struct loop *l, int fd, void *source, struct err *e)
{
    struct epoll_event ev = { .events = EPOLLIN, .data.ptr = source };

    if (fault_hit(FAULT_EPOLL) || epoll_ctl(l->ep, EPOLL_CTL_ADD, fd, &ev))
        return err_set(e, ERR_IO, "epoll_ctl: %s", strerror(errno));
    return 0;
}

int loop_open(struct loop **out, struct err *e)
{
    struct loop *l = xcalloc(1, sizeof(*l));

    l->wake_fd = -1;
    l->now = clock_ns();
    l->ep = epoll_create1(EPOLL_CLOEXEC);
    if (l->ep < 0) {
        err_set(e, ERR_IO, "epoll_create1: %s", strerror(errno));
        goto fail;
    }
    l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (l->wake_fd < 0) {
        err_set(e, ERR_IO, "eventfd: %s", strerror(errno));
        goto fail;
    }
    if (mailbox_open(&l->mailbox, e) || watch_fd(l, l->wake_fd, &l->wake_fd, e) ||
        watch_fd(l, mailbox_fd(l->mailbox), l->mailbox, e))
        goto fail;
    *out = l;
    return 0;

fail:
    loop_close(l);
    return -1;
}

/* ---- messages */

static void take_messages(struct loop *l)
{
    for (struct msg *m = mailbox_drain(l->mailbox), *next; m; m = next) {
        next = m->next;
        msg_queue_put(&l->backlog, m);
    }
}

static void handle_messages(struct loop *l, int max)
{
    struct msg *m;

    for (int i = 0; i < max && (m = msg_queue_take(&l->backlog)); i++) {
        CHECK(l->on_message);
        l->on_message(l->message_ctx, m);
    }
}

struct mailbox *loop_mailbox(struct loop *l)
{
    return l->mailbox;
}

void loop_on_message(struct loop *l, void (*fn)(void *ctx, struct msg *m), void *ctx)
{
    OWNED(l->owner);
    l->on_message = fn;
    l->message_ctx = ctx;
}

void loop_close(struct loop *l)
{
    if (!l)
        return;
    if (l->mailbox) {
        take_messages(l);
        while (l->backlog.first) {
            handle_messages(l, INT32_MAX);
            take_messages(l);
        }
    }
    mailbox_close(l->mailbox);
    if (l->wake_fd >= 0)
        close(l->wake_fd);
    if (l->ep >= 0)
        close(l->ep);
    mem_free(l->heap);
    mem_free(l);
}

/* ---- descriptors */

int loop_add(struct loop *l, struct loop_io *io, uint32_t events, struct err *e)
{
    struct epoll_event ev = { .events = events, .data.ptr = io };

    OWNED(l->owner);
    CHECK(io->fn);
    if (fault_hit(FAULT_EPOLL) || epoll_ctl(l->ep, EPOLL_CTL_ADD, io->fd, &ev))
        return err_set(e, ERR_IO, "epoll_ctl: %s", strerror(errno));
    io->events = events;
    return 0;
}

void loop_mod(struct loop *l, struct loop_io *io, uint32_t events)
{
    struct epoll_event ev = { .events = events, .data.ptr = io };

    OWNED(l->owner);
    if (io->events == events)
        return;
    CHECK(!epoll_ctl(l->ep, EPOLL_CTL_MOD, io->fd, &ev));
    io->events = events;
}

void loop_del(struct loop *l, struct loop_io *io)
{
    OWNED(l->owner);
    CHECK(!epoll_ctl(l->ep, EPOLL_CTL_DEL, io->fd, NULL));
    for (int i = l->batch_at; i < l->batch_n; i++)
        if (l->batch[i].data.ptr == io)
            l->batch[i].data.ptr = NULL;
}

static void report_events(struct loop *l)
{
    while (l->batch_at < l->batch_n) {
        struct epoll_event *ev = &l->batch[l->batch_at++];
        void *source = ev->data.ptr;
        if (!source) {
            continue; /* removed by an earlier callback of this batch */
        } else if (source == l->mailbox) {
            continue; /* messages are taken in every round */
        } else if (source == &l->wake_fd) {
            uint64_t n;
            if (read(l->wake_fd, &n, sizeof(n)) < 0)
                CHECK(errno == EAGAIN || errno == EINTR);
        } else {
            struct loop_io *io = source;
            io->fn(io, ev->events);
        }
    }
}

/* ---- timers */

static void heap_put(struct loop *l, size_t i, struct loop_timer *t)
{
    l->heap[i] = t;
    t->heap_index = i;
}

static void sift_up(struct loop *l, size_t i)
{
    struct loop_timer *t = l->heap[i];

    for (; i > 1 && l->heap[i / 2]->due_ns > t->due_ns; i /= 2)
        heap_put(l, i, l->heap[i / 2]);
    heap_put(l, i, t);
}

static void sift_down(struct loop *l, size_t i)
{
    struct loop_timer *t = l->heap[i];

    for (size_t child; (child = 2 * i) <= l->n_timers; i = child) {
        if (child < l->n_timers && l->heap[child + 1]->due_ns < l->heap[child]->due_ns)
            child++;
        if (t->due_ns <= l->heap[child]->due_ns)
            break;
        heap_put(l, i, l->heap[child]);
    }
    heap_put(l, i, t);
}

void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t due_ns)
{
    OWNED(l->owner);
    CHECK(t->fn);
    /* A timer that sets itself to a past time must not prevent the handling of descriptors. */
    t->due_ns = l->is_firing ? MAX(due_ns, l->now + 1) : due_ns;
    if (!t->heap_index) {
        if (l->n_timers + 1 >= l->heap_cap) {
            l->heap_cap = MAX(l->heap_cap * 2, (size_t)16);
            l->heap = xrealloc(l->heap, l->heap_cap * sizeof(*l->heap));
        }
        heap_put(l, ++l->n_timers, t);
    }
    sift_up(l, t->heap_index);
    sift_down(l, t->heap_index);
}

void loop_timer_stop(struct loop *l, struct loop_timer *t)
{
    size_t i = t->heap_index;

    OWNED(l->owner);
    if (!i)
        return;
    struct loop_timer *last = l->heap[l->n_timers--];
    t->heap_index = 0;
    if (last == t)
        return;
    heap_put(l, i, last);
    sift_up(l, i);
    sift_down(l, last->heap_index);
}

uint64_t loop_now(const struct loop *l)
{
    return l->now;
}

static void fire_timers(struct loop *l)
{
    l->is_firing = true;
    while (l->n_timers && l->heap[1]->due_ns <= l->now) {
        struct loop_timer *t = l->heap[1];
        loop_timer_stop(l, t);
        t->fn(t);
    }
    l->is_firing = false;
}

/* ---- tasks */

void loop_defer(struct loop *l, struct loop_task *t)
{
    OWNED(l->owner);
    if (!list_has(&l->tasks, &t->queued))
        list_add_last(&l->tasks, &t->queued);
}

void loop_undefer(struct loop *l, struct loop_task *t)
{
    OWNED(l->owner);
    if (list_has(&l->tasks, &t->queued))
        list_remove(&t->queued);
}

static void run_tasks(struct loop *l)
{
    loop_defer(l, &l->mark);
    while (l->tasks.first != &l->mark.queued) {
        struct loop_task *t = container_of(l->tasks.first, struct loop_task, queued);
        loop_undefer(l, t);
        t->fn(t);
    }
    loop_undefer(l, &l->mark);
}

/* ---- running */

static int wait_ms(const struct loop *l, int max_ms)
{
    if (l->backlog.first || l->tasks.first || atomic_load(&l->is_stopped))
        return 0;
    if (!l->n_timers)
        return max_ms;
    uint64_t now = clock_ns(), due = l->heap[1]->due_ns;
    if (due <= now)
        return 0;
    /* Rounded up: after a wait that is too short, the loop would wake up twice. */
    uint64_t ms = MIN((due - now + 999999u) / 1000000u, (uint64_t)INT32_MAX);
    return max_ms < 0 ? (int)ms : MIN((int)ms, max_ms);
}

void loop_once(struct loop *l, int max_ms)
{
    OWNED(l->owner);
    int ms = wait_ms(l, max_ms);
    if (ms != 0 && !mailbox_arm(l->mailbox))
        ms = 0;
    int n = epoll_wait(l->ep, l->batch, BATCH, ms);
    CHECK(n >= 0 || errno == EINTR);
    l->now = clock_ns();
    l->batch_at = 0;
    l->batch_n = MAX(n, 0);
    report_events(l);
    take_messages(l);
    fire_timers(l);
    handle_messages(l, MAILBOX_BATCH);
    run_tasks(l);
}

void loop_run(struct loop *l)
{
    owner_take(&l->owner);
    while (!atomic_load(&l->is_stopped))
        loop_once(l, -1);
    atomic_store(&l->is_stopped, false);
    /* After this, the thread that opened the loop may close it, or another thread may run it. */
    l->owner = (struct owner){ 0 };
}

void loop_stop(struct loop *l)
{
    uint64_t one = 1;
    int saved = errno; /* a signal handler must preserve errno */

    atomic_store(&l->is_stopped, true);
    ssize_t n = write(l->wake_fd, &one, sizeof(one));
    CHECK(n == sizeof(one) || errno == EAGAIN);
    errno = saved;
}
