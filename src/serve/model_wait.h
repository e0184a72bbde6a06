/* model_wait.h: requests that wait until their model is loaded (serve_options.load_wait_ms).
 *
 *     PREPARING -> the model is loading -> LOADING -> loaded or failed -> PREPARING
 *                                             \-> time limit, cancelled, or the client left
 *
 * The loader thread posts one message to each io thread when a model changes its state; the io
 * thread then checks all its waiting requests. Owner: the io thread, unless stated otherwise. */
#pragma once

#include "serve/inflight.h"

/* Takes over the caller's reference. `continue_fn` receives it when the model is loaded or has
 * failed. If the request ends before that, the reference is dropped. */
void model_wait_start(struct inflight *r, void (*continue_fn)(struct inflight *r));
void model_wait_stop(struct inflight *r); /* the request has ended: continue_fn is not called */

void model_wait_message(struct io *io); /* handles MSG_LOADED */

/* A model of the registry has changed its state. Any thread. */
void model_wait_notify(struct io *io);
