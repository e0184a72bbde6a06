#include "serve/model_wait.h"
#include "os/clock.h"

#include <stdatomic.h>

static uint32_t limit_ms(const struct inflight *r)
{
    const struct serve_options *o = r->io->o;

    return o->load_wait_ms || registry_is_loading_anyway(r->entry) ? o->load_wait_ms
                                                                   : o->demand_wait_ms;
}

bool model_wait_is_enabled(const struct inflight *r)
{
    return limit_ms(r) > 0;
}

static void on_limit(struct loop_timer *t)
{
    struct inflight *r = container_of(t, struct inflight, load_limit);
    struct err e;

    err_set(
        &e, ERR_NOT_READY, "The model '%s' is still loading.", registry_entry_spec(r->entry)->id);
    inflight_fail(r, &e);
}

void model_wait_stop(struct inflight *r)
{
    registry_wait_end(r->entry);
    r->on_model_loaded = NULL;
    loop_timer_stop(r->io->loop, &r->load_limit);
    metric_add(&r->io->metrics, METRIC_requests_loading, -1);
}

/* r may be freed afterwards. */
static void continue_if_loaded(struct inflight *r)
{
    void (*continue_fn)(struct inflight * r) = r->on_model_loaded;
    struct err e;

    switch (registry_take(r->entry, &r->async.model, &e)) {
    case TAKE_LATER:
        return;
    case TAKE_FAILED:
        inflight_fail(r, &e); /* drops the reference of the callback */
        return;
    case TAKE_OK:
        r->model = r->async.model;
        model_wait_stop(r);
        continue_fn(r);
        return;
    }
}

void model_wait_start(struct inflight *r, void (*continue_fn)(struct inflight *r))
{
    CHECK(r->entry && !r->model && !r->on_model_loaded);
    uint64_t limit_ns = clock_ns() + limit_ms(r) * NS_PER_MS;
    r->must_wait = false;
    r->on_model_loaded = continue_fn;
    r->load_limit.fn = on_limit;
    loop_timer_set(r->io->loop, &r->load_limit, limit_ns);
    metric_add(&r->io->metrics, METRIC_requests_loading, 1);
    registry_wait(r->entry);
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
