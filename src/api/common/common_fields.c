#include "api/common/common_fields.h"
#include "api/common/no_effect.h"
#include "output/stops.h"

static int read_bias_row(
    struct fields *f, const char *name, const struct json *v, struct token_bias *out)
{
    const struct range in = { -100, 100 };
    uint64_t id;
    double d;

    if (!str_to_u64(v->key, &id) || id > INT32_MAX)
        return err_param(f->e, ERR_INVALID, name,
            "'%s' has the key '%.*s', which is not a token id.", name,
            (int)MIN(v->key.n, (size_t)40), v->key.p);
    if (field_number(f, name, v, in, &d))
        return -1;
    *out = (struct token_bias){ (int32_t)id, (float)d };
    return 0;
}

int common_field_logit_bias(struct fields *f, const char *name, const struct json *v)
{
    int n = 0;

    if (v->kind != JSON_OBJECT)
        return field_wrong_kind(f, name, "an object", v);
    if (v->n > REQUEST_BIAS_MAX)
        return err_param(f->e, ERR_RANGE, name, "'%s' may have at most %d entries, not %u.", name,
            REQUEST_BIAS_MAX, v->n);
    struct token_bias *list = arena_zalloc(f->arena, MAX(v->n, 1u), sizeof(*list));
    if (!list)
        return field_no_memory(f);
    for (const struct json *c = v->child; c; c = c->next)
        if (c->kind != JSON_NULL && read_bias_row(f, name, c, &list[n++]))
            return -1;
    return request_set_bias(f->request, f->arena, list, n, f->e);
}

int common_field_seed(struct fields *f, const char *name, const struct json *v)
{
    int64_t seed;

    if (v->kind != JSON_NUMBER)
        return field_wrong_kind(f, name, "an integer", v);
    if (!json_i64(v, &seed))
        return err_param(f->e, v->is_int ? ERR_RANGE : ERR_INVALID, name,
            "'%s' must be an integer of 64 bits, not %.*s.", name, (int)MIN(v->s.n, (size_t)40),
            v->s.p);
    if (seed == -1)
        return 0; /* random seed, in llama-server's protocol */
    f->request->sample.seed = (uint64_t)seed;
    f->request->has_seed = true;
    return 0;
}

int common_field_stop(struct fields *f, const char *name, const struct json *v)
{
    struct request *request = f->request;
    size_t bytes = 0;

    if (v->kind != JSON_STRING && v->kind != JSON_ARRAY)
        return field_wrong_kind(f, name, "a string or an array of strings", v);
    uint32_t n = v->kind == JSON_ARRAY ? v->n : 1;
    if (n > REQUEST_STOPS_MAX)
        return err_param(f->e, ERR_RANGE, name, "'%s' may have at most %d entries, not %u.", name,
            REQUEST_STOPS_MAX, n);
    request->stops = arena_zalloc(f->arena, MAX(n, 1u), sizeof(*request->stops));
    if (!request->stops)
        return field_no_memory(f);
    for (const struct json *c = v->kind == JSON_ARRAY ? v->child : v; c; c = c->next) {
        if (c->kind != JSON_STRING)
            return field_wrong_kind(f, name, "an array of strings", c);
        bytes += c->s.n;
        if (c->s.n)
            request->stops[request->n_stops++] = c->s;
        if (v->kind == JSON_STRING)
            break; /* v->next is the next field of the body */
    }
    if (bytes > STOP_BYTES_MAX)
        return err_param(f->e, ERR_RANGE, name, "'%s' may have at most %d bytes, not %zu.", name,
            STOP_BYTES_MAX, bytes);
    return 0;
}

static int read_script_chunk(struct fields *f, const struct json *v, struct request_script *s)
{
    const char *name = "script.chunk";
    const struct range in = { 1, INT32_MAX };
    struct str word;

    if (json_is_null(v))
        return 0;
    if (v->kind == JSON_NUMBER)
        return field_int(f, name, v, in, &s->per_chunk);
    if (v->kind != JSON_STRING)
        return field_wrong_kind(f, name, "a number or one of token|char|all", v);
    if (field_enum(f, name, v, "token|char|all", &word))
        return -1;
    s->unit = str_is(word, "token")  ? SCRIPT_TOKENS
              : str_is(word, "char") ? SCRIPT_CHARS
                                     : SCRIPT_ALL;
    return 0;
}

/* One text, or an array with one text for each turn of the assistant. */
static int read_script_text(
    struct fields *f, const char *name, const struct json *v, struct request_script *s)
{
    struct str *turns;

    if (v->kind != JSON_ARRAY)
        return field_text(f, name, v, SIZE_MAX, &s->text);
    if (!v->n)
        return err_param(f->e, ERR_INVALID, name, "'%s' must not be empty.", name);
    turns = arena_zalloc(f->arena, v->n, sizeof(*turns));
    if (!turns)
        return field_no_memory(f);
    s->turns = turns;
    for (const struct json *c = v->child; c; c = c->next)
        if (field_text(f, name, c, SIZE_MAX, &turns[s->n_turns++]))
            return -1;
    return 0;
}

int common_field_script(struct fields *f, const char *name, const struct json *v)
{
    const struct range delays = { 0, 60000 };
    struct request_script *s = &f->request->script;
    int delay_ms = 0;

    *s = (struct request_script){ .is_set = true, .unit = SCRIPT_TOKENS, .per_chunk = 1 };
    if (v->kind == JSON_STRING || v->kind == JSON_ARRAY)
        return read_script_text(f, name, v, s);
    if (v->kind != JSON_OBJECT)
        return field_wrong_kind(f, name, "a string or an object", v);
    const struct json *text = json_get(v, "text"), *delay = json_get(v, "delay_ms");
    if (json_is_null(text))
        return field_missing(f, "script.text");
    if (read_script_text(f, "script.text", text, s))
        return -1;
    if (!json_is_null(delay) && field_int(f, "script.delay_ms", delay, delays, &delay_ms))
        return -1;
    s->delay_ms = (uint32_t)delay_ms;
    return read_script_chunk(f, json_get(v, "chunk"), s);
}

static size_t n_characters(struct str s)
{
    size_t n = 0;

    for (size_t i = 0; i < s.n; i++)
        n += (s.p[i] & 0xC0) != 0x80;
    return n;
}

int common_field_metadata(struct fields *f, const char *name, const struct json *v)
{
    enum { KEY_MAX = 64, VALUE_MAX = 512 };

    if (v->kind != JSON_OBJECT)
        return field_wrong_kind(f, name, "an object", v);
    if (v->n > REQUEST_METADATA_MAX)
        return err_param(f->e, ERR_RANGE, name, "'%s' may have at most %d entries, not %u.", name,
            REQUEST_METADATA_MAX, v->n);
    for (const struct json *c = v->child; c; c = c->next) {
        if (c->kind != JSON_STRING)
            return field_wrong_kind(f, name, "an object of strings", c);
        if (n_characters(c->key) > KEY_MAX || n_characters(c->s) > VALUE_MAX)
            return err_param(f->e, ERR_RANGE, name,
                "'%s' may have keys of %d and values of %d characters.", name, KEY_MAX, VALUE_MAX);
    }
    f->request->metadata = v;
    return 0;
}

/* ---- the prompt of a completion ---- */

static int read_one_prompt(
    struct fields *f, const char *name, const struct json *v, struct request_prompt *p)
{
    int32_t *ids;

    if (v->kind == JSON_STRING) {
        p->text = v->s;
        return 0;
    }
    if (!v->n)
        return err_param(f->e, ERR_INVALID, name, "'%s' must not be empty.", name);
    if (field_ids(f, name, v, INT32_MAX, &ids))
        return -1;
    p->is_tokens = true;
    p->ids = ids;
    p->n_ids = (int)v->n;
    return 0;
}

int common_field_prompt(struct fields *f, const char *name, const struct json *v)
{
    bool is_list = v->kind == JSON_ARRAY && v->n &&
                   (v->child->kind == JSON_STRING || v->child->kind == JSON_ARRAY);
    uint32_t n = is_list ? v->n : 1;
    struct request *request = f->request;

    if (v->kind != JSON_STRING && v->kind != JSON_ARRAY)
        return field_wrong_kind(f, name, "a string or an array", v);
    if (n > REQUEST_PROMPTS_MAX)
        return err_param(f->e, ERR_RANGE, name, "'%s' may have at most %d entries, not %u.", name,
            REQUEST_PROMPTS_MAX, n);
    request->n_prompts = 0;
    request->prompts = arena_zalloc(f->arena, n, sizeof(*request->prompts));
    if (!request->prompts)
        return field_no_memory(f);
    if (!is_list)
        return read_one_prompt(f, name, v, &request->prompts[request->n_prompts++]);
    for (const struct json *c = v->child; c; c = c->next) {
        if (c->kind != v->child->kind)
            return err_param(f->e, ERR_INVALID, name,
                "'%s' must be a string, an array of strings, an array of token ids, or an array of "
                "such arrays.",
                name);
        if (read_one_prompt(f, name, c, &request->prompts[request->n_prompts++]))
            return -1;
    }
    return 0;
}

int common_field_infill(struct fields *f, const struct infill *infill)
{
    struct request *request = f->request;
    struct infill *copy = arena_alloc(f->arena, sizeof(*copy));

    request->prompts = arena_zalloc(f->arena, 1, sizeof(*request->prompts));
    if (!copy || !request->prompts)
        return field_no_memory(f);
    *copy = *infill;
    request->n_prompts = 1;
    request->prompts[0] = (struct request_prompt){ .text = infill->prefix, .infill = copy };
    return 0;
}

/* ---- template variables ---- */

static struct json *member_new(struct fields *f, const char *key, enum json_kind kind)
{
    struct json *j = arena_zalloc(f->arena, 1, sizeof(*j));

    if (j) {
        j->kind = kind;
        j->key = str_of(key);
    }
    return j;
}

/* The client's own members follow, since of two members with one name the last is used. */
int common_field_set_template_kwargs(struct fields *f)
{
    struct convo *c = &f->request->convo;
    bool has_effort = f->request->reasoning_effort.p != NULL,
         has_thinking = f->request->thinking != THINKING_DEFAULT;

    if (!has_effort && !has_thinking)
        return 0;
    struct json *all = member_new(f, "", JSON_OBJECT);
    struct json *effort = member_new(f, "reasoning_effort", JSON_STRING);
    struct json *enable = member_new(f, "enable_thinking", JSON_BOOL);
    if (!all || !effort || !enable)
        return field_no_memory(f);
    effort->s = f->request->reasoning_effort;
    enable->b = f->request->thinking == THINKING_ON;
    struct json **tail = &all->child;
    if (has_effort)
        json_append(all, &tail, effort);
    if (has_thinking)
        json_append(all, &tail, enable);
    const struct json *own = c->template_kwargs ? c->template_kwargs->child : NULL;
    for (; own; own = own->next) {
        struct json *copy = arena_alloc(f->arena, sizeof(*copy));
        if (!copy)
            return field_no_memory(f);
        *copy = *own;
        json_append(all, &tail, copy);
    }
    c->template_kwargs = all;
    return 0;
}

int common_field_samplers(struct fields *f, const char *name, const struct json *v)
{
    if (v->kind != JSON_STRING && v->kind != JSON_ARRAY)
        return field_wrong_kind(f, name, "a string or an array", v);
    no_effect_note(name);
    return 0;
}

int common_field_service_tier(struct fields *f, const char *name, const struct json *v)
{
    struct str *tier = &f->request->service_tier;

    if (field_enum(f, name, v, "auto|default|flex|scale|priority|fast|ultrafast", tier))
        return -1;
    if (!str_is(*tier, "auto") && !str_is(*tier, "default"))
        no_effect_note(name);
    return 0;
}
