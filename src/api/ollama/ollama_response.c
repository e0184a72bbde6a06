#include "api/common/response_state.h"
#include "api/ollama/ollama.h"
#include "api/openai/openai.h"

/* ollama_response.c: responses as JSON lines. A line of a stream is
 *
 *     head  {"model":...,"created_at":...,"message":{"role":"assistant","content":"
 *     text  and other output: ","thinking":"..." or ","tool_calls":[...]
 *     tail  }
 *           ,"done":false}
 *
 * The last line has counts and times instead of output. A body is the last line with all output. A
 * tool call is sent when it is complete, since its arguments are an object in this protocol. A
 * keep-alive is a blank before a line, which clients skip. Owner: the io thread of the response. */

static void put_head(struct response *a, const char *open)
{
    struct time_text created = models_time(a->setup.created);
    struct jw w;

    jw_init(&w, &a->head);
    jw_object(&w);
    jw_key(&w, "model");
    jw_str(&w, a->setup.model);
    jw_key(&w, "created_at");
    jw_z(&w, created.z);
    buf_putz(&a->head, open);
}

static void begin_chat(struct response *a)
{
    put_head(a, ",\"message\":{\"role\":\"assistant\",\"content\":\"");
    buf_putc(&a->tail, '}');
}

static void begin_generate(struct response *a)
{
    put_head(a, ",\"response\":\"");
}

static void put_logprobs(struct response *a, const struct response_choice *c)
{
    if (!a->setup.request->want_logprobs)
        return;
    buf_putz(&a->out, ",\"logprobs\":[");
    buf_puts(&a->out, buf_str(&c->lists[LIST_TOKENS]));
    buf_putc(&a->out, ']');
}

static void line_begin(struct response *a)
{
    buf_puts(&a->out, buf_str(&a->head));
}

static void line_end(struct response *a, const struct response_choice *c)
{
    buf_puts(&a->out, buf_str(&a->tail));
    put_logprobs(a, c);
    buf_putz(&a->out, ",\"done\":false}\n");
}

static void put_text_line(void *ctx, int choice, struct str text)
{
    struct response *a = ctx;
    struct response_choice *c = &a->choices[choice];

    line_begin(a);
    json_escape(&a->out, text);
    buf_putc(&a->out, '"');
    line_end(a, c);
}

static void put_reasoning_line(void *ctx, int choice, struct str text)
{
    struct response *a = ctx;
    struct response_choice *c = &a->choices[choice];

    line_begin(a);
    buf_putz(&a->out, "\",\"thinking\":\"");
    json_escape(&a->out, text);
    buf_putc(&a->out, '"');
    line_end(a, c);
}

/* The arguments can contain line breaks, which would split the frame. A line break in valid JSON is
 * between two tokens, so a blank can replace it. */
static void put_single_line(struct jw *w, struct buf *out, struct str json)
{
    size_t from = out->n;

    jw_raw(w, json);
    for (size_t i = from; i < out->n; i++)
        if (out->p[i] == '\n' || out->p[i] == '\r')
            out->p[i] = ' ';
}

/* Writes n calls from call i:
 * ,"tool_calls":[{"id","function":{"index","name","arguments"}}, ...] */
static void put_calls(struct response *a, const struct response_choice *c, int i, int n)
{
    struct jw w;

    buf_putz(&a->out, ",\"tool_calls\":");
    jw_init(&w, &a->out);
    jw_array(&w);
    for (n += i; i < n; i++) {
        const struct response_call *k = &c->calls[i];
        jw_object(&w);
        jw_key(&w, "id");
        jw_str(&w, k->id);
        jw_key(&w, "function");
        jw_object(&w);
        jw_key(&w, "index");
        jw_i64(&w, i);
        jw_key(&w, "name");
        jw_str(&w, k->name);
        jw_key(&w, "arguments");
        put_single_line(&w, &a->out, buf_str(&k->args));
        jw_end_object(&w);
        jw_end_object(&w);
    }
    jw_end_array(&w);
}

static void put_call_line(void *ctx, int choice, int call)
{
    struct response *a = ctx;
    struct response_choice *c = &a->choices[choice];
    struct response_call *k = response_last_call(c);

    line_begin(a);
    buf_putc(&a->out, '"');
    put_calls(a, c, (int)(k - c->calls), 1);
    line_end(a, c);
}

/* Sends the logprobs of tokens that have no text. */
static void end_choice(struct response *a, struct response_choice *c)
{
    if (c->lists[LIST_TOKENS].n)
        put_text_line(a, response_choice_index(a, c), STR(""));
}

static const char *done_reason(const struct response *a)
{
    if (a->setup.request->load_only)
        return "load";
    switch (response_finish(&a->choices[0])) {
    case FINISH_STOP:
        return "stop";
    case FINISH_FILTERED:
        return "content_filter";
    case FINISH_NONE:
    case FINISH_LENGTH:
    case FINISH_CANCELLED:
    case FINISH_ERROR:
    case FINISH_UNMET:
        break;
    }
    return "length";
}

static void put_ns(struct buf *out, const char *key, uint64_t from, uint64_t to)
{
    buf_printf(out, ",\"%s\":%llu", key, (unsigned long long)(from && to > from ? to - from : 0));
}

static void put_done(struct response *a)
{
    struct response_counts n = response_counts(a);
    const struct response_times *t = &a->times;

    buf_printf(&a->out, ",\"done\":true,\"done_reason\":\"%s\"", done_reason(a));
    if (a->setup.request->load_only)
        return;
    response_put_constraint(&a->out, a, &a->choices[0]);
    put_ns(&a->out, "total_duration", t->queued_ns, t->ended_ns);
    put_ns(&a->out, "load_duration", t->queued_ns, t->started_ns);
    buf_printf(&a->out, ",\"prompt_eval_count\":%d", n.prompt_tokens);
    put_ns(&a->out, "prompt_eval_duration", t->started_ns,
        t->first_token_ns ? t->first_token_ns : t->ended_ns);
    buf_printf(&a->out, ",\"eval_count\":%d", n.completion_tokens);
    put_ns(&a->out, "eval_duration", t->first_token_ns, t->ended_ns);
}

static void put_last_line(struct response *a)
{
    struct response_choice *c = &a->choices[0];
    bool is_stream = a->setup.request->stream; /* the stream has already sent the calls */

    line_begin(a);
    buf_puts(&a->out, buf_str(&c->text));
    buf_putc(&a->out, '"');
    if (c->reasoning.n) {
        buf_putz(&a->out, ",\"thinking\":\"");
        buf_puts(&a->out, buf_str(&c->reasoning));
        buf_putc(&a->out, '"');
    }
    if (c->n_calls && !is_stream)
        put_calls(a, c, 0, c->n_calls);
    buf_puts(&a->out, buf_str(&a->tail));
    if (!is_stream)
        put_logprobs(a, c);
    put_done(a);
    buf_putc(&a->out, '}');
}

static void end_stream(struct response *a)
{
    put_last_line(a);
    buf_putc(&a->out, '\n');
}

static void put_error_line(struct buf *out, const struct err *e, const struct error_extra *x)
{
    ollama_error(out, e, x);
    buf_putc(out, '\n');
}

/* ---- dialects */

static const struct output_ops chat_output_ops = {
    .content = put_text_line,
    .reasoning = put_reasoning_line,
    .call_end = put_call_line,
};

const struct dialect dialect_ollama_chat = {
    .name = "ollama.chat",
    .id_prefix = "",
    .stream_type = "application/x-ndjson",
    .keepalive = { " ", 1 },
    .error_form = ERROR_OLLAMA,
    .parse = ollama_parse_chat,
    .begin = begin_chat,
    .token = openai_chat_token,
    .output = &chat_output_ops,
    .choice_end = end_choice,
    .end = end_stream,
    .body = put_last_line,
    .error_frame = put_error_line,
};

static const struct output_ops generate_output_ops = {
    .content = put_text_line,
    .reasoning = put_reasoning_line,
};

const struct dialect dialect_ollama_generate = {
    .name = "ollama.generate",
    .id_prefix = "",
    .stream_type = "application/x-ndjson",
    .keepalive = { " ", 1 },
    .error_form = ERROR_OLLAMA,
    .parse = ollama_parse_generate,
    .begin = begin_generate,
    .token = openai_chat_token,
    .output = &generate_output_ops,
    .choice_end = end_choice,
    .end = end_stream,
    .body = put_last_line,
    .error_frame = put_error_line,
};
