/* http_hello: HTTP server without model and JSON, as target of sse_load.
 *
 *     http_hello [--port N] [--cert FILE --key FILE]
 *
 *     GET  /        a short body            POST /echo    the request body
 *     GET  /pull    N events, as fast as the client reads (/pull?N, default 100)
 *     GET  /push    N events, one per stream in each iteration of the event loop (/push?N)
 *     GET  /idle    a stream without events
 *
 * Prints "port N" when it listens. SIGINT and SIGTERM drain the connections and end the server.
 * Owner of all data: the main thread, which runs the event loop. */
#include "base/log.h"
#include "base/mem.h"
#include "http/server.h"
#include "testing/sse.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

struct stream {
    struct stream *next, *prev;
    struct http_exchange *x;
    struct sse sse;
    uint64_t left;
    bool is_pushed;
};

static struct loop *loop;
static struct http_server *server;
static struct stream pushed = { &pushed, &pushed, NULL, { 0 }, 0, false };
static struct loop_timer tick;
static volatile sig_atomic_t is_stopping;

#define TOKEN STR("{\"id\":\"cmpl-1\",\"choices\":[{\"delta\":{\"content\":\" tok\"}}]}")

static void stream_unlink(struct stream *st)
{
    st->next->prev = st->prev;
    st->prev->next = st->next;
    st->next = st->prev = st;
}

static void write_events(struct stream *st)
{
    while (st->left && sink_queued(&st->x->sink) < SINK_HIGH_WATER) {
        sse_data(&st->sse, TOKEN);
        st->left--;
    }
    if (!st->left) {
        sse_data(&st->sse, STR("[DONE]"));
        sse_end(&st->sse);
    }
}

static void on_tick(struct loop_timer *t)
{
    for (struct stream *st = pushed.next, *next; st != &pushed; st = next) {
        next = st->next;
        sse_data(&st->sse, TOKEN);
        if (!--st->left) {
            stream_unlink(st);
            sse_end(&st->sse);
        }
    }
    if (pushed.next != &pushed)
        loop_timer_set(loop, t, loop_now(loop));
}

static void stream_begin(struct http_exchange *x, bool is_pushed, uint64_t n)
{
    struct stream *st = arena_zalloc(x->arena, 1, sizeof(*st));

    if (!st) {
        sink_respond(&x->sink, 503, "text/plain", STR("no memory\n"), NULL, 0);
        return;
    }
    st->next = st->prev = st;
    st->x = x;
    st->left = n;
    st->is_pushed = is_pushed;
    x->user = st;
    sse_begin(&st->sse, &x->sink, loop, SSE_KEEPALIVE_MS, NULL, 0);
    if (is_pushed) {
        st->prev = pushed.prev;
        st->next = &pushed;
        st->prev->next = st->next->prev = st;
        loop_timer_set(loop, &tick, loop_now(loop));
    } else if (n != UINT64_MAX) {
        write_events(st);
    }
}

static void on_request(void *ctx, struct http_exchange *x)
{
    const struct http_request *r = x->req;
    uint64_t n = 100;

    (void)str_to_u64(r->query, &n);
    if (str_is(r->path, "/"))
        sink_respond(&x->sink, 200, "text/plain", STR("hello\n"), NULL, 0);
    else if (str_is(r->path, "/echo"))
        sink_respond(&x->sink, 200, "application/octet-stream", r->body, NULL, 0);
    else if (str_is(r->path, "/pull"))
        stream_begin(x, false, MAX(n, (uint64_t)1));
    else if (str_is(r->path, "/push"))
        stream_begin(x, true, MAX(n, (uint64_t)1));
    else if (str_is(r->path, "/idle"))
        stream_begin(x, false, UINT64_MAX);
    else
        sink_respond(&x->sink, 404, "text/plain", STR("no such path\n"), NULL, 0);
}

static void on_drained(void *ctx, struct http_exchange *x)
{
    struct stream *st = x->user;

    if (st && !st->is_pushed && st->left != UINT64_MAX)
        write_events(st);
}

static void on_disconnect(void *ctx, struct http_exchange *x)
{
    struct stream *st = x->user;

    if (!st)
        return;
    sse_stop(&st->sse);
    stream_unlink(st);
}

static void on_signal(int sig)
{
    is_stopping = 1;
    loop_stop(loop);
}

static void on_done(void *arg)
{
    loop_stop(loop);
}

static int usage(void)
{
    fprintf(stderr, "usage: http_hello [--port N] [--cert FILE --key FILE]\n");
    return 2;
}

int main(int argc, char **argv)
{
    static const struct option names[] = { { "port", 1, NULL, 'p' }, { "cert", 1, NULL, 'c' },
        { "key", 1, NULL, 'k' }, { NULL, 0, NULL, 0 } };
    struct http_options o = http_options_default;
    struct http_app app = {
        .on_request = on_request, .on_drained = on_drained, .on_disconnect = on_disconnect
    };
    struct rlimit files;
    struct err e;

    o.port = 0;
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        if (c == 'p')
            o.port = (uint16_t)strtoul(optarg, NULL, 10);
        else if (c == 'c')
            o.tls_cert = optarg;
        else if (c == 'k')
            o.tls_key = optarg;
        else
            return usage();
    }
    if (!getrlimit(RLIMIT_NOFILE, &files)) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    tick.fn = on_tick;
    if (loop_open(&loop, &e) || http_server_open(&server, loop, &o, &app, &e)) {
        fprintf(stderr, "http_hello: %s\n", e.msg);
        return 1;
    }
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    printf("port %u\n", http_server_port(server));
    fflush(stdout);
    loop_run(loop);
    if (is_stopping) {
        http_server_drain(server, 2000, on_done, NULL);
        loop_run(loop);
    }
    http_server_close(server);
    loop_close(loop);
    return 0;
}
