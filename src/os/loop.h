/* loop.h: one thread's event loop: descriptors (epoll), timers, mailboxes.
 *
 * Owner: the thread that calls loop_run; every function but loop_stop belongs to it (before
 * loop_run, to whoever made the loop). Callbacks run on it, one at a time, and may add, change
 * and remove anything, also what the same epoll batch is about to report: a removed io is never
 * called again. */
#pragma once

#include "base/err.h"
#include "os/mailbox.h"

struct loop;

struct loop_io { /* embedded in what it watches */
    int fd;
    uint32_t events; /* EPOLLIN ... as last set */
    void (*fn)(struct loop_io *io, uint32_t events);
};

struct loop_timer { /* embedded; zeroed = not running */
    uint64_t due_ns;
    size_t heap_index; /* the loop's; 0 = not running */
    void (*fn)(struct loop_timer *t);
};

int loop_open(struct loop **out, struct err *e);
void loop_close(struct loop *l);

void loop_run(struct loop *l);  /* until loop_stop */
void loop_stop(struct loop *l); /* any thread, also a signal handler */

int loop_add(struct loop *l, struct loop_io *io, uint32_t events, struct err *e);
void loop_mod(struct loop *l, struct loop_io *io, uint32_t events);
void loop_del(struct loop *l, struct loop_io *io); /* does not close the descriptor */

void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t due_ns); /* again = moves it */
void loop_timer_stop(struct loop *l, struct loop_timer *t);                 /* idle is fine */
uint64_t loop_now(const struct loop *l); /* clock_ns at the start of this round */

/* Messages for this thread: fn gets each, oldest first, and owns it. At most MAILBOX_BATCH
 * are handled before sockets are looked at again. One mailbox per loop. */
struct mailbox *loop_mailbox(struct loop *l);
void loop_on_message(struct loop *l, void (*fn)(void *ctx, struct msg *m), void *ctx);
