/* Response writer (api/common) against a model: the same random calls, written as a stream and
 * as a body, must contain the same text, reasoning, tool calls, logprobs, token ids, finish
 * reasons and counts for each choice. */
#include "support/check.h"

#include "api/common/dialect.h"
#include "base/mem.h"
#include "base/rng.h"
#include "support/fake_sink.h"

enum { CHOICES = 6 };

static const char *const token_texts[] = { "a", " b", "\"\n", "\xC3", "\xA9", "\xF0\x9F\x98\x80",
    "" };

static struct str token_bytes(const void *vocab, int32_t id)
{
    (void)vocab;
    return str_of(token_texts[id]);
}

struct client_view { /* content that a client extracts from a response */
    struct buf text[CHOICES], logprobs[CHOICES], ids[CHOICES], finish[CHOICES], thoughts[CHOICES],
        calls[CHOICES];
    struct buf usage;
};

static void client_view_init(struct client_view *t)
{
    for (int i = 0; i < CHOICES; i++) {
        buf_init(&t->text[i], MB);
        buf_init(&t->logprobs[i], MB);
        buf_init(&t->ids[i], MB);
        buf_init(&t->finish[i], MB);
        buf_init(&t->thoughts[i], MB);
        buf_init(&t->calls[i], MB);
    }
    buf_init(&t->usage, MB);
}

static void client_view_clear(struct client_view *t)
{
    for (int i = 0; i < CHOICES; i++) {
        buf_clear(&t->text[i]);
        buf_clear(&t->logprobs[i]);
        buf_clear(&t->ids[i]);
        buf_clear(&t->finish[i]);
        buf_clear(&t->thoughts[i]);
        buf_clear(&t->calls[i]);
    }
    buf_clear(&t->usage);
}

static void append_items(struct buf *b, const struct json *array)
{
    if (!array || array->kind != JSON_ARRAY)
        return;
    for (const struct json *c = array->child; c; c = c->next) {
        buf_puts(b, c->raw);
        buf_putc(b, '\n');
    }
}

/* Appends id and name where present, then the arguments received so far. */
static void append_calls(struct buf *b, const struct json *calls)
{
    for (const struct json *c = calls ? calls->child : NULL; c; c = c->next) {
        const struct json *id = json_get(c, "id"), *f = json_get(c, "function");
        if (id) {
            buf_putc(b, '\n');
            buf_puts(b, id->s);
            buf_putc(b, ' ');
            buf_puts(b, json_get(f, "name")->s);
            EXPECT(str_is(json_get(c, "type")->s, "function"));
        }
        buf_puts(b, json_get(f, "arguments")->s);
    }
}

/* Reads one choice of a frame or of a body. */
static void read_choice(struct client_view *t, const struct json *c)
{
    const struct json *in = json_get(c, "delta");
    int64_t i;

    in = in ? in : json_get(c, "message");
    EXPECT(json_i64(json_get(c, "index"), &i) && i >= 0 && i < CHOICES);
    const struct json *text = in ? json_get(in, "content") : json_get(c, "text");
    if (text)
        buf_puts(&t->text[i], text->s);
    const struct json *thoughts = in ? json_get(in, "reasoning_content") : NULL;
    if (thoughts) {
        buf_puts(&t->thoughts[i], thoughts->s);
        EXPECT(str_eq(thoughts->s, json_get(in, "reasoning")->s));
    }
    if (in)
        append_calls(&t->calls[i], json_get(in, "tool_calls"));
    const struct json *logprobs = json_get(c, "logprobs");
    append_items(&t->logprobs[i], json_get(logprobs, "content"));
    append_items(&t->logprobs[i], json_get(logprobs, "tokens"));
    append_items(&t->ids[i], json_get(c, "token_ids"));
    const struct json *finish = json_get(c, "finish_reason");
    if (!json_is_null(finish)) {
        buf_puts(&t->finish[i], finish->s);
        buf_puts(&t->finish[i], json_get(c, "stop_reason")->raw);
    }
}

static void read_body(struct client_view *t, struct str text)
{
    struct arena *a = arena_new(16 * MB);
    struct json *j = NULL;
    struct err e;

    EXPECT_EQ(json_parse(&j, text, a, NULL, &e), 0);
    for (const struct json *c = json_get(j, "choices")->child; c; c = c->next)
        read_choice(t, c);
    const struct json *usage = json_get(j, "usage");
    if (!json_is_null(usage))
        buf_puts(&t->usage, usage->raw);
    arena_free(a);
}

static void read_stream(struct client_view *t, struct str rest)
{
    while (!str_is(rest, "data: [DONE]\n\n")) {
        ptrdiff_t end = str_find(rest, STR("\n\n"));
        EXPECT(end > 6);
        read_body(t, (struct str){ rest.p + 6, (size_t)end - 6 });
        rest = str_skip(rest, (size_t)end + 2);
    }
}

/* Emits a complete tool call; no text may occur inside it. */
static void emit_call(struct response *a, int i, int number, struct rng *r)
{
    response_output_ops.call_begin(a, i, number, STR("get_\"weather\""));
    for (uint64_t n = rng_below(r, 4); n; n--)
        response_output_ops.call_args(a, i, number, STR("{\"k\\n\xC3\xA9\":1}"));
    response_output_ops.call_end(a, i, number);
}

/* Emits random events that depend only on the seed. */
static void emit_random_events(struct response *a, const struct request *request, uint64_t seed)
{
    struct rng r = { .key = seed };
    int n_open = request_n_choices(request), n_calls = 0;

    response_begin(a);
    response_set_usage(a, 11, (int)rng_below(&r, 11));
    while (n_open > 0) {
        int i = (int)rng_below(&r, (uint64_t)request_n_choices(request));
        int32_t id = (int32_t)rng_below(&r, ARRAY_LEN(token_texts));
        struct sampled s = { .id = id,
            .logprob = -(float)rng_next_unit(&r),
            .n_top = 1,
            .top = { { (int32_t)rng_below(&r, ARRAY_LEN(token_texts)), -0.5f } } };
        switch (rng_below(&r, 12)) {
        case 0:
            n_open -= !response_choice_has_ended(a, i);
            response_choice_end(a, i, rng_below(&r, 2) ? FINISH_STOP : FINISH_LENGTH,
                rng_below(&r, 2) ? STR("st\"op") : STR_NONE, (int32_t)rng_below(&r, 3) - 1);
            break;
        case 1:
            response_output_ops.content(a, i, STR("\xF0\x9F\x98\x80 text \\ \x01"));
            break;
        case 2:
            response_flush(a);
            break;
        case 5:
            if (request->kind == REQUEST_CHAT)
                response_output_ops.reasoning(a, i, STR("hm \"\xC3\xA9"));
            break;
        case 6:
            if (request->kind == REQUEST_CHAT)
                emit_call(a, i, n_calls++, &r);
            break;
        case 3:
        case 4:
            response_add_token(a, i, &s);
            response_output_ops.content(a, i, str_of("x"));
            break;
        default:
            response_add_token(a, i, &s);
        }
    }
    response_end(a);
}

static struct response_counts write_response(
    struct client_view *t, const struct dialect *w, const char *body, uint64_t seed)
{
    struct arena *arena = arena_new(MB);
    struct fake_sink sink;
    struct request request;
    struct response_setup s = { .request = &request,
        .sink = &sink.sink,
        .model = STR("m"),
        .id = "1",
        .token_bytes = token_bytes };
    struct response *a = NULL;
    struct err e = { 0 };

    fake_sink_init(&sink);
    EXPECT_EQ(request_parse(&request, w, str_of(body), arena, &e), 0);
    EXPECT_EQ(response_new(&a, &s, &e), 0);
    emit_random_events(a, &request, seed);
    EXPECT_EQ(sink.n_ended, 1);
    if (request.stream)
        read_stream(t, buf_str(&sink.body));
    else
        read_body(t, buf_str(&sink.body));
    struct response_counts n = response_counts(a);
    response_free(a);
    fake_sink_clear(&sink);
    arena_free(arena);
    return n;
}

static bool expect_same_text(const struct buf *a, const struct buf *b)
{
    if (str_eq(buf_str(a), buf_str(b)))
        return true;
    fprintf(stderr, "stream: " STR_FMT "\nbody: " STR_FMT "\n", STR_ARG(*a), STR_ARG(*b));
    return false;
}

#define ONE                                                                                        \
    "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"n\":3,\"logprobs\":true,"              \
    "\"top_logprobs\":1,\"return_token_ids\":true"
#define TWO "\"prompt\":[\"a\",\"b\"],\"n\":3,\"logprobs\":1,\"return_token_ids\":true"

static const char stream_options[] = ",\"stream\":true,\"stream_options\":{\"include_usage\":true}";

static void stream_and_body_have_the_same_content(void)
{
    printf("seeds 1..400\n");
    for (uint64_t seed = 1; seed <= 400; seed++) {
        const struct dialect *w = seed & 1 ? &dialect_openai_chat : &dialect_openai_completion;
        const char *keep = seed & 2 ? ",\"include_stop_str_in_output\":true" : "";
        char streamed[500], whole[500];
        struct client_view a, b;

        snprintf(whole, sizeof(whole), "{%s%s}", seed & 1 ? ONE : TWO, keep);
        snprintf(
            streamed, sizeof(streamed), "{%s%s%s}", seed & 1 ? ONE : TWO, keep, stream_options);
        client_view_init(&a);
        client_view_init(&b);
        struct response_counts n = write_response(&a, w, streamed, seed),
                               m = write_response(&b, w, whole, seed);
        EXPECT(n.completion_tokens == m.completion_tokens && n.prompt_tokens == 11);
        EXPECT(n.cached_tokens == m.cached_tokens);
        bool all = expect_same_text(&a.usage, &b.usage);
        for (int i = 0; i < CHOICES; i++)
            all = all && expect_same_text(&a.text[i], &b.text[i]) &&
                  expect_same_text(&a.logprobs[i], &b.logprobs[i]) &&
                  expect_same_text(&a.ids[i], &b.ids[i]) &&
                  expect_same_text(&a.finish[i], &b.finish[i]) &&
                  expect_same_text(&a.thoughts[i], &b.thoughts[i]) &&
                  expect_same_text(&a.calls[i], &b.calls[i]);
        if (!all)
            fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
        EXPECT(all);
        EXPECT(a.finish[0].n > 0 && a.usage.n > 0);
        client_view_clear(&a);
        client_view_clear(&b);
    }
}

TESTS(TEST(stream_and_body_have_the_same_content))
