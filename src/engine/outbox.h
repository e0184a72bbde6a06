/* outbox.h: the events of one step, collected per mailbox, so that a mailbox gets them as one post
 * and with at most one wake-up.
 *
 * There are as many mailboxes as io threads. When more than OUTBOXES turn up in one step, one is
 * posted early, and woken; its order stays. Owner: the engine thread. */
#pragma once

#include "os/mailbox.h"

enum { OUTBOXES = 16 };

struct outbox {
    struct {
        struct mailbox *to;
        struct msg *newest, *oldest;
    } chain[OUTBOXES];
    int n;
    int sleepers[OUTBOXES]; /* to be woken */
    int n_sleepers;
};

void outbox_add_first(struct outbox *o, struct mailbox *to, struct msg *take);

static inline void outbox_add(struct outbox *o, struct mailbox *to, struct msg *take)
{
    int i = o->n - 1;

    while (i >= 0 && o->chain[i].to != to)
        i--;
    if (i < 0) {
        outbox_add_first(o, to, take);
        return;
    }
    take->next = o->chain[i].newest;
    o->chain[i].newest = take;
}

/* Posts them. Who sleeps is not woken yet: that costs a system call, which has time until the
 * step's work is done. */
void outbox_flush(struct outbox *o);
void outbox_wake(struct outbox *o);
