/* fetch.h: the engine and the prefix cache's pages on disk (cache/tier.h).
 *
 * A page that is evicted is copied and written, when there is time for it. A request whose prompt
 * goes on there waits until its pages are read, outside the scheduler, and is scheduled as if it
 * came then; when reading takes longer than computing, by what both were measured to take, it does
 * not wait. The same is asked again when a sequence comes in, for the first time or after it had
 * lost its pages: it is parked meanwhile. Nothing of it shows in an answer.
 *
 * Part of core.c. Owner: the engine thread; nothing here waits for the disk. */
#pragma once

#include "engine/core.h"

/* Where the options say so; else nothing. The scheduler is going to ask what comes (is_coming).
 * ERR_IO, ERR_MEMORY. */
int fetch_open(struct core *c, struct sched_limits *l, struct err *e);
/* What lies in the cache goes to disk, for the next time, as much as five seconds allow. The
 * engine's thread has ended. */
void fetch_close(struct core *c);

/* True: the request waits for pages; core_begin is called for it then. */
bool fetch_begin(struct core *c, struct gen *g);
/* They do not wait any longer. */
void fetch_abandon(struct core *c, struct gen *g);
void fetch_forget(struct choice *ch);
void fetch_receive(struct core *c, struct msg *m, uint64_t now); /* PORT_WRITTEN, PORT_FETCHED */
