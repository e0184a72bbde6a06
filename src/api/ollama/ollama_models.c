/* ollama_models.c: /api/tags, /api/ps and /api/show from the list of models. Pure; any thread. */
#include "api/ollama/ollama.h"

#include <stdio.h>

static void put_text(struct jw *w, const char *key, const char *value)
{
    jw_key(w, key);
    jw_z(w, value);
}

/* Writes 1235814400 as "1.2B". */
static void put_parameter_size(struct jw *w, int64_t n)
{
    char text[32] = "";

    if (n >= 1000000000)
        snprintf(text, sizeof(text), "%.1fB", (double)n / 1e9);
    else if (n >= 1000000)
        snprintf(text, sizeof(text), "%.1fM", (double)n / 1e6);
    else if (n > 0)
        snprintf(text, sizeof(text), "%.1fK", (double)n / 1e3);
    put_text(w, "parameter_size", text);
}

static void put_details(struct jw *w, const struct model_info *m)
{
    jw_key(w, "details");
    jw_object(w);
    put_text(w, "parent_model", "");
    put_text(w, "format", "gguf");
    put_text(w, "family", m->family ? m->family : "");
    jw_key(w, "families");
    jw_array(w);
    if (m->family)
        jw_z(w, m->family);
    jw_end_array(w);
    put_parameter_size(w, m->n_params);
    put_text(w, "quantization_level", m->quantization ? m->quantization : "");
    jw_end_object(w);
}

struct digest_text ollama_digest(const struct model_info *m)
{
    struct digest_text d = { "" };

    for (size_t i = 0; m->digest && i < 32; i++)
        snprintf(d.z + 2 * i, 3, "%02x", m->digest[i]);
    return d;
}

static void put_members(struct jw *w, const struct model_info *m)
{
    put_text(w, "name", m->id);
    put_text(w, "model", m->id);
    put_text(w, "modified_at", models_time(m->created).z);
    jw_key(w, "size");
    jw_u64(w, m->size_bytes);
    put_text(w, "digest", ollama_digest(m).z);
    put_text(w, "type", "model");
    models_put_capabilities(w, m);
    put_details(w, m);
}

void ollama_put_model(struct jw *w, const struct model_info *m)
{
    jw_object(w);
    put_members(w, m);
    jw_end_object(w);
}

static void list_begin(struct jw *w, struct buf *out)
{
    jw_init(w, out);
    jw_object(w);
    jw_key(w, "models");
    jw_array(w);
}

static void list_end(struct jw *w)
{
    jw_end_array(w);
    jw_end_object(w);
}

void ollama_tags(struct buf *out, const struct model_info *m, size_t n)
{
    struct jw w;

    list_begin(&w, out);
    for (size_t i = 0; i < n; i++)
        ollama_put_model(&w, &m[i]);
    list_end(&w);
}

void ollama_ps(struct buf *out, const struct model_info *m, size_t n)
{
    struct jw w;

    list_begin(&w, out);
    for (size_t i = 0; i < n; i++) {
        if (!m[i].is_ready)
            continue;
        jw_object(&w);
        put_members(&w, &m[i]);
        put_text(&w, "expires_at", "9999-12-31T23:59:59Z"); /* models do not expire */
        jw_key(&w, "size_vram");
        jw_u64(&w, 0);
        jw_key(&w, "context_length");
        jw_i64(&w, m[i].n_ctx);
        jw_end_object(&w);
    }
    list_end(&w);
}

static void put_number(struct jw *w, const char *family, const char *key, int64_t v)
{
    char name[96];

    if (v <= 0)
        return;
    snprintf(name, sizeof(name), "%s.%s", family, key);
    jw_key(w, name);
    jw_i64(w, v);
}

/* Writes the FROM line only; the template is a separate member. */
static void put_modelfile(struct jw *w, const struct model_info *m)
{
    char text[300] = "";

    if (m->file)
        snprintf(text, sizeof(text), "FROM %s\n", m->file);
    put_text(w, "modelfile", text);
}

void ollama_show(struct buf *out, const struct model_info *m, struct str chat_template)
{
    const char *family = m->family ? m->family : "unknown";
    struct jw w;

    jw_init(&w, out);
    jw_object(&w);
    put_modelfile(&w, m);
    put_text(&w, "parameters", "");
    put_text(&w, "license", "");
    jw_key(&w, "template");
    jw_str(&w, chat_template.p ? chat_template : STR(""));
    put_details(&w, m);
    jw_key(&w, "model_info");
    jw_object(&w);
    put_text(&w, "general.architecture", family);
    put_number(&w, "general", "parameter_count", m->n_params);
    put_number(&w, family, "context_length", m->n_ctx_train);
    put_number(&w, family, "embedding_length", m->n_embd);
    put_number(&w, family, "vocab_size", m->n_vocab);
    jw_end_object(&w);
    models_put_capabilities(&w, m);
    put_text(&w, "modified_at", models_time(m->created).z);
    jw_end_object(&w);
}

int ollama_parse_name(struct str *out, struct str body, struct arena *a, struct err *e)
{
    static const struct json_limits limits = { .max_depth = 32, .max_nodes = 1000 };
    struct json *j;

    if (json_parse(&j, body, a, &limits, e)) {
        if (e->code == ERR_TOO_LARGE)
            e->code = ERR_SYNTAX;
        return e->code == ERR_MEMORY ? -1 : err_wrap(e, "The body is not valid JSON");
    }
    const struct json *name = json_get(j, "model");
    if (json_is_null(name))
        name = json_get(j, "name");
    if (json_is_null(name))
        return err_param(e, ERR_MISSING, "model", "'model' is missing; it is required.");
    if (name->kind != JSON_STRING)
        return err_param(e, ERR_INVALID, "model", "'model' must be a string.");
    *out = name->s;
    return 0;
}
