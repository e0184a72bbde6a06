/* OpenAI round trip: a request of a client is in the parsed request, field by field and byte by
 * byte, and a response that the client sends back as history is parsed to the same messages. */
#include "support/dialect_kit.h"

#include "base/rng.h"

static struct rng rng;

static int below(int n)
{
    return (int)rng_below(&rng, (uint64_t)n);
}

/* Writes text with all kinds of bytes that JSON can contain. */
static void put_text(struct buf *b)
{
    static const char *const bits[] = { "a", " ", "\"", "\\", "\n", "\t", "\x01", "\xC3\xA9",
        "\xE6\x97\xA5", "\xF0\x9F\x98\x80", "</tool_call>", "<|im_end|>", "{\"", "0", "\x7F" };

    for (int n = below(12) + 1; n; n--)
        buf_putz(b, bits[below(ARRAY_LEN(bits))]);
}

static void text(struct jw *w)
{
    struct buf b;

    buf_init(&b, KB);
    put_text(&b);
    jw_str(w, buf_str(&b));
    buf_clear(&b);
}

static void member(struct jw *w, const char *key)
{
    jw_key(w, key);
    text(w);
}

/* ---- a random request in canonical form, so that each value has one spelling */

static void write_random_content(struct jw *w, bool may_lack)
{
    int kind = below(may_lack ? 3 : 2);

    if (kind == 2)
        return;
    jw_key(w, "content");
    if (kind == 0) {
        text(w);
        return;
    }
    jw_array(w);
    for (int n = below(3) + 1; n; n--) {
        jw_object(w);
        jw_key(w, "type");
        jw_z(w, "text");
        member(w, "text");
        jw_end_object(w);
    }
    jw_end_array(w);
}

static void write_random_calls(struct jw *w)
{
    jw_key(w, "tool_calls");
    jw_array(w);
    for (int n = below(3) + 1; n; n--) {
        jw_object(w);
        member(w, "id");
        jw_key(w, "type");
        jw_z(w, "function");
        jw_key(w, "function");
        jw_object(w);
        member(w, "name");
        member(w, "arguments");
        jw_end_object(w);
        jw_end_object(w);
    }
    jw_end_array(w);
}

static void write_random_message(struct jw *w)
{
    enum role role = (enum role)below(ROLE_FUNCTION + 1);

    jw_object(w);
    jw_key(w, "role");
    jw_z(w, role_name(role));
    write_random_content(w, role == ROLE_ASSISTANT || role == ROLE_TOOL);
    if (role == ROLE_FUNCTION || below(4) == 0)
        member(w, "name");
    if (role == ROLE_TOOL)
        member(w, "tool_call_id");
    if (role == ROLE_ASSISTANT && below(2))
        write_random_calls(w);
    if (role == ROLE_ASSISTANT && below(2))
        member(w, "reasoning_content");
    jw_end_object(w);
}

static void write_random_tools(struct jw *w, int n)
{
    jw_key(w, "tools");
    jw_array(w);
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof(name), "f%d", i);
        jw_object(w);
        jw_key(w, "type");
        jw_z(w, "function");
        jw_key(w, "function");
        jw_object(w);
        jw_key(w, "name");
        jw_z(w, name);
        if (below(2))
            member(w, "description");
        jw_key(w, "parameters");
        jw_raw(w, STR("{\"type\":\"object\",\"$defs\":{\"x\":[1,2.50,null]},\"properties\":{}}"));
        jw_end_object(w);
        jw_end_object(w);
    }
    jw_end_array(w);
}

static void write_random_tool_choice(struct jw *w)
{
    jw_key(w, "tool_choice");
    switch (below(4)) {
    case 0:
        jw_z(w, "none");
        break;
    case 1:
        jw_z(w, "required");
        break;
    case 2:
        jw_raw(w, STR("{\"type\":\"function\",\"function\":{\"name\":\"f0\"}}"));
        break;
    default:
        jw_z(w, "auto");
    }
}

static void write_random_request(struct buf *out)
{
    struct jw w;

    jw_init(&w, out);
    jw_object(&w);
    member(&w, "model");
    jw_key(&w, "messages");
    jw_array(&w);
    for (int n = below(6) + 1; n; n--)
        write_random_message(&w);
    jw_end_array(&w);
    if (below(2)) {
        write_random_tools(&w, below(3) + 1);
        write_random_tool_choice(&w);
        jw_key(&w, "parallel_tool_calls");
        jw_bool(&w, below(2));
    }
    jw_key(&w, "n");
    jw_i64(&w, below(4) + 1);
    jw_key(&w, "max_tokens");
    jw_i64(&w, below(100) + 1);
    jw_key(&w, "seed");
    jw_i64(&w, below(1000));
    jw_key(&w, "temperature");
    jw_f64(&w, below(8) * 0.25);
    jw_key(&w, "top_p");
    jw_f64(&w, below(4) * 0.25 + 0.25);
    jw_key(&w, "stop");
    jw_array(&w);
    for (int n = below(3) + 1; n; n--)
        text(&w);
    jw_end_array(&w);
    jw_key(&w, "stream");
    jw_bool(&w, below(2));
    member(&w, "user");
    member(&w, "cache_salt");
    jw_key(&w, "reasoning_effort");
    jw_z(&w, "low");
    jw_end_object(&w);
}

/* ---- the parsed request, written from the struct only, in the form of the dialect */

static void write_content(struct jw *w, const struct message *m)
{
    if (!m->has_content)
        return;
    jw_key(w, "content");
    if (m->is_plain) {
        jw_str(w, m->parts[0].text);
        return;
    }
    jw_array(w);
    for (int i = 0; i < m->n_parts; i++) {
        jw_object(w);
        jw_key(w, "type");
        jw_z(w, "text");
        jw_key(w, "text");
        jw_str(w, m->parts[i].text);
        jw_end_object(w);
    }
    jw_end_array(w);
}

static void write_text(struct jw *w, const char *key, struct str s)
{
    if (!s.p)
        return;
    jw_key(w, key);
    jw_str(w, s);
}

static void write_calls(struct jw *w, const struct message *m)
{
    if (!m->n_tool_calls)
        return;
    jw_key(w, "tool_calls");
    jw_array(w);
    for (int i = 0; i < m->n_tool_calls; i++) {
        jw_object(w);
        write_text(w, "id", m->tool_calls[i].id);
        jw_key(w, "type");
        jw_z(w, "function");
        jw_key(w, "function");
        jw_object(w);
        write_text(w, "name", m->tool_calls[i].name);
        write_text(w, "arguments", m->tool_calls[i].arguments);
        jw_end_object(w);
        jw_end_object(w);
    }
    jw_end_array(w);
}

static void write_message(struct jw *w, const struct message *m)
{
    jw_object(w);
    jw_key(w, "role");
    jw_z(w, role_name(m->role));
    write_content(w, m);
    write_text(w, "name", m->name);
    write_text(w, "tool_call_id", m->tool_call_id);
    write_calls(w, m);
    write_text(w, "reasoning_content", m->reasoning);
    jw_end_object(w);
}

static void write_tools(struct jw *w, const struct request *request)
{
    static const char *const words[] = { [TOOL_CHOICE_NONE] = "none",
        [TOOL_CHOICE_AUTO] = "auto",
        [TOOL_CHOICE_REQUIRED] = "required" };

    if (!request->tools)
        return;
    jw_key(w, "tools");
    jw_json(w, request->tools);
    jw_key(w, "tool_choice");
    if (request->tool_choice != TOOL_CHOICE_NAMED) {
        jw_z(w, words[request->tool_choice]);
    } else {
        jw_raw(w, STR("{\"type\":\"function\",\"function\":{\"name\":\""));
        json_escape(w->b, request->tool_name);
        buf_putz(w->b, "\"}}");
    }
    jw_key(w, "parallel_tool_calls");
    jw_bool(w, request->parallel_tool_calls);
}

static void write_request(struct buf *out, const struct request *request)
{
    struct jw w;

    jw_init(&w, out);
    jw_object(&w);
    write_text(&w, "model", request->model);
    jw_key(&w, "messages");
    jw_array(&w);
    for (int i = 0; i < request->convo.n_messages; i++)
        write_message(&w, &request->convo.messages[i]);
    jw_end_array(&w);
    write_tools(&w, request);
    jw_key(&w, "n");
    jw_i64(&w, request->n);
    jw_key(&w, "max_tokens");
    jw_i64(&w, request->max_tokens);
    jw_key(&w, "seed");
    jw_i64(&w, (int64_t)request->sample.seed);
    jw_key(&w, "temperature");
    jw_f32(&w, request->sample.temperature);
    jw_key(&w, "top_p");
    jw_f32(&w, request->sample.top_p);
    jw_key(&w, "stop");
    jw_array(&w);
    for (int i = 0; i < request->n_stops; i++)
        jw_str(&w, request->stops[i]);
    jw_end_array(&w);
    jw_key(&w, "stream");
    jw_bool(&w, request->stream);
    write_text(&w, "user", request->user);
    write_text(&w, "cache_salt", request->cache_salt);
    write_text(&w, "reasoning_effort", request->reasoning_effort);
    jw_end_object(&w);
}

static int parse_body(const struct dialect *w, struct str body)
{
    arena_free(kit.arena);
    kit.arena = arena_new(64 * MB);
    return request_parse(&kit.request, w, arena_str(kit.arena, body), kit.arena, &kit.e);
}

static bool same_json(struct str a, struct str b)
{
    struct json *x, *y;
    struct err e;

    bool same = !json_parse(&x, a, kit.arena, NULL, &e) &&
                !json_parse(&y, b, kit.arena, NULL, &e) && json_equal(x, y);
    if (!same)
        fprintf(stderr, STR_FMT "\n" STR_FMT "\n", STR_ARG(a), STR_ARG(b));
    return same;
}

static void parsed_request_contains_every_field(void)
{
    printf("seeds 1..500\n");
    for (uint64_t seed = 1; seed <= 500; seed++) {
        struct buf sent, said;
        rng = (struct rng){ .key = seed };
        buf_init(&sent, MB);
        buf_init(&said, MB);
        write_random_request(&sent);
        int rc = parse_body(&dialect_openai_chat, buf_str(&sent));
        if (rc)
            fprintf(stderr, "seed %d: %s\n" STR_FMT "\n", (int)seed, kit.e.msg, STR_ARG(sent));
        EXPECT_EQ(rc, 0);
        write_request(&said, &kit.request);
        EXPECT(same_json(buf_str(&sent), buf_str(&said)));
        buf_clear(&sent);
        buf_clear(&said);
    }
}

/* ---- a response, sent back as history */

static void put_pieces(struct buf *b, bool reasoning)
{
    struct buf piece;

    buf_init(&piece, KB);
    put_text(&piece);
    buf_puts(b, buf_str(&piece));
    if (reasoning)
        response_output_ops.reasoning(kit.response, 0, buf_str(&piece));
    else
        response_output_ops.content(kit.response, 0, buf_str(&piece));
    buf_clear(&piece);
}

static void put_call(int number, struct buf *args)
{
    struct buf name;

    buf_init(&name, KB);
    put_text(&name);
    response_output_ops.call_begin(kit.response, 0, number, buf_str(&name));
    for (int n = below(3) + 1; n; n--) {
        size_t from = args->n;
        put_text(args);
        response_output_ops.call_args(kit.response, 0, number, str_skip(buf_str(args), from));
    }
    response_output_ops.call_end(kit.response, 0, number);
    buf_putc(args, 0);
    buf_clear(&name);
}

static void response_sent_as_history_is_parsed_back(void)
{
    static const char ask_body[] = "{'messages':[{'role':'user','content':'x'}]}";

    printf("seeds 1..500\n");
    for (uint64_t seed = 1; seed <= 500; seed++) {
        struct buf words, thoughts, args, back;
        rng = (struct rng){ .key = seed };
        buf_init(&words, MB);
        buf_init(&thoughts, MB);
        buf_init(&args, MB);
        buf_init(&back, MB);
        kit_open_response(&dialect_openai_chat, ask_body);
        for (int n = below(4); n; n--)
            put_pieces(&thoughts, true);
        for (int n = below(4); n; n--)
            put_pieces(&words, false);
        int n_calls = below(3);
        for (int i = 0; i < n_calls; i++)
            put_call(i, &args);
        response_choice_end(kit.response, 0, FINISH_STOP, STR_NONE, -1);
        response_end(kit.response);
        struct json *r;
        EXPECT_EQ(json_parse(&r, buf_str(&kit.sink.body), kit.arena, NULL, &kit.e), 0);
        buf_putz(&back, "{\"messages\":[");
        buf_puts(&back, json_get(json_get(r, "choices")->child, "message")->raw);
        buf_putz(&back, "]}");
        EXPECT_EQ(parse_body(&dialect_openai_chat, buf_str(&back)), 0);
        const struct message *m = &kit.request.convo.messages[0];
        EXPECT(m->role == ROLE_ASSISTANT && m->n_tool_calls == n_calls);
        EXPECT(str_eq(m->n_parts ? m->parts[0].text : STR(""), buf_str(&words)));
        EXPECT(str_eq(m->reasoning, buf_str(&thoughts)));
        size_t at = 0;
        for (int i = 0; i < n_calls; i++) {
            EXPECT(str_eq(m->tool_calls[i].arguments, str_of(args.p + at)));
            EXPECT(m->tool_calls[i].id.n == 29 && m->tool_calls[i].name.n > 0);
            at += m->tool_calls[i].arguments.n + 1;
        }
        buf_clear(&words);
        buf_clear(&thoughts);
        buf_clear(&args);
        buf_clear(&back);
    }
    kit_close_response();
}

TESTS(TEST(parsed_request_contains_every_field), TEST(response_sent_as_history_is_parsed_back))
