/* Embeddable library: concurrent requests, cancellation, and closing while requests run. */
#include "base/base.h"
#include "support/check.h"
#include "inferflux.h"

#include <stdatomic.h>
#include <stdio.h>

static const char demo[] = "models/demo.gguf";

struct received {
    char text[4096];
    size_t n;
    int finish, n_ends;
    _Atomic int n_texts;
    char error[256];
};

static void on_event(void *user, const inferflux_event *ev)
{
    struct received *s = user;

    if (ev->kind == INFERFLUX_TEXT) {
        EXPECT_EQ(ev->text[ev->n_text], '\0');
        if (s->n + ev->n_text < sizeof(s->text))
            memcpy(s->text + s->n, ev->text, ev->n_text + 1);
        s->n += ev->n_text;
        s->n_texts++;
        return;
    }
    s->n_ends++;
    s->finish = ev->finish;
    if (ev->error)
        snprintf(s->error, sizeof(s->error), "%s", ev->error);
}

static inferflux *open_demo(void)
{
    inferflux *m;
    char why[256];

    EXPECT_EQ(inferflux_open(&m, demo, &(inferflux_options){ .threads = 2 }, why, sizeof(why)), 0);
    return m;
}

static inferflux_request *submit_request(
    inferflux *m, struct received *s, const char *text, int max_tokens)
{
    inferflux_message message = { "user", text };
    inferflux_params p = { .messages = &message, .n_messages = 1, .max_tokens = max_tokens };
    char why[256];

    inferflux_request *r = inferflux_submit(m, &p, on_event, s, why, sizeof(why));
    EXPECT(r != NULL);
    return r;
}

static void a_missing_file_is_one_line(void)
{
    inferflux *m;
    char why[256];

    EXPECT_EQ(inferflux_open(&m, "/nonexistent.gguf", NULL, why, sizeof(why)), -1);
    EXPECT(strstr(why, "/nonexistent.gguf") && !strchr(why, '\n'));
    char tiny[8];
    EXPECT_EQ(inferflux_open(&m, "/nonexistent.gguf", NULL, tiny, sizeof(tiny)), -1);
    EXPECT(strlen(tiny) < sizeof(tiny));
}

static void concurrent_requests_get_the_same_output_as_alone(void)
{
    enum { N = 12 };
    static struct received alone[N], together[N];
    inferflux_request *r[N];
    inferflux *m = open_demo();
    char text[N][40];

    for (int i = 0; i < N; i++) {
        snprintf(text[i], sizeof(text[i]), "What is %d plus %d?", i, i % 5);
        alone[i] = together[i] = (struct received){ 0 };
        inferflux_release(submit_request(m, &alone[i], text[i], 12));
        EXPECT(alone[i].n > 0);
        EXPECT_EQ(alone[i].n_ends, 1);
    }
    for (int i = 0; i < N; i++)
        r[i] = submit_request(m, &together[i], text[i], 12);
    for (int i = 0; i < N; i++) {
        inferflux_release(r[i]);
        EXPECT_STR(together[i].text, alone[i].text);
        EXPECT_EQ(together[i].finish, alone[i].finish);
    }
    inferflux_close(m);
}

static void invalid_parameters_are_reported(void)
{
    static struct received s;
    inferflux *m = open_demo();
    inferflux_message message = { "pope", "hi" };
    inferflux_params p = { .messages = &message, .n_messages = 1 };
    char why[256] = "";

    EXPECT(inferflux_submit(m, &p, on_event, &s, why, sizeof(why)) == NULL);
    EXPECT(strstr(why, "role") != NULL);
    p = (inferflux_params){ 0 };
    EXPECT(inferflux_submit(m, &p, on_event, &s, why, sizeof(why)) == NULL);
    inferflux_close(m);
}

/* The prompt is built by the code of the server. */
static void prompts_are_checked_against_the_context_as_in_the_server(void)
{
    enum { LONG = 200000 };
    static struct received s;
    inferflux *m = open_demo();
    static char text[LONG];
    char why[256] = "";
    inferflux_message message = { "user", text };
    inferflux_params p = { .messages = &message, .n_messages = 1 };

    memset(text, 97, LONG - 1);
    s = (struct received){ 0 };
    inferflux_release(inferflux_submit(m, &p, on_event, &s, why, sizeof(why)));
    EXPECT_EQ(s.finish, INFERFLUX_ERROR);
    EXPECT(strstr(s.error, "maximum context length"));
    p = (inferflux_params){ .prompt = "", .max_tokens = 2 }; /* starts with BOS */
    s = (struct received){ 0 };
    inferflux_release(inferflux_submit(m, &p, on_event, &s, why, sizeof(why)));
    EXPECT(s.finish != INFERFLUX_ERROR);
    inferflux_close(m);
}

static void a_cancelled_request_ends_once(void)
{
    inferflux *m = open_demo();

    for (int i = 0; i < 20; i++) {
        static struct received s;
        s = (struct received){ 0 };
        inferflux_request *r = submit_request(m, &s, "Hello!", 400);
        for (int spin = 0; spin < i * 1000 && !s.n_texts; spin++)
            continue;
        inferflux_cancel(r);
        inferflux_cancel(r);
        inferflux_release(r);
        EXPECT_EQ(s.n_ends, 1);
        EXPECT(s.finish == INFERFLUX_CANCELLED || s.finish == INFERFLUX_STOP);
    }
    inferflux_close(m);
}

static void closing_ends_running_requests(void)
{
    enum { N = 8 };
    static struct received s[N];
    inferflux_request *r[N];
    inferflux *m = open_demo();

    for (int i = 0; i < N; i++) {
        s[i] = (struct received){ 0 };
        r[i] = submit_request(m, &s[i], "Tell me about everything, please.", 400);
    }
    inferflux_close(m);
    for (int i = 0; i < N; i++) {
        EXPECT_EQ(s[i].n_ends, 1);
        inferflux_release(r[i]);
    }
}

/* ---- reasoning and tool calls */

static const char tools[] = "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\","
                            "\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{"
                            "\"type\":\"string\"}}}}}]";

static void on_part(void *user, const inferflux_event *ev)
{
    struct received *s = user;

    EXPECT((ev->kind == INFERFLUX_CALL) == (ev->name != NULL));
    if (ev->kind == INFERFLUX_REASONING || ev->kind == INFERFLUX_CALL)
        EXPECT(ev->n_text > 0 && !ev->text[ev->n_text]);
    else
        on_event(user, ev);
    s->n_texts++;
}

static void parsed_plain_text_is_content(void)
{
    inferflux *m = open_demo();
    inferflux_message message = { "user", "What is 3 plus 4?" };
    inferflux_params p = { .messages = &message, .n_messages = 1, .max_tokens = 20 };
    struct received whole = { 0 }, parts = { 0 };
    char why[256];

    inferflux_release(inferflux_submit(m, &p, on_event, &whole, why, sizeof(why)));
    p.parts = 1;
    inferflux_release(inferflux_submit(m, &p, on_part, &parts, why, sizeof(why)));
    EXPECT_STR(parts.text, whole.text);
    EXPECT(whole.n > 0 && parts.n_ends == 1);
    inferflux_close(m);
}

static void conversation_with_tool_calls_is_rendered(void)
{
    inferflux *m = open_demo();
    inferflux_call calls[] = { { "get_weather", "{\"city\": \"Oslo\"}" }, { "get_weather", NULL } };
    inferflux_message messages[] = { { "user", "Oslo?" }, { "assistant", NULL, calls, 2 },
        { "tool", "rain" }, { "tool", "sun" }, { "user", "Thanks." } };
    inferflux_params p = {
        .messages = messages, .n_messages = 5, .max_tokens = 5, .parts = 1, .tools = tools
    };
    struct received s = { 0 };
    char why[256];

    inferflux_release(inferflux_submit(m, &p, on_part, &s, why, sizeof(why)));
    EXPECT_EQ(s.n_ends, 1);
    EXPECT_STR(s.error, "");
    EXPECT(s.finish == INFERFLUX_STOP || s.finish == INFERFLUX_LENGTH);
    calls[1].name = NULL;
    EXPECT(!inferflux_submit(m, &p, on_part, &s, why, sizeof(why)));
    EXPECT_STR(why, "a call has no name");
    calls[1].name = "f";
    p.tools = "[{]";
    EXPECT(!inferflux_submit(m, &p, on_part, &s, why, sizeof(why)));
    EXPECT(strstr(why, "tools: line 1"));
    p.tools = "[{\"function\":{}}]";
    EXPECT(!inferflux_submit(m, &p, on_part, &s, why, sizeof(why)));
    EXPECT(strstr(why, "tools[0].function.name"));
    inferflux_close(m);
}

TESTS(TEST(parsed_plain_text_is_content), TEST(conversation_with_tool_calls_is_rendered),
    TEST(a_missing_file_is_one_line), TEST(concurrent_requests_get_the_same_output_as_alone),
    TEST(invalid_parameters_are_reported),
    TEST(prompts_are_checked_against_the_context_as_in_the_server),
    TEST(a_cancelled_request_ends_once), TEST(closing_ends_running_requests))
