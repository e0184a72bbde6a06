/* openai_completion.c: responses of the legacy Completions API. Owner: the io thread of the
 * response. */
#include "api/openai/openai_response.h"
#include "base/utf8.h"

/* A token that is part of a character is written as its bytes: the tokens are keys of one object
 * below and must be distinct. */
static void put_completion_token(
    struct buf *b, const struct response *a, int32_t id, struct str bytes)
{
    if (a->setup.request->tokens_as_ids || utf8_valid(bytes)) {
        openai_put_token_text(b, a, id, bytes);
        return;
    }
    buf_putz(b, "\"bytes:");
    for (size_t i = 0; i < bytes.n; i++)
        buf_printf(b, "\\\\x%02x", (unsigned char)bytes.p[i]);
    buf_putc(b, '"');
}

static void put_top_token(struct buf *b, const struct response *a, int32_t id, float logprob)
{
    put_completion_token(b, a, id, a->setup.token_bytes(a->setup.vocab, id));
    buf_putc(b, ':');
    openai_put_logprob(b, logprob);
}

/* Writes the alternatives, and the token itself if it is not among them. */
static void put_top_tokens(struct buf *b, const struct response *a, const struct response_token *t)
{
    int n_top = MIN(t->s->n_top, a->setup.request->sample.n_top);
    bool has_token = false;

    buf_putc(b, '{');
    for (int i = 0; i < n_top; i++) {
        if (i)
            buf_putc(b, ',');
        put_top_token(b, a, t->s->top[i].id, t->s->top[i].logprob);
        has_token = has_token || t->s->top[i].id == t->id;
    }
    if (!has_token) {
        if (n_top)
            buf_putc(b, ',');
        put_top_token(b, a, t->id, t->s->logprob);
    }
    buf_putc(b, '}');
}

static void completion_token(
    struct response *a, struct response_choice *c, const struct response_token *t)
{
    put_completion_token(response_list_item(c, LIST_TOKENS), a, t->id, t->bytes);
    buf_u64(response_list_item(c, LIST_OFFSETS), t->offset);
    struct buf *logprobs = response_list_item(c, LIST_LOGPROBS),
               *top = response_list_item(c, LIST_TOP);
    if (t->s) {
        openai_put_logprob(logprobs, t->s->logprob);
        put_top_tokens(top, a, t);
    } else { /* the first token of an echoed prompt */
        buf_putz(logprobs, "null");
        buf_putz(top, "null");
    }
}

static void put_completion_logprobs(
    struct buf *out, const struct response *a, const struct response_choice *c)
{
    if (!a->setup.request->want_logprobs) {
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

static void completion_begin(struct response *a)
{
    openai_begin_frames(a, "text_completion", "\"");
}

static void completion_text(void *ctx, int choice, struct str text)
{
    struct response *a = ctx;
    struct response_choice *c = &a->choices[choice];

    openai_frame_begin(a, c);
    buf_putz(&a->out, ",\"text\":\"");
    json_escape(&a->out, text);
    if (a->plain_tail.n) {
        buf_puts(&a->out, buf_str(&a->plain_tail));
        return;
    }
    buf_putc(&a->out, '"');
    put_completion_logprobs(&a->out, a, c);
    buf_putz(&a->out, ",\"finish_reason\":null");
    openai_put_token_ids(&a->out, a, c);
    openai_frame_end(a);
}

static void completion_choice_end(struct response *a, struct response_choice *c)
{
    openai_frame_begin(a, c);
    buf_putz(&a->out, ",\"text\":\"\"");
    if (c->lists[LIST_TOKENS].n)
        put_completion_logprobs(&a->out, a, c);
    else
        buf_putz(&a->out, ",\"logprobs\":null");
    openai_put_finish(&a->out, a, c);
    openai_put_token_ids(&a->out, a, c);
    openai_frame_end(a);
}

static void completion_put_choice(struct response *a, const struct response_choice *c)
{
    buf_putz(&a->out, ",\"text\":\"");
    buf_puts(&a->out, buf_str(&c->text));
    buf_putc(&a->out, '"');
    put_completion_logprobs(&a->out, a, c);
    openai_put_finish(&a->out, a, c);
    openai_put_token_ids(&a->out, a, c);
}

static void completion_body(struct response *a)
{
    openai_put_body(a, "text_completion", completion_put_choice);
}

static const struct output_ops completion_output_ops = {
    .content = completion_text,
};

const struct dialect dialect_openai_completion = {
    .name = "openai.completion",
    .id_prefix = "cmpl-",
    .stream_type = "text/event-stream",
    .keepalive = { ": keep-alive\n\n", 14 },
    .error_form = ERROR_OPENAI,
    .parse = openai_parse_completion,
    .begin = completion_begin,
    .token = completion_token,
    .output = &completion_output_ops,
    .choice_end = completion_choice_end,
    .end = openai_stream_end,
    .body = completion_body,
    .error_frame = openai_error_frame,
};
