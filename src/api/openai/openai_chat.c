/* openai_chat.c: responses of Chat Completions. Owner: the io thread of the response. */
#include "api/openai/openai_response.h"

/* ---- tokens ---- */

/* Writes {"token","logprob","bytes" and leaves the object open. `bytes` has the raw bytes, so a
 * client can join the halves of a character that is split between tokens. */
static void put_chat_token(
    struct buf *b, const struct response *a, int32_t id, struct str bytes, float logprob)
{
    buf_putz(b, "{\"token\":");
    openai_put_token_text(b, a, id, bytes);
    buf_putz(b, ",\"logprob\":");
    openai_put_logprob(b, logprob);
    buf_putz(b, ",\"bytes\":[");
    for (size_t i = 0; i < bytes.n; i++) {
        if (i)
            buf_putc(b, ',');
        buf_u64(b, (unsigned char)bytes.p[i]);
    }
    buf_putc(b, ']');
}

void openai_chat_token(
    struct response *a, struct response_choice *c, const struct response_token *t)
{
    if (!t->s)
        return;
    struct buf *b = response_list_item(c, LIST_TOKENS);
    int n_top = MIN(t->s->n_top, a->setup.request->sample.n_top);

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

static void put_chat_logprobs(
    struct buf *out, const struct response *a, const struct response_choice *c)
{
    if (!a->setup.request->want_logprobs) {
        buf_putz(out, ",\"logprobs\":null");
        return;
    }
    buf_putz(out, ",\"logprobs\":{\"content\":[");
    buf_puts(out, buf_str(&c->lists[LIST_TOKENS]));
    buf_putz(out, "],\"refusal\":null}");
}

static void chat_begin(struct response *a)
{
    openai_begin_frames(a, "chat.completion.chunk", "\"}");
}

/* The first frame of a choice has the role. */
static void chat_start(struct response *a, struct response_choice *c)
{
    if (c->has_started)
        return;
    c->has_started = true;
    openai_frame_begin(a, c);
    buf_putz(&a->out, ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
                      "\"finish_reason\":null");
    openai_frame_end(a);
}

/* Closes the string of a delta, and the frame. */
static void chat_string_end(struct response *a, struct response_choice *c, const char *closing)
{
    if (a->plain_tail.n && !*closing) {
        buf_puts(&a->out, buf_str(&a->plain_tail));
        return;
    }
    buf_putz(&a->out, "\"}");
    buf_putz(&a->out, closing);
    put_chat_logprobs(&a->out, a, c);
    buf_putz(&a->out, ",\"finish_reason\":null");
    openai_put_token_ids(&a->out, a, c);
    openai_frame_end(a);
}

static void chat_text(void *ctx, int choice, struct str text)
{
    struct response *a = ctx;
    struct response_choice *c = &a->choices[choice];

    chat_start(a, c);
    openai_frame_begin(a, c);
    buf_putz(&a->out, ",\"delta\":{\"content\":\"");
    json_escape(&a->out, text);
    chat_string_end(a, c, "");
}

/* Field names for reasoning; most clients read only one of them. */
static const struct {
    unsigned bit;
    const char *key;
} reasoning_keys[] = { { REASONING_CONTENT, "reasoning_content" }, { REASONING, "reasoning" } };

static bool uses_reasoning_key(const struct response *a, size_t i)
{
    return !a->setup.reasoning_names || a->setup.reasoning_names & reasoning_keys[i].bit;
}

static void chat_reasoning(void *ctx, int choice, struct str text)
{
    struct response *a = ctx;
    struct response_choice *c = &a->choices[choice];

    const char *before = "";

    chat_start(a, c);
    openai_frame_begin(a, c);
    buf_putz(&a->out, ",\"delta\":{\"");
    for (size_t i = 0; i < ARRAY_LEN(reasoning_keys); i++) {
        if (!uses_reasoning_key(a, i))
            continue;
        buf_putz(&a->out, before);
        buf_putz(&a->out, reasoning_keys[i].key);
        buf_putz(&a->out, "\":\"");
        json_escape(&a->out, text);
        before = "\",\"";
    }
    chat_string_end(a, c, "");
}

/* The first frame of a call has its id and name; a client joins the fragments of the arguments by
 * index. */
static void chat_call_begin(void *ctx, int choice, int call, struct str name)
{
    struct response *a = ctx;
    struct response_choice *c = &a->choices[choice];
    struct response_call *k = response_last_call(c);

    chat_start(a, c);
    openai_frame_begin(a, c);
    if (a->setup.request->has_functions) {
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

static void chat_call_args(void *ctx, int choice, int call, struct str json)
{
    struct response *a = ctx;
    struct response_choice *c = &a->choices[choice];
    struct response_call *k = response_last_call(c);

    bool is_function_call = a->setup.request->has_functions;

    openai_frame_begin(a, c);
    if (is_function_call)
        buf_putz(&a->out, ",\"delta\":{\"function_call\":{\"arguments\":\"");
    else
        buf_printf(&a->out,
            ",\"delta\":{\"tool_calls\":[{\"index\":%d,\"function\":{\"arguments\":\"", k->number);
    json_escape(&a->out, json);
    chat_string_end(a, c, is_function_call ? "}" : "}]}");
}

static void chat_call_broken(void *ctx, int choice, int call)
{
    struct response *a = ctx;

    a->choices[choice].has_partial_call = true;
}

/* A choice with a partial call has no finish reason: openai_stream_end sends an error. */
static void chat_choice_end(struct response *a, struct response_choice *c)
{
    if (c->has_partial_call)
        return;
    chat_start(a, c);
    openai_frame_begin(a, c);
    buf_putz(&a->out, ",\"delta\":{}");
    if (c->lists[LIST_TOKENS].n)
        put_chat_logprobs(&a->out, a, c);
    else
        buf_putz(&a->out, ",\"logprobs\":null");
    openai_put_finish(&a->out, a, c);
    openai_put_token_ids(&a->out, a, c);
    openai_frame_end(a);
}

static void put_string_member(struct buf *out, const char *key, struct str escaped)
{
    buf_printf(out, ",\"%s\":\"", key);
    buf_puts(out, escaped);
    buf_putc(out, '"');
}

static void put_function(struct jw *w, const struct response_call *k)
{
    jw_object(w);
    jw_key(w, "name");
    jw_str(w, k->name);
    jw_key(w, "arguments");
    jw_str(w, buf_str(&k->args));
    jw_end_object(w);
}

static void put_calls(struct buf *out, const struct response *a, const struct response_choice *c)
{
    struct jw w;

    jw_init(&w, out);
    if (a->setup.request->has_functions) {
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

static void chat_put_choice(struct response *a, const struct response_choice *c)
{
    buf_putz(&a->out, ",\"message\":{\"role\":\"assistant\"");
    if (c->n_calls && !c->text.n)
        buf_putz(&a->out, ",\"content\":null");
    else
        put_string_member(&a->out, "content", buf_str(&c->text));
    for (size_t i = 0; i < ARRAY_LEN(reasoning_keys) && c->reasoning.n; i++)
        if (uses_reasoning_key(a, i))
            put_string_member(&a->out, reasoning_keys[i].key, buf_str(&c->reasoning));
    buf_putz(&a->out, ",\"refusal\":null");
    if (c->n_calls)
        put_calls(&a->out, a, c);
    buf_putz(&a->out, ",\"annotations\":[]}");
    put_chat_logprobs(&a->out, a, c);
    openai_put_finish(&a->out, a, c);
    openai_put_token_ids(&a->out, a, c);
}

static void chat_body(struct response *a)
{
    openai_put_body(a, "chat.completion", chat_put_choice);
}

/* ---- dialects ---- */

static const struct output_ops chat_output_ops = {
    .content = chat_text,
    .reasoning = chat_reasoning,
    .call_begin = chat_call_begin,
    .call_args = chat_call_args,
    .call_broken = chat_call_broken,
};

const struct dialect dialect_openai_chat = {
    .name = "openai.chat",
    .id_prefix = "chatcmpl-",
    .stream_type = "text/event-stream",
    .keepalive = { ": keep-alive\n\n", 14 },
    .error_form = ERROR_OPENAI,
    .parse = openai_parse_chat,
    .begin = chat_begin,
    .token = openai_chat_token,
    .output = &chat_output_ops,
    .choice_end = chat_choice_end,
    .end = openai_stream_end,
    .body = chat_body,
    .error_frame = openai_error_frame,
};

const struct dialect dialect_apply_template = {
    .name = "apply-template",
    .error_form = ERROR_OPENAI,
    .parse = openai_parse_chat,
};
