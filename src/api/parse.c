#include "api/parse.h"
#include "api/common/body.h"
#include "output/parser.h"

enum { VALUES_MAX = 4 * 1024 * 1024 };

static const struct json_limits limits = { .max_depth = 128, .max_nodes = VALUES_MAX };

static int read_chunks(struct parse_request *out, const struct json *o, struct err *e)
{
    if (body_text(o, "text", &out->text, e) || body_array(o, "chunks", &out->chunks, e))
        return -1;
    if (!out->chunks && !out->text.p)
        return err_param(e, ERR_MISSING, "chunks", "'chunks' is missing; it is required.");
    if (!out->chunks)
        return 0;
    for (const struct json *c = out->chunks->child; c; c = c->next)
        if (c->kind != JSON_STRING)
            return err_param(e, ERR_INVALID, "chunks", "'chunks' must be an array of strings.");
    return 0;
}

int parse_request_read(struct parse_request *out, struct str body, struct arena *a, struct err *e)
{
    struct json *o;

    *out = (struct parse_request){ .tools = NULL };
    if (body_object(&o, body, &limits, a, e))
        return -1;
    const struct json *start = json_get(o, "in_thinking");
    if (!json_is_null(start) && start->kind != JSON_BOOL)
        return err_param(e, ERR_INVALID, "in_thinking", "'in_thinking' must be a boolean.");
    out->has_start = !json_is_null(start);
    out->in_thinking = out->has_start && start->b;
    if (body_text(o, "tool_parser", &out->tool_parser, e) ||
        body_text(o, "thinking_parser", &out->thinking_parser, e) ||
        body_array(o, "tools", &out->tools, e))
        return -1;
    return read_chunks(out, o, e);
}

/* ---- response: each output event is written as a delta and added to the whole */

struct parse_output {
    struct parsed whole;
    struct jw *w;
};

static void delta_text(struct parse_output *t, const char *key, struct str text)
{
    jw_object(t->w);
    jw_key(t->w, key);
    jw_str(t->w, text);
    jw_end_object(t->w);
}

static void on_content(void *ctx, int choice, struct str text)
{
    struct parse_output *t = ctx;

    delta_text(t, "content", text);
    parsed_ops.content(&t->whole, choice, text);
}

static void on_reasoning(void *ctx, int choice, struct str text)
{
    struct parse_output *t = ctx;

    delta_text(t, "reasoning", text);
    parsed_ops.reasoning(&t->whole, choice, text);
}

static void put_id(struct jw *w, int index)
{
    char id[24];
    struct buf b;

    buf_init(&b, sizeof(id));
    jw_key(w, "id");
    buf_printf(&b, "call_%d", index);
    jw_str(w, buf_str(&b));
    buf_clear(&b);
    jw_key(w, "type");
    jw_z(w, "function");
}

static void put_function(struct jw *w, struct str name, struct str arguments)
{
    jw_key(w, "function");
    jw_object(w);
    if (name.p) {
        jw_key(w, "name");
        jw_str(w, name);
    }
    jw_key(w, "arguments");
    jw_str(w, arguments);
    jw_end_object(w);
}

static void delta_call(struct parse_output *t, int index, struct str name, struct str arguments)
{
    struct jw *w = t->w;

    jw_object(w);
    jw_key(w, "tool_calls");
    jw_array(w);
    jw_object(w);
    jw_key(w, "index");
    jw_i64(w, index);
    if (name.p)
        put_id(w, index);
    put_function(w, name, arguments);
    jw_end_object(w);
    jw_end_array(w);
    jw_end_object(w);
}

static void on_call_begin(void *ctx, int choice, int call, struct str name)
{
    struct parse_output *t = ctx;

    delta_call(t, call, name, STR(""));
    parsed_ops.call_begin(&t->whole, choice, call, name);
}

static void on_call_args(void *ctx, int choice, int call, struct str json)
{
    struct parse_output *t = ctx;

    delta_call(t, call, STR_NONE, json);
    parsed_ops.call_args(&t->whole, choice, call, json);
}

static void on_call_end(void *ctx, int choice, int call)
{
    struct parse_output *t = ctx;

    parsed_ops.call_end(&t->whole, choice, call);
}

static void on_call_broken(void *ctx, int choice, int call)
{
    struct parse_output *t = ctx;

    jw_object(t->w);
    jw_key(t->w, "broken_call");
    jw_i64(t->w, call);
    jw_end_object(t->w);
    parsed_ops.call_broken(&t->whole, choice, call);
}

static const struct output_ops parse_output_ops = { on_content, on_reasoning, on_call_begin,
    on_call_args, on_call_end, on_call_broken };

static int feed_parser(struct parser *p, const struct parse_request *request, struct err *e)
{
    if (!request->chunks)
        return parser_put(p, request->text, e) || parser_end(p, e) ? -1 : 0;
    for (const struct json *c = request->chunks->child; c; c = c->next)
        if (parser_put(p, c->s, e))
            return -1;
    return parser_end(p, e);
}

static void put_whole(struct jw *w, const struct parsed *r)
{
    jw_key(w, "content");
    jw_str(w, buf_str(&r->content));
    jw_key(w, "reasoning");
    if (r->reasoning.n)
        jw_str(w, buf_str(&r->reasoning));
    else
        jw_null(w);
    jw_key(w, "tool_calls");
    jw_array(w);
    for (int i = 0; i < r->n_calls; i++) {
        jw_object(w);
        put_id(w, i);
        put_function(w, r->calls[i].name, r->calls[i].arguments);
        jw_end_object(w);
    }
    jw_end_array(w);
    jw_key(w, "finish_reason");
    jw_z(w, r->n_calls ? "tool_calls" : "stop");
}

static int parse_chunks(struct parse_output *t, const struct parser_format *f,
    const struct parse_request *request, struct err *e)
{
    struct parser_options o = { request->tools, PARSER_START_DEFAULT };

    if (request->has_start)
        o.start = request->in_thinking ? PARSER_START_REASONING : PARSER_START_CONTENT;
    struct parser *p = parser_new(f, &o, &parse_output_ops, t);
    if (!p)
        return err_set(e, ERR_MEMORY, "No memory for this request.");
    int rc = feed_parser(p, request, e);
    parser_free(p);
    if (!rc && t->whole.failed)
        rc = err_set(e, ERR_MEMORY, "No memory for this request.");
    return rc;
}

int parse_put_response(struct buf *out, const struct parse_request *request, struct err *e)
{
    struct parser_format *f = NULL;
    struct parse_output t;
    struct buf deltas;
    struct jw w, list;

    if (parser_format_new(&f, request->tool_parser, request->thinking_parser, e))
        return -1;
    buf_init(&deltas, out->max);
    jw_init(&list, &deltas);
    jw_array(&list);
    t.w = &list;
    parsed_init(&t.whole, out->max);
    int rc = parse_chunks(&t, f, request, e);
    jw_end_array(&list);
    if (!rc && !buf_ok(&deltas))
        rc = err_set(e, ERR_MEMORY, "No memory for this request.");
    if (!rc) {
        jw_init(&w, out);
        jw_object(&w);
        put_whole(&w, &t.whole);
        jw_key(&w, "deltas");
        jw_raw(&w, buf_str(&deltas));
        jw_end_object(&w);
    }
    buf_clear(&deltas);
    parsed_clear(&t.whole);
    parser_format_free(f);
    return rc;
}
