/* conn.c: one connection: socket, TLS, states, deadlines, send queue; conn.h contains the state
 * diagram. The protocol (http1.c) turns input into exchanges, and their responses into output.
 *
 * Event handlers read and parse at once and pass requests to the application. All other work
 * (sending, parsing of pipelined bytes, changing the watched events) is done by settle(), once at
 * the end of the loop round, however often the connection was touched. Ten SSE frames produced by
 * one batch of messages are thus sent in one write, and no callback of the application runs inside
 * another. */
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
    LINGER_MS = 2000,                /* time for further input after a rejected request... */
    LINGER_DRAIN_MS = 300,           /* ...and while the server is draining */
};
#define LINGER_BYTES (64 * MB)

static void on_io(struct loop_io *io, uint32_t events);
static void on_timer(struct loop_timer *t);
static void on_task(struct loop_task *t);

/* ---- lists and states */

static struct list *state_list(struct conn *c)
{
    return c->state == IDLE ? &c->s->idle : &c->s->busy;
}

void conn_set_state(struct conn *c, enum conn_state state)
{
    c->state = (uint8_t)state;
    if (list_has(state_list(c), &c->in_server))
        return;
    list_remove(&c->in_server);
    list_add_last(state_list(c), &c->in_server);
}

bool conn_is_reading(const struct conn *c)
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

uint64_t conn_after_ms(uint64_t from, uint64_t ms)
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
        due = c->x->body_due_ns;
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
        due = conn_after_ms(c->since_ns, ms);
    if (c->blocked_ns && o->write_ms)
        due = MIN(due, conn_after_ms(c->blocked_ns, o->write_ms));
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

void conn_abort(struct conn *c)
{
    struct http_server *s = c->s;

    if (c->state == DEAD)
        return;
    conn_set_state(c, DEAD);
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
    if (c->x)
        exchange_disconnect(c->x);
}

void conn_free(struct conn *c)
{
    struct http_server *s = c->s;

    CHECK(c->state == DEAD);
    list_remove(&c->in_server);
    loop_undefer(s->loop, &c->task);
    exchange_free(c->x);
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
    conn_set_state(c, CLOSING);
    http1_end_exchange(c);
    conn_touch(c);
}

/* ---- events */

void conn_read(struct conn *c)
{
    char *p = c->s->scratch;

    c->tls_wants_write = false;
    for (int i = 0; i < READS_PER_EVENT && conn_is_reading(c) && !c->pending.n; i++) {
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
        size_t used = http1_input(c, (struct str){ p, (size_t)n });
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
        conn_set_state(c, IDLE);
        conn_read(c);
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
            conn_read(c);
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
        loop_now(c->s->loop) >= conn_after_ms(c->blocked_ns, o->write_ms)) {
        c->want_reset = true; /* the kernel must not keep the queued bytes either */
        conn_abort(c);
        return;
    }
    switch ((enum conn_state)c->state) {
    case HEAD:
        http1_reject(c, (struct refusal){ 408, "timeout while reading the request head" });
        break;
    case BODY:
        http1_reject(c, (struct refusal){ 408, "timeout while reading the request body" });
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
        if (x)
            exchange_drained(x);
    }
}

static void update_events(struct conn *c)
{
    bool has_room = conn_queued(c) <= PIPELINE_OUT && !c->pending.n;
    uint32_t events = conn_queued(c) || c->tls_wants_write ? EPOLLOUT : 0;

    if (conn_is_reading(c))
        c->is_ahead = false;
    if (c->state == LINGER)
        events |= EPOLLIN;
    else if (c->state == HANDSHAKE || (conn_is_reading(c) && has_room))
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
    conn_set_state(c, LINGER);
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
    http1_settle(c);
    if (c->state != DEAD && c->state != HANDSHAKE)
        flush(c);
    if (c->state == CLOSING && !conn_queued(c))
        begin_linger(c);
    if (c->state == DEAD)
        return;
    bool has_pending_input = c->pending.n || (c->tls && tls_has_pending(c->tls));
    if (c->must_abort ||
        (conn_is_reading(c) && has_pending_input && conn_queued(c) <= PIPELINE_OUT))
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
