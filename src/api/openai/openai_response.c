#include "api/openai/openai_response.h"

#include <math.h>

/* ---- members of frames and bodies ---- */

static const char *finish_name(enum finish finish)
{
    switch (finish) {
    case FINISH_STOP:
        return "stop";
    case FINISH_FILTERED:
        return "content_filter";
    case FINISH_NONE:
    case FINISH_LENGTH:
    case FINISH_CANCELLED: /* cancelled by client or server */
    case FINISH_ERROR:
    case FINISH_UNMET:
        return "length";
    }
    return "length";
}

/* Writes "id" to "system_fingerprint", without braces. */
static void put_identity(struct jw *w, const struct response *a, const char *object)
{
    const struct request *request = a->setup.request;

    jw_key(w, "id");
    jw_z(w, a->id);
    jw_key(w, "object");
    jw_z(w, object);
    jw_key(w, "created");
    jw_i64(w, a->setup.created);
    jw_key(w, "model");
    jw_str(w, a->setup.model);
    if (request->service_tier.p) {
        jw_key(w, "service_tier");
        jw_z(w, "default"); /* the tier that the request received, whichever was requested */
    }
    jw_key(w, "system_fingerprint");
    jw_z(w, a->setup.fingerprint);
}

static void put_usage(struct buf *out, const struct response *a)
{
    struct response_counts n = response_counts(a);

    buf_printf(out,
        "{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d,"
        "\"prompt_tokens_details\":{\"cached_tokens\":%d,\"audio_tokens\":0},"
        "\"completion_tokens_details\":{\"reasoning_tokens\":%d,\"audio_tokens\":0,"
        "\"accepted_prediction_tokens\":%d,\"rejected_prediction_tokens\":%d}}",
        n.prompt_tokens, n.completion_tokens, n.prompt_tokens + n.completion_tokens,
        n.cached_tokens, n.reasoning_tokens, n.accepted_prediction_tokens,
        n.rejected_prediction_tokens);
}

void openai_put_logprob(struct buf *b, float v)
{
    struct jw w;

    jw_init(&w, b);
    jw_f32(&w, isfinite(v) ? v : -9999.0f); /* JSON has no infinity */
}

/* Writes the finish reason of a choice. stop_reason is vLLM's field: the stop string or token. */
void openai_put_finish(struct buf *out, const struct response *a, const struct response_choice *c)
{
    /* Requests with `functions` get the deprecated finish reason. */
    const char *calls_reason = a->setup.request->has_functions ? "function_call" : "tool_calls";

    buf_putz(out, ",\"finish_reason\":\"");
    buf_putz(out, c->ends_in_calls ? calls_reason : finish_name(response_finish(c)));
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
    response_put_constraint(out, a, c);
}

void openai_put_token_ids(
    struct buf *out, const struct response *a, const struct response_choice *c)
{
    if (!a->setup.request->want_token_ids)
        return;
    buf_putz(out, ",\"token_ids\":[");
    buf_puts(out, buf_str(&c->lists[LIST_IDS]));
    buf_putc(out, ']');
}

/* ---- frames ---- */

void openai_begin_frames(struct response *a, const char *object, const char *plain)
{
    const struct request *request = a->setup.request;
    struct jw w;

    if (!request->stream)
        return;
    buf_putz(&a->head, "data: ");
    jw_init(&w, &a->head);
    jw_object(&w);
    put_identity(&w, a, object);
    a->n_head_common = a->head.n;
    buf_putz(&a->head, ",\"choices\":[{\"index\":");
    buf_putz(&a->tail, "}]");
    if (request->include_usage && !request->continuous_usage)
        buf_putz(&a->tail, ",\"usage\":null");
    if (request->want_logprobs || request->want_token_ids || request->continuous_usage)
        return;
    buf_putz(&a->plain_tail, plain);
    buf_putz(&a->plain_tail, ",\"logprobs\":null,\"finish_reason\":null");
    buf_puts(&a->plain_tail, buf_str(&a->tail));
    buf_putz(&a->plain_tail, "}\n\n");
}

void openai_frame_begin(struct response *a, const struct response_choice *c)
{
    buf_puts(&a->out, buf_str(&a->head));
    buf_u64(&a->out, (uint64_t)c->number);
}

void openai_frame_end(struct response *a)
{
    buf_puts(&a->out, buf_str(&a->tail));
    if (a->setup.request->continuous_usage) {
        buf_putz(&a->out, ",\"usage\":");
        put_usage(&a->out, a);
    }
    buf_putz(&a->out, "}\n\n");
}

/* Returns the first choice whose stream has sent the start of a call that broke, or NULL. */
static const struct response_choice *find_partial_call(const struct response *a)
{
    for (int i = 0; i < a->n_choices; i++)
        if (a->choices[i].has_partial_call)
            return &a->choices[i];
    return NULL;
}

/* A stream with a partial call ends with an error: clients execute its calls after any finish
 * reason, and only an error makes all of them discard the output. */
void openai_stream_end(struct response *a)
{
    const struct response_choice *partial = find_partial_call(a);
    const struct error_extra extra = { .code = PARTIAL_CALL_CODE };
    struct err e;

    if (a->setup.request->include_usage) {
        buf_put(&a->out, a->head.p, a->n_head_common);
        buf_putz(&a->out, ",\"choices\":[],\"usage\":");
        put_usage(&a->out, a);
        buf_putz(&a->out, "}\n\n");
    }
    if (partial) {
        err_set(&e, ERR_CONSTRAINT, "%s", response_partial_call_message(partial));
        openai_error_frame(&a->out, &e, &extra);
        return;
    }
    buf_putz(&a->out, "data: [DONE]\n\n");
}

void openai_error_frame(struct buf *out, const struct err *e, const struct error_extra *x)
{
    buf_putz(out, "data: ");
    openai_error(out, e, x);
    buf_putz(out, "\n\n");
}

/* ---- bodies ---- */

void openai_put_body(struct response *a, const char *object,
    void (*put_choice)(struct response *, const struct response_choice *))
{
    const struct request *request = a->setup.request;
    struct jw w;

    jw_init(&w, &a->out);
    jw_object(&w);
    put_identity(&w, a, object);
    buf_putz(&a->out, ",\"choices\":[");
    for (int i = 0; i < request->n_prompts * request->n; i++) {
        buf_putz(&a->out, i ? ",{\"index\":" : "{\"index\":");
        buf_u64(&a->out, (uint64_t)i);
        put_choice(a, response_choice_at_rank(a, i / request->n, i % request->n));
        buf_putc(&a->out, '}');
    }
    buf_putz(&a->out, "],\"usage\":");
    put_usage(&a->out, a);
    buf_putc(&a->out, '}');
}

void openai_put_token_text(struct buf *b, const struct response *a, int32_t id, struct str bytes)
{
    buf_putc(b, '"');
    if (a->setup.request->tokens_as_ids)
        buf_printf(b, "token_id:%d", id);
    else
        json_escape(b, bytes);
    buf_putc(b, '"');
}
