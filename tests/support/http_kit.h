/* http_kit.h: an HTTP server with a test application; http_peer.h has its clients.
 *
 *   /echo     "METHOD /path?query\n" and the body     /later   the same, one loop iteration later
 *   /tiny     the same, bodies of up to 4 bytes       /refuse  401 from on_head
 *   /empty    204                                     /abort   a stream that is cut
 *   /stream   a stream of "one", "two", "three"       /hold    waits in kit.held
 *   /field    echoes the field X-Echo as a field
 * Other paths return 404. Bodies are limited to kit.max_body; they belong to owner 1 with the query
 * "1", else to owner 0. */
#pragma once

#include "base/arena.h"
#include "base/mem.h"
#include "http/server.h"
#include "testing/sse.h"
#include "support/check.h"

struct http_kit {
    struct loop *loop;
    struct http_server *server;
    struct http_options o;
    int64_t max_body;
    int n_heads, n_requests, n_gone, n_drained;
    struct http_exchange *held; /* the latest /hold exchange; NULL after it has ended */
};

struct http_kit_later {
    struct loop_task task;
    struct http_exchange *x;
};

static inline void http_kit_echo(struct http_exchange *x)
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
    sink_respond(&x->sink, 200, "text/plain", buf_str(&b), NULL, 0);
    buf_clear(&b);
}

static inline void http_kit_on_later(struct loop_task *t)
{
    struct http_kit_later *later = container_of(t, struct http_kit_later, task);

    http_kit_echo(later->x);
}

static inline int64_t http_kit_on_head(void *ctx, struct http_exchange *x)
{
    struct http_kit *k = ctx;

    k->n_heads++;
    x->owner = str_is(x->req->query, "1");
    if (str_is(x->req->path, "/refuse")) {
        sink_respond(&x->sink, 401, "text/plain", STR("who?\n"), NULL, 0);
        return -1;
    }
    return str_is(x->req->path, "/tiny") ? 4 : k->max_body;
}

static inline void http_kit_on_request(void *ctx, struct http_exchange *x)
{
    struct http_kit *k = ctx;
    struct str path = x->req->path;

    k->n_requests++;
    if (str_is(path, "/echo") || str_is(path, "/tiny") || str_is(path, "*")) {
        http_kit_echo(x);
    } else if (str_is(path, "/later")) {
        struct http_kit_later *later = arena_zalloc(x->arena, 1, sizeof(*later));
        CHECK(later);
        later->task.fn = http_kit_on_later;
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
        sink_respond(&x->sink, 200, "text/plain", STR("ok"), f, 2);
    } else {
        sink_respond(&x->sink, 404, "text/plain", STR("no\n"), NULL, 0);
    }
}

static inline void http_kit_on_disconnect(void *ctx, struct http_exchange *x)
{
    struct http_kit *k = ctx;

    k->n_gone++;
    if (k->held == x)
        k->held = NULL;
    /* A write after the client has disconnected is discarded, and is not an error. */
    sink_write(&x->sink, STR("discarded"));
}

static inline void http_kit_on_drained(void *ctx, struct http_exchange *x)
{
    struct http_kit *k = ctx;

    k->n_drained++;
}

/* Before this call only k->o and k->max_body may be set (http_kit_init). */
static inline void http_kit_init(struct http_kit *k)
{
    *k = (struct http_kit){ .o = http_options_default, .max_body = 1 << 20 };
    k->o.port = 0;
}

static inline void http_kit_open(struct http_kit *k)
{
    struct http_app app = { .ctx = k,
        .on_head = http_kit_on_head,
        .on_request = http_kit_on_request,
        .on_disconnect = http_kit_on_disconnect,
        .on_drained = http_kit_on_drained };
    struct err e = { 0 };

    if (loop_open(&k->loop, &e) || http_server_open(&k->server, k->loop, &k->o, &app, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        fail();
    }
}

static inline void http_kit_close(struct http_kit *k)
{
    http_server_close(k->server);
    loop_close(k->loop);
}
