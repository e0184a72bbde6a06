/* models.c: GET /v1/models and GET /v1/models/{id}, in the format of the client's dialect. Owner:
 * the io thread. */
#include "api/anthropic/anthropic.h"
#include "chat/infill.h"
#include "serve/io.h"

const char *model_file_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static bool has_digest(const struct model *m)
{
    static const uint8_t none[sizeof(m->digest)];

    return memcmp(m->digest, none, sizeof(none)) != 0;
}

struct model_info model_info_of(const struct registry_view *v)
{
    static const char *const states[N_MODEL_STATES] = { [MODEL_KNOWN] = "unloaded",
        [MODEL_LOADING] = "loading",
        [MODEL_READY] = "loaded",
        [MODEL_DRAINING] = "unloading",
        [MODEL_UNLOADED] = "unloaded",
        [MODEL_FAILED] = "failed" };
    const struct model *m = v->model;
    bool is_script = v->spec->backend == BACKEND_SCRIPT;
    struct model_info i = { .id = v->spec->id,
        .is_ready = m != NULL,
        .status = states[v->state],
        .backend = is_script ? "script" : "native" };

    if (!m)
        return i;
    i.created = m->created;
    i.family = *m->arch ? m->arch : NULL;
    i.vocab_type = vocab_kind(m->vocab);
    i.quantization = m->quant;
    i.n_ctx = m->n_ctx;
    i.n_ctx_train = m->lm->n_ctx_train;
    i.n_vocab = vocab_n_tokens(m->vocab);
    i.n_params = (int64_t)m->lm->n_params;
    i.n_experts = m->n_experts;
    i.n_active_experts = m->n_active_experts;
    i.weight_bytes = m->lm->weight_bytes;
    i.kv_bytes = lm_kv_bytes(m->lm);
    i.window_kv_bytes = m->lm->n_window_pages * m->lm->window_page_bytes;
    i.state_bytes = m->lm->n_states * m->lm->state_bytes;
    i.size_bytes = m->file_bytes;
    i.digest = has_digest(m) ? m->digest : NULL;
    i.file = model_file_name(m->spec->path);
    i.can_chat = true;
    i.can_complete = true;
    const struct adapter_info *a = adapter_info(m->adapter);
    i.can_call_tools = a->can_call_tools;
    i.can_reason = a->can_reason;
    i.can_insert = infill_is_possible(m->vocab);
    i.chat_family = a->family;
    i.tool_parser = a->tool_parser;
    i.thinking_parser = a->thinking_parser;
    i.tool_format = !a->can_call_tools ? NULL : a->injects_tools ? "injection" : "native";
    i.has_unknown_calls = i.can_chat && a->has_unknown_calls;
    i.is_probed = m->is_probed;
    return i;
}

int models_info(struct model_infos *out, const struct io *io, const struct policy_key *key,
    struct arena *a, struct err *e)
{
    out->n = 0;
    if (registry_list(io->o->registry, &out->models, e))
        return -1;
    out->infos = arena_alloc(a, MAX(out->models.n, (size_t)1) * sizeof(*out->infos));
    if (!out->infos) {
        registry_list_clear(&out->models);
        return err_set(e, ERR_MEMORY, "no memory for the list of models");
    }
    for (size_t i = 0; i < out->models.n; i++)
        if (!key || policy_key_allows_model(key, out->models.views[i].spec->id))
            out->infos[out->n++] = model_info_of(&out->models.views[i]);
    return 0;
}

/* Anthropic's clients always send this field, other clients never do. */
static bool is_anthropic(const struct http_exchange *x, struct route_call *c)
{
    if (!http_field_get(x->req, "anthropic-version").n)
        return false;
    route_call_add_request_id(c);
    return true;
}

static int read_page(const struct http_exchange *x, struct anthropic_page *out, struct err *e)
{
    enum { LIMIT = 20, LIMIT_MAX = 1000 };
    struct str limit = STR_NONE;
    uint64_t n = LIMIT;

    *out = (struct anthropic_page)
    {
        .limit = LIMIT
    };
    if (query_get(x, "after_id", &out->after, e) || query_get(x, "before_id", &out->before, e) ||
        query_get(x, "limit", &limit, e))
        return -1;
    if (limit.p && (!str_to_u64(limit, &n) || n < 1 || n > LIMIT_MAX))
        return err_param(e, ERR_RANGE, "limit", "'limit' must be between 1 and %d.", LIMIT_MAX);
    out->limit = (size_t)n;
    return 0;
}

static int list(
    struct io *io, struct http_exchange *x, struct route_call *c, struct buf *out, struct err *e)
{
    struct anthropic_page page;
    struct model_infos m;
    bool as_anthropic = is_anthropic(x, c);

    if ((as_anthropic && read_page(x, &page, e)) || models_info(&m, io, c->key, x->arena, e))
        return -1;
    if (as_anthropic)
        anthropic_models(out, m.infos, m.n, &page);
    else
        models_list(out, m.infos, m.n);
    registry_list_clear(&m.models);
    return 0;
}

void models_all(struct io *io, struct http_exchange *x, struct route_call *c)
{
    struct buf b;
    struct err e;

    buf_init(&b, MB);
    if (list(io, x, c, &b, &e))
        status_reply(&x->sink, ERROR_ANTHROPIC, &e, NULL, c->fields, c->n_fields);
    else
        reply_json(x, c, 200, &b);
    buf_clear(&b);
}

/* The id is the rest of the path and may contain slashes. An unknown name is an error here; an
 * alias yields the model it stands for. */
void models_single(struct io *io, struct http_exchange *x, struct route_call *c)
{
    struct str id = str_skip(x->req->path, strlen("/v1/models/"));
    bool as_anthropic = is_anthropic(x, c);
    struct registry_entry *m = registry_find_named(io->o->registry, id);
    struct registry_view view;
    struct err e;
    struct buf b;

    if (!m || model_check_allowed(registry_entry_spec(m), c->key, &e)) {
        registry_entry_unref(m);
        err_param(&e, ERR_NOT_FOUND, "model", "The model '%.*s' does not exist.",
            (int)MIN(id.n, (size_t)80), id.p);
        status_reply(&x->sink, as_anthropic ? ERROR_ANTHROPIC : c->route->errors, &e, NULL,
            c->fields, c->n_fields);
        return;
    }
    registry_view(m, &view);
    struct model_info info = model_info_of(&view);
    buf_init(&b, 64 * KB);
    if (as_anthropic)
        anthropic_model(&b, &info);
    else
        models_one(&b, &info);
    registry_view_clear(&view);
    registry_entry_unref(m);
    reply_json(x, c, 200, &b);
    buf_clear(&b);
}
