#include "http/exchange.h"
#include "base/log.h"
#include "http/conn.h"

#include <stdio.h>

enum { BODY_FIRST = 65536 }; /* largest buffer reserved because of a Content-Length alone */
#define BODY_DEFAULT ((int64_t)(16 * MB))

static const struct refusal no_memory = { 503, "out of memory" };

struct exchange *exchange_new(
    struct conn *c, const struct http_parser *head, const struct sink_ops *ops, uint64_t began_ns)
{
    struct arena *a = arena_new(c->s->o.max_arena);
    struct exchange *x = a ? arena_zalloc(a, 1, sizeof(*x)) : NULL;

    if (!x || http_parser_request(head, a, &x->req)) {
        arena_free(a);
        return NULL;
    }
    x->c = c;
    x->req.peer = str_of(c->peer);
    x->req.is_tls = c->tls != NULL;
    x->x = (struct http_exchange){
        .sink.ops = ops, .req = &x->req, .arena = a, .started_ns = began_ns
    };
    return x;
}

void exchange_free(struct exchange *x)
{
    if (!x)
        return;
    charge_clear(&x->charge);
    buf_clear(&x->body);
    arena_free(x->x.arena); /* the arena also contains x itself */
}

void http_set_peer(struct http_exchange *x, struct str peer)
{
    container_of(x, struct exchange, x)->req.peer = peer;
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

/* ---- requests */

int64_t exchange_head(struct exchange *x)
{
    const struct http_app *app = &x->c->s->app;

    STAT_ADD(x->c->s, requests, 1);
    int64_t max = app->on_head ? app->on_head(app->ctx, &x->x) : BODY_DEFAULT;
    if (x->is_begun && !x->is_ended) {
        log_error("http", "unexpected", "error=\"on_head sent a partial response\"");
        sink_abort(&x->x.sink);
    }
    return x->is_begun ? -1 : max;
}

struct refusal exchange_begin_body(struct exchange *x, int64_t max, uint64_t length)
{
    const struct http_server *s = x->c->s;
    size_t first = (size_t)MIN(length, (uint64_t)BODY_FIRST);

    x->charge = (struct charge){ .budget = s->o.bodies, .owner = x->x.owner };
    x->body_due_ns = s->o.body_ms ? conn_after_ms(loop_now(s->loop), s->o.body_ms) : UINT64_MAX;
    buf_init(&x->body, (size_t)max);
    if (length > (uint64_t)max)
        return (struct refusal){ 413, "the body is too large" };
    if (first && !buf_reserve(&x->body, first))
        return no_memory;
    return (struct refusal){ 0 };
}

/* Each byte moves the deadline by the time that it takes at the minimum rate, but never beyond
 * body_ms from now: neither silence nor single bytes keep a body open, however much came before. */
static void extend_deadline(struct exchange *x, size_t n)
{
    const struct http_options *o = &x->c->s->o;

    if (!o->body_ms || !o->body_min_rate)
        return;
    uint64_t latest = conn_after_ms(loop_now(x->c->s->loop), o->body_ms);
    x->body_due_ns = MIN(x->body_due_ns + n * NS_PER_S / o->body_min_rate, latest);
}

static struct refusal budget_refusal(enum budget_refusal why)
{
    switch (why) {
    case BUDGET_NEVER:
        return (struct refusal){ 413, "the body is larger than the memory for bodies" };
    case BUDGET_SHARE:
        return (struct refusal){ 429, "too many large requests of this client at once" };
    default:
        return (struct refusal){ 503, "too many large requests at once" };
    }
}

struct refusal exchange_append(struct exchange *x, struct str piece)
{
    if (!charge_add(&x->charge, piece.n))
        return budget_refusal(x->charge.refusal);
    buf_puts(&x->body, piece);
    if (!buf_ok(&x->body))
        return no_memory;
    extend_deadline(x, piece.n);
    return (struct refusal){ 0 };
}

void exchange_deliver(struct exchange *x)
{
    const struct http_app *app = &x->c->s->app;

    x->req.body = buf_str(&x->body);
    x->is_delivered = true;
    app->on_request(app->ctx, &x->x);
}

bool exchange_reject(struct exchange *x, struct refusal why)
{
    const struct http_app *app = &x->c->s->app;

    if (!app->on_reject)
        return false;
    app->on_reject(app->ctx, &x->x, why.status, why.why);
    return x->is_begun;
}

void exchange_disconnect(struct exchange *x)
{
    const struct http_app *app = &x->c->s->app;

    if (!x->is_delivered || x->is_ended)
        return;
    x->is_ended = true; /* discards what on_disconnect writes */
    STAT_ADD(x->c->s, gone, 1);
    if (app->on_disconnect)
        app->on_disconnect(app->ctx, &x->x);
}

void exchange_drained(struct exchange *x)
{
    const struct http_app *app = &x->c->s->app;

    if (x->is_delivered && !x->is_ended && app->on_drained)
        app->on_drained(app->ctx, &x->x);
}

/* ---- responses */

bool response_is_server_field(struct str name)
{
    static const char *const server_fields[] = { "connection", "content-length",
        "transfer-encoding", "date" };

    for (size_t i = 0; i < ARRAY_LEN(server_fields); i++)
        if (str_eq_nocase(name, str_of(server_fields[i])))
            return true;
    return false;
}

/* The format in which clients of every supported dialect look for a message. */
size_t response_error_body(char *out, size_t size, struct refusal why)
{
    int n = snprintf(out, size,
        "{\"error\":{\"message\":\"%s\",\"type\":\"%s\",\"param\":null,\"code\":%d}}\n", why.why,
        why.status >= 500 && why.status != 505 ? "server_error" : "invalid_request_error",
        why.status);

    CHECK(n > 0 && (size_t)n < size);
    return (size_t)n;
}

void response_append_value(struct buf *b, struct str s)
{
    size_t from = 0;

    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if ((c >= ' ' || c == '\t') && c != 0x7f)
            continue;
        buf_put(b, s.p + from, i - from);
        from = i + 1;
    }
    buf_puts(b, str_skip(s, from));
}
