#include "serve/responses/stored_response.h"

#include "api/responses/responses.h"
#include "os/clock.h"

/* Finds a stored response whose items a request refers to. The items are copied, because the entry
 * may be evicted while the request runs. */
static bool find_stored(void *arg, struct str id, struct responses_stored *out)
{
    const struct stored_response_ctx *ctx = arg;
    const struct stored_response *k =
        response_store_take(ctx->response_store, ctx->owner, id, clock_ns());
    struct stored_response_view v;

    if (!k)
        return false;
    response_store_view(ctx->response_store, k, &v);
    out->response = arena_str(ctx->arena, v.response);
    out->input = arena_str(ctx->arena, k->input);
    response_store_unref(ctx->response_store, k);
    return out->response.p && out->input.p;
}

/* Lists all responses of the chain, the oldest first. */
static int list_chain(struct responses_stored **out, size_t *n, const struct stored_response *last,
    const struct stored_response_ctx *ctx, struct err *e)
{
    size_t i = *n = last ? (size_t)last->depth + 1 : 0;
    struct responses_stored *all = arena_zalloc(ctx->arena, *n + 1, sizeof(*all));
    struct stored_response_view v;

    if (!all)
        return err_set(e, ERR_MEMORY, "No memory for this request.");
    for (const struct stored_response *k = last; k; k = k->previous) {
        response_store_view(ctx->response_store, k, &v);
        all[--i] = (struct responses_stored){ v.response, k->input };
    }
    *out = all;
    return 0;
}

/* Looks up previous_response_id; the response must exist and have completed. */
static int take_previous(const struct stored_response **out, const struct request *request,
    const struct stored_response_ctx *ctx, struct err *e)
{
    static const char *const why[] = { [STORED_QUEUED] = "has not ended yet",
        [STORED_RUNNING] = "has not ended yet",
        [STORED_FAILED] = "has failed",
        [STORED_CANCELLED] = "was cancelled" };
    struct str id = request->previous_id;
    struct stored_response_view v;

    *out = response_store_take(ctx->response_store, ctx->owner, id, clock_ns());
    if (!*out)
        return err_param(e, ERR_NOT_FOUND, "previous_response_id",
            "Previous response with id '%.*s' not found.", (int)id.n, id.p);
    response_store_view(ctx->response_store, *out, &v);
    if (v.stage == STORED_COMPLETED)
        return 0;
    return err_param(e, ERR_INVALID, "previous_response_id", "Previous response with id '%.*s' %s.",
        (int)id.n, id.p, why[v.stage]);
}

int stored_response_recall(const struct stored_response **previous, struct request *request,
    const struct stored_response_ctx *ctx, struct err *e)
{
    struct responses_lookup response_store = { (void *)(uintptr_t)ctx, find_stored };
    struct responses_stored *all;
    size_t n;

    *previous = NULL;
    request->store = request->store && ctx->response_store;
    if (request->background && !request->store)
        return err_param(e, ERR_UNSUPPORTED, "background",
            "'background' is not supported: this server does not store responses.");
    if (!request->needs_response_store)
        return 0;
    if (!ctx->response_store) {
        const char *name = request->previous_id.p ? "previous_response_id" : "input";
        return err_param(e, ERR_UNSUPPORTED, name,
            "'%s' refers to a stored response, and this server does not store responses.", name);
    }
    if (request->previous_id.p && take_previous(previous, request, ctx, e))
        return -1;
    if (list_chain(&all, &n, *previous, ctx, e))
        return -1;
    return responses_load_history(request, all, n, &response_store, ctx->arena, e);
}

void stored_response_put(struct response_store *response_store, uint64_t owner,
    const struct request *request, const struct response *a, const struct stored_response *previous)
{
    struct buf response, input;

    if (!response_store || !request->store)
        return;
    buf_init(&response, RESPONSE_BYTES_MAX);
    buf_init(&input, RESPONSE_BYTES_MAX);
    if (response_serialize(a, &response, &input)) {
        struct stored_response k = { .id = str_of(response_id(a)),
            .response = buf_str(&response),
            .input = buf_str(&input),
            .previous = previous };
        response_store_put(response_store, owner, &k, clock_ns());
    }
    buf_clear(&response);
    buf_clear(&input);
}
