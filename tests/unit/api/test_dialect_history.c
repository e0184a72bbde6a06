/* Responses sent back as history: a random turn with reasoning, text, calls with arguments and
 * results is written as a response body, sent back by the client, and compared byte by byte. */
#include "support/dialect_kit.h"

#include "base/rng.h"

#include <inttypes.h>

enum { CALLS_MAX = 3, ROUNDS = 300 };

struct turn {
    struct str reasoning, text[CALLS_MAX + 1]; /* text before each call, and after the last */
    struct str names[CALLS_MAX], args[CALLS_MAX], results[CALLS_MAX];
    bool failed[CALLS_MAX];
    int n_calls;
};

static struct rng rng;
static struct turn turn;
static struct arena *texts;

static uint32_t below(uint32_t n)
{
    return (uint32_t)rng_below(&rng, n);
}

/* Random letters, escapes, control characters, UTF-8 of all lengths, dialect and template
 * markers. */
static struct str some_text(size_t at_least)
{
    static const char *const pieces[] = { "a", "Z ", "\"", "\\", "\n", "\t", "\x01", "é", "日",
        "🙂", "<|im_end|>", "</tool_call>", "data: ", "\r\n", "null", "\x7f", "{}", "\\u0041" };
    struct buf b;

    buf_init(&b, 64 * KB);
    for (size_t n = at_least + below(6); n; n--)
        buf_putz(&b, pieces[below(ARRAY_LEN(pieces))]);
    struct str s = arena_str(texts, buf_str(&b));
    buf_clear(&b);
    return s;
}

static void put_value(struct jw *w, int deep)
{
    switch (below(deep ? 6 : 4)) {
    case 0:
        jw_str(w, some_text(0));
        return;
    case 1:
        jw_i64(w, (int64_t)below(1000000) - 500000);
        return;
    case 2:
        jw_bool(w, below(2));
        return;
    case 3:
        jw_null(w);
        return;
    case 4:
        jw_array(w);
        for (uint32_t n = below(3); n; n--)
            put_value(w, deep - 1);
        jw_end_array(w);
        return;
    default:
        jw_object(w);
        for (uint32_t n = below(3); n; n--) {
            jw_key_str(w, some_text(1));
            put_value(w, deep - 1);
        }
        jw_end_object(w);
        return;
    }
}

static struct str some_args(void)
{
    struct buf b;
    struct jw w;

    buf_init(&b, MB);
    jw_init(&w, &b);
    jw_object(&w);
    for (uint32_t n = below(4); n; n--) {
        jw_key_str(&w, some_text(1));
        put_value(&w, 2);
    }
    jw_end_object(&w);
    struct str s = arena_str(texts, buf_str(&b));
    buf_clear(&b);
    return s;
}

static void make_turn(void)
{
    static const char *const names[] = { "f", "get_weather", "a.b-c", "日" };

    turn = (struct turn){ .n_calls = (int)below(CALLS_MAX + 1) };
    turn.reasoning = below(2) ? some_text(1) : STR("");
    for (int i = 0; i <= turn.n_calls; i++)
        turn.text[i] = below(2) ? some_text(1) : STR("");
    if (!turn.n_calls)
        turn.text[0] = some_text(1);
    for (int i = 0; i < turn.n_calls; i++) {
        turn.names[i] = str_of(names[below(ARRAY_LEN(names))]);
        turn.args[i] = some_args();
        turn.results[i] = some_text(0);
        turn.failed[i] = below(3) == 0;
    }
}

/* ---- writing it, in pieces of whole characters */

static struct str take_piece(struct str *rest)
{
    size_t n = 1 + below((uint32_t)rest->n);

    while (n < rest->n && (rest->p[n] & 0xC0) == 0x80)
        n++;
    struct str piece = { rest->p, n };
    *rest = str_skip(*rest, n);
    return piece;
}

static void write_response(void)
{
    for (struct str rest = turn.reasoning; rest.n;)
        response_output_ops.reasoning(kit.response, 0, take_piece(&rest));
    for (int i = 0; i <= turn.n_calls; i++) {
        for (struct str rest = turn.text[i]; rest.n;)
            response_output_ops.content(kit.response, 0, take_piece(&rest));
        if (i == turn.n_calls)
            break;
        response_output_ops.call_begin(kit.response, 0, i, turn.names[i]);
        for (struct str rest = turn.args[i]; rest.n;)
            response_output_ops.call_args(kit.response, 0, i, take_piece(&rest));
        response_output_ops.call_end(kit.response, 0, i);
    }
    response_choice_end(kit.response, 0, FINISH_STOP, STR_NONE, -1);
    response_end(kit.response);
}

/* ---- sending it back */

static void member_str(struct jw *w, const char *key, struct str value)
{
    jw_key(w, key);
    jw_str(w, value);
}

static void back_openai(struct jw *w, const struct json *body)
{
    const struct json *m = json_get(json_get(body, "choices")->child, "message");
    const struct json *calls = json_get(m, "tool_calls");
    const struct json *call = json_is_null(calls) ? NULL : calls->child;

    jw_raw(w, m->raw);
    for (int i = 0; i < turn.n_calls; i++, call = call->next) {
        jw_object(w);
        member_str(w, "role", STR("tool"));
        member_str(w, "tool_call_id", json_get(call, "id")->s);
        member_str(w, "content", turn.results[i]);
        jw_end_object(w);
    }
}

/* Tool results are blocks of one user message. */
static void back_anthropic(struct jw *w, const struct json *body)
{
    const struct json *content = json_get(body, "content"), *b = content->child;

    jw_object(w);
    member_str(w, "role", STR("assistant"));
    jw_key(w, "content");
    jw_raw(w, content->raw);
    jw_end_object(w);
    if (!turn.n_calls)
        return;
    jw_object(w);
    member_str(w, "role", STR("user"));
    jw_key(w, "content");
    jw_array(w);
    for (int i = 0; i < turn.n_calls; i++, b = b->next) {
        while (!str_is(json_get(b, "type")->s, "tool_use"))
            b = b->next;
        jw_object(w);
        member_str(w, "type", STR("tool_result"));
        member_str(w, "tool_use_id", json_get(b, "id")->s);
        member_str(w, "content", turn.results[i]);
        jw_key(w, "is_error");
        jw_bool(w, turn.failed[i]);
        jw_end_object(w);
    }
    jw_end_array(w);
    jw_end_object(w);
}

static void back_ollama(struct jw *w, const struct json *body)
{
    jw_raw(w, json_get(body, "message")->raw);
    for (int i = 0; i < turn.n_calls; i++) {
        jw_object(w);
        member_str(w, "role", STR("tool"));
        member_str(w, "tool_name", turn.names[i]);
        member_str(w, "content", turn.results[i]);
        jw_end_object(w);
    }
}

static void send_back(
    const struct dialect *dialect, void (*back)(struct jw *w, const struct json *body))
{
    struct arena *a = arena_new(64 * MB);
    struct json *body;
    struct buf b;
    struct jw w;

    EXPECT_EQ(json_parse(&body, buf_str(&kit.sink.body), a, NULL, &kit.e), 0);
    buf_init(&b, MB);
    jw_init(&w, &b);
    jw_object(&w);
    jw_key(&w, "max_tokens");
    jw_i64(&w, 9);
    jw_key(&w, "messages");
    jw_array(&w);
    jw_raw(&w, STR("{\"role\":\"user\",\"content\":\"q\"}"));
    back(&w, body);
    jw_raw(&w, STR("{\"role\":\"user\",\"content\":\"and?\"}"));
    jw_end_array(&w);
    jw_end_object(&w);
    response_free(kit.response);
    kit.response = NULL;
    arena_free(kit.arena);
    kit.arena = a;
    if (request_parse(&kit.request, dialect, arena_str(a, buf_str(&b)), a, &kit.e))
        fprintf(stderr, "%s: %s\n" STR_FMT "\n", dialect->name, kit.e.msg, STR_ARG(b));
    EXPECT(!kit.e.code);
    buf_clear(&b);
}

/* ---- comparing */

static void expect_text(const struct message *m)
{
    struct buf want, got;

    buf_init(&want, MB);
    buf_init(&got, MB);
    for (int i = 0; i <= turn.n_calls; i++)
        buf_puts(&want, turn.text[i]);
    for (int i = 0; i < m->n_parts; i++)
        buf_puts(&got, m->parts[i].text);
    EXPECT(str_eq(buf_str(&want), buf_str(&got)));
    buf_clear(&want);
    buf_clear(&got);
}

static void expect_args(struct str got, struct str want)
{
    struct json *a, *b;

    EXPECT_EQ(json_parse(&a, got, kit.arena, NULL, &kit.e), 0);
    EXPECT_EQ(json_parse(&b, want, kit.arena, NULL, &kit.e), 0);
    EXPECT(json_equal(a, b));
}

static void expect_turn(bool has_ids, bool has_errors)
{
    const struct convo *c = &kit.request.convo;
    const struct message *m = &c->messages[1];

    EXPECT_EQ(c->n_messages, turn.n_calls + 3);
    EXPECT_EQ((int)m->role, ROLE_ASSISTANT);
    EXPECT(str_eq(m->reasoning, turn.reasoning));
    expect_text(m);
    EXPECT_EQ(m->n_tool_calls, turn.n_calls);
    for (int i = 0; i < turn.n_calls; i++) {
        const struct tool_call *call = &m->tool_calls[i];
        const struct message *r = &c->messages[2 + i];
        EXPECT(str_eq(call->name, turn.names[i]));
        expect_args(call->arguments, turn.args[i]);
        EXPECT_EQ((int)r->role, ROLE_TOOL);
        EXPECT(r->n_parts == 1 && str_eq(r->parts[0].text, turn.results[i]));
        EXPECT(has_ids ? str_eq(r->tool_call_id, call->id) : str_eq(r->name, call->name));
        EXPECT_EQ(r->is_error, has_errors && turn.failed[i]);
    }
    EXPECT_EQ((int)c->messages[turn.n_calls + 2].role, ROLE_USER);
}

static void response_sent_as_history_is_unchanged(void)
{
#define ASK(more) "{'max_tokens':9,'messages':[{'role':'user','content':'q'}]" more "}"
    uint64_t seed = 20261121;

    printf("seed %" PRIu64 "\n", seed);
    rng = (struct rng){ seed, 0 };
    for (int i = 0; i < ROUNDS; i++) {
        texts = arena_new(MB);
        make_turn();
        kit_open_response(&dialect_openai_chat, ASK(""));
        write_response();
        send_back(&dialect_openai_chat, back_openai);
        expect_turn(true, false);
        kit_open_response(&dialect_anthropic, ASK(""));
        write_response();
        send_back(&dialect_anthropic, back_anthropic);
        expect_turn(true, true);
        EXPECT_EQ(kit.request.n_unverified_reasoning, 0);
        kit_open_response(&dialect_ollama_chat, ASK(",'stream':false"));
        write_response();
        send_back(&dialect_ollama_chat, back_ollama);
        expect_turn(false, false);
        arena_free(texts);
    }
    kit_close_response();
}

TESTS(TEST(response_sent_as_history_is_unchanged))
