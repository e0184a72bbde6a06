#include "api/common/response_state.h"
#include "api/responses/responses.h"
#include "base/base64.h"

#include <stdio.h>

/* responses_object.c: the response object and its input items as JSON. Request parameters are
 * copied from request->raw as the client sent them. Any thread. */

/* ---- the object */

static void echo_parameter(
    struct jw *w, const struct request *request, const char *key, struct str default_value)
{
    const struct json *v = json_get(request->raw, key);

    jw_key(w, key);
    if (json_is_null(v))
        jw_raw(w, default_value);
    else
        jw_json(w, v);
}

static void put_error(struct jw *w, const struct err *e)
{
    jw_key(w, "error");
    if (!e || !e->code) {
        jw_null(w);
        return;
    }
    jw_object(w);
    jw_key(w, "code");
    jw_z(w, e->code == ERR_RATE ? "rate_limit_exceeded" : "server_error");
    jw_key(w, "message");
    jw_z(w, e->msg);
    jw_end_object(w);
}

static void put_reasoning(struct jw *w, const struct request *request)
{
    const struct json *v = json_get(request->raw, "reasoning");
    const struct json *effort = json_get(v, "effort"), *summary = json_get(v, "summary");

    jw_key(w, "reasoning");
    jw_object(w);
    jw_key(w, "effort");
    if (json_is_null(effort))
        jw_null(w);
    else
        jw_json(w, effort);
    jw_key(w, "summary");
    if (json_is_null(summary) || str_is(summary->s, "none"))
        jw_null(w);
    else
        jw_json(w, summary);
    jw_end_object(w);
}

static void put_text_config(struct jw *w, const struct request *request)
{
    const struct json *v = json_get(request->raw, "text");
    const struct json *format = json_get(v, "format"), *verbosity = json_get(v, "verbosity");

    jw_key(w, "text");
    jw_object(w);
    jw_key(w, "format");
    if (json_is_null(format))
        jw_raw(w, STR("{\"type\":\"text\"}"));
    else
        jw_json(w, format);
    if (!json_is_null(verbosity)) {
        jw_key(w, "verbosity");
        jw_json(w, verbosity);
    }
    jw_end_object(w);
}

static void put_usage(struct jw *w, const struct response *a, bool is_known)
{
    struct response_counts n = response_counts(a);

    jw_key(w, "usage");
    if (!is_known) {
        jw_null(w);
        return;
    }
    jw_raw(w, STR("{\"input_tokens\":"));
    buf_printf(w->b,
        "%d,\"input_tokens_details\":{\"cached_tokens\":%d,\"cache_write_tokens\":0},"
        "\"output_tokens\":%d,\"output_tokens_details\":{\"reasoning_tokens\":%d},"
        "\"total_tokens\":%d}",
        n.prompt_tokens, n.cached_tokens, n.completion_tokens, n.reasoning_tokens,
        n.prompt_tokens + n.completion_tokens);
}

static void put_status(struct jw *w, const char *status, bool background, const struct err *e)
{
    jw_key(w, "status");
    jw_z(w, status);
    jw_key(w, "background");
    jw_bool(w, background);
    put_error(w, e);
}

/* Writes the request parameters. */
static void put_parameters(struct jw *w, const struct request *request)
{
    echo_parameter(w, request, "instructions", STR("null"));
    echo_parameter(w, request, "max_output_tokens", STR("null"));
    echo_parameter(w, request, "max_tool_calls", STR("null"));
    echo_parameter(w, request, "metadata", STR("{}"));
    echo_parameter(w, request, "parallel_tool_calls", STR("true"));
    echo_parameter(w, request, "previous_response_id", STR("null"));
    echo_parameter(w, request, "prompt_cache_key", STR("null"));
    put_reasoning(w, request);
    echo_parameter(w, request, "safety_identifier", STR("null"));
    jw_key(w, "service_tier");
    jw_z(w, "default"); /* the tier that the request received, whichever was requested */
    jw_key(w, "store");
    jw_bool(w, request->store);
    echo_parameter(w, request, "temperature", STR("1"));
    put_text_config(w, request);
    echo_parameter(w, request, "tool_choice", STR("\"auto\""));
    echo_parameter(w, request, "tools", STR("[]"));
    jw_key(w, "top_logprobs");
    jw_i64(w, request->sample.n_top);
    echo_parameter(w, request, "top_p", STR("1"));
    echo_parameter(w, request, "truncation", STR("\"disabled\""));
    echo_parameter(w, request, "user", STR("null"));
}

/* Returns the seconds from queueing to the end, or 0 if the times are not set. */
static int64_t duration_s(const struct response *a)
{
    const struct response_times *t = &a->times;

    return t->ended_ns > t->queued_ns ? (int64_t)((t->ended_ns - t->queued_ns) / NS_PER_S) : 0;
}

void responses_put_object(struct jw *w, const struct response *a, const struct responses_output *t)
{
    const struct request *request = a->setup.request;
    bool is_done = !strcmp(t->status, "completed"), is_cut = !strcmp(t->status, "incomplete");
    bool has_ended = strcmp(t->status, "queued") && strcmp(t->status, "in_progress");

    jw_object(w);
    jw_key(w, "id");
    jw_z(w, a->id);
    jw_key(w, "object");
    jw_z(w, "response");
    jw_key(w, "created_at");
    jw_i64(w, a->setup.created);
    jw_key(w, "completed_at");
    if (is_done)
        jw_i64(w, a->setup.created + duration_s(a));
    else
        jw_null(w);
    put_status(w, t->status, request->background, t->err);
    jw_key(w, "incomplete_details");
    if (is_cut && a->choices[0].finish == FINISH_FILTERED)
        jw_raw(w, STR("{\"reason\":\"content_filter\"}"));
    else if (is_cut)
        jw_raw(w, STR("{\"reason\":\"max_output_tokens\"}"));
    else
        jw_null(w);
    jw_key(w, "model");
    jw_str(w, a->setup.model);
    jw_key(w, "output");
    jw_raw(w, STR("["));
    buf_puts(w->b, t->items);
    buf_putc(w->b, ']');
    put_parameters(w, request);
    put_usage(w, a, is_done || is_cut);
    if (has_ended)
        response_put_constraint(w->b, a, &a->choices[0]);
    jw_end_object(w);
}

/* No text of the client precedes these members, so the first match is the one that put_status
 * wrote. */
void responses_set_status(
    struct buf *out, struct str object, const char *status, const struct err *e)
{
    const struct str queued = STR("\"status\":\"queued\",\"background\":true,\"error\":null");
    ptrdiff_t at = str_find(object, queued);
    struct jw w;

    CHECK(at > 0);
    buf_puts(out, (struct str){ object.p, (size_t)at });
    jw_init(&w, out);
    put_status(&w, status, true, e);
    buf_puts(out, str_skip(object, (size_t)at + queued.n));
}

void responses_put_failed(struct buf *out, struct str object, uint64_t n)
{
    buf_putz(out, "event: response.failed\ndata: {\"type\":\"response.failed\","
                  "\"sequence_number\":");
    buf_u64(out, n);
    buf_putz(out, ",\"response\":");
    buf_puts(out, object);
    buf_putz(out, "}\n\n");
}

/* ---- stored input items */

static void put_part(struct jw *w, const char *type, struct str text)
{
    jw_array(w);
    jw_object(w);
    jw_key(w, "type");
    jw_z(w, type);
    jw_key(w, "text");
    jw_str(w, text);
    if (!strcmp(type, "output_text")) {
        jw_key(w, "annotations");
        jw_raw(w, STR("[]"));
    }
    jw_end_object(w);
    jw_end_array(w);
}

static void put_string_item(struct jw *w, const char *id, struct str text)
{
    jw_object(w);
    jw_key(w, "id");
    jw_z(w, id);
    jw_key(w, "type");
    jw_z(w, "message");
    jw_key(w, "role");
    jw_z(w, "user");
    jw_key(w, "status");
    jw_z(w, "completed");
    jw_key(w, "content");
    put_part(w, "input_text", text);
    jw_end_object(w);
}

/* Writes a part. An assistant's text gets annotations, since strict clients require them. */
static void put_own_part(struct jw *w, const struct json *p, bool is_output)
{
    bool lacks = is_output && p->kind == JSON_OBJECT && json_is_null(json_get(p, "annotations")) &&
                 !json_is_null(json_get(p, "text"));

    if (!lacks) {
        jw_json(w, p);
        return;
    }
    jw_object(w);
    for (const struct json *m = p->child; m; m = m->next) {
        if (str_is(m->key, "annotations"))
            continue;
        jw_key_str(w, m->key);
        jw_json(w, m);
    }
    jw_key(w, "annotations");
    jw_raw(w, STR("[]"));
    jw_end_object(w);
}

static void put_content(struct jw *w, const struct json *v, bool is_output)
{
    if (v->kind != JSON_ARRAY) {
        put_part(w, is_output ? "output_text" : "input_text", v->s);
        return;
    }
    jw_array(w);
    for (const struct json *p = v->child; p; p = p->next)
        put_own_part(w, p, is_output);
    jw_end_array(w);
}

static bool is_absent(const struct json *v, const char *key)
{
    return json_is_null(json_get(v, key));
}

static void put_item(struct jw *w, const char *id, const struct json *v)
{
    const struct json *role = json_get(v, "role"), *type = json_get(v, "type");
    bool is_message = json_is_null(type) || str_is(type->s, "message");
    bool is_output = is_message && role && str_is(role->s, "assistant");

    jw_object(w);
    if (is_absent(v, "id")) {
        jw_key(w, "id");
        jw_z(w, id);
    }
    if (is_absent(v, "type")) {
        jw_key(w, "type");
        jw_z(w, "message");
    }
    if (is_absent(v, "status")) {
        jw_key(w, "status");
        jw_z(w, "completed");
    }
    for (const struct json *m = v->child; m; m = m->next) {
        if (m->kind == JSON_NULL)
            continue;
        jw_key_str(w, m->key);
        if (is_message && str_is(m->key, "content"))
            put_content(w, m, is_output);
        else
            jw_json(w, m);
    }
    jw_end_object(w);
}

static const char *id_prefix(const struct json *v)
{
    const struct json *type = json_get(v, "type");

    if (json_is_null(type) || str_is(type->s, "message"))
        return "msg_";
    return str_is(type->s, "reasoning") ? "rs_" : "fc_";
}

void responses_put_input(struct jw *w, const struct response *a)
{
    const struct json *items = a->setup.request->items, *v;
    struct str own = str_skip(str_of(a->id), strlen("resp_"));
    char id[RESPONSES_ID_MAX];
    int i = 0;

    jw_array(w);
    if (items && items->kind == JSON_STRING && items->s.n) {
        snprintf(id, sizeof(id), "msg_%.*s_i0", (int)own.n, own.p);
        put_string_item(w, id, items->s);
    }
    if (items && items->kind == JSON_ARRAY)
        for (v = items->child; v; v = v->next, i++) {
            snprintf(id, sizeof(id), "%s%.*s_i%d", id_prefix(v), (int)own.n, own.p, i);
            put_item(w, id, v);
        }
    jw_end_array(w);
}

/* ---- pages of input items */

static const struct json **collect_items(
    const struct json *list, bool is_ascending, struct arena *a)
{
    const struct json **all = arena_zalloc(a, list->n + 1u, sizeof(struct json *));
    const struct json *v = list->child;

    for (uint32_t i = 0; all && v; v = v->next, i++)
        all[is_ascending ? i : list->n - 1 - i] = v;
    return all;
}

static struct str id_of(const struct json *v)
{
    const struct json *id = json_get(v, "id");

    return id && id->kind == JSON_STRING ? id->s : STR("");
}

int responses_list_input(struct buf *out, struct str input, const struct responses_page *page,
    struct arena *a, struct err *e)
{
    size_t from = 0, to;
    struct json *list;
    struct jw w;

    if (json_parse(&list, input, a, NULL, e))
        return -1;
    const struct json **all = collect_items(list, page->is_ascending, a);
    if (!all)
        return err_set(e, ERR_MEMORY, "No memory for this request.");
    for (size_t i = 0; page->after.p && i < list->n; i++)
        if (str_eq(id_of(all[i]), page->after))
            from = i + 1;
    to = MIN(from + page->limit, (size_t)list->n);
    jw_init(&w, out);
    jw_object(&w);
    jw_key(&w, "object");
    jw_z(&w, "list");
    jw_key(&w, "data");
    jw_array(&w);
    for (size_t i = from; i < to; i++)
        jw_json(&w, all[i]);
    jw_end_array(&w);
    jw_key(&w, "first_id");
    jw_str(&w, to > from ? id_of(all[from]) : STR(""));
    jw_key(&w, "last_id");
    jw_str(&w, to > from ? id_of(all[to - 1]) : STR(""));
    jw_key(&w, "has_more");
    jw_bool(&w, to < list->n);
    jw_end_object(&w);
    return 0;
}

void responses_deleted(struct buf *out, struct str id)
{
    struct jw w;

    jw_init(&w, out);
    jw_object(&w);
    jw_key(&w, "id");
    jw_str(&w, id);
    jw_key(&w, "object");
    jw_z(&w, "response");
    jw_key(&w, "deleted");
    jw_bool(&w, true);
    jw_end_object(&w);
}

void responses_count(struct buf *out, int n)
{
    buf_printf(out, "{\"object\":\"response.input_tokens\",\"input_tokens\":%d}", n);
}
