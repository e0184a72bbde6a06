/* cancel.c: DELETE /v1/requests/{id}: cancels a request by the id that its client sent or received
 * as x-request-id; and the administration of the response cache.
 *
 * A request in flight is owned by one io thread, and the route runs on any io thread. Therefore a
 * message visits all io threads in turn until one finds the request or the message is back at its
 * home thread.
 *
 * Owner of a struct cancel: the thread that holds its message; `async` always belongs to the
 * home thread.
 *
 *     home: own requests -> next io thread -> ... -> home: 200 or 404 */
#include "serve/audit_record.h"
#include "serve/async.h"
#include "serve/inflight.h"

#include "base/json.h"
#include "base/log.h"

struct cancel {
    struct async async;
    struct msg msg;
    struct caller caller;
    char id[REQUEST_ID_MAX + 1];
    bool is_found;
};

/* A caller may cancel its own requests, an administrator all. Other requests are reported as not
 * found. */
static bool cancel_here(struct io *io, const struct cancel *k)
{
    bool is_any = (k->caller.scopes & SCOPE_ADMIN) != 0;
    struct inflight *r = inflight_find(io, str_of(k->id), is_any ? NULL : &k->caller);
    struct err e;

    if (!r)
        return false;
    err_set(&e, ERR_CANCELLED, "The request was cancelled.");
    inflight_fail(r, &e);
    return true;
}

static void put_cancelled(struct buf *out, const char *id)
{
    struct jw w;

    jw_init(&w, out);
    jw_object(&w);
    jw_key(&w, "id"), jw_z(&w, id);
    jw_key(&w, "object"), jw_z(&w, "request");
    jw_key(&w, "cancelled"), jw_bool(&w, true);
    jw_end_object(&w);
}

/* No effect if the client has left. */
static void reply(struct cancel *k, enum errcode why)
{
    struct error_extra extra = { 0 };
    struct err e;

    if (!k->async.is_open)
        return;
    if (why == ERR_NONE) {
        put_cancelled(&k->async.out, k->id);
        async_reply(&k->async);
        return;
    }
    if (why == ERR_NOT_FOUND)
        extra.code = "request_not_found";
    err_set(&e, why,
        why == ERR_NOT_FOUND ? "No request '%s' is waiting or running."
                             : "The server is shutting down.",
        k->id);
    async_reply_error(&k->async, &e, &extra);
}

static void pass_on(struct cancel *k, const struct io *from)
{
    struct io *next = service_io(from->service, from->index + 1);

    next = next ? next : service_io(from->service, 0);
    k->msg.kind = MSG_CANCEL;
    mailbox_post(loop_mailbox(next->loop), &k->msg);
}

void cancel_message(struct io *io, struct msg *m)
{
    struct cancel *k = container_of(m, struct cancel, msg);
    bool is_home = io == k->async.io;

    if (is_home)
        reply(k, k->is_found ? ERR_NONE : ERR_NOT_FOUND);
    if (is_home || io->is_closing) { /* is_closing: the io threads have ended */
        async_unref(&k->async);
        return;
    }
    k->is_found = k->is_found || cancel_here(io, k);
    pass_on(k, io);
}

/* Other io threads may have ended already, so the messages may not return. */
void cancel_drain(struct io *io)
{
    LIST_EACH (struct async, a, &io->cancels, in_open)
        reply(container_of(a, struct cancel, async), ERR_DRAINING);
}

static struct cancel *cancel_new(
    struct io *io, struct http_exchange *x, struct route_call *c, struct str id)
{
    static const struct async_ops ops = { 0 };
    struct cancel *k = async_new(sizeof(*k), &ops, io, x, c);

    if (!k)
        return NULL;
    k->caller = c->caller;
    memcpy(k->id, id.p, MIN(id.n, sizeof(k->id) - 1));
    list_add_first(&io->cancels, &k->async.in_open);
    return k;
}

void cancel_by_id(struct io *io, struct http_exchange *x, struct route_call *c)
{
    struct str id = str_skip(x->req->path, strlen("/v1/requests/"));
    struct cancel *k = cancel_new(io, x, c, id);

    if (!k)
        return;
    k->is_found = cancel_here(io, k);
    if (!k->is_found && service_io(io->service, 1) && !io->is_draining) {
        async_ref(&k->async); /* the message holds it */
        pass_on(k, io);
        return;
    }
    reply(k, k->is_found ? ERR_NONE : ERR_NOT_FOUND);
}

/* ---- GET and DELETE /v1/admin/cache: the response cache */

static void reply_numbers(struct http_exchange *x, struct route_call *c, const char *const *names,
    const uint64_t *values, int n)
{
    struct buf b;
    struct jw w;

    buf_init(&b, 4 * KB);
    jw_init(&w, &b);
    jw_object(&w);
    for (int i = 0; i < n; i++)
        jw_key(&w, names[i]), jw_u64(&w, values[i]);
    jw_end_object(&w);
    reply_json(x, c, 200, &b);
    buf_clear(&b);
}

void admin_cache_show(struct io *io, struct http_exchange *x, struct route_call *c)
{
    static const char *const names[] = { "answers", "bytes", "hits", "misses", "evicted" };
    struct response_cache_stats s = { 0 };

    if (io->o->response_cache)
        response_cache_stats(io->o->response_cache, &s);
    uint64_t values[] = { s.entries, s.bytes, s.hits, s.misses, s.evicted };
    reply_numbers(x, c, names, values, ARRAY_LEN(values));
}

void admin_cache_flush(struct io *io, struct http_exchange *x, struct route_call *c)
{
    static const char *const names[] = { "flushed" };
    struct buf before, after;
    struct err e;

    if (audit_change_reserve(io, &e)) {
        reply_error(x, c, &e, NULL);
        return;
    }
    uint64_t n = io->o->response_cache ? response_cache_flush(io->o->response_cache) : 0;
    log_info("serve", "response_cache_flush", "responses=%d", (int)n);
    buf_init(&before, KB);
    buf_init(&after, KB);
    buf_printf(&before, "{\"responses\":%llu}", (unsigned long long)n);
    buf_putz(&after, "{\"responses\":0}");
    audit_change_write(c, "cache.flushed", &before, &after);
    buf_clear(&before);
    buf_clear(&after);
    reply_numbers(x, c, names, &n, 1);
}
