/* http1_response.c: response heads, chunks, and error responses of the server itself in HTTP/1.1.
 * All output goes to the send queue of the connection; conn.c sends it. Owner: the io thread of the
 * connection. */
#include "base/log.h"
#include "http/conn.h"

#include <stdio.h>

static const char *reason_phrase(int status)
{
    static const struct {
        int status;
        const char *text;
    } known[] = {
        { 200, "OK" },
        { 201, "Created" },
        { 202, "Accepted" },
        { 204, "No Content" },
        { 206, "Partial Content" },
        { 301, "Moved Permanently" },
        { 302, "Found" },
        { 303, "See Other" },
        { 304, "Not Modified" },
        { 307, "Temporary Redirect" },
        { 308, "Permanent Redirect" },
        { 400, "Bad Request" },
        { 401, "Unauthorized" },
        { 402, "Payment Required" },
        { 403, "Forbidden" },
        { 404, "Not Found" },
        { 405, "Method Not Allowed" },
        { 406, "Not Acceptable" },
        { 408, "Request Timeout" },
        { 409, "Conflict" },
        { 410, "Gone" },
        { 411, "Length Required" },
        { 413, "Content Too Large" },
        { 415, "Unsupported Media Type" },
        { 417, "Expectation Failed" },
        { 421, "Misdirected Request" },
        { 422, "Unprocessable Content" },
        { 429, "Too Many Requests" },
        { 431, "Request Header Fields Too Large" },
        { 499, "Client Closed Request" },
        { 500, "Internal Server Error" },
        { 501, "Not Implemented" },
        { 502, "Bad Gateway" },
        { 503, "Service Unavailable" },
        { 504, "Gateway Timeout" },
        { 505, "HTTP Version Not Supported" },
        { 529, "Overloaded" },
    };

    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (known[i].status == status)
            return known[i].text;
    return "Status"; /* the reason phrase has no meaning (RFC 9112 4) */
}

static void append_field(struct buf *b, struct str name, struct str value)
{
    CHECK(http_is_token(name));
    if (response_is_server_field(name))
        return;
    buf_puts(b, name);
    buf_puts(b, STR(": "));
    response_append_value(b, value);
    buf_puts(b, STR("\r\n"));
}

/* Gives an empty buffer a useful size; a failure is detected by the next write to the buffer. */
static void reserve_initial(struct buf *b, size_t n)
{
    if (!b->cap && !buf_reserve(b, n))
        log_debug("http", "alloc_failed", "bytes=%zu", n);
}

static void append_status(struct conn *c, int status, const char *type)
{
    struct buf *b = &c->out;

    CHECK(status >= 200 && status <= 599);
    reserve_initial(b, 512); /* most responses fit, with one allocation */
    buf_puts(b, STR("HTTP/1.1 "));
    buf_u64(b, (uint64_t)status);
    buf_putc(b, ' ');
    buf_putz(b, reason_phrase(status));
    buf_puts(b, STR("\r\nDate: "));
    buf_putz(b, server_date(c->s));
    buf_puts(b, STR("\r\n"));
    if (type)
        append_field(b, STR("Content-Type"), str_of(type));
}

static void append_framing(struct conn *c, const struct exchange *x, int64_t n_bytes, int status)
{
    struct buf *b = &c->out;

    if (x->is_chunked) {
        buf_puts(b, STR("Transfer-Encoding: chunked\r\n"));
    } else if (n_bytes >= 0 && status != 204) {
        buf_puts(b, STR("Content-Length: "));
        buf_u64(b, (uint64_t)n_bytes);
        buf_puts(b, STR("\r\n"));
    }
    buf_putz(b, c->want_close ? "Connection: close\r\n\r\n" : "Connection: keep-alive\r\n\r\n");
}

static struct exchange *exchange_of(struct sink *s)
{
    return container_of(s, struct exchange, x.sink);
}

static void response_begin(struct sink *sink, int status, const char *type, int64_t n_bytes,
    const struct http_field *fields, int n_fields)
{
    struct exchange *x = exchange_of(sink);
    struct conn *c = x->c;
    const struct http_parser *p = &c->parser;

    if (x->is_ended)
        return; /* the client has disconnected */
    CHECK(!x->is_begun);
    x->is_begun = true;
    x->has_no_body = str_is(x->req.method, "HEAD") || status == 204 || status == 304;
    x->left = n_bytes;
    x->is_chunked = n_bytes < 0 && !p->is_http10 && !x->has_no_body;
    x->is_until_close = n_bytes < 0 && p->is_http10 && !x->has_no_body;
    c->want_close |= p->want_close || c->is_eof || c->s->is_draining || x->is_until_close;
    c->want_close |= !x->is_delivered && http_parser_has_body(p); /* the body will not be read */
    c->must_abort |= c->is_eof && n_bytes < 0; /* no streams to half-closed clients */

    append_status(c, status, type);
    for (int i = 0; i < n_fields; i++)
        append_field(&c->out, fields[i].name, fields[i].value);
    append_framing(c, x, n_bytes, status);
    c->must_abort |= !buf_ok(&c->out); /* a later write would otherwise be sent without a head */
    conn_touch(c);
}

static void response_write(struct sink *sink, struct str bytes)
{
    struct exchange *x = exchange_of(sink);
    struct conn *c = x->c;

    if (x->is_ended || c->must_abort)
        return;
    CHECK(x->is_begun);
    if (x->has_no_body || !bytes.n)
        return;
    if (x->left >= 0 && bytes.n > (uint64_t)x->left) {
        log_error("http", "unexpected", "error=\"body is longer than its Content-Length\"");
        c->must_abort = true;
    } else if (bytes.n > c->s->o.max_queued || conn_queued(c) > c->s->o.max_queued - bytes.n) {
        log_info("http", "slow_reader", "peer=%s queued_bytes=%zu", c->peer, conn_queued(c));
        c->must_abort = true;
    }
    conn_touch(c);
    if (c->must_abort)
        return;
    if (x->left >= 0)
        x->left -= (int64_t)bytes.n;
    if (c->out_at > c->out.n / 2) { /* more than half is sent: moving the rest is cheap */
        buf_drop(&c->out, c->out_at);
        c->out_at = 0;
    }
    if (x->is_chunked) {
        char size[20];
        int n = snprintf(size, sizeof(size), "%zx\r\n", bytes.n);
        reserve_initial(&c->out, MAX(bytes.n + 32, (size_t)512));
        buf_put(&c->out, size, (size_t)n);
    }
    buf_puts(&c->out, bytes);
    if (x->is_chunked)
        buf_puts(&c->out, STR("\r\n"));
    c->must_abort |= !buf_ok(&c->out);
    c->was_high |= conn_queued(c) > SINK_HIGH_WATER;
}

static void response_end(struct sink *sink)
{
    struct exchange *x = exchange_of(sink);
    struct conn *c = x->c;

    if (x->is_ended)
        return;
    CHECK(x->is_begun);
    if (x->left > 0 && !x->has_no_body && !c->must_abort) {
        log_error("http", "unexpected", "error=\"body is shorter than its Content-Length\"");
        c->must_abort = true;
    }
    if (x->is_chunked)
        buf_puts(&c->out, STR("0\r\n\r\n"));
    c->must_abort |= !buf_ok(&c->out);
    x->is_ended = true;
    conn_touch(c);
}

static void response_abort(struct sink *sink)
{
    struct exchange *x = exchange_of(sink);

    if (x->is_ended)
        return;
    x->is_ended = true;
    x->is_aborted = true;
    x->c->must_abort = true;
    conn_touch(x->c);
}

static size_t response_queued(const struct sink *sink)
{
    const char *x = (const char *)sink - offsetof(struct exchange, x.sink);

    return conn_queued(((const struct exchange *)(const void *)x)->c);
}

const struct sink_ops http1_sink_ops = { response_begin, response_write, response_end,
    response_abort, response_queued };

void http1_send_error(struct conn *c, struct refusal why)
{
    /* the head may be incomplete */
    bool is_head = str_starts(buf_str(&c->parser.head), STR("HEAD "));
    char body[256];
    struct buf *b = &c->out;

    size_t n = response_error_body(body, sizeof(body), why);
    c->want_close = true;
    append_status(c, why.status, "application/json");
    buf_puts(b, STR("Content-Length: "));
    buf_u64(b, n);
    buf_puts(b, STR("\r\nConnection: close\r\n\r\n"));
    if (!is_head)
        buf_put(b, body, n);
    conn_touch(c);
}
