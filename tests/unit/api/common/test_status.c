/* api/common/status.c: every error code has a name in each dialect, and states whether a retry is
 * useful. */
#include "support/check.h"

#include "api/common/status.h"
#include "base/json.h"
#include "generate/request.h"
#include "support/fake_sink.h"

static const enum errcode codes[] = {
#define ERR(name, meaning) ERR_##name,
#include "base/errors.def"
#undef ERR
};

static struct fake_sink sink;
static struct arena *arena;

static const struct json *reply(
    enum error_form form, const struct err *e, const struct error_extra *x)
{
    struct http_field own = { STR("x-request-id"), STR("r1") };
    struct json *j = NULL;
    struct err ignored;

    fake_sink_clear(&sink);
    fake_sink_init(&sink);
    arena_free(arena);
    arena = arena_new(MB);
    status_reply(&sink.sink, form, e, x, &own, 1);
    EXPECT_EQ(sink.n_ended, 1);
    EXPECT_EQ(json_parse(&j, buf_str(&sink.body), arena, NULL, &ignored), 0);
    return j;
}

static void finish(void)
{
    fake_sink_clear(&sink);
    arena_free(arena);
    arena = NULL;
}

static void every_code_has_a_status(void)
{
    for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
        struct status s = status_of(codes[i]);
        EXPECT(s.http >= 400 && s.http < 600);
        EXPECT(s.type && s.code && s.title);
        /* Client libraries retry 408, 409, 429 and 5xx automatically. */
        if (s.http < 500 && s.http != 429)
            EXPECT(s.retry != RETRY_LATER);
        if (s.http == 429 || s.http == 503)
            EXPECT(s.retry == RETRY_LATER);
        EXPECT(s.http != 409 && (s.http == 408) == (codes[i] == ERR_LATE));
    }
}

static void an_error_is_an_object(void)
{
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
        err_param(&e, codes[i], "field", "what %s", "happened");
        const struct json *o = json_get(reply(ERROR_OPENAI, &e, NULL), "error");
        EXPECT(o && o->kind == JSON_OBJECT && o->n == 4);
        EXPECT(str_is(json_get(o, "message")->s, "what happened"));
        EXPECT(str_is(json_get(o, "param")->s, "field"));
        EXPECT(str_is(json_get(o, "type")->s, status_of(codes[i]).type));
        EXPECT(str_is(json_get(o, "code")->s, status_of(codes[i]).code));
        EXPECT_EQ(sink.status, status_of(codes[i]).http);
        EXPECT_STR(sink.type, "application/json");
        EXPECT(strstr(sink.fields, "x-request-id: r1\n") == sink.fields);
    }
    finish();
}

static void status_codes_depend_on_the_route(void)
{
    struct err e;
    struct error_extra x = { .code = "insufficient_quota" };

    err_param(&e, ERR_NOT_FOUND, "model", "The model 'x' does not exist.");
    EXPECT(str_is(
        json_get(json_get(reply(ERROR_OPENAI, &e, NULL), "error"), "code")->s, "model_not_found"));
    EXPECT_EQ(sink.status, 404);
    err_set(&e, ERR_NOT_FOUND, "No such path.");
    const struct json *o = json_get(reply(ERROR_OPENAI, &e, NULL), "error");
    EXPECT(str_is(json_get(o, "code")->s, "not_found"));
    EXPECT(json_get(o, "param")->kind == JSON_NULL);
    err_set(&e, ERR_UNSUPPORTED, "x");
    EXPECT(str_is(
        json_get(json_get(reply(ERROR_OPENAI, &e, NULL), "error"), "code")->s, "unsupported"));
    err_set(&e, ERR_RATE, "x");
    EXPECT(str_is(
        json_get(json_get(reply(ERROR_OPENAI, &e, &x), "error"), "code")->s, "insufficient_quota"));
    finish();
}

static void retry_after_is_sent(void)
{
    struct err e;
    struct error_extra x = { .retry_after_s = 30 };

    err_set(&e, ERR_OVERLOADED, "The queue is full.");
    reply(ERROR_OPENAI, &e, NULL);
    EXPECT_STR(sink.fields, "x-request-id: r1\nRetry-After: 1\n");
    reply(ERROR_OPENAI, &e, &x);
    EXPECT_STR(sink.fields, "x-request-id: r1\nRetry-After: 30\n");
    err_set(&e, ERR_CORRUPT, "x");
    reply(ERROR_OPENAI, &e, NULL);
    EXPECT_STR(sink.fields, "x-request-id: r1\nx-should-retry: false\n");
    err_set(&e, ERR_INVALID, "x");
    reply(ERROR_OPENAI, &e, NULL);
    EXPECT_STR(sink.fields, "x-request-id: r1\n");
    finish();
}

static void context_overflow_contains_both_numbers(void)
{
    struct error_extra x = { .n_prompt_tokens = 9, .n_ctx = 8 };
    struct err e;
    int64_t n;

    EXPECT_EQ(err_context(&e, "messages", 9, 8), -1);
    const struct json *o = json_get(reply(ERROR_OPENAI, &e, &x), "error");
    EXPECT(str_find(json_get(o, "message")->s, STR("maximum context length is 8 tokens")) > 0);
    EXPECT(str_find(json_get(o, "message")->s, STR("exceeds the available context size")) > 0);
    EXPECT(str_is(json_get(o, "code")->s, "context_length_exceeded"));
    EXPECT(json_i64(json_get(o, "n_prompt_tokens"), &n) && n == 9);
    EXPECT(json_i64(json_get(o, "n_ctx"), &n) && n == 8);
    EXPECT_EQ(sink.status, 400);
    EXPECT_EQ(err_context_at_least(&e, "messages", INT32_MAX, INT32_MAX), -1);
    EXPECT(strlen(e.msg) < sizeof(e.msg) - 1);
    EXPECT(strstr(e.msg, "your request has at least 2147483647 tokens"));
    x.is_lower_bound = true;
    o = json_get(reply(ERROR_ANTHROPIC, &e, &x), "error");
    EXPECT(str_is(json_get(o, "message")->s, "prompt is too long: at least 9 tokens > 8 maximum"));
    finish();
}

static void problem_details_are_written(void)
{
    struct error_extra x = { .instance = "/admin/x" };
    struct err e;
    int64_t n;

    err_set(&e, ERR_NOT_FOUND, "Nobody serves this \"path\".");
    const struct json *j = reply(ERROR_PROBLEM, &e, &x);
    EXPECT_STR(sink.type, "application/problem+json");
    EXPECT(str_is(json_get(j, "title")->s, "Not Found"));
    EXPECT(str_is(json_get(j, "detail")->s, "Nobody serves this \"path\"."));
    EXPECT(str_is(json_get(j, "instance")->s, "/admin/x"));
    EXPECT(str_is(json_get(j, "type")->s, "about:blank"));
    EXPECT(json_i64(json_get(j, "status"), &n) && n == 404);
    EXPECT(!json_get(j, "error"));
    finish();
}

/* Error types that the client libraries of each dialect check. */
static void each_dialect_has_its_own_error_types(void)
{
    static const struct {
        enum errcode code;
        int http_anthropic;
        const char *anthropic, *llama;
    } want[] = {
        { ERR_INVALID, 400, "invalid_request_error", "invalid_request_error" },
        { ERR_UNSUPPORTED, 400, "invalid_request_error", "not_supported_error" },
        { ERR_CONTEXT, 400, "invalid_request_error", "exceed_context_size_error" },
        { ERR_AUTH, 401, "authentication_error", "authentication_error" },
        { ERR_FORBIDDEN, 403, "permission_error", "permission_error" },
        { ERR_NOT_FOUND, 404, "not_found_error", "not_found_error" },
        { ERR_TOO_LARGE, 413, "request_too_large", "invalid_request_error" },
        { ERR_LATE, 408, "invalid_request_error", "invalid_request_error" },
        { ERR_RATE, 429, "rate_limit_error", "invalid_request_error" },
        { ERR_INTERNAL, 500, "api_error", "server_error" },
        { ERR_OVERLOADED, 529, "overloaded_error", "unavailable_error" },
        { ERR_NOT_READY, 503, "overloaded_error", "unavailable_error" },
        { ERR_TIMEOUT, 504, "timeout_error", "server_error" },
        { ERR_NONE, 500, "api_error", "server_error" }, /* no error code */
        { (enum errcode)1000, 500, "api_error", "server_error" },
    };

    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        struct err e = { .code = want[i].code };
        const struct json *o = json_get(reply(ERROR_ANTHROPIC, &e, NULL), "error");
        EXPECT_EQ(sink.status, want[i].http_anthropic);
        EXPECT(str_is(json_get(o, "type")->s, want[i].anthropic));
        o = json_get(reply(ERROR_LLAMA, &e, NULL), "error");
        EXPECT_EQ(sink.status, status_of(want[i].code).http);
        EXPECT(str_is(json_get(o, "type")->s, want[i].llama));
        EXPECT(json_get(reply(ERROR_OLLAMA, &e, NULL), "error")->kind == JSON_STRING);
    }
    finish();
}

TESTS(TEST(every_code_has_a_status), TEST(each_dialect_has_its_own_error_types),
    TEST(an_error_is_an_object), TEST(status_codes_depend_on_the_route), TEST(retry_after_is_sent),
    TEST(context_overflow_contains_both_numbers), TEST(problem_details_are_written))
