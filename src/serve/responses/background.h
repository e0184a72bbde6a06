/* background.h: background requests of the Responses API. The response is in the response store
 * from its start (live_response.h); clients read it by its id.
 *
 *     POST     the client receives the initial object, or becomes the first subscriber
 *     ...      the request runs without an exchange; its frames are appended to the event log
 *     end      the final object and the last frames are stored atomically, so that a client
 *              that has read the end can continue the conversation with it
 *
 * Io threads do not call each other. A wakeup message states only that some response has new
 * events, or that some response was cancelled; the receiving io thread checks its own responses.
 * Wakeups are coalesced: at most one of each kind is posted per io thread.
 *
 * Owner: the io thread of the request. Any thread posts wakeups. */
#pragma once

#include "serve/inflight.h"
#include "serve/responses/live_response.h"

struct background {   /* in the request's arena */
    struct sink sink; /* receives the bytes of the response */
    struct inflight *inflight;
    const struct stored_response *stored_response; /* a reference; NULL: not in the store */
    bool has_run, is_full, is_ending;
    struct buf last; /* is_ending: frames that are stored with the final object */
};

/* Called before the response is created, which writes to background_sink. ERR_MEMORY. */
int background_new(struct inflight *r, struct err *e);
struct sink *background_sink(struct inflight *r);
/* Puts the new response into the store; from here on it can be found. ERR_OVERLOADED: no room. */
int background_store(struct inflight *r, struct err *e);
/* Replies to the client and detaches the exchange from the request. */
int background_detach(struct inflight *r, struct err *e);

/* The engine has started the request: sets the stage from queued to running. Idempotent. */
void background_set_running(struct inflight *r);
/* False: the store had no room for all events. */
bool background_has_room(const struct inflight *r);
/* Called before and after response_end or response_error. */
void background_begin_end(struct inflight *r);
void background_finish_end(struct inflight *r, const struct response *a);
/* accepts NULL; a response that has not ended is removed from the store */
void background_free(struct inflight *r);

/* Requests cancellation and wakes the producing io thread. Returns false if the response has ended.
 * Any thread. */
bool background_cancel(struct io *io, const struct stored_response *k);
/* handles MSG_RESPONSE_CANCELLED */
void background_message(struct io *io);
