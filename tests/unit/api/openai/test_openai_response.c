/* OpenAI responses: the bytes of streams and bodies. Expected bytes are written with ' for ". */
#include "support/check.h"

#include "api/common/dialect.h"
#include "base/mem.h"
#include "support/fake_sink.h"

#include <math.h>

static struct arena *arena;
static struct request request;
static struct fake_sink sink;
static struct response *response;
static struct err e;

/* Text of each token. 7 and 8 are the halves of e with an acute accent. */
static const char *const token_texts[] = { "<end>", "Hello", " wor", "ld", "\"q\"\n", "!", " stop",
    "\xC3", "\xA9" };

static struct str token_bytes(const void *vocab, int32_t id)
{
    CHECK(vocab == token_texts && id >= 0 && id < (int32_t)ARRAY_LEN(token_texts));
    return str_of(token_texts[id]);
}

static void open_answer(const struct dialect *w, const char *body)
{
    struct response_setup s = { .request = &request,
        .sink = &sink.sink,
        .model = STR("m"),
        .fingerprint = "fp_1",
        .created = 1700000000,
        .id = "1",
        .token_bytes = token_bytes,
        .vocab = token_texts };

    arena_free(arena);
    arena = arena_new(MB);
    response_free(response);
    fake_sink_clear(&sink);
    fake_sink_init(&sink);
    memset(&e, 0, sizeof(e));
    struct str copy = arena_str(arena, str_of(body));
    for (char *c = (char *)(uintptr_t)copy.p; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    if (request_parse(&request, w, copy, arena, &e))
        fprintf(stderr, "%s\n", e.msg);
    EXPECT(!e.code);
    EXPECT_EQ(response_new(&response, &s, &e), 0);
}

static void close_answer(void)
{
    response_free(response);
    response = NULL;
    fake_sink_clear(&sink);
    arena_free(arena);
    arena = NULL;
}

#define CHAT(fields) "{'messages':[{'role':'user','content':'x'}]," fields "}"

static struct sampled make_token(int32_t id, float logprob)
{
    return (struct sampled){ .id = id, .logprob = logprob };
}

/* Emits a token and its text. */
static void emit_token(int choice, int32_t id)
{
    struct sampled t = make_token(id, -0.5f);

    response_add_token(response, choice, &t);
    response_output_ops.content(response, choice, str_of(token_texts[id]));
}

static void end_choice(int choice, enum finish finish)
{
    response_choice_end(response, choice, finish, STR_NONE, -1);
}

static void expect_body(const char *want)
{
    static char got[20000];

    snprintf(got, sizeof(got), STR_FMT, STR_ARG(sink.body));
    for (char *c = got; *c; c++)
        *c = *c == '"' ? '\'' : *c;
    EXPECT_STR(got, want);
}

/* Checks that every frame is one JSON text and that the stream ends properly. */
static void frames_are_json(bool with_done)
{
    struct str rest = buf_str(&sink.body);
    struct arena *a = arena_new(16 * MB);
    bool done = false;

    while (rest.n) {
        ptrdiff_t end = str_find(rest, STR("\n\n"));
        EXPECT(end > 0 && !done);
        struct str frame = { rest.p, (size_t)end };
        rest = str_skip(rest, (size_t)end + 2);
        if (frame.p[0] == ':')
            continue;
        EXPECT(str_starts(frame, STR("data: ")));
        frame = str_skip(frame, 6);
        done = str_is(frame, "[DONE]");
        struct json *j;
        if (!done && json_parse(&j, frame, a, NULL, &e))
            fprintf(stderr, STR_FMT ": %s\n", STR_ARG(frame), e.msg);
        EXPECT(done || !e.code);
    }
    EXPECT_EQ(done, with_done);
    arena_free(a);
}

#define HEAD                                                                                       \
    "data: {'id':'chatcmpl-1','object':'chat.completion.chunk','created':1700000000,'model':'m',"  \
    "'system_fingerprint':'fp_1','choices':[{'index':"
#define ROLE                                                                                       \
    ",'delta':{'role':'assistant','content':''},'logprobs':null,'finish_reason':null}]}\n\n"
#define USAGE(p, c, t, k)                                                                          \
    "{'prompt_tokens':" #p ",'completion_tokens':" #c ",'total_tokens':" #t                        \
    ",'prompt_tokens_details':{'cached_tokens':" #k ",'audio_tokens':0},"                          \
    "'completion_tokens_details':{'reasoning_tokens':0,'audio_tokens':0,"                          \
    "'accepted_prediction_tokens':0,'rejected_prediction_tokens':0}}"

static void a_chat_in_one_piece(void)
{
    open_answer(&dialect_openai_chat, CHAT("'n':1"));
    response_begin(response);
    EXPECT_EQ(sink.n_begun, 0);
    response_set_usage(response, 7, 4);
    emit_token(0, 1);
    emit_token(0, 4);
    response_flush(response);
    end_choice(0, FINISH_STOP);
    response_end(response);
    EXPECT(sink.status == 200 && sink.n_ended == 1 && !sink.n_aborted);
    EXPECT_STR(sink.type, "application/json");
    expect_body("{'id':'chatcmpl-1','object':'chat.completion','created':1700000000,'model':'m',"
                "'system_fingerprint':'fp_1','choices':[{'index':0,'message':{'role':'assistant',"
                "'content':'Hello\\'q\\'\\n','refusal':null,'annotations':[]},'logprobs':null,"
                "'finish_reason':'stop','stop_reason':null}],'usage':" USAGE(7, 2, 9, 4) "}");
    close_answer();
}

static void a_chat_as_a_stream(void)
{
    open_answer(&dialect_openai_chat, CHAT("'stream':true"));
    response_begin(response);
    EXPECT(sink.status == 200 && sink.promised == -1 && response_has_begun(response));
    EXPECT_STR(sink.type, "text/event-stream");
    EXPECT_STR(sink.fields, "Cache-Control: no-cache\nX-Accel-Buffering: no\n");
    EXPECT_EQ(sink.body.n, (size_t)0);
    emit_token(0, 1);
    response_flush(response);
    EXPECT_EQ(sink.n_writes, 1);
    response_keepalive(response);
    emit_token(0, 4);
    end_choice(0, FINISH_LENGTH);
    response_end(response);
    EXPECT_EQ(sink.n_ended, 1);
    expect_body(HEAD
        "0" ROLE HEAD "0,'delta':{'content':'Hello'},'logprobs':null,'finish_reason':null}]}\n\n"
        ": keep-alive\n\n" HEAD
        "0,'delta':{'content':'\\'q\\'\\n'},'logprobs':null,'finish_reason':null}]}\n\n" HEAD
        "0,'delta':{},'logprobs':null,'finish_reason':'length','stop_reason':null}]}\n\n"
        "data: [DONE]\n\n");
    frames_are_json(true);
    close_answer();
}

static void usage_is_sent_in_its_own_frame(void)
{
    open_answer(&dialect_openai_chat,
        CHAT("'stream':true,'stream_options':{'include_usage':true},'service_tier':'auto'"));
    response_begin(response);
    response_set_usage(response, 3, 0);
    emit_token(0, 1);
    end_choice(0, FINISH_STOP);
    response_end(response);
#define TIER                                                                                       \
    "data: {'id':'chatcmpl-1','object':'chat.completion.chunk','created':1700000000,'model':'m',"  \
    "'service_tier':'default','system_fingerprint':'fp_1','choices':["
    expect_body(
        TIER "{'index':0,'delta':{'role':'assistant','content':''},'logprobs':null,"
             "'finish_reason':null}],'usage':null}\n\n" TIER
             "{'index':0,'delta':{'content':'Hello'},'logprobs':null,'finish_reason':null}],"
             "'usage':null}\n\n" TIER
             "{'index':0,'delta':{},'logprobs':null,'finish_reason':'stop','stop_reason':null}"
             "],'usage':null}\n\n" TIER "],'usage':" USAGE(3, 1, 4, 0) "}\n\n"
                                                                       "data: [DONE]\n\n");
    close_answer();
}

static void continuous_usage_is_in_every_frame(void)
{
    open_answer(&dialect_openai_chat, CHAT("'stream':true,'stream_options':{'include_usage':true,"
                                           "'continuous_usage_stats':true}"));
    response_begin(response);
    response_set_usage(response, 3, 1);
    emit_token(0, 1);
    end_choice(0, FINISH_STOP);
    response_end(response);
    expect_body(HEAD
        "0,'delta':{'role':'assistant','content':''},'logprobs':null,"
        "'finish_reason':null}],'usage':" USAGE(3, 1, 4,
            1) "}\n\n" HEAD "0,'delta':{'content':'Hello'},'logprobs':null,'finish_reason':null}],"
               "'usage':" USAGE(3, 1, 4,
                   1) "}\n\n" HEAD
                      "0,'delta':{},'logprobs':null,'finish_reason':'stop','stop_reason':null}],"
                      "'usage':" USAGE(3, 1, 4,
                          1) "}\n\n"
                             "data: "
                             "{'id':'chatcmpl-1','object':'chat.completion.chunk','created':"
                             "1700000000,"
                             "'model':'m','system_fingerprint':'fp_1','choices':[],'usage':" USAGE(
                                 3, 1, 4, 1) "}\n\ndata: [DONE]\n\n");
    close_answer();
}

static void prediction_tokens_are_counted(void)
{
    open_answer(&dialect_openai_chat, CHAT("'n':1"));
    response_begin(response);
    emit_token(0, 1);
    end_choice(0, FINISH_STOP);
    response_set_prediction_counts(response, 3, 9);
    response_end(response);
    EXPECT(
        strstr(sink.body.p, "\"accepted_prediction_tokens\":3,\"rejected_prediction_tokens\":9"));
    close_answer();
}

static void choices_interleave_by_index(void)
{
    open_answer(&dialect_openai_chat, CHAT("'stream':true,'n':2"));
    response_begin(response);
    emit_token(1, 1);
    emit_token(0, 2);
    emit_token(1, 3);
    end_choice(1, FINISH_STOP);
    EXPECT(response_choice_has_ended(response, 1) && !response_choice_has_ended(response, 0));
    emit_token(1, 5); /* a late token */
    response_end(response);
    expect_body(
        HEAD "1" ROLE HEAD
             "1,'delta':{'content':'Hello'},'logprobs':null,'finish_reason':null}]}\n\n" HEAD
             "0" ROLE HEAD
             "0,'delta':{'content':' wor'},'logprobs':null,'finish_reason':null}]}\n\n" HEAD
             "1,'delta':{'content':'ld'},'logprobs':null,'finish_reason':null}]}\n\n" HEAD
             "1,'delta':{},'logprobs':null,'finish_reason':'stop','stop_reason':null}]}\n\n" HEAD
             "0,'delta':{},'logprobs':null,'finish_reason':'length','stop_reason':null}]}\n\n"
             "data: [DONE]\n\n");
    EXPECT_EQ(response_counts(response).completion_tokens, 3);
    close_answer();
}

static void emit_token_with_top(
    int choice, int32_t id, float logprob, int32_t other, float other_logprob)
{
    struct sampled t = { .id = id,
        .logprob = logprob,
        .n_top = 2,
        .top = { { id, logprob }, { other, other_logprob } } };

    response_add_token(response, choice, &t);
}

static void logprobs_wait_for_their_text(void)
{
    open_answer(&dialect_openai_chat, CHAT("'stream':true,'logprobs':true,'top_logprobs':1"));
    response_begin(response);
    emit_token_with_top(0, 7, -0.25f, 1, -2);
    emit_token_with_top(0, 8, -INFINITY, 1, -2);
    response_output_ops.content(response, 0, STR("\xC3\xA9"));
    end_choice(0, FINISH_STOP);
    response_end(response);
    expect_body(HEAD "0" ROLE HEAD "0,'delta':{'content':'\xC3\xA9'},'logprobs':{'content':["
                     "{'token':'\xEF\xBF\xBD','logprob':-0.25,'bytes':[195],'top_logprobs':["
                     "{'token':'\xEF\xBF\xBD','logprob':-0.25,'bytes':[195]}]},"
                     "{'token':'\xEF\xBF\xBD','logprob':-9999,'bytes':[169],'top_logprobs':["
                     "{'token':'\xEF\xBF\xBD','logprob':-9999,'bytes':[169]}]}"
                     "],'refusal':null},'finish_reason':null}]}\n\n" HEAD
                     "0,'delta':{},'logprobs':null,'finish_reason':'stop','stop_reason':null}]}\n\n"
                     "data: [DONE]\n\n");
    close_answer();
}

static void logprobs_of_a_body(void)
{
    open_answer(&dialect_openai_chat, CHAT("'logprobs':true,'top_logprobs':2"));
    emit_token_with_top(0, 1, -0.1f, 2, -2.5f);
    response_output_ops.content(response, 0, STR("Hello"));
    end_choice(0, FINISH_STOP);
    response_end(response);
    expect_body("{'id':'chatcmpl-1','object':'chat.completion','created':1700000000,'model':'m',"
                "'system_fingerprint':'fp_1','choices':[{'index':0,'message':{'role':'assistant',"
                "'content':'Hello','refusal':null,'annotations':[]},'logprobs':{'content':["
                "{'token':'Hello','logprob':-0.1,'bytes':[72,101,108,108,111],'top_logprobs':["
                "{'token':'Hello','logprob':-0.1,'bytes':[72,101,108,108,111]},"
                "{'token':' wor','logprob':-2.5,'bytes':[32,119,111,114]}]}],'refusal':null},"
                "'finish_reason':'stop','stop_reason':null}],'usage':" USAGE(0, 1, 1, 0) "}");
    close_answer();
}

/* Logprobs of tokens in a stop string are removed; stream and body agree; the token count is
 * unchanged. */
static void stop_string_removes_its_tokens_logprobs(void)
{
    static const char *const how[] = { CHAT("'logprobs':true,'stop':' stop!'"),
        CHAT("'logprobs':true,'stop':' stop!','stream':true") };

    for (size_t i = 0; i < ARRAY_LEN(how); i++) {
        open_answer(&dialect_openai_chat, how[i]);
        response_begin(response);
        emit_token(0, 1);
        struct sampled t = make_token(6, -1), u = make_token(5, -1);
        response_add_token(response, 0, &t);
        response_add_token(response, 0, &u);
        response_choice_end(response, 0, FINISH_STOP, request.stops[0], -1);
        response_end(response);
        struct str out = buf_str(&sink.body);
        EXPECT(str_find(out, STR("\"token\":\"Hello\"")) > 0);
        EXPECT(str_find(out, STR("\"token\":\" stop\"")) < 0);
        EXPECT(str_find(out, STR("\"finish_reason\":\"stop\",\"stop_reason\":\" stop!\"")) > 0);
        EXPECT_EQ(response_counts(response).completion_tokens, 3);
    }
    open_answer(&dialect_openai_chat, CHAT("'stop_token_ids':[5]"));
    emit_token(0, 1);
    response_choice_end(response, 0, FINISH_STOP, STR_NONE, 5);
    response_end(response);
    EXPECT(str_find(buf_str(&sink.body), STR("\"stop_reason\":5}")) > 0);
    close_answer();
}

/* The prompt's logprobs may arrive after its text, and a stop string does not remove them. */
static void echoed_prompt_is_not_trimmed(void)
{
    open_answer(
        &dialect_openai_completion, "{'prompt':[1,2],'echo':true,'logprobs':0,'stop':' stop'}");
    struct sampled second = make_token(2, -1.5f), stop = make_token(6, -1);
    response_add_prompt_token(response, 0, 1, NULL);
    response_add_prompt_text(response, 0, STR("Hello wor"));
    response_add_prompt_token(response, 0, 2, &second);
    response_add_token(response, 0, &stop);
    response_choice_end(response, 0, FINISH_STOP, request.stops[0], -1);
    response_end(response);
    EXPECT(str_find(buf_str(&sink.body), STR("\"tokens\":[\"Hello\",\" wor\"]")) > 0);
    EXPECT(str_find(buf_str(&sink.body), STR("\"token_logprobs\":[null,-1.5]")) > 0);
    close_answer();
}

#define CHEAD                                                                                      \
    "data: {'id':'cmpl-1','object':'text_completion','created':1700000000,'model':'m',"            \
    "'system_fingerprint':'fp_1','choices':[{'index':"

static void a_completion_with_echo_and_logprobs(void)
{
    open_answer(
        &dialect_openai_completion, "{'prompt':[1,2],'echo':true,'logprobs':1,'max_tokens':1}");
    struct sampled second = { .id = 2, .logprob = -1.5f, .n_top = 1, .top = { { 3, -0.25f } } };
    response_add_prompt_token(response, 0, 1, NULL);
    response_add_prompt_token(response, 0, 2, &second);
    response_add_prompt_text(response, 0, STR("Hello wor"));
    emit_token_with_top(0, 7, -0.5f, 3, -2);
    response_output_ops.content(response, 0, STR("\xEF\xBF\xBD"));
    end_choice(0, FINISH_LENGTH);
    response_set_usage(response, 2, 0);
    response_end(response);
    expect_body("{'id':'cmpl-1','object':'text_completion','created':1700000000,'model':'m',"
                "'system_fingerprint':'fp_1','choices':[{'index':0,'text':'Hello wor\xEF\xBF\xBD',"
                "'logprobs':{'tokens':['Hello',' wor','bytes:\\\\xc3'],"
                "'token_logprobs':[null,-1.5,-0.5],"
                "'top_logprobs':[null,{'ld':-0.25,' wor':-1.5},{'bytes:\\\\xc3':-0.5}],"
                "'text_offset':[0,5,9]},'finish_reason':'length','stop_reason':null}],"
                "'usage':" USAGE(2, 1, 3, 0) "}");
    close_answer();
}

static void only_the_prompt_is_scored(void)
{
    open_answer(
        &dialect_openai_completion, "{'prompt':[1],'echo':true,'logprobs':0,'max_tokens':0}");
    response_add_prompt_token(response, 0, 1, NULL);
    response_add_prompt_text(response, 0, STR("Hello"));
    response_end(response);
    expect_body("{'id':'cmpl-1','object':'text_completion','created':1700000000,'model':'m',"
                "'system_fingerprint':'fp_1','choices':[{'index':0,'text':'Hello',"
                "'logprobs':{'tokens':['Hello'],'token_logprobs':[null],'top_logprobs':[null],"
                "'text_offset':[0]},'finish_reason':'length','stop_reason':null}],"
                "'usage':" USAGE(0, 0, 0, 0) "}");
    close_answer();
}

static void a_completion_as_a_stream(void)
{
    open_answer(&dialect_openai_completion,
        "{'prompt':['a','b'],'stream':true,'logprobs':0,'echo':true,'return_token_ids':true}");
    response_begin(response);
    response_add_prompt_text(response, 1, STR("b"));
    emit_token(1, 1);
    end_choice(1, FINISH_STOP);
    emit_token(0, 2);
    end_choice(0, FINISH_STOP);
    response_end(response);
    expect_body(CHEAD "1,'text':'b','logprobs':{'tokens':[],'token_logprobs':[],'top_logprobs':[],"
                      "'text_offset':[]},'finish_reason':null,'token_ids':[]}]}\n\n" CHEAD
                      "1,'text':'Hello','logprobs':{'tokens':['Hello'],'token_logprobs':[-0.5],"
                      "'top_logprobs':[{'Hello':-0.5}],'text_offset':[0]},'finish_reason':null,"
                      "'token_ids':[1]}]}\n\n" CHEAD
                      "1,'text':'','logprobs':null,'finish_reason':'stop','stop_reason':null,"
                      "'token_ids':[]}]}\n\n" CHEAD
                      "0,'text':' wor','logprobs':{'tokens':[' wor'],'token_logprobs':[-0.5],"
                      "'top_logprobs':[{' wor':-0.5}],'text_offset':[0]},'finish_reason':null,"
                      "'token_ids':[2]}]}\n\n" CHEAD
                      "0,'text':'','logprobs':null,'finish_reason':'stop','stop_reason':null,"
                      "'token_ids':[]}]}\n\n"
                      "data: [DONE]\n\n");
    close_answer();
}

static void tokens_can_be_named_by_id(void)
{
    open_answer(&dialect_openai_completion,
        "{'prompt':'a','logprobs':1,'return_tokens_as_token_ids':true}");
    emit_token(0, 7);
    response_end(response);
    EXPECT(str_find(buf_str(&sink.body), STR("\"tokens\":[\"token_id:7\"]")) > 0);
    EXPECT(str_find(buf_str(&sink.body), STR("\"top_logprobs\":[{\"token_id:7\":-0.5}]")) > 0);
    close_answer();
}

/* The choice with the highest log-probability per token is first: a long likely output precedes
 * a short unlikely one. Prompts are ranked separately. */
static void best_of_returns_the_likeliest_choices(void)
{
    struct sampled good = make_token(1, -0.1f), fair = make_token(2, -0.5f),
                   poor = make_token(3, -3);

    open_answer(&dialect_openai_completion, "{'prompt':['a','b'],'best_of':3,'n':2}");
    for (int p = 0; p < 6; p += 3) {
        response_add_token(response, p, &poor);
        response_output_ops.content(response, p, STR("poor"));
        response_add_token(response, p + 1, &fair);
        response_output_ops.content(response, p + 1, p ? STR("fair2") : STR("fair1"));
        for (int i = 0; i < 9; i++)
            response_add_token(response, p + 2, &good);
        response_output_ops.content(response, p + 2, p ? STR("good2") : STR("good1"));
    }
    response_end(response);
    struct json *j = NULL;
    EXPECT_EQ(json_parse(&j, buf_str(&sink.body), arena, NULL, &e), 0);
    static const char *const want[] = { "good1", "fair1", "good2", "fair2" };
    int i = 0;
    for (const struct json *c = json_get(j, "choices")->child; c; c = c->next, i++) {
        int64_t index;
        EXPECT(json_i64(json_get(c, "index"), &index) && index == i);
        EXPECT(str_is(json_get(c, "text")->s, want[i]));
    }
    EXPECT_EQ(i, 4);
    EXPECT_EQ(response_counts(response).completion_tokens, 22);
    close_answer();
}

static void an_error_before_the_headers_is_an_error(void)
{
    struct error_extra x = { .n_prompt_tokens = 5000, .n_ctx = 4096 };

    open_answer(&dialect_openai_chat, CHAT("'stream':true"));
    err_context(&e, "messages", 5000, 4096);
    response_error(response, &e, &x);
    EXPECT(sink.status == 400 && sink.n_ended == 1);
    expect_body(
        "{'error':{'message':'This model's maximum context length is 4096 tokens. However, "
        "your request has 5000 tokens and exceeds the available context size. Please reduce "
        "the length of the messages.','type':'invalid_request_error','param':'messages',"
        "'code':'context_length_exceeded','n_prompt_tokens':5000,'n_ctx':4096}}");
    response_output_ops.content(response, 0, STR("late"));
    response_end(response); /* has no effect any more */
    EXPECT_EQ(sink.n_ended, 1);
    close_answer();
}

static void an_error_in_a_stream_is_its_last_frame(void)
{
    open_answer(&dialect_openai_chat, CHAT("'stream':true"));
    response_begin(response);
    emit_token(0, 1);
    err_set(&e, ERR_TIMEOUT, "The deadline of %d s passed.", 2);
    response_error(response, &e, NULL);
    EXPECT(sink.status == 200 && sink.n_ended == 1);
    expect_body(HEAD
        "0" ROLE HEAD "0,'delta':{'content':'Hello'},'logprobs':null,'finish_reason':null}]}\n\n"
        "data: {'error':{'message':'The deadline of 2 s passed.','type':'server_error',"
        "'param':null,'code':'timeout'}}\n\n");
    response_error(response, &e, NULL);
    response_keepalive(response);
    response_flush(response);
    EXPECT_EQ(sink.n_ended, 1);
    e.code = ERR_NONE;
    frames_are_json(false);
    close_answer();
}

static void response_above_the_size_limit_is_an_error(void)
{
    struct str big = { xcalloc(1, MB), MB };
    int n = 0;

    open_answer(&dialect_openai_chat, CHAT("'n':4"));
    while (response_ok(response) && n < 100)
        response_output_ops.content(response, n++ % 4, big); /* a NUL becomes six bytes, escaped */
    EXPECT(n >= 10 && n < 13);
    response_end(response);
    EXPECT(sink.status == 400 && sink.n_ended == 1);
    close_answer();
    mem_free((char *)(uintptr_t)big.p);
}

static void ids_are_random_and_well_formed(void)
{
    struct response_setup s = { .request = &request, .sink = &sink.sink, .model = STR("m") };
    struct response *a = NULL, *b = NULL;

    open_answer(&dialect_openai_chat, CHAT("'n':1"));
    EXPECT_STR(response_id(response), "chatcmpl-1");
    EXPECT_EQ(response_new(&a, &s, &e), 0);
    EXPECT_EQ(response_new(&b, &s, &e), 0);
    EXPECT_EQ(strlen(response_id(a)), strlen("chatcmpl-") + 32);
    EXPECT(strcmp(response_id(a), response_id(b)) != 0);
    response_free(a);
    response_free(b);
    close_answer();
}

/* However an output is cut into pieces, the stream's deltas join to the text of the body. */
static void stream_and_body_have_the_same_text(void)
{
    static const char *const texts[] = { "plain", "\x01\x02\n\r\t\"\\", "\xF0\x9F\x98\x80 \xC3\xA9",
        "{\"a\":[1,2]}", "data: [DONE]\n\n", "</script>\xE2\x80\xA8" };
    struct buf joined;

    buf_init(&joined, MB);
    for (size_t cut = 1; cut < 5; cut++) {
        open_answer(&dialect_openai_chat, CHAT("'stream':true"));
        response_begin(response);
        buf_reset(&joined);
        for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
            buf_putz(&joined, texts[i]);
            response_output_ops.content(response, 0, str_of(texts[i]));
            if (i % cut == 0)
                response_flush(response);
        }
        response_end(response);
        frames_are_json(true);
        struct buf got;
        buf_init(&got, MB);
        struct str rest = buf_str(&sink.body);
        while (str_find(rest, STR("\n\n")) > 6 && !str_starts(rest, STR("data: [DONE]\n\n"))) {
            size_t end = (size_t)str_find(rest, STR("\n\n"));
            struct json *j = NULL;
            struct str frame = { rest.p + 6, end - 6 };
            EXPECT_EQ(json_parse(&j, frame, arena, NULL, &e), 0);
            const struct json *delta = json_get(json_get(j, "choices")->child, "delta");
            const struct json *content = json_get(delta, "content");
            if (content)
                buf_puts(&got, content->s);
            rest = str_skip(rest, end + 2);
        }
        EXPECT(str_eq(buf_str(&got), buf_str(&joined)));
        buf_clear(&got);
    }
    buf_clear(&joined);
    close_answer();
}

static int one_request(bool stream, struct err *err)
{
    struct response_setup s = { .request = &request,
        .sink = &sink.sink,
        .model = STR("m"),
        .id = "1",
        .token_bytes = token_bytes,
        .vocab = token_texts };
    struct response *a = NULL;
    struct arena *ar = arena_new(MB);
    struct sampled t = make_token(1, -0.5f);
    int rc = -1;

    if (!ar)
        return -1;
    struct str body =
        stream ? STR("{\"prompt\":\"x\",\"stream\":true,\"logprobs\":2,\"return_token_ids\":true,"
                     "\"n\":2}")
               : STR("{\"prompt\":\"x\",\"logprobs\":2,\"return_token_ids\":true,\"n\":2}");
    if (!request_parse(&request, &dialect_openai_completion, body, ar, err) &&
        !response_new(&a, &s, err)) {
        response_begin(a);
        for (int i = 0; i < 40 && response_ok(a); i++) {
            response_add_token(a, i & 1, &t);
            response_output_ops.content(
                a, i & 1, STR("some text of a length that makes buffers grow"));
        }
        rc = response_ok(a) ? 0 : err_set(err, ERR_MEMORY, "no memory");
        if (rc)
            response_error(a, err, NULL);
        else
            response_end(a);
        CHECK(sink.n_ended == 1);
    }
    response_free(a);
    arena_free(ar);
    return rc;
}

static void every_failed_allocation_is_reported(void)
{
    for (int stream = 0; stream < 2; stream++) {
        int n = 0;
        for (;; n++) {
            struct err err = { 0 };
            fake_sink_init(&sink);
            uint64_t failures = mem_failures();
            mem_fail_after((uint64_t)n + 1);
            int rc = one_request(stream, &err);
            mem_fail_after(0);
            fake_sink_clear(&sink);
            if (mem_failures() == failures)
                break;
            EXPECT(!rc || err.code == ERR_MEMORY || !err.code);
        }
        EXPECT(n >= FAULTS_AT_LEAST(11));
    }
}

TESTS(TEST(a_chat_in_one_piece), TEST(a_chat_as_a_stream), TEST(usage_is_sent_in_its_own_frame),
    TEST(continuous_usage_is_in_every_frame), TEST(prediction_tokens_are_counted),
    TEST(choices_interleave_by_index), TEST(logprobs_wait_for_their_text), TEST(logprobs_of_a_body),
    TEST(stop_string_removes_its_tokens_logprobs), TEST(a_completion_with_echo_and_logprobs),
    TEST(echoed_prompt_is_not_trimmed), TEST(only_the_prompt_is_scored),
    TEST(a_completion_as_a_stream), TEST(tokens_can_be_named_by_id),
    TEST(best_of_returns_the_likeliest_choices), TEST(an_error_before_the_headers_is_an_error),
    TEST(an_error_in_a_stream_is_its_last_frame), TEST(response_above_the_size_limit_is_an_error),
    TEST(ids_are_random_and_well_formed), TEST(stream_and_body_have_the_same_text),
    TEST(every_failed_allocation_is_reported))
