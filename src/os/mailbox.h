/* mailbox.h: the only way one thread gives work to another.
 *
 * Any thread posts; one thread, the owner, drains. A message belongs to whoever holds it:
 * post takes it, drain gives it. Messages from one poster arrive in the order posted.
 *
 * There is a mutex, held for a few instructions. At our rates (thousands of messages a second)
 * a lock-free queue would be faster by nothing and harder to review by a lot. */
#pragma once

#include "base/err.h"

struct msg {
    struct msg *next;
    int kind; /* meaning belongs to the two ends */
};

struct mailbox;

int mailbox_open(struct mailbox **out, struct err *e);
void mailbox_close(struct mailbox *m); /* must be empty */

void mailbox_post(struct mailbox *m, struct msg *take);

/* For what the owner need not hear of at once: it finds it with what comes next, or when so many
 * have gathered. */
enum { MAILBOX_QUIET = 64 };
void mailbox_post_quiet(struct mailbox *m, struct msg *take);

/* Posts a chain linked through ->next (last->next need not be set) with one lock and at most
 * one wake-up. */
void mailbox_post_chain(struct mailbox *m, struct msg *first, struct msg *last);

/* Owner only. All messages so far, oldest first, linked through ->next; NULL when none. */
struct msg *mailbox_drain(struct mailbox *m);

/* Readable while messages wait that are not quiet; for epoll. drain clears it. */
int mailbox_fd(const struct mailbox *m);

/* Owner only: sleeps until a message waits or `deadline_ns` (clock_ns; UINT64_MAX = for ever). */
void mailbox_wait(struct mailbox *m, uint64_t deadline_ns);
