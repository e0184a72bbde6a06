#include "os/mailbox.h"
#include "base/fault.h"
#include "base/mem.h"
#include "os/clock.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { LATE_NS = 3000000 };

struct mailbox {
    int fd;
    pthread_mutex_t mu; /* guards the following fields; innermost, no callback runs under it */
    struct msg *newest; /* ->next leads to the oldest; NULL = empty */
    uint32_t n_quiet;   /* quiet messages posted so far */
    bool is_asleep;     /* the owner sleeps or is about to, and has not been woken */
    bool is_woken;      /* the eventfd is written, and the owner has not drained since */
};

int mailbox_open(struct mailbox **out, struct err *e)
{
    struct mailbox *m = xcalloc(1, sizeof(*m));

    m->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (m->fd < 0) {
        mem_free(m);
        return err_set(e, ERR_IO, "eventfd: %s", strerror(errno));
    }
    CHECK(!pthread_mutex_init(&m->mu, NULL));
    *out = m;
    return 0;
}

void mailbox_close(struct mailbox *m)
{
    if (!m)
        return;
    CHECK(!m->newest);
    pthread_mutex_destroy(&m->mu);
    close(m->fd);
    mem_free(m);
}

static void wake_owner(struct mailbox *m)
{
    const uint64_t one = 1;

    if (fault_hit(FAULT_LATE_WAKE)) /* simulates a thread that is preempted here */
        for (uint64_t until = clock_ns() + LATE_NS; clock_ns() < until;)
            ;
    m->is_asleep = false;
    m->is_woken = true;
    ssize_t n = write(m->fd, &one, sizeof(one));
    CHECK(n == sizeof(one));
}

/* The owner is woken before the mutex is released: afterwards the owner may close the mailbox. */
void mailbox_post_chain(struct mailbox *m, struct msg *newest, struct msg *oldest)
{
    pthread_mutex_lock(&m->mu);
    oldest->next = m->newest;
    m->newest = newest;
    if (m->is_asleep)
        wake_owner(m);
    pthread_mutex_unlock(&m->mu);
}

void mailbox_post(struct mailbox *m, struct msg *take)
{
    mailbox_post_chain(m, take, take);
}

void mailbox_post_quiet(struct mailbox *m, struct msg *take)
{
    pthread_mutex_lock(&m->mu);
    take->next = m->newest;
    m->newest = take;
    if (++m->n_quiet % MAILBOX_QUIET == 0 && m->is_asleep)
        wake_owner(m);
    pthread_mutex_unlock(&m->mu);
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
    uint64_t n;

    pthread_mutex_lock(&m->mu);
    struct msg *newest = m->newest;
    bool is_woken = m->is_woken;
    m->newest = NULL;
    m->is_asleep = m->is_woken = false;
    pthread_mutex_unlock(&m->mu);
    if (is_woken) { /* no other write follows until the owner arms the mailbox again */
        ssize_t got = read(m->fd, &n, sizeof(n));
        CHECK(got == sizeof(n) && n == 1);
    }
    return reverse_list(newest);
}

bool mailbox_arm(struct mailbox *m)
{
    pthread_mutex_lock(&m->mu);
    m->is_asleep |= !m->newest;
    bool is_asleep = m->is_asleep;
    pthread_mutex_unlock(&m->mu);
    return is_asleep;
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
    }
}
