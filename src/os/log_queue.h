/* log_queue.h: bounded queue of log lines between the threads of the server and stderr.
 *
 * A write to a pipe or a terminal blocks while its reader is stalled, and no thread that serves
 * requests may wait for it. After log_queue_open, log_line() adds each line to a queue of
 * LOG_QUEUE_BYTES, which one thread writes to stderr. A line for which the queue has no room is
 * dropped and counted; a log line states the number as soon as there is room again.
 *
 * Any thread, except where noted. */
#pragma once

#include "base/err.h"

enum { LOG_QUEUE_BYTES = 1024 * 1024 };

/* Main thread, before threads that log start. ERR_IO, ERR_MEMORY. */
int log_queue_open(struct err *e);

/* Main thread: writes the queued lines, for at most timeout_ms, and lets log_line() write directly
 * again. If the reader is stalled until then, the lines are lost, unless a further call waits
 * longer. No effect before log_queue_open. */
void log_queue_close(uint32_t timeout_ms);

uint64_t log_queue_dropped(void); /* lines dropped since the start */
