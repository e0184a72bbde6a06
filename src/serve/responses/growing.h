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

#include "serve/responses/shelf.h"
#include "serve/responses/tape.h"

/* bytes by which the final response may exceed the initial one */
enum { GROWING_SPARE = 4 * 1024 };

/* `k->response` is the initial response object. Returns NULL if there is no room, memory is short,
 * or the id exists. */
const struct kept *growing_begin(
    struct shelf *s, uint64_t owner, const struct kept *k, uint64_t now_ns);
void growing_runs(struct shelf *s, const struct kept *k);

/* Appends whole frames to the event log. Returns false, and appends nothing, if there is no room.
 * *listeners: bit i is set if subscriber i must be woken. */
bool growing_put(
    struct shelf *s, const struct kept *k, struct str frames, uint64_t *listeners) MUST_CHECK;

struct growing_last {
    enum kept_stage stage; /* COMPLETED, FAILED or CANCELLED */
    struct str answer;     /* final response object */
    struct str frames;     /* last frames of the event log */
    bool is_cut;           /* the event log does not get a final event */
};
/* Sets the final object, the last frames and the stage atomically. Returns false, and changes
 * nothing, if there is no room. A final object of at most LIVE_RESPONSE_RESERVE bytes more than the
 * initial one, with as many bytes of frames, always fits. */
bool growing_end(struct shelf *s, const struct kept *k, const struct growing_last *last,
    uint64_t now_ns, uint64_t *listeners) MUST_CHECK;

/* Adds subscriber `listener` (0 to 63) to the set that append and end return. */
void growing_listen(struct shelf *s, const struct kept *k, unsigned listener);
/* Returns at most `most` bytes of the event log at the position and advances it (see event_log.h).
 * The bytes are valid while the caller holds its reference. */
struct str growing_read(struct shelf *s, const struct kept *k, struct tape_place *p, size_t most);
bool growing_seek(struct shelf *s, const struct kept *k, struct tape_place *p, uint64_t frame);

/* Requests cancellation; the producer polls live_response_is_cancel_requested. Returns false if the
 * response has ended. */
bool growing_stop(struct shelf *s, const struct kept *k);
bool growing_is_unwanted(struct shelf *s, const struct kept *k);
