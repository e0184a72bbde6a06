#include "api/anthropic/anthropic.h"
#include "api/common/response_state.h"

/* anthropic_response.c: response messages and their events. A stream is
 *
 *     message_start  ping  the content blocks (anthropic_blocks.c)  message_delta  message_stop
 *
 * Each event has its name twice, since clients dispatch on the line `event:`. Owner: the io
 * thread. */

static bool ends_in_stop_string(const struct response_choice *c)
{
    return c->stop_text.p && !c->ends_inside_call && !c->has_partial_call;
}

/* The SDKs execute no call of a message that ends with max_tokens, which therefore also ends a
 * message with an incomplete call. */
static const char *stop_reason(const struct request *request, const struct response_choice *c)
{
    switch (c->finish) {
    case FINISH_STOP:
        if (c->ends_inside_call || c->has_partial_call)
            return "max_tokens";
        return c->stop_text.p ? "stop_sequence" : c->ends_in_calls ? "tool_use" : "end_turn";
    case FINISH_FILTERED:
        return "refusal";
    case FINISH_NONE:
    case FINISH_LENGTH:
    case FINISH_CANCELLED:
    case FINISH_ERROR:
    case FINISH_UNMET:
        break;
    }
    /* Fewer tokens than requested: the context is full. */
    return c->n_tokens < request->max_tokens ? "model_context_window_exceeded" : "max_tokens";
}

static void put_stop(struct jw *w, const struct response *a)
{
    const struct response_choice *c = &a->choices[0];

    jw_key(w, "stop_reason");
    if (c->has_ended)
        jw_z(w, stop_reason(a->setup.request, c));
    else
        jw_null(w);
    jw_key(w, "stop_sequence");
    if (c->has_ended && ends_in_stop_string(c))
        jw_str(w, c->stop_text);
    else
        jw_null(w);
    jw_key(w, "stop_details");
    jw_null(w);
    if (c->has_ended)
        response_put_constraint(w->b, a, c);
}

/* input_tokens counts the uncached tokens: the whole prompt is the sum of the three counts. */
static void put_usage(struct jw *w, const struct response *a)
{
    struct response_counts n = response_counts(a);

    jw_key(w, "usage");
    jw_object(w);
    jw_member_i64(w, "input_tokens", MAX(n.prompt_tokens - n.cached_tokens, 0));
    jw_member_i64(w, "cache_creation_input_tokens", 0);
    jw_member_i64(w, "cache_read_input_tokens", n.cached_tokens);
    jw_member_i64(w, "output_tokens", n.completion_tokens);
    jw_key(w, "output_tokens_details");
    jw_object(w);
    jw_member_i64(w, "thinking_tokens", n.reasoning_tokens);
    jw_end_object(w);
    jw_key(w, "service_tier");
    jw_z(w, "standard");
    jw_end_object(w);
}

/* Writes a message up to the bracket that opens its content. */
static void put_message_head(struct buf *out, const struct response *a)
{
    struct jw w;

    jw_init(&w, out);
    jw_object(&w);
    jw_key(&w, "id");
    jw_z(&w, a->id);
    jw_key(&w, "type");
    jw_z(&w, "message");
    jw_key(&w, "role");
    jw_z(&w, "assistant");
    jw_key(&w, "model");
    jw_str(&w, a->setup.model);
    buf_putz(out, ",\"content\":[");
}

/* Writes a message from the bracket after its content to the closing brace. */
static void put_message_end(struct buf *out, const struct response *a)
{
    struct jw w;

    buf_putz(out, "],");
    jw_init(&w, out);
    put_stop(&w, a);
    put_usage(&w, a);
    buf_putc(out, '}');
}

/* ---- events */

static void event_begin(struct buf *out, struct jw *w, const char *name)
{
    buf_printf(out, "event: %s\ndata: ", name);
    jw_init(w, out);
    jw_object(w);
    jw_key(w, "type");
    jw_z(w, name);
}

static void event_end(struct jw *w)
{
    jw_end_object(w);
    buf_putz(w->b, "\n\n");
}

#define PING "event: ping\ndata: {\"type\":\"ping\"}\n\n"

static void begin_message(struct response *a)
{
    if (!a->setup.request->stream)
        put_message_head(&a->out, a);
}

static void start_stream(struct response *a)
{
    buf_putz(&a->out, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":");
    put_message_head(&a->out, a);
    put_message_end(&a->out, a);
    buf_putz(&a->out, "}\n\n" PING);
}

static void ignore_token(
    struct response *a, struct response_choice *c, const struct response_token *t)
{
    /* This dialect has no logprobs. */
}

static void end_stream(struct response *a)
{
    struct jw w;

    event_begin(&a->out, &w, "message_delta");
    jw_key(&w, "delta");
    jw_object(&w);
    put_stop(&w, a);
    jw_end_object(&w);
    put_usage(&w, a);
    event_end(&w);
    event_begin(&a->out, &w, "message_stop");
    event_end(&w);
}

static void end_body(struct response *a)
{
    put_message_end(&a->out, a);
}

static void put_error_frame(struct buf *out, const struct err *e, const struct error_extra *x)
{
    buf_putz(out, "event: error\ndata: ");
    anthropic_error(out, e, x);
    buf_putz(out, "\n\n");
}

/* ---- dialects */

static const char *const kept_fields[] = { "tools", NULL }; /* anthropic_is_eager */

const struct dialect dialect_anthropic = {
    .name = "anthropic",
    .needs = { .fields = kept_fields },
    .id_prefix = "msg_",
    .stream_type = "text/event-stream",
    .keepalive = { PING, sizeof(PING) - 1 },
    .error_form = ERROR_ANTHROPIC,
    .call_prefix = "toolu_",
    .keeps_reasoning = true,
    .is_incremental = true,
    .parse = anthropic_parse,
    .begin = begin_message,
    .start = start_stream,
    .token = ignore_token,
    .output = &anthropic_output_ops,
    .choice_end = anthropic_close_block,
    .end = end_stream,
    .body = end_body,
    .error_frame = put_error_frame,
};

const struct dialect dialect_anthropic_count = {
    .name = "anthropic.count",
    .id_prefix = "",
    .error_form = ERROR_ANTHROPIC,
    .parse = anthropic_parse_count,
};
