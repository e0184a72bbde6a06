/* clerk.h: a thread beside an io thread, for the work that would hold up its loop.
 *
 * A body of many kilobytes is parsed, rendered and tokenised there: megabytes take tenths of a
 * second, a single word of them cannot be cut into slices, and the other connections of the io
 * thread want to be answered meanwhile. Jobs run one after the other, oldest first. They wait in
 * a mailbox; what bounds them is what bounds the bodies they hold (http_options.max_bodies).
 *
 *   io thread: clerk_post ----> clerk: run, unless is_stopped
 *   io thread: done       <---- the loop's mailbox, CLERK_DONE -> clerk_done
 *
 * A job belongs to whoever holds it: between clerk_post and done its io thread may set is_stopped
 * and nothing else. */
#pragma once

#include "base/err.h"
#include "os/mailbox.h"

#include <stdatomic.h>

struct clerk;

enum { CLERK_DONE = 210 }; /* msg.kind of a job that comes home */

struct clerk_job {                    /* embedded; the asker sets the first two */
    void (*run)(struct clerk_job *j); /* on the clerk's thread */
    /* On the io thread, always, exactly once. NULL: the job does not come home, run frees it: to
     * give hundreds of megabytes back to the system takes its time, too. */
    void (*done)(struct clerk_job *j);
    _Atomic bool is_stopped; /* nobody wants it any more: run may end early */
    struct msg msg;
};

/* More than this many bytes of a body are worth the two messages. */
enum { CLERK_FROM = 32 * 1024 };

/* `home` is where jobs come back to. */
int clerk_open(struct clerk **out, struct mailbox *home, struct err *e);
/* Sends what it has home, running it unless it was stopped, and joins. NULL is fine. */
void clerk_close(struct clerk *c);

void clerk_post(struct clerk *c, struct clerk_job *take);
void clerk_done(struct msg *m); /* of kind CLERK_DONE: calls the job's done */
