/* session_routes.h: sessions of browsers.
 *
 *     POST   /v1/session               with a key: sets the session cookie
 *     GET    /v1/session               the caller, and whether browsers can log in
 *     DELETE /v1/session               ends the session
 *     GET    /v1/session/login         sends the browser to the issuer of tokens
 *     GET    /v1/session/callback      the browser returns from the issuer
 *     POST   /v1/session/logout_token  the issuer ends the sessions of a user
 *
 * The cookie is HttpOnly, SameSite=Strict and, if browsers reach the server by https, Secure with
 * the prefix __Host-. The cookie of a login that has begun is SameSite=Lax, since the browser
 * returns from another site, and contains no token.
 *
 * Owner: the io thread. */
#pragma once

#include "serve/routes.h"

struct msg;

void session_routes_show(struct io *io, struct http_exchange *x, struct route_call *c);
void session_routes_create(struct io *io, struct http_exchange *x, struct route_call *c);
void session_routes_end(struct io *io, struct http_exchange *x, struct route_call *c);
void session_routes_login(struct io *io, struct http_exchange *x, struct route_call *c);
void session_routes_callback(struct io *io, struct http_exchange *x, struct route_call *c);
void session_routes_logout_token(struct io *io, struct http_exchange *x, struct route_call *c);
void session_routes_message(struct io *io, struct msg *m);

/* The value of the session cookie; STR_NONE: none, several, or not allowed by the origin. */
struct str session_routes_cookie(
    const struct io *io, const struct http_exchange *x, const struct route_call *c);
