/* Tool calls in responses, and the form of calls and reasoning in OpenAI chat responses. */
#include "support/dialect_kit.h"

#define HI "'messages':[{'role':'user','content':'hi'}]"

static void begin_call_f(int number)
{
    response_output_ops.call_begin(kit.response, 0, number, STR("f"));
    response_output_ops.call_args(kit.response, 0, number, STR("{\"a\""));
    response_output_ops.call_args(kit.response, 0, number, STR(":1}"));
}

static void emit_call_f(int number)
{
    begin_call_f(number);
    response_output_ops.call_end(kit.response, 0, number);
}

static void end_by_stop(void)
{
    response_choice_end(kit.response, 0, FINISH_STOP, STR_NONE, -1);
    response_end(kit.response);
}

static bool expect_body(const char *what)
{
    static char got[20000];

    snprintf(got, sizeof(got), STR_FMT, STR_ARG(kit.sink.body));
    for (char *c = got; *c; c++)
        *c = *c == '"' ? '\'' : *c;
    if (!strstr(got, what))
        fprintf(stderr, "no %s in %s\n", what, got);
    return strstr(got, what) != NULL;
}

#define ID "call_qfBBOjdVgQ1DcCT0oQtwBLGA"
#define HEAD                                                                                       \
    "data: {'id':'chatcmpl-1','object':'chat.completion.chunk','created':1700000000,'model':'m',"  \
    "'system_fingerprint':'fp_1','choices':[{'index':0,'delta':{"
#define MORE       "},'logprobs':null,'finish_reason':null}]}\n\n"
#define CALL       HEAD "'tool_calls':[{'index':0,"
#define ARGS(text) CALL "'function':{'arguments':'" text "'}}]" MORE

static void tool_call_is_streamed_in_deltas(void)
{
    kit_open_response(&dialect_openai_chat, "{" HI ",'stream':true}");
    response_begin(kit.response);
    response_output_ops.reasoning(kit.response, 0, STR("hm"));
    emit_call_f(0);
    end_by_stop();
    kit_expect_body(HEAD "'role':'assistant','content':''" MORE HEAD
                         "'reasoning_content':'hm','reasoning':'hm'" MORE CALL "'id':'" ID
                         "','type':'function','function':{'name':'f','arguments':''}}]" MORE ARGS(
                             "{\\'a\\'") ARGS(":1}") HEAD
        "},'logprobs':null,'finish_reason':'tool_calls','stop_reason':null}]}\n\n"
        "data: [DONE]\n\n");
    kit_close_response();
}

static void body_contains_the_whole_tool_call(void)
{
    kit_open_response(&dialect_openai_chat, "{" HI "}");
    response_output_ops.reasoning(kit.response, 0, STR("\"hm\""));
    response_set_reasoning_tokens(kit.response, 0, 2);
    emit_call_f(0);
    emit_call_f(1);
    end_by_stop();
    EXPECT(expect_body(
        "'message':{'role':'assistant','content':null,'reasoning_content':'\\'hm\\'',"
        "'reasoning':'\\'hm\\'','refusal':null,'tool_calls':[{'id':'" ID
        "','type':'function','function':{'name':'f','arguments':'{\\'a\\':1}'}},{'id':"));
    EXPECT(expect_body("'annotations':[]},'logprobs':null,'finish_reason':'tool_calls'"));
    EXPECT(expect_body("'reasoning_tokens':2,"));
    kit_close_response();
}

static void response_contains_text_and_tool_call(void)
{
    kit_open_response(&dialect_openai_chat, "{" HI "}");
    kit_emit_token(0, 1);
    emit_call_f(0);
    end_by_stop();
    EXPECT(expect_body("'content':'Hello','refusal':null,'tool_calls':[{"));
    kit_close_response();
}

static void broken_call_does_not_set_finish_reason_tool_calls(void)
{
    for (int stream = 0; stream < 2; stream++) {
        kit_open_response(&dialect_openai_chat, stream ? "{" HI ",'stream':true}" : "{" HI "}");
        response_begin(kit.response);
        begin_call_f(0);
        response_output_ops.call_broken(kit.response, 0, 0);
        response_output_ops.content(kit.response, 0, STR("text"));
        begin_call_f(1); /* cut off by the token limit */
        end_by_stop();
        EXPECT(expect_body("'content':'text'"));
        EXPECT(expect_body("'finish_reason':'stop'"));
        EXPECT(!stream || expect_body("'index':1,'id':'call_"));
        EXPECT(stream || !strstr(kit_cstr(buf_str(&kit.sink.body)), "tool_calls"));
    }
    kit_close_response();
}

static void tool_call_does_not_hide_finish_reason_length(void)
{
    kit_open_response(&dialect_openai_chat, "{" HI "}");
    emit_call_f(0);
    response_choice_end(kit.response, 0, FINISH_LENGTH, STR_NONE, -1);
    response_end(kit.response);
    EXPECT(expect_body("'finish_reason':'length'") && expect_body("'tool_calls':[{"));
    kit_close_response();
}

static void logprobs_are_sent_with_the_next_event(void)
{
    kit_open_response(&dialect_openai_chat, "{" HI ",'stream':true,'logprobs':true}");
    response_begin(kit.response);
    struct sampled t = { .id = 1, .logprob = -0.5f };
    response_add_token(kit.response, 0, &t);
    response_output_ops.reasoning(kit.response, 0, STR("hm"));
    EXPECT(!strstr(kit_cstr(buf_str(&kit.sink.body)), "Hello"));
    response_flush(kit.response);
    EXPECT(expect_body("'reasoning':'hm'},'logprobs':{'content':[{'token':'Hello'"));
    response_add_token(kit.response, 0, &t);
    emit_call_f(0);
    response_flush(kit.response);
    EXPECT(expect_body("'arguments':''}}]},'logprobs':{'content':[{'token':'Hello'"));
    kit_close_response();
}

static void call_ids_have_the_format_of_the_template(void)
{
    for (int ids = CALL_IDS_NINE; ids <= CALL_IDS_NAME; ids++) {
        struct response_setup s = { .request = &kit.request,
            .sink = &kit.sink.sink,
            .model = STR("m"),
            .fingerprint = "fp_1",
            .id = "1",
            .call_ids = (enum call_id_form)ids,
            .n_earlier_calls = 3 };
        kit_open_response(&dialect_openai_chat, "{" HI "}");
        response_free(kit.response);
        EXPECT_EQ(response_new(&kit.response, &s, &kit.e), 0);
        emit_call_f(0);
        emit_call_f(1);
        end_by_stop();
        EXPECT(ids == CALL_IDS_NINE || expect_body("'id':'functions.f:3'"));
        EXPECT(ids == CALL_IDS_NINE || expect_body("'id':'functions.f:4'"));
        const char *at = strstr(kit_cstr(buf_str(&kit.sink.body)), "\"tool_calls\":[{\"id\":\"");
        EXPECT(at && (ids == CALL_IDS_NAME || strcspn(at + 21, "\"") == 9));
    }
    kit_close_response();
}

static void every_failed_allocation_is_reported(void)
{
    int n = 0;

    for (;; n++) {
        kit_open_response(&dialect_openai_chat, "{" HI "}");
        uint64_t failures = mem_failures();
        mem_fail_after((uint64_t)n + 1);
        for (int i = 0; i < 5; i++)
            emit_call_f(i);
        mem_fail_after(0);
        if (mem_failures() == failures)
            break;
        EXPECT(!response_ok(kit.response));
        response_end(kit.response);
        EXPECT_EQ(kit.sink.status, 503);
    }
    EXPECT(n >= FAULTS_AT_LEAST(11));
    kit_close_response();
}

TESTS(TEST(tool_call_is_streamed_in_deltas), TEST(body_contains_the_whole_tool_call),
    TEST(response_contains_text_and_tool_call),
    TEST(broken_call_does_not_set_finish_reason_tool_calls),
    TEST(tool_call_does_not_hide_finish_reason_length), TEST(logprobs_are_sent_with_the_next_event),
    TEST(call_ids_have_the_format_of_the_template), TEST(every_failed_allocation_is_reported))
