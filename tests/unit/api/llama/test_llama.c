/* llama-server dialect, native completion endpoint: request bodies and response bytes. */
#include "api/llama/llama.h"
#include "support/dialect_kit.h"

#define ASK(more) "{'prompt':'hi'" more "}"
#define OK        ERR_NONE

static const struct kit_row rows[] = {
    { ASK(""), OK, "" },
    { ASK(",'an_unknown_field':1,'id_slot':3,'n_keep':5"), OK, "" },
    { "{}", ERR_MISSING, "prompt" },
    { "{'prompt':7}", ERR_INVALID, "prompt" },
    { "{'prompt':[]}", ERR_INVALID, "prompt" },
    { "{'prompt':[1,2]}", OK, "" },
    { "{'prompt':['a','b']}", OK, "" },
    { "{'prompt':[[1],[2,3]]}", OK, "" },
    { "{'prompt':[1,'a',2]}", OK, "" },
    { "{'prompt':['a',[1],[2,'b'],{'prompt_string':'c'}]}", OK, "" },
    { "{'prompt':[1,[2]]}", ERR_INVALID, "prompt" },
    { "{'prompt':['a',[]]}", ERR_INVALID, "prompt" },
    { "{'prompt':['a',true]}", ERR_INVALID, "prompt" },
    { "{'prompt':[1,'a',-1]}", ERR_RANGE, "prompt" },
    { ASK(",'n_indent':2"), ERR_UNSUPPORTED, "n_indent" },
    { "{'prompt':{'prompt_string':'a'}}", OK, "" },
    { "{'prompt':{'prompt_string':'a','multimodal_data':[]}}", OK, "" },
    { "{'prompt':{'prompt_string':'a','multimodal_data':['x']}}", ERR_UNSUPPORTED,
        "prompt.multimodal_data" },
    { "{'prompt':{}}", ERR_MISSING, "prompt.prompt_string" },
    { "{'prompt':{'prompt_string':1}}", ERR_INVALID, "prompt.prompt_string" },
    { ASK(",'n_predict':-1"), OK, "" },
    { ASK(",'n_predict':-2"), OK, "" },
    { ASK(",'n_predict':0"), OK, "" },
    { ASK(",'n_predict':-3"), ERR_RANGE, "n_predict" },
    { ASK(",'n_probs':3"), OK, "" },
    { ASK(",'n_probs':99"), ERR_RANGE, "n_probs" },
    { ASK(",'n_cmpl':0"), ERR_RANGE, "n_cmpl" },
    { "{'prompt':['a','b','c','d','e','f','g','h','i'],'n_cmpl':128}", ERR_RANGE, "prompt" },
    { ASK(",'logit_bias':{'17':-5}"), OK, "" },
    { ASK(",'logit_bias':[[17,-5],[18,false]]"), OK, "" },
    { ASK(",'logit_bias':[[17,true]]"), ERR_INVALID, "logit_bias" },
    { ASK(",'logit_bias':[['a',1],['b',false]]"), OK, "" },
    { ASK(",'logit_bias':{'a':1,'17':false}"), OK, "" },
    { ASK(",'logit_bias':{'a':'b'}"), ERR_INVALID, "logit_bias" },
    { ASK(",'logit_bias':[[17]]"), ERR_INVALID, "logit_bias" },
    { ASK(",'logit_bias':[17,1]"), ERR_INVALID, "logit_bias" },
    { ASK(",'logit_bias':[[17,101]]"), ERR_RANGE, "logit_bias" },
    { ASK(",'logit_bias':7"), ERR_INVALID, "logit_bias" },
    { ASK(",'grammar':''"), OK, "" },
    { ASK(",'grammar':'root ::= x'"), OK, "" },
    { ASK(",'grammar':'root ::= x','json_schema':{}"), ERR_INVALID, "json_schema" },
    { ASK(",'grammar_lazy':true"), ERR_UNSUPPORTED, "grammar_lazy" },
    { ASK(",'json_schema':7"), ERR_INVALID, "json_schema" },
    { ASK(",'mirostat':1"), ERR_UNSUPPORTED, "mirostat" },
    { ASK(",'dry_multiplier':0.0"), OK, "" },
    { ASK(",'t_max_predict_ms':5"), ERR_UNSUPPORTED, "t_max_predict_ms" },
    { ASK(",'temperature':-1"), ERR_RANGE, "temperature" },
    { ASK(",'stop':['a']"), OK, "" },
};

static void body_is_accepted_or_the_wrong_field_is_named(void)
{
    kit_check_rows(&dialect_llama, rows, ARRAY_LEN(rows));
    kit_close_response();
}

static const struct kit_row infill_rows[] = {
    { "{'input_prefix':'a','input_suffix':'b'}", OK, "" },
    { "{'input_prefix':'','input_suffix':''}", OK, "" },
    { "{'input_suffix':'b'}", ERR_MISSING, "input_prefix" },
    { "{'input_prefix':'a'}", ERR_MISSING, "input_suffix" },
    { "{'input_prefix':1,'input_suffix':'b'}", ERR_INVALID, "input_prefix" },
    { "{'input_prefix':'a','input_suffix':'b','prompt':[1]}", ERR_INVALID, "prompt" },
    { "{'input_prefix':'a','input_suffix':'b','input_extra':{}}", ERR_INVALID, "input_extra" },
    { "{'input_prefix':'a','input_suffix':'b','input_extra':[7]}", ERR_INVALID, "input_extra[0]" },
    { "{'input_prefix':'a','input_suffix':'b','input_extra':[{'text':'t'},{}]}", ERR_MISSING,
        "input_extra[1].text" },
    { "{'input_prefix':'a','input_suffix':'b','input_extra':[]}", OK, "" },
    { "{'input_prefix':'a','input_suffix':'b','n_predict':'x'}", ERR_INVALID, "n_predict" },
};

static void infill_fields_arrive(void)
{
    kit_check_rows(&dialect_llama_infill, infill_rows, ARRAY_LEN(infill_rows));
    EXPECT_EQ(kit_parse_request(&dialect_llama_infill,
                  "{'input_prefix':'a','input_suffix':'b','prompt':'c','n_predict':7,"
                  "'input_extra':[{'filename':'f.c','text':'t'},{'text':'u'}]}"),
        0);
    EXPECT(kit.request.n_prompts == 1 && kit.request.max_tokens == 7);
    const struct infill *infill = kit.request.prompts[0].infill;
    EXPECT(
        str_is(infill->prefix, "a") && str_is(infill->suffix, "b") && str_is(infill->prompt, "c"));
    EXPECT(infill->n_extra == 2 && str_is(infill->extra[0].name, "f.c"));
    EXPECT(str_is(infill->extra[0].text, "t") && str_is(infill->extra[1].text, "u"));
    kit_close_response();
}

static void texts_and_tokens_make_one_prompt(void)
{
    EXPECT_EQ(kit_parse_request(&dialect_llama, "{'prompt':[5,'a',6,'']}"), 0);
    const struct request_prompt *p = &kit.request.prompts[0];
    EXPECT(kit.request.n_prompts == 1 && p->n_pieces == 4 && !p->is_tokens);
    EXPECT(p->pieces[0].is_token && p->pieces[0].id == 5 && str_is(p->pieces[1].text, "a"));
    EXPECT(p->pieces[2].id == 6 && !p->pieces[3].is_token && !p->pieces[3].text.n);
    EXPECT_EQ(request_check_vocab(&kit.request, 7, &kit.e), 0);
    EXPECT_EQ(request_check_vocab(&kit.request, 6, &kit.e), -1);
    EXPECT_STR(kit.e.param, "prompt");
    EXPECT_EQ(
        kit_parse_request(&dialect_llama, "{'prompt':['a',[1],[2,'b'],{'prompt_string':'c'}]}"), 0);
    p = kit.request.prompts;
    EXPECT(kit.request.n_prompts == 4 && str_is(p[0].text, "a") && p[1].is_tokens);
    EXPECT(p[2].n_pieces == 2 && str_is(p[3].text, "c"));
    kit_close_response();
}

static void every_field_arrives(void)
{
    EXPECT_EQ(kit_parse_request(&dialect_llama,
                  ASK(",'n_predict':9,'temperature':0.5,'top_k':-1,'top_p':0.25,'min_p':0.125,"
                      "'typical_p':0.5,'repeat_penalty':1.5,'repeat_last_n':-1,"
                      "'presence_penalty':0.5,'frequency_penalty':-0.5,'seed':4,'ignore_eos':true,"
                      "'logit_bias':[[18,1],[17,-5],[18,false]],'n_probs':2,'return_tokens':true,"
                      "'n_cmpl':2,'stop':['a','b'],'stream':true,'cache_prompt':false")),
        0);
    const struct request *a = &kit.request;
    const struct sample_params *s = &a->sample;
    EXPECT(a->max_tokens == 9 && a->n == 2 && a->best_of == 2 && a->stream && a->ignore_eos);
    EXPECT(a->want_token_ids && !a->cache_prompt && a->n_stops == 2 && s->seed == 4);
    EXPECT(s->temperature == 0.5f && s->top_k == 0 && s->top_p == 0.25f && s->min_p == 0.125f);
    EXPECT(s->typical_p == 0.5f && s->repeat_penalty == 1.5f && s->repeat_last_n == -1);
    EXPECT(s->presence_penalty == 0.5f && s->frequency_penalty == -0.5f);
    EXPECT(s->want_logprobs && s->n_top == 2 && s->n_bias == 2);
    EXPECT(s->bias[0].id == 17 && s->bias[0].bias == -5);
    EXPECT(s->bias[1].id == 18 && s->bias[1].bias == -100);
    EXPECT_EQ(kit_parse_request(&dialect_llama, ASK("")), 0);
    EXPECT(s->temperature == 0.8f && s->top_k == 40 && s->top_p == 0.95f && s->min_p == 0.05f);
    EXPECT(a->max_tokens == -1 && !a->want_logprobs && !a->stream && a->add_special_tokens);
    EXPECT_STR(kit_cstr(a->prompts[0].text), "hi");
    kit_close_response();
}

/* ---- responses */

#define SETTINGS(stream)                                                                           \
    "'generation_settings':{'seed':4,'temperature':0.5,'top_k':40,'top_p':0.95,'min_p':0.05,"      \
    "'typical_p':1,'repeat_last_n':64,'repeat_penalty':1,'presence_penalty':0,"                    \
    "'frequency_penalty':0,'n_predict':9,'n_probs':0,'ignore_eos':false,'stop':['x'],'stream'"     \
    ":" stream "}"
#define TIMINGS(n, ms, each, pace)                                                                 \
    "'timings':{'cache_n':4,'prompt_n':3,'prompt_ms':30,'prompt_per_token_ms':10,"                 \
    "'prompt_per_second':100,'predicted_n':" n ",'predicted_ms':" ms                               \
    ",'predicted_per_token_ms':" each ",'predicted_per_second':" pace "}}"
#define REPORT(type, word, stream)                                                                 \
    "'id_slot':-1,'stop':true,'truncated':false,'model':'m','tokens_predicted':2,"                 \
    "'tokens_evaluated':7,'tokens_cached':4,'stop_type':'" type "','stopping_word':'" word         \
    "','prompt':'hi'," SETTINGS(stream) "," TIMINGS("2", "50", "25", "40")
#define FIELDS ",'seed':4,'temperature':0.5,'n_predict':9,'stop':'x'"

static const struct response_times times = { 1000000, 1000000, 31000000, 81000000 };

static void response_as_one_body(void)
{
    kit_open_response(&dialect_llama, ASK(FIELDS));
    response_set_usage(kit.response, 7, 4);
    kit_emit_token(0, 1);
    kit_emit_token(0, 4);
    response_choice_end(kit.response, 0, FINISH_STOP, STR("x"), -1);
    response_set_times(kit.response, &times);
    response_end(kit.response);
    kit_expect_body(
        "{'index':0,'content':'Hello\\'q\\'\\n','tokens':[]," REPORT("word", "x", "false"));
    kit_close_response();
}

static void draft_counts_are_reported_if_there_were_drafts(void)
{
    struct response_times guessed = times;

    guessed.n_drafted = 7;
    guessed.n_drafts_accepted = 5;
    kit_open_response(&dialect_llama, ASK(FIELDS));
    kit_emit_token(0, 1);
    response_choice_end(kit.response, 0, FINISH_STOP, STR_NONE, -1);
    response_set_times(kit.response, &guessed);
    response_end(kit.response);
    EXPECT(strstr(kit.sink.body.p, ",\"draft_n\":7,\"draft_n_accepted\":5}}"));
    kit_close_response();
}

static void response_as_a_stream(void)
{
    kit_open_response(&dialect_llama, ASK(FIELDS ",'stream':true,'return_tokens':true"));
    response_set_usage(kit.response, 7, 4);
    response_begin(kit.response);
    EXPECT_STR(kit.sink.type, "text/event-stream");
    kit_emit_token(0, 1);
    kit_emit_token(0, 4);
    response_choice_end(kit.response, 0, FINISH_STOP, STR_NONE, -1);
    response_set_times(kit.response, &times);
    response_end(kit.response);
    kit_expect_body(
        "data: {'index':0,'content':'Hello','tokens':[1],'stop':false,'id_slot':-1,"
        "'tokens_predicted':1,'tokens_evaluated':7}\n\n"
        "data: {'index':0,'content':'\\'q\\'\\n','tokens':[4],'stop':false,'id_slot':-1,"
        "'tokens_predicted':2,'tokens_evaluated':7}\n\n"
        "data: {'index':0,'content':'','tokens':[]," REPORT("eos", "", "true") "\n\n");
    kit_close_response();
}

static void several_choices_are_an_array(void)
{
    kit_open_response(&dialect_llama, "{'prompt':['a','b'],'n_cmpl':2}");
    for (int i = 0; i < 4; i++) {
        kit_emit_token(i, 1 + i);
        response_choice_end(kit.response, i, FINISH_LENGTH, STR_NONE, -1);
    }
    response_end(kit.response);
    struct json *j;
    EXPECT_EQ(json_parse(&j, buf_str(&kit.sink.body), kit.arena, NULL, &kit.e), 0);
    EXPECT(j->kind == JSON_ARRAY && j->n == 4);
    int i = 0;
    for (const struct json *c = j->child; c; c = c->next, i++) {
        int64_t index;
        EXPECT(json_i64(json_get(c, "index"), &index) && index == i);
        EXPECT_STR(kit_cstr(json_get(c, "content")->s), kit_token_texts[1 + i]);
        EXPECT_STR(kit_cstr(json_get(c, "prompt")->s), i < 2 ? "a" : "b");
        EXPECT_STR(kit_cstr(json_get(c, "stop_type")->s), "limit");
    }
    kit_close_response();
}

static void probabilities_are_sent_with_their_text(void)
{
    kit_open_response(&dialect_llama, ASK(",'n_probs':1,'stream':true"));
    response_begin(kit.response);
    kit_emit_token(0, 6); /* half of a character produces no text yet */
    kit_emit_token(0, 1);
    response_choice_end(kit.response, 0, FINISH_STOP, STR_NONE, -1);
    response_end(kit.response);
    EXPECT(str_find(buf_str(&kit.sink.body),
               STR("\"completion_probabilities\":[{\"id\":6,\"token\":\"\xEF\xBF\xBD\","
                   "\"bytes\":[195],\"logprob\":-0.5,\"top_logprobs\":[{\"id\":6,")) > 0);
    kit_close_response();
}

static void errors_have_the_form_of_the_dialect(void)
{
    const struct error_extra full = { .n_prompt_tokens = 9, .n_ctx = 8 };
    struct err e;

    err_set(&e, ERR_INVALID, "why");
    fake_sink_init(&kit.sink);
    status_reply(&kit.sink.sink, ERROR_LLAMA, &e, NULL, NULL, 0);
    kit_expect_body("{'error':{'code':400,'message':'why','type':'invalid_request_error'}}");
    fake_sink_clear(&kit.sink);
    fake_sink_init(&kit.sink);
    err_set(&e, ERR_CONTEXT, "why");
    status_reply(&kit.sink.sink, ERROR_LLAMA, &e, &full, NULL, 0);
    kit_expect_body("{'error':{'code':400,'message':'why','type':'exceed_context_size_error',"
                    "'n_prompt_tokens':9,'n_ctx':8}}");
    fake_sink_clear(&kit.sink);
}

TESTS(TEST(body_is_accepted_or_the_wrong_field_is_named), TEST(infill_fields_arrive),
    TEST(texts_and_tokens_make_one_prompt), TEST(every_field_arrives), TEST(response_as_one_body),
    TEST(draft_counts_are_reported_if_there_were_drafts), TEST(response_as_a_stream),
    TEST(several_choices_are_an_array), TEST(probabilities_are_sent_with_their_text),
    TEST(errors_have_the_form_of_the_dialect))
