/* ollama.c: what Ollama's clients ask besides answers: version, tags, ps, show; and models that
 * they want to have, make or lose, which are the operator's here: they are told so. */
#include "api/ollama/ollama.h"
#include "serve/io.h"

static void list(struct io *io, struct http_exchange *x, struct call *c,
    void (*write)(struct buf *out, const struct model_info *m, size_t n))
{
    struct model_info infos[POOL_MODELS_MAX];
    struct buf b;

    size_t n = models_info(io, infos);
    buf_init(&b, MB);
    write(&b, infos, n);
    reply_json(x, c, 200, &b);
    buf_clear(&b);
}

void ollama_get_tags(struct io *io, struct http_exchange *x, struct call *c)
{
    list(io, x, c, ollama_tags);
}

void ollama_get_ps(struct io *io, struct http_exchange *x, struct call *c)
{
    list(io, x, c, ollama_ps);
}

void ollama_get_version(struct io *io, struct http_exchange *x, struct call *c)
{
    sink_reply(&x->sink, 200, "application/json", STR("{\"version\":\"" INFERFLUX_VERSION "\"}"),
        c->fields, c->n_fields);
}

static int show(struct io *io, struct str body, struct buf *out, struct err *e)
{
    struct arena *a = arena_new(MB);
    struct str name;

    if (!a)
        return err_set(e, ERR_MEMORY, "no memory for the request");
    int rc = ollama_parse_name(&name, body, a, e);
    struct model *m = rc ? NULL : ready_model(io, name, e);
    if (m) {
        struct model_info info = model_info_of(m);
        ollama_show(out, &info, m->template ? chat_template_source(m->template) : STR(""));
    }
    arena_free(a);
    return m ? 0 : -1;
}

void ollama_post_show(struct io *io, struct http_exchange *x, struct call *c)
{
    struct buf b;
    struct err e;

    buf_init(&b, 2 * MB);
    if (show(io, x->req->body, &b, &e))
        reply_error(x, c, &e, NULL);
    else
        reply_json(x, c, 200, &b);
    buf_clear(&b);
}

/* ---- what is not done here */

/* The model with this name, or with it and the tag `latest`; not just any. */
static struct model *served(struct io *io, struct str name)
{
    struct str bare = name;

    if (str_ends(name, STR(":latest")))
        bare.n -= strlen(":latest");
    for (int i = 0; i < pool_n(io->o->pool); i++) {
        struct model *m = pool_at(io->o->pool, i);
        if (str_is(name, m->spec->id) || str_is(bare, m->spec->id))
            return m;
    }
    return NULL;
}

static int named(struct model **out, struct io *io, struct str body, struct err *e)
{
    struct arena *a = arena_new(MB);
    struct str name;

    if (!a)
        return err_set(e, ERR_MEMORY, "no memory for the request");
    int rc = ollama_parse_name(&name, body, a, e);
    *out = rc ? NULL : served(io, name);
    if (!rc && !*out)
        rc = err_param(e, ERR_NOT_FOUND, "model",
            "model '%.*s' not found: this server's operator adds models.",
            (int)MIN(name.n, (size_t)80), name.p);
    arena_free(a);
    return rc;
}

/* What is here needs no pulling. Whether lines are wanted or one object: it is one line. */
void ollama_post_pull(struct io *io, struct http_exchange *x, struct call *c)
{
    struct model *m;
    struct err e;

    if (named(&m, io, x->req->body, &e))
        reply_error(x, c, &e, NULL);
    else
        sink_reply(&x->sink, 200, "application/x-ndjson", STR("{\"status\":\"success\"}\n"),
            c->fields, c->n_fields);
}

void ollama_change(struct io *io, struct http_exchange *x, struct call *c)
{
    struct err e;

    err_set(&e, ERR_UNSUPPORTED,
        "Models are added, changed and removed by this server's operator, not through this route.");
    reply_error(x, c, &e, NULL);
}

void ollama_post_embed(struct io *io, struct http_exchange *x, struct call *c)
{
    struct model *m;
    struct err e;

    if (!named(&m, io, x->req->body, &e))
        err_param(&e, ERR_UNSUPPORTED, "model", "The model '%s' makes no embeddings.", m->spec->id);
    reply_error(x, c, &e, NULL);
}

/* "sha256:..." of a model's file, where that is known. */
void ollama_head_blob(struct io *io, struct http_exchange *x, struct call *c)
{
    struct str digest = str_skip(x->req->path, strlen("/api/blobs/"));
    struct model_info infos[POOL_MODELS_MAX];
    struct err e;

    size_t n = models_info(io, infos);
    for (size_t i = 0; i < n; i++) {
        struct digest_text d = ollama_digest(&infos[i]);
        if (d.z[0] && str_starts(digest, STR("sha256:")) && str_is(str_skip(digest, 7), d.z)) {
            sink_reply(&x->sink, 200, "application/octet-stream", STR(""), c->fields, c->n_fields);
            return;
        }
    }
    err_set(&e, ERR_NOT_FOUND, "No model's file has this digest.");
    reply_error(x, c, &e, NULL);
}
