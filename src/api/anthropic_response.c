#include "api/anthropic.h"
#include "api/answer_state.h"

/* One message, told. A stream is
 *
 *     message_start  ping
 *     content_block_start  content_block_delta ...  content_block_stop     only if there is text
 *     message_delta  message_stop
 *
 * and every event has its name twice, since clients dispatch on the line `event:`. */

static const char *stop_reason(const struct ask *ask, const struct choice *c)
{
    switch (c->finish) {
    case FINISH_STOP:
        return c->stop_text.p ? "stop_sequence" : "end_turn";
    case FINISH_NONE:
    case FINISH_LENGTH:
    case FINISH_CANCELLED:
    case FINISH_ERROR:
        break;
    }
    /* Less than it asked for: the context was full. */
    return c->n_tokens < ask->max_tokens ? "model_context_window_exceeded" : "max_tokens";
}

static void put_stop(struct jw *w, const struct answer *a)
{
    const struct choice *c = &a->choices[0];

    jw_key(w, "stop_reason");
    if (c->has_ended)
        jw_z(w, stop_reason(a->setup.ask, c));
    else
        jw_null(w);
    jw_key(w, "stop_sequence");
    if (c->has_ended && c->stop_text.p)
        jw_str(w, c->stop_text);
    else
        jw_null(w);
    jw_key(w, "stop_details");
    jw_null(w);
}

static void put_count(struct jw *w, const char *key, int n)
{
    jw_key(w, key);
    jw_i64(w, n);
}

/* input_tokens are those that had to be computed: the whole prompt is the sum of all three. */
static void put_usage(struct jw *w, const struct answer *a)
{
    struct answer_counts n = answer_counts(a);

    jw_key(w, "usage");
    jw_object(w);
    put_count(w, "input_tokens", MAX(n.prompt_tokens - n.cached_tokens, 0));
    put_count(w, "cache_creation_input_tokens", 0);
    put_count(w, "cache_read_input_tokens", n.cached_tokens);
    put_count(w, "output_tokens", n.completion_tokens);
    jw_key(w, "service_tier");
    jw_z(w, "standard");
    jw_end_object(w);
}

/* A message; its content is `text` where that is there, escaped already. */
static void put_message(struct jw *w, const struct answer *a, struct str text)
{
    jw_object(w);
    jw_key(w, "id");
    jw_z(w, a->id);
    jw_key(w, "type");
    jw_z(w, "message");
    jw_key(w, "role");
    jw_z(w, "assistant");
    jw_key(w, "model");
    jw_str(w, a->setup.model);
    jw_key(w, "content");
    jw_array(w);
    if (text.n) {
        jw_raw(w, STR("{\"type\":\"text\",\"text\":\""));
        buf_puts(w->b, text);
        buf_putz(w->b, "\"}");
    }
    jw_end_array(w);
    put_stop(w, a);
    put_usage(w, a);
    jw_end_object(w);
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

static void begin(struct answer *a)
{
    buf_putz(&a->head, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\","
                       "\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"");
    buf_putz(&a->tail, "\"}}\n\n");
}

static void start(struct answer *a)
{
    struct jw w;

    event_begin(&a->out, &w, "message_start");
    jw_key(&w, "message");
    put_message(&w, a, STR_NONE);
    event_end(&w);
    buf_putz(&a->out, PING);
}

static void token(struct answer *a, struct choice *c, const struct answer_token *t)
{
    /* This wire has no log-probabilities. */
}

static void text(struct answer *a, struct choice *c, struct str text)
{
    if (!c->has_started)
        buf_putz(&a->out, "event: content_block_start\ndata: {\"type\":\"content_block_start\","
                          "\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n");
    c->has_started = true;
    buf_puts(&a->out, buf_str(&a->head));
    json_escape(&a->out, text);
    buf_puts(&a->out, buf_str(&a->tail));
}

static void choice_end(struct answer *a, struct choice *c)
{
    if (c->has_started)
        buf_putz(&a->out, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\","
                          "\"index\":0}\n\n");
}

static void end(struct answer *a)
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

static void body(struct answer *a)
{
    struct jw w;

    jw_init(&w, &a->out);
    put_message(&w, a, buf_str(&a->choices[0].text));
}

static void error_frame(struct buf *out, const struct err *e, const struct error_extra *x)
{
    buf_putz(out, "event: error\ndata: ");
    anthropic_error(out, e, x);
    buf_putz(out, "\n\n");
}

/* ---- the rows */

const struct wire wire_anthropic = {
    .name = "anthropic",
    .id_prefix = "msg_",
    .stream_type = "text/event-stream",
    .keepalive = { PING, sizeof(PING) - 1 },
    .error_form = ERROR_ANTHROPIC,
    .parse = anthropic_parse,
    .begin = begin,
    .start = start,
    .token = token,
    .text = text,
    .choice_end = choice_end,
    .end = end,
    .body = body,
    .error_frame = error_frame,
};

const struct wire wire_anthropic_count = {
    .name = "anthropic.count",
    .id_prefix = "",
    .error_form = ERROR_ANTHROPIC,
    .parse = anthropic_parse_count,
};
