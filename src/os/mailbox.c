/* mailbox.c: a lock-free stack that is taken as a whole, and an eventfd.
 *
 *     top    newest message, whose ->next leads to the oldest; or NULL;
 *            and the ASLEEP bit: the owner sleeps or is about to, and has not been woken
 *
 * Memory order. A poster writes its messages, then pushes them with a compare-and-swap (release);
 * the owner takes all with one exchange (acquire). Every change of `top` is a read-modify-write, so
 * the exchange synchronises with all posters, not only with the last one. Messages are never popped
 * one at a time. A message that was on top, was drained, and is on top again (ABA) is therefore
 * harmless for a poster that read `top` before: the value is still correct for ->next.
 *
 * Sleeping. mailbox_arm sets the bit in the same word that posters change, and only if there is no
 * message, so there is one order: either a poster finds the bit, clears it and wakes the owner; or
 * arming finds the message, and the owner does not sleep. No other word is involved, so no stronger
 * memory order is needed. A quiet poster leaves the bit set for the next poster.
 *
 * The poster that clears the bit writes to the descriptor once, some time later. The owner counts
 * these writes in `n_wakes_due` until it has read them: a late write causes one unnecessary
 * wake-up, and mailbox_close waits for it. After its compare-and-swap, a poster therefore uses
 * nothing of the mailbox except the number of the descriptor, which remains open until then. */
#include "os/mailbox.h"
#include "base/fault.h"
#include "base/mem.h"
#include "os/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { LATE_NS = 3000000 };

struct mailbox {
    _Atomic uintptr_t top;    /* address | ASLEEP */
    _Atomic uint32_t n_quiet; /* quiet messages posted so far */
    int fd;
    char padding[48]; /* padding: posters write to the cache line above */
    /* Only the owner uses the following fields. */
    bool is_armed; /* the bit was set, and there was no drain since */
    /* writes to fd that are not yet read, without that of the current arming */
    int64_t n_wakes_due;
};

#define ASLEEP ((uintptr_t)1)

static struct msg *message(uintptr_t top)
{
    return (struct msg *)(top & ~ASLEEP);
}

int mailbox_open(struct mailbox **out, struct err *e)
{
    struct mailbox *m = xcalloc(1, sizeof(*m));

    m->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (m->fd < 0) {
        mem_free(m);
        return err_set(e, ERR_IO, "eventfd: %s", strerror(errno));
    }
    *out = m;
    return 0;
}

/* Reads the eventfd. While armed, this may also read the write of the current arming; then
 * n_wakes_due is -1 until the drain counts that write. */
static void read_wakes(struct mailbox *m)
{
    uint64_t n;

    if (m->n_wakes_due <= 0)
        return;
    ssize_t got = read(m->fd, &n, sizeof(n));
    if (got == sizeof(n))
        m->n_wakes_due -= (int64_t)n;
    else
        CHECK(errno == EAGAIN || errno == EINTR);
    CHECK(m->n_wakes_due >= -(int64_t)m->is_armed);
}

void mailbox_close(struct mailbox *m)
{
    if (!m)
        return;
    CHECK(!message(atomic_load_explicit(&m->top, memory_order_relaxed)));
    while (m->n_wakes_due > 0) {
        struct pollfd p = { .fd = m->fd, .events = POLLIN };
        CHECK(poll(&p, 1, -1) >= 0 || errno == EINTR);
        read_wakes(m);
    }
    close(m->fd);
    mem_free(m);
}

void mailbox_wake(int fd)
{
    const uint64_t one = 1;

    if (fault_hit(FAULT_LATE_WAKE)) /* simulates a thread that is preempted here */
        for (uint64_t until = clock_ns() + LATE_NS; clock_ns() < until;)
            ;
    ssize_t n = write(fd, &one, sizeof(one));
    CHECK(n == sizeof(one));
}

/* Pushes messages. `keep`: bits of the old value that remain set. Returns the descriptor to write
 * to, or -1. */
static int push(struct mailbox *m, struct msg *newest, struct msg *oldest, uintptr_t keep)
{
    const int fd = m->fd; /* after the swap the mailbox may already be closed */
    uintptr_t top = atomic_load_explicit(&m->top, memory_order_relaxed);

    do {
        oldest->next = message(top);
    } while (!atomic_compare_exchange_weak_explicit(&m->top, &top, (uintptr_t)newest | (top & keep),
        memory_order_release, memory_order_relaxed));
    return top & ~keep & ASLEEP ? fd : -1;
}

static void wake_if_needed(int fd)
{
    if (fd >= 0)
        mailbox_wake(fd);
}

int mailbox_post_asleep(struct mailbox *m, struct msg *newest, struct msg *oldest)
{
    return push(m, newest, oldest, 0);
}

void mailbox_post_chain(struct mailbox *m, struct msg *newest, struct msg *oldest)
{
    wake_if_needed(push(m, newest, oldest, 0));
}

void mailbox_post(struct mailbox *m, struct msg *take)
{
    wake_if_needed(push(m, take, take, 0));
}

void mailbox_post_quiet(struct mailbox *m, struct msg *take)
{
    uint32_t n = atomic_fetch_add_explicit(&m->n_quiet, 1, memory_order_relaxed) + 1;

    wake_if_needed(push(m, take, take, n % MAILBOX_QUIET == 0 ? 0 : ASLEEP));
}

static struct msg *reverse_list(struct msg *m)
{
    struct msg *head = NULL;

    while (m) {
        struct msg *next = m->next;
        m->next = head;
        head = m;
        m = next;
    }
    return head;
}

struct msg *mailbox_drain(struct mailbox *m)
{
    uintptr_t top = 0;

    if (atomic_load_explicit(&m->top, memory_order_relaxed))
        top = atomic_exchange_explicit(&m->top, 0, memory_order_acquire);
    m->n_wakes_due += m->is_armed && !(top & ASLEEP);
    m->is_armed = false;
    read_wakes(m);
    return reverse_list(message(top));
}

bool mailbox_arm(struct mailbox *m)
{
    uintptr_t top = 0;

    if (m->is_armed)
        return atomic_load_explicit(&m->top, memory_order_relaxed) & ASLEEP;
    m->is_armed = atomic_compare_exchange_strong_explicit(
        &m->top, &top, ASLEEP, memory_order_relaxed, memory_order_relaxed);
    return m->is_armed;
}

int mailbox_fd(const struct mailbox *m)
{
    return m->fd;
}

void mailbox_wait(struct mailbox *m, uint64_t deadline_ns)
{
    struct pollfd p = { .fd = m->fd, .events = POLLIN };

    while (mailbox_arm(m)) {
        struct timespec t, *timeout = NULL;
        if (deadline_ns != UINT64_MAX) {
            uint64_t now = clock_ns();
            uint64_t left = deadline_ns > now ? deadline_ns - now : 0;
            t = (struct timespec){ (time_t)(left / 1000000000u), (long)(left % 1000000000u) };
            timeout = &t;
        }
        int n = ppoll(&p, 1, timeout, NULL);
        CHECK(n >= 0 || errno == EINTR);
        if (n <= 0)
            return;
        read_wakes(m); /* reads late writes; the write for a new message is counted by the drain */
    }
}
