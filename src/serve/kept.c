#include "serve/kept.h"

#include "api/responses.h"
#include "os/clock.h"

/* Items that are referred to are copied: the answers they are from may go while this one runs. */
static bool find(void *ctx, struct str id, struct responses_kept *out)
{
    const struct kept_place *at = ctx;
    const struct kept *k = shelf_take(at->shelf, at->owner, id, clock_ns());

    if (!k)
        return false;
    out->answer = arena_str(at->arena, k->answer);
    out->input = arena_str(at->arena, k->input);
    shelf_unref(at->shelf, k);
    return out->answer.p && out->input.p;
}

static int refuse(const struct ask *ask, struct err *e)
{
    const char *name = ask->previous_id.p ? "previous_response_id" : "input";

    return err_param(e, ERR_UNSUPPORTED, name,
        "'%s' refers to what was answered before, and answers are not kept here.", name);
}

/* All that it goes on from, the oldest first. */
static int list_before(
    struct responses_kept **out, size_t *n, const struct kept *last, struct arena *a, struct err *e)
{
    size_t i = *n = last ? (size_t)last->depth + 1 : 0;
    struct responses_kept *all = arena_zalloc(a, *n + 1, sizeof(*all));

    if (!all)
        return err_set(e, ERR_MEMORY, "No memory for this request.");
    for (const struct kept *k = last; k; k = k->before)
        all[--i] = (struct responses_kept){ k->answer, k->input };
    *out = all;
    return 0;
}

int kept_recall(
    const struct kept **before, struct ask *ask, const struct kept_place *at, struct err *e)
{
    struct responses_shelf shelf = { (void *)(uintptr_t)at, find };
    struct responses_kept *all;
    size_t n;

    *before = NULL;
    ask->store = ask->store && at->shelf;
    if (!ask->needs_shelf)
        return 0;
    if (!at->shelf)
        return refuse(ask, e);
    if (ask->previous_id.p)
        *before = shelf_take(at->shelf, at->owner, ask->previous_id, clock_ns());
    if (ask->previous_id.p && !*before)
        return err_param(e, ERR_NOT_FOUND, "previous_response_id",
            "Previous response with id '%.*s' not found.", (int)ask->previous_id.n,
            ask->previous_id.p);
    if (list_before(&all, &n, *before, at->arena, e))
        return -1;
    return responses_recall(ask, all, n, &shelf, at->arena, e);
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
