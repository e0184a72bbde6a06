/* mailbox.h: multi-producer, single-consumer message queue between threads.
 *
 * Any thread posts; the owner drains. A message belongs to the thread that holds it: post takes it,
 * drain returns it. Messages of one poster arrive in order.
 *
 * A mutex guards the list. It is held for a few instructions, and for the write to the eventfd: the
 * owner announces that it is about to sleep, and only the first message after that costs a system
 * call, so a busy owner is never signalled.
 *
 * Owner: the thread that drains; mailbox_post* may be called by any thread. */
#pragma once

#include "base/err.h"

struct msg {
    struct msg *next;
    int kind; /* defined by sender and receiver */
};

/* Queue of messages of one thread, first in, first out. Zeroed: empty. */
struct msg_queue {
    struct msg *first, *last; /* `last` is undefined while the queue is empty */
};

static inline void msg_queue_put(struct msg_queue *q, struct msg *take)
{
    take->next = NULL;
    *(q->first ? &q->last->next : &q->first) = take;
    q->last = take;
}

static inline struct msg *msg_queue_take(struct msg_queue *q) /* NULL: empty */
{
    struct msg *m = q->first;

    if (m)
        q->first = m->next;
    return m;
}

struct mailbox;

int mailbox_open(struct mailbox **out, struct err *e);
/* The mailbox must be empty. May be called as soon as the last message is drained: its poster only
 * releases the mutex afterwards. */
void mailbox_close(struct mailbox *m);

void mailbox_post(struct mailbox *m, struct msg *take);

/* Posts a message that need not be handled at once. The owner finds it with the next normal
 * message; every MAILBOX_QUIET-th quiet message wakes the owner. */
enum { MAILBOX_QUIET = 64 };
void mailbox_post_quiet(struct mailbox *m, struct msg *take);

/* Posts a chain linked through ->next, newest first (oldest->next need not be set), as one unit:
 * the messages arrive together, oldest first. */
void mailbox_post_chain(struct mailbox *m, struct msg *newest, struct msg *oldest);

/* Owner only. Returns all messages, oldest first, linked through ->next; NULL if there are none. */
struct msg *mailbox_drain(struct mailbox *m);

/* Owner only. Sleeps until a message arrives that is not quiet, or until `deadline_ns` (clock_ns;
 * UINT64_MAX = no deadline). A signal may end the wait early. */
void mailbox_wait(struct mailbox *m, uint64_t deadline_ns);

/* For an owner that sleeps on several descriptors (epoll): arm before the wait, drain after it.
 * True: from now until the next drain, a message that is not quiet makes the descriptor readable.
 * False: the mailbox is not empty. */
bool mailbox_arm(struct mailbox *m) MUST_CHECK;
int mailbox_fd(const struct mailbox *m);
