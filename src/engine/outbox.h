/* outbox.h: the events of one step, collected per mailbox, so that a mailbox gets them as one post
 * and with at most one wake-up.
 *
 * There are as many mailboxes as io threads. When more than OUTBOXES turn up in one step, one is
 * posted early; its order stays. Owner: the engine thread. */
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

void outbox_add(struct outbox *o, struct mailbox *to, struct msg *take);
void outbox_flush(struct outbox *o);
