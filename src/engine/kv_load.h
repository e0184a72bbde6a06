/* kv_load.h: connects the engine with the KV offload tier (cache/tier.h).
 *
 * An evicted page is copied and written to disk, if a buffer is free. A request whose prompt
 * continues in such pages waits outside the scheduler until they are read, and is scheduled as if
 * it arrived then. If reading takes longer than computing, by the measured times of both, it does
 * not wait. The same decision is made at the admission of a sequence without pages, which is parked
 * meanwhile. The output does not depend on it.
 *
 * For a model with state slots, evicted checkpoints are written too. A request waits for the
 * deepest one on disk with which its prompt begins, if all pages before it are in memory or on
 * disk, and resumes there. If one of its records cannot be read, nothing of them is used.
 *
 * For a model with windowed layers the record of a page includes its window page, if it has one
 * when one of both is evicted. A request resumes where, in memory or on disk, all pages before the
 * position exist and all window pages that its next row reads (kv_find.h).
 *
 * Part of core.c. Owner: the engine thread, which never waits for the disk. */
#pragma once

#include "engine/core.h"

/* Opens the tier if the options configure one, and registers the admission callback in `l`. ERR_IO,
 * ERR_MEMORY. */
int kv_load_open(struct core *c, struct sched_limits *l, struct err *e);
/* Writes the pages in the prefix cache to disk for the next start, for at most five seconds. The
 * engine thread has ended. */
void kv_load_close(struct core *c);

/* Returns true if the request waits for pages; core_schedule is called for it later. */
bool kv_load_start(struct core *c, struct gen *g);
/* Ends the wait of a request without calling core_schedule; the read continues. */
void kv_load_cancel(struct core *c, struct gen *g);
void kv_load_detach(struct gen_choice *ch);
/* ENGINE_MSG_TIER_WRITTEN, ENGINE_MSG_TIER_READ. */
void kv_load_receive(struct core *c, struct msg *m, uint64_t now);
