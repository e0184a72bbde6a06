#include "api/common/answer_state.h"
#include "api/openai/openai.h"
#include "api/responses/responses.h"
#include "base/base64.h"
#include "base/mem.h"

#include <stdio.h>

/* One response, told item by item. A stream is
 *
 *     response.created  [response.queued]  response.in_progress
 *     for every item   output_item.added  part.added  delta ...  done  part.done  output_item.done
 *     response.completed | incomplete | failed
 *
 * and every event has its type twice and a number. Items are gathered for the object at the end as
 * they pass, in a stream and for a body alike, so both say the same: for a body, the same calls
 * come and nothing is written before the end.
 *
 * What is made in the background is queued until its model begins with it. When it is cancelled the
 * stream ends as one that failed, for no other event says so, and the object says "cancelled".
 *
 * Thoughts are told in full, as reasoning_text; to clients that ask for a summary, as one, for
 * that is where they look. */

enum kind { KIND_REASONING, KIND_SUMMARY, KIND_MESSAGE, KIND_CALL, N_KINDS, KIND_NONE = N_KINDS };

static const struct {
    const char *prefix, *type;     /* of the item */
    const char *part, *member;     /* the part its text is in, and the item's list of them; NULL */
    const char *place;             /* what says which part an event is about */
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

struct told {
    struct buf items;    /* those that have ended, JSON, with commas */
    struct buf text;     /* of the open one, escaped */
    struct buf logprobs; /* of the open message: a list without brackets */
    struct buf plain;    /* thoughts as they are, when they go out sealed */
    struct buf head;     /* of the open item's deltas: from its id to the text */
    enum kind open;
    const struct answer_call *call; /* of an open call; valid while it is told of */
    int index;                      /* of the open item, or of the next one */
    int n_events;
    const char *status; /* of the whole */
    struct err err;     /* what it failed with */
    bool is_sealed, is_summary;
};

/* ---- what all of it is made of */

static bool is_stream(const struct answer *a)
{
    return a->setup.ask->stream;
}

static void event_begin(struct answer *a, struct jw *w, const char *type)
{
    struct told *t = a->state;

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

static void put_item_id(struct jw *w, const struct answer *a, const char *key)
{
    const struct told *t = a->state;
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

/* The logprobs of a whole text, or none yet. */
static void put_logprobs(struct jw *w, const struct buf *list)
{
    jw_key(w, "logprobs");
    jw_raw(w, STR("["));
    if (list)
        buf_puts(w->b, buf_str(list));
    buf_putc(w->b, ']');
}

/* ---- items */

static void put_part(struct jw *w, const struct told *t, bool is_done)
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

static void put_parts(struct jw *w, const struct told *t, bool is_done)
{
    jw_key(w, kinds[t->open].member);
    jw_array(w);
    if (is_done)
        put_part(w, t, true);
    jw_end_array(w);
}

/* Arguments are text that holds JSON. */
static void put_call(struct jw *w, const struct told *t, bool is_done)
{
    static const struct buf empty;

    jw_key(w, "call_id");
    jw_str(w, t->call->id);
    jw_key(w, "name");
    jw_str(w, t->call->name);
    put_escaped(w, "arguments", is_done ? &t->text : &empty);
}

static void put_sealed(struct jw *w, const struct told *t)
{
    jw_key(w, "encrypted_content");
    jw_raw(w, STR("\"v1."));
    base64_encode(w->b, buf_str(&t->plain));
    buf_putc(w->b, '"');
}

/* status "in_progress": as it begins, with nothing in it. */
static void put_item(struct jw *w, const struct answer *a, const char *status)
{
    const struct told *t = a->state;
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

/* An event about the open item: which one it is. */
static void item_event_begin(struct answer *a, struct jw *w, const char *type)
{
    const struct told *t = a->state;

    event_begin(a, w, type);
    put_item_id(w, a, "item_id");
    jw_member_i64(w, "output_index", t->index);
    if (kinds[t->open].place)
        jw_member_i64(w, kinds[t->open].place, 0);
}

static void tell_item(struct answer *a, const char *type, const char *status)
{
    const struct told *t = a->state;
    struct jw w;

    event_begin(a, &w, type);
    jw_member_i64(&w, "output_index", t->index);
    jw_key(&w, "item");
    put_item(&w, a, status);
    event_end(&w);
}

static void tell_part(struct answer *a, const char *type, bool is_done)
{
    struct jw w;

    if (!type)
        return;
    item_event_begin(a, &w, type);
    jw_key(&w, "part");
    put_part(&w, a->state, is_done);
    event_end(&w);
}

static void tell_done(struct answer *a)
{
    const struct told *t = a->state;
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

/* What every delta of this item says in front of its text, but for its number. */
static void render_head(struct answer *a)
{
    struct told *t = a->state;

    buf_reset(&t->head);
    buf_printf(&t->head, "\"item_id\":\"%s%s_%d\",\"output_index\":%d", kinds[t->open].prefix,
        a->id + strlen("resp_"), t->index, t->index);
    if (kinds[t->open].place)
        buf_printf(&t->head, ",\"%s\":0", kinds[t->open].place);
    buf_putz(&t->head, ",\"delta\":\"");
}

static void open_item(struct answer *a, enum kind kind)
{
    struct told *t = a->state;

    t->open = kind;
    buf_reset(&t->text);
    buf_reset(&t->logprobs);
    buf_reset(&t->plain);
    if (!is_stream(a))
        return;
    render_head(a);
    tell_item(a, "response.output_item.added", "in_progress");
    tell_part(a, kinds[kind].added, false);
}

/* The ends of everything that began with it, innermost first. */
static void tell_end(struct answer *a, const char *status)
{
    const struct told *t = a->state;

    if (!is_stream(a))
        return;
    tell_done(a);
    tell_part(a, kinds[t->open].part_done, true);
    tell_item(a, "response.output_item.done", status);
}

static void close_item(struct answer *a, const char *status)
{
    struct told *t = a->state;
    struct jw w;

    if (t->open == KIND_NONE)
        return;
    tell_end(a, status);
    if (t->items.n)
        buf_putc(&t->items, ',');
    jw_init(&w, &t->items);
    put_item(&w, a, status);
    t->index++;
    t->open = KIND_NONE;
}

static void runs(struct answer *a);

static void need_item(struct answer *a, enum kind kind)
{
    const struct told *t = a->state;

    if (t->open == kind)
        return;
    runs(a);
    close_item(a, "completed");
    open_item(a, kind);
}

/* Everything that is held is bounded like an answer. */
static void check(struct answer *a)
{
    const struct told *t = a->state;

    if (!buf_ok(&t->items) || !buf_ok(&t->text) || !buf_ok(&t->logprobs) || !buf_ok(&t->plain) ||
        !buf_ok(&t->head))
        a->has_failed = true;
}

/* ---- deltas */

static void tell_delta(struct answer *a, const struct choice *c, struct str escaped)
{
    struct told *t = a->state;
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

static void add_text(struct answer *a, struct choice *c, enum kind kind, struct str text)
{
    struct told *t = a->state;

    need_item(a, kind);
    size_t from = t->text.n;
    json_escape(&t->text, text);
    tell_delta(a, c, str_skip(buf_str(&t->text), from));
    if (kind == KIND_REASONING || kind == KIND_SUMMARY)
        buf_puts(&t->plain, t->is_sealed ? text : STR_NONE);
    if (kind == KIND_MESSAGE && c->lists[LIST_TOKENS].n) {
        if (t->logprobs.n)
            buf_putc(&t->logprobs, ',');
        buf_puts(&t->logprobs, buf_str(&c->lists[LIST_TOKENS]));
    }
    check(a);
}

static void text(struct answer *a, struct choice *c, struct str text)
{
    add_text(a, c, KIND_MESSAGE, text);
}

static void reasoning(struct answer *a, struct choice *c, struct str text)
{
    const struct told *t = a->state;

    add_text(a, c, t->is_summary ? KIND_SUMMARY : KIND_REASONING, text);
}

/* ---- calls */

static void call_begin(struct answer *a, struct choice *c, struct answer_call *call)
{
    struct told *t = a->state;

    runs(a);
    close_item(a, "completed");
    t->call = call;
    open_item(a, KIND_CALL);
    check(a);
}

static void call_args(struct answer *a, struct choice *c, struct answer_call *call, struct str json)
{
    struct told *t = a->state;

    t->call = call; /* the list of calls may have moved */
    add_text(a, c, KIND_CALL, json);
}

static void call_end(struct answer *a, struct choice *c, struct answer_call *call)
{
    struct told *t = a->state;

    t->call = call;
    close_item(a, "completed");
    check(a);
}

/* A stream that has told of it says that it is not complete, and readers of streams want an end of
 * every item; but it is none of the answer's items, so that nobody runs it. */
static void call_broken(struct answer *a, struct choice *c, struct answer_call *call)
{
    struct told *t = a->state;

    t->call = call;
    tell_end(a, "incomplete");
    t->index++; /* its id is not given again */
    t->open = KIND_NONE;
    check(a);
}

/* ---- the whole */

static void put_object(struct jw *w, const struct answer *a)
{
    const struct told *t = a->state;
    struct responses_told told = { t->status, buf_str(&t->items), &t->err };

    responses_put_object(w, a, &told);
}

static void tell_object(struct answer *a, const char *type)
{
    struct jw w;

    if (!is_stream(a))
        return;
    event_begin(a, &w, type);
    jw_key(&w, "response");
    put_object(&w, a);
    event_end(&w);
}

static bool wants(const struct ask *ask, const char *what)
{
    const struct json *include = json_get(ask->raw, "include");

    if (include && include->kind == JSON_ARRAY)
        for (const struct json *v = include->child; v; v = v->next)
            if (str_is(v->s, what))
                return true;
    return false;
}

static bool wants_summary(const struct ask *ask)
{
    const struct json *reasoning = json_get(ask->raw, "reasoning");
    const struct json *s = json_get(reasoning, "summary");

    if (json_is_null(s))
        s = json_get(reasoning, "generate_summary");
    return !json_is_null(s) && !str_is(s->s, "none");
}

static void begin(struct answer *a)
{
    const struct ask *ask = a->setup.ask;
    struct told *t = try_calloc(1, sizeof(*t));

    a->state = t;
    if (!t) {
        a->has_failed = true;
        return;
    }
    buf_init(&t->items, ANSWER_BYTES_MAX);
    buf_init(&t->text, ANSWER_BYTES_MAX);
    buf_init(&t->logprobs, ANSWER_BYTES_MAX);
    buf_init(&t->plain, ANSWER_BYTES_MAX);
    buf_init(&t->head, 4 * KB);
    t->open = KIND_NONE;
    t->status = ask->background ? "queued" : "in_progress";
    t->is_sealed = wants(ask, "reasoning.encrypted_content");
    t->is_summary = wants_summary(ask);
}

static void clear(struct answer *a)
{
    struct told *t = a->state;

    if (!t)
        return;
    buf_clear(&t->items);
    buf_clear(&t->text);
    buf_clear(&t->logprobs);
    buf_clear(&t->plain);
    buf_clear(&t->head);
    mem_free(t);
}

static void start(struct answer *a)
{
    tell_object(a, "response.created");
    tell_object(a, a->setup.ask->background ? "response.queued" : "response.in_progress");
}

/* At the latest when there is something to tell. */
static void runs(struct answer *a)
{
    struct told *t = a->state;

    if (strcmp(t->status, "queued") != 0)
        return;
    t->status = "in_progress";
    tell_object(a, "response.in_progress");
}

/* An answer that says nothing is an empty message. */
static void choice_end(struct answer *a, struct choice *c)
{
    struct told *t = a->state;
    bool is_whole = c->finish == FINISH_STOP;

    runs(a);
    if (!t->items.n && t->open == KIND_NONE)
        open_item(a, KIND_MESSAGE);
    close_item(a, is_whole ? "completed" : "incomplete");
    t->status = is_whole ? "completed" : "incomplete";
    check(a);
}

static void end(struct answer *a)
{
    const struct told *t = a->state;

    tell_object(a, !strcmp(t->status, "completed") ? "response.completed" : "response.incomplete");
}

static void body(struct answer *a)
{
    struct jw w;

    jw_init(&w, &a->out);
    put_object(&w, a);
}

/* An item that was under way stays without an end. */
static void failed(struct answer *a, const struct err *e, const struct error_extra *x)
{
    struct told *t = a->state;
    bool is_wish = e->code == ERR_CANCELLED && a->setup.ask->background;

    t->status = is_wish ? "cancelled" : "failed";
    t->err = is_wish ? (struct err){ 0 } : *e;
    if (!buf_ok(&t->items))
        buf_reset(&t->items); /* the last of them is not whole */
    tell_object(a, "response.failed");
}

static void keep(const struct answer *a, struct buf *object, struct buf *input)
{
    struct jw w;

    jw_init(&w, object);
    put_object(&w, a);
    jw_init(&w, input);
    responses_put_input(&w, a);
}

/* ---- one token: {"token","logprob","bytes","top_logprobs"}, as a chat has it */

static void token(struct answer *a, struct choice *c, const struct answer_token *t)
{
    openai_chat_token(a, c, t);
}

const struct wire wire_responses = {
    .name = "openai.responses",
    .id_prefix = "resp_",
    .stream_type = "text/event-stream",
    .keepalive = { ": keep-alive\n\n", 14 },
    .error_form = ERROR_OPENAI,
    .is_gathering = true,
    .parse = responses_parse,
    .begin = begin,
    .clear = clear,
    .start = start,
    .runs = runs,
    .token = token,
    .text = text,
    .reasoning = reasoning,
    .call_begin = call_begin,
    .call_args = call_args,
    .call_end = call_end,
    .call_broken = call_broken,
    .choice_end = choice_end,
    .end = end,
    .body = body,
    .failed = failed,
    .keep = keep,
};
