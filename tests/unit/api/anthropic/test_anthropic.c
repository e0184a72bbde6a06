/* Anthropic dialect: accepted bodies, their translation to a request, and the response bytes. */
#include "api/anthropic/anthropic.h"
#include "support/dialect_kit.h"

#define MSG               "'messages':[{'role':'user','content':'hi'}]"
#define BODY(more)        "{'model':'m','max_tokens':9," MSG more "}"
#define SAY(messages)     "{'model':'m','max_tokens':9,'messages':[" messages "]}"
#define USER(blocks)      "{'role':'user','content':[" blocks "]}"
#define ASSISTANT(blocks) "{'role':'assistant','content':[" blocks "]}"
#define TEXT(text)        "{'type':'text','text':'" text "'}"
#define TOOL              ",'tools':[{'name':'f','input_schema':{'type':'object'}}]"
#define OK                ERR_NONE

static const struct kit_row rows[] = {
    { BODY(""), OK, "" },
    { "{'max_tokens':9," MSG "}", OK, "" },
    { "{" MSG "}", ERR_MISSING, "max_tokens" },
    { "{'max_tokens':0," MSG "}", OK, "" },
    { "{'max_tokens':-1," MSG "}", ERR_RANGE, "max_tokens" },
    { "{'max_tokens':'9'," MSG "}", ERR_INVALID, "max_tokens" },
    { "{'max_tokens':9}", ERR_MISSING, "messages" },
    { "{'max_tokens':9,'messages':{}}", ERR_INVALID, "messages" },
    { "{'max_tokens':9,'messages':[]}", ERR_INVALID, "messages" },
    { BODY(",'an_unknown_field':[1]"), OK, "" },
    { BODY(",'stream':true"), OK, "" },
    { BODY(",'stream':1"), ERR_INVALID, "stream" },
    { BODY(",'temperature':1"), OK, "" },
    { BODY(",'temperature':-1"), ERR_RANGE, "temperature" },
    { BODY(",'temperature':null"), OK, "" },
    { BODY(",'top_k':5,'top_p':0.5"), OK, "" },
    { BODY(",'top_p':2"), ERR_RANGE, "top_p" },
    { BODY(",'stop_sequences':['a','b']"), OK, "" },
    { BODY(",'stop_sequences':[1]"), ERR_INVALID, "stop_sequences" },
    { BODY(",'metadata':{'user_id':'u'}"), OK, "" },
    { BODY(",'metadata':{'user_id':null}"), OK, "" },
    { BODY(",'metadata':{'user_id':1}"), ERR_INVALID, "metadata.user_id" },
    { BODY(",'metadata':'u'"), ERR_INVALID, "metadata" },
    { BODY(",'service_tier':'auto'"), OK, "" },
    { BODY(",'service_tier':'gold'"), ERR_INVALID, "service_tier" },
    { BODY(",'cache_control':{'type':'ephemeral'}"), OK, "" },
    { BODY(",'thinking':{'type':'disabled'}"), OK, "" },
    { BODY(",'thinking':{'type':'adaptive'}"), OK, "" },
    { BODY(",'thinking':{'type':'enabled','budget_tokens':1024}"), ERR_INVALID,
        "thinking.budget_tokens" },
    { "{'max_tokens':2000,'thinking':{'type':'enabled','budget_tokens':1024}," MSG "}", OK, "" },
    { BODY(",'thinking':{'type':'enabled','budget_tokens':5}"), ERR_RANGE,
        "thinking.budget_tokens" },
    { BODY(",'thinking':{'type':'enabled'}"), ERR_MISSING, "thinking.budget_tokens" },
    { BODY(",'thinking':{'type':'hard'}"), ERR_INVALID, "thinking.type" },
    { BODY(",'thinking':{}"), ERR_MISSING, "thinking.type" },
    { BODY(",'output_config':{'effort':'high'}"), OK, "" },
    { BODY(",'output_config':{'effort':'great'}"), ERR_INVALID, "output_config.effort" },
    { BODY(",'output_config':{'format':{'type':'json_schema','schema':{}}}"), OK, "" },
    { BODY(",'output_config':{'format':{'type':'json_schema'}}"), ERR_MISSING,
        "output_config.format.schema" },
    { BODY(",'output_config':{'format':{'type':'regex'}}"), ERR_INVALID,
        "output_config.format.type" },
    { BODY(",'output_config':{'format':{}}"), ERR_MISSING, "output_config.format.type" },
    { BODY(",'output_config':{'format':7}"), ERR_INVALID, "output_config.format" },
    { BODY(",'thread':null"), OK, "" },
    { BODY(",'thread':{'type':'create'}"), ERR_UNSUPPORTED, "thread" },
    { BODY(",'tools':[]"), OK, "" },
    { BODY(",'thinking':{'type':'adaptive','display':'omitted'}"), OK, "" },
    { BODY(",'thinking':{'type':'adaptive','display':'loud'}"), ERR_INVALID, "thinking.display" },
    { BODY(",'tools':[{'name':'f','input_schema':{'type':'object'}}]"), OK, "" },
    { BODY(",'tools':[{'name':'f','type':'custom','strict':true}]"), OK, "" },
    { BODY(",'tools':[{'name':'f'}],'tool_choice':{'type':'none'}"), OK, "" },
    { BODY(",'tools':[{'name':'f'},{'input_schema':{}}]"), ERR_MISSING, "tools[1].name" },
    { BODY(",'tools':[{'name':''}]"), ERR_INVALID, "tools[0].name" },
    { BODY(",'tools':[{'name':'f','input_schema':[]}]"), ERR_INVALID, "tools[0].input_schema" },
    { BODY(",'tools':[{'name':'f','description':1}]"), ERR_INVALID, "tools[0].description" },
    { BODY(",'tools':[7]"), ERR_INVALID, "tools[0]" },
    { BODY(",'tools':{}"), ERR_INVALID, "tools" },
    { BODY(",'tools':[{'type':'web_search_20250305','name':'web_search'}]"), ERR_UNSUPPORTED,
        "tools[0].type" },
    { BODY(",'tools':[{'name':'f'},{'type':'web_search_20250305','name':'web_search'}]"), OK, "" },
    { BODY(",'mcp_servers':[{'type':'url','url':'http://x','name':'x'}]"), ERR_UNSUPPORTED,
        "mcp_servers" },
    { BODY(",'mcp_servers':[]"), OK, "" },
    { BODY(",'tool_choice':{'type':'auto'}"), OK, "" },
    { BODY(",'tool_choice':{'type':'any'}"), ERR_INVALID, "tool_choice" },
    { BODY(",'tool_choice':{'type':'tool','name':'f'}"), ERR_INVALID, "tool_choice" },
    { BODY(TOOL ",'tool_choice':{'type':'any'}"), OK, "" },
    { BODY(TOOL ",'tool_choice':{'type':'tool','name':'f'}"), OK, "" },
    { BODY(TOOL ",'tool_choice':{'type':'tool'}"), ERR_MISSING, "tool_choice.name" },
    { BODY(TOOL ",'tool_choice':{'type':'tool','name':'g'}"), ERR_INVALID, "tool_choice" },
    { BODY(TOOL ",'tool_choice':{'type':'tool','name':7}"), ERR_INVALID, "tool_choice.name" },
    { BODY(TOOL ",'tool_choice':{'type':'auto','disable_parallel_tool_use':1}"), ERR_INVALID,
        "tool_choice.disable_parallel_tool_use" },
    { BODY(",'tools':[{'type':'bash_20250124','name':'bash'},{'name':'f'}],'tool_choice':{'type':'"
           "tool',"
           "'name':'bash'}"),
        ERR_INVALID, "tool_choice" },
    { BODY(",'tool_choice':{'type':'must'}"), ERR_INVALID, "tool_choice.type" },
    { BODY(",'tool_choice':'any'"), ERR_INVALID, "tool_choice" },
    { BODY(",'tool_choice':{}"), ERR_MISSING, "tool_choice.type" },
    { BODY(",'system':'s'"), OK, "" },
    { BODY(",'system':[" TEXT("s") "]"), OK, "" },
    { BODY(",'system':7"), ERR_INVALID, "system" },
    { BODY(",'system':[{'type':'image'}]"), ERR_UNSUPPORTED, "system[0]" },
    { SAY("7"), ERR_INVALID, "messages[0]" },
    { SAY("{'content':'x'}"), ERR_MISSING, "messages[0].role" },
    { SAY("{'role':'user'}"), ERR_MISSING, "messages[0].content" },
    { SAY("{'role':'tool','content':'x'}"), ERR_INVALID, "messages[0].role" },
    { SAY("{'role':'user','content':7}"), ERR_INVALID, "messages[0].content" },
    { SAY(USER("7")), ERR_INVALID, "messages[0].content[0]" },
    { SAY(USER("{}")), ERR_MISSING, "messages[0].content[0].type" },
    { SAY(USER("{'type':'song'}")), ERR_INVALID, "messages[0].content[0].type" },
    { SAY(USER("{'type':'text'}")), ERR_MISSING, "messages[0].content[0].text" },
    { SAY(USER(TEXT("a") ",{'type':'image','source':{}}")), ERR_UNSUPPORTED,
        "messages[0].content[1]" },
    { SAY(USER("{'type':'document','source':{'type':'base64','data':''}}")), ERR_UNSUPPORTED,
        "messages[0].content[0]" },
    { SAY(USER("{'type':'document'}")), ERR_MISSING, "messages[0].content[0].source" },
    { SAY(USER("{'type':'document','source':{'type':'text','data':'d'}}")), OK, "" },
    { SAY(USER("{'type':'document','source':{'type':'content','content':'d'}}")), OK, "" },
    { SAY(USER("{'type':'document','source':{'type':'content','content':[{'type':'image'}]}}")),
        ERR_UNSUPPORTED, "messages[0].content[0].source.content[0]" },
    { SAY(USER("{'type':'document','title':7,'source':{'type':'text','data':'d'}}")), ERR_INVALID,
        "messages[0].content[0].title" },
    { SAY(USER("{'type':'search_result','source':'s','title':'t'}")), ERR_MISSING,
        "messages[0].content[0].content" },
    { SAY(USER("{'type':'search_result','content':[7]}")), ERR_INVALID,
        "messages[0].content[0].content[0]" },
    { SAY(USER("{'type':'tool_result','tool_use_id':'t','is_error':'yes'}")), ERR_INVALID,
        "messages[0].content[0].is_error" },
    { SAY(ASSISTANT("{'type':'server_tool_use','id':'s','name':'web_search','input':{}}")),
        ERR_UNSUPPORTED, "messages[0].content[0]" },
    { SAY(ASSISTANT("{'type':'web_search_tool_result','tool_use_id':'s','content':[]}")),
        ERR_UNSUPPORTED, "messages[0].content[0]" },
    { SAY(ASSISTANT("{'type':'thinking','thinking':'t','signature':7}")), ERR_INVALID,
        "messages[0].content[0].signature" },
    { SAY(USER("{'type':'tool_result','content':'x'}")), ERR_MISSING,
        "messages[0].content[0].tool_use_id" },
    { SAY(USER("{'type':'tool_result','tool_use_id':'t','content':[{'type':'image'}]}")),
        ERR_UNSUPPORTED, "messages[0].content[0].content[0]" },
    { SAY(USER("{'type':'tool_use','id':'i','name':'f','input':{}}")), ERR_INVALID,
        "messages[0].content[0].type" },
    { SAY(ASSISTANT("{'type':'tool_use','id':'i','name':'f','input':[]}")), ERR_INVALID,
        "messages[0].content[0].input" },
    { SAY(ASSISTANT("{'type':'tool_use','id':'i'}")), ERR_MISSING, "messages[0].content[0].name" },
    { SAY(ASSISTANT("{'type':'thinking'}")), ERR_MISSING, "messages[0].content[0].thinking" },
    { SAY(ASSISTANT("{'type':'image'}")), ERR_INVALID, "messages[0].content[0].type" },
    { "[]", ERR_INVALID, "" },
    { "{", ERR_SYNTAX, "" },
};

static void body_is_accepted_or_the_wrong_field_is_named(void)
{
    kit_check_rows(&dialect_anthropic, rows, ARRAY_LEN(rows));
    EXPECT_EQ(kit_parse_request(&dialect_anthropic_count, "{" MSG "}"), 0);
    EXPECT_EQ(kit_parse_request(&dialect_anthropic_count, "{'max_tokens':1}"), -1);
    EXPECT_STR(kit.e.param, "messages");
    kit_close_response();
}

static void every_field_arrives(void)
{
    EXPECT_EQ(kit_parse_request(&dialect_anthropic,
                  "{'model':'claude-x','max_tokens':2000,'temperature':0.5,'top_k':7,'top_p':0.25,"
                  "'stop_sequences':['a','b'],'metadata':{'user_id':'u'},'stream':true,"
                  "'service_tier':'auto','thinking':{'type':'enabled','budget_tokens':1500},"
                  "'output_config':{'effort':'high'},'seed':3,'x':1," MSG "}"),
        0);
    const struct request *a = &kit.request;
    EXPECT_STR(kit_cstr(a->model), "claude-x");
    EXPECT_STR(kit_cstr(a->user), "u");
    EXPECT_STR(kit_cstr(a->service_tier), "auto");
    EXPECT_STR(kit_cstr(a->reasoning_effort), "high");
    EXPECT(a->max_tokens == 2000 && a->thinking_budget == 1500 && a->thinking == THINKING_ON);
    EXPECT(a->sample.temperature == 0.5f && a->sample.top_k == 7 && a->sample.top_p == 0.25f);
    EXPECT(a->n_stops == 2 && str_is(a->stops[1], "b") && a->stream && a->metadata);
    EXPECT(a->has_seed && a->sample.seed == 3 && request_has(a, "x"));
    const struct json *kwargs = a->convo.template_kwargs;
    EXPECT(json_get(kwargs, "enable_thinking")->b);
    EXPECT(str_is(json_get(kwargs, "reasoning_effort")->s, "high"));
    EXPECT_EQ(kit_parse_request(&dialect_anthropic, BODY(",'thinking':{'type':'disabled'}")), 0);
    EXPECT(!json_get(kit.request.convo.template_kwargs, "enable_thinking")->b);
    EXPECT_EQ(kit_parse_request(&dialect_anthropic, BODY(",'thinking':{'type':'adaptive'}")), 0);
    EXPECT(!kit.request.convo.template_kwargs);
    kit_close_response();
}

static void expect_convo(const char *body, const char *want)
{
    EXPECT_EQ(kit_parse_request(&dialect_anthropic, body), 0);
    EXPECT_STR(kit_convo_text(), want);
}

static void blocks_become_messages(void)
{
    expect_convo(BODY(",'system':'s'"), "system: s|user: hi");
    expect_convo(BODY(",'system':''"), "user: hi");
    expect_convo(BODY(",'system':[]"), "user: hi");
    expect_convo(BODY(",'system':[" TEXT("s") "," TEXT("t") "]"), "system: s, t|user: hi");
    expect_convo(SAY(USER(TEXT("a") "," TEXT("b"))), "user: a, b");
    expect_convo(SAY(USER("")), "user:");
    expect_convo(SAY("{'role':'user','content':'a'},{'role':'user','content':'b'}"), "user: a, b");
    expect_convo(SAY("{'role':'user','content':'a'},{'role':'system','content':'s'},"
                     "{'role':'user','content':'b'}"),
        "user: a|system: s|user: b");
    expect_convo(SAY(USER("{'type':'document','source':{'type':'text','data':'d'}}," TEXT("q"))),
        "user: d, q");
    expect_convo(SAY(USER("{'type':'document','title':'t','context':'c','source':{'type':'content',"
                          "'content':[" TEXT("d") "," TEXT("e") "]}}," TEXT("q"))),
        "user: t, c, d, e, q");
    expect_convo(SAY(USER("{'type':'search_result','source':'s','title':'t','content':[" TEXT(
                     "f") "]}," TEXT("q"))),
        "user: t, s, f, q");
    expect_convo(
        SAY(USER("{'type':'tool_result','tool_use_id':'t','content':[{'type':'document','title':"
                 "'n','source':{'type':'text','data':'d'}}," TEXT("r") "]}")),
        "tool#t: n, d, r");
    expect_convo(SAY(USER(TEXT("q")) "," ASSISTANT(
                     "{'type':'thinking','thinking':'t','signature':'x'},"
                     "{'type':'redacted_thinking','data':'zz'},{'type':'"
                     "thinking','thinking':'u'}," TEXT(
                         "a") ",{'type':'tool_use','id':'i','name':'f','input':{"
                              "'x':[1, 2]}},"
                              "{'type':'tool_use','id':'j','name':'g','input':{}"
                              "}") "," USER(TEXT("now") ",{'type':'tool_result',"
                                                        "'tool_use_id':'i','"
                                                        "content':'r'},"
                                                        "{'type':'tool_result','"
                                                        "tool_use_id':'j','is_"
                                                        "error':true,'content':"
                                                        "[" TEXT("s") "," TEXT("t") "]},{'type':'"
                                                                                    "tool_result','"
                                                                                    "tool_use_id':'"
                                                                                    "k'}")),
        "user: q|assistant: a [f({\"x\":[1, 2]})#i] [g({})#j] {t\nu}|tool#i: r|tool#j: s, t|"
        "tool#k: |user: now");
    expect_convo(SAY(ASSISTANT("{'type':'tool_use','id':'i','name':'f'}") "," USER(
                     "{'type':'tool_result','tool_use_id':'i','content':'r'}")),
        "assistant [f({})#i]|tool#i: r");
    kit_close_response();
}

static void a_string_is_short_for_one_block(void)
{
    EXPECT_EQ(kit_parse_request(&dialect_anthropic, SAY(USER(TEXT("a")))), 0);
    EXPECT(kit.request.convo.messages[0].is_plain);
    EXPECT_EQ(kit_parse_request(&dialect_anthropic, BODY("")), 0);
    EXPECT(kit.request.convo.messages[0].is_plain);
    EXPECT_EQ(kit_parse_request(&dialect_anthropic, SAY(USER(TEXT("a") "," TEXT("b")))), 0);
    EXPECT(!kit.request.convo.messages[0].is_plain);
    kit_close_response();
}

static void a_last_message_of_the_assistant_is_continued(void)
{
    EXPECT_EQ(kit_parse_request(&dialect_anthropic, BODY("")), 0);
    EXPECT(kit.request.convo.add_generation_prompt && !kit.request.convo.continue_final_message);
    EXPECT_EQ(kit_parse_request(&dialect_anthropic, SAY("{'role':'assistant','content':'('}")), 0);
    EXPECT(!kit.request.convo.add_generation_prompt && kit.request.convo.continue_final_message);
    EXPECT_EQ(kit_parse_request(&dialect_anthropic,
                  SAY(ASSISTANT("{'type':'tool_use','id':'i','name':'f','input':{}}"))),
        0);
    EXPECT(kit.request.convo.add_generation_prompt && !kit.request.convo.continue_final_message);
    kit_close_response();
}

/* 100,000 messages of one role become one message. If they were joined by repeated copying, this
 * would take minutes. */
static void joining_messages_is_linear(void)
{
    struct buf b;

    buf_init(&b, 64 * MB);
    buf_putz(&b, "{'max_tokens':1,'messages':[");
    for (int i = 0; i < 100000; i++)
        buf_putz(&b, i ? ",{'role':'user','content':'a'}" : "{'role':'user','content':'a'}");
    buf_putz(&b, "]}");
    buf_putc(&b, 0);
    EXPECT_EQ(kit_parse_request(&dialect_anthropic, b.p), 0);
    EXPECT_EQ(kit.request.convo.n_messages, 1);
    EXPECT_EQ(kit.request.convo.messages[0].n_parts, 100000);
    buf_clear(&b);
    kit_close_response();
}

static const char *json_text(const struct json *j)
{
    static char out[2000];
    struct buf b;
    struct jw w;

    buf_init(&b, MB);
    jw_init(&w, &b);
    jw_json(&w, j);
    snprintf(out, sizeof(out), STR_FMT, STR_ARG(b));
    buf_clear(&b);
    return out;
}

static void tools_get_the_openai_shape(void)
{
    EXPECT_EQ(kit_parse_request(&dialect_anthropic,
                  BODY(",'tools':[{'name':'f','description':'d','input_schema':{'type':'object'},"
                       "'cache_control':{}},{'type':'bash_20250124','name':'bash'},{'name':'g'}]")),
        0);
    const char *want =
        "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\","
        "\"parameters\":{\"type\":\"object\"}}},"
        "{\"type\":\"function\",\"function\":{\"name\":\"g\",\"parameters\":{\"type\":\"object\","
        "\"properties\":{}}}}]";
    EXPECT_STR(json_text(kit.request.tools), want);
    EXPECT_STR(json_text(kit.request.convo.tools), want);
    EXPECT(kit.request.tool_choice == TOOL_CHOICE_AUTO && kit.request.parallel_tool_calls);
    kit_close_response();
}

static void a_choice_of_tools_arrives(void)
{
    static const struct {
        const char *choice;
        enum tool_choice want;
    } choices[] = { { "auto", TOOL_CHOICE_AUTO }, { "any", TOOL_CHOICE_REQUIRED },
        { "tool','name':'f", TOOL_CHOICE_NAMED }, { "none", TOOL_CHOICE_NONE } };
    char body[400];

    for (size_t i = 0; i < ARRAY_LEN(choices); i++) {
        snprintf(body, sizeof(body), BODY(TOOL ",'tool_choice':{'type':'%s'%s}"), choices[i].choice,
            i ? ",'disable_parallel_tool_use':true" : "");
        EXPECT_EQ(kit_parse_request(&dialect_anthropic, body), 0);
        EXPECT_EQ((int)kit.request.tool_choice, (int)choices[i].want);
        EXPECT_EQ(kit.request.parallel_tool_calls, i == 0);
        EXPECT(kit.request.tools && kit.request.tools->n == 1);
        EXPECT_EQ(kit.request.convo.tools != NULL, choices[i].want != TOOL_CHOICE_NONE);
    }
    EXPECT_EQ(kit_parse_request(
                  &dialect_anthropic, BODY(TOOL ",'tool_choice':{'type':'tool','name':'f'}")),
        0);
    EXPECT(str_is(kit.request.tool_name, "f"));
    EXPECT_EQ(
        kit_parse_request(&dialect_anthropic,
            BODY(",'tools':[{'type':'web_search_20250305','name':'web_search'},{'name':'f'}]")),
        0);
    EXPECT(kit.request.tools && kit.request.tools->n == 1);
    kit_close_response();
}

/* A tool result has its tool's name and its error flag: templates need both. */
static void tool_results_have_the_name_of_their_call(void)
{
#define USE(id, name)    "{'type':'tool_use','id':'" id "','name':'" name "','input':{}}"
#define RESULT(id, more) "{'type':'tool_result','tool_use_id':'" id "','content':'r'" more "}"
    const struct message *m;

    EXPECT_EQ(
        kit_parse_request(&dialect_anthropic,
            SAY(ASSISTANT(USE("1", "f") "," USE("2", "g")) "," USER(RESULT("2",
                ",'is_error':true") "," RESULT("1", ",'is_error':false") "," RESULT("3", "")))),
        0);
    m = kit.request.convo.messages;
    EXPECT_EQ(kit.request.convo.n_messages, 4);
    EXPECT(str_is(m[1].name, "g") && m[1].is_error);
    EXPECT(str_is(m[2].name, "f") && !m[2].is_error);
    EXPECT(!m[3].name.p && !m[3].is_error);
    kit_close_response();
}

static void signature_belongs_to_its_reasoning(void)
{
    struct str thought = STR("Let \"me\"\n\x01 think: \xF0\x9F\xA4\x94");
    char body[1000];
    struct buf escaped;

    buf_init(&escaped, KB);
    json_escape(&escaped, thought);
    struct signature_text s = anthropic_sign(buf_str(&escaped));
    EXPECT(strlen(s.z) == 44);
    EXPECT(anthropic_signature_is_valid(thought, str_of(s.z)));
    EXPECT(!anthropic_signature_is_valid(STR("Let"), str_of(s.z)));
    EXPECT(!anthropic_signature_is_valid(thought, STR("")) &&
           !anthropic_signature_is_valid(thought, STR("opaque")));
    s.z[3] ^= 1;
    EXPECT(!anthropic_signature_is_valid(thought, str_of(s.z)));
    s.z[3] ^= 1;
    /* Reasoning with a changed or foreign signature is still read. */
    buf_putc(&escaped, 0);
    snprintf(body, sizeof(body),
        "{\"max_tokens\":9,\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":"
        "\"thinking\","
        "\"thinking\":\"%s\",\"signature\":\"%s\"},{\"type\":\"thinking\",\"thinking\":\"x\","
        "\"signature\":\"%s\"},{\"type\":\"text\",\"text\":\"a\"}]}]}",
        escaped.p, s.z, s.z);
    buf_clear(&escaped);
    kit.arena = arena_new(MB);
    EXPECT_EQ(request_parse(&kit.request, &dialect_anthropic, str_of(body), kit.arena, &kit.e), 0);
    EXPECT_EQ(kit.request.n_unverified_reasoning, 1);
    struct str told = kit.request.convo.messages[0].reasoning;
    EXPECT(str_starts(told, thought) && str_ends(told, STR("\nx")));
    kit_close_response();
}

/* ---- responses */

#define USAGE(in, cached, out)                                                                     \
    "'usage':{'input_tokens':" #in                                                                 \
    ",'cache_creation_input_tokens':0,'cache_read_input_tokens':" #cached ",'output_tokens':" #out \
    ",'output_tokens_details':{'thinking_tokens':0},'service_tier':'standard'}"
#define FROM              "'type':'message','role':'assistant','model':'m'"
#define MESSAGE           "{'id':'msg_1'," FROM ",'content':["
#define EVENT(name, more) "event: " name "\ndata: {'type':'" name "'" more "}\n\n"
#define PING              EVENT("ping", "")

static void a_message_in_one_piece(void)
{
    kit_open_response(&dialect_anthropic, BODY(""));
    response_begin(kit.response);
    response_set_usage(kit.response, 7, 4);
    kit_emit_token(0, 1);
    kit_emit_token(0, 4);
    response_choice_end(kit.response, 0, FINISH_STOP, STR_NONE, -1);
    response_end(kit.response);
    EXPECT(kit.sink.status == 200 && kit.sink.n_ended == 1);
    kit_expect_body(MESSAGE "{'type':'text','text':'Hello\\'q\\'\\n'}],'stop_reason':'end_turn',"
                            "'stop_sequence':null,'stop_details':null," USAGE(3, 4, 2) "}");
    kit_close_response();
}

static void a_message_as_a_stream(void)
{
    kit_open_response(&dialect_anthropic, BODY(",'stream':true"));
    response_set_usage(kit.response, 7, 0);
    response_begin(kit.response);
    response_flush(kit.response);
    EXPECT_STR(kit.sink.type, "text/event-stream");
    kit_emit_token(0, 1);
    response_flush(kit.response);
    response_keepalive(kit.response);
    kit_emit_token(0, 4);
    response_set_usage(kit.response, 7, 4);
    response_choice_end(kit.response, 0, FINISH_STOP, STR("END"), -1);
    response_end(kit.response);
    kit_expect_body(EVENT("message_start",
        ",'message':" MESSAGE
        "],'stop_reason':null,'stop_sequence':null,'stop_details':null," USAGE(7, 0, 0) "}")
            PING EVENT("content_block_start",
                ",'index':0,'content_block':{'type':'text','text':''}") EVENT("content_block_delta",
                ",'index':0,'delta':{'type':'text_delta','text':'Hello'}")
                PING EVENT("content_block_delta",
                    ",'index':0,'delta':{'type':'text_delta','text':'\\'q\\'\\n'}")
                    EVENT("content_block_stop", ",'index':0") EVENT("message_delta",
                        ",'delta':{'stop_reason':'stop_sequence','stop_sequence':'END',"
                        "'stop_details':null}," USAGE(3, 4, 2)) EVENT("message_stop", ""));
    kit_close_response();
}

static void response_without_text_has_no_block(void)
{
    kit_open_response(&dialect_anthropic, "{'max_tokens':0,'stream':true," MSG "}");
    response_set_usage(kit.response, 7, 0);
    response_begin(kit.response);
    response_choice_end(kit.response, 0, FINISH_LENGTH, STR_NONE, -1);
    response_end(kit.response);
    kit_expect_body(EVENT("message_start",
        ",'message':" MESSAGE
        "],'stop_reason':null,'stop_sequence':null,'stop_details':null," USAGE(7, 0, 0) "}")
            PING EVENT("message_delta", ",'delta':{'stop_reason':'max_tokens','stop_sequence':null,"
                                        "'stop_details':null}," USAGE(7, 0, 0))
                EVENT("message_stop", ""));
    kit_open_response(&dialect_anthropic, BODY(""));
    response_choice_end(kit.response, 0, FINISH_STOP, STR_NONE, -1);
    response_end(kit.response);
    kit_expect_body(MESSAGE
        "],'stop_reason':'end_turn','stop_sequence':null,'stop_details':null," USAGE(0, 0, 0) "}");
    kit_close_response();
}

#define TEXT_BLOCK(i)                                                                              \
    EVENT("content_block_start", ",'index':" #i ",'content_block':{'type':'text','text':''}")
#define TEXT_DELTA(i, t)                                                                           \
    EVENT("content_block_delta", ",'index':" #i ",'delta':{'type':'text_delta','text':'" t "'}")
#define THINK_BLOCK(i)                                                                             \
    EVENT("content_block_start",                                                                   \
        ",'index':" #i ",'content_block':{'type':'thinking','thinking':'','signature':''}")
#define THINK_DELTA(i, t)                                                                          \
    EVENT("content_block_delta",                                                                   \
        ",'index':" #i ",'delta':{'type':'thinking_delta','thinking':'" t "'}")
#define SIGN_DELTA(i)                                                                              \
    EVENT("content_block_delta",                                                                   \
        ",'index':" #i ",'delta':{'type':'signature_delta','signature':'S'}")
#define TOOL_BLOCK(i, n, name)                                                                     \
    EVENT("content_block_start",                                                                   \
        ",'index':" #i ",'content_block':{'type':'tool_use','id':'toolu_" #n "','name':'" name     \
        "','input':{}}")
#define JSON_DELTA(i, t)                                                                           \
    EVENT("content_block_delta",                                                                   \
        ",'index':" #i ",'delta':{'type':'input_json_delta','partial_json':'" t "'}")
#define STOP_BLOCK(i) EVENT("content_block_stop", ",'index':" #i)
#define LAST          EVENT("message_stop", "")
#define END_DELTA(why, n)                                                                          \
    "event: message_delta\ndata: {'type':'message_delta','delta':{'stop_reason':'" why             \
    "','stop_sequence':null,'stop_details':null}," USAGE(0, 0, n) "}\n\n" LAST

/* Emits reasoning, text, a call, text, a call that turns out to be text, and a call. */
static void emit_all_block_kinds(void)
{
    struct response *a = kit.response;

    response_begin(a);
    response_output_ops.reasoning(a, 0, STR("Hm"));
    response_output_ops.reasoning(a, 0, STR("m\n"));
    response_output_ops.content(a, 0, STR("I "));
    response_output_ops.content(a, 0, STR("look"));
    response_output_ops.call_begin(a, 0, 0, STR("f"));
    response_output_ops.call_args(a, 0, 0, STR("{\"a\":"));
    response_output_ops.call_args(a, 0, 0, STR("1}"));
    response_output_ops.call_end(a, 0, 0);
    response_output_ops.content(a, 0, STR("and"));
    response_output_ops.call_begin(a, 0, 1, STR("f"));
    response_output_ops.call_args(a, 0, 1, STR("{\"b"));
    response_output_ops.call_broken(a, 0, 1);
    response_output_ops.content(a, 0, STR(" on"));
    response_output_ops.reasoning(a, 0, STR("again"));
    response_output_ops.call_begin(a, 0, 2, STR("g\""));
    response_output_ops.call_args(a, 0, 2, STR("{}"));
    response_output_ops.call_end(a, 0, 2);
    response_choice_end(a, 0, FINISH_STOP, STR_NONE, -1);
    response_end(a);
}

/* Replaces ids and signatures of this run by toolu_0, toolu_1 and S. */
static void normalise_ids(struct buf *b)
{
    struct str rest = buf_str(b);
    struct buf out;
    int n = 0;

    buf_init(&out, MB);
    while (rest.n) {
        bool is_id = str_starts(rest, STR("toolu_"));
        bool is_signature = str_starts(rest, STR("\"signature\":\"")) && rest.p[13] != '"';
        size_t head = is_id ? 6 : is_signature ? 13 : 1, gone = is_id ? 24 : is_signature ? 44 : 0;
        buf_put(&out, rest.p, head);
        if (is_id)
            buf_printf(&out, "%d", n++);
        if (is_signature)
            buf_putc(&out, 'S');
        rest = str_skip(rest, head + gone);
    }
    buf_reset(b);
    buf_puts(b, buf_str(&out));
    buf_clear(&out);
}

static void blocks_have_the_order_of_the_output(void)
{
    kit_open_response(&dialect_anthropic, BODY(TOOL));
    emit_all_block_kinds();
    normalise_ids(&kit.sink.body);
    kit_expect_body(MESSAGE
        "{'type':'thinking','thinking':'Hmm\\n','signature':'S'},{'type':'text','text':'I look'},"
        "{'type':'tool_use','id':'toolu_0','name':'f','input':{'a':1}},"
        "{'type':'text','text':'and on'},{'type':'thinking','thinking':'again','signature':'S'},"
        "{'type':'tool_use','id':'toolu_1','name':'g\\'','input':{}}],'stop_reason':'tool_use',"
        "'stop_sequence':null,'stop_details':null," USAGE(0, 0, 0) "}");
    kit_open_response(&dialect_anthropic, BODY(TOOL ",'stream':true"));
    emit_all_block_kinds();
    normalise_ids(&kit.sink.body);
    kit_expect_body(EVENT("message_start",
        ",'message':" MESSAGE
        "],'stop_reason':null,'stop_sequence':null,'stop_details':null," USAGE(0, 0, 0) "}")
            PING THINK_BLOCK(0) THINK_DELTA(0, "Hm") THINK_DELTA(0, "m\\n") SIGN_DELTA(0)
                STOP_BLOCK(0) TEXT_BLOCK(1) TEXT_DELTA(1, "I ") TEXT_DELTA(1, "look") STOP_BLOCK(1)
                    TOOL_BLOCK(2, 0, "f") JSON_DELTA(2, "{\\'a\\':1}") STOP_BLOCK(2) TEXT_BLOCK(
                        3) TEXT_DELTA(3, "and") TEXT_DELTA(3, " on") STOP_BLOCK(3) THINK_BLOCK(4)
                        THINK_DELTA(4, "again") SIGN_DELTA(4) STOP_BLOCK(4) TOOL_BLOCK(5, 1, "g\\'")
                            JSON_DELTA(5, "{}") STOP_BLOCK(5) END_DELTA("tool_use", 0));
    kit_close_response();
}

/* A client that enables eager streaming receives arguments at once, also for a call that is
 * later found broken. After a stop reason other than max_tokens it would execute that call. */
static void eager_arguments_are_streamed_as_generated(void)
{
    kit_open_response(&dialect_anthropic,
        BODY(",'stream':true,'tools':[{'name':'f','eager_input_streaming':true},{'name':'g\\''}]"));
    emit_all_block_kinds();
    normalise_ids(&kit.sink.body);
    ptrdiff_t at =
        str_find(buf_str(&kit.sink.body), STR("event: content_block_start\ndata: {\"type\":"
                                              "\"content_block_start\",\"index\":2"));
    EXPECT(at > 0);
    struct str tail = str_skip(buf_str(&kit.sink.body), (size_t)at);
    struct buf copy;
    buf_init(&copy, MB);
    buf_puts(&copy, tail);
    buf_reset(&kit.sink.body);
    buf_puts(&kit.sink.body, buf_str(&copy));
    buf_clear(&copy);
    kit_expect_body(TOOL_BLOCK(2, 0, "f") JSON_DELTA(2, "{\\'a\\':") JSON_DELTA(2, "1}")
            STOP_BLOCK(2) TEXT_BLOCK(3) TEXT_DELTA(3, "and") STOP_BLOCK(3) TOOL_BLOCK(4, 1, "f")
                JSON_DELTA(4, "{\\'b") STOP_BLOCK(4) TEXT_BLOCK(5) TEXT_DELTA(5, " on")
                    STOP_BLOCK(5) THINK_BLOCK(6) THINK_DELTA(6, "again") SIGN_DELTA(6) STOP_BLOCK(6)
                        TOOL_BLOCK(7, 2, "g\\'") JSON_DELTA(7, "{}") STOP_BLOCK(7)
                            END_DELTA("max_tokens", 0));
    kit_close_response();
}

static void message_that_ends_inside_a_call_has_reached_max_tokens(void)
{
    static const char *const requests[] = {
        BODY(TOOL),
        BODY(TOOL ",'stream':true"),
        BODY(",'stream':true,'tools':[{'name':'f','eager_input_streaming':true}]"),
    };
    static const struct {
        enum finish finish;
        struct str stop_text;
        int n_tokens;
        const char *want;
    } ends[] = {
        { FINISH_STOP, { 0 }, 1, "'stop_reason':'max_tokens','stop_sequence':null" },
        { FINISH_STOP, { "x", 1 }, 1, "'stop_reason':'max_tokens','stop_sequence':null" },
        { FINISH_LENGTH, { 0 }, 9, "'stop_reason':'max_tokens','stop_sequence':null" },
        { FINISH_LENGTH, { 0 }, 1, "'stop_reason':'model_context_window_exceeded'" },
    };

    for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
        for (size_t k = 0; k < ARRAY_LEN(ends); k++) {
            kit_open_response(&dialect_anthropic, requests[i]);
            response_begin(kit.response);
            for (int n = 0; n < ends[k].n_tokens; n++)
                kit_emit_token(0, 1);
            response_output_ops.call_begin(kit.response, 0, 0, STR("f"));
            response_output_ops.call_args(kit.response, 0, 0, STR("{"));
            response_output_ops.call_broken(kit.response, 0, 0);
            response_output_ops.content(kit.response, 0, STR("<f>"));
            response_set_ends_inside_call(kit.response, 0);
            response_choice_end(kit.response, 0, ends[k].finish, ends[k].stop_text, -1);
            response_end(kit.response);
            char want[100];
            snprintf(want, sizeof(want), "%s", ends[k].want);
            for (char *c = want; *c; c++)
                *c = *c == '\'' ? '"' : *c;
            EXPECT(str_find(buf_str(&kit.sink.body), str_of(want)) > 0);
            /* only the eager stream has sent the call */
            EXPECT_EQ(str_find(buf_str(&kit.sink.body), STR("tool_use")) > 0, i == 2);
        }
    }
    kit_close_response();
}

static void reasoning_can_be_omitted(void)
{
    kit_open_response(
        &dialect_anthropic, BODY(",'thinking':{'type':'adaptive','display':'omitted'}"));
    response_output_ops.reasoning(kit.response, 0, STR("secret"));
    response_output_ops.content(kit.response, 0, STR("a"));
    response_choice_end(kit.response, 0, FINISH_STOP, STR_NONE, -1);
    response_end(kit.response);
    normalise_ids(&kit.sink.body);
    kit_expect_body(
        MESSAGE "{'type':'thinking','thinking':'','signature':'S'},{'type':'text','text':"
                "'a'}],'stop_reason':'end_turn','stop_sequence':null,'stop_details':null," USAGE(
                    0, 0, 0) "}");
    kit_close_response();
}

/* The output has fewer tokens than allowed because the context is full. */
static void full_context_has_its_own_stop_reason(void)
{
    for (int n = 1; n <= 2; n++) {
        kit_open_response(&dialect_anthropic, "{'max_tokens':2," MSG "}");
        for (int i = 0; i < n; i++)
            kit_emit_token(0, 1);
        response_choice_end(kit.response, 0, FINISH_LENGTH, STR_NONE, -1);
        response_end(kit.response);
        const char *want = n == 2 ? "\"max_tokens\"" : "\"model_context_window_exceeded\"";
        EXPECT(str_find(buf_str(&kit.sink.body), str_of(want)) > 0);
    }
    kit_close_response();
}

static void errors_have_the_form_of_the_dialect(void)
{
    const struct http_field id = { STR("request-id"), STR("req_7") };
    const struct error_extra full = { .n_prompt_tokens = 9, .n_ctx = 8 };
    static const struct {
        enum errcode code;
        int status;
        const char *type;
    } want[] = {
        { ERR_INVALID, 400, "invalid_request_error" },
        { ERR_AUTH, 401, "authentication_error" },
        { ERR_FORBIDDEN, 403, "permission_error" },
        { ERR_NOT_FOUND, 404, "not_found_error" },
        { ERR_TOO_LARGE, 413, "request_too_large" },
        { ERR_RATE, 429, "rate_limit_error" },
        { ERR_INTERNAL, 500, "api_error" },
        { ERR_OVERLOADED, 529, "overloaded_error" },
        { ERR_MEMORY, 503, "overloaded_error" },
        { ERR_TIMEOUT, 504, "timeout_error" },
    };
    char text[200];
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        fake_sink_clear(&kit.sink);
        fake_sink_init(&kit.sink);
        err_set(&e, want[i].code, "why");
        status_reply(&kit.sink.sink, ERROR_ANTHROPIC, &e, NULL, &id, 1);
        EXPECT_EQ(kit.sink.status, want[i].status);
        snprintf(text, sizeof(text),
            "{'type':'error','error':{'type':'%s','message':'why'},'request_id':'req_7'}",
            want[i].type);
        kit_expect_body(text);
    }
    fake_sink_clear(&kit.sink);
    fake_sink_init(&kit.sink);
    err_context(&e, "messages", 9, 8);
    status_reply(&kit.sink.sink, ERROR_ANTHROPIC, &e, &full, NULL, 0);
    kit_expect_body(
        "{'type':'error','error':{'type':'invalid_request_error','message':'prompt is too "
        "long: 9 tokens > 8 maximum'},'request_id':null}");
    fake_sink_clear(&kit.sink);
    fake_sink_init(&kit.sink);
    err_param(&e, ERR_UNSUPPORTED, "thread", "why");
    status_reply(&kit.sink.sink, ERROR_ANTHROPIC, &e, NULL, NULL, 0);
    kit_expect_body(
        "{'type':'error','error':{'type':'invalid_request_error','message':'why','details':{"
        "'error_code':'thread_unsupported_request','unsupported':['thread']}},"
        "'request_id':null}");
    kit_open_response(&dialect_anthropic, BODY(",'stream':true"));
    response_begin(kit.response);
    response_flush(kit.response);
    buf_reset(&kit.sink.body);
    err_set(&e, ERR_OVERLOADED, "why");
    response_error(kit.response, &e, NULL);
    kit_expect_body(
        "event: error\ndata: {'type':'error','error':{'type':'overloaded_error','message':"
        "'why'},'request_id':null}\n\n");
    EXPECT_EQ(kit.sink.n_ended, 1);
    kit_close_response();
}

/* ---- models */

/* want: the ids, and a plus when there are more. */
static void expect_models(const struct anthropic_page *page, const char *want)
{
    static const struct model_info m[] = { { .id = "a" }, { .id = "b" }, { .id = "c" } };
    struct arena *a = arena_new(MB);
    struct json *j;
    struct buf b, got;

    buf_init(&b, MB);
    buf_init(&got, MB);
    anthropic_models(&b, m, 3, page);
    EXPECT_EQ(json_parse(&j, buf_str(&b), a, NULL, &kit.e), 0);
    for (const struct json *d = json_get(j, "data")->child; d; d = d->next)
        buf_puts(&got, json_get(d, "id")->s);
    if (json_get(j, "has_more")->b)
        buf_putc(&got, '+');
    EXPECT_STR(kit_cstr(buf_str(&got)), want);
    bool is_empty = !json_get(j, "data")->n;
    EXPECT_EQ(json_is_null(json_get(j, "first_id")), is_empty);
    EXPECT_EQ(json_is_null(json_get(j, "last_id")), is_empty);
    buf_clear(&b);
    buf_clear(&got);
    arena_free(a);
}

static void models_are_listed_in_pages(void)
{
    expect_models(&(struct anthropic_page){ .limit = 20 }, "abc");
    expect_models(&(struct anthropic_page){ .limit = 2 }, "ab+");
    expect_models(&(struct anthropic_page){ .limit = 2, .after = STR("b") }, "c");
    expect_models(&(struct anthropic_page){ .limit = 2, .after = STR("c") }, "");
    expect_models(&(struct anthropic_page){ .limit = 1, .before = STR("c") }, "b+");
    expect_models(&(struct anthropic_page){ .limit = 9, .before = STR("c") }, "ab");
    expect_models(&(struct anthropic_page){ .limit = 9, .before = STR("a") }, "");
    expect_models(
        &(struct anthropic_page){ .limit = 9, .after = STR("x"), .before = STR("y") }, "abc");
    expect_models(
        &(struct anthropic_page){ .limit = 9, .after = STR("c"), .before = STR("a") }, "");
}

TESTS(TEST(body_is_accepted_or_the_wrong_field_is_named), TEST(every_field_arrives),
    TEST(blocks_become_messages), TEST(a_string_is_short_for_one_block),
    TEST(a_last_message_of_the_assistant_is_continued), TEST(joining_messages_is_linear),
    TEST(tools_get_the_openai_shape), TEST(a_choice_of_tools_arrives),
    TEST(tool_results_have_the_name_of_their_call), TEST(signature_belongs_to_its_reasoning),
    TEST(blocks_have_the_order_of_the_output), TEST(eager_arguments_are_streamed_as_generated),
    TEST(message_that_ends_inside_a_call_has_reached_max_tokens), TEST(reasoning_can_be_omitted),
    TEST(a_message_in_one_piece), TEST(a_message_as_a_stream),
    TEST(response_without_text_has_no_block), TEST(full_context_has_its_own_stop_reason),
    TEST(errors_have_the_form_of_the_dialect), TEST(models_are_listed_in_pages))
