/* event_log.h: append-only log of SSE frames that a reader can replay from any frame. Bytes never
 * move after they are appended.
 *
 *     log_chunk -> log_chunk -> log_chunk    each twice as large as the one before, up to CHUNK_MAX
 *
 * The log is written in whole frames. A frame ends with an empty line ("\n\n"), contains no other
 * empty line, and does not span chunks.
 *
 * Owner: the thread that holds the caller's lock, for all functions. The bytes that event_log_read
 * returned never change; they may be read without the lock while the log exists. */
#pragma once

#include "base/str.h"

struct log_chunk;

struct event_log { /* zeroed = empty */
    struct log_chunk *first, *last;
    struct log_chunk *reserve; /* reserved for the final event */
    uint64_t n_frames;
};

struct event_log_pos { /* read position; zeroed = start of the log */
    const struct log_chunk *log_chunk;
    size_t offset;
};

void event_log_clear(struct event_log *t);
/* Bytes of memory that appending n bytes would allocate. */
size_t event_log_cost(const struct event_log *t, size_t n);
/* Appends whole frames. Returns false, and appends nothing, if memory is short. */
bool event_log_append(struct event_log *t, struct str frames) MUST_CHECK;

/* Allocates room for n bytes of final frames, so that they can be appended when memory is short.
 * May be called once. Returns the bytes of memory that it took; 0: memory is short. */
size_t event_log_reserve(struct event_log *t, size_t n) MUST_CHECK;
/* Appends frames into the reserved room. Returns false if they are larger than the room, or if it
 * was used already. */
bool event_log_append_reserved(struct event_log *t, struct str frames) MUST_CHECK;

/* Returns at most `most` bytes at the position and advances it. Empty: the position is at the end
 * of the log. */
struct str event_log_read(const struct event_log *t, struct event_log_pos *p, size_t most);
/* Moves the position to the start of a frame, counted from 0. Returns false if that frame is not in
 * the log yet. */
bool event_log_seek(const struct event_log *t, struct event_log_pos *p, uint64_t frame);
