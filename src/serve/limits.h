/* limits.h: routes /v1/admin/limits, /v1/admin/tenants and /v1/admin/rate_limit: list, read, put
 * and delete limits and prices (policy/limit_set.h), with what is used of them. Reads use the
 * snapshot of the io thread; changes are executed by the policy thread, which returns them by
 * message.
 *
 * Owner: the io thread. */
#pragma once

#include "serve/io.h"

void limits_list(struct io *io, struct http_exchange *x, struct route_call *c);
void limits_show(struct io *io, struct http_exchange *x, struct route_call *c);
void limits_replace(struct io *io, struct http_exchange *x, struct route_call *c);
void limits_delete(struct io *io, struct http_exchange *x, struct route_call *c);
void tenants_list(struct io *io, struct http_exchange *x, struct route_call *c);
/* `tokens_per_minute` of this route is the default number of requests per minute of a key: the name
 * that clients of the first version use. */
void rate_limit_show(struct io *io, struct http_exchange *x, struct route_call *c);
void rate_limit_replace(struct io *io, struct http_exchange *x, struct route_call *c);

/* Handles MSG_LIMITS_CHANGED: the policy has executed a change. */
void limits_message(struct io *io, struct msg *m);
