/* Round trip over /v1/responses: a random output of reasoning, text and calls is written in
 * random pieces, streamed or whole. The client reads the same bytes, and sending them back as
 * input, by id or by reference gives the same conversation. */
#include "api/responses/responses.h"
#include "base/rng.h"
#include "serve/responses/stored_response.h"
#include "support/dialect_kit.h"

#include <inttypes.h>

enum { PARTS_MAX = 6, ROUNDS = 300 };

enum output_kind { REASONING_PART, TEXT, CALL };

struct output_part {
    enum output_kind kind;
    struct str text, name; /* text; arguments if this is a call */
};

static struct rng rng;
static struct output_part output_parts[PARTS_MAX];
static int n_parts;
static char texts[256 * 1024];
static size_t texts_n;

static uint32_t below(uint32_t n)
{
    return (uint32_t)rng_below(&rng, n);
}

static struct str keep_text(const char *p, size_t n)
{
    CHECK(texts_n + n < sizeof(texts));
    memcpy(texts + texts_n, p, n);
    texts_n += n;
    return (struct str){ texts + texts_n - n, n };
}

/* Random letters, escapes, control characters, UTF-8 of all lengths, template markers. */
static struct str some_text(void)
{
    static const char *const pieces[] = { "a", "Z ", "\"", "\\", "\n", "\t", "\x01", "é", "日",
        "🙂", "<|im_end|>", "{{", "</s>", "\r\n", "null", "\x7f", " ", "\n\n", "data: " };
    size_t from = texts_n, n = 1 + below(8);

    for (size_t i = 0; i < n; i++) {
        const char *p = pieces[below(ARRAY_LEN(pieces))];
        keep_text(p, strlen(p));
    }
    return (struct str){ texts + from, texts_n - from };
}

/* {"k": "..."} in the form that a model writes. */
static struct str some_arguments(void)
{
    struct str value = some_text();
    struct buf b;

    buf_init(&b, MB);
    buf_putz(&b, "{ \"k\": \"");
    json_escape(&b, value);
    buf_putz(&b, "\" }");
    struct str s = keep_text(b.p, b.n);
    buf_clear(&b);
    return s;
}

/* Adjacent parts of one kind would be one part, except calls. Reasoning comes first. */
static void make_parts(void)
{
    texts_n = 0;
    n_parts = 0;
    if (below(2))
        output_parts[n_parts++] = (struct output_part){ REASONING_PART, some_text(), STR_NONE };
    if (below(2) || !n_parts)
        output_parts[n_parts++] = (struct output_part){ TEXT, some_text(), STR_NONE };
    for (uint32_t n = below(3); n; n--)
        output_parts[n_parts++] = (struct output_part){ CALL, some_arguments(), STR("f_1") };
}

/* ---- writing */

static bool is_continuation_byte(char c)
{
    return (c & 0xC0) == 0x80;
}

/* Writes a part in pieces of whole characters and random size. */
static void write_part(const struct output_part *p, int call)
{
    size_t from = 0;

    while (from < p->text.n) {
        size_t to = from + 1 + below(9);
        while (to < p->text.n && is_continuation_byte(p->text.p[to]))
            to++;
        to = MIN(to, p->text.n);
        struct str piece = { p->text.p + from, to - from };
        if (p->kind == REASONING_PART)
            response_output_ops.reasoning(kit.response, 0, piece);
        else if (p->kind == TEXT)
            response_output_ops.content(kit.response, 0, piece);
        else
            response_output_ops.call_args(kit.response, 0, call, piece);
        from = to;
    }
}

static void write_parts(void)
{
    int call = 0;

    response_begin(kit.response);
    for (int i = 0; i < n_parts; i++) {
        if (output_parts[i].kind == CALL)
            response_output_ops.call_begin(kit.response, 0, call, output_parts[i].name);
        write_part(&output_parts[i], call);
        if (output_parts[i].kind == CALL)
            response_output_ops.call_end(kit.response, 0, call++);
    }
    response_choice_end(kit.response, 0, FINISH_STOP, STR_NONE, -1);
    response_end(kit.response);
}

/* ---- reading */

static struct json *parse_json_text(struct str text)
{
    struct json *j = NULL;

    EXPECT_EQ(json_parse(&j, text, kit.arena, NULL, &kit.e), 0);
    return j;
}

static struct str text_of(const struct json *o, const char *key)
{
    const struct json *v = json_get(o, key);

    EXPECT(v && v->kind == JSON_STRING);
    return v->s;
}

static void expect_item(const struct json *item, const struct output_part *p)
{
    static const char *const types[] = { "reasoning", "message", "function_call" };

    EXPECT(str_is(text_of(item, "type"), types[p->kind]));
    if (p->kind == CALL) {
        EXPECT(str_eq(text_of(item, "arguments"), p->text));
        EXPECT(str_eq(text_of(item, "name"), p->name));
        return;
    }
    const struct json *content = json_get(item, "content");
    EXPECT(content && content->n == 1);
    EXPECT(str_eq(text_of(content->child, "text"), p->text));
}

/* The response object in a body, or in the last event. */
static const struct json *final_response(void)
{
    struct str s = buf_str(&kit.sink.body);
    ptrdiff_t at;

    if (!kit.request.stream)
        return parse_json_text(s);
    while ((at = str_find(s, STR("\ndata: "))) >= 0)
        s = str_skip(s, (size_t)at + 7);
    return json_get(parse_json_text((struct str){ s.p, s.n - 2 }), "response");
}

/* Expects that the deltas of item i join to this text. */
static void expect_deltas(int i, const struct output_part *p)
{
    struct str s = buf_str(&kit.sink.body);
    char index[20];
    struct buf sum;
    ptrdiff_t at;

    snprintf(index, sizeof(index), "%d", i);
    buf_init(&sum, MB);
    while ((at = str_find(s, STR(".delta\ndata: "))) >= 0) {
        s = str_skip(s, (size_t)at + 13);
        ptrdiff_t end = str_find(s, STR("\n\n"));
        EXPECT(end > 0);
        const struct json *e = parse_json_text((struct str){ s.p, (size_t)end });
        if (str_is(json_get(e, "output_index")->s, index))
            buf_puts(&sum, text_of(e, "delta"));
    }
    EXPECT(str_eq(buf_str(&sum), p->text));
    buf_clear(&sum);
}

/* ---- sending it back */

static void expect_convo(int first)
{
    const struct message *m = &kit.request.convo.messages[first];
    int call = 0;

    EXPECT(m->role == ROLE_ASSISTANT);
    for (int i = 0; i < n_parts; i++) {
        const struct output_part *p = &output_parts[i];
        if (p->kind == REASONING_PART)
            EXPECT(str_eq(m->reasoning, p->text));
        else if (p->kind == TEXT)
            EXPECT(m->n_parts == 1 && str_eq(m->parts[0].text, p->text));
        else
            EXPECT(str_eq(m->tool_calls[call].arguments, p->text) &&
                   str_eq(m->tool_calls[call++].name, p->name));
    }
    EXPECT_EQ(m->n_tool_calls, call);
    EXPECT_EQ(kit.request.convo.n_messages, first + 2);
    EXPECT(str_is(kit.request.convo.messages[first + 1].parts[0].text, "next"));
}

/* {"input":[a user's "q", items or references, a user's "next"]} */
static struct str write_next(const struct json *output, bool by_reference)
{
    struct buf b;

    buf_init(&b, 4 * MB);
    buf_putz(&b, "{\"input\":[{\"role\":\"user\",\"content\":\"q\"}");
    for (const struct json *v = output->child; v; v = v->next) {
        if (by_reference)
            buf_printf(&b, ",{\"type\":\"item_reference\",\"id\":\"" STR_FMT "\"}",
                STR_ARG(text_of(v, "id")));
        else
            buf_printf(&b, "," STR_FMT, STR_ARG(v->raw));
    }
    buf_putz(&b, ",{\"role\":\"user\",\"content\":\"next\"}]}");
    struct str s = arena_str(kit.arena, buf_str(&b));
    buf_clear(&b);
    return s;
}

static void send_next(struct str body, struct response_store *response_store)
{
    struct stored_response_ctx at = { response_store, 7, kit.arena };
    const struct stored_response *previous = NULL;

    EXPECT_EQ(request_parse(&kit.request, &dialect_responses, body, kit.arena, &kit.e), 0);
    EXPECT_EQ(stored_response_recall(&previous, &kit.request, &at, &kit.e), 0);
    expect_convo(1);
    response_store_unref(response_store, previous);
}

static void one_round(struct response_store *response_store)
{
    struct json *output;
    int i = 0;

    make_parts();
    kit_open_response(
        &dialect_responses, below(2) ? "{'input':'q','stream':true}" : "{'input':'q'}");
    write_parts();
    const struct json *r = final_response(), *out = json_get(r, "output");
    EXPECT(str_is(text_of(r, "status"), "completed") && (int)out->n == n_parts);
    for (const struct json *v = out->child; v; v = v->next, i++) {
        expect_item(v, &output_parts[i]);
        if (kit.request.stream)
            expect_deltas(i, &output_parts[i]);
    }
    stored_response_put(response_store, 7, &kit.request, kit.response, NULL);
    output = parse_json_text(out->raw);
    struct str in_full = write_next(output, false), by_reference = write_next(output, true);
    send_next(in_full, NULL);
    send_next(by_reference, response_store);
    send_next(STR("{\"input\":\"next\",\"previous_response_id\":\"resp_1\"}"), response_store);
    EXPECT(response_store_remove(response_store, 7, STR("resp_1"), 0));
}

static void response_round_trips(void)
{
    struct response_store_options o = { 4 * MB, 4 * MB, UINT64_MAX };
    uint64_t seed = 20261121;
    struct response_store *response_store;

    printf("seed %" PRIu64 "\n", seed);
    rng = (struct rng){ seed, 0 };
    EXPECT_EQ(response_store_open(&response_store, &o, &kit.e), 0);
    for (int i = 0; i < ROUNDS; i++)
        one_round(response_store);
    response_store_close(response_store);
    kit_close_response();
}

TESTS(TEST(response_round_trips))
