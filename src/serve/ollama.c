/* ollama.c: Ollama's routes other than generation: version, tags, ps, show. Routes that add, change
 * or remove models reply with an error, because only the operator of the server does that. Owner:
 * the io thread. */
#include "api/ollama/ollama.h"
#include "serve/io.h"

static void list(struct io *io, struct http_exchange *x, struct route_call *c,
    void (*write)(struct buf *out, const struct model_info *m, size_t n))
{
    struct model_info infos[REGISTRY_MODELS_MAX];
    struct buf b;

    size_t n = models_info(io, c->key, infos);
    buf_init(&b, MB);
    write(&b, infos, n);
    reply_json(x, c, 200, &b);
    buf_clear(&b);
}

void ollama_get_tags(struct io *io, struct http_exchange *x, struct route_call *c)
{
    list(io, x, c, ollama_tags);
}

void ollama_get_ps(struct io *io, struct http_exchange *x, struct route_call *c)
{
    list(io, x, c, ollama_ps);
}

void ollama_get_version(struct io *io, struct http_exchange *x, struct route_call *c)
{
    sink_respond(&x->sink, 200, "application/json", STR("{\"version\":\"" INFERFLUX_VERSION "\"}"),
        c->fields, c->n_fields);
}

static int show(
    struct io *io, const struct policy_key *key, struct str body, struct buf *out, struct err *e)
{
    struct arena *a = arena_new(MB);
    struct str name;

    if (!a)
        return err_set(e, ERR_MEMORY, "no memory for the request");
    int rc = ollama_parse_name(&name, body, a, e);
    struct model *m = rc ? NULL : ready_model(io, key, name, e);
    if (m) {
        struct model_info info = model_info_of(m);
        ollama_show(out, &info, chat_template_source(m->template));
    }
    arena_free(a);
    return m ? 0 : -1;
}

void ollama_post_show(struct io *io, struct http_exchange *x, struct route_call *c)
{
    struct buf b;
    struct err e;

    buf_init(&b, 2 * MB);
    if (show(io, c->key, x->req->body, &b, &e))
        reply_error(x, c, &e, NULL);
    else
        reply_json(x, c, 200, &b);
    buf_clear(&b);
}

/* ---- unsupported operations */

/* Finds the model by its id, or by its id with the tag `latest`. Aliases and the default model do
 * not count. */
static struct model *find_configured(struct io *io, struct str name)
{
    struct str bare = name;

    if (str_ends(name, STR(":latest")))
        bare.n -= strlen(":latest");
    for (int i = 0; i < registry_n_models(io->o->registry); i++) {
        struct model *m = registry_model(io->o->registry, i);
        if (str_is(name, m->spec->id) || str_is(bare, m->spec->id))
            return m;
    }
    return NULL;
}

static int read_named_model(struct model **out, struct io *io, struct str body, struct err *e)
{
    struct arena *a = arena_new(MB);
    struct str name;

    if (!a)
        return err_set(e, ERR_MEMORY, "no memory for the request");
    int rc = ollama_parse_name(&name, body, a, e);
    *out = rc ? NULL : find_configured(io, name);
    if (!rc && !*out)
        rc = err_param(e, ERR_NOT_FOUND, "model",
            "model '%.*s' not found: this server's operator adds models.",
            (int)MIN(name.n, (size_t)80), name.p);
    arena_free(a);
    return rc;
}

/* A model that exists needs no download. A stream and a single object are the same: one line. */
void ollama_post_pull(struct io *io, struct http_exchange *x, struct route_call *c)
{
    struct model *m;
    struct err e;

    if (read_named_model(&m, io, x->req->body, &e))
        reply_error(x, c, &e, NULL);
    else
        sink_respond(&x->sink, 200, "application/x-ndjson", STR("{\"status\":\"success\"}\n"),
            c->fields, c->n_fields);
}

void ollama_change(struct io *io, struct http_exchange *x, struct route_call *c)
{
    struct err e;

    err_set(&e, ERR_UNSUPPORTED,
        "This server does not support this route: its operator adds, changes and removes models.");
    reply_error(x, c, &e, NULL);
}

void ollama_post_embed(struct io *io, struct http_exchange *x, struct route_call *c)
{
    struct model *m;
    struct err e;

    if (!read_named_model(&m, io, x->req->body, &e))
        err_param(&e, ERR_UNSUPPORTED, "model", "The model '%s' does not support embeddings.",
            m->spec->id);
    reply_error(x, c, &e, NULL);
}

/* Replies 200 if a model's file has this digest ("sha256:...") and the digest is known. */
void ollama_head_blob(struct io *io, struct http_exchange *x, struct route_call *c)
{
    struct str digest = str_skip(x->req->path, strlen("/api/blobs/"));
    struct model_info infos[REGISTRY_MODELS_MAX];
    struct err e;

    size_t n = models_info(io, c->key, infos);
    for (size_t i = 0; i < n; i++) {
        struct digest_text d = ollama_digest(&infos[i]);
        if (d.z[0] && str_starts(digest, STR("sha256:")) && str_is(str_skip(digest, 7), d.z)) {
            sink_respond(
                &x->sink, 200, "application/octet-stream", STR(""), c->fields, c->n_fields);
            return;
        }
    }
    err_set(&e, ERR_NOT_FOUND, "No model file has this digest.");
    reply_error(x, c, &e, NULL);
}
