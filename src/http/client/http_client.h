/* http_client.h: the one HTTP client for requests that the server sends: JWKS, policy decisions,
 * media, telemetry, model files. It is libcurl's multi interface on one thread.
 *
 *     http_client_open --> http_client_post ... --> http_client_stop --> http_client_close
 *
 * Any thread posts a struct http_fetch, which the client owns until it posts it back to `reply_to`
 * with the result. No call but close waits for the network.
 *
 * Rules for every fetch:
 *
 *   scheme      http and https, without user name and password in the URL; no proxy
 *   address     checked in the moment of the connect, after DNS: the socket is connected to the
 *               address that was checked, so a DNS server that changes its answers has no effect.
 *               FETCH_PUBLIC reaches only public addresses (address.h); connections are not shared
 *               with FETCH_CONFIGURED
 *   redirects   at most max_redirects, each one checked like the first URL; never from https to
 *               http. `authorization` is not sent to another scheme, host or port. A fetch with a
 *               body follows only 307 and 308, on the same scheme, host and port
 *   bytes       max_bytes for the body as received and for the decompressed body; 64 kB for the
 *               heads of one response
 *   time        timeout_ms for all redirects together
 *
 * Owner: the main thread opens and closes; any thread posts. */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "os/mailbox.h"

#include <sys/socket.h>

struct http_client;

enum fetch_policy {
    FETCH_CONFIGURED, /* URLs of the operator: any address */
    FETCH_PUBLIC,     /* URLs of clients, and URLs that other servers have chosen */
    N_FETCH_POLICIES
};

enum {
    FETCH_REDIRECTS_MAX = 5,
    FETCH_HEAD_BYTES_MAX = 64 * 1024,
    FETCH_URL_MAX = 2048,
    FETCH_FIELDS_MAX = 8
};

struct http_fetch {
    struct msg msg; /* kind: of the reply */
    struct mailbox *reply_to;
    /* the request: the strings are borrowed until the reply */
    enum fetch_policy policy;
    const char *url;
    const char *authorization; /* value of the field; NULL = none */
    /* further request fields, "Name: value"; NULL after the last. Sent to every host. */
    const char *fields[FETCH_FIELDS_MAX + 1];
    struct str body; /* p = NULL: GET, else POST */
    size_t max_bytes;
    uint32_t timeout_ms;
    int max_redirects; /* at most FETCH_REDIRECTS_MAX */
    /* The result. ERR_NONE: a response with any status but a redirect that was followed.
     * ERR_INVALID: the URL; ERR_FORBIDDEN: address or redirect; ERR_TOO_LARGE; ERR_TIMEOUT;
     * ERR_CANCELLED: the client was closed; ERR_MEMORY; ERR_IO: DNS, connect, TLS, protocol. */
    struct err err;
    int status, n_redirects;
    struct buf response;    /* body; the receiver calls buf_clear */
    int64_t max_age_s;      /* max-age of Cache-Control; -1 = none */
    char content_type[100]; /* "" = none; truncated */
};

struct http_client_options { /* borrowed by http_client_open only */
    const char *ca_file;     /* PEM certificates of authorities; NULL or "" = those of the system */
    /* Addresses that FETCH_PUBLIC may reach; NULL = address_is_public. Tests replace it. */
    bool (*is_public)(const struct sockaddr *a);
};

/* ERR_INVALID: ca_file cannot be read; ERR_IO, ERR_MEMORY. */
int http_client_open(
    struct http_client **out, const struct http_client_options *o, struct err *e) MUST_CHECK;
void http_client_post(struct http_client *c, struct http_fetch *take);
/* Ends the running fetches, and those that are posted later, with ERR_CANCELLED. So the senders can
 * end before the client is closed. Main thread; at most once; accepts NULL. */
void http_client_stop(struct http_client *c);
/* Ends the running fetches with ERR_CANCELLED: all replies are posted when it returns. Accepts
 * NULL. */
void http_client_close(struct http_client *c);
