/* loop.h: event loop of one thread: descriptors (epoll), timers, a mailbox, tasks.
 *
 * One round: wait; descriptors; due timers; at most MAILBOX_BATCH messages; tasks.
 *
 * Owner: the thread that calls loop_run, for every function except loop_stop; before loop_run, the
 * thread that opened the loop. Callbacks run on the owner, one at a time. They may add, change and
 * remove any object, also one that the current epoll batch is about to report: a removed io is
 * never called. */
#pragma once

#include "base/err.h"
#include "base/list.h"
#include "os/mailbox.h"

struct loop;

struct loop_io { /* embedded in the watched object */
    int fd;
    uint32_t events; /* EPOLLIN ... as last set */
    void (*fn)(struct loop_io *io, uint32_t events);
};

struct loop_timer { /* embedded; zeroed = not running */
    uint64_t due_ns;
    size_t heap_index; /* internal; 0 = not running */
    void (*fn)(struct loop_timer *t);
};

struct loop_task {           /* embedded; zeroed = not queued */
    struct list_link queued; /* internal */
    void (*fn)(struct loop_task *t);
};

int loop_open(struct loop **out, struct err *e);
/* Passes the remaining messages to the handler first; the data that the handler uses must still
 * exist. */
void loop_close(struct loop *l);

void loop_run(struct loop *l);  /* returns after loop_stop; may be called again */
void loop_stop(struct loop *l); /* any thread and signal handlers, also before loop_run */

/* Runs one round that waits at most max_ms (-1 = until an event): for tests. */
void loop_once(struct loop *l, int max_ms);

int loop_add(struct loop *l, struct loop_io *io, uint32_t events, struct err *e);
void loop_mod(struct loop *l, struct loop_io *io, uint32_t events);
void loop_del(struct loop *l, struct loop_io *io); /* does not close the descriptor */

/* changes the time of a running timer */
void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t due_ns);
void loop_timer_stop(struct loop *l, struct loop_timer *t); /* a stopped timer is allowed */
uint64_t loop_now(const struct loop *l); /* clock_ns at the start of this round */

/* Runs t once, after all other work of this round. Used to send the output of a round in one write,
 * and to free memory that the round may still use. A task that is queued while tasks run is
 * executed in the next round, which does not wait. */
void loop_defer(struct loop *l, struct loop_task *t);   /* no effect if already queued */
void loop_undefer(struct loop *l, struct loop_task *t); /* no effect if not queued */

/* Sets the handler of messages to this thread: fn receives each message, oldest first, and owns it.
 * At most MAILBOX_BATCH messages are handled per round. There is one mailbox per loop. */
struct mailbox *loop_mailbox(struct loop *l);
void loop_on_message(struct loop *l, void (*fn)(void *ctx, struct msg *m), void *ctx);
