/* Fuzzes request bodies of every route, and writes a response to each accepted one. The first
 * byte selects the route, the rest is the body. Each response must be JSON. */
#include "api/ollama/ollama.h"
#include "api/tokenize.h"
#include "api/common/dialect.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- a sink that stores its bytes */

static struct buf output;
static int n_ended;

static void on_begin(struct sink *s, int status, const char *type, int64_t n_bytes,
    const struct http_field *fields, int n_fields)
{
    CHECK(status >= 200 && type && n_fields >= 0);
}

static void on_write(struct sink *s, struct str bytes)
{
    buf_puts(&output, bytes);
}

static void on_end(struct sink *s)
{
    n_ended++;
}

static size_t on_queued(const struct sink *s)
{
    return 0;
}

static const struct sink_ops ops = { on_begin, on_write, on_end, on_end, on_queued };

static struct str token_bytes(const void *vocab, int32_t id)
{
    static const struct str words[] = { { "a", 1 }, { "\xC3", 1 }, { "\"\n\xF0\x9F\x98\x80", 6 } };

    return words[(uint32_t)id % ARRAY_LEN(words)];
}

static void must_be_json(struct str text)
{
    struct arena *a = arena_new(64 * MB);
    struct json *j = NULL;
    struct err e;

    CHECK(!json_parse(&j, text, a, NULL, &e));
    arena_free(a);
}

/* "event: NAME\ndata: JSON", "data: JSON", "data: [DONE]" */
static void must_be_frames(struct str rest)
{
    while (rest.n) {
        ptrdiff_t end = str_find(rest, STR("\n\n"));
        CHECK(end > 6);
        struct str frame = { rest.p, (size_t)end };
        rest = str_skip(rest, (size_t)end + 2);
        if (str_starts(frame, STR("event: ")))
            frame = str_skip(frame, (size_t)str_find(frame, STR("\n")) + 1);
        CHECK(str_starts(frame, STR("data: ")));
        frame = str_skip(frame, 6);
        if (!str_is(frame, "[DONE]"))
            must_be_json(frame);
    }
}

static void must_be_lines(struct str rest)
{
    while (rest.n) {
        ptrdiff_t end = str_find(rest, STR("\n"));
        CHECK(end > 0);
        must_be_json((struct str){ rest.p, (size_t)end });
        rest = str_skip(rest, (size_t)end + 1);
    }
}

/* Emits reasoning, a complete call and a broken call; the arguments are the body, a JSON object. */
static void emit_output_events(struct response *a, const struct request *request, int i)
{
    struct str args = request->raw->raw,
               name = request->tool_name.n ? request->tool_name : STR("f");
    size_t half = args.n / 2;

    response_output_ops.reasoning(a, i, request->n_stops ? request->stops[0] : STR("hm"));
    response_set_reasoning_tokens(a, i, 1);
    response_output_ops.call_begin(a, i, 0, name);
    response_output_ops.call_args(a, i, 0, args);
    response_output_ops.call_end(a, i, 0);
    if (request->has_functions)
        return; /* the request may have one call only */
    response_output_ops.call_begin(a, i, 1, name);
    response_output_ops.call_args(a, i, 1, (struct str){ args.p, half });
    if (half % 2)
        response_output_ops.call_broken(a, i, 1);
}

static void emit_response(struct response *a, const struct request *request)
{
    struct sampled t = { .id = 1, .logprob = -0.75f, .n_top = 2, .top = { { 2, -1 }, { 1, -2 } } };

    response_begin(a);
    response_set_usage(a, 3, 1);
    response_set_running(a);
    if (request->echo) {
        response_add_prompt_token(a, 0, 0, NULL);
        response_add_prompt_text(a, 0, request->prompts ? request->prompts[0].text : STR("p"));
    }
    for (int i = 0; i < MIN(request_n_choices(request), 4); i++) {
        response_add_token(a, i, &t);
        response_output_ops.content(a, i, request->n_stops ? request->stops[0] : request->raw->raw);
        if (request->kind == REQUEST_CHAT)
            emit_output_events(a, request, i);
        response_choice_end(a, i, FINISH_STOP, request->n_stops ? request->stops[0] : STR_NONE, -1);
    }
    response_end(a);
}

static void parse_and_respond(const struct dialect *w, struct str body, struct arena *arena)
{
    struct sink sink = { &ops };
    struct request request;
    struct err e = { 0 };
    struct response *a = NULL;

    n_ended = 0;
    buf_init(&output, GB);
    if (request_parse(&request, w, body, arena, &e)) {
        CHECK(e.code && e.msg[0]);
        status_reply(&sink, w->error_form, &e, NULL, NULL, 0);
        must_be_json(buf_str(&output));
    } else {
        struct response_setup s = {
            .request = &request, .sink = &sink, .model = request.model, .token_bytes = token_bytes
        };
        CHECK(request.n >= 1 && request.n <= request.best_of && request.n_prompts >= 1);
        CHECK(request.sample.temperature >= 0 && request.sample.n_top <= TOP_LOGPROBS_MAX);
        if (request_check_vocab(&request, 1000, &e))
            CHECK(e.code == ERR_RANGE);
        CHECK(!response_new(&a, &s, &e));
        emit_response(a, &request);
        if (request.stream && !strcmp(w->stream_type, "application/x-ndjson"))
            must_be_lines(buf_str(&output));
        else if (request.stream)
            must_be_frames(buf_str(&output));
        else
            must_be_json(buf_str(&output));
    }
    CHECK(n_ended == 1);
    response_free(a);
    buf_clear(&output);
}

/* A chat body that is counted or rendered, not generated; rendering uses a template in the body. */
static void parse_only(const struct dialect *w, struct str body, struct arena *arena)
{
    struct request_template own;
    struct request request;
    struct err e = { 0 };

    if (request_parse(&request, w, body, arena, &e) || request_template_read(&own, request.raw, &e))
        CHECK(e.code && e.msg[0]);
    else
        CHECK(request.kind == REQUEST_CHAT && request.n_prompts == 1);
}

/* '0' and '1', then '5' and later: the corpus depends on the order. */
static const struct dialect *const wires[] = { &dialect_openai_chat, &dialect_openai_completion,
    &dialect_anthropic, &dialect_ollama_chat, &dialect_ollama_generate, &dialect_llama,
    &dialect_responses, &dialect_llama_infill };
static const struct dialect *const only_parsed[] = { &dialect_apply_template,
    &dialect_anthropic_count };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena *a = arena_new(64 * MB);
    struct err e;

    if (size && a) {
        struct str body = { (const char *)data + 1, size - 1 };
        struct tokenize_request t;
        struct detokenize_request d;
        struct str name;
        size_t n = ARRAY_LEN(wires) + 3;
        size_t which = (uint8_t)(data[0] - '0') % (n + ARRAY_LEN(only_parsed));
        if (which == 2)
            CHECK(tokenize_parse(&t, body, a, &e) || t.content.p);
        else if (which == 3)
            CHECK(detokenize_parse(&d, body, a, &e) || d.n <= size);
        else if (which == 4)
            CHECK(ollama_parse_name(&name, body, a, &e) || name.p);
        else if (which >= n)
            parse_only(only_parsed[which - n], body, a);
        else
            parse_and_respond(wires[which < 2 ? which : which - 3], body, a);
    }
    arena_free(a);
    return 0;
}
