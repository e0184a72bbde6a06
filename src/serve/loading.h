/* loading.h: requests whose model is still being loaded, and that would rather wait than be told
 * so (serve_options.load_wait_ms).
 *
 *     PREPARING -> its model is loading -> LOADING -> loaded, or failed -> PREPARING again
 *                                            \-> too long, cancelled, or the client left
 *
 * The loader's thread says that something has changed by one message for each io thread, which then
 * looks at all its requests that wait. Owner: the io thread, where nothing else is said. */
#pragma once

#include "serve/request.h"

/* Takes over the hold of whoever prepared it: `go_on` is called when the model is loaded or cannot
 * be, and has it again. A request that ends meanwhile is let go of. */
void loading_wait(struct request *r, void (*go_on)(struct request *r));
void loading_leave(struct request *r); /* it has ended: go_on will not be called */

void loading_message(struct io *io); /* MSG_LOADED */

/* Any thread: a model of the pool has changed its state. */
void loading_tell(struct io *io);
