/* Fuzzes request bodies of every route, and writes a response to each accepted one. The first
 * byte selects the route, the rest is the body. Each response must be JSON. */
#include "api/ollama/ollama.h"
#include "api/tokenize.h"
#include "api/common/wire.h"

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
static void emit_output_events(struct answer *a, const struct ask *ask, int i)
{
    struct str args = ask->raw->raw, name = ask->tool_name.n ? ask->tool_name : STR("f");
    size_t half = args.n / 2;

    answer_reasoning(a, i, ask->n_stops ? ask->stops[0] : STR("hm"));
    answer_reasoning_tokens(a, i, 1);
    answer_call_begin(a, i, 0, name);
    answer_call_args(a, i, 0, args);
    answer_call_end(a, i, 0);
    if (ask->has_functions)
        return; /* the request may have one call only */
    answer_call_begin(a, i, 1, name);
    answer_call_args(a, i, 1, (struct str){ args.p, half });
    if (half % 2)
        answer_call_broken(a, i, 1);
}

static void emit_response(struct answer *a, const struct ask *ask)
{
    struct sampled t = { .id = 1, .logprob = -0.75f, .n_top = 2, .top = { { 2, -1 }, { 1, -2 } } };

    answer_begin(a);
    answer_usage(a, 3, 1);
    answer_runs(a);
    if (ask->echo) {
        answer_prompt_token(a, 0, 0, NULL);
        answer_prompt_text(a, 0, ask->prompts ? ask->prompts[0].text : STR("p"));
    }
    for (int i = 0; i < MIN(ask_n_choices(ask), 4); i++) {
        answer_token(a, i, &t);
        answer_text(a, i, ask->n_stops ? ask->stops[0] : ask->raw->raw);
        if (ask->kind == ASK_CHAT)
            emit_output_events(a, ask, i);
        answer_choice_end(a, i, FINISH_STOP, ask->n_stops ? ask->stops[0] : STR_NONE, -1);
    }
    answer_end(a);
}

static void parse_and_respond(const struct wire *w, struct str body, struct arena *arena)
{
    struct sink sink = { &ops };
    struct ask ask;
    struct err e = { 0 };
    struct answer *a = NULL;

    n_ended = 0;
    buf_init(&output, GB);
    if (ask_parse(&ask, w, body, arena, &e)) {
        CHECK(e.code && e.msg[0]);
        status_reply(&sink, w->error_form, &e, NULL, NULL, 0);
        must_be_json(buf_str(&output));
    } else {
        struct answer_setup s = {
            .ask = &ask, .sink = &sink, .model = ask.model, .token_bytes = token_bytes
        };
        CHECK(ask.n >= 1 && ask.n <= ask.best_of && ask.n_prompts >= 1);
        CHECK(ask.sample.temperature >= 0 && ask.sample.n_top <= TOP_LOGPROBS_MAX);
        if (ask_check_vocab(&ask, 1000, &e))
            CHECK(e.code == ERR_RANGE);
        CHECK(!answer_new(&a, &s, &e));
        emit_response(a, &ask);
        if (ask.stream && !strcmp(w->stream_type, "application/x-ndjson"))
            must_be_lines(buf_str(&output));
        else if (ask.stream)
            must_be_frames(buf_str(&output));
        else
            must_be_json(buf_str(&output));
    }
    CHECK(n_ended == 1);
    answer_free(a);
    buf_clear(&output);
}

/* A chat body that is counted or rendered, not generated; rendering uses a template in the body. */
static void parse_only(const struct wire *w, struct str body, struct arena *arena)
{
    struct own_template own;
    struct ask ask;
    struct err e = { 0 };

    if (ask_parse(&ask, w, body, arena, &e) || own_template_read(&own, ask.raw, &e))
        CHECK(e.code && e.msg[0]);
    else
        CHECK(ask.kind == ASK_CHAT && ask.n_prompts == 1);
}

/* '0' and '1', then '5' and later: the corpus depends on the order. */
static const struct wire *const wires[] = { &wire_openai_chat, &wire_openai_completion,
    &wire_anthropic, &wire_ollama_chat, &wire_ollama_generate, &wire_llama, &wire_responses,
    &wire_llama_infill };
static const struct wire *const only_parsed[] = { &wire_apply_template, &wire_anthropic_count };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena *a = arena_new(64 * MB);
    struct err e;

    if (size && a) {
        struct str body = { (const char *)data + 1, size - 1 };
        struct tokenize_ask t;
        struct detokenize_ask d;
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
