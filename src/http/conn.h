/* conn.h: internal header of http/: a connection, and the server that it belongs to.
 *
 *                 first byte        head          whole body       response ended
 *   HANDSHAKE --> IDLE -----> HEAD ------> BODY ------------> RESPONDING ------+--> IDLE
 *   (TLS only)      |           |            |                   |             |
 *                   |           +- rejected -+-------------------+-> CLOSING --+
 *                   +--- drained, idle timeout                       flush     |
 *                                                                  LINGER <----+
 *   any state -- error, deadline, abort --> DEAD               FIN sent, input discarded
 *
 * A connection is not freed while a batch of events or a callback of the application may still use
 * it: a DEAD connection is freed at the end of the loop round (loop_defer).
 *
 * Owner: the thread of the server's loop. */
#pragma once

#include "base/limits.h"
#include "http/exchange.h"
#include "http/tls.h"

#include <sys/socket.h>

enum conn_state { HANDSHAKE, IDLE, HEAD, BODY, RESPONDING, CLOSING, LINGER, DEAD };

/* no further pipelined request is started above this number of queued bytes */
enum { PIPELINE_OUT = SMALL ? 64 : 65536 };

struct conn {
    struct loop_io io;
    struct loop_timer timer;
    /* flushes and updates the connection at the end of the round; frees it if DEAD */
    struct loop_task task;
    struct http_server *s;
    struct list_link in_server; /* in s->idle if IDLE, else in s->busy */
    struct exchange *x;         /* NULL between requests */
    struct tls_conn *tls;       /* NULL without TLS */
    struct http_parser parser;
    struct buf out; /* send queue: [out_at, out.n) is not yet sent */
    size_t out_at;
    struct buf pending; /* bytes of later (pipelined) requests, at most one read; [pending_at, n) */
    size_t pending_at;
    uint64_t since_ns;      /* start of the current state's deadline */
    uint64_t first_byte_ns; /* first byte of the current request */
    uint64_t blocked_ns;    /* the peer has not read since this time; 0 = not blocked */
    uint64_t lingered;      /* bytes discarded in LINGER */
    uint8_t state;
    bool is_fresh;        /* no request yet: the head deadline starts at accept */
    bool is_eof;          /* the peer has sent FIN */
    bool is_ahead;        /* input arrived while a response was due */
    bool want_close;      /* close after this response */
    bool must_abort;      /* abort the connection at the end of the round */
    bool was_high;        /* the queue has exceeded SINK_HIGH_WATER */
    bool want_reset;      /* close with RST, since a FIN would look like the end of the response */
    bool tls_wants_write; /* TLS needs a writable socket to continue the current operation */
    char peer[46];
};

enum { MAX_LISTENERS = 8 };

struct listener {
    struct loop_io io;
    struct http_server *s;
};

struct http_server {
    struct loop *loop;
    struct http_options o;
    struct http_app app;
    struct http_parse_limits limits;
    struct tls *tls;
    struct listener listeners[MAX_LISTENERS];
    int n_listeners;
    /* spare descriptor, released to accept and close one client when descriptors run out */
    int reserve_fd;
    uint16_t port;
    struct list idle, busy; /* idle: longest idle first */
    int n_conns;
    struct loop_timer pause_timer; /* resumes accepting after the system ran out of memory */
    struct loop_timer drain_timer;
    struct loop_task drain_task;
    void (*drain_done)(void *arg);
    void *drain_arg;
    bool is_draining, is_closing;
    uint64_t warned_ns; /* limits warnings about descriptors to one per second */
    int64_t date_s;
    char date[32]; /* date_s as IMF-fixdate */
    struct http_stats stats;
    char scratch[READ_CHUNK]; /* buffer of every read: idle connections own no buffer */
};

#define STAT_ADD(s, field, by)                                                                     \
    __atomic_store_n(&(s)->stats.field, (s)->stats.field + (uint64_t)(by), __ATOMIC_RELAXED)

/* ---- conn.c */

/* Takes ownership of fd. */
void conn_accept(struct http_server *s, int fd, const struct sockaddr *peer);
/* immediately; calls on_disconnect if required; freed after the round */
void conn_abort(struct conn *c);
void conn_close(struct conn *c); /* graceful: sends the queued bytes first */
void conn_free(struct conn *c);  /* only in state DEAD */
void conn_touch(struct conn *c); /* schedules an update at the end of the round */
size_t conn_queued(const struct conn *c);
/* For the protocols: */
void conn_set_state(struct conn *c, enum conn_state state);
bool conn_is_reading(const struct conn *c);
void conn_read(struct conn *c); /* reads and passes the input to the protocol */
uint64_t conn_after_ms(uint64_t from_ns, uint64_t ms);

/* ---- server.c */

void server_conn_freed(struct http_server *s); /* called after a connection was freed */
const char *server_date(struct http_server *s);

/* ---- http1.c, http1_response.c: HTTP/1.1, one exchange at a time */

extern const struct sink_ops http1_sink_ops;
/* Parses until the input is consumed or an exchange waits for its response; returns the number of
 * bytes consumed. */
size_t http1_input(struct conn *c, struct str in);
/* End of the round: ends the exchange whose response is complete, and parses pending input. */
void http1_settle(struct conn *c);
void http1_reject(struct conn *c, struct refusal why);
void http1_end_exchange(struct conn *c);                   /* frees it, if there is one */
void http1_send_error(struct conn *c, struct refusal why); /* queued, with Connection: close */
