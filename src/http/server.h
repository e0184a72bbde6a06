/* server.h: a strict HTTP/1.1 server on one event loop (RFC 9112, RFC 9110).
 *
 * One server belongs to one loop and its io thread; several may listen on one port
 * (SO_REUSEPORT). Every limit below is enforced before memory is spent. What is ambiguous is
 * refused: two Host fields, bare LF, blanks before a colon, folded fields, Content-Length with
 * Transfer-Encoding, conflicting or signed lengths, NUL, any coding but `chunked`.
 *
 * Life of an exchange:
 *
 *   bytes -> head parsed -> app.on_head (refuse early, choose the body cap)
 *         -> body whole  -> app.on_request (takes the exchange; answers through its sink,
 *                           now or later)
 *         -> sink end    -> keep-alive: the next request on the connection, if any
 *
 * If the client leaves (FIN, RST, write error, deadline) after on_request and before the sink
 * has ended, app.on_gone is called once; the exchange is gone when it returns. A FIN counts as
 * leaving both before and during a streamed answer (half-closed clients: options.allow_half_close
 * keeps serving one that is not streaming).
 *
 * on_gone and on_drained come from the loop, never from inside a call into the sink: what is
 * written is queued and leaves in one write at the end of the loop's round. After sink_end or
 * sink_abort the exchange stays valid until the callback in which it was called returns.
 *
 * The field values an application gives to sink_begin lose their control characters; Connection,
 * Content-Length, Transfer-Encoding and Date belong to the server and are left out. */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "http/sink.h"
#include "os/loop.h"

struct http_server;

struct http_request {
    struct str method, target; /* as sent */
    struct str path;           /* percent-decoded, without query */
    struct str query;          /* raw, without '?' */
    const struct http_field *fields;
    int n_fields;
    struct str body; /* whole, de-chunked; valid until the exchange ends */
    struct str peer; /* "127.0.0.1" or "::1" */
    bool is_tls;
};

struct http_exchange {
    struct sink sink; /* the answer goes here */
    const struct http_request *req;
    struct arena *arena; /* lives as long as the exchange; for the app's own things */
    void *user;          /* the app's */
    uint64_t started_ns; /* when the first byte of the request came */
};

/* The body becomes the caller's, who reads it longer than the exchange lives: req->body stays what
 * it is until http_body_free. It counts against max_bodies as long. Before http_server_close, on
 * the thread of the server. */
struct http_body {
    struct http_server *server;
    struct buf bytes;
};
void http_body_take(struct http_exchange *x, struct http_body *out);
void http_body_free(struct http_body *b); /* zeroed and freed ones are fine */

/* A field's value, blanks trimmed; STR_NONE when absent. Name case does not matter. */
struct str http_field_get(const struct http_request *r, const char *name);

struct http_app {
    void *ctx;
    /* Head is here, body is not. Returns the most bytes the body may have, or -1 after having
     * answered through the sink, sink_end included (401 before 16 MB are read). If the client
     * leaves before on_request nobody is told: what on_head takes, arena_cleanup gives back.
     * NULL = bodies of up to 16 MB. */
    int64_t (*on_head)(void *ctx, struct http_exchange *x);
    /* Its body is refused (400, 408, 413, 503), and the connection ends: may answer through the
     * sink, with the status its clients know. What does not answer gets a body that suits most.
     * NULL = nobody does. */
    void (*on_refuse)(void *ctx, struct http_exchange *x, int status, const char *why);
    void (*on_request)(void *ctx, struct http_exchange *x);
    void (*on_gone)(void *ctx, struct http_exchange *x); /* may be NULL */
    /* The queue fell to half of SINK_HIGH_WATER after having been above it. May be NULL. */
    void (*on_drained)(void *ctx, struct http_exchange *x);
};

struct http_options {
    const char *host; /* address or name to bind */
    uint16_t port;    /* 0 = any free one; see http_server_port */
    bool reuse_port;
    int max_connections;
    size_t max_head_bytes; /* request line and fields; over it 431 */
    int max_fields;
    uint32_t head_ms;       /* total time for a head, not inactivity */
    uint32_t body_ms;       /* total time for a body, plus body_min_rate */
    uint32_t body_min_rate; /* bytes a second below which a body is cut with 408 */
    uint32_t idle_ms;       /* keep-alive */
    uint32_t write_ms;      /* a reader that takes nothing for so long is cut */
    size_t max_queued;      /* bytes queued for one connection; over it it is cut */
    size_t max_bodies;      /* bytes of all bodies together; over it 503 */
    size_t max_arena;       /* bytes the arena of one exchange may take */
    bool allow_half_close;
    const char *tls_cert, *tls_key; /* PEM files; NULL = plain */
};

extern const struct http_options http_options_default;

struct http_stats { /* io thread writes, anyone reads (relaxed) */
    uint64_t accepted, requests, bad_requests, gone, bytes_in, bytes_out;
    uint64_t open;
};

int http_server_open(struct http_server **out, struct loop *loop, const struct http_options *o,
    const struct http_app *app, struct err *e);
uint16_t http_server_port(const struct http_server *s);
const struct http_stats *http_server_stats(const struct http_server *s);
/* Any thread. */
void http_server_stats_read(const struct http_server *s, struct http_stats *out);

/* Stops accepting, answers with Connection: close, closes idle connections; `done` is called
 * on the loop when the last exchange has ended or, after deadline_ms, when the rest was cut. */
void http_server_drain(
    struct http_server *s, uint32_t deadline_ms, void (*done)(void *arg), void *arg);
/* Cuts what is left, telling on_gone. Not from inside a callback of the app; from `done` is
 * fine. */
void http_server_close(struct http_server *s);
