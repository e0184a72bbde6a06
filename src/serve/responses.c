/* responses.c: /v1/responses/{id}: an answer that is kept is shown, forgotten, or cannot be
 * cancelled any more. To everybody but who asked for it, it does not exist. */
#include "api/responses.h"
#include "os/clock.h"
#include "serve/io.h"
#include "store/shelf.h"

static const char base[] = "/v1/responses/";

/* "/v1/responses/ID" or "/v1/responses/ID/what". */
static struct str split(const struct http_exchange *x, struct str *what)
{
    struct str id = str_skip(x->req->path, strlen(base));
    ptrdiff_t slash = str_find(id, STR("/"));

    *what = slash < 0 ? STR_NONE : str_skip(id, (size_t)slash + 1);
    return slash < 0 ? id : (struct str){ id.p, (size_t)slash };
}

static void no_route(struct http_exchange *x, struct call *c)
{
    struct err e;

    err_set(&e, ERR_NOT_FOUND, "There is no such route.");
    status_reply(&x->sink, ERROR_PROBLEM, &e, NULL, c->fields, c->n_fields);
}

static void not_found(struct http_exchange *x, struct call *c, struct str id)
{
    struct error_extra extra = { .code = "response_not_found" };
    struct err e;

    err_param(&e, ERR_NOT_FOUND, "id", "Response with id '%.*s' not found.",
        (int)MIN(id.n, (size_t)RESPONSES_ID_MAX), id.p);
    reply_error(x, c, &e, &extra);
}

static const struct kept *take(const struct io *io, const struct call *c, struct str id)
{
    struct shelf *shelf = io->o->shelf;

    return shelf ? shelf_take(shelf, caller_tenant(&c->caller), id, clock_ns()) : NULL;
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

static void reply_input(struct http_exchange *x, struct call *c, const struct kept *k)
{
    struct responses_page page;
    struct err e;
    struct buf b;

    buf_init(&b, 2 * k->input.n + 64 * KB);
    if (read_page(x, &page, &e) || responses_list_input(&b, k->input, &page, x->arena, &e))
        reply_error(x, c, &e, NULL);
    else
        reply_json(x, c, 200, &b);
    buf_clear(&b);
}

/* ---- the routes */

static void reply_answer(struct http_exchange *x, struct call *c, const struct kept *k)
{
    struct str stream = STR_NONE;
    struct err e;

    if (query_get(x, "stream", &stream, &e)) {
        reply_error(x, c, &e, NULL);
        return;
    }
    if (str_is(stream, "true")) {
        err_param(&e, ERR_UNSUPPORTED, "stream",
            "'stream' is not supported here: only whole answers are kept.");
        reply_error(x, c, &e, NULL);
        return;
    }
    sink_reply(&x->sink, 200, "application/json", k->answer, c->fields, c->n_fields);
}

void responses_show(struct io *io, struct http_exchange *x, struct call *c)
{
    struct str what, id = split(x, &what);
    const struct kept *k = take(io, c, id);

    if (what.p && !str_is(what, "input_items"))
        no_route(x, c);
    else if (!k)
        not_found(x, c, id);
    else if (what.p)
        reply_input(x, c, k);
    else
        reply_answer(x, c, k);
    if (k)
        shelf_unref(io->o->shelf, k);
}

void responses_forget(struct io *io, struct http_exchange *x, struct call *c)
{
    struct str what, id = split(x, &what);
    struct shelf *shelf = io->o->shelf;
    struct buf b;

    if (what.p) {
        no_route(x, c);
        return;
    }
    if (!shelf || !shelf_drop(shelf, caller_tenant(&c->caller), id, clock_ns())) {
        not_found(x, c, id);
        return;
    }
    buf_init(&b, 4 * KB);
    responses_deleted(&b, id);
    reply_json(x, c, 200, &b);
    buf_clear(&b);
}

/* What is kept has ended; what has not is cancelled by its request's id, or by leaving. */
void responses_cancel(struct io *io, struct http_exchange *x, struct call *c)
{
    struct str what, id = split(x, &what);
    const struct kept *k = take(io, c, id);
    struct err e;

    if (!str_is(what, "cancel")) {
        no_route(x, c);
    } else if (!k) {
        not_found(x, c, id);
    } else {
        err_param(&e, ERR_INVALID, "id",
            "Cannot cancel a completed response; one that is being made is cancelled by leaving, "
            "or "
            "with DELETE /v1/requests/{id} by its x-request-id.");
        reply_error(x, c, &e, NULL);
    }
    if (k)
        shelf_unref(io->o->shelf, k);
}
