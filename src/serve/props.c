/* props.c: llama-server's routes other than generation: /props and /health. Owner: the io
 * thread. */
#include "api/llama/llama.h"
#include "base/json.h"
#include "serve/io.h"

static struct str or_empty(struct str s)
{
    return s.p ? s : STR("");
}

/* Speculative decoding: drafters and the limit of draft tokens per step. */
static void put_speculation(struct jw *w, const struct model_spec *s)
{
    jw_key(w, "speculation");
    jw_object(w);
    jw_member_i64(w, "draft_max", s->engine.spec.max);
    jw_member_bool(w, "by_history", s->engine.spec.max > 0 && s->engine.spec.by_history);
    jw_key(w, "draft_model");
    if (s->engine.spec.max > 0 && s->draft_path && *s->draft_path)
        jw_z(w, model_file_name(s->draft_path));
    else
        jw_null(w);
    jw_end_object(w);
}

/* Type and size of the KV cache. A script model has no KV content. */
static void put_kv_cache(struct jw *w, const struct model *m)
{
    jw_key(w, "kv_cache");
    jw_object(w);
    jw_member_str(w, "type", lm_kv_bytes(m->lm) ? str_of(m->spec->kv_type) : STR("none"));
    jw_member_i64(w, "page_tokens", PAGE_TOKENS);
    jw_member_i64(w, "page_bytes", (int64_t)m->lm->page_bytes);
    jw_member_i64(w, "pages", m->lm->n_pages);
    jw_member_i64(w, "window", m->lm->window.size);
    jw_member_i64(w, "window_page_bytes", (int64_t)m->lm->window_page_bytes);
    jw_member_i64(w, "window_pages", m->lm->n_window_pages);
    jw_member_i64(w, "state_bytes", (int64_t)m->lm->state_bytes);
    jw_member_i64(w, "state_slots", m->lm->n_states);
    jw_end_object(w);
}

/* ---- template capabilities, detected by rendering test conversations */

#define WORD "InferFlux-probe"

/* The rendered conversation contains the word at least `least` times. */
static bool renders_word(const struct model *m, const struct convo *c, int least)
{
    struct arena *a = arena_new(MB);
    struct rendered r;
    struct buf text;
    struct err e;
    int n = 0;

    if (!a)
        return false;
    buf_init(&text, MB);
    if (!chat_template_render(m->template, c, &m->env, &template_limits_default, a, &r, &e))
        for (size_t i = 0; i < r.n_spans; i++)
            buf_puts(&text, r.spans[i].text);
    struct str rest = buf_str(&text);
    for (ptrdiff_t at; (at = str_find(rest, STR(WORD))) >= 0; n++)
        rest = str_skip(rest, (size_t)at + strlen(WORD));
    buf_clear(&text);
    arena_free(a);
    return n >= least;
}

static struct content_part word_part = { .kind = PART_TEXT, .text = { WORD, sizeof(WORD) - 1 } };
static struct content_part other_part = { .kind = PART_TEXT, .text = { "x", 1 } };

static struct message text_message(enum role role, struct content_part *p)
{
    return (struct message){
        .role = role, .has_content = true, .is_plain = true, .parts = p, .n_parts = 1
    };
}

static bool shows_system(const struct model *m)
{
    struct message all[] = { text_message(ROLE_SYSTEM, &word_part),
        text_message(ROLE_USER, &other_part) };
    const struct convo c = { .messages = all, .n_messages = 2, .add_generation_prompt = true };

    return renders_word(m, &c, 1);
}

static bool shows_calls(const struct model *m, int n)
{
    struct tool_call calls[2] = { { STR("aaaaaaaaa"), STR(WORD), STR("{}"), NULL },
        { STR("bbbbbbbbb"), STR(WORD), STR("{}"), NULL } };
    struct message all[] = { text_message(ROLE_USER, &other_part), { .role = ROLE_ASSISTANT } };
    const struct convo c = { .messages = all, .n_messages = 2, .add_generation_prompt = true };

    all[1].tool_calls = calls;
    all[1].n_tool_calls = n;
    return renders_word(m, &c, n);
}

/* The test conversation has an unfinished turn (after a tool call), because many templates drop the
 * reasoning of earlier turns. */
static bool shows_reasoning(const struct model *m)
{
    struct tool_call call = { STR("aaaaaaaaa"), STR("f"), STR("{}"), NULL };
    struct message all[] = { text_message(ROLE_USER, &other_part),
        text_message(ROLE_ASSISTANT, &other_part), text_message(ROLE_TOOL, &other_part) };
    const struct convo c = { .messages = all, .n_messages = 3, .add_generation_prompt = true };

    all[1].reasoning = STR(WORD);
    all[1].tool_calls = &call;
    all[1].n_tool_calls = 1;
    all[2].tool_call_id = call.id;
    return renders_word(m, &c, 1);
}

static void put_caps(struct jw *w, const struct model *m)
{
    const struct adapter_info *info = m->adapter ? adapter_info(m->adapter) : NULL;

    jw_key(w, "chat_template_caps");
    jw_object(w);
    jw_member_bool(w, "supports_system_role", shows_system(m));
    jw_member_bool(w, "supports_tools", info && info->has_native_tools);
    jw_member_bool(w, "supports_tool_calls", shows_calls(m, 1));
    jw_member_bool(w, "supports_parallel_tool_calls", shows_calls(m, 2));
    jw_member_bool(w, "supports_preserve_reasoning", shows_reasoning(m));
    jw_end_object(w);
}

static void put_props(struct jw *w, const struct model *m)
{
    jw_object(w);
    jw_key(w, "default_generation_settings");
    jw_object(w);
    jw_member_i64(w, "n_ctx", m->n_ctx);
    jw_key(w, "params");
    llama_put_defaults(w);
    jw_end_object(w);
    jw_member_i64(w, "total_slots", m->spec->engine.max_batch);
    jw_member_str(w, "model_alias", str_of(m->spec->id));
    jw_member_str(w, "model_path", str_of(model_file_name(m->spec->path)));
    jw_member_str(w, "chat_template", chat_template_source(m->template));
    put_caps(w, m);
    jw_member_str(w, "bos_token", or_empty(m->env.bos_token));
    jw_member_str(w, "eos_token", or_empty(m->env.eos_token));
    jw_key(w, "modalities");
    jw_object(w);
    jw_member_bool(w, "vision", false);
    jw_member_bool(w, "audio", false);
    jw_end_object(w);
    put_speculation(w, m->spec);
    put_kv_cache(w, m);
    jw_member_str(w, "build_info", STR("InferFlux " INFERFLUX_VERSION));
    jw_member_bool(w, "is_sleeping", false);
    jw_end_object(w);
}

/* Properties of the first model, or of the one in ?model=ID. */
void props_show(struct io *io, struct http_exchange *x, struct route_call *c)
{
    struct str name = STR("");
    struct buf b;
    struct err e;
    struct jw w;

    struct model *m =
        query_get(x, "model", &name, &e) ? NULL : take_ready_model(io, c->key, name, &e);
    if (!m) {
        reply_error(x, c, &e, NULL);
        return;
    }
    buf_init(&b, 2 * MB);
    jw_init(&w, &b);
    put_props(&w, m);
    model_release(m);
    reply_json(x, c, 200, &b);
    buf_clear(&b);
}

void props_health(struct io *io, struct http_exchange *x, struct route_call *c)
{
    struct err e;

    if (registry_n_ready(io->o->registry) > 0) {
        sink_respond(
            &x->sink, 200, "application/json", STR("{\"status\":\"ok\"}"), c->fields, c->n_fields);
        return;
    }
    err_set(&e, ERR_NOT_READY, "Loading model");
    reply_error(x, c, &e, NULL);
}
