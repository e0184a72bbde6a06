#include "os/mailbox.h"
#include "base/mem.h"
#include "os/clock.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct mailbox {
    pthread_mutex_t mu; /* guards all but fd */
    struct msg *head, **tail;
    bool is_told; /* the owner: fd is readable */
    int n_quiet;  /* messages that it was not told of */
    int fd;
};

int mailbox_open(struct mailbox **out, struct err *e)
{
    struct mailbox *m = xcalloc(1, sizeof(*m));

    m->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (m->fd < 0) {
        mem_free(m);
        return err_set(e, ERR_IO, "eventfd: %s", strerror(errno));
    }
    pthread_mutex_init(&m->mu, NULL);
    m->tail = &m->head;
    *out = m;
    return 0;
}

void mailbox_close(struct mailbox *m)
{
    if (!m)
        return;
    CHECK(!m->head);
    close(m->fd);
    pthread_mutex_destroy(&m->mu);
    mem_free(m);
}

void mailbox_post(struct mailbox *m, struct msg *take)
{
    mailbox_post_chain(m, take, take);
}

/* With the lock held. One wake-up per batch, not per message: the owner drains the whole list.
 * Inside the lock, because an owner who finds in this batch that nothing more will come may close
 * the mailbox as soon as it has drained it: the descriptor must not be used later than that. */
static void tell(struct mailbox *m)
{
    uint64_t one = 1;

    if (m->is_told)
        return;
    m->is_told = true;
    ssize_t n = write(m->fd, &one, sizeof(one));
    CHECK(n == sizeof(one) || errno == EAGAIN);
}

static void append(struct mailbox *m, struct msg *first, struct msg *last)
{
    *m->tail = first;
    m->tail = &last->next;
}

void mailbox_post_chain(struct mailbox *m, struct msg *first, struct msg *last)
{
    last->next = NULL;

    pthread_mutex_lock(&m->mu);
    append(m, first, last);
    tell(m);
    pthread_mutex_unlock(&m->mu);
}

void mailbox_post_quiet(struct mailbox *m, struct msg *take)
{
    take->next = NULL;

    pthread_mutex_lock(&m->mu);
    append(m, take, take);
    if (++m->n_quiet == MAILBOX_QUIET)
        tell(m);
    pthread_mutex_unlock(&m->mu);
}

struct msg *mailbox_drain(struct mailbox *m)
{
    uint64_t count;

    pthread_mutex_lock(&m->mu);
    /* Only when there was one: an owner that is busy drains after each piece of work. */
    if (m->is_told) {
        ssize_t n = read(m->fd, &count, sizeof(count));
        CHECK(n == sizeof(count) || errno == EAGAIN || errno == EINTR);
        m->is_told = n < 0 && errno == EINTR; /* then it stays readable */
    }
    struct msg *all = m->head;
    m->head = NULL;
    m->tail = &m->head;
    m->n_quiet = 0;
    pthread_mutex_unlock(&m->mu);
    return all;
}

int mailbox_fd(const struct mailbox *m)
{
    return m->fd;
}

void mailbox_wait(struct mailbox *m, uint64_t deadline_ns)
{
    struct pollfd p = { .fd = m->fd, .events = POLLIN };
    struct timespec t, *timeout = NULL;

    if (deadline_ns != UINT64_MAX) {
        uint64_t now = clock_ns();
        uint64_t left = deadline_ns > now ? deadline_ns - now : 0;
        t = (struct timespec){ (time_t)(left / 1000000000u), (long)(left % 1000000000u) };
        timeout = &t;
    }
    int n = ppoll(&p, 1, timeout, NULL);
    CHECK(n >= 0 || errno == EINTR);
}
