#include "api/common/response_state.h"
#include "api/llama/llama.h"

#include <math.h>

/* llama_response.c: responses in llama-server's format. A frame has the text since the last frame.
 * The last frame of a choice has no text, but statistics and settings. A body is that last frame
 * with the whole text; several choices are an array. Owner: the io thread of the response. */

/* ---- tokens */

static void put_token(
    struct buf *b, const struct response *a, int32_t id, struct str bytes, float logprob)
{
    struct jw w;

    buf_printf(b, "{\"id\":%d,\"token\":\"", id);
    json_escape(b, bytes);
    buf_putz(b, "\",\"bytes\":[");
    for (size_t i = 0; i < bytes.n; i++)
        buf_printf(b, i ? ",%u" : "%u", (unsigned)(unsigned char)bytes.p[i]);
    buf_putz(b, "],\"logprob\":");
    jw_init(&w, b);
    jw_f32(&w, isfinite(logprob) ? logprob : -9999.0f); /* JSON has no infinity */
}

static void append_token(
    struct response *a, struct response_choice *c, const struct response_token *t)
{
    int n_top = t->s ? MIN(t->s->n_top, a->setup.request->sample.n_top) : 0;

    if (!t->s)
        return;
    struct buf *b = response_list_item(c, LIST_TOKENS);
    put_token(b, a, t->id, t->bytes, t->s->logprob);
    buf_putz(b, ",\"top_logprobs\":[");
    for (int i = 0; i < n_top; i++) {
        const struct token_logprob *top = &t->s->top[i];
        if (i)
            buf_putc(b, ',');
        put_token(b, a, top->id, a->setup.token_bytes(a->setup.vocab, top->id), top->logprob);
        buf_putc(b, '}');
    }
    buf_putz(b, "]}");
}

static void put_lists(struct response *a, const struct response_choice *c)
{
    buf_putz(&a->out, "\",\"tokens\":[");
    buf_puts(&a->out, buf_str(&c->lists[LIST_IDS]));
    buf_putc(&a->out, ']');
    if (!a->setup.request->want_logprobs)
        return;
    buf_putz(&a->out, ",\"completion_probabilities\":[");
    buf_puts(&a->out, buf_str(&c->lists[LIST_TOKENS]));
    buf_putc(&a->out, ']');
}

/* ---- frames */

static void begin_response(struct response *a)
{
    buf_putz(&a->head, "data: {\"index\":");
}

static void put_text_frame(void *ctx, int choice, struct str text)
{
    struct response *a = ctx;
    struct response_choice *c = &a->choices[choice];

    buf_puts(&a->out, buf_str(&a->head));
    buf_printf(&a->out, "%d,\"content\":\"", c->number);
    json_escape(&a->out, text);
    put_lists(a, c);
    buf_printf(&a->out,
        ",\"stop\":false,\"id_slot\":%d,\"tokens_predicted\":%d,\"tokens_evaluated\":%d}\n\n",
        a->id_slot, c->n_tokens, a->n_prompt);
}

/* Sends the logprobs of tokens that have no text. */
static void end_choice(struct response *a, struct response_choice *c)
{
    if (c->lists[LIST_TOKENS].n || c->lists[LIST_IDS].n)
        put_text_frame(a, response_choice_index(a, c), STR(""));
}

/* ---- the last frame */

static const char *stop_type(const struct response_choice *c)
{
    switch (c->finish) {
    case FINISH_STOP:
        return c->stop_text.p ? "word" : "eos";
    case FINISH_LENGTH:
        return "limit";
    case FINISH_FILTERED:
        return "content_filter";
    case FINISH_NONE:
    case FINISH_CANCELLED:
    case FINISH_ERROR:
    case FINISH_UNMET:
        break;
    }
    return "none";
}

void llama_put_sample_params(struct jw *w, const struct sample_params *s)
{
    jw_key(w, "seed");
    jw_u64(w, s->seed);
    jw_member_f32(w, "temperature", s->temperature);
    jw_member_i64(w, "top_k", s->top_k);
    jw_member_f32(w, "top_p", s->top_p);
    jw_member_f32(w, "min_p", s->min_p);
    jw_member_f32(w, "typical_p", s->typical_p);
    jw_member_i64(w, "repeat_last_n", s->repeat_last_n);
    jw_member_f32(w, "repeat_penalty", s->repeat_penalty);
    jw_member_f32(w, "presence_penalty", s->presence_penalty);
    jw_member_f32(w, "frequency_penalty", s->frequency_penalty);
}

static void put_settings(struct jw *w, const struct request *request)
{
    const struct sample_params *s = &request->sample;

    jw_object(w);
    llama_put_sample_params(w, s);
    jw_member_i64(w, "n_predict", request->max_tokens);
    jw_member_i64(w, "n_probs", s->n_top);
    jw_member_bool(w, "ignore_eos", request->ignore_eos);
    jw_key(w, "stop");
    jw_array(w);
    for (int i = 0; i < request->n_stops; i++)
        jw_str(w, request->stops[i]);
    jw_end_array(w);
    jw_member_bool(w, "stream", request->stream);
    jw_end_object(w);
}

void llama_put_defaults(struct jw *w)
{
    struct arena *a = arena_new(64 * KB);
    struct request request;
    struct err e;

    if (a && !request_parse(
                 &request, &dialect_llama, STR("{\"prompt\":\"\",\"seed\":4294967295}"), a, &e))
        put_settings(w, &request);
    else
        jw_null(w);
    arena_free(a);
}

static double ms_between(uint64_t from, uint64_t to)
{
    return from && to > from ? (double)(to - from) / 1e6 : 0;
}

/* Writes a count, its milliseconds, milliseconds per item and items per second. */
static void put_speed(struct jw *w, const char *const keys[4], int n, double ms)
{
    jw_member_i64(w, keys[0], n);
    jw_member_f32(w, keys[1], (float)ms);
    jw_member_f32(w, keys[2], (float)(n ? ms / n : 0));
    jw_member_f32(w, keys[3], (float)(ms > 0 ? n / ms * 1e3 : 0));
}

static void put_timings(struct jw *w, const struct response *a, const struct response_choice *c)
{
    static const char *const prompt[] = { "prompt_n", "prompt_ms", "prompt_per_token_ms",
        "prompt_per_second" };
    static const char *const predicted[] = { "predicted_n", "predicted_ms",
        "predicted_per_token_ms", "predicted_per_second" };
    const struct response_times *t = &a->times;
    uint64_t first_ns = t->first_token_ns ? t->first_token_ns : t->ended_ns;

    jw_key(w, "timings");
    jw_object(w);
    jw_member_i64(w, "cache_n", a->n_cached);
    put_speed(w, prompt, a->n_prompt - a->n_cached, ms_between(t->started_ns, first_ns));
    put_speed(w, predicted, c->n_tokens, ms_between(t->first_token_ns, t->ended_ns));
    if (t->n_drafted > 0) {
        jw_member_i64(w, "draft_n", t->n_drafted);
        jw_member_i64(w, "draft_n_accepted", t->n_drafts_accepted);
    }
    jw_end_object(w);
}

/* Writes the last frame from the closing quote of the text to the closing brace. */
static void put_summary(struct response *a, const struct response_choice *c)
{
    const struct request *request = a->setup.request;
    const struct request_prompt *p = &request->prompts[(c - a->choices) / request->best_of];
    struct jw w;

    put_lists(a, c);
    buf_putc(&a->out, ',');
    jw_init(&w, &a->out); /* continues an object that is already open */
    jw_member_i64(&w, "id_slot", a->id_slot);
    jw_member_bool(&w, "stop", true);
    jw_member_bool(&w, "truncated", false);
    jw_key(&w, "model");
    jw_str(&w, a->setup.model);
    jw_member_i64(&w, "tokens_predicted", c->n_tokens);
    jw_member_i64(&w, "tokens_evaluated", a->n_prompt);
    jw_member_i64(&w, "tokens_cached", a->n_cached);
    jw_key(&w, "stop_type");
    jw_z(&w, stop_type(c));
    jw_key(&w, "stopping_word");
    jw_str(&w, c->stop_text.p ? c->stop_text : STR(""));
    response_put_constraint(&a->out, a, c);
    jw_key(&w, "prompt");
    jw_str(&w, p->is_tokens ? STR("") : p->text);
    jw_key(&w, "generation_settings");
    put_settings(&w, request);
    put_timings(&w, a, c);
    buf_putc(&a->out, '}');
}

static void end_stream(struct response *a)
{
    for (int i = 0; i < a->n_choices; i++) {
        struct response_choice *c = &a->choices[i];
        for (int k = 0; k < N_RESPONSE_LISTS; k++)
            buf_reset(&c->lists[k]);
        buf_puts(&a->out, buf_str(&a->head));
        buf_printf(&a->out, "%d,\"content\":\"", c->number);
        put_summary(a, c);
        buf_putz(&a->out, "\n\n");
    }
}

static void put_body(struct response *a)
{
    for (int i = 0; i < a->n_choices; i++) {
        const struct response_choice *c = &a->choices[i];
        if (a->n_choices > 1)
            buf_putc(&a->out, i ? ',' : '[');
        buf_printf(&a->out, "{\"index\":%d,\"content\":\"", c->number);
        buf_puts(&a->out, buf_str(&c->text));
        put_summary(a, c);
    }
    if (a->n_choices > 1)
        buf_putc(&a->out, ']');
}

static void put_error_frame(struct buf *out, const struct err *e, const struct error_extra *x)
{
    buf_putz(out, "data: ");
    llama_error(out, e, x);
    buf_putz(out, "\n\n");
}

static const struct output_ops output_ops = {
    .content = put_text_frame,
};

const struct dialect dialect_llama = {
    .name = "llama",
    .needs = { .prompt_text = true },
    .id_prefix = "cmpl-",
    .stream_type = "text/event-stream",
    .keepalive = { ": keep-alive\n\n", 14 },
    .error_form = ERROR_LLAMA,
    .parse = llama_parse,
    .begin = begin_response,
    .token = append_token,
    .output = &output_ops,
    .choice_end = end_choice,
    .end = end_stream,
    .body = put_body,
    .error_frame = put_error_frame,
};

const struct dialect dialect_llama_infill = {
    .name = "llama.infill",
    .needs = { .prompt_text = true },
    .id_prefix = "cmpl-",
    .stream_type = "text/event-stream",
    .keepalive = { ": keep-alive\n\n", 14 },
    .error_form = ERROR_LLAMA,
    .parse = llama_parse_infill,
    .begin = begin_response,
    .token = append_token,
    .output = &output_ops,
    .choice_end = end_choice,
    .end = end_stream,
    .body = put_body,
    .error_frame = put_error_frame,
};
