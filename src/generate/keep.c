#include "generate/keep.h"

/* Copies for one request. Without memory `has_failed` is set and the copies are empty. */
struct keeper {
    struct arena *to;
    bool has_failed;
};

static void *keep_bytes(struct keeper *k, const void *p, size_t n)
{
    void *copy = p && n ? arena_alloc(k->to, n) : NULL;

    if (copy)
        return memcpy(copy, p, n);
    k->has_failed |= p && n;
    return NULL;
}

static struct str keep_str(struct keeper *k, struct str s)
{
    struct str copy = s.p ? arena_str(k->to, s) : STR_NONE;

    k->has_failed |= s.p && !copy.p;
    return copy;
}

static struct str *keep_strs(struct keeper *k, const struct str *list, int n)
{
    struct str *copy = keep_bytes(k, list, (size_t)n * sizeof(*list));

    for (int i = 0; copy && i < n; i++)
        copy[i] = keep_str(k, list[i]);
    return copy;
}

static struct json *keep_json(struct keeper *k, const struct json *j)
{
    struct json *copy = j ? json_copy(j, k->to) : NULL;

    k->has_failed |= j && !copy;
    return copy;
}

/* The members of the body that the response formatter reads, as an object. */
static const struct json *keep_fields(
    struct keeper *k, const struct json *body, const char *const *fields)
{
    struct json *kept = arena_zalloc(k->to, 1, sizeof(*kept));

    k->has_failed |= !kept;
    if (!kept)
        return NULL;
    kept->kind = JSON_OBJECT;
    struct json **tail = &kept->child;
    for (; fields && *fields; fields++) {
        struct json *member = keep_json(k, json_get(body, *fields));
        if (member)
            json_append(kept, &tail, member);
    }
    return kept;
}

static struct request_prompt *keep_prompt_texts(struct keeper *k, const struct request *from)
{
    struct request_prompt *copy = arena_zalloc(k->to, (size_t)from->n_prompts, sizeof(*copy));

    k->has_failed |= !copy;
    for (int i = 0; copy && i < from->n_prompts; i++) {
        copy[i].is_tokens = from->prompts[i].is_tokens;
        copy[i].text = keep_str(k, from->prompts[i].text);
    }
    return copy;
}

static struct prompt *keep_prompts(
    struct keeper *k, const struct prompt *from, const struct request *request)
{
    int n = request->n_prompts;
    struct prompt *copy = keep_bytes(k, from, (size_t)n * sizeof(*from));

    for (int i = 0; copy && i < n; i++) {
        struct parser_options *parse = &copy[i].output.parse;
        copy[i].ids = keep_bytes(k, from[i].ids, (size_t)from[i].n * sizeof(*from[i].ids));
        copy[i].text = request->echo ? keep_str(k, from[i].text) : STR_NONE;
        copy[i].output.opening = keep_str(k, from[i].output.opening);
        parse->tools = keep_json(k, parse->tools);
        parse->names = keep_strs(k, parse->names, parse->n_names);
    }
    return copy;
}

static void keep_sampling(struct keeper *k, struct sample_params *s)
{
    s->bias = keep_bytes(k, s->bias, (size_t)s->n_bias * sizeof(*s->bias));
    s->allowed = keep_bytes(k, s->allowed, (size_t)s->n_allowed * sizeof(*s->allowed));
}

/* Drops what was only needed to build the prompts. `tools` remains as a sign that there are some
 * (tool_choice_check). */
static void drop_input(struct request *r)
{
    static const struct json no_tools = { .kind = JSON_ARRAY };

    r->model = STR_NONE;
    r->convo = (struct convo){ 0 };
    r->prompts = NULL;
    r->tools = r->tools ? &no_tools : NULL;
    r->tool_name = r->reasoning_effort = STR_NONE;
    r->allowed_tools = NULL;
    r->n_allowed_tools = 0;
    r->constraint = (struct request_constraint){ .is_set = r->constraint.is_set,
        .source = { .kind = r->constraint.source.kind } };
    r->text_bias = NULL;
    r->n_text_bias = 0;
    r->user = r->safety_identifier = r->prompt_cache_key = r->request_id = STR_NONE;
    r->metadata = NULL;
    r->prediction = r->previous_id = STR_NONE;
    r->script = (struct request_script){ 0 };
}

int request_keep(struct request *request, struct prompt **prompts,
    const struct request_needs *needs, struct arena *to, struct err *e)
{
    struct keeper k = { to, false };
    struct request kept = *request;

    drop_input(&kept);
    kept.raw = keep_fields(&k, request->raw, needs->fields);
    if (needs->prompt_text && request->prompts)
        kept.prompts = keep_prompt_texts(&k, request);
    kept.stops = keep_strs(&k, request->stops, request->n_stops);
    kept.stop_ids =
        keep_bytes(&k, request->stop_ids, (size_t)request->n_stop_ids * sizeof(*kept.stop_ids));
    kept.service_tier = keep_str(&k, request->service_tier);
    kept.cache_salt = keep_str(&k, request->cache_salt);
    kept.items = request->store ? keep_json(&k, request->items) : NULL;
    keep_sampling(&k, &kept.sample);
    struct prompt *all = *prompts ? keep_prompts(&k, *prompts, request) : NULL;
    if (k.has_failed)
        return err_set(e, ERR_MEMORY, "no memory for the request");
    *request = kept;
    *prompts = all;
    return 0;
}
