/* responses.c: routes of /v1/responses/{id}: read and delete a stored response, follow or cancel a
 * background response. A response exists only for the tenant that created it. Owner: the io
 * thread. */
#include "api/responses/responses.h"
#include "os/clock.h"
#include "serve/responses/background.h"
#include "serve/responses/subscriber.h"

static const char base[] = "/v1/responses/";

/* Splits "/v1/responses/ID" or "/v1/responses/ID/what". */
static struct str split_path(const struct http_exchange *x, struct str *what)
{
    struct str id = str_skip(x->req->path, strlen(base));
    ptrdiff_t slash = str_find(id, STR("/"));

    *what = slash < 0 ? STR_NONE : str_skip(id, (size_t)slash + 1);
    return slash < 0 ? id : (struct str){ id.p, (size_t)slash };
}

static void reply_no_route(struct http_exchange *x, struct route_call *c)
{
    struct err e;

    err_set(&e, ERR_NOT_FOUND, "This route does not exist.");
    reply_error(x, c, &e, NULL);
}

static void reply_not_found(struct http_exchange *x, struct route_call *c, struct str id)
{
    struct error_extra extra = { .code = "response_not_found" };
    struct err e;

    err_param(&e, ERR_NOT_FOUND, "id", "Response with id '%.*s' not found.",
        (int)MIN(id.n, (size_t)RESPONSES_ID_MAX), id.p);
    reply_error(x, c, &e, &extra);
}

static const struct stored_response *take_stored(
    const struct io *io, const struct route_call *c, struct str id)
{
    struct response_store *response_store = io->o->response_store;

    return response_store
               ? response_store_take(response_store, caller_tenant(&c->caller), id, clock_ns())
               : NULL;
}

/* ---- GET .../input_items */

static int read_page(const struct http_exchange *x, struct responses_page *p, struct err *e)
{
    enum { LIMIT = 20, LIMIT_MAX = 100 };
    struct str limit = STR_NONE, order = STR_NONE;
    uint64_t n = LIMIT;

    *p = (struct responses_page)
    {
        .limit = LIMIT
    };
    if (query_get(x, "after", &p->after, e) || query_get(x, "limit", &limit, e) ||
        query_get(x, "order", &order, e))
        return -1;
    if (limit.p && (!str_to_u64(limit, &n) || n < 1 || n > LIMIT_MAX))
        return err_param(e, ERR_RANGE, "limit", "'limit' must be between 1 and %d.", LIMIT_MAX);
    if (order.p && !str_is(order, "asc") && !str_is(order, "desc"))
        return err_param(e, ERR_INVALID, "order", "'order' must be one of asc|desc.");
    p->limit = (size_t)n;
    p->is_ascending = str_is(order, "asc");
    return 0;
}

/* Takes the reference. */
static void reply_input(struct io *io, struct http_exchange *x, struct route_call *c,
    const struct stored_response *take)
{
    struct responses_page page;
    struct err e;

    if (read_page(x, &page, &e) == 0) {
        tokenize_routes_list_input(io, x, c, take, &page);
        return;
    }
    response_store_unref(io->o->response_store, take);
    reply_error(x, c, &e, NULL);
}

/* ---- GET: the object, or its event stream */

static void reply_bad_request(
    struct http_exchange *x, struct route_call *c, const char *param, const char *why)
{
    struct err e;

    err_param(&e, ERR_INVALID, param, "%s", why);
    reply_error(x, c, &e, NULL);
}

/* Parses "?stream=true&starting_after=N": *from is the event after N. */
static int read_stream_params(
    const struct http_exchange *x, bool *is_stream, uint64_t *from, struct err *e)
{
    struct str stream = STR_NONE, after = STR_NONE;

    *from = 0;
    if (query_get(x, "stream", &stream, e) || query_get(x, "starting_after", &after, e))
        return -1;
    *is_stream = str_is(stream, "true");
    if (stream.p && !*is_stream && !str_is(stream, "false"))
        return err_param(e, ERR_INVALID, "stream", "'stream' must be true or false.");
    if (after.p && !*is_stream)
        return err_param(
            e, ERR_INVALID, "starting_after", "'starting_after' requires 'stream' to be true.");
    if (after.p && (!str_to_u64(after, from) || *from >= INT64_MAX))
        return err_param(
            e, ERR_RANGE, "starting_after", "'starting_after' must be the number of an event.");
    *from += after.p ? 1 : 0;
    return 0;
}

static void reply_stream(struct io *io, struct http_exchange *x, struct route_call *c,
    const struct stored_response *k, uint64_t from)
{
    if (!k->is_background)
        reply_bad_request(x, c, "stream",
            "This response cannot be streamed because it was not created with background=true.");
    else if (!k->has_event_log)
        reply_bad_request(x, c, "stream",
            "This response cannot be streamed because it was not created with stream=true.");
    else
        subscriber_stream(io, &(struct subscriber_params){ x, c, k, from });
}

static void reply_object(const struct io *io, struct http_exchange *x, struct route_call *c,
    const struct stored_response *k)
{
    struct stored_response_view v;
    struct buf b;

    response_store_view(io->o->response_store, k, &v);
    if (v.stage != STORED_RUNNING) {
        sink_respond(&x->sink, 200, "application/json", v.response, c->fields, c->n_fields);
        return;
    }
    buf_init(&b, RESPONSE_BYTES_MAX);
    responses_set_status(&b, v.response, "in_progress", NULL);
    reply_json(x, c, 200, &b);
    buf_clear(&b);
}

static void reply_response(
    struct io *io, struct http_exchange *x, struct route_call *c, const struct stored_response *k)
{
    bool is_stream;
    uint64_t from;
    struct err e;

    if (read_stream_params(x, &is_stream, &from, &e))
        reply_error(x, c, &e, NULL);
    else if (is_stream)
        reply_stream(io, x, c, k, from);
    else
        reply_object(io, x, c, k);
}

/* ---- routes */

void responses_show(struct io *io, struct http_exchange *x, struct route_call *c)
{
    struct str what, id = split_path(x, &what);
    const struct stored_response *k = take_stored(io, c, id);

    if (what.p && !str_is(what, "input_items"))
        reply_no_route(x, c);
    else if (!k)
        reply_not_found(x, c, id);
    else if (what.p) {
        reply_input(io, x, c, k);
        return;
    } else
        reply_response(io, x, c, k);
    if (k)
        response_store_unref(io->o->response_store, k);
}

/* Removes a stored response; a background response that is still running is cancelled. */
static bool delete_response(struct io *io, const struct route_call *c, struct str id)
{
    struct response_store *response_store = io->o->response_store;
    const struct stored_response *k = take_stored(io, c, id);

    if (!k)
        return false;
    if (k->is_background)
        background_cancel(io, k);
    bool was_there =
        response_store_remove(response_store, caller_tenant(&c->caller), id, clock_ns());
    response_store_unref(response_store, k);
    return was_there;
}

void responses_delete(struct io *io, struct http_exchange *x, struct route_call *c)
{
    struct str what, id = split_path(x, &what);
    struct buf b;

    if (what.p) {
        reply_no_route(x, c);
        return;
    }
    if (!delete_response(io, c, id)) {
        reply_not_found(x, c, id);
        return;
    }
    buf_init(&b, 4 * KB);
    responses_deleted(&b, id);
    reply_json(x, c, 200, &b);
    buf_clear(&b);
}

/* Cancels a background response. A request whose client waits is cancelled by closing the
 * connection, or by its request id. */
static void cancel_response(
    struct io *io, struct http_exchange *x, struct route_call *c, const struct stored_response *k)
{
    struct stored_response_view v;

    if (!k->is_background) {
        reply_bad_request(x, c, "id", "Cannot cancel a synchronous response.");
        return;
    }
    if (background_cancel(io, k)) {
        subscriber_wait_end(io, &(struct subscriber_params){ x, c, k, 0 });
        return;
    }
    response_store_view(io->o->response_store, k, &v);
    if (v.stage == STORED_CANCELLED)
        sink_respond(&x->sink, 200, "application/json", v.response, c->fields, c->n_fields);
    else
        reply_bad_request(x, c, "id",
            v.stage == STORED_FAILED ? "Cannot cancel a failed response."
                                     : "Cannot cancel a completed response.");
}

void responses_cancel(struct io *io, struct http_exchange *x, struct route_call *c)
{
    struct str what, id = split_path(x, &what);
    const struct stored_response *k = take_stored(io, c, id);

    if (!str_is(what, "cancel"))
        reply_no_route(x, c);
    else if (!k)
        reply_not_found(x, c, id);
    else
        cancel_response(io, x, c, k);
    if (k)
        response_store_unref(io->o->response_store, k);
}

/* Compaction would generate a summary of the conversation with a prompt that the client did not
 * supply. */
void responses_compact(struct io *io, struct http_exchange *x, struct route_call *c)
{
    struct error_extra extra = { .code = "unsupported_endpoint" };
    struct err e;

    err_set(&e, ERR_UNSUPPORTED,
        "Compaction is not supported. Send a shorter conversation, use 'previous_response_id', or "
        "set 'truncation' to 'auto'.");
    reply_error(x, c, &e, &extra);
}
