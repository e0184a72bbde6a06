/* background.h: a request whose client does not wait for its answer: the answer stands on the shelf
 * from its beginning (store/growing.h), and whoever has its id looks there.
 *
 *     POST     its client gets the object as it begins, or is the first to listen, and is let go
 *     ...      the request runs on without an exchange; what it tells goes on the tape
 *     end      the answer, and the last frames, become what is kept: all at once, so that who
 *              reads the end can go on from it
 *
 * Between io threads nothing is called: a notice says that something has grown, or is not wanted
 * any more, and its io thread looks for itself. Notices do not pile up: one that is on its way
 * stands for all.
 *
 * Owner: the io thread of the request; the notices: any thread. */
#pragma once

#include "serve/request.h"
#include "serve/responses/growing.h"

struct background {   /* in the request's arena */
    struct sink sink; /* of its answer */
    struct request *request;
    const struct kept *kept; /* a reference; NULL: it never began */
    bool has_run, is_full, is_ending;
    struct buf last; /* is_ending: frames that come with the end */
};

/* Before its answer is made, which needs background_sink. ERR_MEMORY. */
int background_new(struct request *r, struct err *e);
struct sink *background_sink(struct request *r);
/* With its answer: it is found from here on. ERR_OVERLOADED: no room. */
int background_keep(struct request *r, struct err *e);
/* It runs: its client is told so, and let go. */
int background_detach(struct request *r, struct err *e);

/* Its model has begun with it: it is queued no more. Again is fine. */
void background_runs(struct request *r);
/* False: there was no room for all that was told. */
bool background_fits(const struct request *r);
/* Around answer_end or answer_error. */
void background_ending(struct request *r);
void background_ended(struct request *r, const struct answer *a);
void background_free(struct request *r); /* NULL is fine; not ended: forgotten */

/* Any thread: who makes it hears that nobody wants it. False: it has ended. */
bool background_stop(struct io *io, const struct kept *k);
/* MSG_UNWANTED */
void background_message(struct io *io);
