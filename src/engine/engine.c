#include "engine/engine.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/call.h"
#include "os/clock.h"
#include "os/thread.h"

/* Engine thread: drains messages and executes a step in a loop; sleeps if no sequence can run. */
struct engine {
    struct core *core; /* owned by the thread once it runs */
    struct submit_queue *queue;
    pthread_t thread;
    _Atomic bool is_closing;
};

static void *engine_main(void *arg)
{
    struct engine *en = arg;
    struct core *c = en->core;

    while (!en->is_closing) {
        core_drain(c, clock_ns());
        /* Checked again: the drained messages may include the wake-up of engine_close. */
        if (!core_step(c, clock_ns()) && !en->is_closing)
            mailbox_wait(en->queue->inbox, core_next_wake(c));
    }
    /* All admitted requests are in the inbox now and get their GEN_END here. */
    core_drain(c, clock_ns());
    core_cancel_all(c, ERR_DRAINING, clock_ns());
    return NULL;
}

int engine_open(struct engine **out, struct lm *take, const struct kernels *k,
    const struct engine_options *o, struct err *e)
{
    struct engine *en = xcalloc(1, sizeof(*en));

    if (submit_queue_open(&en->queue, e)) {
        take->ops->close(take);
        if (o->spec.drafter)
            o->spec.drafter->ops->close(o->spec.drafter);
        mem_free(en);
        return -1;
    }
    if (core_open(&en->core, take, k, o, en->queue, e))
        goto fail;
    if (thread_start(&en->thread, "engine", engine_main, en, e)) {
        core_close(en->core);
        goto fail;
    }
    *out = en;
    return 0;

fail:
    submit_queue_unref(en->queue);
    mem_free(en);
    return -1;
}

void engine_drain(struct engine *en)
{
    en->queue->is_draining = true;
}

void engine_close(struct engine *en)
{
    if (!en)
        return;
    submit_queue_shut(en->queue);
    en->is_closing = true;
    en->core->stop = true; /* the result of the running forward pass is not needed */
    mailbox_post(en->queue->inbox, &en->queue->wake);
    pthread_join(en->thread, NULL);
    core_close(en->core);
    submit_queue_unref(en->queue);
    mem_free(en);
}

int engine_submit(struct engine *en, struct gen *g, struct err *e)
{
    return submit_queue_submit(en->queue, g, clock_ns(), e);
}

uint64_t engine_wait_ns(const struct engine *en)
{
    return submit_queue_wait_ns(en->queue);
}

int engine_check_size(
    const struct engine *en, int n_requests, int n_choices, int64_t n_prompt_tokens, struct err *e)
{
    return submit_queue_check_size(en->queue, n_requests, n_choices, n_prompt_tokens, e);
}

int engine_n_ctx(const struct engine *en)
{
    return en->queue->n_ctx;
}

const struct engine_stats *engine_stats(const struct engine *en)
{
    return &en->queue->stats;
}

const struct lm *engine_lm(const struct engine *en)
{
    return en->core->lm;
}

const struct engine_options *engine_settings(const struct engine *en)
{
    return &en->core->o;
}

void engine_call(
    struct engine *en, struct mailbox *reply, void (*fn)(struct core *c, void *arg), void *arg)
{
    struct core_call call = { .msg.kind = ENGINE_MSG_CALL, .reply = reply, .fn = fn, .arg = arg };

    mailbox_post(en->queue->inbox, &call.msg);
    while (!mailbox_drain(reply))
        mailbox_wait(reply, UINT64_MAX);
}

void engine_audit(struct engine *en, struct engine_audit *out)
{
    struct audit_call call = { .out = out };
    struct err e;

    *out = (struct engine_audit){ 0 };
    if (mailbox_open(&call.reply, &e)) {
        log_warn("engine", "audit_failed", "error=\"%s\"", e.msg);
        return; /* out->ok is false */
    }
    engine_audit_ask(en, &call);
    while (!mailbox_drain(call.reply))
        mailbox_wait(call.reply, UINT64_MAX);
    mailbox_close(call.reply);
}

void engine_audit_ask(struct engine *en, struct audit_call *call)
{
    call->msg.kind = ENGINE_MSG_AUDIT;
    mailbox_post(en->queue->inbox, &call->msg);
}
