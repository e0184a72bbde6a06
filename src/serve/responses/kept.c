#include "serve/responses/kept.h"

#include "api/responses/responses.h"
#include "os/clock.h"

/* Finds a stored response whose items a request refers to. The items are copied, because the entry
 * may be evicted while the request runs. */
static bool find_stored(void *arg, struct str id, struct responses_kept *out)
{
    const struct kept_place *ctx = arg;
    const struct kept *k = shelf_take(ctx->shelf, ctx->owner, id, clock_ns());
    struct kept_view v;

    if (!k)
        return false;
    shelf_look(ctx->shelf, k, &v);
    out->answer = arena_str(ctx->arena, v.answer);
    out->input = arena_str(ctx->arena, k->input);
    shelf_unref(ctx->shelf, k);
    return out->answer.p && out->input.p;
}

static int reject_without_store(const struct ask *ask, struct err *e)
{
    const char *name = ask->previous_id.p ? "previous_response_id" : "input";

    return err_param(e, ERR_UNSUPPORTED, name,
        "'%s' refers to what was answered before, and answers are not kept here.", name);
}

/* Lists all responses of the chain, the oldest first. */
static int list_chain(struct responses_kept **out, size_t *n, const struct kept *last,
    const struct kept_place *ctx, struct err *e)
{
    size_t i = *n = last ? (size_t)last->depth + 1 : 0;
    struct responses_kept *all = arena_zalloc(ctx->arena, *n + 1, sizeof(*all));
    struct kept_view v;

    if (!all)
        return err_set(e, ERR_MEMORY, "No memory for this request.");
    for (const struct kept *k = last; k; k = k->before) {
        shelf_look(ctx->shelf, k, &v);
        all[--i] = (struct responses_kept){ v.answer, k->input };
    }
    *out = all;
    return 0;
}

/* Looks up previous_response_id; the response must exist and have completed. */
static int take_previous(
    const struct kept **out, const struct ask *ask, const struct kept_place *ctx, struct err *e)
{
    static const char *const why[] = { [KEPT_WAITS] = "has not ended yet",
        [KEPT_RUNS] = "has not ended yet",
        [KEPT_FAILED] = "has failed",
        [KEPT_CANCELLED] = "was cancelled" };
    struct str id = ask->previous_id;
    struct kept_view v;

    *out = shelf_take(ctx->shelf, ctx->owner, id, clock_ns());
    if (!*out)
        return err_param(e, ERR_NOT_FOUND, "previous_response_id",
            "Previous response with id '%.*s' not found.", (int)id.n, id.p);
    shelf_look(ctx->shelf, *out, &v);
    if (v.stage == KEPT_ENDED)
        return 0;
    return err_param(e, ERR_INVALID, "previous_response_id", "Previous response with id '%.*s' %s.",
        (int)id.n, id.p, why[v.stage]);
}

int kept_recall(
    const struct kept **before, struct ask *ask, const struct kept_place *ctx, struct err *e)
{
    struct responses_shelf shelf = { (void *)(uintptr_t)ctx, find_stored };
    struct responses_kept *all;
    size_t n;

    *before = NULL;
    ask->store = ask->store && ctx->shelf;
    if (ask->background && !ask->store)
        return err_param(e, ERR_UNSUPPORTED, "background",
            "'background' is not supported here: answers are not kept.");
    if (!ask->needs_shelf)
        return 0;
    if (!ctx->shelf)
        return reject_without_store(ask, e);
    if (ask->previous_id.p && take_previous(before, ask, ctx, e))
        return -1;
    if (list_chain(&all, &n, *before, ctx, e))
        return -1;
    return responses_recall(ask, all, n, &shelf, ctx->arena, e);
}

void kept_put(struct shelf *shelf, uint64_t owner, const struct ask *ask, const struct answer *a,
    const struct kept *before)
{
    struct buf answer, input;

    if (!shelf || !ask->store)
        return;
    buf_init(&answer, ANSWER_BYTES_MAX);
    buf_init(&input, ANSWER_BYTES_MAX);
    if (answer_keep(a, &answer, &input)) {
        struct kept k = { .id = str_of(answer_id(a)),
            .answer = buf_str(&answer),
            .input = buf_str(&input),
            .before = before };
        shelf_put(shelf, owner, &k, clock_ns());
    }
    buf_clear(&answer);
    buf_clear(&input);
}
