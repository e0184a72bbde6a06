/* key_wait.h: callers with tokens, and requests that wait for a key of the issuer.
 *
 * If no key matches the token of a request, and the rate limit of oidc_refetch allows it, the key
 * set is fetched again. The request waits for the result after its body was received, and is then
 * checked once more: it goes on, or gets 401.
 *
 * Owner: the io thread, except where noted. */
#pragma once

#include "serve/io.h"

/* service.c: finds the key of the caller and checks its scope. If it fails with c->waits_for_keys,
 * the request waits. */
int service_check_caller(
    struct io *io, struct http_exchange *x, struct route_call *c, struct err *e);

/* service.c: finds the key of the caller, and checks that it may be used now and from the client's
 * address. */
int service_find_caller(
    struct io *io, struct http_exchange *x, struct route_call *c, struct err *e);

/* The key of the token's caller. NULL with `e` set: refused, or c->waits_for_keys. */
const struct policy_key *key_wait_find(
    struct io *io, struct route_call *c, struct str token, struct err *e);
/* The request has been received. */
void key_wait_begin(struct io *io, struct http_exchange *x, struct route_call *c);

/* Sends the io thread a result. Oidc thread. */
void key_wait_publish(struct io *io, const struct oidc_result *r);
void key_wait_message(struct io *io, struct msg *m);
