/* oidc.h: the keys of an OpenID Connect issuer, fetched and rotated by one thread.
 *
 *     oidc_open --> oidc_start --> oidc_close
 *
 * The thread reads ISSUER/.well-known/openid-configuration (OpenID Connect Discovery 1.0), whose
 * `issuer` must be the configured one, and the key set of its `jwks_uri`; if the issuer has no such
 * document (404), ISSUER/.well-known/jwks.json. It reads the set again after refresh_s, or earlier
 * if Cache-Control states so, and after oidc_refetch. After a failure the last set remains in use,
 * and the next attempt follows after 1 s, which doubles up to 60 s.
 *
 * Owner: the main thread, for every function except oidc_refetch. */
#pragma once

#include "auth/jwks.h"
#include "http/client/http_client.h"

struct oidc;

struct oidc_options { /* borrowed for the life of the struct */
    const char *issuer;
    const char *jwks_url; /* "" = from the issuer's document */
    uint32_t refresh_s;   /* longest time between two fetches of the set */
    uint32_t refetch_ms;  /* shortest time between two fetches that oidc_refetch causes */
    bool want_endpoints;  /* the document must have those of the authorization code flow */
};

struct oidc_endpoints { /* of the issuer's document */
    char authorization[FETCH_URL_MAX + 1];
    char token[FETCH_URL_MAX + 1];
    char end_session[FETCH_URL_MAX + 1]; /* "" = none */
    bool sends_issuer;                   /* authorization responses have `iss` (RFC 9207) */
};

/* ERR_INVALID, which begins with `what`: not an https URL, nor an http URL of a loopback host. */
int oidc_check_url(struct str url, const char *what, struct err *e) MUST_CHECK;

/* ERR_INVALID: the issuer or the URL is not an https URL, nor an http URL of a loopback host. */
int oidc_open(struct oidc **out, const struct oidc_options *o, struct http_client *client,
    struct err *e) MUST_CHECK;

struct oidc_result {   /* result of one fetch */
    struct jwks *keys; /* NULL = none was received yet; the same as before = not changed */
    uint64_t number;   /* number of the result, from 1 */
    /* borrowed; NULL = not wanted, or not received yet */
    const struct oidc_endpoints *endpoints;
};

/* Starts the thread. It calls `publish` after each fetch; the callback borrows the keys. */
int oidc_start(struct oidc *o, void (*publish)(void *ctx, const struct oidc_result *r), void *ctx,
    struct err *e) MUST_CHECK;

/* A token has a key that is in no result up to number `seen`. True: a fetch is running or begins
 * now, or a later result was published; the caller gets it. False: the last fetch for this reason
 * was less than refetch_ms ago. Any thread. */
bool oidc_refetch(struct oidc *o, uint64_t seen) MUST_CHECK;

/* Ends the thread; http_client_stop was called before. Accepts NULL. */
void oidc_close(struct oidc *o);
