/* server.h: strict HTTP/1.1 server on one event loop (RFC 9112, RFC 9110).
 *
 * A server belongs to one loop and its io thread; several servers may listen on one port
 * (SO_REUSEPORT). Every limit below is enforced before memory is allocated. Ambiguous input is
 * rejected: two Host fields, bare LF, whitespace before a colon, folded fields, Content-Length with
 * Transfer-Encoding, conflicting or signed lengths, NUL, any coding other than `chunked`.
 *
 * Sequence of an exchange:
 *
 *   bytes -> head parsed -> app.on_head (early rejection, limit of the body)
 *         -> whole body  -> app.on_request (receives the exchange; responds through its sink,
 *                           immediately or later)
 *         -> sink end    -> keep-alive: the next request on the connection, if any
 *
 * If the client disconnects (FIN, RST, write error, deadline) after on_request and before the sink
 * has ended, app.on_disconnect is called once; the exchange is freed after it returns. A FIN counts
 * as a disconnect both before and during a streamed response (with options.allow_half_close, a
 * half-closed client still receives a response that is not streamed).
 *
 * The loop calls on_disconnect and on_drained, never from inside a call of the sink: written bytes
 * are queued and sent in one write at the end of the loop's round. After sink_end or sink_abort the
 * exchange remains valid until the callback that called it returns.
 *
 * Control characters are removed from field values that the application passes to sink_begin. The
 * server sets Connection, Content-Length, Transfer-Encoding and Date itself and ignores those of
 * the application.
 *
 * Owner: the io thread of the loop. */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "http/sink.h"
#include "os/loop.h"

struct http_server;

struct http_request {
    struct str method, target; /* method and target as received */
    struct str path;           /* percent-decoded, without query */
    struct str query;          /* raw, without '?' */
    struct str host;           /* host of an absolute-form target, else of Host; STR_NONE: none */
    const struct http_field *fields;
    int n_fields;
    struct str body; /* whole, without chunk framing; valid until the exchange ends */
    struct str peer; /* "127.0.0.1" or "::1" */
    bool is_tls;
};

struct http_exchange {
    struct sink sink; /* receives the response */
    const struct http_request *req;
    struct arena *arena; /* has the lifetime of the exchange; for data of the application */
    void *user;          /* data of the application */
    uint64_t started_ns; /* time of the first byte of the request */
    int owner;           /* owner of the body in options.bodies; on_head may set it */
};

/* Transfers ownership of the body to the caller, which may read it after the end of the exchange;
 * req->body remains valid until http_body_free. The body counts against the budget until then. */
struct http_body {
    struct buf bytes;
    struct charge charge;
};
void http_body_take(struct http_exchange *x, struct http_body *out);
void http_body_free(struct http_body *b); /* accepts zeroed and freed ones */

/* Replaces req->peer by an address that lives as long as the exchange. */
void http_set_peer(struct http_exchange *x, struct str peer);

/* Value of a field without surrounding whitespace; STR_NONE if absent. The name is
 * case-insensitive. */
struct str http_field_get(const struct http_request *r, const char *name);

struct http_app {
    void *ctx;
    /* The head is complete, the body is not. Returns the limit of the body in bytes, or -1 if a
     * response was sent through the sink including sink_end (for example 401 before 16 MB are
     * read). If the client disconnects before on_request, there is no callback: resources taken in
     * on_head are released by arena_cleanup. NULL = bodies of up to 16 MB. */
    int64_t (*on_head)(void *ctx, struct http_exchange *x);
    /* The body is rejected (400, 408, 413, 429, 503) and the connection will be closed: the
     * application may respond through the sink in the format of its dialect. If it does not, or if
     * NULL, the server sends a generic error body. */
    void (*on_reject)(void *ctx, struct http_exchange *x, int status, const char *why);
    void (*on_request)(void *ctx, struct http_exchange *x);
    void (*on_disconnect)(void *ctx, struct http_exchange *x); /* may be NULL */
    /* The queue fell to half of SINK_HIGH_WATER after it had exceeded SINK_HIGH_WATER. May be
     * NULL. */
    void (*on_drained)(void *ctx, struct http_exchange *x);
};

/* PORT_SHARE: the servers with PORT_JOIN that are opened later accept connections on the same port.
 * With PORT_OWN and PORT_SHARE a port on which any socket listens is an error. */
enum port_use { PORT_OWN, PORT_SHARE, PORT_JOIN };

struct http_options {
    const char *host; /* address or name to bind */
    uint16_t port;    /* 0 = any free port; see http_server_port */
    enum port_use port_use;
    int max_connections;
    size_t max_head_bytes; /* request line and fields; above: 431 */
    int max_fields;
    uint32_t head_ms; /* total time of a head, not inactivity */
    /* Longest time without a byte of a body, and longest delay of the body compared with one that
     * arrives at body_min_rate; then 408. */
    uint32_t body_ms;
    uint32_t body_min_rate; /* bytes per second; 0 = the whole body arrives within body_ms */
    uint32_t idle_ms;       /* keep-alive timeout */
    uint32_t write_ms;      /* a client that reads nothing for this time is disconnected */
    size_t max_queued;      /* queued bytes of one connection; above: disconnected */
    /* Limits the bytes of all bodies; several servers may share it. Above: 429 for an owner's
     * share, 413 for a body that can never fit, else 503. NULL = no limit. */
    struct budget *bodies;
    size_t max_arena; /* limit of the arena of one exchange, in bytes */
    bool allow_half_close;
    const char *tls_cert, *tls_key; /* see struct tls_files; NULL = no TLS */
    const char *tls_client_ca;      /* see tls.h; NULL = clients need no certificate */
};

extern const struct http_options http_options_default;

struct http_stats { /* written by the io thread, read by any thread (relaxed) */
    uint64_t accepted, requests, bad_requests, gone, bytes_in, bytes_out;
    uint64_t open;
};

int http_server_open(struct http_server **out, struct loop *loop, const struct http_options *o,
    const struct http_app *app, struct err *e);
uint16_t http_server_port(const struct http_server *s);
const struct http_stats *http_server_stats(const struct http_server *s);
struct tls;
/* Uses these certificates for new connections, in a server that was opened with TLS. */
void http_server_set_tls(struct http_server *s, struct tls *take);
/* Any thread. */
void http_server_stats_read(const struct http_server *s, struct http_stats *out);

/* Stops accepting, responds with Connection: close, closes idle connections. `done` is called on
 * the loop when the last exchange has ended or, after deadline_ms, when the remaining connections
 * were aborted. */
void http_server_drain(
    struct http_server *s, uint32_t deadline_ms, void (*done)(void *arg), void *arg);
/* Aborts the remaining connections and calls on_disconnect. Not from inside a callback of the
 * application, except `done`. */
void http_server_close(struct http_server *s);
