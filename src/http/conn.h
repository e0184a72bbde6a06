/* conn.h: inside http/: one connection and the server it belongs to.
 *
 *                 first byte        head          body whole        answer ended
 *   HANDSHAKE --> IDLE -----> HEAD ------> BODY ------------> ANSWER ----------+--> IDLE
 *   (TLS only)      |           |            |                   |             |
 *                   |           +- refused --+-------------------+-> CLOSING --+
 *                   +--- drained, idle too long                      flush     |
 *                                                                  LINGER <----+
 *   any state -- error, deadline, abort --> DEAD               FIN sent, input thrown away
 *
 * Nothing is freed while a batch of events or a callback of the application may still look at
 * it: DEAD connections wait for the end of the round (loop_defer).
 *
 * Owner: the thread of the server's loop. */
#pragma once

#include "base/limits.h"
#include "http/parse.h"
#include "http/tls.h"

#include <sys/socket.h>

enum conn_state { HANDSHAKE, IDLE, HEAD, BODY, ANSWER, CLOSING, LINGER, DEAD };

struct conn;

struct exchange {
    struct http_exchange x; /* first: what the application holds */
    struct http_request req;
    struct conn *c;
    struct buf body;
    int64_t left;   /* declared bytes of the answer not yet written; -1 = not declared */
    bool is_handed; /* on_request was called: on_gone is owed until the end */
    bool is_begun, is_ended, is_aborted;
    bool is_chunked;
    bool is_until_close; /* an HTTP/1.0 stream: only the close ends it */
    bool has_no_body;    /* HEAD, 204, 304: what the application writes is dropped */
};

struct conn_list {
    struct conn *first, *last;
};

struct conn {
    struct loop_io io;
    struct loop_timer timer;
    struct loop_task task; /* flushes and settles at the end of the round; frees when DEAD */
    struct http_server *s;
    struct conn *next, *prev; /* in s->idle when IDLE, else in s->busy */
    struct exchange *x;       /* NULL between requests */
    struct tls_conn *tls;     /* NULL when plain */
    struct http_parser parser;
    struct buf out; /* [out_at, out.n) waits to be sent */
    size_t out_at;
    struct buf pending; /* bytes of later requests; at most one read. [pending_at, n) */
    size_t pending_at;
    uint64_t since_ns;      /* what the deadline of the state counts from */
    uint64_t first_byte_ns; /* of the running request */
    uint64_t blocked_ns;    /* the peer takes nothing since; 0 = not blocked */
    uint64_t lingered;      /* bytes thrown away */
    uint8_t state;
    bool is_fresh;        /* no request yet: its head counts from accept */
    bool is_eof;          /* the peer will send no more */
    bool is_ahead;        /* while an answer is due there was something to read */
    bool want_close;      /* after this answer */
    bool is_doomed;       /* to be cut at the end of the round */
    bool was_high;        /* the queue has been over SINK_HIGH_WATER */
    bool want_reset;      /* a FIN would look like the end of the answer */
    bool tls_wants_write; /* to go on with what it was doing */
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
    int reserve_fd; /* given up to turn one away when descriptors run out */
    uint16_t port;
    struct conn_list idle, busy; /* idle: longest first */
    int n_conns;
    size_t bodies_n;               /* bytes of bodies held by all exchanges */
    struct loop_timer pause_timer; /* accepting again after the system had no memory */
    struct loop_timer drain_timer;
    struct loop_task drain_task;
    void (*drain_done)(void *arg);
    void *drain_arg;
    bool is_draining, is_closing;
    uint64_t warned_ns; /* at most one warning a second about descriptors */
    int64_t date_s;
    char date[32]; /* of date_s, IMF-fixdate */
    struct http_stats stats;
    char scratch[READ_CHUNK]; /* every read goes here: idle connections own no buffer */
};

#define STAT_ADD(s, field, by)                                                                     \
    __atomic_store_n(&(s)->stats.field, (s)->stats.field + (uint64_t)(by), __ATOMIC_RELAXED)

/* ---- conn.c */

/* Takes fd. */
void conn_accept(struct http_server *s, int fd, const struct sockaddr *peer);
void conn_cut(struct conn *c);   /* now; tells on_gone if that is owed; freed after the round */
void conn_close(struct conn *c); /* politely: what is queued leaves first */
void conn_free(struct conn *c);  /* DEAD ones only */
void conn_touch(struct conn *c); /* settles at the end of the round */
size_t conn_queued(const struct conn *c);

/* ---- server.c */

void server_conn_gone(struct http_server *s); /* after a connection was freed */
const char *server_date(struct http_server *s);

/* ---- reply.c: the exchange's sink, and the server's own refusals */

extern const struct sink_ops reply_sink_ops;
void reply_refuse(struct conn *c, int status, const char *why); /* queued, Connection: close */
