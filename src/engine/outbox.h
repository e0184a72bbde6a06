/* outbox.h: events of one step, collected per mailbox, so that each mailbox gets one post and at
 * most one wake-up.
 *
 * There is one mailbox per io thread. If more than OUTBOXES occur in one step, one is posted early;
 * the order of its messages is kept. Owner: the engine thread. */
#pragma once

#include "os/mailbox.h"

enum { OUTBOXES = 16 };

struct outbox {
    struct {
        struct mailbox *to;
        struct msg *newest, *oldest;
    } chain[OUTBOXES];
    int n;
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

void outbox_flush(struct outbox *o); /* posts the collected messages */
