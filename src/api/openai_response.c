#include "api/answer_state.h"
#include "api/openai.h"
#include "base/utf8.h"

#include <math.h>

/* The two OpenAI routes, told. A frame of a stream is
 *
 *     head  data: {"id":...,"object":...,"created":...,"model":...,"system_fingerprint":...,
 *           "choices":[{"index":
 *     what the choice has to say
 *     tail  }]} and, when usage is asked for, its null
 *
 * of which head and tail are rendered once; text is escaped between them, straight into the
 * output. Nothing is allocated for a token but the growth of buffers. */

/* ---- pieces of both ---- */

static const char *finish_name(enum finish finish)
{
    switch (finish) {
    case FINISH_STOP:
        return "stop";
    case FINISH_NONE:
    case FINISH_LENGTH:
    case FINISH_CANCELLED: /* cut short, whoever did it */
    case FINISH_ERROR:
        return "length";
    }
    return "length";
}

/* What was asked for as functions is told as that. */
static const char *calls_name(const struct answer *a)
{
    return a->setup.ask->has_functions ? "function_call" : "tool_calls";
}

/* From "id" to "system_fingerprint", without braces. */
static void put_identity(struct jw *w, const struct answer *a, const char *object)
{
    const struct ask *ask = a->setup.ask;

    jw_key(w, "id");
    jw_z(w, a->id);
    jw_key(w, "object");
    jw_z(w, object);
    jw_key(w, "created");
    jw_i64(w, a->setup.created);
    jw_key(w, "model");
    jw_str(w, a->setup.model);
    if (ask->service_tier.p) {
        jw_key(w, "service_tier");
        jw_str(w, str_is(ask->service_tier, "auto") ? STR("default") : ask->service_tier);
    }
    jw_key(w, "system_fingerprint");
    jw_z(w, a->setup.fingerprint);
}

static void put_usage(struct buf *out, const struct answer *a)
{
    struct answer_counts n = answer_counts(a);

    buf_printf(out,
        "{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d,"
        "\"prompt_tokens_details\":{\"cached_tokens\":%d,\"audio_tokens\":0},"
        "\"completion_tokens_details\":{\"reasoning_tokens\":%d,\"audio_tokens\":0,"
        "\"accepted_prediction_tokens\":%d,\"rejected_prediction_tokens\":%d}}",
        n.prompt_tokens, n.completion_tokens, n.prompt_tokens + n.completion_tokens,
        n.cached_tokens, n.reasoning_tokens, n.accepted_prediction_tokens,
        n.rejected_prediction_tokens);
}

static void put_logprob(struct buf *b, float v)
{
    struct jw w;

    jw_init(&w, b);
    jw_f32(&w, isfinite(v) ? v : -9999.0f); /* JSON has no infinity */
}

/* The part of a finished choice that says why. stop_reason is vLLM's: the string or the token. */
static void put_finish(struct buf *out, const struct answer *a, const struct choice *c)
{
    buf_putz(out, ",\"finish_reason\":\"");
    buf_putz(out, c->ends_in_calls ? calls_name(a) : finish_name(c->finish));
    buf_putz(out, "\",\"stop_reason\":");
    if (c->stop_text.p) {
        buf_putc(out, '"');
        json_escape(out, c->stop_text);
        buf_putc(out, '"');
    } else if (c->stop_id >= 0) {
        buf_u64(out, (uint64_t)c->stop_id);
    } else {
        buf_putz(out, "null");
    }
}

static void put_token_ids(struct buf *out, const struct answer *a, const struct choice *c)
{
    if (!a->setup.ask->want_token_ids)
        return;
    buf_putz(out, ",\"token_ids\":[");
    buf_puts(out, buf_str(&c->lists[LIST_IDS]));
    buf_putc(out, ']');
}

/* ---- frames ---- */

/* plain: what closes the text of a frame that has neither logprobs nor token ids. */
static void begin_frames(struct answer *a, const char *object, const char *plain)
{
    const struct ask *ask = a->setup.ask;
    struct jw w;

    if (!ask->stream)
        return;
    buf_putz(&a->head, "data: ");
    jw_init(&w, &a->head);
    jw_object(&w);
    put_identity(&w, a, object);
    a->n_head_common = a->head.n;
    buf_putz(&a->head, ",\"choices\":[{\"index\":");
    buf_putz(&a->tail, "}]");
    if (ask->include_usage && !ask->continuous_usage)
        buf_putz(&a->tail, ",\"usage\":null");
    if (ask->want_logprobs || ask->want_token_ids || ask->continuous_usage)
        return;
    buf_putz(&a->plain_tail, plain);
    buf_putz(&a->plain_tail, ",\"logprobs\":null,\"finish_reason\":null");
    buf_puts(&a->plain_tail, buf_str(&a->tail));
    buf_putz(&a->plain_tail, "}\n\n");
}

static void frame_begin(struct answer *a, const struct choice *c)
{
    buf_puts(&a->out, buf_str(&a->head));
    buf_u64(&a->out, (uint64_t)c->number);
}

static void frame_end(struct answer *a)
{
    buf_puts(&a->out, buf_str(&a->tail));
    if (a->setup.ask->continuous_usage) {
        buf_putz(&a->out, ",\"usage\":");
        put_usage(&a->out, a);
    }
    buf_putz(&a->out, "}\n\n");
}

static void stream_end(struct answer *a)
{
    if (a->setup.ask->include_usage) {
        buf_put(&a->out, a->head.p, a->n_head_common);
        buf_putz(&a->out, ",\"choices\":[],\"usage\":");
        put_usage(&a->out, a);
        buf_putz(&a->out, "}\n\n");
    }
    buf_putz(&a->out, "data: [DONE]\n\n");
}

static void error_frame(struct buf *out, const struct err *e, const struct error_extra *x)
{
    buf_putz(out, "data: ");
    openai_error(out, e, x);
    buf_putz(out, "\n\n");
}

/* ---- bodies ---- */

static void put_body(struct answer *a, const char *object,
    void (*put_choice)(struct answer *, const struct choice *))
{
    const struct ask *ask = a->setup.ask;
    struct jw w;

    jw_init(&w, &a->out);
    jw_object(&w);
    put_identity(&w, a, object);
    buf_putz(&a->out, ",\"choices\":[");
    for (int i = 0; i < ask->n_prompts * ask->n; i++) {
        buf_putz(&a->out, i ? ",{\"index\":" : "{\"index\":");
        buf_u64(&a->out, (uint64_t)i);
        put_choice(a, answer_rank(a, i / ask->n, i % ask->n));
        buf_putc(&a->out, '}');
    }
    buf_putz(&a->out, "],\"usage\":");
    put_usage(&a->out, a);
    buf_putc(&a->out, '}');
}

/* ---- chat ---- */

static void put_token_text(struct buf *b, const struct answer *a, int32_t id, struct str bytes)
{
    buf_putc(b, '"');
    if (a->setup.ask->tokens_as_ids)
        buf_printf(b, "token_id:%d", id);
    else
        json_escape(b, bytes);
    buf_putc(b, '"');
}

/* {"token","logprob","bytes": bare: the object stays open. Bytes are raw ones, so that a client
 * can join the halves of a character. */
static void put_chat_token(
    struct buf *b, const struct answer *a, int32_t id, struct str bytes, float logprob)
{
    buf_putz(b, "{\"token\":");
    put_token_text(b, a, id, bytes);
    buf_putz(b, ",\"logprob\":");
    put_logprob(b, logprob);
    buf_putz(b, ",\"bytes\":[");
    for (size_t i = 0; i < bytes.n; i++) {
        if (i)
            buf_putc(b, ',');
        buf_u64(b, (unsigned char)bytes.p[i]);
    }
    buf_putc(b, ']');
}

void openai_chat_token(struct answer *a, struct choice *c, const struct answer_token *t)
{
    if (!t->s)
        return;
    struct buf *b = choice_item(c, LIST_TOKENS);
    int n_top = MIN(t->s->n_top, a->setup.ask->sample.n_top);

    put_chat_token(b, a, t->id, t->bytes, t->s->logprob);
    buf_putz(b, ",\"top_logprobs\":[");
    for (int i = 0; i < n_top; i++) {
        const struct token_logprob *top = &t->s->top[i];
        if (i)
            buf_putc(b, ',');
        put_chat_token(b, a, top->id, a->setup.token_bytes(a->setup.vocab, top->id), top->logprob);
        buf_putc(b, '}');
    }
    buf_putz(b, "]}");
}

static void put_chat_logprobs(struct buf *out, const struct answer *a, const struct choice *c)
{
    if (!a->setup.ask->want_logprobs) {
        buf_putz(out, ",\"logprobs\":null");
        return;
    }
    buf_putz(out, ",\"logprobs\":{\"content\":[");
    buf_puts(out, buf_str(&c->lists[LIST_TOKENS]));
    buf_putz(out, "],\"refusal\":null}");
}

static void chat_begin(struct answer *a)
{
    begin_frames(a, "chat.completion.chunk", "\"}");
}

/* The first frame of a choice says who speaks. */
static void chat_start(struct answer *a, struct choice *c)
{
    if (c->has_started)
        return;
    c->has_started = true;
    frame_begin(a, c);
    buf_putz(&a->out, ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
                      "\"finish_reason\":null");
    frame_end(a);
}

/* A delta ends, and its frame: after a string. */
static void chat_string_end(struct answer *a, struct choice *c, const char *closing)
{
    if (a->plain_tail.n && !*closing) {
        buf_puts(&a->out, buf_str(&a->plain_tail));
        return;
    }
    buf_putz(&a->out, "\"}");
    buf_putz(&a->out, closing);
    put_chat_logprobs(&a->out, a, c);
    buf_putz(&a->out, ",\"finish_reason\":null");
    put_token_ids(&a->out, a, c);
    frame_end(a);
}

static void chat_text(struct answer *a, struct choice *c, struct str text)
{
    chat_start(a, c);
    frame_begin(a, c);
    buf_putz(&a->out, ",\"delta\":{\"content\":\"");
    json_escape(&a->out, text);
    chat_string_end(a, c, "");
}

/* By both names that clients know. */
static void chat_reasoning(struct answer *a, struct choice *c, struct str text)
{
    chat_start(a, c);
    frame_begin(a, c);
    buf_putz(&a->out, ",\"delta\":{\"reasoning_content\":\"");
    json_escape(&a->out, text);
    buf_putz(&a->out, "\",\"reasoning\":\"");
    json_escape(&a->out, text);
    chat_string_end(a, c, "");
}

/* Id and name are told once; a client puts the pieces of arguments together by index. */
static void chat_call_begin(struct answer *a, struct choice *c, struct answer_call *k)
{
    chat_start(a, c);
    frame_begin(a, c);
    if (a->setup.ask->has_functions) {
        buf_putz(&a->out, ",\"delta\":{\"function_call\":{\"name\":\"");
        json_escape(&a->out, k->name);
        buf_putz(&a->out, "\",\"arguments\":\"");
        chat_string_end(a, c, "}");
        return;
    }
    buf_printf(&a->out, ",\"delta\":{\"tool_calls\":[{\"index\":%d,\"id\":\"", k->number);
    json_escape(&a->out, k->id);
    buf_putz(&a->out, "\",\"type\":\"function\",\"function\":{\"name\":\"");
    json_escape(&a->out, k->name);
    buf_putz(&a->out, "\",\"arguments\":\"");
    chat_string_end(a, c, "}]}");
}

static void chat_call_args(
    struct answer *a, struct choice *c, struct answer_call *k, struct str json)
{
    bool old = a->setup.ask->has_functions;

    frame_begin(a, c);
    if (old)
        buf_putz(&a->out, ",\"delta\":{\"function_call\":{\"arguments\":\"");
    else
        buf_printf(&a->out,
            ",\"delta\":{\"tool_calls\":[{\"index\":%d,\"function\":{\"arguments\":\"", k->number);
    json_escape(&a->out, json);
    chat_string_end(a, c, old ? "}" : "}]}");
}

static void chat_choice_end(struct answer *a, struct choice *c)
{
    chat_start(a, c);
    frame_begin(a, c);
    buf_putz(&a->out, ",\"delta\":{}");
    if (c->lists[LIST_TOKENS].n)
        put_chat_logprobs(&a->out, a, c);
    else
        buf_putz(&a->out, ",\"logprobs\":null");
    put_finish(&a->out, a, c);
    put_token_ids(&a->out, a, c);
    frame_end(a);
}

static void put_member(struct buf *out, const char *key, struct str escaped)
{
    buf_printf(out, ",\"%s\":\"", key);
    buf_puts(out, escaped);
    buf_putc(out, '"');
}

static void put_function(struct jw *w, const struct answer_call *k)
{
    jw_object(w);
    jw_key(w, "name");
    jw_str(w, k->name);
    jw_key(w, "arguments");
    jw_str(w, buf_str(&k->args));
    jw_end_object(w);
}

static void put_calls(struct buf *out, const struct answer *a, const struct choice *c)
{
    struct jw w;

    jw_init(&w, out);
    if (a->setup.ask->has_functions) {
        buf_putz(out, ",\"function_call\":");
        put_function(&w, &c->calls[0]);
        return;
    }
    buf_putz(out, ",\"tool_calls\":");
    jw_array(&w);
    for (int i = 0; i < c->n_calls; i++) {
        jw_object(&w);
        jw_key(&w, "id");
        jw_str(&w, c->calls[i].id);
        jw_key(&w, "type");
        jw_z(&w, "function");
        jw_key(&w, "function");
        put_function(&w, &c->calls[i]);
        jw_end_object(&w);
    }
    jw_end_array(&w);
}

static void chat_put_choice(struct answer *a, const struct choice *c)
{
    buf_putz(&a->out, ",\"message\":{\"role\":\"assistant\"");
    if (c->n_calls && !c->text.n)
        buf_putz(&a->out, ",\"content\":null");
    else
        put_member(&a->out, "content", buf_str(&c->text));
    if (c->reasoning.n) {
        put_member(&a->out, "reasoning_content", buf_str(&c->reasoning));
        put_member(&a->out, "reasoning", buf_str(&c->reasoning));
    }
    buf_putz(&a->out, ",\"refusal\":null");
    if (c->n_calls)
        put_calls(&a->out, a, c);
    buf_putz(&a->out, ",\"annotations\":[]}");
    put_chat_logprobs(&a->out, a, c);
    put_finish(&a->out, a, c);
    put_token_ids(&a->out, a, c);
}

static void chat_body(struct answer *a)
{
    put_body(a, "chat.completion", chat_put_choice);
}

/* ---- completions ---- */

/* Half a character has no text of its own; its bytes spelled out keep two halves apart, which
 * are keys of one object below. */
static void put_completion_token(
    struct buf *b, const struct answer *a, int32_t id, struct str bytes)
{
    if (a->setup.ask->tokens_as_ids || utf8_valid(bytes)) {
        put_token_text(b, a, id, bytes);
        return;
    }
    buf_putz(b, "\"bytes:");
    for (size_t i = 0; i < bytes.n; i++)
        buf_printf(b, "\\\\x%02x", (unsigned char)bytes.p[i]);
    buf_putc(b, '"');
}

static void put_top(struct buf *b, const struct answer *a, int32_t id, float logprob)
{
    put_completion_token(b, a, id, a->setup.token_bytes(a->setup.vocab, id));
    buf_putc(b, ':');
    put_logprob(b, logprob);
}

/* The best ones, and the token itself where it is none of them. */
static void completion_top(struct buf *b, const struct answer *a, const struct answer_token *t)
{
    int n_top = MIN(t->s->n_top, a->setup.ask->sample.n_top);
    bool has_token = false;

    buf_putc(b, '{');
    for (int i = 0; i < n_top; i++) {
        if (i)
            buf_putc(b, ',');
        put_top(b, a, t->s->top[i].id, t->s->top[i].logprob);
        has_token = has_token || t->s->top[i].id == t->id;
    }
    if (!has_token) {
        if (n_top)
            buf_putc(b, ',');
        put_top(b, a, t->id, t->s->logprob);
    }
    buf_putc(b, '}');
}

static void completion_token(struct answer *a, struct choice *c, const struct answer_token *t)
{
    put_completion_token(choice_item(c, LIST_TOKENS), a, t->id, t->bytes);
    buf_u64(choice_item(c, LIST_OFFSETS), t->offset);
    struct buf *logprobs = choice_item(c, LIST_LOGPROBS), *top = choice_item(c, LIST_TOP);
    if (t->s) {
        put_logprob(logprobs, t->s->logprob);
        completion_top(top, a, t);
    } else { /* the first token of an echoed prompt */
        buf_putz(logprobs, "null");
        buf_putz(top, "null");
    }
}

static void put_completion_logprobs(struct buf *out, const struct answer *a, const struct choice *c)
{
    if (!a->setup.ask->want_logprobs) {
        buf_putz(out, ",\"logprobs\":null");
        return;
    }
    buf_putz(out, ",\"logprobs\":{\"tokens\":[");
    buf_puts(out, buf_str(&c->lists[LIST_TOKENS]));
    buf_putz(out, "],\"token_logprobs\":[");
    buf_puts(out, buf_str(&c->lists[LIST_LOGPROBS]));
    buf_putz(out, "],\"top_logprobs\":[");
    buf_puts(out, buf_str(&c->lists[LIST_TOP]));
    buf_putz(out, "],\"text_offset\":[");
    buf_puts(out, buf_str(&c->lists[LIST_OFFSETS]));
    buf_putz(out, "]}");
}

static void completion_begin(struct answer *a)
{
    begin_frames(a, "text_completion", "\"");
}

static void completion_text(struct answer *a, struct choice *c, struct str text)
{
    frame_begin(a, c);
    buf_putz(&a->out, ",\"text\":\"");
    json_escape(&a->out, text);
    if (a->plain_tail.n) {
        buf_puts(&a->out, buf_str(&a->plain_tail));
        return;
    }
    buf_putc(&a->out, '"');
    put_completion_logprobs(&a->out, a, c);
    buf_putz(&a->out, ",\"finish_reason\":null");
    put_token_ids(&a->out, a, c);
    frame_end(a);
}

static void completion_choice_end(struct answer *a, struct choice *c)
{
    frame_begin(a, c);
    buf_putz(&a->out, ",\"text\":\"\"");
    if (c->lists[LIST_TOKENS].n)
        put_completion_logprobs(&a->out, a, c);
    else
        buf_putz(&a->out, ",\"logprobs\":null");
    put_finish(&a->out, a, c);
    put_token_ids(&a->out, a, c);
    frame_end(a);
}

static void completion_put_choice(struct answer *a, const struct choice *c)
{
    buf_putz(&a->out, ",\"text\":\"");
    buf_puts(&a->out, buf_str(&c->text));
    buf_putc(&a->out, '"');
    put_completion_logprobs(&a->out, a, c);
    put_finish(&a->out, a, c);
    put_token_ids(&a->out, a, c);
}

static void completion_body(struct answer *a)
{
    put_body(a, "text_completion", completion_put_choice);
}

/* ---- the rows ---- */

const struct wire wire_openai_chat = {
    .name = "openai.chat",
    .id_prefix = "chatcmpl-",
    .stream_type = "text/event-stream",
    .keepalive = { ": keep-alive\n\n", 14 },
    .error_form = ERROR_OPENAI,
    .parse = openai_parse_chat,
    .begin = chat_begin,
    .token = openai_chat_token,
    .text = chat_text,
    .reasoning = chat_reasoning,
    .call_begin = chat_call_begin,
    .call_args = chat_call_args,
    .choice_end = chat_choice_end,
    .end = stream_end,
    .body = chat_body,
    .error_frame = error_frame,
};

const struct wire wire_openai_completion = {
    .name = "openai.completion",
    .id_prefix = "cmpl-",
    .stream_type = "text/event-stream",
    .keepalive = { ": keep-alive\n\n", 14 },
    .error_form = ERROR_OPENAI,
    .parse = openai_parse_completion,
    .begin = completion_begin,
    .token = completion_token,
    .text = completion_text,
    .choice_end = completion_choice_end,
    .end = stream_end,
    .body = completion_body,
    .error_frame = error_frame,
};
