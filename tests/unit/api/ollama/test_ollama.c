/* Ollama dialect: accepted bodies, their translation to a request, and the response lines. */
#include "api/ollama/ollama.h"
#include "support/dialect_kit.h"

#define CHAT(more)    "{'model':'m','messages':[{'role':'user','content':'hi'}]" more "}"
#define SAY(messages) "{'model':'m','messages':[" messages "]}"
#define ASK(more)     "{'model':'m','prompt':'hi'" more "}"
#define OPTIONS(more) CHAT(",'options':{" more "}")
#define OK            ERR_NONE

static const struct kit_row chat_rows[] = {
    { CHAT(""), OK, "" },
    { CHAT(",'an_unknown_field':1"), OK, "" },
    { "{'messages':{}}", OK, "" }, /* counts as empty, like [] */
    { "{'messages':'x'}", ERR_INVALID, "messages" },
    { CHAT(",'stream':1"), ERR_INVALID, "stream" },
    { CHAT(",'format':''"), OK, "" },
    { CHAT(",'format':'json'"), OK, "" },
    { CHAT(",'format':{'type':'object'}"), OK, "" },
    { CHAT(",'format':'yaml'"), ERR_INVALID, "format" },
    { CHAT(",'tools':[]"), OK, "" },
    { CHAT(",'tools':[{'type':'function'}]"), ERR_MISSING, "tools[0].function" },
    { CHAT(",'tools':[{'type':'function','function':{'name':'f'}}]"), OK, "" },
    { CHAT(",'tools':{}"), ERR_INVALID, "tools" },
    { CHAT(",'think':true"), OK, "" },
    { CHAT(",'think':'high'"), OK, "" },
    { CHAT(",'think':'hard'"), ERR_INVALID, "think" },
    { CHAT(",'think':1"), ERR_INVALID, "think" },
    { CHAT(",'keep_alive':0"), OK, "" },
    { CHAT(",'keep_alive':'5m'"), OK, "" },
    { CHAT(",'keep_alive':true"), ERR_INVALID, "keep_alive" },
    { CHAT(",'logprobs':true,'top_logprobs':3"), OK, "" },
    { CHAT(",'top_logprobs':99"), ERR_RANGE, "top_logprobs" },
    { CHAT(",'options':null"), OK, "" },
    { CHAT(",'options':7"), ERR_INVALID, "options" },
    { OPTIONS("'temperature':0,'num_ctx':4096,'num_gpu':1,'seed':1,'stop':['a']"), OK, "" },
    { OPTIONS("'temperature':'hot'"), ERR_INVALID, "temperature" },
    { OPTIONS("'top_p':7"), ERR_RANGE, "top_p" },
    { OPTIONS("'num_predict':-2"), OK, "" },
    { OPTIONS("'num_predict':1.5"), ERR_INVALID, "num_predict" },
    { OPTIONS("'mirostat':0"), OK, "" },
    { OPTIONS("'mirostat':2"), ERR_UNSUPPORTED, "mirostat" },
    { SAY("7"), ERR_INVALID, "messages[0]" },
    { SAY("{'content':'x'}"), ERR_MISSING, "messages[0].role" },
    { SAY("{'role':'boss','content':'x'}"), ERR_INVALID, "messages[0].role" },
    { SAY("{'role':'user','content':7}"), ERR_INVALID, "messages[0].content" },
    { SAY("{'role':'user','content':'x','images':[]}"), OK, "" },
    { SAY("{'role':'user','content':'x','images':['aGk=']}"), ERR_UNSUPPORTED,
        "messages[0].images" },
    { SAY("{'role':'assistant','tool_calls':7}"), ERR_INVALID, "messages[0].tool_calls" },
};

static const struct kit_row generate_rows[] = {
    { ASK(""), OK, "" },
    { "{'prompt':7}", ERR_INVALID, "prompt" },
    { ASK(",'system':7"), ERR_INVALID, "system" },
    { ASK(",'raw':7"), ERR_INVALID, "raw" },
    { ASK(",'suffix':''"), OK, "" },
    { ASK(",'suffix':'x'"), OK, "" },
    { ASK(",'suffix':7"), ERR_INVALID, "suffix" },
    { ASK(",'template':'x'"), ERR_UNSUPPORTED, "template" },
    { ASK(",'context':[]"), OK, "" },
    { ASK(",'context':[1,2]"), ERR_UNSUPPORTED, "context" },
    { ASK(",'images':['aGk=']"), ERR_UNSUPPORTED, "images" },
    { ASK(",'format':7"), ERR_INVALID, "format" },
};

static void body_is_accepted_or_the_wrong_field_is_named(void)
{
    kit_check_rows(&dialect_ollama_chat, chat_rows, ARRAY_LEN(chat_rows));
    kit_check_rows(&dialect_ollama_generate, generate_rows, ARRAY_LEN(generate_rows));
    kit_close_response();
}

static void every_field_arrives(void)
{
    EXPECT_EQ(kit_parse_request(&dialect_ollama_chat,
                  CHAT(",'stream':false,'think':'low','logprobs':true,'top_logprobs':2,'options':{"
                       "'temperature':0.5,'top_k':-1,'top_p':0.25,'min_p':0.125,'typical_p':0.5,"
                       "'repeat_last_n':5,'repeat_penalty':1.5,'presence_penalty':0.5,"
                       "'frequency_penalty':-0.5,'num_predict':17,'seed':4,'stop':['a','b']}")),
        0);
    const struct request *a = &kit.request;
    const struct sample_params *s = &a->sample;
    EXPECT(!a->stream && a->max_tokens == 17 && a->n_stops == 2 && a->has_seed && s->seed == 4);
    EXPECT(s->temperature == 0.5f && s->top_k == 0 && s->top_p == 0.25f && s->min_p == 0.125f);
    EXPECT(s->typical_p == 0.5f && s->repeat_last_n == 5 && s->repeat_penalty == 1.5f);
    EXPECT(s->presence_penalty == 0.5f && s->frequency_penalty == -0.5f);
    EXPECT(a->want_logprobs && s->want_logprobs && s->n_top == 2);
    EXPECT_STR(kit_cstr(a->reasoning_effort), "low");
    EXPECT(json_get(a->convo.template_kwargs, "enable_thinking")->b);
    EXPECT_EQ(kit_parse_request(&dialect_ollama_chat, CHAT(",'think':false")), 0);
    EXPECT(!json_get(a->convo.template_kwargs, "enable_thinking")->b);
    kit_close_response();
}

static void absent_fields_have_the_defaults_of_ollama(void)
{
    EXPECT_EQ(kit_parse_request(&dialect_ollama_chat, CHAT("")), 0);
    EXPECT(kit.request.stream && kit.request.max_tokens == -1 && !kit.request.load_only);
    EXPECT(kit.request.sample.temperature == 0.8f && kit.request.sample.top_k == 40);
    EXPECT(kit.request.sample.top_p == 0.9f && kit.request.sample.repeat_penalty == 1.1f);
    EXPECT_EQ(kit_parse_request(&dialect_ollama_chat, "{'model':'m'}"), 0);
    EXPECT(kit.request.load_only);
    EXPECT_EQ(
        kit_parse_request(&dialect_ollama_chat, "{'model':'m','messages':[],'keep_alive':0}"), 0);
    EXPECT(kit.request.load_only);
    EXPECT_EQ(kit_parse_request(&dialect_ollama_generate, "{'model':'m','prompt':''}"), 0);
    EXPECT(kit.request.load_only);
    kit_close_response();
}

static void messages_arrive(void)
{
    EXPECT_EQ(kit_parse_request(&dialect_ollama_chat,
                  SAY("{'role':'system','content':'s'},{'role':'user','content':'q','images':null},"
                      "{'role':'assistant','content':'','thinking':'t','tool_calls':[{'function':{"
                      "'name':'f','arguments':{'x':1}}}]},"
                      "{'role':'assistant','tool_calls':[{'function':{'name':'g'}}]},"
                      "{'role':'tool','content':'r','tool_name':'f','tool_call_id':'i'}")),
        0);
    EXPECT_STR(kit_convo_text(), "system: s|user: q|assistant:  [f({\"x\":1})#call00000] {t}|"
                                 "assistant [g({})#call00001]|tool#i: r");
    EXPECT_STR(kit_cstr(kit.request.convo.messages[4].name), "f");
    EXPECT(kit.request.convo.add_generation_prompt && !kit.request.convo.continue_final_message);
    EXPECT_EQ(
        kit_parse_request(&dialect_ollama_chat, SAY("{'role':'assistant','content':'('}")), 0);
    EXPECT(!kit.request.convo.add_generation_prompt && kit.request.convo.continue_final_message);
    kit_close_response();
}

static void tool_results_get_the_id_of_their_call(void)
{
#define CALLED(name) "{'function':{'name':'" name "','arguments':{}}}"
#define RESULT(name) "{'role':'tool','content':'r','tool_name':'" name "'}"
    EXPECT_EQ(kit_parse_request(&dialect_ollama_chat,
                  SAY("{'role':'tool','content':'x'},"
                      "{'role':'assistant','tool_calls':[" CALLED("f") "," CALLED("g") "," CALLED(
                          "f") "]}," RESULT("f") "," RESULT("f") "," RESULT("g") "," RESULT("h"))),
        0);
    EXPECT_STR(kit_convo_text(), "tool: x|assistant [f({})#call00000] [g({})#call00001] "
                                 "[f({})#call00002]|tool#call00000: r|tool#call00002: r|"
                                 "tool#call00001: r|tool: r");
    kit_close_response();
}

static void prompt_is_templated_unless_raw(void)
{
    EXPECT_EQ(kit_parse_request(&dialect_ollama_generate, ASK(",'system':'s'")), 0);
    EXPECT(kit.request.kind == REQUEST_CHAT);
    EXPECT_STR(kit_convo_text(), "system: s|user: hi");
    EXPECT_EQ(kit_parse_request(&dialect_ollama_generate, ASK("")), 0);
    EXPECT_STR(kit_convo_text(), "user: hi");
    EXPECT_EQ(kit_parse_request(&dialect_ollama_generate, ASK(",'raw':true")), 0);
    EXPECT(kit.request.kind == REQUEST_COMPLETION && kit.request.n_prompts == 1);
    EXPECT_STR(kit_cstr(kit.request.prompts[0].text), "hi");
    kit_close_response();
}

/* ---- responses */

#define HEAD                 "{'model':'m','created_at':'2023-11-14T22:13:20Z',"
#define SAID(text)           "'message':{'role':'assistant','content':'" text "'}"
#define SAY_ALSO(text, more) "'message':{'role':'assistant','content':'" text "'" more "}"
#define NO_TOKENS                                                                                  \
    "'total_duration':90,'load_duration':10,'prompt_eval_count':0,'prompt_eval_duration':30,"      \
    "'eval_count':0,'eval_duration':50}"
#define TIMES                                                                                      \
    "'total_duration':90,'load_duration':10,'prompt_eval_count':7,'prompt_eval_duration':30,"      \
    "'eval_count':2,'eval_duration':50}"

static const struct response_times times = { 1000, 1010, 1040, 1090 };

static void a_chat_in_lines(void)
{
    kit_open_response(&dialect_ollama_chat, CHAT(""));
    response_set_usage(kit.response, 7, 4);
    response_begin(kit.response);
    EXPECT_STR(kit.sink.type, "application/x-ndjson");
    kit_emit_token(0, 1);
    response_keepalive(kit.response);
    kit_emit_token(0, 4);
    response_choice_end(kit.response, 0, FINISH_STOP, STR_NONE, -1);
    response_set_times(kit.response, &times);
    response_end(kit.response);
    kit_expect_body(
        HEAD SAID("Hello") ",'done':false}\n " HEAD SAID("\\'q\\'\\n") ",'done':false}\n" HEAD SAID(
            "") ",'done':true,'done_reason':'stop'," TIMES "\n");
    kit_close_response();
}

static void a_chat_in_one_piece(void)
{
    kit_open_response(&dialect_ollama_chat, CHAT(",'stream':false"));
    response_set_usage(kit.response, 7, 4);
    response_begin(kit.response);
    kit_emit_token(0, 1);
    kit_emit_token(0, 4);
    response_choice_end(kit.response, 0, FINISH_LENGTH, STR_NONE, -1);
    response_set_times(kit.response, &times);
    response_end(kit.response);
    EXPECT_STR(kit.sink.type, "application/json");
    kit_expect_body(HEAD SAID("Hello\\'q\\'\\n") ",'done':true,'done_reason':'length'," TIMES);
    kit_close_response();
}

static void generate_response_as_lines_and_body(void)
{
    kit_open_response(&dialect_ollama_generate, ASK(""));
    response_set_usage(kit.response, 7, 0);
    response_begin(kit.response);
    kit_emit_token(0, 1);
    kit_emit_token(0, 5);
    response_choice_end(kit.response, 0, FINISH_STOP, STR_NONE, -1);
    response_set_times(kit.response, &times);
    response_end(kit.response);
    kit_expect_body(
        HEAD "'response':'Hello','done':false}\n" HEAD "'response':'!','done':false}\n" HEAD
             "'response':'','done':true,'done_reason':'stop'," TIMES "\n");
    kit_close_response();
}

static void logprobs_are_sent_with_their_text(void)
{
#define TOKEN    "{'token':'Hello','logprob':-0.5,'bytes':[72,101,108,108,111]"
#define LOGPROBS ",'logprobs':[" TOKEN ",'top_logprobs':[" TOKEN "}]}]"
    kit_open_response(&dialect_ollama_chat, CHAT(",'logprobs':true,'top_logprobs':1"));
    response_begin(kit.response);
    kit_emit_token(0, 1);
    response_choice_end(kit.response, 0, FINISH_STOP, STR_NONE, -1);
    response_end(kit.response);
    EXPECT(str_starts(buf_str(&kit.sink.body), STR("{\"model\"")));
    static char want[1000];
    snprintf(want, sizeof(want), "%s", HEAD SAID("Hello") LOGPROBS ",'done':false}\n");
    for (char *c = want; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    EXPECT(str_starts(buf_str(&kit.sink.body), str_of(want)));
    kit_open_response(
        &dialect_ollama_chat, CHAT(",'stream':false,'logprobs':true,'top_logprobs':1"));
    kit_emit_token(0, 1);
    response_choice_end(kit.response, 0, FINISH_STOP, STR_NONE, -1);
    response_end(kit.response);
    kit_expect_body(HEAD SAID("Hello") LOGPROBS
        ",'done':true,'done_reason':'stop','total_duration':0,'load_duration':0,"
        "'prompt_eval_count':0,'prompt_eval_duration':0,'eval_count':1,'eval_duration':0}");
    kit_close_response();
}

#define CALL(i, name, args)                                                                        \
    "{'id':'call_X','function':{'index':" #i ",'name':'" name "','arguments':" args "}}"

/* Emits reasoning, a call, a call that turns out to be text, and a call whose arguments contain
 * a line break. */
static void emit_all_parts(void)
{
    struct response *a = kit.response;

    response_begin(a);
    response_output_ops.reasoning(a, 0, STR("Hm\n"));
    response_output_ops.content(a, 0, STR("I look"));
    response_output_ops.call_begin(a, 0, 0, STR("f"));
    response_output_ops.call_args(a, 0, 0, STR("{\"a\":"));
    response_output_ops.call_args(a, 0, 0, STR("[1]}"));
    response_output_ops.call_end(a, 0, 0);
    response_output_ops.call_begin(a, 0, 1, STR("f"));
    response_output_ops.call_args(a, 0, 1, STR("{\"b"));
    response_output_ops.call_broken(a, 0, 1);
    response_output_ops.content(a, 0, STR("{"));
    response_output_ops.call_begin(a, 0, 2, STR("g"));
    response_output_ops.call_args(a, 0, 2, STR("{\r\n}"));
    response_output_ops.call_end(a, 0, 2);
    response_choice_end(a, 0, FINISH_STOP, STR_NONE, -1);
    response_set_times(a, &times);
    response_end(a);
    for (ptrdiff_t at; (at = str_find(buf_str(&kit.sink.body), STR("\"call_"))) >= 0;) {
        char *id = kit.sink.body.p + at + 1; /* replaces the random id of this run by "call_X" */
        CHECK(id[29] == '"');
        memmove(id + 6, id + 29, kit.sink.body.n - (size_t)at - 30);
        memcpy(id, "CALL_X", 6);
        kit.sink.body.n -= 23;
    }
    for (size_t i = 0; i + 6 <= kit.sink.body.n; i++)
        if (!memcmp(kit.sink.body.p + i, "CALL_X", 6))
            memcpy(kit.sink.body.p + i, "call_X", 6);
}

static void calls_and_reasoning_are_written(void)
{
    kit_open_response(
        &dialect_ollama_chat, CHAT(",'tools':[{'type':'function','function':{'name':'f'}}]"));
    emit_all_parts();
    kit_expect_body(HEAD SAY_ALSO("", ",'thinking':'Hm\\n'") ",'done':false}\n" HEAD SAID(
        "I look") ",'done':false}\n" HEAD SAY_ALSO("",
        ",'tool_calls':[" CALL(
            0, "f", "{'a':[1]}") "]") ",'done':false}\n" HEAD SAID("{") ",'done':false}\n" HEAD
            SAY_ALSO("", ",'tool_calls':[" CALL(1, "g", "{  }") "]") ",'done':false}\n" HEAD SAID(
                "") ",'done':true,'done_reason':'stop'," NO_TOKENS "\n");
    kit_open_response(&dialect_ollama_chat, CHAT(",'stream':false"));
    emit_all_parts();
    kit_expect_body(HEAD SAY_ALSO(
        "I look{", ",'thinking':'Hm\\n','tool_calls':[" CALL(0, "f", "{'a':[1]}") "," CALL(
                       1, "g", "{  }") "]") ",'done':true,'done_reason':'stop'," NO_TOKENS);
    kit_open_response(&dialect_ollama_generate, ASK(""));
    response_begin(kit.response);
    response_output_ops.reasoning(kit.response, 0, STR("Hm"));
    response_output_ops.content(kit.response, 0, STR("a"));
    response_flush(kit.response);
    kit_expect_body(
        HEAD "'response':'','thinking':'Hm','done':false}\n" HEAD "'response':'a','done':false}\n");
    kit_close_response();
}

static void response_that_ends_inside_a_call_has_done_reason_length(void)
{
    static const char *const requests[] = { CHAT(""), CHAT(",'stream':false") };

    for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
        kit_open_response(&dialect_ollama_chat, requests[i]);
        response_begin(kit.response);
        response_output_ops.call_begin(kit.response, 0, 0, STR("f"));
        response_output_ops.call_args(kit.response, 0, 0, STR("{"));
        response_output_ops.call_broken(kit.response, 0, 0);
        response_output_ops.content(kit.response, 0, STR("<f>"));
        response_set_ends_inside_call(kit.response, 0);
        response_choice_end(kit.response, 0, FINISH_STOP, STR_NONE, -1);
        response_end(kit.response);
        struct str got = buf_str(&kit.sink.body);
        EXPECT(str_find(got, STR("\"done_reason\":\"length\"")) > 0);
        EXPECT(str_find(got, STR("\"content\":\"<f>\"")) > 0);
        EXPECT(str_find(got, STR("tool_calls")) < 0);
    }
    kit_close_response();
}

static void empty_request_loads_the_model(void)
{
    kit_open_response(&dialect_ollama_chat, "{'model':'m'}");
    response_begin(kit.response);
    response_end(kit.response);
    kit_expect_body(HEAD SAID("") ",'done':true,'done_reason':'load'}\n");
    kit_open_response(&dialect_ollama_generate, "{'model':'m','stream':false}");
    response_end(kit.response);
    kit_expect_body(HEAD "'response':'','done':true,'done_reason':'load'}");
    kit_close_response();
}

static void an_error_is_a_line(void)
{
    struct err e;

    err_set(&e, ERR_NOT_FOUND, "no \"x\"");
    fake_sink_init(&kit.sink);
    status_reply(&kit.sink.sink, ERROR_OLLAMA, &e, NULL, NULL, 0);
    EXPECT_EQ(kit.sink.status, 404);
    kit_expect_body("{'error':'no \\'x\\''}");
    kit_open_response(&dialect_ollama_chat, CHAT(""));
    response_begin(kit.response);
    kit_emit_token(0, 1);
    response_error(kit.response, &e, NULL);
    kit_expect_body(HEAD SAID("Hello") ",'done':false}\n{'error':'no \\'x\\''}\n");
    kit_close_response();
}

/* ---- models */

static void models_are_described(void)
{
    const struct model_info m[] = { { .id = "a",
                                        .is_ready = true,
                                        .family = "qwen3",
                                        .quantization = "Q4_K",
                                        .n_ctx = 100,
                                        .n_ctx_train = 200,
                                        .n_vocab = 50,
                                        .n_params = 1235814400,
                                        .size_bytes = 7,
                                        .created = 1700000000,
                                        .can_complete = true },
        { .id = "b" } };
#define DETAILS                                                                                    \
    "'details':{'parent_model':'','format':'gguf','family':'qwen3','families':['qwen3'],"          \
    "'parameter_size':'1.2B','quantization_level':'Q4_K'}"
#define ENTRY                                                                                      \
    "{'name':'a','model':'a','modified_at':'2023-11-14T22:13:20Z','size':7,'digest':'','type':"    \
    "'model','capabilities':['completion']," DETAILS
    fake_sink_init(&kit.sink);
    ollama_ps(&kit.sink.body, m, 2);
    kit_expect_body("{'models':[" ENTRY
                    ",'expires_at':'9999-12-31T23:59:59Z','size_vram':0,'context_length':100}]}");
    buf_reset(&kit.sink.body);
    ollama_tags(&kit.sink.body, m, 1);
    kit_expect_body("{'models':[" ENTRY "}]}");
    buf_reset(&kit.sink.body);
    struct model_info known = m[0];
    uint8_t digest[32] = { 0xab, 1 };
    known.digest = digest;
    EXPECT(!*ollama_digest(&m[0]).z);
    EXPECT_STR(ollama_digest(&known).z,
        "ab01000000000000000000000000000000000000000000000000000000000000");
    ollama_show(&kit.sink.body, m, STR("{{ x }}"));
    kit_expect_body(
        "{'modelfile':'','parameters':'','license':'','template':'{{ x }}'," DETAILS
        ",'model_info':{'general.architecture':'qwen3','general.parameter_count':1235814400,"
        "'qwen3.context_length':200,'qwen3.vocab_size':50},'capabilities':['completion'],"
        "'modified_at':'2023-11-14T22:13:20Z'}");
    fake_sink_clear(&kit.sink);
}

static void model_name_is_parsed(void)
{
    static const struct {
        const char *body, *name; /* NULL: rejected */
        enum errcode code;
    } rows[] = {
        { "{\"model\":\"a\"}", "a", OK },
        { "{\"name\":\"a\",\"verbose\":true}", "a", OK },
        { "{\"model\":\"a\",\"name\":\"b\"}", "a", OK },
        { "{\"model\":7}", NULL, ERR_INVALID },
        { "{}", NULL, ERR_MISSING },
        { "[]", NULL, ERR_MISSING },
        { "{", NULL, ERR_SYNTAX },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct arena *a = arena_new(MB);
        struct str name;
        struct err e = { 0 };
        int rc = ollama_parse_name(&name, str_of(rows[i].body), a, &e);
        EXPECT_EQ(rc, rows[i].name ? 0 : -1);
        EXPECT(rc ? e.code == rows[i].code : str_is(name, rows[i].name));
        arena_free(a);
    }
}

TESTS(TEST(body_is_accepted_or_the_wrong_field_is_named), TEST(every_field_arrives),
    TEST(absent_fields_have_the_defaults_of_ollama), TEST(messages_arrive),
    TEST(tool_results_get_the_id_of_their_call), TEST(prompt_is_templated_unless_raw),
    TEST(a_chat_in_lines), TEST(a_chat_in_one_piece), TEST(generate_response_as_lines_and_body),
    TEST(logprobs_are_sent_with_their_text), TEST(calls_and_reasoning_are_written),
    TEST(response_that_ends_inside_a_call_has_done_reason_length),
    TEST(empty_request_loads_the_model), TEST(an_error_is_a_line), TEST(models_are_described),
    TEST(model_name_is_parsed))
