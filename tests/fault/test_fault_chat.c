/* One chat request whose Nth allocation fails, for N = 1, 2, ... until none fails: the server
 * sends a response or an error or closes the connection, frees everything, and serves the next
 * request. */
#include "support/test_server.h"

static void fail_each_allocation(
    struct test_server *w, const char *path, const char *body, const char *whole)
{
    char text[16384];
    uint64_t n, before;
    int n_cut = 0;

    for (n = 1;; n++) {
        before = mem_failures();
        mem_fail_after(n);
        int status = test_server_post(w, path, body, text, sizeof(text));
        mem_fail_after(0);
        if (mem_failures() == before) {
            EXPECT_EQ(status, 200);
            break;
        }
        bool is_whole = status == 200 && strstr(text, whole);
        bool is_error = status >= 400 || (status == 200 && strstr(text, "\"error\""));
        n_cut += !status || (!is_whole && !is_error);
        EXPECT(is_whole || is_error || !status || status == 200);
        EXPECT_EQ(test_server_post(w, path, body, text, sizeof(text)), 200);
        EXPECT(strstr(text, whole) != NULL);
    }
    printf("%s: %d allocations failed, one by one; %d connections cut\n", path, (int)n - 1, n_cut);
    EXPECT(n > 10);
}

static void each_allocation_of_a_chat_may_fail(void)
{
    struct test_server w;

    test_server_open(&w, 1, 1);
    fail_each_allocation(&w, "/v1/chat/completions",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stop\":[\"zzz\"],"
        "\"logit_bias\":{\"5\":1},\"script\":\"one two three\"}",
        "one two three");
    test_server_close(&w);
}

static void each_allocation_of_a_stream_may_fail(void)
{
    struct test_server w;

    test_server_open(&w, 1, 1);
    fail_each_allocation(&w, "/v1/chat/completions",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stream\":true,\"n\":2,"
        "\"logprobs\":true,\"script\":\"one\"}",
        "[DONE]");
    test_server_close(&w);
}

static void each_allocation_of_a_tool_call_may_fail(void)
{
    struct test_server w;

    test_server_open(&w, 1, 1);
    fail_each_allocation(&w, "/v1/chat/completions",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\","
        "\"tool_calls\":[{\"id\":\"x\",\"function\":{\"name\":\"g\",\"arguments\":\"{}\"}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"x\",\"content\":\"1\"}],"
        "\"tools\":[{\"function\":{\"name\":\"f\"}},{\"function\":{\"name\":\"g\"}}],"
        "\"tool_choice\":\"required\",\"script\":\"f\\\", \\\"arguments\\\": {\\\"a\\\": 1}}\"}",
        "\"tool_calls\"");
    fail_each_allocation(&w, "/v1/chat/completions",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stream\":true,"
        "\"functions\":[{\"name\":\"f\"}],\"function_call\":{\"name\":\"f\"},"
        "\"script\":\"{\\\"a\\\": 1}}\"}",
        "\"function_call\"");
    test_server_close(&w);
}

static void each_allocation_of_a_completion_may_fail(void)
{
    struct test_server w;

    test_server_open(&w, 1, 1);
    fail_each_allocation(&w, "/v1/completions",
        "{\"prompt\":[\"a\",\"b\"],\"echo\":true,\"logprobs\":2,\"best_of\":2,\"script\":\"one\"}",
        "\"text_completion\"");
    test_server_close(&w);
}

static void each_allocation_of_tokenize_routes_may_fail(void)
{
    struct test_server w;

    test_server_open(&w, 1, 1);
    fail_each_allocation(
        &w, "/tokenize", "{\"content\":\"some text\",\"with_pieces\":true}", "\"tokens\"");
    fail_each_allocation(&w, "/detokenize", "{\"tokens\":[1,2,3]}", "\"content\"");
    fail_each_allocation(&w, "/apply-template",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", "\"prompt\"");
    fail_each_allocation(&w, "/v1/parse",
        "{\"tool_parser\":\"hermes_json\",\"chunks\":[\"<tool_call>{\\\"name\\\":\\\"f\\\"}\"]}",
        "\"deltas\"");
    test_server_close(&w);
}

static void each_allocation_of_other_dialects_may_fail(void)
{
    struct test_server w;

    test_server_open(&w, 1, 1);
    fail_each_allocation(&w, "/v1/messages",
        "{\"max_tokens\":9,\"system\":[{\"type\":\"text\",\"text\":\"s\"}],\"messages\":["
        "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"hi\"}]},"
        "{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"t\"},"
        "{\"type\":\"text\",\"text\":\"a\"}]},{\"role\":\"user\",\"content\":\"b\"}],"
        "\"thinking\":{\"type\":\"disabled\"},\"stream\":true,\"script\":\"one\"}",
        "message_stop");
    fail_each_allocation(&w, "/v1/messages/count_tokens",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", "\"input_tokens\"");
    fail_each_allocation(&w, "/api/chat",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"think\":\"low\","
        "\"logprobs\":true,\"script\":\"one\"}",
        "\"done\":true");
    fail_each_allocation(&w, "/api/generate",
        "{\"prompt\":\"hi\",\"system\":\"s\",\"script\":\"one\"}", "\"done\":true");
    fail_each_allocation(&w, "/completion",
        "{\"prompt\":[\"a\",\"b\"],\"n_probs\":2,\"n_cmpl\":2,\"logit_bias\":[[5,false]],"
        "\"script\":\"one\"}",
        "\"stop_type\"");
    test_server_close(&w);
}

#define FUNCTION "{\"type\":\"function\",\"name\":\"f\",\"parameters\":{}}"
#define THOUGHT                                                                                    \
    "<think>hm</think>well <tool_call>{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {}}"            \
    "</tool_call>"

/* The responses are stored, and the second body continues a missing one. */
static void each_allocation_of_a_response_may_fail(void)
{
    struct test_server w;

    test_server_open(&w, 1, 1);
    fail_each_allocation(&w, "/v1/responses",
        "{\"input\":\"hi\",\"stream\":true,\"tools\":[" FUNCTION "],\"script\":\"" THOUGHT "\","
        "\"include\":[\"reasoning.encrypted_content\",\"message.output_text.logprobs\"]}",
        "response.completed");
    fail_each_allocation(&w, "/v1/responses",
        "{\"instructions\":\"i\",\"input\":[{\"role\":\"user\",\"content\":[{\"type\":"
        "\"input_text\",\"text\":\"a\"}]},{\"type\":\"reasoning\",\"summary\":[],"
        "\"encrypted_content\":\"v1.aGk=\"},{\"type\":\"custom_tool_call\",\"call_id\":\"c\","
        "\"name\":\"f\",\"input\":\"x\"},{\"type\":\"custom_tool_call_output\",\"call_id\":"
        "\"c\",\"output\":\"o\"}],\"script\":\"one\"}",
        "\"status\":\"completed\"");
    fail_each_allocation(
        &w, "/v1/responses/input_tokens", "{\"input\":\"hi\"}", "\"input_tokens\"");
    response_store_check(w.response_store);
    test_server_close(&w);
}

TESTS(TEST(each_allocation_of_other_dialects_may_fail), TEST(each_allocation_of_a_chat_may_fail),
    TEST(each_allocation_of_a_stream_may_fail), TEST(each_allocation_of_a_tool_call_may_fail),
    TEST(each_allocation_of_a_completion_may_fail),
    TEST(each_allocation_of_tokenize_routes_may_fail), TEST(each_allocation_of_a_response_may_fail))
