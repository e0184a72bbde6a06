#include "api/common/response_state.h"
#include "api/openai/openai.h"
#include "api/responses/responses.h"
#include "base/base64.h"
#include "base/mem.h"

#include <stdio.h>

/* responses_response.c: responses as items. A stream is
 *
 *     response.created  [response.queued]  response.in_progress
 *     for every item   output_item.added  part.added  delta ...  done  part.done  output_item.done
 *     [error]  response.completed | incomplete | failed
 *
 * Each event has its type twice, and a sequence number. Items are accumulated for the object at the
 * end, in a stream and for a body; for a body the same callbacks are called and write no events.
 *
 * A background response is queued until its model starts to process it. A cancelled one ends with
 * response.failed, since no event exists for cancellation; the object has the status "cancelled".
 *
 * Reasoning is sent in full as reasoning_text, or as the summary if the client requests one, since
 * such clients display only the summary. Owner: the io thread of the response. */

enum item_kind {
    KIND_REASONING,
    KIND_SUMMARY,
    KIND_MESSAGE,
    KIND_CALL,
    N_KINDS,
    KIND_NONE = N_KINDS
};

static const struct {
    const char *prefix, *type; /* item id prefix, item type */
    /* type of the part with the text, and the item's member with the parts; NULL */
    const char *part, *member;
    const char *place;             /* member that identifies the part in events */
    const char *added, *part_done; /* events of the part */
    const char *delta, *done;      /* events of the text */
} kinds[] = {
    [KIND_REASONING] = { "rs_", "reasoning", "reasoning_text", "content", "content_index",
        "response.content_part.added", "response.content_part.done",
        "response.reasoning_text.delta", "response.reasoning_text.done" },
    [KIND_SUMMARY] = { "rs_", "reasoning", "summary_text", "summary", "summary_index",
        "response.reasoning_summary_part.added", "response.reasoning_summary_part.done",
        "response.reasoning_summary_text.delta", "response.reasoning_summary_text.done" },
    [KIND_MESSAGE] = { "msg_", "message", "output_text", "content", "content_index",
        "response.content_part.added", "response.content_part.done", "response.output_text.delta",
        "response.output_text.done" },
    [KIND_CALL] = { .prefix = "fc_",
        .type = "function_call",
        .delta = "response.function_call_arguments.delta",
        .done = "response.function_call_arguments.done" },
};

struct item_output {
    struct buf items;    /* items that have ended: JSON, separated by commas */
    struct buf text;     /* text of the open item, escaped */
    struct buf logprobs; /* logprobs of the open message: a list without brackets */
    struct buf plain;    /* reasoning without escapes, for encrypted_content */
    /* constant part of the open item's delta events, from its id to the text */
    struct buf head;
    enum item_kind open;
    const struct response_call *call; /* the open call; valid during the callbacks of the call */
    int index;                        /* output index of the open item, or of the next one */
    int n_events;
    const char *status; /* status of the response */
    struct err err;     /* error of a failed response */
    bool is_sealed, is_summary;
};

/* ---- members of events */

static bool is_stream(const struct response *a)
{
    return a->setup.request->stream;
}

static void event_begin(struct response *a, struct jw *w, const char *type)
{
    struct item_output *t = a->state;

    buf_printf(&a->out, "event: %s\ndata: ", type);
    jw_init(w, &a->out);
    jw_object(w);
    jw_key(w, "type");
    jw_z(w, type);
    jw_member_i64(w, "sequence_number", t->n_events++);
}

static void event_end(struct jw *w)
{
    jw_end_object(w);
    buf_putz(w->b, "\n\n");
}

static void put_item_id(struct jw *w, const struct response *a, const char *key)
{
    const struct item_output *t = a->state;
    char id[RESPONSES_ID_MAX];

    snprintf(id, sizeof(id), "%s%s_%d", kinds[t->open].prefix, a->id + strlen("resp_"), t->index);
    jw_key(w, key);
    jw_z(w, id);
}

static void put_escaped(struct jw *w, const char *key, const struct buf *text)
{
    jw_key(w, key);
    jw_raw(w, STR("\""));
    buf_puts(w->b, buf_str(text));
    buf_putc(w->b, '"');
}

/* Writes the logprobs of a complete text, or an empty list. */
static void put_logprobs(struct jw *w, const struct buf *list)
{
    jw_key(w, "logprobs");
    jw_raw(w, STR("["));
    if (list)
        buf_puts(w->b, buf_str(list));
    buf_putc(w->b, ']');
}

/* ---- items */

static void put_part(struct jw *w, const struct item_output *t, bool is_done)
{
    static const struct buf empty;

    jw_object(w);
    jw_key(w, "type");
    jw_z(w, kinds[t->open].part);
    put_escaped(w, "text", is_done ? &t->text : &empty);
    if (t->open == KIND_MESSAGE) {
        jw_key(w, "annotations");
        jw_raw(w, STR("[]"));
        put_logprobs(w, is_done ? &t->logprobs : NULL);
    }
    jw_end_object(w);
}

static void put_parts(struct jw *w, const struct item_output *t, bool is_done)
{
    jw_key(w, kinds[t->open].member);
    jw_array(w);
    if (is_done)
        put_part(w, t, true);
    jw_end_array(w);
}

/* The arguments are a string that contains JSON. */
static void put_call(struct jw *w, const struct item_output *t, bool is_done)
{
    static const struct buf empty;

    jw_key(w, "call_id");
    jw_str(w, t->call->id);
    jw_key(w, "name");
    jw_str(w, t->call->name);
    put_escaped(w, "arguments", is_done ? &t->text : &empty);
}

static void put_sealed(struct jw *w, const struct item_output *t)
{
    jw_key(w, "encrypted_content");
    jw_raw(w, STR("\"v1."));
    base64_encode(w->b, buf_str(&t->plain));
    buf_putc(w->b, '"');
}

/* Writes the open item; with the status "in_progress" its content is empty. */
static void put_item(struct jw *w, const struct response *a, const char *status)
{
    const struct item_output *t = a->state;
    bool is_done = strcmp(status, "in_progress") != 0;

    jw_object(w);
    put_item_id(w, a, "id");
    jw_key(w, "type");
    jw_z(w, kinds[t->open].type);
    jw_key(w, "status");
    jw_z(w, status);
    if (t->open == KIND_MESSAGE) {
        jw_key(w, "role");
        jw_z(w, "assistant");
    }
    if (t->open == KIND_REASONING) {
        jw_key(w, "summary");
        jw_raw(w, STR("[]"));
    }
    if (t->open == KIND_CALL)
        put_call(w, t, is_done);
    else
        put_parts(w, t, is_done);
    if (kinds[t->open].part && t->open != KIND_MESSAGE && t->is_sealed && is_done)
        put_sealed(w, t);
    jw_end_object(w);
}

/* Starts an event about the open item. */
static void item_event_begin(struct response *a, struct jw *w, const char *type)
{
    const struct item_output *t = a->state;

    event_begin(a, w, type);
    put_item_id(w, a, "item_id");
    jw_member_i64(w, "output_index", t->index);
    if (kinds[t->open].place)
        jw_member_i64(w, kinds[t->open].place, 0);
}

static void send_item(struct response *a, const char *type, const char *status)
{
    const struct item_output *t = a->state;
    struct jw w;

    event_begin(a, &w, type);
    jw_member_i64(&w, "output_index", t->index);
    jw_key(&w, "item");
    put_item(&w, a, status);
    event_end(&w);
}

static void send_part(struct response *a, const char *type, bool is_done)
{
    struct jw w;

    if (!type)
        return;
    item_event_begin(a, &w, type);
    jw_key(&w, "part");
    put_part(&w, a->state, is_done);
    event_end(&w);
}

static void send_done(struct response *a)
{
    const struct item_output *t = a->state;
    struct jw w;

    item_event_begin(a, &w, kinds[t->open].done);
    if (t->open == KIND_CALL) {
        jw_key(&w, "name");
        jw_str(&w, t->call->name);
    }
    put_escaped(&w, t->open == KIND_CALL ? "arguments" : "text", &t->text);
    if (t->open == KIND_MESSAGE)
        put_logprobs(&w, &t->logprobs);
    event_end(&w);
}

/* Renders the members of the open item's delta events before the text, except the sequence
 * number. */
static void render_delta_head(struct response *a)
{
    struct item_output *t = a->state;

    buf_reset(&t->head);
    buf_printf(&t->head, "\"item_id\":\"%s%s_%d\",\"output_index\":%d", kinds[t->open].prefix,
        a->id + strlen("resp_"), t->index, t->index);
    if (kinds[t->open].place)
        buf_printf(&t->head, ",\"%s\":0", kinds[t->open].place);
    buf_putz(&t->head, ",\"delta\":\"");
}

static void open_item(struct response *a, enum item_kind kind)
{
    struct item_output *t = a->state;

    t->open = kind;
    buf_reset(&t->text);
    buf_reset(&t->logprobs);
    buf_reset(&t->plain);
    if (!is_stream(a))
        return;
    render_delta_head(a);
    send_item(a, "response.output_item.added", "in_progress");
    send_part(a, kinds[kind].added, false);
}

/* Sends the end events of the open item, innermost first. */
static void send_item_end(struct response *a, const char *status)
{
    const struct item_output *t = a->state;

    if (!is_stream(a))
        return;
    send_done(a);
    send_part(a, kinds[t->open].part_done, true);
    send_item(a, "response.output_item.done", status);
}

static void close_item(struct response *a, const char *status)
{
    struct item_output *t = a->state;
    struct jw w;

    if (t->open == KIND_NONE)
        return;
    send_item_end(a, status);
    if (t->items.n)
        buf_putc(&t->items, ',');
    jw_init(&w, &t->items);
    put_item(&w, a, status);
    t->index++;
    t->open = KIND_NONE;
}

static void mark_in_progress(struct response *a);

static void ensure_item(struct response *a, enum item_kind kind)
{
    const struct item_output *t = a->state;

    if (t->open == kind)
        return;
    mark_in_progress(a);
    close_item(a, "completed");
    open_item(a, kind);
}

/* All buffers are bounded like the response. */
static void check_buffers(struct response *a)
{
    const struct item_output *t = a->state;

    if (!buf_ok(&t->items) || !buf_ok(&t->text) || !buf_ok(&t->logprobs) || !buf_ok(&t->plain) ||
        !buf_ok(&t->head))
        a->has_failed = true;
}

/* ---- deltas */

static void send_delta(struct response *a, const struct response_choice *c, struct str escaped)
{
    struct item_output *t = a->state;
    struct buf *out = &a->out;

    if (!is_stream(a))
        return;
    buf_putz(out, "event: ");
    buf_putz(out, kinds[t->open].delta);
    buf_putz(out, "\ndata: {\"type\":\"");
    buf_putz(out, kinds[t->open].delta);
    buf_putz(out, "\",\"sequence_number\":");
    buf_u64(out, (uint64_t)t->n_events++);
    buf_putc(out, ',');
    buf_puts(out, buf_str(&t->head));
    buf_puts(out, escaped);
    buf_putc(out, '"');
    if (t->open == KIND_MESSAGE) {
        buf_putz(out, ",\"logprobs\":[");
        buf_puts(out, buf_str(&c->lists[LIST_TOKENS]));
        buf_putc(out, ']');
    }
    buf_putz(out, "}\n\n");
}

static void add_text(
    struct response *a, struct response_choice *c, enum item_kind kind, struct str text)
{
    struct item_output *t = a->state;

    ensure_item(a, kind);
    size_t from = t->text.n;
    json_escape(&t->text, text);
    send_delta(a, c, str_skip(buf_str(&t->text), from));
    if (kind == KIND_REASONING || kind == KIND_SUMMARY)
        buf_puts(&t->plain, t->is_sealed ? text : STR_NONE);
    if (kind == KIND_MESSAGE && c->lists[LIST_TOKENS].n) {
        if (t->logprobs.n)
            buf_putc(&t->logprobs, ',');
        buf_puts(&t->logprobs, buf_str(&c->lists[LIST_TOKENS]));
    }
    check_buffers(a);
}

static void send_text(void *ctx, int choice, struct str text)
{
    struct response *a = ctx;
    struct response_choice *c = &a->choices[choice];

    add_text(a, c, KIND_MESSAGE, text);
}

static void send_reasoning(void *ctx, int choice, struct str text)
{
    struct response *a = ctx;
    struct response_choice *c = &a->choices[choice];

    const struct item_output *t = a->state;

    add_text(a, c, t->is_summary ? KIND_SUMMARY : KIND_REASONING, text);
}

/* ---- calls */

static void begin_call(void *ctx, int choice, int call, struct str name)
{
    struct response *a = ctx;
    struct item_output *t = a->state;

    mark_in_progress(a);
    close_item(a, "completed");
    t->call = response_last_call(&a->choices[choice]);
    open_item(a, KIND_CALL);
    check_buffers(a);
}

static void append_call_args(void *ctx, int choice, int call, struct str json)
{
    struct response *a = ctx;
    struct response_choice *c = &a->choices[choice];
    struct item_output *t = a->state;

    t->call = response_last_call(c); /* the array of calls can have been reallocated */
    add_text(a, c, KIND_CALL, json);
}

static void end_call(void *ctx, int choice, int call)
{
    struct response *a = ctx;
    struct item_output *t = a->state;

    t->call = response_last_call(&a->choices[choice]);
    close_item(a, "completed");
    check_buffers(a);
}

/* A stream that has sent the start of the call ends it as incomplete, since clients expect an end
 * of each item. The item is not part of the output. Some clients execute it nevertheless, therefore
 * the stream sends an error before its end. */
static void withdraw_call(void *ctx, int choice, int call)
{
    struct response *a = ctx;
    struct item_output *t = a->state;

    t->call = response_last_call(&a->choices[choice]);
    send_item_end(a, "incomplete");
    a->choices[choice].has_partial_call = is_stream(a);
    t->index++; /* the id is not reused */
    t->open = KIND_NONE;
    check_buffers(a);
}

/* ---- the response */

static void put_object(struct jw *w, const struct response *a)
{
    const struct item_output *t = a->state;
    struct responses_output output = { t->status, buf_str(&t->items), &t->err };

    responses_put_object(w, a, &output);
}

static void send_object(struct response *a, const char *type)
{
    struct jw w;

    if (!is_stream(a))
        return;
    event_begin(a, &w, type);
    jw_key(&w, "response");
    put_object(&w, a);
    event_end(&w);
}

static bool includes(const struct request *request, const char *what)
{
    const struct json *include = json_get(request->raw, "include");

    if (include && include->kind == JSON_ARRAY)
        for (const struct json *v = include->child; v; v = v->next)
            if (str_is(v->s, what))
                return true;
    return false;
}

static bool wants_summary(const struct request *request)
{
    const struct json *reasoning = json_get(request->raw, "reasoning");
    const struct json *s = json_get(reasoning, "summary");

    if (json_is_null(s))
        s = json_get(reasoning, "generate_summary");
    return !json_is_null(s) && !str_is(s->s, "none");
}

static void begin_response(struct response *a)
{
    const struct request *request = a->setup.request;
    struct item_output *t = try_calloc(1, sizeof(*t));

    a->state = t;
    if (!t) {
        a->has_failed = true;
        return;
    }
    buf_init(&t->items, RESPONSE_BYTES_MAX);
    buf_init(&t->text, RESPONSE_BYTES_MAX);
    buf_init(&t->logprobs, RESPONSE_BYTES_MAX);
    buf_init(&t->plain, RESPONSE_BYTES_MAX);
    buf_init(&t->head, 4 * KB);
    t->open = KIND_NONE;
    t->status = request->background ? "queued" : "in_progress";
    t->is_sealed = includes(request, "reasoning.encrypted_content");
    t->is_summary = wants_summary(request);
}

static void clear_response(struct response *a)
{
    struct item_output *t = a->state;

    if (!t)
        return;
    buf_clear(&t->items);
    buf_clear(&t->text);
    buf_clear(&t->logprobs);
    buf_clear(&t->plain);
    buf_clear(&t->head);
    mem_free(t);
}

static void start_stream(struct response *a)
{
    send_object(a, "response.created");
    send_object(a, a->setup.request->background ? "response.queued" : "response.in_progress");
}

/* Called at the latest before the first item. */
static void mark_in_progress(struct response *a)
{
    struct item_output *t = a->state;

    if (strcmp(t->status, "queued") != 0)
        return;
    t->status = "in_progress";
    send_object(a, "response.in_progress");
}

/* A response without output has one empty message. */
static void end_choice(struct response *a, struct response_choice *c)
{
    struct item_output *t = a->state;
    bool is_whole = response_finish(c) == FINISH_STOP;

    mark_in_progress(a);
    if (!t->items.n && t->open == KIND_NONE)
        open_item(a, KIND_MESSAGE);
    close_item(a, is_whole ? "completed" : "incomplete");
    t->status = is_whole ? "completed" : "incomplete";
    check_buffers(a);
}

static void send_partial_call_error(struct response *a)
{
    struct jw w;

    event_begin(a, &w, "error");
    jw_key(&w, "code");
    jw_z(&w, PARTIAL_CALL_CODE);
    jw_key(&w, "message");
    jw_z(&w, response_partial_call_message(&a->choices[0]));
    jw_key(&w, "param");
    jw_null(&w);
    event_end(&w);
}

static void end_stream(struct response *a)
{
    const struct item_output *t = a->state;

    if (a->choices[0].has_partial_call)
        send_partial_call_error(a);
    send_object(a, !strcmp(t->status, "completed") ? "response.completed" : "response.incomplete");
}

static void put_body(struct response *a)
{
    struct jw w;

    jw_init(&w, &a->out);
    put_object(&w, a);
}

/* An open item gets no end events. */
static void fail_response(struct response *a, const struct err *e, const struct error_extra *x)
{
    struct item_output *t = a->state;
    bool is_client_cancel = e->code == ERR_CANCELLED && a->setup.request->background;

    t->status = is_client_cancel ? "cancelled" : "failed";
    t->err = is_client_cancel ? (struct err){ 0 } : *e;
    if (!buf_ok(&t->items))
        buf_reset(&t->items); /* the last item is incomplete */
    send_object(a, "response.failed");
}

static void serialize_response(const struct response *a, struct buf *object, struct buf *input)
{
    struct jw w;

    jw_init(&w, object);
    put_object(&w, a);
    jw_init(&w, input);
    responses_put_input(&w, a);
}

/* ---- logprobs of a token: {"token","logprob","bytes","top_logprobs"}, as in a chat */

static void append_token(
    struct response *a, struct response_choice *c, const struct response_token *t)
{
    openai_chat_token(a, c, t);
}

static const struct output_ops output_ops = {
    .content = send_text,
    .reasoning = send_reasoning,
    .call_begin = begin_call,
    .call_args = append_call_args,
    .call_end = end_call,
    .call_broken = withdraw_call,
};

/* Parameters that the response object repeats (responses_object.c), and those read above. */
static const char *const kept_fields[] = { "include", "instructions", "max_output_tokens",
    "max_tool_calls", "metadata", "parallel_tool_calls", "previous_response_id", "prompt_cache_key",
    "reasoning", "safety_identifier", "temperature", "text", "tool_choice", "tools", "top_p",
    "truncation", "user", NULL };

const struct dialect dialect_responses = {
    .name = "openai.responses",
    .needs = { .fields = kept_fields },
    .id_prefix = "resp_",
    .stream_type = "text/event-stream",
    .keepalive = { ": keep-alive\n\n", 14 },
    .error_form = ERROR_OPENAI,
    .is_incremental = true,
    .parse = responses_parse,
    .begin = begin_response,
    .clear = clear_response,
    .start = start_stream,
    .set_running = mark_in_progress,
    .token = append_token,
    .output = &output_ops,
    .choice_end = end_choice,
    .end = end_stream,
    .body = put_body,
    .failed = fail_response,
    .serialize = serialize_response,
};
