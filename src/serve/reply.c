/* reply.c: whole answers in the shape of their route. */
#include "serve/io.h"

void reply_json(struct http_exchange *x, const struct call *c, int status, const struct buf *body)
{
    if (buf_ok(body)) {
        sink_reply(&x->sink, status, "application/json", buf_str(body), c->fields, c->n_fields);
        return;
    }
    struct err e;
    err_set(&e, ERR_MEMORY, "no memory for the answer");
    reply_error(x, c, &e, NULL);
}

void reply_error(struct http_exchange *x, const struct call *c, const struct err *e,
    const struct error_extra *extra)
{
    const struct route *r = c->route ? c->route : c->route_near;
    enum error_form form = r ? r->errors : ERROR_PROBLEM;
    status_reply(&x->sink, form, e, extra, c->fields, c->n_fields);
}

struct model *ready_model(const struct io *io, struct str name, struct err *e)
{
    struct model *m = pool_find(io->o->pool, name, e);

    if (!m)
        return NULL;
    switch (model_state(m)) {
    case MODEL_READY:
        return m;
    case MODEL_LOADING:
        err_set(e, ERR_NOT_READY, "The model '%s' is still loading.", m->spec->id);
        return NULL;
    case MODEL_FAILED:
        err_set(
            e, ERR_NOT_READY, "The model '%s' could not be loaded: %s", m->spec->id, m->why.msg);
        return NULL;
    }
    return NULL;
}
