#include "generate/response_cache_key.h"

/* Fields that are excluded from the key: the prompt tokens or the head of the key represent them,
 * or they do not affect the tokens of the response (destination, priority, and the token limit,
 * which response_cache.h handles). */
static const char *const not_in_key[] = { "background", "cache_prompt", "id_slot", "input",
    "instructions", "max_completion_tokens", "max_output_tokens", "max_tokens", "messages",
    "metadata", "model", "priority", "prompt", "previous_response_id", "prompt_cache_key",
    "request_id", "safety_identifier", "service_tier", "store", "stream", "stream_options", "user",
    "x_timeout" };

enum { KEY_MAX = 16 * 1024 * 1024 };

static bool is_eligible(const struct request *request, const struct model *m)
{
    bool is_certain = request->sample.temperature == 0.0f || request->has_seed;
    bool is_one = request->n_prompts == 1 && request->n == 1 && request->best_of == 1;
    bool is_scored = request->echo && request->want_logprobs;
    bool is_native = m->spec->backend == BACKEND_NATIVE;

    return is_certain && is_one && is_native && !is_scored && request->cache_prompt &&
           request->max_tokens != 0 && !request->prediction.p && !request->load_only &&
           request->raw->kind == JSON_OBJECT;
}

static bool is_in_key(struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(not_in_key); i++)
        if (str_is(name, not_in_key[i]))
            return false;
    return true;
}

/* The length precedes each part, so that different lists of parts have different keys. */
static void put_part(struct buf *b, struct str s)
{
    uint64_t n = s.n;

    buf_put(b, &n, sizeof(n));
    buf_puts(b, s);
}

struct str response_cache_key_build(const struct request *request, const struct prompt *prompt,
    const char *caller, const char *dialect, const struct prompt_ctx *ctx)
{
    struct str key = STR_NONE;
    struct buf b;

    if (!is_eligible(request, ctx->model))
        return STR_NONE;
    struct str ids = { (const char *)prompt->ids, (size_t)prompt->n * sizeof(*prompt->ids) };
    buf_init(&b, KEY_MAX);
    buf_put(&b, &ctx->model->load, sizeof(ctx->model->load));
    put_part(&b, str_of(caller));
    put_part(&b, str_of(dialect));
    put_part(&b, ids);
    for (const struct json *v = request->raw->child; v; v = v->next)
        if (is_in_key(v->key)) {
            put_part(&b, v->key);
            put_part(&b, v->raw);
        }
    if (buf_ok(&b))
        key = arena_str(ctx->arena, buf_str(&b));
    buf_clear(&b);
    return key;
}
