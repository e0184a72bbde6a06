/* api_keys.h: routes /v1/admin/api_keys: list, read, create, replace and delete API keys. Reads use
 * the snapshot of the io thread; changes are executed by the policy thread (policy/policy.h), which
 * returns them by message.
 *
 * Owner: the io thread. */
#pragma once

#include "serve/io.h"

void api_keys_list(struct io *io, struct http_exchange *x, struct route_call *c);
void api_keys_show(struct io *io, struct http_exchange *x, struct route_call *c);
void api_keys_create(struct io *io, struct http_exchange *x, struct route_call *c);
void api_keys_replace(struct io *io, struct http_exchange *x, struct route_call *c);
void api_keys_delete(struct io *io, struct http_exchange *x, struct route_call *c);

/* Handles MSG_POLICY_CHANGED: the policy has executed a change. */
void api_keys_message(struct io *io, struct msg *m);
