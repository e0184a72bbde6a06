/* control.c: what can be said to a server that runs.
 *
 * DELETE /v1/requests/{id}: a request is cancelled by the id that it came with, or that
 * its answer tells, as x-request-id.
 *
 * A request lives on one io thread and is asked about on any. So the question travels: a message
 * that every io thread looks at in turn and passes on, until one has the request or it is home.
 * It belongs to whoever holds it; `x`, `call` and the links belong to its home thread always.
 *
 *   home: own requests -> next io thread -> ... -> home: 200 or 404 */
#include "serve/request.h"

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"

struct cancel {
    struct pending pending;
    struct msg msg;
    struct cancel *next, **prev; /* home->cancels; while x is set */
    struct io *home;
    struct http_exchange *x; /* NULL: nobody waits for the answer any more */
    struct call *call;
    struct caller caller;
    char id[REQUEST_ID_MAX + 1];
    bool is_found;
};

/* One's own, or anybody's for who administers; others are none of the caller's business. */
static bool cancel_here(struct io *io, const struct cancel *k)
{
    bool is_any = (k->caller.scopes & SCOPE_ADMIN) != 0;
    struct request *r = request_find(io, str_of(k->id), is_any ? NULL : &k->caller);
    struct err e;

    if (!r)
        return false;
    err_set(&e, ERR_CANCELLED, "The request was cancelled.");
    request_fail(r, &e);
    return true;
}

static void answer_found(struct http_exchange *x, struct call *call, const char *id)
{
    struct buf b;
    struct jw w;

    buf_init(&b, KB);
    jw_init(&w, &b);
    jw_object(&w);
    jw_key(&w, "id"), jw_z(&w, id);
    jw_key(&w, "object"), jw_z(&w, "request");
    jw_key(&w, "cancelled"), jw_bool(&w, true);
    jw_end_object(&w);
    reply_json(x, call, 200, &b);
    buf_clear(&b);
}

static void leave_exchange(struct cancel *k)
{
    k->x->user = NULL;
    k->x = NULL;
    *k->prev = k->next;
    if (k->next)
        k->next->prev = k->prev;
}

static void answer(struct cancel *k, enum errcode why)
{
    struct http_exchange *x = k->x;
    struct error_extra extra = { 0 };
    struct err e;

    if (!x)
        return;
    leave_exchange(k);
    if (why == ERR_NONE) {
        answer_found(x, k->call, k->id);
        return;
    }
    if (why == ERR_NOT_FOUND)
        extra.code = "request_not_found";
    err_set(&e, why,
        why == ERR_NOT_FOUND ? "No request '%s' waits or runs." : "The server is shutting down.",
        k->id);
    reply_error(x, k->call, &e, &extra);
}

static void on_gone(struct pending *p)
{
    leave_exchange(container_of(p, struct cancel, pending));
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

    if (io == k->home || io->is_closing) { /* closing: no thread runs any more */
        if (io == k->home)
            answer(k, k->is_found ? ERR_NONE : ERR_NOT_FOUND);
        mem_free(k);
        return;
    }
    k->is_found = k->is_found || cancel_here(io, k);
    pass_on(k, io);
}

/* Another thread may have ended by now: a question that is on its way to it comes home never. */
void cancel_drain(struct io *io)
{
    while (io->cancels)
        answer(io->cancels, ERR_DRAINING);
}

static struct cancel *cancel_new(
    struct io *io, struct http_exchange *x, struct call *c, struct str id)
{
    struct cancel *k = try_calloc(1, sizeof(*k));

    if (!k)
        return NULL;
    k->pending.gone = on_gone;
    k->home = io;
    k->x = x;
    k->call = c;
    k->caller = c->caller;
    memcpy(k->id, id.p, MIN(id.n, sizeof(k->id) - 1));
    k->next = io->cancels;
    k->prev = &io->cancels;
    if (io->cancels)
        io->cancels->prev = &k->next;
    io->cancels = k;
    x->user = &k->pending;
    return k;
}

void control_cancel(struct io *io, struct http_exchange *x, struct call *c)
{
    struct str id = str_skip(x->req->path, strlen("/v1/requests/"));
    struct cancel *k = cancel_new(io, x, c, id);
    struct err e;

    if (!k) {
        err_set(&e, ERR_MEMORY, "no memory for the request");
        reply_error(x, c, &e, NULL);
        return;
    }
    k->is_found = cancel_here(io, k);
    if (!k->is_found && service_io(io->service, 1) && !io->is_draining) {
        pass_on(k, io);
        return;
    }
    answer(k, k->is_found ? ERR_NONE : ERR_NOT_FOUND);
    mem_free(k);
}

/* ---- GET and DELETE /v1/admin/cache: the answers that are remembered */

static void answer_numbers(struct http_exchange *x, struct call *c, const char *const *names,
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

void control_cache(struct io *io, struct http_exchange *x, struct call *c)
{
    static const char *const names[] = { "answers", "bytes", "hits", "misses", "evicted" };
    struct exact_stats s = { 0 };

    if (io->o->exact)
        exact_stats(io->o->exact, &s);
    uint64_t values[] = { s.entries, s.bytes, s.hits, s.misses, s.evicted };
    answer_numbers(x, c, names, values, ARRAY_LEN(values));
}

void control_flush(struct io *io, struct http_exchange *x, struct call *c)
{
    static const char *const names[] = { "flushed" };
    uint64_t n = io->o->exact ? exact_flush(io->o->exact) : 0;

    log_info("serve", "flush", "answers=%d", (int)n);
    answer_numbers(x, c, names, &n, 1);
}
