#include "api/llama/llama.h"
#include "api/common/common_fields.h"
#include "api/common/constraint_fields.h"

/* llama_request.c: field table of llama-server's /completion and /infill. A field that would change
 * the output and is not supported is rejected by name; fields for slots and caches (n_keep, ...)
 * are the server's decision and ignored. Any thread. */

static int read_bias(struct fields *f, const char *name, const struct json *v);
static int read_n_predict(struct fields *f, const char *name, const struct json *v);
static int read_n_probs(struct fields *f, const char *name, const struct json *v);

enum { ON = 1 << REQUEST_COMPLETION };

/* clang-format off */
#define TO(member)             offsetof(struct request, member)
#define FLAG(name, member)     { name, FIELD_BOOL, ON, .to = TO(member) }
#define FLOAT(name, lo, hi, m) { name, FIELD_FLOAT, ON, { lo, hi }, TO(m) }
#define INT(name, lo, hi, m)   { name, FIELD_INT, ON, { lo, hi }, TO(m) }
#define READ(name, fn)         { name, FIELD_CUSTOM, ON, .read = fn }
#define REFUSE(name, target)     { name, FIELD_UNSUPPORTED, ON, .text = target }
/* clang-format on */

#define NO_SAMPLER "the sampler does not implement it"

static const struct field table[] = {
    FLAG("cache_prompt", cache_prompt),
    REFUSE("dry_multiplier", NO_SAMPLER),
    REFUSE("dynatemp_range", NO_SAMPLER),
    FLOAT("frequency_penalty", -2, 2, sample.frequency_penalty),
    READ("grammar", constraint_field_closed),
    REFUSE("grammar_lazy", "a grammar applies from the first token"),
    INT("id_slot", -1, INT32_MAX, id_slot),
    FLAG("ignore_eos", ignore_eos),
    { "input_extra", FIELD_DEFERRED, ON },
    { "input_prefix", FIELD_DEFERRED, ON },
    { "input_suffix", FIELD_DEFERRED, ON },
    READ("json_schema", constraint_field_closed),
    READ("logit_bias", read_bias),
    REFUSE("lora", "no adapters are loaded"),
    FLOAT("min_p", 0, 1, sample.min_p),
    REFUSE("mirostat", NO_SAMPLER),
    { "model", FIELD_TEXT, ON, { 0, 1024 }, TO(model) },
    INT("n_cmpl", 1, REQUEST_N_MAX, n),
    REFUSE("n_indent", NO_SAMPLER),
    READ("n_predict", read_n_predict),
    READ("n_probs", read_n_probs),
    REFUSE("post_sampling_probs", "probabilities are those before sampling"),
    FLOAT("presence_penalty", -2, 2, sample.presence_penalty),
    { "prompt", FIELD_DEFERRED, ON },
    INT("repeat_last_n", -1, INT32_MAX, sample.repeat_last_n),
    FLOAT("repeat_penalty", 0.001, 100, sample.repeat_penalty),
    FLAG("return_tokens", want_token_ids),
    READ("samplers", common_field_samplers),
    READ("script", common_field_script),
    READ("seed", common_field_seed),
    READ("stop", common_field_stop),
    FLAG("stream", stream),
    REFUSE("t_max_predict_ms", "use x_timeout"),
    FLOAT("temperature", 0, 2, sample.temperature),
    INT("top_k", -1, INT32_MAX, sample.top_k),
    FLOAT("top_p", 0, 1, sample.top_p),
    FLOAT("typical_p", 0, 1, sample.typical_p),
    READ("x_constraint", constraint_field_options),
    { "x_timeout", FIELD_DOUBLE, ON, { 0, 86400 }, TO(timeout_s) },
    REFUSE("xtc_probability", NO_SAMPLER),
};

/* ---- fields with their own reader */

static int read_weight(struct fields *f, const char *name, const struct json *v, float *out)
{
    const struct range values = { -100, 100 };
    double d = -100; /* false: token is forbidden */

    if ((v->kind != JSON_BOOL || v->b) && field_number(f, name, v, values, &d))
        return -1;
    *out = (float)d;
    return 0;
}

/* Bias of a token id, or of each token of a text, which requires the model's vocabulary. */
struct biases {
    struct token_bias *ids;
    struct text_bias *texts;
    int n_ids, n_texts;
};

/* Reads [id or text, bias]. */
static int read_pair(struct fields *f, const char *name, const struct json *v, struct biases *all)
{
    const struct range ids = { 0, INT32_MAX };

    if (v->kind != JSON_ARRAY || v->n != 2)
        return field_wrong_kind(f, name, "an array of pairs of a token and a number", v);
    const struct json *target = v->child, *weight = target->next;
    if (target->kind == JSON_STRING) {
        struct text_bias *t = &all->texts[all->n_texts++];
        t->text = target->s;
        return read_weight(f, name, weight, &t->bias);
    }
    struct token_bias *t = &all->ids[all->n_ids++];
    return field_int(f, name, target, ids, &t->id) || read_weight(f, name, weight, &t->bias) ? -1
                                                                                             : 0;
}

/* Reads {"id or text": bias}. */
static int read_named(struct fields *f, const char *name, const struct json *v, struct biases *all)
{
    uint64_t id;

    if (str_to_u64(v->key, &id) && id <= INT32_MAX) {
        struct token_bias *t = &all->ids[all->n_ids++];
        t->id = (int32_t)id;
        return read_weight(f, name, v, &t->bias);
    }
    struct text_bias *t = &all->texts[all->n_texts++];
    t->text = v->key;
    return read_weight(f, name, v, &t->bias);
}

static int read_bias(struct fields *f, const char *name, const struct json *v)
{
    struct biases all = { 0 };

    if (v->kind != JSON_OBJECT && v->kind != JSON_ARRAY)
        return field_wrong_kind(f, name, "an object or an array of pairs", v);
    if (v->n > REQUEST_BIAS_MAX)
        return err_param(f->e, ERR_RANGE, name, "'%s' may have at most %d entries, not %u.", name,
            REQUEST_BIAS_MAX, v->n);
    all.ids = arena_zalloc(f->arena, MAX(v->n, 1u), sizeof(*all.ids));
    all.texts = arena_zalloc(f->arena, MAX(v->n, 1u), sizeof(*all.texts));
    if (!all.ids || !all.texts)
        return field_no_memory(f);
    for (const struct json *c = v->child; c; c = c->next)
        if (v->kind == JSON_ARRAY ? read_pair(f, name, c, &all) : read_named(f, name, c, &all))
            return -1;
    f->request->text_bias = all.texts;
    f->request->n_text_bias = all.n_texts;
    return request_set_bias(f->request, f->arena, all.ids, all.n_ids, f->e);
}

/* -1: up to the context limit; -2 (until the context is full) is treated the same. 0 computes the
 * prompt without output. */
static int read_n_predict(struct fields *f, const char *name, const struct json *v)
{
    const struct range in = { -2, INT32_MAX };

    if (field_int(f, name, v, in, &f->request->max_tokens))
        return -1;
    f->request->max_tokens = MAX(f->request->max_tokens, -1);
    return 0;
}

static int read_n_probs(struct fields *f, const char *name, const struct json *v)
{
    const struct range in = { 0, TOP_LOGPROBS_MAX };

    if (field_int(f, name, v, in, &f->request->sample.n_top))
        return -1;
    f->request->want_logprobs = f->request->sample.n_top > 0;
    return 0;
}

/* ---- the routes */

static int parse_completion(struct request *request, const struct json *body, struct arena *a,
    struct err *e, int (*read_prompts)(struct fields *f))
{
    struct fields f = { request, a, e, table, ARRAY_LEN(table), { NULL } };

    request->kind = REQUEST_COMPLETION;
    request->sample.temperature = 0.8f;
    request->sample.top_k = 40;
    request->sample.top_p = 0.95f;
    request->sample.min_p = 0.05f;
    if (fields_read(&f, body) || read_prompts(&f))
        return -1;
    if ((int64_t)request->n_prompts * request->n > REQUEST_PROMPTS_MAX)
        return err_param(e, ERR_RANGE, "prompt",
            "%d prompts with %d choices each exceed the limit of %d choices.", request->n_prompts,
            request->n, REQUEST_PROMPTS_MAX);
    request->best_of = request->n;
    request->sample.top_k = MAX(request->sample.top_k, 0);
    request->sample.want_logprobs = request->want_logprobs;
    return 0;
}

int llama_parse(struct request *request, const struct json *body, struct arena *a, struct err *e)
{
    return parse_completion(request, body, a, e, llama_read_prompts);
}

int llama_parse_infill(
    struct request *request, const struct json *body, struct arena *a, struct err *e)
{
    return parse_completion(request, body, a, e, llama_read_infill);
}
