/* mailbox.h: the only way one thread gives work to another.
 *
 * Any thread posts; one thread, the owner, drains. A message belongs to whoever holds it:
 * post takes it, drain gives it. Messages from one poster arrive in the order posted.
 *
 * Nobody waits for anybody: posting is one compare-and-swap, draining one exchange. The owner says
 * when it is about to sleep; only the first message after that costs a system call, which wakes it.
 * An owner that is busy is never called. */
#pragma once

#include "base/err.h"

struct msg {
    struct msg *next;
    int kind; /* meaning belongs to the two ends */
};

struct mailbox;

int mailbox_open(struct mailbox **out, struct err *e);
/* Must be empty. May come as soon as the last message was drained: its poster uses nothing of the
 * mailbox any more but the descriptor, and that is waited for. */
void mailbox_close(struct mailbox *m);

void mailbox_post(struct mailbox *m, struct msg *take);

/* For what the owner need not hear of at once: it finds it with what comes next, or when so many
 * were posted. */
enum { MAILBOX_QUIET = 64 };
void mailbox_post_quiet(struct mailbox *m, struct msg *take);

/* Posts a chain linked through ->next, the newest first (oldest->next need not be set), as one:
 * it arrives in a piece, the oldest first. */
void mailbox_post_chain(struct mailbox *m, struct msg *newest, struct msg *oldest);

/* The same, but an owner that sleeps is not woken: returns the descriptor that mailbox_wake must be
 * called with soon, else -1. The mailbox may be gone by then; its descriptor is not. */
int mailbox_post_asleep(struct mailbox *m, struct msg *newest, struct msg *oldest) MUST_CHECK;
void mailbox_wake(int fd);

/* Owner only. All messages so far, oldest first, linked through ->next; NULL when none. */
struct msg *mailbox_drain(struct mailbox *m);

/* Owner only: sleeps until a message waits that is not quiet, or `deadline_ns` (clock_ns;
 * UINT64_MAX = for ever). A signal may end it early. */
void mailbox_wait(struct mailbox *m, uint64_t deadline_ns);

/* For owners that sleep on several descriptors (epoll): arm before it, and drain after it. True:
 * from here on, and until the next drain, a message that is not quiet makes the descriptor
 * readable. False: one is there already. */
bool mailbox_arm(struct mailbox *m) MUST_CHECK;
int mailbox_fd(const struct mailbox *m);
