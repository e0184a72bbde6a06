/* mailbox.c: a stack that is taken whole, and a descriptor to sleep on.
 *
 *     top    a message, the newest; ->next leads to the oldest; or none
 *            and a bit: the owner sleeps, or is about to, and was not told of anything yet
 *
 * Memory order. A poster writes its messages, then puts them on top with a compare-and-swap
 * (release); the owner takes all with one exchange (acquire). Every change of `top` is a
 * read-modify-write, so the exchange acquires what each of the posters released, not just the
 * last one. Nothing is ever taken off singly, so a message that was on top, was drained, and is
 * on top again does no harm to a poster that read `top` before: it is what ->next has to be.
 *
 * Sleeping. Arming sets the bit in the same word that posters change, and only when there is no
 * message, so there is one order: either the poster finds the bit, takes it away and wakes the
 * owner, or arming finds the message, and the owner does not sleep. No other word takes part,
 * hence no stronger order is needed. A quiet poster leaves the bit to the next.
 *
 * Whoever took the bit away writes to the descriptor once, some time later. The owner counts these
 * writes as `owed` until it has read them: one that comes late wakes it once in vain, and
 * mailbox_close waits for it. So a poster needs nothing of the mailbox behind its swap but the
 * number of the descriptor, and that stays open until it was used. */
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
    _Atomic uint32_t n_quiet; /* posted so far */
    int fd;
    char gap[48]; /* posters change the line above */
    /* The owner's. */
    bool is_armed; /* the bit was set, and nothing drained since */
    int64_t owed;  /* writes to fd that are under way, or not read yet; but for the present one */
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

/* While armed it may read the present write too: then owed is -1 until the drain counts that. */
static void read_owed(struct mailbox *m)
{
    uint64_t n;

    if (m->owed <= 0)
        return;
    ssize_t got = read(m->fd, &n, sizeof(n));
    if (got == sizeof(n))
        m->owed -= (int64_t)n;
    else
        CHECK(errno == EAGAIN || errno == EINTR);
    CHECK(m->owed >= -(int64_t)m->is_armed);
}

void mailbox_close(struct mailbox *m)
{
    if (!m)
        return;
    CHECK(!message(atomic_load_explicit(&m->top, memory_order_relaxed)));
    while (m->owed > 0) {
        struct pollfd p = { .fd = m->fd, .events = POLLIN };
        CHECK(poll(&p, 1, -1) >= 0 || errno == EINTR);
        read_owed(m);
    }
    close(m->fd);
    mem_free(m);
}

void mailbox_wake(int fd)
{
    const uint64_t one = 1;

    if (fault_hit(FAULT_LATE_WAKE)) /* as if put to sleep here */
        for (uint64_t until = clock_ns() + LATE_NS; clock_ns() < until;)
            ;
    ssize_t n = write(fd, &one, sizeof(one));
    CHECK(n == sizeof(one));
}

/* `keep`: bits of what is there that stay. Returns whom to wake, or -1. */
static int push(struct mailbox *m, struct msg *newest, struct msg *oldest, uintptr_t keep)
{
    const int fd = m->fd; /* behind the swap the mailbox may be gone */
    uintptr_t top = atomic_load_explicit(&m->top, memory_order_relaxed);

    do {
        oldest->next = message(top);
    } while (!atomic_compare_exchange_weak_explicit(&m->top, &top, (uintptr_t)newest | (top & keep),
        memory_order_release, memory_order_relaxed));
    return top & ~keep & ASLEEP ? fd : -1;
}

static void wake(int fd)
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
    wake(push(m, newest, oldest, 0));
}

void mailbox_post(struct mailbox *m, struct msg *take)
{
    wake(push(m, take, take, 0));
}

void mailbox_post_quiet(struct mailbox *m, struct msg *take)
{
    uint32_t n = atomic_fetch_add_explicit(&m->n_quiet, 1, memory_order_relaxed) + 1;

    wake(push(m, take, take, n % MAILBOX_QUIET == 0 ? 0 : ASLEEP));
}

static struct msg *reversed(struct msg *m)
{
    struct msg *done = NULL;

    while (m) {
        struct msg *next = m->next;
        m->next = done;
        done = m;
        m = next;
    }
    return done;
}

struct msg *mailbox_drain(struct mailbox *m)
{
    uintptr_t top = 0;

    if (atomic_load_explicit(&m->top, memory_order_relaxed))
        top = atomic_exchange_explicit(&m->top, 0, memory_order_acquire);
    m->owed += m->is_armed && !(top & ASLEEP);
    m->is_armed = false;
    read_owed(m);
    return reversed(message(top));
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
        read_owed(m); /* one that came late; what this message wrote stays for the drain */
    }
}
