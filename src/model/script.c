#include "model/script.h"
#include "base/mem.h"

static bool script_forward(struct lm *m, struct lm_run *runs, int n_runs, const _Atomic bool *stop)
{
    if (stop && *stop)
        return false;
    for (int i = 0; i < n_runs; i++) {
        CHECK(runs[i].n_logits == 0); /* the model computes no logits */
        runs[i].logits = runs[i].peaks = NULL;
    }
    return true;
}

static void script_close(struct lm *m)
{
    mem_free(m);
}

static const struct lm_ops script_ops = {
    .forward = script_forward,
    .copy_page = lm_copy_page,
    .clear_page = lm_clear_page,
    .read_page = lm_read_page,
    .write_page = lm_write_page,
    .close = script_close,
};

int lm_open_script(struct lm **out, const struct script_options *o, struct err *e)
{
    if (o->n_vocab < 1 || o->n_ctx_train < 1 || o->max_rows < 1 || o->n_pages < 1)
        return err_set(e, ERR_RANGE, "a script model without vocabulary, context, rows or pages");

    struct lm *m = xcalloc(1, sizeof(*m));
    *m = (struct lm){
        .ops = &script_ops,
        .n_vocab = o->n_vocab,
        .n_ctx_train = o->n_ctx_train,
        .max_rows = o->max_rows,
        .max_logits = o->max_rows,
        .n_pages = o->n_pages,
    };
    *out = m;
    return 0;
}
