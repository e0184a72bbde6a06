/* conn.c: the state machine of one connection; conn.h has the picture.
 *
 * Events read and parse at once and hand requests to the application; everything else - sending,
 * going on with pipelined bytes, changing what is watched - happens in settle(), once at the end
 * of the round, however many times the connection was touched. So ten SSE frames produced by one
 * batch of messages leave in one write, and no callback of the application runs inside another.
 *
 * While an exchange is being answered nothing is read: what the client sends ahead stays in the
 * kernel, and EPOLLRDHUP says at once that it leaves. EPOLLIN is taken off when something is ahead
 * and not before, since nearly always nothing is. */
#include "http/conn.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    READS_PER_EVENT = 4,               /* then it is somebody else's turn */
    SEND_MAX = SMALL ? 61 : 1 << 20,   /* bytes per send(2) */
    PIPELINE_OUT = SMALL ? 64 : 65536, /* no further request is begun above so many queued bytes */
    BODY_FIRST = 65536,                /* the most reserved on the word of a Content-Length */
    LINGER_MS = 2000,                  /* how long a refused client may still send... */
    LINGER_DRAIN_MS = 300,             /* ...and when the server is on its way out */
};
#define LINGER_BYTES (64 * MB)
#define BODY_DEFAULT ((int64_t)(16 * MB))

static void on_io(struct loop_io *io, uint32_t events);
static void on_timer(struct loop_timer *t);
static void on_task(struct loop_task *t);

/* ---- lists and states */

static struct conn_list *list_of(struct conn *c)
{
    return c->state == IDLE ? &c->s->idle : &c->s->busy;
}

static void list_add(struct conn *c)
{
    struct conn_list *l = list_of(c);

    c->next = NULL;
    c->prev = l->last;
    *(l->last ? &l->last->next : &l->first) = c;
    l->last = c;
}

static void list_remove(struct conn *c)
{
    struct conn_list *l = list_of(c);

    *(c->prev ? &c->prev->next : &l->first) = c->next;
    *(c->next ? &c->next->prev : &l->last) = c->prev;
}

static void set_state(struct conn *c, enum conn_state state)
{
    if ((c->state == IDLE) == (state == IDLE)) {
        c->state = (uint8_t)state;
        return;
    }
    list_remove(c);
    c->state = (uint8_t)state;
    list_add(c);
}

static bool is_reading(const struct conn *c)
{
    return c->state == IDLE || c->state == HEAD || c->state == BODY;
}

size_t conn_queued(const struct conn *c)
{
    return c->out.n - c->out_at;
}

void conn_touch(struct conn *c)
{
    loop_defer(c->s->loop, &c->task);
}

/* ---- bytes */

static ptrdiff_t conn_recv(struct conn *c, void *p, size_t n)
{
    if (fault_hit(FAULT_READ))
        return IO_FAILED;
    if (c->tls)
        return tls_recv(c->tls, p, n);
    for (;;) {
        ssize_t got = recv(c->io.fd, p, n, 0);
        if (got >= 0)
            return got;
        if (errno != EINTR)
            return errno == EAGAIN ? IO_AGAIN_READ : IO_FAILED;
    }
}

static ptrdiff_t conn_send(struct conn *c, const void *p, size_t n)
{
    if (fault_hit(FAULT_WRITE))
        return IO_FAILED;
    n = MIN(n, (size_t)SEND_MAX);
    if (c->tls)
        return tls_send(c->tls, p, n);
    for (;;) {
        ssize_t put = send(c->io.fd, p, n, MSG_NOSIGNAL);
        if (put >= 0)
            return put;
        if (errno != EINTR)
            return errno == EAGAIN ? IO_AGAIN_WRITE : IO_FAILED;
    }
}

/* ---- birth and death */

static void peer_name(char out[46], const struct sockaddr *peer)
{
    const void *address = NULL;

    out[0] = '\0';
    if (peer->sa_family == AF_INET)
        address = &((const struct sockaddr_in *)(const void *)peer)->sin_addr;
    else if (peer->sa_family == AF_INET6)
        address = &((const struct sockaddr_in6 *)(const void *)peer)->sin6_addr;
    if (!address || !inet_ntop(peer->sa_family, address, out, 46))
        return;
    /* An IPv4 client of a dual-stack socket is still an IPv4 client. */
    if (!strncmp(out, "::ffff:", 7) && strchr(out, '.'))
        memmove(out, out + 7, strlen(out + 7) + 1);
}

static uint64_t after_ms(uint64_t from, uint64_t ms)
{
    return from + ms * 1000000u;
}

static void arm(struct conn *c)
{
    const struct http_options *o = &c->s->o;
    uint64_t ms = 0;

    switch ((enum conn_state)c->state) {
    case HANDSHAKE:
    case HEAD:
        ms = o->head_ms;
        break;
    case IDLE:
        ms = c->is_fresh ? o->head_ms : o->idle_ms;
        break;
    case BODY:
        ms = o->body_ms;
        if (ms && o->body_min_rate)
            ms += c->parser.body_n * 1000 / o->body_min_rate;
        break;
    case LINGER:
        ms = c->s->is_draining ? LINGER_DRAIN_MS : LINGER_MS;
        break;
    case ANSWER:
    case CLOSING:
    case DEAD:
        break;
    }
    uint64_t due = ms ? after_ms(c->since_ns, ms) : UINT64_MAX;
    if (c->blocked_ns && o->write_ms)
        due = MIN(due, after_ms(c->blocked_ns, o->write_ms));
    if (due == UINT64_MAX)
        loop_timer_stop(c->s->loop, &c->timer);
    else if (!c->timer.heap_index || c->timer.due_ns != due)
        loop_timer_set(c->s->loop, &c->timer, due);
}

void conn_accept(struct http_server *s, int fd, const struct sockaddr *peer)
{
    struct err e;
    struct conn *c = try_calloc(1, sizeof(*c));

    if (!c)
        goto fail;
    c->s = s;
    c->io = (struct loop_io){ .fd = fd, .fn = on_io };
    c->timer.fn = on_timer;
    c->task.fn = on_task;
    c->state = s->tls ? HANDSHAKE : IDLE;
    c->is_fresh = true;
    c->since_ns = loop_now(s->loop);
    http_parser_init(&c->parser, &s->limits);
    buf_init(&c->out, 2 * s->o.max_queued + MB); /* what was sent may still lie in front */
    buf_init(&c->pending, READ_CHUNK);
    peer_name(c->peer, peer);
    if (s->tls && !(c->tls = tls_conn_new(s->tls, fd)))
        goto fail;
    if (loop_add(s->loop, &c->io, EPOLLIN | EPOLLRDHUP, &e)) {
        log_warn("http", "accept", "failed=\"%s\"", e.msg);
        goto fail;
    }
    list_add(c);
    s->n_conns++;
    STAT_ADD(s, accepted, 1);
    STAT_ADD(s, open, 1);
    arm(c);
    return;

fail:
    if (c)
        tls_conn_free(c->tls);
    mem_free(c);
    close(fd);
}

static void exchange_free(struct conn *c)
{
    struct exchange *x = c->x;

    if (!x)
        return;
    c->x = NULL;
    c->s->bodies_n -= x->body.n;
    buf_clear(&x->body);
    arena_free(x->x.arena); /* x itself lives there */
}

void http_body_take(struct http_exchange *x, struct http_body *out)
{
    struct exchange *ex = container_of(x, struct exchange, x);

    *out = (struct http_body){ ex->c->s, ex->body };
    buf_init(&ex->body, 0);
}

void http_body_free(struct http_body *b)
{
    if (b->server)
        b->server->bodies_n -= b->bytes.n;
    buf_clear(&b->bytes);
    *b = (struct http_body){ 0 };
}

void conn_cut(struct conn *c)
{
    struct http_server *s = c->s;
    struct exchange *x = c->x;

    if (c->state == DEAD)
        return;
    set_state(c, DEAD);
    loop_timer_stop(s->loop, &c->timer);
    loop_del(s->loop, &c->io);
    if (c->want_reset) {
        struct linger at_once = { .l_onoff = 1 };
        setsockopt(c->io.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    }
    tls_conn_free(c->tls);
    c->tls = NULL;
    close(c->io.fd);
    loop_defer(s->loop, &c->task);
    if (x && x->is_handed && !x->is_ended) {
        x->is_ended = true; /* what on_gone writes goes nowhere */
        STAT_ADD(s, gone, 1);
        if (s->app.on_gone)
            s->app.on_gone(s->app.ctx, &x->x);
    }
}

void conn_free(struct conn *c)
{
    struct http_server *s = c->s;

    CHECK(c->state == DEAD);
    list_remove(c);
    loop_undefer(s->loop, &c->task);
    exchange_free(c);
    http_parser_clear(&c->parser);
    buf_clear(&c->out);
    buf_clear(&c->pending);
    mem_free(c);
    s->n_conns--;
    STAT_ADD(s, open, -1);
    server_conn_gone(s);
}

void conn_close(struct conn *c)
{
    set_state(c, CLOSING);
    exchange_free(c);
    conn_touch(c);
}

/* ---- requests */

static struct exchange *exchange_new(struct conn *c)
{
    struct arena *a = arena_new(c->s->o.max_arena);
    struct exchange *x = a ? arena_zalloc(a, 1, sizeof(*x)) : NULL;

    if (!x || http_parser_request(&c->parser, a, &x->req)) {
        arena_free(a);
        return NULL;
    }
    x->c = c;
    x->req.peer = str_of(c->peer);
    x->req.is_tls = c->tls != NULL;
    x->x = (struct http_exchange){
        .sink.ops = &reply_sink_ops, .req = &x->req, .arena = a, .started_ns = c->first_byte_ns
    };
    return x;
}

/* The answer is complete (queued, not yet sent). */
static void finish(struct conn *c)
{
    bool must_close = c->want_close || c->is_eof || c->s->is_draining;

    exchange_free(c);
    http_parser_reset(&c->parser);
    c->is_fresh = false;
    c->since_ns = loop_now(c->s->loop);
    set_state(c, must_close ? CLOSING : IDLE);
}

/* In the words of its route, when the head has told which. */
static bool app_refuses(struct conn *c, int status, const char *why)
{
    const struct http_app *app = &c->s->app;

    if (c->state != BODY || !c->x || !app->on_refuse)
        return false;
    c->want_close = true;
    app->on_refuse(app->ctx, &c->x->x, status, why);
    return c->x->is_begun;
}

static void refuse(struct conn *c, int status, const char *why)
{
    log_debug("http", "refuse", "peer=%s status=%d why=\"%s\"", c->peer, status, why);
    STAT_ADD(c->s, bad_requests, 1);
    bool is_answered = app_refuses(c, status, why);
    exchange_free(c);
    if (!is_answered)
        reply_refuse(c, status, why);
    set_state(c, CLOSING);
}

static void head_arrived(struct conn *c)
{
    struct http_server *s = c->s;
    struct http_parser *p = &c->parser;

    c->x = exchange_new(c);
    if (!c->x) {
        refuse(c, 503, "out of memory");
        return;
    }
    STAT_ADD(s, requests, 1);
    int64_t max = s->app.on_head ? s->app.on_head(s->app.ctx, &c->x->x) : BODY_DEFAULT;
    if (max < 0 || c->x->is_begun) {
        if (!c->x->is_ended) {
            log_error("http", "unexpected", "what=\"on_head answered in part\"");
            c->is_doomed = true;
        }
        if (!c->is_doomed)
            finish(c); /* begin() has seen to it that a body which is not read ends it all */
        return;
    }
    p->body_max = (uint64_t)max;
    c->since_ns = loop_now(s->loop);
    set_state(c, BODY);
    buf_init(&c->x->body, (size_t)max);
    if (p->length > p->body_max)
        return; /* the parser is about to refuse it */
    size_t first = (size_t)MIN(p->length, (uint64_t)BODY_FIRST);
    if (first && !buf_reserve(&c->x->body, first)) {
        refuse(c, 503, "out of memory");
        return;
    }
    if (p->want_continue)
        buf_putz(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
}

static void take_body(struct conn *c, struct str piece)
{
    struct http_server *s = c->s;
    size_t before = c->x->body.n;

    if (piece.n > s->o.max_bodies - MIN(s->bodies_n, s->o.max_bodies)) {
        refuse(c, 503, "too many large requests at once");
        return;
    }
    buf_puts(&c->x->body, piece);
    s->bodies_n += c->x->body.n - before;
    if (!buf_ok(&c->x->body))
        refuse(c, 503, "out of memory");
}

static void body_arrived(struct conn *c)
{
    struct http_server *s = c->s;
    struct exchange *x = c->x;

    x->req.body = buf_str(&x->body);
    x->is_handed = true;
    set_state(c, ANSWER);
    s->app.on_request(s->app.ctx, &x->x);
    if (x->is_ended && !c->is_doomed)
        finish(c);
}

/* Parses until the bytes are used up or an exchange waits for its answer; returns the number of
 * bytes used. */
static size_t feed(struct conn *c, struct str in)
{
    struct str rest = in, piece;

    while (is_reading(c) && !c->is_doomed) {
        if (c->state == IDLE) {
            if (!rest.n || conn_queued(c) > PIPELINE_OUT)
                break;
            c->first_byte_ns = loop_now(c->s->loop);
            if (!c->is_fresh)
                c->since_ns = c->first_byte_ns;
            set_state(c, HEAD);
        }
        enum http_event ev = http_parse(&c->parser, &rest, &piece);
        if (ev == HTTP_MORE)
            break;
        if (ev == HTTP_HEAD) {
            head_arrived(c);
        } else if (ev == HTTP_BODY) {
            take_body(c, piece);
        } else if (ev == HTTP_END) {
            body_arrived(c);
        } else {
            refuse(c, c->parser.status, c->parser.why);
        }
    }
    return in.n - rest.n;
}

/* ---- events */

static void at_eof(struct conn *c)
{
    c->is_eof = true;
    conn_close(c); /* a request that is not whole can no longer become so */
}

static void readable(struct conn *c)
{
    char *p = c->s->scratch;

    c->tls_wants_write = false;
    for (int i = 0; i < READS_PER_EVENT && is_reading(c) && !c->pending.n; i++) {
        if (conn_queued(c) > PIPELINE_OUT)
            break;
        ptrdiff_t n = conn_recv(c, p, READ_CHUNK);
        if (n == IO_AGAIN_READ)
            break;
        if (n == IO_AGAIN_WRITE) {
            c->tls_wants_write = true;
            break;
        }
        if (n == IO_FAILED) {
            conn_cut(c);
            return;
        }
        if (n == 0) {
            at_eof(c);
            return;
        }
        STAT_ADD(c->s, bytes_in, n);
        size_t used = feed(c, (struct str){ p, (size_t)n });
        if (used < (size_t)n && c->state != CLOSING) {
            buf_put(&c->pending, p + used, (size_t)n - used);
            c->is_doomed |= !buf_ok(&c->pending);
        }
        if (!c->tls && n < READ_CHUNK)
            break; /* the socket is empty: spares the call that would say so */
    }
}

static void handshake(struct conn *c)
{
    int n = tls_handshake(c->tls);

    c->tls_wants_write = n == IO_AGAIN_WRITE;
    if (n == IO_FAILED) {
        conn_cut(c);
    } else if (n == 1) {
        set_state(c, IDLE);
        readable(c);
    }
}

/* FIN while an answer is due or on its way. */
static void peer_left(struct conn *c)
{
    struct exchange *x = c->x;

    c->is_eof = true;
    if (c->state == CLOSING || (x && x->is_ended))
        return; /* the answer is complete, and may yet be read */
    bool is_stream = x->is_begun && x->left < 0;
    if (!c->s->o.allow_half_close || is_stream)
        conn_cut(c);
}

static void throw_away(struct conn *c)
{
    for (int i = 0; i < READS_PER_EVENT; i++) {
        ssize_t n = recv(c->io.fd, c->s->scratch, READ_CHUNK, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        c->lingered += (uint64_t)MAX(n, 0);
        if (n <= 0 || c->lingered > LINGER_BYTES) {
            conn_cut(c);
            return;
        }
    }
}

static void on_io(struct loop_io *io, uint32_t events)
{
    struct conn *c = container_of(io, struct conn, io);

    if (events & (EPOLLERR | EPOLLHUP)) {
        conn_cut(c);
        return;
    }
    switch ((enum conn_state)c->state) {
    case HANDSHAKE:
        handshake(c);
        break;
    case IDLE:
    case HEAD:
    case BODY:
        if (events & EPOLLIN || c->tls_wants_write)
            readable(c);
        break;
    case ANSWER:
    case CLOSING:
        if (events & EPOLLRDHUP)
            peer_left(c);
        else if (events & EPOLLIN)
            c->is_ahead = true;
        break;
    case LINGER:
        throw_away(c);
        break;
    case DEAD:
        break;
    }
    if (c->state != DEAD)
        conn_touch(c);
}

static void on_timer(struct loop_timer *t)
{
    struct conn *c = container_of(t, struct conn, timer);
    const struct http_options *o = &c->s->o;

    if (c->blocked_ns && o->write_ms &&
        loop_now(c->s->loop) >= after_ms(c->blocked_ns, o->write_ms)) {
        c->want_reset = true; /* the kernel need not keep the bytes either */
        conn_cut(c);
        return;
    }
    switch ((enum conn_state)c->state) {
    case HEAD:
        refuse(c, 408, "the head did not come in time");
        break;
    case BODY:
        refuse(c, 408, "the body did not come in time");
        break;
    case IDLE:
        conn_close(c);
        break;
    case HANDSHAKE:
    case LINGER:
        conn_cut(c);
        return;
    case ANSWER:
    case CLOSING:
    case DEAD:
        break;
    }
    conn_touch(c);
}

/* ---- the end of the round */

static void flush(struct conn *c)
{
    struct exchange *x = c->x;
    bool progress = false;

    while (conn_queued(c)) {
        size_t want = conn_queued(c);
        ptrdiff_t n = conn_send(c, c->out.p + c->out_at, want);
        if (n == IO_AGAIN_WRITE)
            break;
        if (n <= 0) {
            conn_cut(c);
            return;
        }
        progress = true;
        c->out_at += (size_t)n;
        STAT_ADD(c->s, bytes_out, n);
        if (!c->tls && (size_t)n < want)
            break; /* the socket is full */
    }
    if (!conn_queued(c)) {
        buf_clear(&c->out); /* idle connections own no buffer */
        c->out_at = 0;
        c->blocked_ns = 0;
    } else if (progress || !c->blocked_ns) {
        c->blocked_ns = loop_now(c->s->loop);
    }
    if (c->was_high && conn_queued(c) <= SINK_HIGH_WATER / 2) {
        c->was_high = false;
        if (x && x->is_handed && !x->is_ended && c->s->app.on_drained)
            c->s->app.on_drained(c->s->app.ctx, &x->x);
    }
}

/* Pipelined bytes, and bytes that OpenSSL has taken off the socket already. */
static void resume(struct conn *c)
{
    if (is_reading(c) && c->pending.n) {
        struct str rest = str_skip(buf_str(&c->pending), c->pending_at);
        c->pending_at += feed(c, rest);
        if (c->pending_at == c->pending.n || c->state == CLOSING) {
            buf_clear(&c->pending);
            c->pending_at = 0;
        }
    }
    if (is_reading(c) && !c->pending.n && c->tls && tls_has_pending(c->tls))
        readable(c);
}

static void watch(struct conn *c)
{
    bool has_room = conn_queued(c) <= PIPELINE_OUT && !c->pending.n;
    uint32_t events = conn_queued(c) || c->tls_wants_write ? EPOLLOUT : 0;

    if (is_reading(c))
        c->is_ahead = false;
    if (c->state == LINGER)
        events |= EPOLLIN;
    else if (c->state == HANDSHAKE || (is_reading(c) && has_room))
        events |= EPOLLIN | EPOLLRDHUP;
    else if (c->state == ANSWER && !c->is_eof)
        events |= c->is_ahead ? EPOLLRDHUP : EPOLLIN | EPOLLRDHUP;
    loop_mod(c->s->loop, &c->io, events);
}

/* Everything queued has left: say goodbye, then wait for the client's. Closing with unread input
 * would send an RST, and that may destroy the answer on its way. */
static void say_goodbye(struct conn *c)
{
    if (c->tls)
        tls_bye(c->tls);
    if (c->is_eof || shutdown(c->io.fd, SHUT_WR)) {
        conn_cut(c);
        return;
    }
    http_parser_reset(&c->parser);
    buf_clear(&c->pending);
    c->tls_wants_write = false;
    c->since_ns = loop_now(c->s->loop);
    set_state(c, LINGER);
}

static void settle_doomed(struct conn *c)
{
    struct exchange *x = c->x;

    if (x && x->is_aborted) {
        size_t before;
        c->want_reset = x->is_until_close;
        do { /* what the socket takes without waiting */
            before = conn_queued(c);
            flush(c);
        } while (c->state != DEAD && conn_queued(c) && conn_queued(c) < before);
    }
    conn_cut(c);
}

static void settle(struct conn *c)
{
    if (c->is_doomed) {
        settle_doomed(c);
        return;
    }
    if (c->state == ANSWER && c->x->is_ended)
        finish(c);
    resume(c);
    if (c->state != DEAD && c->state != HANDSHAKE)
        flush(c);
    if (c->state == CLOSING && !conn_queued(c))
        say_goodbye(c);
    if (c->state == DEAD)
        return;
    bool is_behind = c->pending.n || (c->tls && tls_has_pending(c->tls));
    if (c->is_doomed || (is_reading(c) && is_behind && conn_queued(c) <= PIPELINE_OUT))
        conn_touch(c);
    watch(c);
    arm(c);
}

static void on_task(struct loop_task *t)
{
    struct conn *c = container_of(t, struct conn, task);

    if (c->state == DEAD)
        conn_free(c);
    else
        settle(c);
}
