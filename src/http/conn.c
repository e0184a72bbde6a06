/* conn.c: the state machine of one connection; conn.h contains the state diagram.
 *
 * Event handlers read and parse at once and pass requests to the application. All other work
 * (sending, parsing of pipelined bytes, changing the watched events) is done by settle(), once at
 * the end of the loop round, however often the connection was touched. Ten SSE frames produced by
 * one batch of messages are thus sent in one write, and no callback of the application runs inside
 * another.
 *
 * While a response is being generated, nothing is read: pipelined input stays in the kernel, and
 * EPOLLRDHUP reports a disconnect at once. EPOLLIN is removed only when pipelined input exists,
 * since this is rare. */
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
    READS_PER_EVENT = 4, /* limits the reads of one connection per event, for fairness */
    SEND_MAX = SMALL ? 61 : 1 << 20, /* bytes per send(2) */
    /* no further pipelined request is started above this number of queued bytes */
    PIPELINE_OUT = SMALL ? 64 : 65536,
    BODY_FIRST = 65536,    /* largest buffer reserved because of a Content-Length alone */
    LINGER_MS = 2000,      /* time for further input after a rejected request... */
    LINGER_DRAIN_MS = 300, /* ...and while the server is draining */
};
#define LINGER_BYTES (64 * MB)
#define BODY_DEFAULT ((int64_t)(16 * MB))

static void on_io(struct loop_io *io, uint32_t events);
static void on_timer(struct loop_timer *t);
static void on_task(struct loop_task *t);

/* ---- lists and states */

static struct list *state_list(struct conn *c)
{
    return c->state == IDLE ? &c->s->idle : &c->s->busy;
}

static void set_state(struct conn *c, enum conn_state state)
{
    c->state = (uint8_t)state;
    if (list_has(state_list(c), &c->in_server))
        return;
    list_remove(&c->in_server);
    list_add_last(state_list(c), &c->in_server);
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

/* ---- receiving and sending */

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

/* ---- opening and closing */

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
    /* An IPv4 client of a dual-stack socket: report the IPv4 address. */
    if (!strncmp(out, "::ffff:", 7) && strchr(out, '.'))
        memmove(out, out + 7, strlen(out + 7) + 1);
}

static uint64_t after_ms(uint64_t from, uint64_t ms)
{
    return from + ms * 1000000u;
}

/* Sets the timer to the deadline of the state or of a blocked send, whichever is earlier. */
static void set_deadline(struct conn *c)
{
    const struct http_options *o = &c->s->o;
    uint64_t ms = 0, due = UINT64_MAX;

    switch ((enum conn_state)c->state) {
    case HANDSHAKE:
    case HEAD:
        ms = o->head_ms;
        break;
    case IDLE:
        ms = c->is_fresh ? o->head_ms : o->idle_ms;
        break;
    case BODY:
        due = c->body_due_ns;
        break;
    case LINGER:
        ms = c->s->is_draining ? LINGER_DRAIN_MS : LINGER_MS;
        break;
    case RESPONDING:
    case CLOSING:
    case DEAD:
        break;
    }
    if (ms)
        due = after_ms(c->since_ns, ms);
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
    /* bytes that were already sent may still be at the front */
    buf_init(&c->out, 2 * s->o.max_queued + MB);
    buf_init(&c->pending, READ_CHUNK);
    peer_name(c->peer, peer);
    if (s->tls && !(c->tls = tls_conn_new(s->tls, fd)))
        goto fail;
    if (loop_add(s->loop, &c->io, EPOLLIN | EPOLLRDHUP, &e)) {
        log_warn("http", "accept_failed", "error=\"%s\"", e.msg);
        goto fail;
    }
    list_add_last(state_list(c), &c->in_server);
    s->n_conns++;
    STAT_ADD(s, accepted, 1);
    STAT_ADD(s, open, 1);
    set_deadline(c);
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
    charge_clear(&x->charge);
    buf_clear(&x->body);
    arena_free(x->x.arena); /* the arena also contains x itself */
}

void http_body_take(struct http_exchange *x, struct http_body *out)
{
    struct exchange *ex = container_of(x, struct exchange, x);

    *out = (struct http_body){ ex->body, ex->charge };
    buf_init(&ex->body, 0);
    ex->charge = (struct charge){ 0 };
}

void http_body_free(struct http_body *b)
{
    charge_clear(&b->charge);
    buf_clear(&b->bytes);
    *b = (struct http_body){ 0 };
}

void conn_abort(struct conn *c)
{
    struct http_server *s = c->s;
    struct exchange *x = c->x;

    if (c->state == DEAD)
        return;
    set_state(c, DEAD);
    loop_timer_stop(s->loop, &c->timer);
    loop_del(s->loop, &c->io);
    if (c->want_reset) {
        struct linger no_linger = { .l_onoff = 1 };
        setsockopt(c->io.fd, SOL_SOCKET, SO_LINGER, &no_linger, sizeof(no_linger));
    }
    tls_conn_free(c->tls);
    c->tls = NULL;
    close(c->io.fd);
    loop_defer(s->loop, &c->task);
    if (x && x->is_delivered && !x->is_ended) {
        x->is_ended = true; /* discards what on_disconnect writes */
        STAT_ADD(s, gone, 1);
        if (s->app.on_disconnect)
            s->app.on_disconnect(s->app.ctx, &x->x);
    }
}

void conn_free(struct conn *c)
{
    struct http_server *s = c->s;

    CHECK(c->state == DEAD);
    list_remove(&c->in_server);
    loop_undefer(s->loop, &c->task);
    exchange_free(c);
    http_parser_clear(&c->parser);
    buf_clear(&c->out);
    buf_clear(&c->pending);
    mem_free(c);
    s->n_conns--;
    STAT_ADD(s, open, -1);
    server_conn_freed(s);
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
        .sink.ops = &response_sink_ops, .req = &x->req, .arena = a, .started_ns = c->first_byte_ns
    };
    return x;
}

void http_set_peer(struct http_exchange *x, struct str peer)
{
    container_of(x, struct exchange, x)->req.peer = peer;
}

/* The response is complete (queued, not yet sent): prepares for the next request. */
static void finish_exchange(struct conn *c)
{
    bool must_close = c->want_close || c->is_eof || c->s->is_draining;

    exchange_free(c);
    http_parser_reset(&c->parser);
    c->is_fresh = false;
    c->since_ns = loop_now(c->s->loop);
    set_state(c, must_close ? CLOSING : IDLE);
}

/* Lets the application write the error response, in the format of the route's dialect. Possible
 * only after the head is complete. False if it does not respond. */
static bool app_rejects(struct conn *c, int status, const char *why)
{
    const struct http_app *app = &c->s->app;

    if (c->state != BODY || !c->x || !app->on_reject)
        return false;
    c->want_close = true;
    app->on_reject(app->ctx, &c->x->x, status, why);
    return c->x->is_begun;
}

static void reject(struct conn *c, int status, const char *why)
{
    log_debug("http", "request_rejected", "peer=%s status=%d reason=\"%s\"", c->peer, status, why);
    STAT_ADD(c->s, bad_requests, 1);
    bool is_answered = app_rejects(c, status, why);
    exchange_free(c);
    if (!is_answered)
        response_reject(c, status, why);
    set_state(c, CLOSING);
}

/* The head is complete: creates the exchange and requests from the application the limit of the
 * body. */
static void on_head_complete(struct conn *c)
{
    struct http_server *s = c->s;
    struct http_parser *p = &c->parser;

    c->x = exchange_new(c);
    if (!c->x) {
        reject(c, 503, "out of memory");
        return;
    }
    STAT_ADD(s, requests, 1);
    int64_t max = s->app.on_head ? s->app.on_head(s->app.ctx, &c->x->x) : BODY_DEFAULT;
    if (max < 0 || c->x->is_begun) {
        if (!c->x->is_ended) {
            log_error("http", "unexpected", "error=\"on_head sent a partial response\"");
            c->must_abort = true;
        }
        if (!c->must_abort)
            finish_exchange(c); /* sink_begin has set want_close if an unread body follows */
        return;
    }
    p->body_max = (uint64_t)max;
    c->x->charge = (struct charge){ .budget = s->o.bodies, .owner = c->x->x.owner };
    c->since_ns = loop_now(s->loop);
    c->body_due_ns = s->o.body_ms ? after_ms(c->since_ns, s->o.body_ms) : UINT64_MAX;
    set_state(c, BODY);
    buf_init(&c->x->body, (size_t)max);
    if (p->length > p->body_max)
        return; /* the parser rejects the body in the next call */
    size_t first = (size_t)MIN(p->length, (uint64_t)BODY_FIRST);
    if (first && !buf_reserve(&c->x->body, first)) {
        reject(c, 503, "out of memory");
        return;
    }
    if (p->want_continue)
        buf_putz(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
}

/* Each byte moves the deadline by the time that it takes at the minimum rate, but never beyond
 * body_ms from now: neither silence nor single bytes keep a body open, however much came before. */
static void extend_body_deadline(struct conn *c, size_t n)
{
    const struct http_options *o = &c->s->o;

    if (!o->body_ms || !o->body_min_rate)
        return;
    uint64_t latest = after_ms(loop_now(c->s->loop), o->body_ms);
    c->body_due_ns = MIN(c->body_due_ns + n * NS_PER_S / o->body_min_rate, latest);
}

static void reject_for_budget(struct conn *c)
{
    switch (c->x->charge.refusal) {
    case BUDGET_NEVER:
        reject(c, 413, "the body is larger than the memory for bodies");
        return;
    case BUDGET_SHARE:
        reject(c, 429, "too many large requests of this client at once");
        return;
    default:
        reject(c, 503, "too many large requests at once");
    }
}

static void append_body(struct conn *c, struct str piece)
{
    struct exchange *x = c->x;

    if (!charge_add(&x->charge, piece.n)) {
        reject_for_budget(c);
        return;
    }
    buf_puts(&x->body, piece);
    if (!buf_ok(&x->body)) {
        reject(c, 503, "out of memory");
        return;
    }
    extend_body_deadline(c, piece.n);
}

static void on_body_complete(struct conn *c)
{
    struct http_server *s = c->s;
    struct exchange *x = c->x;

    x->req.body = buf_str(&x->body);
    x->is_delivered = true;
    set_state(c, RESPONDING);
    s->app.on_request(s->app.ctx, &x->x);
    if (x->is_ended && !c->must_abort)
        finish_exchange(c);
}

/* Parses until the input is consumed or an exchange waits for its response; returns the number of
 * bytes consumed. */
static size_t parse_input(struct conn *c, struct str in)
{
    struct str rest = in, piece;

    while (is_reading(c) && !c->must_abort) {
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
            on_head_complete(c);
        } else if (ev == HTTP_BODY) {
            append_body(c, piece);
        } else if (ev == HTTP_END) {
            on_body_complete(c);
        } else {
            reject(c, c->parser.status, c->parser.why);
        }
    }
    return in.n - rest.n;
}

/* ---- events */

static void on_readable(struct conn *c)
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
            conn_abort(c);
            return;
        }
        if (n == 0) {
            c->is_eof = true;
            conn_close(c); /* an incomplete request cannot be completed any more */
            return;
        }
        STAT_ADD(c->s, bytes_in, n);
        size_t used = parse_input(c, (struct str){ p, (size_t)n });
        if (used < (size_t)n && c->state != CLOSING) {
            buf_put(&c->pending, p + used, (size_t)n - used);
            c->must_abort |= !buf_ok(&c->pending);
        }
        if (!c->tls && n < READ_CHUNK)
            break; /* the socket is empty: saves the recv() that would return EAGAIN */
    }
}

static void continue_handshake(struct conn *c)
{
    int n = tls_handshake(c->tls);

    c->tls_wants_write = n == IO_AGAIN_WRITE;
    if (n == IO_FAILED) {
        conn_abort(c);
    } else if (n == 1) {
        set_state(c, IDLE);
        on_readable(c);
    }
}

/* FIN of the peer while a response is due or being sent. */
static void on_peer_fin(struct conn *c)
{
    struct exchange *x = c->x;

    c->is_eof = true;
    if (c->state == CLOSING || (x && x->is_ended))
        return; /* the response is complete, and the peer may still read it */
    bool is_stream = x->is_begun && x->left < 0;
    if (!c->s->o.allow_half_close || is_stream)
        conn_abort(c);
}

static void discard_input(struct conn *c)
{
    for (int i = 0; i < READS_PER_EVENT; i++) {
        ssize_t n = recv(c->io.fd, c->s->scratch, READ_CHUNK, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        c->lingered += (uint64_t)MAX(n, 0);
        if (n <= 0 || c->lingered > LINGER_BYTES) {
            conn_abort(c);
            return;
        }
    }
}

static void on_io(struct loop_io *io, uint32_t events)
{
    struct conn *c = container_of(io, struct conn, io);

    if (events & (EPOLLERR | EPOLLHUP)) {
        conn_abort(c);
        return;
    }
    switch ((enum conn_state)c->state) {
    case HANDSHAKE:
        continue_handshake(c);
        break;
    case IDLE:
    case HEAD:
    case BODY:
        if (events & EPOLLIN || c->tls_wants_write)
            on_readable(c);
        break;
    case RESPONDING:
    case CLOSING:
        if (events & EPOLLRDHUP)
            on_peer_fin(c);
        else if (events & EPOLLIN)
            c->is_ahead = true;
        break;
    case LINGER:
        discard_input(c);
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
        c->want_reset = true; /* the kernel must not keep the queued bytes either */
        conn_abort(c);
        return;
    }
    switch ((enum conn_state)c->state) {
    case HEAD:
        reject(c, 408, "timeout while reading the request head");
        break;
    case BODY:
        reject(c, 408, "timeout while reading the request body");
        break;
    case IDLE:
        conn_close(c);
        break;
    case HANDSHAKE:
    case LINGER:
        conn_abort(c);
        return;
    case RESPONDING:
    case CLOSING:
    case DEAD:
        break;
    }
    conn_touch(c);
}

/* ---- end of the loop round */

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
            conn_abort(c);
            return;
        }
        progress = true;
        c->out_at += (size_t)n;
        STAT_ADD(c->s, bytes_out, n);
        if (!c->tls && (size_t)n < want)
            break; /* the socket buffer is full */
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
        if (x && x->is_delivered && !x->is_ended && c->s->app.on_drained)
            c->s->app.on_drained(c->s->app.ctx, &x->x);
    }
}

/* Parses pipelined bytes, and bytes that OpenSSL has already read from the socket. */
static void parse_pending(struct conn *c)
{
    if (is_reading(c) && c->pending.n) {
        struct str rest = str_skip(buf_str(&c->pending), c->pending_at);
        c->pending_at += parse_input(c, rest);
        if (c->pending_at == c->pending.n || c->state == CLOSING) {
            buf_clear(&c->pending);
            c->pending_at = 0;
        }
    }
    if (is_reading(c) && !c->pending.n && c->tls && tls_has_pending(c->tls))
        on_readable(c);
}

static void update_events(struct conn *c)
{
    bool has_room = conn_queued(c) <= PIPELINE_OUT && !c->pending.n;
    uint32_t events = conn_queued(c) || c->tls_wants_write ? EPOLLOUT : 0;

    if (is_reading(c))
        c->is_ahead = false;
    if (c->state == LINGER)
        events |= EPOLLIN;
    else if (c->state == HANDSHAKE || (is_reading(c) && has_room))
        events |= EPOLLIN | EPOLLRDHUP;
    else if (c->state == RESPONDING && !c->is_eof)
        events |= c->is_ahead ? EPOLLRDHUP : EPOLLIN | EPOLLRDHUP;
    loop_mod(c->s->loop, &c->io, events);
}

/* All queued bytes are sent: sends FIN and waits for the FIN of the peer. A close with unread input
 * would send an RST, which can destroy the response in flight. */
static void begin_linger(struct conn *c)
{
    if (c->tls)
        tls_shutdown(c->tls);
    if (c->is_eof || shutdown(c->io.fd, SHUT_WR)) {
        conn_abort(c);
        return;
    }
    http_parser_reset(&c->parser);
    buf_clear(&c->pending);
    c->tls_wants_write = false;
    c->since_ns = loop_now(c->s->loop);
    set_state(c, LINGER);
}

static void abort_doomed(struct conn *c)
{
    struct exchange *x = c->x;

    if (x && x->is_aborted) {
        size_t n_before;
        c->want_reset = x->is_until_close;
        do { /* sends as much as the socket accepts without waiting */
            n_before = conn_queued(c);
            flush(c);
        } while (c->state != DEAD && conn_queued(c) && conn_queued(c) < n_before);
    }
    conn_abort(c);
}

/* Updates the connection at the end of a round: finishes the exchange, parses pending input, sends,
 * and sets the watched events and the deadline. */
static void settle(struct conn *c)
{
    if (c->must_abort) {
        abort_doomed(c);
        return;
    }
    if (c->state == RESPONDING && c->x->is_ended)
        finish_exchange(c);
    parse_pending(c);
    if (c->state != DEAD && c->state != HANDSHAKE)
        flush(c);
    if (c->state == CLOSING && !conn_queued(c))
        begin_linger(c);
    if (c->state == DEAD)
        return;
    bool has_pending_input = c->pending.n || (c->tls && tls_has_pending(c->tls));
    if (c->must_abort || (is_reading(c) && has_pending_input && conn_queued(c) <= PIPELINE_OUT))
        conn_touch(c);
    update_events(c);
    set_deadline(c);
}

static void on_task(struct loop_task *t)
{
    struct conn *c = container_of(t, struct conn, task);

    if (c->state == DEAD)
        conn_free(c);
    else
        settle(c);
}
