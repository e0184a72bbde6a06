/* models.c: GET /v1/models and GET /v1/models/{id}. */
#include "api/models.h"
#include "serve/io.h"

static struct model_info info_of(struct model *m)
{
    static const char *const states[] = { "loading", "loaded", "failed" };
    enum model_state state = model_state(m);
    bool is_script = m->spec->backend == BACKEND_SCRIPT;
    struct model_info i = { .id = m->spec->id,
        .is_ready = state == MODEL_READY,
        .status = states[state],
        .backend = is_script ? "script" : "native" };

    if (!i.is_ready)
        return i;
    i.created = m->created;
    i.family = *m->arch ? m->arch : NULL;
    i.vocab_type = vocab_kind(m->vocab);
    i.quantization = m->quant;
    i.n_ctx = m->n_ctx;
    i.n_ctx_train = m->lm->n_ctx_train;
    i.n_vocab = vocab_n(m->vocab);
    i.n_params = (int64_t)m->lm->n_params;
    i.size_bytes = m->file_bytes;
    i.can_chat = m->template != NULL || is_script;
    i.can_complete = true;
    return i;
}

void models_all(struct io *io, struct http_exchange *x, struct call *c)
{
    struct model_info infos[POOL_MODELS_MAX];
    struct buf b;
    int n = pool_n(io->o->pool);

    for (int i = 0; i < n; i++)
        infos[i] = info_of(pool_at(io->o->pool, i));
    buf_init(&b, MB);
    models_list(&b, infos, (size_t)n);
    reply_json(x, c, 200, &b);
    buf_clear(&b);
}

/* The id is the rest of the path, and may hold slashes. Here a name must be one of ours. */
void models_single(struct io *io, struct http_exchange *x, struct call *c)
{
    struct str id = str_skip(x->req->path, strlen("/v1/models/"));
    struct err e;
    struct buf b;

    for (int i = 0; i < pool_n(io->o->pool); i++) {
        struct model *m = pool_at(io->o->pool, i);
        if (!str_is(id, m->spec->id))
            continue;
        struct model_info info = info_of(m);
        buf_init(&b, 64 * KB);
        models_one(&b, &info);
        reply_json(x, c, 200, &b);
        buf_clear(&b);
        return;
    }
    err_param(&e, ERR_NOT_FOUND, "model", "The model '%.*s' does not exist.",
        (int)MIN(id.n, (size_t)80), id.p);
    reply_error(x, c, &e, NULL);
}
