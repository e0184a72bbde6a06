/* model_wait.h: requests that wait until their model is loaded: one that is loaded at start for
 * serve_options.load_wait_ms, one that is loaded on demand for demand_wait_ms.
 *
 *     PREPARING -> the model is not loaded -> LOADING -> loaded -> PREPARING
 *                                                \-> failed, time limit, cancelled, client left
 *
 * A loader thread posts one message to each io thread when a model changes its state; the io
 * thread then checks all its waiting requests. Owner: the io thread, unless stated otherwise. */
#pragma once

#include "serve/inflight.h"

/* Whether a request may wait for its model, which is not loaded. Any thread. */
bool model_wait_is_enabled(const struct inflight *r);
/* Takes over the caller's reference. `continue_fn` receives it when the model is loaded, with a
 * reference to the model. If the request ends before that, the reference is dropped. */
void model_wait_start(struct inflight *r, void (*continue_fn)(struct inflight *r));
void model_wait_stop(struct inflight *r); /* the request has ended: continue_fn is not called */

void model_wait_message(struct io *io); /* handles MSG_LOADED */

/* A model of the registry has changed its state. Any thread. */
void model_wait_notify(struct io *io);
