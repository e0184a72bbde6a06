#include "api/openai/openai.h"
#include "api/common/common_fields.h"
#include "api/common/constraint_fields.h"

#include <stdlib.h>

/* openai_request.c: field table of Chat Completions and Completions. A field that would change the
 * output and is not supported is rejected by name; hints are ignored. request->raw contains all of
 * them. Any thread. */

static int read_allowed_ids(struct fields *f, const char *name, const struct json *v);
static int read_chat_template(struct fields *f, const char *name, const struct json *v);
static int read_echo(struct fields *f, const char *name, const struct json *v);
static int read_enable_thinking(struct fields *f, const char *name, const struct json *v);
static int read_include_reasoning(struct fields *f, const char *name, const struct json *v);
static int read_logprobs(struct fields *f, const char *name, const struct json *v);
static int read_modalities(struct fields *f, const char *name, const struct json *v);
static int read_prediction(struct fields *f, const char *name, const struct json *v);
static int read_reasoning_format(struct fields *f, const char *name, const struct json *v);
static int read_stop_ids(struct fields *f, const char *name, const struct json *v);
static int read_stream_options(struct fields *f, const char *name, const struct json *v);
static int read_web_search(struct fields *f, const char *name, const struct json *v);

enum { CHAT = 1 << REQUEST_CHAT, COMPLETION = 1 << REQUEST_COMPLETION, BOTH = CHAT | COMPLETION };

/* clang-format off */
#define TO(member)               offsetof(struct request, member)
#define FLAG(name, on, member)   { name, FIELD_BOOL, on, .to = TO(member) }
#define INT(name, lo, hi, m)     { name, FIELD_INT, BOTH, { lo, hi }, TO(m) }
#define FLOAT(name, lo, hi, m)   { name, FIELD_FLOAT, BOTH, { lo, hi }, TO(m) }
#define TEXT(name, most, member) { name, FIELD_TEXT, BOTH, { 0, most }, TO(member) }
#define READ(name, on, fn)       { name, FIELD_CUSTOM, on, .read = fn }
#define LATER(name, on)          { name, FIELD_DEFERRED, on }
#define REFUSE(name, on, what)   { name, FIELD_UNSUPPORTED, on, .text = what }
/* clang-format on */

#define NO_SAMPLER "the sampler does not implement it"
#define NO_MEDIA   "output is text only"

static const struct field table[] = {
    FLAG("add_generation_prompt", CHAT, convo.add_generation_prompt),
    FLAG("add_special_tokens", BOTH, add_special_tokens),
    READ("allowed_token_ids", BOTH, read_allowed_ids),
    REFUSE("audio", CHAT, NO_MEDIA),
    REFUSE("bad_words", BOTH, NO_SAMPLER),
    INT("best_of", 1, REQUEST_N_MAX, best_of),
    FLAG("cache_prompt", BOTH, cache_prompt),
    TEXT("cache_salt", 256, cache_salt),
    READ("chat_template", CHAT, read_chat_template),
    { "chat_template_kwargs", FIELD_OBJECT, CHAT, .to = TO(convo.template_kwargs) },
    FLAG("continue_final_message", CHAT, convo.continue_final_message),
    REFUSE("documents", CHAT, "put them into a message"),
    REFUSE("dry_multiplier", BOTH, NO_SAMPLER),
    REFUSE("dynatemp_range", BOTH, NO_SAMPLER),
    READ("ebnf", BOTH, constraint_field),
    READ("echo", BOTH, read_echo),
    READ("enable_thinking", CHAT, read_enable_thinking),
    FLOAT("frequency_penalty", -2, 2, sample.frequency_penalty),
    LATER("function_call", CHAT),
    LATER("functions", CHAT),
    READ("grammar", BOTH, constraint_field),
    READ("guided_choice", BOTH, constraint_field),
    READ("guided_grammar", BOTH, constraint_field),
    READ("guided_json", BOTH, constraint_field),
    READ("guided_regex", BOTH, constraint_field),
    READ("guided_whitespace_pattern", BOTH, constraint_field),
    INT("id_slot", -1, INT32_MAX, id_slot),
    FLAG("ignore_eos", BOTH, ignore_eos),
    READ("include_reasoning", CHAT, read_include_reasoning),
    FLAG("include_stop_str_in_output", BOTH, include_stop),
    READ("json_schema", BOTH, constraint_field),
    READ("logit_bias", BOTH, common_field_logit_bias),
    REFUSE("logprob_token_ids", BOTH, "use top_logprobs"),
    READ("logprobs", BOTH, read_logprobs),
    REFUSE("lora", BOTH, "no adapters are loaded"),
    LATER("max_completion_tokens", CHAT),
    LATER("max_tokens", BOTH),
    LATER("messages", CHAT),
    READ("metadata", BOTH, common_field_metadata),
    FLOAT("min_p", 0, 1, sample.min_p),
    INT("min_tokens", 0, INT32_MAX, min_tokens),
    REFUSE("mirostat", BOTH, NO_SAMPLER),
    READ("modalities", CHAT, read_modalities),
    TEXT("model", 1024, model),
    INT("n", 1, REQUEST_N_MAX, n),
    FLAG("parallel_tool_calls", CHAT, parallel_tool_calls),
    READ("prediction", BOTH, read_prediction),
    FLOAT("presence_penalty", -2, 2, sample.presence_penalty),
    INT("priority", INT32_MIN, INT32_MAX, priority),
    LATER("prompt", COMPLETION),
    TEXT("prompt_cache_key", 1024, prompt_cache_key),
    REFUSE("prompt_logprobs", BOTH, "a completion with echo and logprobs has them"),
    { "reasoning_effort", FIELD_ENUM, CHAT, .to = TO(reasoning_effort),
        .text = "none|minimal|low|medium|high|xhigh|max" },
    READ("reasoning_format", CHAT, read_reasoning_format),
    READ("regex", BOTH, constraint_field),
    INT("repeat_last_n", -1, INT32_MAX, sample.repeat_last_n),
    FLOAT("repeat_penalty", 0.001, 100, sample.repeat_penalty),
    FLOAT("repetition_penalty", 0.001, 100, sample.repeat_penalty),
    TEXT("request_id", 256, request_id),
    READ("response_format", BOTH, openai_read_response_format),
    FLAG("return_token_ids", BOTH, want_token_ids),
    FLAG("return_tokens_as_token_ids", BOTH, tokens_as_ids),
    TEXT("safety_identifier", 1024, safety_identifier),
    READ("samplers", BOTH, common_field_samplers),
    READ("script", BOTH, common_field_script),
    READ("seed", BOTH, common_field_seed),
    READ("service_tier", BOTH, common_field_service_tier),
    FLAG("skip_special_tokens", BOTH, skip_special_tokens),
    READ("stop", BOTH, common_field_stop),
    READ("stop_token_ids", BOTH, read_stop_ids),
    FLAG("stream", BOTH, stream),
    READ("stream_options", BOTH, read_stream_options),
    READ("structured_outputs", BOTH, constraint_field_structured_outputs),
    LATER("suffix", COMPLETION),
    FLOAT("temperature", 0, 2, sample.temperature),
    REFUSE("thinking_token_budget", CHAT,
        "reasoning has no token budget; disable it, or limit the output"),
    LATER("tool_choice", CHAT),
    LATER("tools", CHAT),
    INT("top_k", -1, INT32_MAX, sample.top_k),
    LATER("top_logprobs", CHAT),
    FLOAT("top_p", 0, 1, sample.top_p),
    REFUSE("truncate_prompt_tokens", BOTH, "a prompt is never truncated silently"),
    FLOAT("typical_p", 0, 1, sample.typical_p),
    REFUSE("use_beam_search", BOTH, NO_SAMPLER),
    TEXT("user", 1024, user),
    { "verbosity", FIELD_ENUM, CHAT, .to = FIELD_TYPE_ONLY, .text = "low|medium|high" },
    READ("web_search_options", CHAT, read_web_search),
    READ("x_constraint", BOTH, constraint_field_options),
    { "x_timeout", FIELD_DOUBLE, BOTH, { 0, 86400 }, TO(timeout_s) },
    REFUSE("xtc_probability", BOTH, NO_SAMPLER),
};

/* ---- fields with their own reader ---- */

static int compare_ids(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static int read_allowed_ids(struct fields *f, const char *name, const struct json *v)
{
    struct sample_params *s = &f->request->sample;
    int32_t *ids;
    int n = 0;

    if (field_ids(f, name, v, REQUEST_ALLOWED_MAX, &ids))
        return -1;
    if (!v->n)
        return err_param(f->e, ERR_INVALID, name, "'%s' must not be empty.", name);
    qsort(ids, v->n, sizeof(*ids), compare_ids);
    for (uint32_t i = 0; i < v->n; i++)
        if (!n || ids[i] != ids[n - 1])
            ids[n++] = ids[i];
    s->allowed = ids;
    s->n_allowed = n;
    return 0;
}

/* A template is a program, so clients may not send one; /apply-template has its own access rule. */
static int read_chat_template(struct fields *f, const char *name, const struct json *v)
{
    if (f->request->dialect == &dialect_apply_template)
        return v->kind == JSON_STRING ? 0 : field_wrong_kind(f, name, "a string", v);
    return field_is_neutral(v) ? 0
                               : field_unsupported(f, name, "the template is part of the model");
}

static int read_echo(struct fields *f, const char *name, const struct json *v)
{
    if (field_bool(f, name, v, &f->request->echo))
        return -1;
    if (f->request->echo && f->request->kind == REQUEST_CHAT)
        return field_unsupported(f, name, "a chat prompt is not echoed");
    return 0;
}

/* In a chat `logprobs` is a boolean, and top_logprobs a count; in a completion `logprobs` is the
 * count. */
static int read_logprobs(struct fields *f, const char *name, const struct json *v)
{
    const struct range in = { 0, TOP_LOGPROBS_MAX };

    if (f->request->kind == REQUEST_CHAT)
        return field_bool(f, name, v, &f->request->want_logprobs);
    if (v->kind == JSON_BOOL) { /* some chat clients also send this to /v1/completions */
        f->request->want_logprobs = v->b;
        return 0;
    }
    f->request->want_logprobs = true;
    return field_int(f, name, v, in, &f->request->sample.n_top);
}

static int read_modalities(struct fields *f, const char *name, const struct json *v)
{
    struct str word;

    if (v->kind != JSON_ARRAY)
        return field_wrong_kind(f, name, "an array", v);
    for (const struct json *c = v->child; c; c = c->next) {
        if (field_enum(f, name, c, "text|audio", &word))
            return -1;
        if (str_is(word, "audio"))
            return field_unsupported(f, name, NO_MEDIA);
    }
    return 0;
}

static int read_enable_thinking(struct fields *f, const char *name, const struct json *v)
{
    bool on;

    if (field_bool(f, name, v, &on))
        return -1;
    f->request->thinking = on ? THINKING_ON : THINKING_OFF;
    return 0;
}

static int read_include_reasoning(struct fields *f, const char *name, const struct json *v)
{
    bool on;

    if (field_bool(f, name, v, &on))
        return -1;
    f->request->is_reasoning_hidden = !on;
    return 0;
}

/* llama-server's field: with `none` reasoning stays in the text, with its markers. */
static int read_reasoning_format(struct fields *f, const char *name, const struct json *v)
{
    struct str word;

    if (field_enum(f, name, v, "none|auto|deepseek|deepseek-legacy", &word))
        return -1;
    f->request->is_reasoning_unparsed = str_is(word, "none");
    return 0;
}

static int read_stop_ids(struct fields *f, const char *name, const struct json *v)
{
    if (field_ids(f, name, v, REQUEST_STOP_IDS_MAX, &f->request->stop_ids))
        return -1;
    f->request->n_stop_ids = (int)v->n;
    return 0;
}

/* Without `stream` these options have no effect and are no error, as in other servers. */
/* An empty object requests a search, too. */
static int read_web_search(struct fields *f, const char *name, const struct json *v)
{
    return field_unsupported(f, name, "this server does not search the web");
}

static int read_stream_options(struct fields *f, const char *name, const struct json *v)
{
    const struct json *usage = json_get(v, "include_usage");
    const struct json *continuous = json_get(v, "continuous_usage_stats");

    if (v->kind != JSON_OBJECT)
        return field_wrong_kind(f, name, "an object", v);
    if (!json_is_null(usage) &&
        field_bool(f, "stream_options.include_usage", usage, &f->request->include_usage))
        return -1;
    if (!json_is_null(continuous) && field_bool(f, "stream_options.continuous_usage_stats",
                                         continuous, &f->request->continuous_usage))
        return -1;
    return 0;
}

static int join_prediction(struct fields *f, const struct json *parts)
{
    struct buf text;
    int rc = 0;

    buf_init(&text, parts->raw.n + 1);
    for (const struct json *c = parts->child; c && !rc; c = c->next) {
        const struct json *t = c->kind == JSON_OBJECT ? json_get(c, "text") : NULL;
        if (t && t->kind == JSON_STRING)
            buf_put(&text, t->s.p, t->s.n);
        else
            rc = err_param(f->e, ERR_INVALID, "prediction.content",
                "'prediction.content' may contain only text parts.");
    }
    if (!rc) {
        f->request->prediction = buf_ok(&text) ? arena_str(f->arena, buf_str(&text)) : STR_NONE;
        rc = f->request->prediction.p ? 0 : field_no_memory(f);
    }
    buf_clear(&text);
    return rc;
}

/* Reads { type: "content", content: text or text parts }. */
static int read_prediction(struct fields *f, const char *name, const struct json *v)
{
    const struct json *content, *type;

    if (v->kind != JSON_OBJECT)
        return field_wrong_kind(f, name, "an object", v);
    type = json_get(v, "type");
    content = json_get(v, "content");
    if (!type || type->kind != JSON_STRING || !str_is(type->s, "content"))
        return err_param(
            f->e, ERR_INVALID, "prediction.type", "'prediction.type' must be 'content'.");
    if (!content || (content->kind != JSON_STRING && content->kind != JSON_ARRAY))
        return err_param(f->e, ERR_INVALID, "prediction.content",
            "'prediction.content' must be a string or an array of text parts.");
    if (content->kind == JSON_ARRAY)
        return join_prediction(f, content);
    f->request->prediction = content->s;
    return 0;
}

/* ---- checks over several fields ---- */

static int read_max_tokens(struct fields *f, int default_value)
{
    const struct json *max_tokens = field_get(f, "max_tokens");
    const struct json *v = field_get(f, "max_completion_tokens");
    const char *name = v ? "max_completion_tokens" : "max_tokens";
    bool is_zero_allowed = f->request->kind == REQUEST_COMPLETION; /* 0 only scores the prompt */
    const struct range in = { -1, INT32_MAX };
    int ignored;

    f->request->max_tokens = default_value;
    if (max_tokens && field_int(f, "max_tokens", max_tokens, in, &ignored))
        return -1;
    if (!v && !max_tokens)
        return 0;
    if (field_int(f, name, v ? v : max_tokens, in, &f->request->max_tokens))
        return -1;
    if (!f->request->max_tokens && !is_zero_allowed)
        return err_param(f->e, ERR_RANGE, name, "'%s' must be at least 1, not 0.", name);
    return 0;
}

static int check_counts(struct fields *f)
{
    struct request *request = f->request;

    if (request->max_tokens >= 0 && request->min_tokens > request->max_tokens)
        return err_param(f->e, ERR_INVALID, "min_tokens",
            "'min_tokens' is %d, more than 'max_tokens', %d.", request->min_tokens,
            request->max_tokens);
    if (!field_get(f, "best_of"))
        request->best_of = request->n;
    if (request->best_of < request->n)
        return err_param(f->e, ERR_INVALID, "best_of", "'best_of' is %d, less than 'n', %d.",
            request->best_of, request->n);
    if (request->best_of > request->n && request->stream)
        return err_param(f->e, ERR_INVALID, "best_of",
            "'best_of' greater than 'n' cannot be streamed: the best is known only at the end.");
    if ((int64_t)request->n_prompts * request->best_of > REQUEST_PROMPTS_MAX)
        return err_param(f->e, ERR_RANGE, "prompt",
            "%d prompts with %d choices each exceed the limit of %d choices.", request->n_prompts,
            request->best_of, REQUEST_PROMPTS_MAX);
    return 0;
}

static int finish_sampling(struct fields *f)
{
    struct request *request = f->request;
    struct sample_params *s = &request->sample;

    if (s->top_k < 0)
        s->top_k = 0;
    /* In vLLM this penalty applies to the whole text; in llama-server to the last 64 tokens. */
    if (field_get(f, "repetition_penalty") && !field_get(f, "repeat_last_n"))
        s->repeat_last_n = -1;
    s->min_tokens = request->min_tokens;
    s->want_logprobs = request->want_logprobs || request->best_of > request->n;
    return 0;
}

static int read_top_logprobs(struct fields *f)
{
    const struct json *v = field_get(f, "top_logprobs");
    const struct range in = { 0, TOP_LOGPROBS_MAX };

    if (!v)
        return 0;
    if (field_int(f, "top_logprobs", v, in, &f->request->sample.n_top))
        return -1;
    if (f->request->sample.n_top && !f->request->want_logprobs)
        return err_param(
            f->e, ERR_INVALID, "top_logprobs", "'top_logprobs' needs 'logprobs' to be true.");
    return 0;
}

/* ---- template variables ---- */

/* Effort `none` also disables thinking, for templates that only have enable_thinking. */
static int set_template_variables(struct fields *f)
{
    if (str_is(f->request->reasoning_effort, "none"))
        f->request->thinking = THINKING_OFF;
    return common_field_set_template_kwargs(f);
}

static int check_continuation(struct fields *f)
{
    struct convo *c = &f->request->convo;
    const struct json *generation_prompt = field_get(f, "add_generation_prompt");

    if (!c->continue_final_message)
        return 0;
    if (generation_prompt && c->add_generation_prompt)
        return err_param(f->e, ERR_INVALID, "continue_final_message",
            "'continue_final_message' and 'add_generation_prompt' exclude each other.");
    if (c->messages[c->n_messages - 1].role != ROLE_ASSISTANT)
        return err_param(f->e, ERR_INVALID, "continue_final_message",
            "'continue_final_message' needs the last message to be the assistant's.");
    c->add_generation_prompt = false;
    return 0;
}

/* ---- the two routes ---- */

static int read_required(struct fields *f, const char *name,
    int (*read)(struct fields *, const char *, const struct json *))
{
    const struct json *v = field_get(f, name);

    return v ? read(f, name, v) : field_missing(f, name);
}

int openai_parse_chat(
    struct request *request, const struct json *body, struct arena *a, struct err *e)
{
    struct fields f = { request, a, e, table, ARRAY_LEN(table), { NULL } };

    request->kind = REQUEST_CHAT;
    if (fields_read(&f, body) || read_required(&f, "messages", openai_read_messages) ||
        openai_read_tools(&f) || read_max_tokens(&f, -1) || read_top_logprobs(&f) ||
        check_counts(&f) || check_continuation(&f) || set_template_variables(&f))
        return -1;
    return finish_sampling(&f);
}

/* The model fills in the text between `prompt` and `suffix`. An empty suffix has no effect. */
static int read_suffix(struct fields *f)
{
    const struct json *v = field_get(f, "suffix");
    struct request *request = f->request;
    struct str suffix;

    if (!v)
        return 0;
    if (field_text(f, "suffix", v, SIZE_MAX, &suffix))
        return -1;
    for (int i = 0; i < request->n_prompts && suffix.n; i++) {
        if (request->prompts[i].is_tokens)
            return err_param(
                f->e, ERR_INVALID, "suffix", "'suffix' needs a 'prompt' that is text.");
        struct infill *infill = arena_zalloc(f->arena, 1, sizeof(*infill));
        if (!infill)
            return field_no_memory(f);
        *infill = (struct infill){ .prefix = request->prompts[i].text, .suffix = suffix };
        request->prompts[i].infill = infill;
    }
    return 0;
}

int openai_parse_completion(
    struct request *request, const struct json *body, struct arena *a, struct err *e)
{
    struct fields f = { request, a, e, table, ARRAY_LEN(table), { NULL } };

    request->kind = REQUEST_COMPLETION;
    if (fields_read(&f, body) || read_required(&f, "prompt", common_field_prompt) ||
        read_suffix(&f) || read_max_tokens(&f, 16) || check_counts(&f))
        return -1;
    return finish_sampling(&f);
}
