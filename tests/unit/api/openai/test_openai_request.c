/* OpenAI request parsing: accepted bodies, their translation to a request, and the field that an
 * error names. Bodies are written with ' for ". */
#include "support/check.h"

#include "api/common/dialect.h"
#include "base/mem.h"
#include "base/rng.h"

static struct arena *arena;
static struct err e;
static struct request request;
static char text_buf[70000];

static int parse_body(const struct dialect *w, const char *body)
{
    arena_free(arena);
    arena = arena_new(64 * MB);
    memset(&e, 0, sizeof(e));
    struct str copy = arena_str(arena, str_of(body));
    for (char *c = (char *)(uintptr_t)copy.p; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    return request_parse(&request, w, copy, arena, &e);
}

#define MSG "'messages':[{'role':'user','content':'hi'}]"

/* A chat with one more field. */
static int chat_with(const char *fields)
{
    snprintf(text_buf, sizeof(text_buf), "{" MSG ",%s}", fields);
    return parse_body(&dialect_openai_chat, text_buf);
}

static int completion_with(const char *fields)
{
    snprintf(text_buf, sizeof(text_buf), "{'prompt':'p',%s}", fields);
    return parse_body(&dialect_openai_completion, text_buf);
}

static const char *z(struct str s)
{
    static char out[4][2000];
    static unsigned turn;
    char *to = out[turn++ % 4];

    snprintf(to, 2000, STR_FMT, STR_ARG(s));
    return to;
}

#define OK ERR_NONE

struct row {
    const char *fields;
    enum errcode code;
    const char *param;
};

static void check_rows(const struct row *rows, size_t n, int (*with)(const char *fields))
{
    for (size_t i = 0; i < n; i++) {
        int rc = with(rows[i].fields);
        enum errcode code = rc ? e.code : ERR_NONE;
        if (code != rows[i].code || strcmp(e.param, rows[i].param))
            fprintf(stderr, "%s: %s '%s' %s\n", rows[i].fields, errcode_name(code), e.param, e.msg);
        EXPECT(code == rows[i].code);
        EXPECT_STR(e.param, rows[i].param);
        EXPECT(!rc || e.msg[0]);
    }
}

static const struct row common_rows[] = {
    { "'model':'m'", OK, "" },
    { "'model':null", OK, "" },
    { "'model':7", ERR_INVALID, "model" },
    { "'an_unknown_field':{'a':[1]}", OK, "" },
    { "'stream':true", OK, "" },
    { "'stream':'yes'", ERR_INVALID, "stream" },
    { "'stream':1", ERR_INVALID, "stream" },
    { "'stream_options':{'include_usage':true}", OK, "" },
    { "'stream_options':{'include_usage':null,'include_obfuscation':false}", OK, "" },
    { "'stream_options':{'include_usage':1}", ERR_INVALID, "stream_options.include_usage" },
    { "'stream_options':{'continuous_usage_stats':1}", ERR_INVALID,
        "stream_options.continuous_usage_stats" },
    { "'stream_options':true", ERR_INVALID, "stream_options" },
    { "'n':2", OK, "" },
    { "'n':2.0", OK, "" },
    { "'n':2,'best_of':3", OK, "" },
    { "'n':2,'best_of':1", ERR_INVALID, "best_of" },
    { "'n':2,'best_of':2,'stream':true", OK, "" },
    { "'n':1,'best_of':2,'stream':true", ERR_INVALID, "best_of" },
    { "'max_tokens':5,'min_tokens':5", OK, "" },
    { "'max_tokens':5,'min_tokens':6", ERR_INVALID, "min_tokens" },
    { "'max_tokens':-1,'min_tokens':6", OK, "" },
    { "'stop':'a'", OK, "" },
    { "'stop':''", OK, "" },
    { "'stop':[]", OK, "" },
    { "'stop':['a','b','c','d']", OK, "" },
    { "'stop':['a',1]", ERR_INVALID, "stop" },
    { "'stop':7", ERR_INVALID, "stop" },
    { "'stop':['1','2','3','4','5','6','7','8','9','10','11','12','13','14','15','16']", OK, "" },
    { "'stop':['1','2','3','4','5','6','7','8','9','10','11','12','13','14','15','16','17']",
        ERR_RANGE, "stop" },
    { "'stop_token_ids':[1,2]", OK, "" },
    { "'stop_token_ids':[]", OK, "" },
    { "'stop_token_ids':[-1]", ERR_RANGE, "stop_token_ids" },
    { "'stop_token_ids':[1.5]", ERR_INVALID, "stop_token_ids" },
    { "'stop_token_ids':['1']", ERR_INVALID, "stop_token_ids" },
    { "'stop_token_ids':1", ERR_INVALID, "stop_token_ids" },
    { "'allowed_token_ids':[3,1]", OK, "" },
    { "'allowed_token_ids':[]", ERR_INVALID, "allowed_token_ids" },
    { "'logit_bias':{}", OK, "" },
    { "'logit_bias':{'17':-100,'18':100,'19':0.5}", OK, "" },
    { "'logit_bias':{'17':null}", OK, "" },
    { "'logit_bias':{'17':101}", ERR_RANGE, "logit_bias" },
    { "'logit_bias':{'17':'x'}", ERR_INVALID, "logit_bias" },
    { "'logit_bias':{'x':1}", ERR_INVALID, "logit_bias" },
    { "'logit_bias':{'':1}", ERR_INVALID, "logit_bias" },
    { "'logit_bias':{'-1':1}", ERR_INVALID, "logit_bias" },
    { "'logit_bias':{'2147483648':1}", ERR_INVALID, "logit_bias" },
    { "'logit_bias':[[1,2]]", ERR_INVALID, "logit_bias" },
    { "'seed':0", OK, "" },
    { "'seed':-1", OK, "" },
    { "'seed':-9223372036854775808", OK, "" },
    { "'seed':9223372036854775807", OK, "" },
    { "'seed':9223372036854775808", ERR_RANGE, "seed" },
    { "'seed':1.5", ERR_INVALID, "seed" },
    { "'seed':'1'", ERR_INVALID, "seed" },
    { "'metadata':{'a':'b'}", OK, "" },
    { "'metadata':{'a':1}", ERR_INVALID, "metadata" },
    { "'metadata':[]", ERR_INVALID, "metadata" },
    { "'metadata':{'1':'','2':'','3':'','4':'','5':'','6':'','7':'','8':'','9':'','10':'','11':'',"
      "'12':'','13':'','14':'','15':'','16':'','17':''}",
        ERR_RANGE, "metadata" },
    { "'metadata':{'1234567890123456789012345678901234567890123456789012345678901234':''}", OK,
        "" },
    { "'metadata':{'12345678901234567890123456789012345678901234567890123456789012345':''}",
        ERR_RANGE, "metadata" },
    { "'user':'u','safety_identifier':'s','cache_salt':'c','request_id':'r'", OK, "" },
    { "'user':{}", ERR_INVALID, "user" },
    { "'prediction':{'type':'content','content':'x'}", OK, "" },
    { "'prediction':{'type':'content','content':[]}", OK, "" },
    { "'prediction':'x'", ERR_INVALID, "prediction" },
    { "'prediction':{'content':'x'}", ERR_INVALID, "prediction.type" },
    { "'prediction':{'type':'image','content':'x'}", ERR_INVALID, "prediction.type" },
    { "'prediction':{'type':'content'}", ERR_INVALID, "prediction.content" },
    { "'prediction':{'type':'content','content':7}", ERR_INVALID, "prediction.content" },
    { "'prediction':{'type':'content','content':['x']}", ERR_INVALID, "prediction.content" },
    { "'service_tier':'auto'", OK, "" },
    { "'service_tier':'gold'", ERR_INVALID, "service_tier" },
    { "'response_format':{'type':'text'}", OK, "" },
    { "'response_format':{'type':'json_object'}", OK, "" },
    { "'response_format':{'type':'json_object','schema':7}", ERR_INVALID,
        "response_format.schema" },
    { "'response_format':{'type':'json_schema','json_schema':{'name':'x','schema':{}}}", OK, "" },
    { "'response_format':{'type':'json_schema'}", ERR_MISSING, "response_format.json_schema" },
    { "'response_format':{'type':'json_schema','json_schema':{'name':'x'}}", ERR_MISSING,
        "response_format.json_schema.schema" },
    { "'response_format':{'type':'json_schema','json_schema':{'name':'x y','schema':{}}}",
        ERR_INVALID, "response_format.json_schema.name" },
    { "'response_format':{'type':'json_schema','json_schema':{'name':'x','schema':{},'strict':1}}",
        ERR_INVALID, "response_format.json_schema.strict" },
    { "'response_format':{'type':'grammar'}", ERR_MISSING, "response_format.grammar" },
    { "'response_format':{'type':'grammar','grammar':'root ::= x'}", OK, "" },
    { "'response_format':{'type':'regex'}", ERR_MISSING, "response_format.regex" },
    { "'response_format':{'type':'regex','regex':7}", ERR_INVALID, "response_format.regex" },
    { "'response_format':{'type':'choice','choice':['a']}", OK, "" },
    { "'response_format':{'type':'choice','choice':[]}", ERR_INVALID, "response_format.choice" },
    { "'response_format':{'type':'structural_tag','format':{}}", OK, "" },
    { "'response_format':{'type':'xml'}", ERR_INVALID, "response_format.type" },
    { "'response_format':{'type':1}", ERR_INVALID, "response_format.type" },
    { "'response_format':{}", ERR_MISSING, "response_format.type" },
    { "'response_format':'json'", ERR_INVALID, "response_format" },
    { "'structured_outputs':{'json':{}}", OK, "" },
    { "'structured_outputs':7", ERR_INVALID, "structured_outputs" },
    { "'structured_outputs':{}", OK, "" },
    { "'guided_json':{'type':'object'}", OK, "" },
    { "'guided_json':7", ERR_INVALID, "guided_json" },
    { "'guided_regex':'a+'", OK, "" },
    { "'guided_choice':'a'", ERR_INVALID, "guided_choice" },
    { "'grammar':7", ERR_INVALID, "grammar" },
    { "'grammar':''", OK, "" },
    { "'ebnf':{}", ERR_INVALID, "ebnf" },
    { "'use_beam_search':true", ERR_UNSUPPORTED, "use_beam_search" },
    { "'use_beam_search':false", OK, "" },
    { "'bad_words':['a']", ERR_UNSUPPORTED, "bad_words" },
    { "'mirostat':0", OK, "" },
    { "'mirostat':2", ERR_UNSUPPORTED, "mirostat" },
    { "'dry_multiplier':0.0,'xtc_probability':0,'dynatemp_range':0", OK, "" },
    { "'dry_multiplier':0.8", ERR_UNSUPPORTED, "dry_multiplier" },
    { "'xtc_probability':0.1", ERR_UNSUPPORTED, "xtc_probability" },
    { "'dynatemp_range':0.1", ERR_UNSUPPORTED, "dynatemp_range" },
    { "'truncate_prompt_tokens':10", ERR_UNSUPPORTED, "truncate_prompt_tokens" },
    { "'prompt_logprobs':1", ERR_UNSUPPORTED, "prompt_logprobs" },
    { "'lora':[{'id':1}]", ERR_UNSUPPORTED, "lora" },
    { "'lora':[]", OK, "" },
    { "'ignore_eos':true,'skip_special_tokens':false", OK, "" },
    { "'ignore_eos':0", ERR_INVALID, "ignore_eos" },
    { "'include_stop_str_in_output':true,'return_token_ids':true", OK, "" },
    { "'return_tokens_as_token_ids':true,'cache_prompt':false", OK, "" },
    { "'script':'text'", OK, "" },
    { "'script':{'text':'t','chunk':'token','delay_ms':5}", OK, "" },
    { "'script':{'text':'t','chunk':3}", OK, "" },
    { "'script':{'text':'t','chunk':0}", ERR_RANGE, "script.chunk" },
    { "'script':{'text':'t','chunk':'word'}", ERR_INVALID, "script.chunk" },
    { "'script':{'text':'t','chunk':[]}", ERR_INVALID, "script.chunk" },
    { "'script':{'text':'t','delay_ms':60001}", ERR_RANGE, "script.delay_ms" },
    { "'script':{'text':1}", ERR_INVALID, "script.text" },
    { "'script':['a','b']", OK, "" },
    { "'script':{'text':['a','b']}", OK, "" },
    { "'script':[]", ERR_INVALID, "script" },
    { "'script':['a',1]", ERR_INVALID, "script" },
    { "'script':{}", ERR_MISSING, "script.text" },
    { "'script':1", ERR_INVALID, "script" },
    { "'x_timeout':1.5", OK, "" },
    { "'x_timeout':-1", ERR_RANGE, "x_timeout" },
    { "'temperature':5,'temperature':1", OK, "" },
    { "'temperature':1,'temperature':5", ERR_RANGE, "temperature" },
};

static void fields_of_both_routes(void)
{
    check_rows(common_rows, ARRAY_LEN(common_rows), chat_with);
    check_rows(common_rows, ARRAY_LEN(common_rows), completion_with);
}

static void fields_of_a_chat(void)
{
    static const struct row rows[] = {
        { "'logprobs':true", OK, "" },
        { "'logprobs':true,'top_logprobs':20", OK, "" },
        { "'logprobs':true,'top_logprobs':21", ERR_RANGE, "top_logprobs" },
        { "'logprobs':true,'top_logprobs':-1", ERR_RANGE, "top_logprobs" },
        { "'logprobs':1", ERR_INVALID, "logprobs" },
        { "'top_logprobs':1", ERR_INVALID, "top_logprobs" },
        { "'top_logprobs':0", OK, "" },
        { "'logprobs':false,'top_logprobs':2", ERR_INVALID, "top_logprobs" },
        { "'max_tokens':0", ERR_RANGE, "max_tokens" },
        { "'max_completion_tokens':0", ERR_RANGE, "max_completion_tokens" },
        { "'max_tokens':7,'max_completion_tokens':'x'", ERR_INVALID, "max_completion_tokens" },
        { "'max_tokens':'x','max_completion_tokens':7", ERR_INVALID, "max_tokens" },
        { "'tools':[]", OK, "" },
        { "'tools':null,'tool_choice':null", OK, "" },
        { "'tools':{}", ERR_INVALID, "tools" },
        { "'tools':[{'type':'function','function':{'name':'f'}}]", OK, "" },
        { "'tools':[{'type':'function','function':{'name':'f'}}],'tool_choice':'none'", OK, "" },
        { "'tools':[{'type':'function'}],'tool_choice':'auto'", ERR_MISSING, "tools[0].function" },
        { "'tools':[{'function':{'name':'f'}}],'tool_choice':'required'", OK, "" },
        { "'tools':[{'function':{'name':7}}]", ERR_INVALID, "tools[0].function.name" },
        { "'tool_choice':'auto'", OK, "" },
        { "'tool_choice':'none'", OK, "" },
        { "'tool_choice':'required'", ERR_INVALID, "tool_choice" },
        { "'tool_choice':{'type':'function','function':{'name':'f'}}", ERR_INVALID, "tool_choice" },
        { "'tool_choice':'sometimes'", ERR_INVALID, "tool_choice" },
        { "'tool_choice':1", ERR_INVALID, "tool_choice" },
        { "'functions':[{'name':'f'}]", OK, "" },
        { "'functions':[{'name':'f'}],'function_call':'none'", OK, "" },
        { "'functions':[]", OK, "" },
        { "'functions':1", ERR_INVALID, "functions" },
        { "'function_call':'x'", ERR_INVALID, "function_call" },
        { "'parallel_tool_calls':false", OK, "" },
        { "'thinking_token_budget':100", ERR_UNSUPPORTED, "thinking_token_budget" },
        { "'parallel_tool_calls':2", ERR_INVALID, "parallel_tool_calls" },
        { "'modalities':['text']", OK, "" },
        { "'modalities':['text','audio']", ERR_UNSUPPORTED, "modalities" },
        { "'modalities':['smell']", ERR_INVALID, "modalities" },
        { "'modalities':'text'", ERR_INVALID, "modalities" },
        { "'audio':{'voice':'x','format':'wav'}", ERR_UNSUPPORTED, "audio" },
        { "'reasoning_effort':'low'", OK, "" },
        { "'reasoning_effort':'huge'", ERR_INVALID, "reasoning_effort" },
        { "'verbosity':'low'", OK, "" },
        { "'verbosity':'loud'", ERR_INVALID, "verbosity" },
        { "'chat_template':'{{ x }}'", ERR_UNSUPPORTED, "chat_template" },
        { "'chat_template_kwargs':{'enable_thinking':false}", OK, "" },
        { "'chat_template_kwargs':[]", ERR_INVALID, "chat_template_kwargs" },
        { "'documents':[{'text':'x'}]", ERR_UNSUPPORTED, "documents" },
        { "'echo':true", ERR_UNSUPPORTED, "echo" },
        { "'echo':false", OK, "" },
        { "'add_generation_prompt':false", OK, "" },
        { "'continue_final_message':true", ERR_INVALID, "continue_final_message" },
        { "'web_search_options':{}", ERR_UNSUPPORTED, "web_search_options" },
        { "'web_search_options':null,'samplers':'edkypmxt'", OK, "" },
        { "'samplers':['top_k','temperature']", OK, "" },
        { "'samplers':3", ERR_INVALID, "samplers" },
        { "'service_tier':'priority'", OK, "" },
        { "'store':true,'prediction':{'type':'content','content':'x'}", OK, "" },
        { "'moderation':{},'prompt_cache_retention':'24h','prompt_cache_options':{}", OK, "" },
        { "'prompt':17,'suffix':17", OK, "" },
    };

    check_rows(rows, ARRAY_LEN(rows), chat_with);
}

static void fields_of_a_completion(void)
{
    static const struct row rows[] = {
        { "'logprobs':0", OK, "" },
        { "'logprobs':5", OK, "" },
        { "'logprobs':20", OK, "" },
        { "'logprobs':21", ERR_RANGE, "logprobs" },
        { "'logprobs':-1", ERR_RANGE, "logprobs" },
        { "'logprobs':'1'", ERR_INVALID, "logprobs" },
        { "'max_tokens':0", OK, "" },
        { "'echo':true,'max_tokens':0,'logprobs':1", OK, "" },
        { "'echo':'x'", ERR_INVALID, "echo" },
        { "'suffix':'x'", OK, "" },
        { "'suffix':1", ERR_INVALID, "suffix" },
        { "'suffix':'x','prompt':[1,2]", ERR_INVALID, "suffix" },
        { "'suffix':''", OK, "" },
        { "'suffix':null", OK, "" },
        { "'messages':17,'tools':17,'max_completion_tokens':'x'", OK, "" },
        { "'prompt':['a','b']", OK, "" },
        { "'prompt':[1,2]", OK, "" },
        { "'prompt':[[1,2],[3]]", OK, "" },
        { "'prompt':''", OK, "" },
        { "'prompt':[]", ERR_INVALID, "prompt" },
        { "'prompt':[[]]", ERR_INVALID, "prompt" },
        { "'prompt':[[1],[]]", ERR_INVALID, "prompt" },
        { "'prompt':['a',1]", ERR_INVALID, "prompt" },
        { "'prompt':[1,'a']", ERR_INVALID, "prompt" },
        { "'prompt':[[1],'a']", ERR_INVALID, "prompt" },
        { "'prompt':[['a']]", ERR_INVALID, "prompt" },
        { "'prompt':[[[1]]]", ERR_INVALID, "prompt" },
        { "'prompt':[-1]", ERR_RANGE, "prompt" },
        { "'prompt':[2147483648]", ERR_RANGE, "prompt" },
        { "'prompt':[1.5]", ERR_INVALID, "prompt" },
        { "'prompt':[{}]", ERR_INVALID, "prompt" },
        { "'prompt':{}", ERR_INVALID, "prompt" },
        { "'prompt':1", ERR_INVALID, "prompt" },
        { "'prompt':null", ERR_MISSING, "prompt" },
        { "'prompt':['a','b','c','d','e','f','g','h','i'],'n':128", ERR_RANGE, "prompt" },
        { "'prompt':['a','b','c','d','e','f','g','h'],'n':128", OK, "" },
    };

    check_rows(rows, ARRAY_LEN(rows), completion_with);
}

static int messages(const char *list)
{
    snprintf(text_buf, sizeof(text_buf), "{'messages':%s}", list);
    return parse_body(&dialect_openai_chat, text_buf);
}

static void messages_that_are_right_and_wrong(void)
{
    static const struct row rows[] = {
        { "[{'role':'user','content':'a'}]", OK, "" },
        { "[{'role':'user','content':''}]", OK, "" },
        { "[{'role':'developer','content':'a'},{'role':'system','content':'b'}]", OK, "" },
        { "null", ERR_MISSING, "messages" },
        { "[]", ERR_INVALID, "messages" },
        { "{}", ERR_INVALID, "messages" },
        { "'hi'", ERR_INVALID, "messages" },
        { "['hi']", ERR_INVALID, "messages[0]" },
        { "[{'content':'a'}]", ERR_MISSING, "messages[0].role" },
        { "[{'role':'user','content':'a'},{'role':'bot','content':'a'}]", ERR_INVALID,
            "messages[1].role" },
        { "[{'role':1,'content':'a'}]", ERR_INVALID, "messages[0].role" },
        { "[{'role':'user'}]", ERR_MISSING, "messages[0].content" },
        { "[{'role':'user','content':null}]", ERR_MISSING, "messages[0].content" },
        { "[{'role':'user','content':7}]", ERR_INVALID, "messages[0].content" },
        { "[{'role':'user','content':{}}]", ERR_INVALID, "messages[0].content" },
        { "[{'role':'user','content':[]}]", OK, "" },
        { "[{'role':'user','content':[{'type':'text','text':'a'}]}]", OK, "" },
        { "[{'role':'user','content':[{'text':'a'}]}]", OK, "" },
        { "[{'role':'user','content':['a','b']}]", OK, "" },
        { "[{'role':'user','content':[{'type':'input_text','text':'a'}]}]", OK, "" },
        { "[{'role':'user','content':[{'type':'text'}]}]", ERR_MISSING,
            "messages[0].content[0].text" },
        { "[{'role':'user','content':[{'type':'text','text':5}]}]", ERR_INVALID,
            "messages[0].content[0].text" },
        { "[{'role':'user','content':[{}]}]", ERR_MISSING, "messages[0].content[0].type" },
        { "[{'role':'user','content':[{'type':5}]}]", ERR_INVALID, "messages[0].content[0].type" },
        { "[{'role':'user','content':[5]}]", ERR_INVALID, "messages[0].content[0]" },
        { "[{'role':'user','content':[{'type':'smell'}]}]", ERR_INVALID,
            "messages[0].content[0].type" },
        { "[{'role':'user','content':[{'type':'text','text':'a'},{'type':'image_url','image_url':"
          "{'url':'data:'}}]}]",
            ERR_UNSUPPORTED, "messages[0].content[1]" },
        { "[{'role':'user','content':[{'type':'input_audio'}]}]", ERR_UNSUPPORTED,
            "messages[0].content[0]" },
        { "[{'role':'user','content':[{'type':'file'}]}]", ERR_UNSUPPORTED,
            "messages[0].content[0]" },
        { "[{'role':'assistant','content':[{'type':'refusal','refusal':'no'}]}]", OK, "" },
        { "[{'role':'assistant'}]", OK, "" },
        { "[{'role':'assistant','content':null,'tool_calls':[{'id':'c','type':'function',"
          "'function':{'name':'f','arguments':'{}'}}]}]",
            OK, "" },
        { "[{'role':'assistant','tool_calls':[{'function':{'name':'f','arguments':{'a':1}}}]}]", OK,
            "" },
        { "[{'role':'assistant','tool_calls':[{'function':{'name':'f'}}]}]", OK, "" },
        { "[{'role':'assistant','tool_calls':[{'function':{'name':'f','arguments':5}}]}]",
            ERR_INVALID, "messages[0].tool_calls[0].function.arguments" },
        { "[{'role':'assistant','tool_calls':[{'function':{}}]}]", ERR_MISSING,
            "messages[0].tool_calls[0].function.name" },
        { "[{'role':'assistant','tool_calls':[{'function':'f'}]}]", ERR_INVALID,
            "messages[0].tool_calls[0].function" },
        { "[{'role':'assistant','tool_calls':[{}]}]", ERR_MISSING,
            "messages[0].tool_calls[0].function" },
        { "[{'role':'assistant','tool_calls':[7]}]", ERR_INVALID, "messages[0].tool_calls[0]" },
        { "[{'role':'assistant','tool_calls':{}}]", ERR_INVALID, "messages[0].tool_calls" },
        { "[{'role':'assistant','tool_calls':[]}]", OK, "" },
        { "[{'role':'assistant','tool_calls':[{'id':5,'function':{'name':'f'}}]}]", ERR_INVALID,
            "messages[0].tool_calls[0].id" },
        { "[{'role':'assistant','function_call':{'name':'f','arguments':'{}'}}]", OK, "" },
        { "[{'role':'assistant','function_call':'f'}]", ERR_INVALID, "messages[0].function_call" },
        { "[{'role':'tool','tool_call_id':'c','content':'42'}]", OK, "" },
        { "[{'role':'tool','tool_call_id':'c','content':[{'type':'text','text':'42'}]}]", OK, "" },
        { "[{'role':'tool','content':'42'}]", ERR_MISSING, "messages[0].tool_call_id" },
        { "[{'role':'tool','tool_call_id':3,'content':'42'}]", ERR_INVALID,
            "messages[0].tool_call_id" },
        { "[{'role':'function','name':'f','content':'42'}]", OK, "" },
        { "[{'role':'function','content':'42'}]", ERR_MISSING, "messages[0].name" },
        { "[{'role':'user','name':'ann','content':'a'}]", OK, "" },
        { "[{'role':'user','name':1,'content':'a'}]", ERR_INVALID, "messages[0].name" },
        { "[{'role':'assistant','content':'a','reasoning_content':'b'}]", OK, "" },
        { "[{'role':'assistant','content':'a','reasoning':{'effort':'x'}}]", OK, "" },
        { "[{'role':'assistant','content':'a','reasoning_content':1}]", ERR_INVALID,
            "messages[0].reasoning_content" },
    };

    check_rows(rows, ARRAY_LEN(rows), messages);
}

/* Tests every numeric field with values that break other parsers. */
static void numbers_at_their_edges(void)
{
    static const struct {
        const char *name;
        double lo, hi;
        bool is_int, on_chat, on_completion;
    } fields[] = {
        { "best_of", 1, 128, true, true, true },
        { "frequency_penalty", -2, 2, false, true, true },
        { "max_completion_tokens", -1, INT32_MAX, true, true, false },
        { "max_tokens", -1, INT32_MAX, true, true, true },
        { "min_p", 0, 1, false, true, true },
        { "min_tokens", 0, INT32_MAX, true, true, true },
        { "n", 1, 128, true, true, true },
        { "presence_penalty", -2, 2, false, true, true },
        { "priority", INT32_MIN, INT32_MAX, true, true, true },
        { "repeat_last_n", -1, INT32_MAX, true, true, true },
        { "repeat_penalty", 0.001, 100, false, true, true },
        { "repetition_penalty", 0.001, 100, false, true, true },
        { "temperature", 0, 2, false, true, true },
        { "top_k", -1, INT32_MAX, true, true, true },
        { "top_p", 0, 1, false, true, true },
        { "typical_p", 0, 1, false, true, true },
        { "x_timeout", 0, 86400, false, true, true },
    };
    static const struct {
        const char *text;
        double value;
        bool is_int;
    } values[] = {
        { "-1", -1, true },
        { "0", 0, true },
        { "1", 1, true },
        { "2", 2, true },
        { "128", 128, true },
        { "129", 129, true },
        { "2147483647", 2147483647, true },
        { "2147483648", 2147483648.0, true },
        { "-2147483649", -2147483649.0, true },
        { "9223372036854775808", 9223372036854775808.0, true },
        { "-9223372036854775809", -9223372036854775809.0, true },
        { "1e400", 1e308 * 10, true },
        { "-1e400", -1e308 * 10, true },
        { "0.5", 0.5, false },
        { "1e-400", 0, true },
        { "2.0000001", 2.0000001, false },
        { "-2", -2, true },
        { "99999999999999999999999999999999999999999999999999999999999999999999999999999999", 1e80,
            true },
    };
    static const char *const kinds[] = { "'1'", "true", "[]", "{}", "[1]" };
    char body[200];

    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        bool lacks_0 = strstr(fields[i].name, "max_") != NULL;
        for (size_t k = 0; k < ARRAY_LEN(values); k++) {
            double v = values[k].value;
            bool want = v >= fields[i].lo && v <= fields[i].hi;
            if (fields[i].is_int && (!values[k].is_int || strstr(values[k].text, "e-")))
                want = false;
            if (!strcmp(fields[i].name, "min_tokens") && v > 16)
                continue; /* more than max_tokens of a completion allows: tested in another row */
            snprintf(body, sizeof(body), "'%s':%s", fields[i].name, values[k].text);
            bool chat = !chat_with(body);
            if (fields[i].on_chat && chat != (want && !(lacks_0 && v == 0)))
                fprintf(stderr, "chat %s: %d %s\n", body, chat, e.msg);
            EXPECT_EQ(chat, want && !(lacks_0 && v == 0));
            EXPECT(chat || !strcmp(e.param, fields[i].name));
            EXPECT_EQ(!completion_with(body), want || !fields[i].on_completion);
        }
        for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
            snprintf(body, sizeof(body), "'%s':%s", fields[i].name, kinds[k]);
            EXPECT_EQ(chat_with(body), -1);
            EXPECT(e.code == ERR_INVALID);
            EXPECT_STR(e.param, fields[i].name);
        }
        snprintf(body, sizeof(body), "'%s':null", fields[i].name);
        EXPECT_EQ(chat_with(body), 0);
    }
}

static void errors_name_field_value_and_range(void)
{
    chat_with("'temperature':3.5");
    EXPECT_STR(e.msg, "'temperature' must be between 0 and 2, not 3.5.");
    chat_with("'temperature':'hot'");
    EXPECT_STR(e.msg, "'temperature' must be a number, not a string.");
    chat_with("'n':1.5");
    EXPECT_STR(e.msg, "'n' must be an integer, not 1.5.");
    chat_with("'stop':{}");
    EXPECT_STR(e.msg, "'stop' must be a string or an array of strings, not an object.");
    chat_with("'tools':[{}]");
    EXPECT_STR(e.msg, "'tools[0].function' is missing; it is required.");
    parse_body(&dialect_openai_chat, "{}");
    EXPECT_STR(e.msg, "'messages' is missing; it is required.");
    parse_body(&dialect_openai_chat, "{'messages':");
    EXPECT(e.code == ERR_SYNTAX);
    EXPECT_STR(e.msg,
        "The body is not valid JSON: line 1, column 13: the text ends where a value was expected");
    parse_body(&dialect_openai_chat, "[1]");
    EXPECT(e.code == ERR_INVALID);
    EXPECT_STR(e.msg, "The body must be a JSON object.");
}

static void absent_fields_have_their_default(void)
{
    EXPECT_EQ(parse_body(&dialect_openai_chat, "{" MSG "}"), 0);
    EXPECT(request.kind == REQUEST_CHAT && request.dialect == &dialect_openai_chat);
    EXPECT(!request.model.p && request.n == 1 && request.best_of == 1 && request.n_prompts == 1);
    EXPECT_EQ(request.max_tokens, -1);
    EXPECT_EQ(request.sample.temperature, 1.0f);
    EXPECT_EQ(request.sample.top_p, 1.0f);
    EXPECT_EQ(request.sample.typical_p, 1.0f);
    EXPECT_EQ(request.sample.repeat_penalty, 1.0f);
    EXPECT_EQ(request.sample.top_k, 0);
    EXPECT(
        !request.stream && !request.include_usage && !request.has_seed && !request.script.is_set);
    EXPECT(request.skip_special_tokens && request.add_special_tokens && request.cache_prompt);
    EXPECT(request.convo.add_generation_prompt && !request.convo.continue_final_message);
    EXPECT(!request_has(&request, "temperature") && request_has(&request, "messages"));
    uint64_t seed = request.sample.seed;
    EXPECT_EQ(parse_body(&dialect_openai_chat, "{" MSG "}"), 0);
    EXPECT(request.sample.seed != seed);

    EXPECT_EQ(parse_body(&dialect_openai_completion, "{'prompt':'x'}"), 0);
    EXPECT_EQ(request.max_tokens, 16);
    EXPECT(request.kind == REQUEST_COMPLETION && request.add_special_tokens);
}

static const char everything[] =
    "'model':'m/x','stream':true,'stream_options':{'include_usage':true,"
    "'continuous_usage_stats':true},'n':3,'max_tokens':9,'max_completion_tokens':8,"
    "'min_tokens':2,'temperature':0.5,'top_k':-1,'top_p':0.9,'min_p':0.05,'typical_p':0.8,"
    "'presence_penalty':-1.5,'frequency_penalty':2,'repetition_penalty':1.1,'seed':-7,"
    "'user':'u','priority':-3,'cache_salt':'salt','logprobs':true,'top_logprobs':4,"
    "'ignore_eos':true,'x_timeout':2.5,'service_tier':'flex','stop':['a','','b'],"
    "'stop_token_ids':[5,6],'allowed_token_ids':[9,3,9],'logit_bias':{'9':1,'4':-100,'9':2},"
    "'include_stop_str_in_output':true,'metadata':{'k':'v'},"
    "'script':{'text':'t','chunk':3,'delay_ms':7}";

static void sampling_fields_are_stored(void)
{
    const struct sample_params *s = &request.sample;

    EXPECT_EQ(chat_with(everything), 0);
    EXPECT_EQ(s->temperature, 0.5f);
    EXPECT_EQ(s->top_k, 0);
    EXPECT_EQ(s->top_p, 0.9f);
    EXPECT_EQ(s->min_p, 0.05f);
    EXPECT_EQ(s->typical_p, 0.8f);
    EXPECT_EQ(s->presence_penalty, -1.5f);
    EXPECT_EQ(s->frequency_penalty, 2.0f);
    EXPECT_EQ(s->repeat_penalty, 1.1f);
    EXPECT_EQ(s->repeat_last_n, -1);
    EXPECT_EQ(s->min_tokens, 2);
    EXPECT_EQ(s->seed, (uint64_t)-7);
    EXPECT_EQ(s->n_top, 4);
    EXPECT(request.has_seed && s->want_logprobs && request.want_logprobs);
    EXPECT(s->n_allowed == 2 && s->allowed[0] == 3 && s->allowed[1] == 9);
    EXPECT(s->n_bias == 2 && s->bias[0].id == 4 && s->bias[0].bias == -100);
    EXPECT(s->bias[1].id == 9 && s->bias[1].bias == 2);
    EXPECT_EQ(chat_with("'repeat_penalty':1.2"), 0);
    EXPECT(s->repeat_penalty == 1.2f && s->repeat_last_n == 64);
    EXPECT_EQ(chat_with("'repetition_penalty':1.2,'repeat_last_n':5"), 0);
    EXPECT_EQ(s->repeat_last_n, 5);
    EXPECT_EQ(completion_with("'best_of':4,'n':2"), 0);
    EXPECT(s->want_logprobs && !request.want_logprobs && request_n_choices(&request) == 4);
}

static void other_fields_are_stored(void)
{
    EXPECT_EQ(chat_with(everything), 0);
    EXPECT_STR(z(request.model), "m/x");
    EXPECT(
        request.stream && request.include_usage && request.continuous_usage && request.ignore_eos);
    EXPECT(request.n == 3 && request.best_of == 3 && request.max_tokens == 8 &&
           request.min_tokens == 2);
    EXPECT(request.priority == -3 && request.timeout_s == 2.5);
    EXPECT_STR(z(request.user), "u");
    EXPECT_STR(z(request.cache_salt), "salt");
    EXPECT_STR(z(request.service_tier), "flex");
    EXPECT_EQ(request.n_stops, 2);
    EXPECT_STR(z(request.stops[1]), "b");
    EXPECT(request.n_stop_ids == 2 && request.stop_ids[1] == 6);
    EXPECT(request.include_stop && request.metadata && request.metadata->n == 1);
    EXPECT(request.script.is_set && request.script.unit == SCRIPT_TOKENS &&
           request.script.per_chunk == 3);
    EXPECT_EQ(request.script.delay_ms, 7u);
    EXPECT(!request.prediction.p);
    EXPECT_EQ(chat_with("'prediction':{'type':'content','content':'as I said'}"), 0);
    EXPECT_STR(z(request.prediction), "as I said");
    EXPECT_EQ(chat_with("'prediction':{'type':'content','content':[{'type':'text','text':'as '},"
                        "{'type':'text','text':'I said'}]}"),
        0);
    EXPECT_STR(z(request.prediction), "as I said");
    EXPECT_EQ(chat_with("'script':{'text':'t','chunk':'char'}"), 0);
    EXPECT(request.script.unit == SCRIPT_CHARS && request.script.per_chunk == 1);
}

static void stops_of_a_string_end_there(void)
{
    EXPECT_EQ(parse_body(&dialect_openai_chat, "{'stop':'a','user':'b'," MSG "}"), 0);
    EXPECT_EQ(request.n_stops, 1);
    EXPECT_STR(z(request.stops[0]), "a");
}

static void conversation_is_complete(void)
{
    EXPECT_EQ(messages("[{'role':'system','content':'s'},"
                       "{'role':'user','name':'ann','content':[{'type':'text','text':'a'},'b']},"
                       "{'role':'assistant','content':null,'reasoning':'r','x_custom':5,"
                       "'tool_calls':[{'id':'c1','function':{'name':'f','arguments':"
                       "{ 'a' : [1, 2.50] }}},{'id':'c2','type':'function','function':"
                       "{'name':'g','arguments':'{}'}}]},"
                       "{'role':'tool','tool_call_id':'c1','content':'42'}]"),
        0);
    const struct convo *c = &request.convo;
    EXPECT_EQ(c->n_messages, 4);
    EXPECT(c->messages[0].role == ROLE_SYSTEM && c->messages[0].is_plain);
    EXPECT(c->messages[1].n_parts == 2 && !c->messages[1].is_plain);
    EXPECT_STR(z(c->messages[1].parts[1].text), "b");
    EXPECT_STR(z(c->messages[1].name), "ann");
    const struct message *m = &c->messages[2];
    EXPECT(!m->has_content && m->n_tool_calls == 2);
    EXPECT_STR(z(m->reasoning), "r");
    EXPECT_STR(z(m->tool_calls[0].arguments), "{\"a\":[1,2.50]}");
    EXPECT_STR(z(m->tool_calls[1].name), "g");
    EXPECT_STR(z(json_get(m->raw, "x_custom")->s), "5");
    EXPECT_STR(z(c->messages[3].tool_call_id), "c1");
    EXPECT(c->tools == NULL);

    EXPECT_EQ(messages("[{'role':'assistant','function_call':{'name':'f','arguments':'{1}'}}]"), 0);
    EXPECT_STR(z(c->messages[0].tool_calls[0].arguments), "{1}");
}

static void a_final_message_can_be_continued(void)
{
    EXPECT_EQ(parse_body(&dialect_openai_chat, "{'continue_final_message':true,'messages':"
                                               "[{'role':'assistant','content':'so'}]}"),
        0);
    EXPECT(request.convo.continue_final_message && !request.convo.add_generation_prompt);
    EXPECT_EQ(parse_body(&dialect_openai_chat, "{'continue_final_message':true,'messages':"
                                               "[{'role':'assistant','content':'so'}],"
                                               "'add_generation_prompt':true}"),
        -1);
    EXPECT_STR(e.param, "continue_final_message");
}

static void effort_reaches_the_template(void)
{
    const struct json *k;

    EXPECT_EQ(chat_with("'reasoning_effort':'high'"), 0);
    k = request.convo.template_kwargs;
    EXPECT_EQ(k->n, 1u);
    EXPECT_STR(z(json_get(k, "reasoning_effort")->s), "high");
    EXPECT_EQ(chat_with("'reasoning_effort':'none','chat_template_kwargs':{'a':1}"), 0);
    k = request.convo.template_kwargs;
    EXPECT_EQ(k->n, 3u);
    EXPECT(!json_get(k, "enable_thinking")->b);
    EXPECT_STR(z(json_get(k, "a")->s), "1");
    EXPECT_EQ(chat_with("'reasoning_effort':'none','chat_template_kwargs':"
                        "{'enable_thinking':true}"),
        0);
    /* the value of the client has precedence */
    EXPECT(json_get(request.convo.template_kwargs, "enable_thinking")->b);
}

static void prompt_may_have_four_forms(void)
{
    EXPECT_EQ(parse_body(&dialect_openai_completion, "{'prompt':'abc'}"), 0);
    EXPECT(request.n_prompts == 1 && !request.prompts[0].is_tokens);
    EXPECT_STR(z(request.prompts[0].text), "abc");
    EXPECT_EQ(parse_body(&dialect_openai_completion, "{'prompt':['a','b','']}"), 0);
    EXPECT_EQ(request.n_prompts, 3);
    EXPECT_STR(z(request.prompts[1].text), "b");
    EXPECT_EQ(parse_body(&dialect_openai_completion, "{'prompt':[7,8,9]}"), 0);
    EXPECT(request.n_prompts == 1 && request.prompts[0].is_tokens && request.prompts[0].n_ids == 3);
    EXPECT_EQ(request.prompts[0].ids[2], 9);
    EXPECT_EQ(parse_body(&dialect_openai_completion, "{'prompt':[[7],[8,9]]}"), 0);
    EXPECT(
        request.n_prompts == 2 && request.prompts[1].n_ids == 2 && request.prompts[1].ids[0] == 8);
}

static void token_ids_are_checked_against_the_model(void)
{
    EXPECT_EQ(chat_with("'logit_bias':{'99':1},'stop_token_ids':[99],'allowed_token_ids':[99]"), 0);
    EXPECT_EQ(request_check_vocab(&request, 100, &e), 0);
    EXPECT_EQ(request_check_vocab(&request, 99, &e), -1);
    EXPECT_STR(e.param, "logit_bias");
    EXPECT_STR(e.msg, "'logit_bias' has token id 99; this model has ids 0 to 98.");
    EXPECT_EQ(chat_with("'stop_token_ids':[99]"), 0);
    EXPECT_EQ(request_check_vocab(&request, 99, &e), -1);
    EXPECT_STR(e.param, "stop_token_ids");
    EXPECT_EQ(chat_with("'allowed_token_ids':[0,99]"), 0);
    EXPECT_EQ(request_check_vocab(&request, 99, &e), -1);
    EXPECT_STR(e.param, "allowed_token_ids");
    EXPECT_EQ(parse_body(&dialect_openai_completion, "{'prompt':[[1],[99]]}"), 0);
    EXPECT_EQ(request_check_vocab(&request, 99, &e), -1);
    EXPECT_STR(e.param, "prompt");
    EXPECT_EQ(request_check_vocab(&request, 100, &e), 0);
}

/* Unknown members remain in the request, value for value, in their order. */
static void unknown_members_are_preserved(void)
{
    struct rng r = { .key = 42 };
    char body[8000], name[32];

    printf("seed %llu\n", (unsigned long long)r.key);
    for (int round = 0; round < 200; round++) {
        int n = 1 + (int)rng_below(&r, 60);
        int at = snprintf(body, sizeof(body), "{" MSG);
        for (int i = 0; i < n; i++)
            at += snprintf(body + at, sizeof(body) - (size_t)at, ",'x_%d':[%d,{'k':'v%d'}]", i, i,
                (int)rng_below(&r, 1000));
        snprintf(body + at, sizeof(body) - (size_t)at, "}");
        EXPECT_EQ(parse_body(&dialect_openai_chat, body), 0);
        EXPECT_EQ((int)request.raw->n, n + 1);
        for (int i = 0; i < n; i++) {
            snprintf(name, sizeof(name), "x_%d", i);
            const struct json *v = json_get(request.raw, name);
            EXPECT(v && v->n == 2 && json_get(v->child->next, "k"));
            EXPECT(request_has(&request, name));
        }
        struct buf b;
        struct jw w;
        buf_init(&b, MB);
        jw_init(&w, &b);
        jw_json(&w, request.raw);
        for (char *c = body; *c; c++)
            *c = *c == '\'' ? '"' : *c;
        EXPECT(str_eq(buf_str(&b), str_of(body)));
        buf_clear(&b);
    }
}

static void long_lists_are_bounded(void)
{
    struct buf b;

    buf_init(&b, 64 * MB);
    buf_putz(&b, "{'prompt':'p','logit_bias':{");
    for (int i = 0; i <= REQUEST_BIAS_MAX; i++)
        buf_printf(&b, "%s'%d':1", i ? "," : "", i);
    buf_putz(&b, "}}");
    buf_putc(&b, '\0');
    EXPECT_EQ(parse_body(&dialect_openai_completion, b.p), -1);
    EXPECT(e.code == ERR_RANGE);
    buf_reset(&b);
    buf_putz(&b, "{'prompt':[");
    for (int i = 0; i <= REQUEST_PROMPTS_MAX; i++)
        buf_putz(&b, i ? ",'a'" : "'a'");
    buf_putz(&b, "]}");
    buf_putc(&b, '\0');
    EXPECT_EQ(parse_body(&dialect_openai_completion, b.p), -1);
    EXPECT(e.code == ERR_RANGE);
    EXPECT_STR(e.param, "prompt");
    buf_reset(&b);
    buf_putz(&b, "{'messages':[");
    for (int i = 0; i <= REQUEST_MESSAGES_MAX; i++)
        buf_putz(&b, i ? ",0" : "0");
    buf_putz(&b, "]}");
    buf_putc(&b, '\0');
    EXPECT_EQ(parse_body(&dialect_openai_chat, b.p), -1);
    EXPECT(e.code == ERR_RANGE);
    buf_reset(&b);
    buf_putz(&b, "{'prompt':[");
    for (int i = 0; i < 1000000; i++)
        buf_putz(&b, i ? ",1" : "1");
    buf_putz(&b, "]}");
    buf_putc(&b, '\0');
    EXPECT_EQ(
        parse_body(&dialect_openai_completion, b.p), -1); /* more values than any body may have */
    EXPECT(e.code == ERR_SYNTAX || e.code == ERR_MEMORY);
    buf_clear(&b);
}

static void every_failed_allocation_is_reported(void)
{
    static const char body[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"\\u0041\"}]},"
        "{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":"
        "{\"a\":1}}}]}],\"stop\":[\"a\"],\"logit_bias\":{\"1\":1},\"allowed_token_ids\":[1],"
        "\"stop_token_ids\":[2],\"reasoning_effort\":\"none\",\"chat_template_kwargs\":{\"x\":1}}";
    int n = 0;

    for (;; n++) {
        struct request out;
        struct err err = { 0 };
        mem_fail_after((uint64_t)n + 1);
        struct arena *a = arena_new(MB);
        int rc = a ? request_parse(&out, &dialect_openai_chat, str_of(body), a, &err) : -1;
        mem_fail_after(0);
        arena_free(a);
        if (!rc)
            break;
        EXPECT(!a || err.code == ERR_MEMORY);
    }
    EXPECT(n >= FAULTS_AT_LEAST(3));
    /* Also with an arena that is full at any point. */
    for (size_t room = 0; room < 12000; room += 64) {
        struct request out;
        struct err err = { 0 };
        struct arena *a = arena_new(room);
        if (request_parse(&out, &dialect_openai_chat, str_of(body), a, &err))
            EXPECT(err.code == ERR_MEMORY);
        arena_free(a);
    }
}

static void suffix_makes_it_an_infill_request(void)
{
    EXPECT_EQ(completion_with("'prompt':['a','b'],'suffix':'z'"), 0);
    EXPECT_EQ(request.n_prompts, 2);
    for (int i = 0; i < 2; i++) {
        const struct infill *infill = request.prompts[i].infill;
        EXPECT(infill && str_is(infill->suffix, "z") && !infill->n_extra && !infill->prompt.n);
        EXPECT(str_is(infill->prefix, i ? "b" : "a"));
    }
    EXPECT_EQ(completion_with("'suffix':''"), 0);
    EXPECT(!request.prompts[0].infill);
}

static void response_format_is_stored(void)
{
    EXPECT_EQ(chat_with("'response_format':{'type':'json_schema','json_schema':{'name':'a-b_1',"
                        "'description':'d','strict':true,'schema':{'type':'object'}}}"),
        0);
    EXPECT(
        request.constraint.source.kind == CONSTRAINT_JSON_SCHEMA && request.constraint.is_strict);
    EXPECT(str_is(request.constraint.name, "a-b_1") && str_is(request.constraint.description, "d"));
    EXPECT(str_is(request.constraint.source.text, "{\"type\":\"object\"}"));
    EXPECT_STR(request.constraint.field, "response_format.json_schema.schema");
}

TESTS(TEST(suffix_makes_it_an_infill_request), TEST(response_format_is_stored),
    TEST(fields_of_both_routes), TEST(fields_of_a_chat), TEST(fields_of_a_completion),
    TEST(messages_that_are_right_and_wrong), TEST(numbers_at_their_edges),
    TEST(errors_name_field_value_and_range), TEST(absent_fields_have_their_default),
    TEST(sampling_fields_are_stored), TEST(other_fields_are_stored),
    TEST(stops_of_a_string_end_there), TEST(conversation_is_complete),
    TEST(a_final_message_can_be_continued), TEST(effort_reaches_the_template),
    TEST(prompt_may_have_four_forms), TEST(token_ids_are_checked_against_the_model),
    TEST(unknown_members_are_preserved), TEST(long_lists_are_bounded),
    TEST(every_failed_allocation_is_reported))
