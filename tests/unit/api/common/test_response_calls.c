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

/* Returns the body with ' for ". */
static const char *body_text(void)
{
    static char got[20000];

    snprintf(got, sizeof(got), STR_FMT, STR_ARG(kit.sink.body));
    for (char *c = got; *c; c++)
        *c = *c == '"' ? '\'' : *c;
    return got;
}

static bool body_contains(const char *what)
{
    return strstr(body_text(), what) != NULL;
}

static bool expect_body(const char *what)
{
    if (!body_contains(what))
        fprintf(stderr, "no %s in %s\n", what, body_text());
    return body_contains(what);
}

static bool body_ends_with(const char *what)
{
    const char *got = body_text();
    bool ends = strlen(got) >= strlen(what) && !strcmp(got + strlen(got) - strlen(what), what);

    if (!ends)
        fprintf(stderr, "no %s at the end of %s\n", what, got);
    return ends;
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
    kit_open_response(&dialect_openai_chat, "{" HI "}");
    begin_call_f(0);
    response_output_ops.call_broken(kit.response, 0, 0);
    response_output_ops.content(kit.response, 0, STR("text"));
    end_by_stop();
    EXPECT(expect_body("'content':'text'"));
    EXPECT(expect_body("'finish_reason':'stop'"));
    EXPECT(!body_contains("tool_calls"));
    kit_close_response();
}

/* Breaks a call, with its text as content, and ends the choice. */
static void end_inside_call(int choice, enum finish finish, struct str stop_text)
{
    response_output_ops.call_begin(kit.response, choice, 0, STR("f"));
    response_output_ops.call_args(kit.response, choice, 0, STR("{\"a\": "));
    response_output_ops.call_broken(kit.response, choice, 0);
    response_output_ops.content(kit.response, choice, STR("<f>"));
    response_set_ends_inside_call(kit.response, choice);
    response_choice_end(kit.response, choice, finish, stop_text, -1);
}

static void body_that_ends_inside_a_call_has_finish_reason_length(void)
{
    static const struct {
        enum finish finish;
        struct str stop_text;
        const char *want;
    } rows[] = {
        { FINISH_STOP, { 0 }, "'finish_reason':'length','stop_reason':null" },
        { FINISH_LENGTH, { 0 }, "'finish_reason':'length','stop_reason':null" },
        { FINISH_STOP, { "end", 3 }, "'finish_reason':'length','stop_reason':'end'" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        kit_open_response(&dialect_openai_chat, "{" HI "}");
        end_inside_call(0, rows[i].finish, rows[i].stop_text);
        response_end(kit.response);
        EXPECT(expect_body(rows[i].want));
        EXPECT(expect_body("'content':'<f>'"));
        EXPECT(!body_contains("tool_calls"));
    }
    /* the caller did not report the break, and a call before it was complete */
    kit_open_response(&dialect_openai_chat, "{" HI "}");
    emit_call_f(0);
    begin_call_f(1);
    end_by_stop();
    EXPECT(expect_body("'finish_reason':'length'") && expect_body("'tool_calls':[{"));
    kit_close_response();
}

#define ERROR(message)                                                                             \
    "data: {'error':{'message':'" message "','type':'invalid_request_error','param':null,"         \
    "'code':'incomplete_tool_call'}}\n\n"
#define ENDED_INSIDE ERROR("The output ended inside a tool call, which is incomplete.")
#define NOT_VALID    ERROR("The output contains a tool call that is not valid.")

/* Clients keep the calls of a stream, and some execute them after any finish reason. */
static void stream_with_a_broken_call_ends_with_an_error(void)
{
    static const struct {
        const char *request;
        enum finish finish;
        const char *call;
    } rows[] = {
        { "{" HI ",'stream':true}", FINISH_STOP, "'tool_calls':[{" },
        { "{" HI ",'stream':true}", FINISH_LENGTH, "'tool_calls':[{" },
        { "{" HI ",'stream':true,'logprobs':true,'return_token_ids':true}", FINISH_STOP,
            "'tool_calls':[{" },
        { "{" HI ",'stream':true,'functions':[{'name':'f'}]}", FINISH_STOP,
            "'function_call':{'name':'f'" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        for (int ends_inside = 0; ends_inside < 2; ends_inside++) {
            kit_open_response(&dialect_openai_chat, rows[i].request);
            response_begin(kit.response);
            if (ends_inside) {
                end_inside_call(0, rows[i].finish, STR_NONE);
            } else {
                begin_call_f(0);
                response_output_ops.call_broken(kit.response, 0, 0);
                response_output_ops.content(kit.response, 0, STR("<f> and on"));
                response_choice_end(kit.response, 0, rows[i].finish, STR_NONE, -1);
            }
            response_end(kit.response);
            EXPECT_EQ(kit.sink.n_ended, 1);
            EXPECT(expect_body(rows[i].call) && expect_body("'content':'<f>"));
            EXPECT(body_ends_with(ends_inside ? ENDED_INSIDE : NOT_VALID));
            EXPECT(!body_contains("[DONE]"));
            EXPECT(!body_contains("'finish_reason':'"));
        }
    }
    kit_close_response();
}

static void usage_precedes_the_error_of_a_broken_call(void)
{
    kit_open_response(
        &dialect_openai_chat, "{" HI ",'stream':true,'stream_options':{'include_usage':true}}");
    response_begin(kit.response);
    end_inside_call(0, FINISH_STOP, STR_NONE);
    response_end(kit.response);
    EXPECT(body_ends_with("'rejected_prediction_tokens':0}}}\n\n" ENDED_INSIDE));
    kit_close_response();
}

static void broken_call_of_one_choice_leaves_the_others_complete(void)
{
    kit_open_response(&dialect_openai_chat, "{" HI ",'stream':true,'n':3}");
    response_begin(kit.response);
    end_inside_call(1, FINISH_STOP, STR_NONE);
    response_output_ops.content(kit.response, 0, STR("Hello"));
    response_choice_end(kit.response, 0, FINISH_STOP, STR_NONE, -1);
    response_choice_end(kit.response, 2, FINISH_LENGTH, STR_NONE, -1);
    response_end(kit.response);
    EXPECT(expect_body("{'index':0,'delta':{},'logprobs':null,'finish_reason':'stop'"));
    EXPECT(expect_body("{'index':2,'delta':{},'logprobs':null,'finish_reason':'length'"));
    EXPECT(!body_contains("{'index':1,'delta':{},"));
    EXPECT(body_ends_with(ENDED_INSIDE));
    EXPECT(!body_contains("[DONE]"));
    kit_open_response(&dialect_openai_chat, "{" HI ",'n':2}");
    end_inside_call(1, FINISH_STOP, STR_NONE);
    response_choice_end(kit.response, 0, FINISH_STOP, STR_NONE, -1);
    response_end(kit.response);
    EXPECT(expect_body("'finish_reason':'stop','stop_reason':null},{'index':1,"));
    EXPECT(expect_body("'finish_reason':'length'"));
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
    TEST(body_that_ends_inside_a_call_has_finish_reason_length),
    TEST(stream_with_a_broken_call_ends_with_an_error),
    TEST(usage_precedes_the_error_of_a_broken_call),
    TEST(broken_call_of_one_choice_leaves_the_others_complete),
    TEST(tool_call_does_not_hide_finish_reason_length), TEST(logprobs_are_sent_with_the_next_event),
    TEST(call_ids_have_the_format_of_the_template), TEST(every_failed_allocation_is_reported))
