/* loop.h: one thread's event loop: descriptors (epoll), timers, mailboxes, tasks.
 *
 * Owner: the thread that calls loop_run; every function but loop_stop belongs to it (before
 * loop_run, to whoever made the loop). Callbacks run on it, one at a time, and may add, change
 * and remove anything, also what the same epoll batch is about to report: a removed io is never
 * called again.
 *
 * One round: wait; descriptors; timers that are due; at most MAILBOX_BATCH messages; tasks. */
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

struct loop_task {                 /* embedded; zeroed = not waiting */
    struct loop_task *next, *prev; /* the loop's; next = NULL: not waiting */
    void (*fn)(struct loop_task *t);
};

int loop_open(struct loop **out, struct err *e);
/* Messages still waiting are given to the handler first: what it needs must still be there. */
void loop_close(struct loop *l);

void loop_run(struct loop *l);  /* until loop_stop; may be run again afterwards */
void loop_stop(struct loop *l); /* any thread, also a signal handler, also before loop_run */

/* One round that waits at most max_ms (-1 = until something happens): for tests. */
void loop_once(struct loop *l, int max_ms);

int loop_add(struct loop *l, struct loop_io *io, uint32_t events, struct err *e);
void loop_mod(struct loop *l, struct loop_io *io, uint32_t events);
void loop_del(struct loop *l, struct loop_io *io); /* does not close the descriptor */

void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t due_ns); /* again = moves it */
void loop_timer_stop(struct loop *l, struct loop_timer *t);                 /* idle is fine */
uint64_t loop_now(const struct loop *l); /* clock_ns at the start of this round */

/* Runs t once, after everything else of this round: how what one round produced leaves in one
 * write, and how memory is freed that the round may still look at. A task asked for while tasks
 * run waits for the next round, which then does not sleep. */
void loop_defer(struct loop *l, struct loop_task *t);   /* again = nothing */
void loop_undefer(struct loop *l, struct loop_task *t); /* not waiting is fine */

/* Messages for this thread: fn gets each, oldest first, and owns it. At most MAILBOX_BATCH
 * are handled before sockets are looked at again. One mailbox per loop. */
struct mailbox *loop_mailbox(struct loop *l);
void loop_on_message(struct loop *l, void (*fn)(void *ctx, struct msg *m), void *ctx);
