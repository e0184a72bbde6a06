#include "serve/loading.h"
#include "os/clock.h"

#include <stdatomic.h>

static void on_limit(struct loop_timer *t)
{
    struct request *r = container_of(t, struct request, load_limit);
    struct err e;

    err_set(&e, ERR_NOT_READY, "The model '%s' is still loading.", r->loading->spec->id);
    request_fail(r, &e);
}

void loading_leave(struct request *r)
{
    r->loading = NULL;
    r->loaded = NULL;
    loop_timer_stop(r->io->loop, &r->load_limit);
    metric_add(&r->io->metrics, METRIC_requests_loading, -1);
}

/* r may be freed afterwards. */
static void continue_if_loaded(struct request *r)
{
    void (*continue_fn)(struct request * r) = r->loaded;

    if (model_state(r->loading) == MODEL_LOADING)
        return;
    loading_leave(r);
    continue_fn(r);
}

void loading_wait(struct request *r, void (*continue_fn)(struct request *r))
{
    CHECK(r->loading && !r->loaded);
    r->loaded = continue_fn;
    r->load_limit.fn = on_limit;
    loop_timer_set(
        r->io->loop, &r->load_limit, clock_ns() + (uint64_t)r->io->o->load_wait_ms * 1000000);
    metric_add(&r->io->metrics, METRIC_requests_loading, 1);
    /* the model may be ready by now, and its message handled already */
    continue_if_loaded(r);
}

/* The flag is cleared before the models are checked, so that a later change posts another
 * message. */
void loading_message(struct io *io)
{
    atomic_exchange(&io->is_told, false);
    for (struct request *r = io->requests, *next; r; r = next) {
        next = r->next;
        if (r->loaded)
            continue_if_loaded(r);
    }
}

void loading_tell(struct io *io)
{
    if (atomic_exchange(&io->is_told, true))
        return;
    io->told.kind = MSG_LOADED;
    mailbox_post(loop_mailbox(io->loop), &io->told);
}
