#include "generate/remember.h"

/* Fields that are excluded from the key: the prompt tokens or the head of the key represent them,
 * or they do not affect the tokens of the response (destination, priority, and the token limit,
 * which response_cache.h handles). */
static const char *const not_in_key[] = { "background", "cache_prompt", "id_slot", "input",
    "instructions", "max_completion_tokens", "max_output_tokens", "max_tokens", "messages",
    "metadata", "model", "priority", "prompt", "previous_response_id", "prompt_cache_key",
    "request_id", "safety_identifier", "service_tier", "store", "stream", "stream_options", "user",
    "x_timeout" };

enum { KEY_MAX = 16 * 1024 * 1024 };

static bool is_eligible(const struct ask *ask, const struct model *m)
{
    bool is_certain = ask->sample.temperature == 0.0f || ask->has_seed;
    bool is_one = ask->n_prompts == 1 && ask->n == 1 && ask->best_of == 1;
    bool is_scored = ask->echo && ask->want_logprobs;
    bool is_native = m->spec->backend == BACKEND_NATIVE;

    return is_certain && is_one && is_native && !is_scored && ask->cache_prompt &&
           ask->max_tokens != 0 && !ask->prediction.p && !ask->load_only &&
           ask->raw->kind == JSON_OBJECT;
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

struct str remember_key(const struct ask *ask, const struct prompt *prompt, const char *caller,
    const char *dialect, const struct workplace *ctx)
{
    struct str key = STR_NONE;
    struct buf b;

    if (!is_eligible(ask, ctx->model))
        return STR_NONE;
    struct str ids = { (const char *)prompt->ids, (size_t)prompt->n * sizeof(*prompt->ids) };
    buf_init(&b, KEY_MAX);
    buf_put(&b, &ctx->model->load, sizeof(ctx->model->load));
    put_part(&b, str_of(caller));
    put_part(&b, str_of(dialect));
    put_part(&b, ids);
    for (const struct json *v = ask->raw->child; v; v = v->next)
        if (is_in_key(v->key)) {
            put_part(&b, v->key);
            put_part(&b, v->raw);
        }
    if (buf_ok(&b))
        key = arena_str(ctx->arena, buf_str(&b));
    buf_clear(&b);
    return key;
}
