/* subscriber.h: HTTP exchanges that follow a background response, which may be generated on another
 * io thread: they receive its event stream from any event on, or its final object. Each subscriber
 * reads the event log at the pace of its client. A client that leaves ends only its own
 * subscription.
 *
 * Owner: the io thread of the exchange. */
#pragma once

#include "serve/io.h"
#include "serve/responses/live_response.h"

struct subscriber_params {
    struct http_exchange *x; /* taken */
    struct route_call *call;
    /* with an event log for subscriber_stream; the function takes its own reference */
    const struct stored_response *stored_response;
    uint64_t from; /* number of the first event to send */
};

/* Sends the stored events, then new ones until the response ends; then ends the exchange. */
void subscriber_stream(struct io *io, const struct subscriber_params *a);
/* Sends the final object when the response has ended. */
void subscriber_wait_end(struct io *io, const struct subscriber_params *a);

/* Ends the subscriptions of callers whose keys the policy does not contain any more: 401, or an
 * abort if the stream has begun. */
void subscriber_revoke(struct io *io, const struct policy_snapshot *s);

/* handles MSG_RESPONSE_APPENDED */
void subscriber_message(struct io *io);
