/* ollama.c: Ollama's routes other than generation: version, tags, ps, show. Routes that add, change
 * or remove models reply with an error, because only the operator of the server does that. Owner:
 * the io thread. */
#include "api/ollama/ollama.h"
#include "serve/io.h"

static void list(struct io *io, struct http_exchange *x, struct route_call *c,
    void (*write)(struct buf *out, const struct model_info *m, size_t n))
{
    struct model_infos m;
    struct buf b;
    struct err e;

    if (models_info(&m, io, c->key, x->arena, &e)) {
        reply_error(x, c, &e, NULL);
        return;
    }
    buf_init(&b, MB);
    write(&b, m.infos, m.n);
    registry_list_clear(&m.models);
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
    struct model *m = rc ? NULL : take_ready_model(io, key, name, e);
    bool is_found = m != NULL;
    if (m) {
        struct registry_view view;
        registry_view(m->entry, &view);
        struct model_info info = model_info_of(&view);
        ollama_show(out, &info, chat_template_source(m->template));
        registry_view_clear(&view);
        model_release(m);
    }
    arena_free(a);
    return is_found ? 0 : -1;
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
static struct registry_entry *find_configured(struct io *io, struct str name)
{
    struct str bare = name;
    struct registry_entry *m = registry_find_id(io->o->registry, name);

    if (!m && str_ends(name, STR(":latest"))) {
        bare.n -= strlen(":latest");
        m = registry_find_id(io->o->registry, bare);
    }
    return m;
}

/* The caller owns a reference. */
static int read_named_model(
    struct registry_entry **out, struct io *io, struct str body, struct err *e)
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
    struct registry_entry *m = NULL;
    struct err e;

    if (read_named_model(&m, io, x->req->body, &e))
        reply_error(x, c, &e, NULL);
    else
        sink_respond(&x->sink, 200, "application/x-ndjson", STR("{\"status\":\"success\"}\n"),
            c->fields, c->n_fields);
    registry_entry_unref(m);
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
    struct registry_entry *m = NULL;
    struct err e;

    if (!read_named_model(&m, io, x->req->body, &e))
        err_param(&e, ERR_UNSUPPORTED, "model", "The model '%s' does not support embeddings.",
            registry_entry_spec(m)->id);
    registry_entry_unref(m);
    reply_error(x, c, &e, NULL);
}

/* Replies 200 if a model's file has this digest ("sha256:...") and the digest is known. */
void ollama_head_blob(struct io *io, struct http_exchange *x, struct route_call *c)
{
    struct str digest = str_skip(x->req->path, strlen("/api/blobs/"));
    struct model_infos m;
    bool is_found = false;
    struct err e;

    if (models_info(&m, io, c->key, x->arena, &e)) {
        reply_error(x, c, &e, NULL);
        return;
    }
    for (size_t i = 0; i < m.n; i++) {
        struct digest_text d = ollama_digest(&m.infos[i]);
        is_found = is_found || (d.z[0] && str_starts(digest, STR("sha256:")) &&
                                   str_is(str_skip(digest, 7), d.z));
    }
    registry_list_clear(&m.models);
    if (is_found) {
        sink_respond(&x->sink, 200, "application/octet-stream", STR(""), c->fields, c->n_fields);
        return;
    }
    err_set(&e, ERR_NOT_FOUND, "No model file has this digest.");
    reply_error(x, c, &e, NULL);
}
