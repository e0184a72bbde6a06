/* usage_list.h: GET /v1/admin/usage: a page of the sums of limits/usage.h, which the usage thread
 * reads and returns by message.
 *
 * Owner: the io thread. */
#pragma once

#include "serve/io.h"

void usage_list(struct io *io, struct http_exchange *x, struct route_call *c);
/* Handles MSG_USAGE: the usage thread has executed a query. */
void usage_list_message(struct io *io, struct msg *m);
