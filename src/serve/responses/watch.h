/* watch.h: exchanges that follow an answer which is made in the background, perhaps on another io
 * thread: as its stream, from any event on, or for how it ends. Each reads the tape for itself, at
 * its client's pace; a client that leaves ends nothing but its watch.
 *
 * Owner: the io thread of the exchange. */
#pragma once

#include "serve/io.h"
#include "serve/responses/growing.h"

struct watch_ask {
    struct http_exchange *x; /* taken */
    struct call *call;
    const struct kept *kept; /* with a tape for watch_stream; a reference of its own is not taken */
    uint64_t from;           /* the first event that is wanted */
};

/* Events as they were first told, live until the end; then the exchange ends. */
void watch_stream(struct io *io, const struct watch_ask *a);
/* The object, when it has ended. */
void watch_end(struct io *io, const struct watch_ask *a);

/* MSG_GROWN */
void watch_message(struct io *io);
