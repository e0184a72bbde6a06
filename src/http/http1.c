/* http1.c: requests of HTTP/1.1 on a connection, one after the other. conn.h contains the states.
 *
 * While a response is being generated, nothing is read: pipelined input stays in the kernel, and
 * EPOLLRDHUP reports a disconnect at once. EPOLLIN is removed only when pipelined input exists,
 * since this is rare. */
#include "base/log.h"
#include "http/conn.h"

void http1_end_exchange(struct conn *c)
{
    struct exchange *x = c->x;

    c->x = NULL;
    exchange_free(x);
}

/* The response is complete (queued, not yet sent): prepares for the next request. */
static void finish_exchange(struct conn *c)
{
    bool must_close = c->want_close || c->is_eof || c->s->is_draining;

    http1_end_exchange(c);
    http_parser_reset(&c->parser);
    c->is_fresh = false;
    c->since_ns = loop_now(c->s->loop);
    conn_set_state(c, must_close ? CLOSING : IDLE);
}

void http1_reject(struct conn *c, struct refusal why)
{
    log_debug("http", "request_rejected", "peer=%s status=%d reason=\"%s\"", c->peer, why.status,
        why.why);
    STAT_ADD(c->s, bad_requests, 1);
    bool is_head_complete = c->state == BODY && c->x;
    c->want_close |= is_head_complete;
    bool is_answered = is_head_complete && exchange_reject(c->x, why);
    http1_end_exchange(c);
    if (!is_answered)
        http1_send_error(c, why);
    conn_set_state(c, CLOSING);
}

/* The head is complete: creates the exchange and requests from the application the limit of the
 * body. */
static void on_head_complete(struct conn *c)
{
    struct http_parser *p = &c->parser;

    c->x = exchange_new(c, p, &http1_sink_ops, c->first_byte_ns);
    if (!c->x) {
        http1_reject(c, (struct refusal){ 503, "out of memory" });
        return;
    }
    int64_t max = exchange_head(c->x);
    if (max < 0) {
        if (!c->must_abort)
            finish_exchange(c); /* sink_begin has set want_close if an unread body follows */
        return;
    }
    p->body_max = (uint64_t)max;
    c->since_ns = loop_now(c->s->loop);
    conn_set_state(c, BODY);
    struct refusal why = exchange_begin_body(c->x, max, p->length);
    if (why.status)
        http1_reject(c, why);
    else if (p->want_continue)
        buf_putz(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
}

static void append_body(struct conn *c, struct str piece)
{
    struct refusal why = exchange_append(c->x, piece);

    if (why.status)
        http1_reject(c, why);
}

static void on_body_complete(struct conn *c)
{
    conn_set_state(c, RESPONDING);
    exchange_deliver(c->x);
    if (c->x->is_ended && !c->must_abort)
        finish_exchange(c);
}

size_t http1_input(struct conn *c, struct str in)
{
    struct str rest = in, piece;

    while (conn_is_reading(c) && !c->must_abort) {
        if (c->state == IDLE) {
            if (!rest.n || conn_queued(c) > PIPELINE_OUT)
                break;
            c->first_byte_ns = loop_now(c->s->loop);
            if (!c->is_fresh)
                c->since_ns = c->first_byte_ns;
            conn_set_state(c, HEAD);
        }
        enum http_event ev = http_parse(&c->parser, &rest, &piece);
        if (ev == HTTP_MORE)
            break;
        if (ev == HTTP_HEAD)
            on_head_complete(c);
        else if (ev == HTTP_BODY)
            append_body(c, piece);
        else if (ev == HTTP_END)
            on_body_complete(c);
        else
            http1_reject(c, (struct refusal){ c->parser.status, c->parser.why });
    }
    return in.n - rest.n;
}

/* Parses pipelined bytes, and bytes that OpenSSL has already read from the socket. */
static void parse_pending(struct conn *c)
{
    if (conn_is_reading(c) && c->pending.n) {
        struct str rest = str_skip(buf_str(&c->pending), c->pending_at);
        c->pending_at += http1_input(c, rest);
        if (c->pending_at == c->pending.n || c->state == CLOSING) {
            buf_clear(&c->pending);
            c->pending_at = 0;
        }
    }
    if (conn_is_reading(c) && !c->pending.n && c->tls && tls_has_pending(c->tls))
        conn_read(c);
}

void http1_settle(struct conn *c)
{
    if (c->state == RESPONDING && c->x->is_ended)
        finish_exchange(c);
    parse_pending(c);
}
