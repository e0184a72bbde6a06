#include "api/models.h"
#include "api/ollama/ollama.h"

#include <time.h>

static void put_text(struct jw *w, const char *key, const char *value)
{
    if (!value)
        return;
    jw_key(w, key);
    jw_z(w, value);
}

static void put_count(struct jw *w, const char *key, int64_t value)
{
    if (value <= 0)
        return;
    jw_key(w, key);
    jw_i64(w, value);
}

static void put_words(struct jw *w, const char *key, const char *const *words, size_t n)
{
    jw_key(w, key);
    jw_array(w);
    for (size_t i = 0; i < n; i++)
        if (words[i])
            jw_z(w, words[i]);
    jw_end_array(w);
}

void models_put_capabilities(struct jw *w, const struct model_info *m)
{
    const char *const words[] = { m->can_complete ? "completion" : NULL,
        m->can_chat ? "chat" : NULL, m->can_call_tools ? "tools" : NULL,
        m->can_reason ? "thinking" : NULL, m->can_insert ? "insert" : NULL };

    put_words(w, "capabilities", words, ARRAY_LEN(words));
}

/* llama-server's member for metadata of the model file. */
static void put_meta(struct jw *w, const struct model_info *m)
{
    jw_key(w, "meta");
    jw_object(w);
    put_text(w, "vocab_type", m->vocab_type);
    put_count(w, "n_vocab", m->n_vocab);
    put_count(w, "n_ctx", m->n_ctx);
    put_count(w, "n_ctx_train", m->n_ctx_train);
    put_count(w, "n_embd", m->n_embd);
    put_count(w, "n_params", m->n_params);
    if (m->weight_bytes)
        jw_member_bool(w, "is_moe", m->n_experts > 0);
    put_count(w, "n_experts", m->n_experts);
    put_count(w, "n_active_experts", m->n_active_experts);
    put_count(w, "weight_bytes", (int64_t)m->weight_bytes);
    put_count(w, "kv_bytes", (int64_t)m->kv_bytes);
    put_count(w, "window_kv_bytes", (int64_t)m->window_kv_bytes);
    put_count(w, "state_bytes", (int64_t)m->state_bytes);
    if (m->size_bytes) {
        jw_key(w, "size");
        jw_u64(w, m->size_bytes);
    }
    jw_end_object(w);
}

static void put_adapter(struct jw *w, const struct model_info *m)
{
    if (!m->chat_family)
        return;
    jw_key(w, "adapter");
    jw_object(w);
    put_text(w, "family", m->chat_family);
    put_text(w, "tool_parser", m->tool_parser);
    put_text(w, "thinking_parser", m->thinking_parser);
    jw_key(w, "tool_format");
    jw_z(w, m->tool_format);
    jw_key(w, "tool_format_unknown");
    jw_bool(w, m->has_unknown_calls);
    jw_key(w, "probed");
    jw_bool(w, m->is_probed);
    if (!m->is_probed)
        put_text(w, "notice", "Model not probed — capabilities may be incomplete");
    jw_end_object(w);
}

static void put_model(struct jw *w, const struct model_info *m)
{
    static const char *const text[] = { "text" };

    jw_object(w);
    put_text(w, "id", m->id);
    put_text(w, "object", "model");
    jw_key(w, "created");
    jw_i64(w, m->created);
    put_text(w, "owned_by", m->owned_by ? m->owned_by : "inferflux");
    jw_key(w, "ready");
    jw_bool(w, m->is_ready);
    put_text(w, "status", m->status);
    put_text(w, "backend", m->backend);
    put_text(w, "family", m->family);
    put_count(w, "max_model_len", m->n_ctx); /* read by vLLM's clients */
    models_put_capabilities(w, m);
    jw_key(w, "architecture");
    jw_object(w);
    put_words(w, "input_modalities", text, 1);
    put_words(w, "output_modalities", text, 1);
    jw_end_object(w);
    put_meta(w, m);
    put_adapter(w, m);
    jw_end_object(w);
}

struct time_text models_time(int64_t seconds)
{
    struct time_text text = { "1970-01-01T00:00:00Z" };
    time_t t = (time_t)seconds;
    struct tm tm;

    if (gmtime_r(&t, &tm))
        strftime(text.z, sizeof(text.z), "%Y-%m-%dT%H:%M:%SZ", &tm);
    return text;
}

void models_list(struct buf *out, const struct model_info *m, size_t n)
{
    struct jw w;

    jw_init(&w, out);
    jw_object(&w);
    put_text(&w, "object", "list");
    jw_key(&w, "data");
    jw_array(&w);
    for (size_t i = 0; i < n; i++)
        put_model(&w, &m[i]);
    jw_end_array(&w);
    jw_key(&w, "models");
    jw_array(&w);
    for (size_t i = 0; i < n; i++)
        ollama_put_model(&w, &m[i]);
    jw_end_array(&w);
    jw_end_object(&w);
}

void models_one(struct buf *out, const struct model_info *m)
{
    struct jw w;

    jw_init(&w, out);
    put_model(&w, m);
}
