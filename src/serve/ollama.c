/* ollama.c: what Ollama's clients ask besides answers: version, tags, ps, show. */
#include "api/ollama.h"
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
