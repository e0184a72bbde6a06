#include "serve/model_wait.h"
#include "os/clock.h"

#include <stdatomic.h>

static void on_limit(struct loop_timer *t)
{
    struct inflight *r = container_of(t, struct inflight, load_limit);
    struct err e;

    err_set(&e, ERR_NOT_READY, "The model '%s' is still loading.", r->awaited_model->spec->id);
    inflight_fail(r, &e);
}

void model_wait_stop(struct inflight *r)
{
    r->awaited_model = NULL;
    r->on_model_loaded = NULL;
    loop_timer_stop(r->io->loop, &r->load_limit);
    metric_add(&r->io->metrics, METRIC_requests_loading, -1);
}

/* r may be freed afterwards. */
static void continue_if_loaded(struct inflight *r)
{
    void (*continue_fn)(struct inflight * r) = r->on_model_loaded;

    if (model_state(r->awaited_model) == MODEL_LOADING)
        return;
    model_wait_stop(r);
    continue_fn(r);
}

void model_wait_start(struct inflight *r, void (*continue_fn)(struct inflight *r))
{
    CHECK(r->awaited_model && !r->on_model_loaded);
    r->on_model_loaded = continue_fn;
    r->load_limit.fn = on_limit;
    loop_timer_set(r->io->loop, &r->load_limit, clock_ns() + r->io->o->load_wait_ms * NS_PER_MS);
    metric_add(&r->io->metrics, METRIC_requests_loading, 1);
    /* the model may be ready by now, and its message handled already */
    continue_if_loaded(r);
}

/* The flag is cleared before the models are checked, so that a later change posts another
 * message. */
void model_wait_message(struct io *io)
{
    atomic_exchange(&io->is_loaded_posted, false);
    LIST_EACH (struct async, a, &io->requests, in_open)
        if (inflight_of(a)->on_model_loaded)
            continue_if_loaded(inflight_of(a));
}

void model_wait_notify(struct io *io)
{
    if (atomic_exchange(&io->is_loaded_posted, true))
        return;
    io->loaded_msg.kind = MSG_LOADED;
    mailbox_post(loop_mailbox(io->loop), &io->loaded_msg);
}
