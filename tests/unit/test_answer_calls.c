/* api/answer_calls.c, and how OpenAI's chat tells calls and thoughts. */
#include "wire_kit.h"

#define HI "'messages':[{'role':'user','content':'hi'}]"

static void begin_f(int number)
{
    answer_call_begin(kit.answer, 0, number, STR("f"));
    answer_call_args(kit.answer, 0, number, STR("{\"a\""));
    answer_call_args(kit.answer, 0, number, STR(":1}"));
}

static void call_f(int number)
{
    begin_f(number);
    answer_call_end(kit.answer, 0, number);
}

static void end_by_stop(void)
{
    answer_choice_end(kit.answer, 0, FINISH_STOP, STR_NONE, -1);
    answer_end(kit.answer);
}

static bool says(const char *what)
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

static void a_call_is_streamed_in_pieces(void)
{
    kit_open(&wire_openai_chat, "{" HI ",'stream':true}");
    answer_begin(kit.answer);
    answer_reasoning(kit.answer, 0, STR("hm"));
    call_f(0);
    end_by_stop();
    kit_body_is(HEAD "'role':'assistant','content':''" MORE HEAD
                     "'reasoning_content':'hm','reasoning':'hm'" MORE CALL "'id':'" ID
                     "','type':'function','function':{'name':'f','arguments':''}}]" MORE ARGS(
                         "{\\'a\\'") ARGS(":1}") HEAD
        "},'logprobs':null,'finish_reason':'tool_calls','stop_reason':null}]}\n\n"
        "data: [DONE]\n\n");
    kit_close();
}

static void a_call_is_whole_in_a_body(void)
{
    kit_open(&wire_openai_chat, "{" HI "}");
    answer_reasoning(kit.answer, 0, STR("\"hm\""));
    answer_reasoning_tokens(kit.answer, 0, 2);
    call_f(0);
    call_f(1);
    end_by_stop();
    EXPECT(says("'message':{'role':'assistant','content':null,'reasoning_content':'\\'hm\\'',"
                "'reasoning':'\\'hm\\'','refusal':null,'tool_calls':[{'id':'" ID
                "','type':'function','function':{'name':'f','arguments':'{\\'a\\':1}'}},{'id':"));
    EXPECT(says("'annotations':[]},'logprobs':null,'finish_reason':'tool_calls'"));
    EXPECT(says("'reasoning_tokens':2,"));
    kit_close();
}

static void text_and_a_call_are_both_told(void)
{
    kit_open(&wire_openai_chat, "{" HI "}");
    kit_say(0, 1);
    call_f(0);
    end_by_stop();
    EXPECT(says("'content':'Hello','refusal':null,'tool_calls':[{"));
    kit_close();
}

static void a_call_that_breaks_is_no_reason_to_stop(void)
{
    for (int stream = 0; stream < 2; stream++) {
        kit_open(&wire_openai_chat, stream ? "{" HI ",'stream':true}" : "{" HI "}");
        answer_begin(kit.answer);
        begin_f(0);
        answer_call_broken(kit.answer, 0, 0);
        answer_text(kit.answer, 0, STR("text"));
        begin_f(1); /* cut off by the end */
        end_by_stop();
        EXPECT(says("'content':'text'"));
        EXPECT(says("'finish_reason':'stop'"));
        EXPECT(!stream || says("'index':1,'id':'call_"));
        EXPECT(stream || !strstr(kit_z(buf_str(&kit.sink.body)), "tool_calls"));
    }
    kit_close();
}

static void a_call_does_not_hide_that_the_answer_was_cut(void)
{
    kit_open(&wire_openai_chat, "{" HI "}");
    call_f(0);
    answer_choice_end(kit.answer, 0, FINISH_LENGTH, STR_NONE, -1);
    answer_end(kit.answer);
    EXPECT(says("'finish_reason':'length'") && says("'tool_calls':[{"));
    kit_close();
}

static void log_probabilities_come_with_whatever_is_told_next(void)
{
    kit_open(&wire_openai_chat, "{" HI ",'stream':true,'logprobs':true}");
    answer_begin(kit.answer);
    struct sampled t = { .id = 1, .logprob = -0.5f };
    answer_token(kit.answer, 0, &t);
    answer_reasoning(kit.answer, 0, STR("hm"));
    EXPECT(!strstr(kit_z(buf_str(&kit.sink.body)), "Hello"));
    answer_flush(kit.answer);
    EXPECT(says("'reasoning':'hm'},'logprobs':{'content':[{'token':'Hello'"));
    answer_token(kit.answer, 0, &t);
    call_f(0);
    answer_flush(kit.answer);
    EXPECT(says("'arguments':''}}]},'logprobs':{'content':[{'token':'Hello'"));
    kit_close();
}

static void ids_are_what_the_template_wants(void)
{
    for (int ids = CALL_IDS_NINE; ids <= CALL_IDS_NAME; ids++) {
        struct answer_setup s = { .ask = &kit.ask,
            .sink = &kit.sink.sink,
            .model = STR("m"),
            .fingerprint = "fp_1",
            .id = "1",
            .call_ids = (enum call_ids)ids,
            .n_earlier_calls = 3 };
        kit_open(&wire_openai_chat, "{" HI "}");
        answer_free(kit.answer);
        EXPECT_EQ(answer_new(&kit.answer, &s, &kit.e), 0);
        call_f(0);
        call_f(1);
        end_by_stop();
        EXPECT(ids == CALL_IDS_NINE || says("'id':'functions.f:3'"));
        EXPECT(ids == CALL_IDS_NINE || says("'id':'functions.f:4'"));
        const char *at = strstr(kit_z(buf_str(&kit.sink.body)), "\"tool_calls\":[{\"id\":\"");
        EXPECT(at && (ids == CALL_IDS_NAME || strcspn(at + 21, "\"") == 9));
    }
    kit_close();
}

static void every_failed_allocation_is_reported(void)
{
    int n = 0;

    for (;; n++) {
        kit_open(&wire_openai_chat, "{" HI "}");
        uint64_t failures = mem_failures();
        mem_fail_after((uint64_t)n + 1);
        for (int i = 0; i < 5; i++)
            call_f(i);
        mem_fail_after(0);
        if (mem_failures() == failures)
            break;
        EXPECT(!answer_ok(kit.answer));
        answer_end(kit.answer);
        EXPECT_EQ(kit.sink.status, 503);
    }
    EXPECT(n >= FAULTS_AT_LEAST(11));
    kit_close();
}

TESTS(TEST(a_call_is_streamed_in_pieces), TEST(a_call_is_whole_in_a_body),
    TEST(text_and_a_call_are_both_told), TEST(a_call_that_breaks_is_no_reason_to_stop),
    TEST(a_call_does_not_hide_that_the_answer_was_cut),
    TEST(log_probabilities_come_with_whatever_is_told_next), TEST(ids_are_what_the_template_wants),
    TEST(every_failed_allocation_is_reported))
