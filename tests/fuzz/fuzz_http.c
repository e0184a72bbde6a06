/* Fuzzes HTTP: the request parser must emit the same events for whole and cut input. Then the
 * same bytes, cut as the first byte determines, go to a server connection over a socket pair:
 * every delivered exchange is answered, rejected or reported as gone, and nothing leaks. */
#include "base/arena.h"
#include "base/log.h"
#include "http/conn.h"

#include <sys/epoll.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct http_parse_limits limits = { 2000, 10 };

static void log_events(struct buf *out, struct str in, size_t step)
{
    struct http_parser p;
    struct str rest = STR_NONE, piece;
    size_t at = 0;

    http_parser_init(&p, &limits);
    for (;;) {
        enum http_event ev = http_parse(&p, &rest, &piece);
        if (ev == HTTP_BODY) {
            buf_puts(out, piece);
        } else if (ev == HTTP_HEAD) {
            struct arena *a = arena_new(64 * KB);
            struct http_request r = { 0 };
            CHECK(!http_parser_request(&p, a, &r));
            CHECK(r.path.n && (r.path.p[0] == '/' || str_is(r.path, "*") || r.target.p[0] == '/' ||
                                  r.target.n));
            CHECK(!memchr(r.path.p, 0, r.path.n));
            for (int i = 0; i < r.n_fields; i++) {
                CHECK(http_is_token(r.fields[i].name));
                for (size_t c = 0; c < r.fields[i].value.n; c++)
                    CHECK((unsigned char)r.fields[i].value.p[c] >= ' ' ||
                          r.fields[i].value.p[c] == '\t');
            }
            buf_printf(out, "[head %zu %d]", p.head.n, p.n_fields);
            arena_free(a);
            p.body_max = 100;
        } else if (ev == HTTP_END) {
            CHECK(p.body_n <= 100);
            buf_printf(out, "[end %zu]", at - rest.n);
            http_parser_reset(&p);
        } else if (ev == HTTP_BAD) {
            buf_printf(out, "[bad %d %s]", p.status, p.why);
            break;
        } else if (at == in.n) {
            break;
        } else {
            CHECK(!rest.n);
            size_t n = MIN(step, in.n - at);
            rest = (struct str){ in.p + at, n };
            at += n;
        }
    }
    http_parser_clear(&p);
}

/* ---- the connection */

static struct loop *loop;
static struct http_server *server;
static int n_open_exchanges; /* exchanges delivered and not yet ended */

struct late {
    struct loop_task task;
    struct http_exchange *x;
    int rounds;
};

static void on_late(struct loop_task *t)
{
    struct late *l = container_of(t, struct late, task);

    if (l->rounds-- > 0) {
        sink_write(&l->x->sink, STR("more"));
        loop_defer(loop, t);
        return;
    }
    n_open_exchanges--;
    if (l->x->req->body.n & 1)
        sink_abort(&l->x->sink);
    else
        sink_end(&l->x->sink);
}

static int64_t on_head(void *ctx, struct http_exchange *x)
{
    if (str_ends(x->req->path, STR("r"))) {
        sink_respond(&x->sink, 401, "text/plain", STR("who?"), NULL, 0);
        return -1;
    }
    return 100;
}

/* Like the service: rejects some requests with a status and text of its own. */
static void on_reject(void *ctx, struct http_exchange *x, int status, const char *why)
{
    struct http_field f = { STR("X-Path"), x->req->path };

    CHECK(status >= 400 && status < 600 && *why);
    CHECK(!x->user);
    if (str_ends(x->req->path, STR("q")))
        return;
    sink_respond(&x->sink, status == 503 ? 529 : status, "text/plain", str_of(why), &f, 1);
}

static void on_request(void *ctx, struct http_exchange *x)
{
    struct http_field f = { STR("X-Path"), x->req->path };
    struct late *l = arena_zalloc(x->arena, 1, sizeof(*l));

    CHECK(l);
    if (str_ends(x->req->path, STR("s"))) { /* a stream over several loop iterations */
        n_open_exchanges++;
        l->task.fn = on_late;
        l->x = x;
        l->rounds = 3;
        x->user = l;
        sink_begin(&x->sink, 200, "text/plain", -1, &f, 1);
        loop_defer(loop, &l->task);
    } else {
        sink_respond(&x->sink, 200, "text/plain", x->req->body, &f, 1);
    }
}

static void on_disconnect(void *ctx, struct http_exchange *x)
{
    struct late *l = x->user;

    CHECK(l);
    loop_undefer(loop, &l->task);
    n_open_exchanges--;
}

static void open_server(void)
{
    struct http_options o = http_options_default;
    struct http_app app = { NULL, on_head, on_reject, on_request, on_disconnect, NULL };
    struct err e;

    o.port = 0;
    o.max_head_bytes = limits.max_head_bytes;
    o.max_fields = limits.max_fields;
    /* one body: a longer one exceeds the limit */
    o.bodies =
        budget_new(&(struct budget_options){ .max = 107, .share_percent = 100, .n_owners = 1 });
    log_set_level(LOG_ERROR);
    CHECK(!loop_open(&loop, &e));
    CHECK(!http_server_open(&server, loop, &o, &app, &e));
}

static void drain(int fd)
{
    char bytes[8192];

    while (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
        ;
}

static void run_connection(struct str in, size_t step)
{
    struct sockaddr peer = { .sa_family = AF_UNIX };
    int sv[2];

    CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sv));
    conn_accept(server, sv[1], &peer);
    while (in.n) {
        ssize_t n = send(sv[0], in.p, MIN(step, in.n), MSG_NOSIGNAL);
        loop_once(loop, 0);
        if (n < 0 && !http_server_stats(server)->open)
            break;
        in = str_skip(in, (size_t)MAX(n, 0));
        if (n < 0)
            break;
        if (step & 1)
            drain(sv[0]);
    }
    if (step & 2)
        shutdown(sv[0], SHUT_WR);
    loop_once(loop, 0);
    drain(sv[0]);
    close(sv[0]);
    for (int i = 0; http_server_stats(server)->open; i++) {
        CHECK(i < 1000);
        loop_once(loop, 0);
    }
    CHECK(n_open_exchanges == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf whole, cut;

    if (!size || size > 8192)
        return 0;
    if (!loop)
        open_server();
    struct str in = { (const char *)data + 1, size - 1 };
    size_t step = 1 + data[0] % 64;
    buf_init(&whole, MB);
    buf_init(&cut, MB);
    log_events(&whole, in, SIZE_MAX);
    log_events(&cut, in, step);
    CHECK(str_eq(buf_str(&whole), buf_str(&cut)));
    buf_clear(&whole);
    buf_clear(&cut);
    run_connection(in, step == 64 ? size : step * 7);
    return 0;
}
