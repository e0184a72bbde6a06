/* props.c: what llama-server's clients ask besides answers: /props and /health. */
#include "base/json.h"
#include "serve/io.h"

static void put_text(struct jw *w, const char *key, struct str value)
{
    jw_key(w, key);
    jw_str(w, value);
}

static void put_int(struct jw *w, const char *key, int64_t v)
{
    jw_key(w, key);
    jw_i64(w, v);
}

static void put_flag(struct jw *w, const char *key, bool v)
{
    jw_key(w, key);
    jw_bool(w, v);
}

/* Directories are nobody's business. */
static struct str file_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return str_of(slash ? slash + 1 : path);
}

static struct str or_empty(struct str s)
{
    return s.p ? s : STR("");
}

/* Who guesses ahead, and how far at once. */
static void put_speculation(struct jw *w, const struct model_spec *s)
{
    jw_key(w, "speculation");
    jw_object(w);
    put_int(w, "draft_max", s->engine.spec.max);
    put_flag(w, "by_history", s->engine.spec.max > 0 && s->engine.spec.by_history);
    jw_key(w, "draft_model");
    if (s->engine.spec.max > 0 && s->draft_path && *s->draft_path)
        jw_str(w, file_name(s->draft_path));
    else
        jw_null(w);
    jw_end_object(w);
}

static void put_props(struct jw *w, const struct model *m)
{
    jw_object(w);
    jw_key(w, "default_generation_settings");
    jw_object(w);
    put_int(w, "n_ctx", m->n_ctx);
    jw_end_object(w);
    put_int(w, "total_slots", m->spec->engine.max_batch);
    put_text(w, "model_alias", str_of(m->spec->id));
    put_text(w, "model_path", file_name(m->spec->path));
    put_text(w, "chat_template", m->template ? chat_template_source(m->template) : STR(""));
    put_text(w, "bos_token", or_empty(m->env.bos_token));
    put_text(w, "eos_token", or_empty(m->env.eos_token));
    jw_key(w, "modalities");
    jw_object(w);
    put_flag(w, "vision", false);
    put_flag(w, "audio", false);
    jw_end_object(w);
    put_speculation(w, m->spec);
    put_text(w, "build_info", STR("InferFlux " INFERFLUX_VERSION));
    put_flag(w, "is_sleeping", false);
    jw_end_object(w);
}

/* Of the first model, or of the one in ?model=ID. */
void props_show(struct io *io, struct http_exchange *x, struct call *c)
{
    struct str name = STR("");
    struct buf b;
    struct err e;
    struct jw w;

    struct model *m = query_get(x, "model", &name, &e) ? NULL : ready_model(io, name, &e);
    if (!m) {
        reply_error(x, c, &e, NULL);
        return;
    }
    buf_init(&b, 2 * MB);
    jw_init(&w, &b);
    put_props(&w, m);
    reply_json(x, c, 200, &b);
    buf_clear(&b);
}

void props_health(struct io *io, struct http_exchange *x, struct call *c)
{
    struct err e;

    if (pool_n_ready(io->o->pool) > 0) {
        sink_reply(
            &x->sink, 200, "application/json", STR("{\"status\":\"ok\"}"), c->fields, c->n_fields);
        return;
    }
    err_set(&e, ERR_NOT_READY, "Loading model");
    reply_error(x, c, &e, NULL);
}
