/* http_kit.h: a server and its clients in one thread, so that tests need neither sleeps nor luck:
 * a client writes, the loop is turned until the answer is there or a deadline has passed.
 *
 * The test application:
 *   /echo     "METHOD /path?query\n" and the body     /later   the same, a round later
 *   /tiny     the same, bodies of up to 4 bytes       /refuse  401 from on_head
 *   /empty    204                                     /abort   a stream that is cut
 *   /stream   a stream of "one", "two", "three"       /hold    waits in kit.held
 *   /field    echoes the field X-Echo as a field
 * Everything else is 404. Bodies are capped at kit.max_body. */
#pragma once

#include "base/arena.h"
#include "base/mem.h"
#include "http/server.h"
#include "http/sse.h"
#include "os/clock.h"
#include "../check.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

struct kit {
    struct loop *loop;
    struct http_server *server;
    struct http_options o;
    int64_t max_body;
    int n_heads, n_requests, n_gone, n_drained;
    struct http_exchange *held; /* the newest of /hold; NULL when it has gone */
};

struct kit_later {
    struct loop_task task;
    struct http_exchange *x;
};

static inline void kit_echo(struct http_exchange *x)
{
    const struct http_request *r = x->req;
    struct buf b;

    buf_init(&b, 64 * MB);
    buf_puts(&b, r->method);
    buf_putc(&b, ' ');
    buf_puts(&b, r->path);
    if (r->query.n) {
        buf_putc(&b, '?');
        buf_puts(&b, r->query);
    }
    buf_putc(&b, '\n');
    buf_puts(&b, r->body);
    sink_reply(&x->sink, 200, "text/plain", buf_str(&b), NULL, 0);
    buf_clear(&b);
}

static inline void kit_on_later(struct loop_task *t)
{
    struct kit_later *later = container_of(t, struct kit_later, task);

    kit_echo(later->x);
}

static inline int64_t kit_on_head(void *ctx, struct http_exchange *x)
{
    struct kit *k = ctx;

    k->n_heads++;
    if (str_is(x->req->path, "/refuse")) {
        sink_reply(&x->sink, 401, "text/plain", STR("who?\n"), NULL, 0);
        return -1;
    }
    return str_is(x->req->path, "/tiny") ? 4 : k->max_body;
}

static inline void kit_on_request(void *ctx, struct http_exchange *x)
{
    struct kit *k = ctx;
    struct str path = x->req->path;

    k->n_requests++;
    if (str_is(path, "/echo") || str_is(path, "/tiny") || str_is(path, "*")) {
        kit_echo(x);
    } else if (str_is(path, "/later")) {
        struct kit_later *later = arena_zalloc(x->arena, 1, sizeof(*later));
        CHECK(later);
        later->task.fn = kit_on_later;
        later->x = x;
        loop_defer(k->loop, &later->task);
    } else if (str_is(path, "/empty")) {
        sink_begin(&x->sink, 204, NULL, 0, NULL, 0);
        sink_end(&x->sink);
    } else if (str_is(path, "/stream") || str_is(path, "/abort")) {
        sink_begin(&x->sink, 200, "text/plain", -1, NULL, 0);
        sink_write(&x->sink, STR("one"));
        sink_write(&x->sink, STR("two"));
        if (str_is(path, "/abort")) {
            sink_abort(&x->sink);
            return;
        }
        sink_write(&x->sink, STR("three"));
        sink_end(&x->sink);
    } else if (str_is(path, "/hold")) {
        k->held = x;
        x->user = k;
    } else if (str_is(path, "/field")) {
        struct http_field f[] = { { STR("X-Echo"), http_field_get(x->req, "x-echo") },
            { STR("Content-Length"), STR("999") } };
        sink_reply(&x->sink, 200, "text/plain", STR("ok"), f, 2);
    } else {
        sink_reply(&x->sink, 404, "text/plain", STR("no\n"), NULL, 0);
    }
}

static inline void kit_on_gone(void *ctx, struct http_exchange *x)
{
    struct kit *k = ctx;

    k->n_gone++;
    if (k->held == x)
        k->held = NULL;
    /* What is written after the client left goes nowhere, and is no fault. */
    sink_write(&x->sink, STR("into the void"));
}

static inline void kit_on_drained(void *ctx, struct http_exchange *x)
{
    struct kit *k = ctx;

    k->n_drained++;
}

/* k->o and k->max_body may be set before (kit_init), nothing else. */
static inline void kit_init(struct kit *k)
{
    *k = (struct kit){ .o = http_options_default, .max_body = 1 << 20 };
    k->o.port = 0;
}

static inline void kit_open(struct kit *k)
{
    struct http_app app = { k, kit_on_head, kit_on_request, kit_on_gone, kit_on_drained };
    struct err e = { 0 };

    if (loop_open(&k->loop, &e) || http_server_open(&k->server, k->loop, &k->o, &app, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        fail();
    }
}

static inline void kit_close(struct kit *k)
{
    http_server_close(k->server);
    loop_close(k->loop);
}

static inline void kit_turn(struct kit *k, int rounds)
{
    while (rounds--)
        loop_once(k->loop, 0);
}

static inline void kit_turn_ms(struct kit *k, int ms)
{
    uint64_t end = clock_ns() + (uint64_t)ms * 1000000u;

    while (clock_ns() < end)
        loop_once(k->loop, 1);
}

static inline int kit_connect_with(struct kit *k, int receive_buffer)
{
    struct sockaddr_in where = { .sin_family = AF_INET,
        .sin_port = htons(http_server_port(k->server)),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (receive_buffer)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    EXPECT_EQ(connect(fd, (struct sockaddr *)&where, sizeof(where)), 0);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static inline int kit_connect(struct kit *k)
{
    return kit_connect_with(k, 0);
}

/* Sends as much as the server takes; false when it has hung up. */
static inline bool kit_send(struct kit *k, int fd, struct str s)
{
    uint64_t end = clock_ns() + 5000000000u;

    while (s.n && clock_ns() < end) {
        ssize_t n = send(fd, s.p, s.n, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN)
            return false;
        s = str_skip(s, (size_t)MAX(n, 0));
        loop_once(k->loop, 0);
    }
    return !s.n;
}

enum kit_end { KIT_OPEN, KIT_EOF, KIT_RESET };

/* Appends what comes to *b until it holds at least n bytes, or the server has hung up. */
static inline enum kit_end kit_read(struct kit *k, int fd, struct buf *b, size_t n)
{
    uint64_t end = clock_ns() + 5000000000u;
    char piece[65536];

    while (b->n < n && clock_ns() < end) {
        ssize_t got = recv(fd, piece, sizeof(piece), 0);
        if (got == 0)
            return KIT_EOF;
        if (got < 0 && errno != EAGAIN)
            return KIT_RESET;
        if (got > 0)
            buf_put(b, piece, (size_t)got);
        else
            loop_once(k->loop, 1);
    }
    return KIT_OPEN;
}

/* Reads until b holds `mark`. */
static inline bool kit_read_to(struct kit *k, int fd, struct buf *b, const char *mark)
{
    while (str_find(buf_str(b), str_of(mark)) < 0)
        if (kit_read(k, fd, b, b->n + 1) != KIT_OPEN)
            return str_find(buf_str(b), str_of(mark)) >= 0;
        else if (!b->n)
            return false;
    return true;
}

/* Waits until *what is `value`. */
static inline bool kit_wait(struct kit *k, const int *what, int value)
{
    uint64_t end = clock_ns() + 5000000000u;

    while (*what != value && clock_ns() < end)
        loop_once(k->loop, 1);
    return *what == value;
}
