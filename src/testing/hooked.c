#include "testing/hooked.h"
#include "base/mem.h"

struct hooked {
    struct lm lm;
    struct lm *inner;
    hook_fn hook;
    void *ctx;
    void (*free_ctx)(void *ctx);
};

static bool hooked_forward(struct lm *m, struct lm_run *runs, int n_runs, const _Atomic bool *stop)
{
    struct hooked *h = container_of(m, struct hooked, lm);

    if (!h->inner->ops->forward(h->inner, runs, n_runs, stop))
        return false;
    h->hook(h->ctx, m, runs, n_runs);
    return true;
}

static void hooked_read_state(struct lm *m, state_id state, void *out)
{
    struct lm *inner = container_of(m, struct hooked, lm)->inner;

    inner->ops->read_state(inner, state, out);
}

static int hooked_write_state(struct lm *m, state_id state, const void *in, int pos)
{
    struct lm *inner = container_of(m, struct hooked, lm)->inner;

    return inner->ops->write_state(inner, state, in, pos);
}

static void hooked_run_on_threads(
    struct lm *m, void (*fn)(void *arg, int thread, int n_threads), void *arg)
{
    struct lm *inner = container_of(m, struct hooked, lm)->inner;

    inner->ops->run_on_threads(inner, fn, arg);
}

static void hooked_close(struct lm *m)
{
    struct hooked *h = container_of(m, struct hooked, lm);

    h->inner->ops->close(h->inner);
    if (h->free_ctx)
        h->free_ctx(h->ctx);
    mem_free(h);
}

static const struct lm_ops hooked_ops = {
    .forward = hooked_forward,
    .copy_page = lm_copy_page,
    .clear_page = lm_clear_page,
    .read_page = lm_read_page,
    .write_page = lm_write_page,
    .read_state = hooked_read_state,
    .write_state = hooked_write_state,
    .run_on_threads = hooked_run_on_threads,
    .close = hooked_close,
};

struct lm *lm_hooked(struct lm *take, hook_fn hook, void *ctx, void (*free_ctx)(void *ctx))
{
    struct hooked *h = xcalloc(1, sizeof(*h));

    *h = (struct hooked){ *take, take, hook, ctx, free_ctx };
    h->lm.ops = &hooked_ops;
    return &h->lm;
}
