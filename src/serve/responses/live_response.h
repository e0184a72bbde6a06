/* live_response.h: responses in the response store that are still being generated.
 *
 *     live_response_begin -> STORED_QUEUED -> live_response_set_running -> STORED_RUNNING
 *         -> live_response_end -> STORED_COMPLETED | STORED_FAILED | STORED_CANCELLED
 *
 * One thread, the producer, calls begin, set_running, append and end; it holds a reference until
 * after live_response_end. Any thread may read the response and its events, subscribe, or request
 * its cancellation. The functions here call no callbacks: append and end return the set of
 * subscribers, and the producer wakes them. A reader that subscribes before it reads misses no
 * event.
 *
 * A live response can be found from the start. It does not expire and is not evicted before its
 * end. Appended bytes count towards the limits; live_response_append returns false at a limit.
 *
 * response_store.mu guards all state. The longest operation under it is the copy of appended
 * frames. */
#pragma once

#include "serve/responses/response_store.h"
#include "serve/responses/event_log.h"

/* bytes by which the final response may exceed the initial one */
enum { LIVE_RESPONSE_RESERVE = 4 * 1024 };

/* `k->response` is the initial response object. Returns NULL if there is no room, memory is short,
 * or the id exists. */
const struct stored_response *live_response_begin(
    struct response_store *s, uint64_t owner, const struct stored_response *k, uint64_t now_ns);
void live_response_set_running(struct response_store *s, const struct stored_response *k);

/* Appends whole frames to the event log. Returns false, and appends nothing, if there is no room.
 * *listeners: bit i is set if subscriber i must be woken. */
bool live_response_append(struct response_store *s, const struct stored_response *k,
    struct str frames, uint64_t *listeners) MUST_CHECK;

struct live_response_final {
    enum stored_stage stage; /* COMPLETED, FAILED or CANCELLED */
    struct str response;     /* final response object */
    struct str frames;       /* last frames of the event log */
    bool is_log_truncated;   /* the event log does not get a final event */
};
/* Sets the final object, the last frames and the stage atomically. Returns false, and changes
 * nothing, if there is no room. A final object of at most LIVE_RESPONSE_RESERVE bytes more than the
 * initial one, with as many bytes of frames, always fits. */
bool live_response_end(struct response_store *s, const struct stored_response *k,
    const struct live_response_final *last, uint64_t now_ns, uint64_t *listeners) MUST_CHECK;

/* Adds subscriber `listener` (0 to 63) to the set that append and end return. */
void live_response_subscribe(
    struct response_store *s, const struct stored_response *k, unsigned listener);
/* Returns at most `most` bytes of the event log at the position and advances it (see event_log.h).
 * The bytes are valid while the caller holds its reference. */
struct str live_response_read(struct response_store *s, const struct stored_response *k,
    struct event_log_pos *p, size_t most);
bool live_response_seek(struct response_store *s, const struct stored_response *k,
    struct event_log_pos *p, uint64_t frame);

/* Requests cancellation; the producer polls live_response_is_cancel_requested. Returns false if the
 * response has ended. */
bool live_response_cancel(struct response_store *s, const struct stored_response *k);
bool live_response_is_cancel_requested(struct response_store *s, const struct stored_response *k);
