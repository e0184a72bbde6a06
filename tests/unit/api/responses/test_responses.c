/* Responses dialect: accepted bodies, translation of their items, streams and bodies of
 * responses, and continuation of stored responses. */
#include "api/responses/responses.h"
#include "support/dialect_kit.h"

#define SAY(more)   "{'model':'m','input':'hi'" more "}"
#define ITEMS(list) "{'model':'m','input':[" list "]}"
#define FN          "{'type':'function','name':'f','parameters':{'type':'object'}}"
#define OK          ERR_NONE

static const struct kit_row rows[] = {
    { SAY(""), OK, "" },
    { "{'model':'m'}", OK, "" }, /* sent by agents as a test */
    { ITEMS(""), OK, "" },
    { SAY(",'an_unknown_field':1"), OK, "" },
    { "{'input':7}", ERR_INVALID, "input" },
    { SAY(",'background':false"), OK, "" },
    { SAY(",'background':true"), OK, "" },
    { SAY(",'background':'yes'"), ERR_INVALID, "background" },
    { SAY(",'background':true,'store':false"), ERR_INVALID, "background" },
    { SAY(",'conversation':'conv_1'"), ERR_UNSUPPORTED, "conversation" },
    { SAY(",'include':['reasoning.encrypted_content','message.output_text.logprobs']"), OK, "" },
    { SAY(",'include':['my.wishes']"), ERR_INVALID, "include" },
    { SAY(",'include':7"), ERR_INVALID, "include" },
    { SAY(",'instructions':'be brief'"), OK, "" },
    { SAY(",'instructions':7"), ERR_INVALID, "instructions" },
    { SAY(",'max_output_tokens':1"), OK, "" },
    { SAY(",'max_output_tokens':0"), ERR_RANGE, "max_output_tokens" },
    { SAY(",'metadata':{'a':'b'}"), OK, "" },
    { SAY(",'metadata':{'a':1}"), ERR_INVALID, "metadata" },
    { SAY(",'previous_response_id':7"), ERR_INVALID, "previous_response_id" },
    { SAY(",'prompt':{'id':'pmpt_1'}"), ERR_UNSUPPORTED, "prompt" },
    { SAY(",'reasoning':{'effort':'low','summary':'auto'}"), OK, "" },
    { SAY(",'reasoning':{'effort':'huge'}"), ERR_INVALID, "reasoning.effort" },
    { SAY(",'reasoning':{'summary':'long'}"), ERR_INVALID, "reasoning.summary" },
    { SAY(",'reasoning':7"), ERR_INVALID, "reasoning" },
    { SAY(",'service_tier':'auto'"), OK, "" },
    { SAY(",'service_tier':'best'"), ERR_INVALID, "service_tier" },
    { SAY(",'store':false"), OK, "" },
    { SAY(",'store':'no'"), ERR_INVALID, "store" },
    { SAY(",'stream_options':{'include_obfuscation':false}"), OK, "" },
    { SAY(",'temperature':3"), ERR_RANGE, "temperature" },
    { SAY(",'text':{'format':{'type':'text'},'verbosity':'low'}"), OK, "" },
    { SAY(",'text':{'verbosity':'loud'}"), ERR_INVALID, "text.verbosity" },
    { SAY(",'text':{'format':{}}"), ERR_MISSING, "text.format.type" },
    { SAY(",'text':{'format':{'type':'poem'}}"), ERR_INVALID, "text.format.type" },
    { SAY(",'text':{'format':{'type':'json_object'}}"), OK, "" },
    { SAY(",'text':{'format':{'type':'json_schema','name':'n','schema':{}}}"), OK, "" },
    { SAY(",'text':{'format':{'type':'json_schema','schema':{}}}"), ERR_MISSING,
        "text.format.name" },
    { SAY(",'text':{'format':{'type':'json_schema','name':'n'}}"), ERR_MISSING,
        "text.format.schema" },
    { SAY(",'tools':[" FN "]"), OK, "" },
    { SAY(",'tools':7"), ERR_INVALID, "tools" },
    { SAY(",'tools':[7]"), ERR_INVALID, "tools[0]" },
    { SAY(",'tools':[{'type':'function'}]"), ERR_MISSING, "tools[0].name" },
    { SAY(",'tools':[{'type':'function','name':'f','parameters':7}]"), ERR_INVALID,
        "tools[0].parameters" },
    { SAY(",'tools':[{'type':'flight'}]"), ERR_INVALID, "tools[0].type" },
    { SAY(",'tools':[{'type':'web_search'},{'type':'namespace','name':'n','tools':[]},"
          "{'type':'custom','name':'c'},{'type':'local_shell'},{'type':'image_generation'}," FN
          "]"),
        OK, "" },
    { SAY(",'tools':[{'type':'web_search'},{'type':'image_generation'}]"), ERR_UNSUPPORTED,
        "tools[0].type" },
    { SAY(",'tools':[{'type':'custom','name':'c'}]"), ERR_UNSUPPORTED, "tools[0].type" },
    { SAY(",'tools':[" FN ",{'type':'mcp','server_url':'http://x'}]"), ERR_UNSUPPORTED,
        "tools[1].type" },
    { SAY(",'max_tool_calls':3,'service_tier':'priority'"), OK, "" },
    { SAY(",'tool_choice':'auto'"), OK, "" },
    { SAY(",'tool_choice':'required'"), ERR_INVALID, "tool_choice" },
    { SAY(",'tool_choice':'maybe'"), ERR_INVALID, "tool_choice" },
    { SAY(",'tools':[" FN "],'tool_choice':{'type':'function','name':'f'}"), OK, "" },
    { SAY(",'tools':[" FN "],'tool_choice':{'type':'function','name':'g'}"), ERR_INVALID,
        "tool_choice" },
    { SAY(",'tools':[" FN "],'tool_choice':{'type':'function'}"), ERR_MISSING, "tool_choice.name" },
    { SAY(",'tools':[" FN "],'tool_choice':{'type':'web_search'}"), ERR_UNSUPPORTED,
        "tool_choice.type" },
    { SAY(",'tools':[" FN "],'tool_choice':{'type':'allowed_tools','mode':'auto','tools':"
          "[{'type':'function','name':'f'},{'type':'web_search'}]}"),
        OK, "" },
    { SAY(",'tools':[" FN "],'tool_choice':{'type':'allowed_tools'}"), ERR_MISSING,
        "tool_choice.tools" },
    { SAY(",'top_logprobs':21"), ERR_RANGE, "top_logprobs" },
    { SAY(",'truncation':'auto'"), OK, "" },
    { SAY(",'truncation':'middle'"), ERR_INVALID, "truncation" },
    { ITEMS("7"), ERR_INVALID, "input[0]" },
    { ITEMS("{'content':'x'}"), ERR_MISSING, "input[0].role" },
    { ITEMS("{'role':'boss','content':'x'}"), ERR_INVALID, "input[0].role" },
    { ITEMS("{'role':'user'}"), ERR_MISSING, "input[0].content" },
    { ITEMS("{'role':'user','content':7}"), ERR_INVALID, "input[0].content" },
    { ITEMS("{'role':'user','content':[{'type':'input_text'}]}"), ERR_MISSING,
        "input[0].content[0].text" },
    { ITEMS("{'role':'user','content':[{'type':'input_image','image_url':'data:'}]}"),
        ERR_UNSUPPORTED, "input[0].content[0]" },
    { ITEMS("{'role':'user','content':[{'type':'song'}]}"), ERR_INVALID,
        "input[0].content[0].type" },
    { ITEMS("{'type':'poem'}"), ERR_INVALID, "input[0].type" },
    { ITEMS("{'type':'function_call','name':'f'}"), ERR_MISSING, "input[0].call_id" },
    { ITEMS("{'type':'function_call','call_id':'c'}"), ERR_MISSING, "input[0].name" },
    { ITEMS("{'type':'function_call_output','call_id':'c'}"), ERR_MISSING, "input[0].output" },
    { ITEMS("{'type':'item_reference','id':'msg_1_0'}"), OK, "" },
    { ITEMS("{'type':'item_reference'}"), ERR_MISSING, "input[0].id" },
    { ITEMS("{'type':'web_search_call','id':'ws_1','status':'completed'}"), OK, "" },
};

static void body_is_accepted_or_the_wrong_field_is_named(void)
{
    kit_check_rows(&dialect_responses, rows, ARRAY_LEN(rows));
    kit_close_response();
}

static void every_field_arrives(void)
{
    EXPECT_EQ(kit_parse_request(&dialect_responses,
                  SAY(",'temperature':0.5,'top_p':0.25,'top_k':-1,'max_output_tokens':17,'seed':4,"
                      "'stop':['a'],'stream':true,'top_logprobs':2,'user':'u','store':false,"
                      "'safety_identifier':'s','prompt_cache_key':'p','metadata':{'k':'v'},"
                      "'previous_response_id':'resp_0','reasoning':{'effort':'low'},"
                      "'parallel_tool_calls':false,'tools':[" FN "]")),
        0);
    const struct request *a = &kit.request;
    EXPECT(a->sample.temperature == 0.5f && a->sample.top_p == 0.25f && a->sample.top_k == 0);
    EXPECT(a->max_tokens == 17 && a->has_seed && a->sample.seed == 4 && a->n_stops == 1);
    EXPECT(a->stream && a->want_logprobs && a->sample.want_logprobs && a->sample.n_top == 2);
    EXPECT(str_is(a->user, "u") && str_is(a->safety_identifier, "s") && !a->store);
    EXPECT(str_is(a->prompt_cache_key, "p") && a->metadata && a->metadata->n == 1);
    EXPECT(str_is(a->previous_id, "resp_0") && a->needs_response_store);
    EXPECT(str_is(a->reasoning_effort, "low"));
    EXPECT_EQ(kit_parse_request(
                  &dialect_responses, SAY(",'text':{'format':{'type':'json_schema','name':'n',"
                                          "'schema':{'type':'object'},'strict':true}}")),
        0);
    EXPECT(a->constraint.source.kind == CONSTRAINT_JSON_SCHEMA && a->constraint.is_strict);
    EXPECT_STR(a->constraint.field, "text.format.schema");
    EXPECT_EQ(
        kit_parse_request(&dialect_responses, SAY(",'parallel_tool_calls':false,'tools':[" FN "]")),
        0);
    EXPECT(a->tools && a->tools->n == 1 && !a->parallel_tool_calls);
    const struct json *f = json_get(a->tools->child, "function");
    EXPECT(str_is(json_get(f, "name")->s, "f") && json_get(f, "parameters"));
    EXPECT_EQ(kit_parse_request(&dialect_responses, SAY("")), 0);
    EXPECT(!kit.request.may_truncate);
    EXPECT_EQ(kit_parse_request(&dialect_responses, SAY(",'truncation':'auto'")), 0);
    EXPECT(kit.request.may_truncate);
    EXPECT(kit.request.store && !kit.request.needs_response_store && kit.request.max_tokens == -1);
    EXPECT_EQ(kit_parse_request(&dialect_responses, SAY(",'reasoning':{'effort':'none'}")), 0);
    EXPECT(kit.request.thinking == THINKING_OFF);
    kit_close_response();
}

/* ---- items become messages */

static void expect_convo(const char *body, const char *want)
{
    EXPECT_EQ(kit_parse_request(&dialect_responses, body), 0);
    EXPECT_STR(kit_convo_text(), want);
}

static void items_become_messages(void)
{
    expect_convo(SAY(""), "user: hi");
    expect_convo(SAY(",'instructions':'be brief'"), "system: be brief|user: hi");
    expect_convo(
        SAY(",'instructions':[{'role':'developer','content':'d'}]"), "developer: d|user: hi");
    expect_convo("{}", "user: ");
    expect_convo("{'instructions':'i','input':[]}", "system: i|user: ");
    expect_convo(ITEMS("{'role':'user','content':[{'type':'input_text','text':'a'},"
                       "{'type':'input_text','text':'b'}]},"
                       "{'type':'message','role':'assistant','content':[{'type':'output_text',"
                       "'text':'c','annotations':[]},{'type':'refusal','refusal':'no'}]}"),
        "user: a, b|assistant: c, no");
    expect_convo(
        ITEMS("{'role':'user','content':'x'},"
              "{'type':'reasoning','id':'rs_1','summary':[],'content':[{'type':"
              "'reasoning_text','text':'hm'}]},"
              "{'role':'assistant','content':'let me see'},"
              "{'type':'function_call','call_id':'c1','name':'f','arguments':'{}'},"
              "{'type':'function_call','call_id':'c2','name':'g','arguments':{'a':1}},"
              "{'type':'function_call_output','call_id':'c1','output':'1'},"
              "{'type':'function_call_output','call_id':'c2','output':[{'type':'input_text',"
              "'text':'2'}]}"),
        "user: x|assistant: let me see [f({})#c1] [g({\"a\":1})#c2] {hm}|tool#c1: 1|tool#c2: 2");
    /* Reasoning items without text, twice: two turns. Text after text: two messages. */
    expect_convo(ITEMS("{'type':'reasoning','summary':[{'type':'summary_text','text':'a'}]},"
                       "{'type':'reasoning','summary':[],'encrypted_content':'v1.aGk='},"
                       "{'role':'assistant','content':'b'},{'role':'assistant','content':'c'}"),
        "assistant {a}|assistant: b {hi}|assistant: c");
    /* Reasoning that was sealed by another server cannot be read. */
    expect_convo(ITEMS("{'role':'user','content':'x'},"
                       "{'type':'reasoning','summary':[],'encrypted_content':'gAAAA'}"),
        "user: x");
    expect_convo(ITEMS("{'role':'user','content':'x'},"
                       "{'type':'custom_tool_call','call_id':'c','name':'sh','input':'a \\'b\\''},"
                       "{'type':'custom_tool_call_output','call_id':'c','output':'o'},"
                       "{'type':'local_shell_call','call_id':'d','action':{'command':['ls']}},"
                       "{'type':'local_shell_call_output','id':'d','output':'p'}"),
        "user: x|assistant [sh({\"input\": \"a \\\"b\\\"\"})#c]|tool#c: o|"
        "assistant [local_shell({\"command\":[\"ls\"]})#d]|tool#d: p");
    kit_close_response();
}

/* ---- continuation of stored responses */

static const struct responses_stored turns[] = {
    { STR("{\"id\":\"resp_1\",\"output\":[{\"id\":\"rs_1_0\",\"type\":\"reasoning\",\"summary\":[],"
          "\"content\":[{\"type\":\"reasoning_text\",\"text\":\"t\"}]},"
          "{\"id\":\"msg_1_1\",\"type\":\"message\",\"role\":\"assistant\",\"content\":"
          "[{\"type\":\"output_text\",\"text\":\"one\"}]}]}"),
        STR("[{\"id\":\"msg_1_i0\",\"type\":\"message\",\"role\":\"user\",\"content\":\"first\"}"
            "]") },
    { STR("{\"id\":\"resp_2\",\"output\":[{\"id\":\"fc_2_0\",\"type\":\"function_call\","
          "\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}\"}]}"),
        STR("[{\"id\":\"my_own\",\"role\":\"user\",\"content\":\"second\"}]") },
};
static int n_finds;

static bool find_stored(void *ctx, struct str id, struct responses_stored *out)
{
    n_finds++;
    for (size_t i = 0; i < ARRAY_LEN(turns); i++)
        if (str_is(id, i ? "resp_2" : "resp_1")) {
            *out = turns[i];
            return true;
        }
    return false;
}

static int find_response(const char *body, size_t n)
{
    static const struct responses_lookup shelf = { NULL, find_stored };

    n_finds = 0;
    if (kit_parse_request(&dialect_responses, body))
        fprintf(stderr, "%s\n", kit.e.msg);
    EXPECT(!kit.e.code && kit.request.needs_response_store);
    int rc = responses_load_history(&kit.request, turns, n, &shelf, kit.arena, &kit.e);
    EXPECT(!kit.request.needs_response_store);
    return rc;
}

static void response_continues_a_previous_one(void)
{
    EXPECT_EQ(find_response(SAY(",'previous_response_id':'resp_1','instructions':'i'"), 1), 0);
    EXPECT_STR(kit_convo_text(), "system: i|user: first|assistant: one {t}|user: hi");
    EXPECT_EQ(find_response("{'previous_response_id':'resp_2','input':["
                            "{'type':'function_call_output','call_id':'c','output':'4'}]}",
                  2),
        0);
    EXPECT_STR(kit_convo_text(),
        "user: first|assistant: one {t}|user: second|assistant [f({})#c]|tool#c: 4");
    EXPECT_EQ((int)kit.request.items->n, 1);
    EXPECT_EQ(find_response("{'previous_response_id':'resp_1'}", 1), 0);
    EXPECT_STR(kit_convo_text(), "user: first|assistant: one {t}");
    kit_close_response();
}

static void item_references_are_resolved(void)
{
    EXPECT_EQ(find_response(ITEMS("{'type':'item_reference','id':'msg_1_i0'},{'id':'rs_1_0'},"
                                  "{'type':'item_reference','id':'msg_1_1'},"
                                  "{'role':'user','content':'x'}"),
                  0),
        0);
    EXPECT_STR(kit_convo_text(), "user: first|assistant: one {t}|user: x");
    EXPECT_EQ(n_finds, 1); /* once for each response */
    EXPECT_EQ((int)kit.request.items->n, 4);
    EXPECT(str_is(json_get(kit.request.items->child, "type")->s, "message"));
    static const char *const lost[] = { "msg_1_9", "msg_3_0", "my_own", "_", "__", "x" };
    for (size_t i = 0; i < ARRAY_LEN(lost); i++) {
        char body[200];
        snprintf(body, sizeof(body), ITEMS("{'type':'item_reference','id':'%s'}"), lost[i]);
        EXPECT_EQ(find_response(body, 0), -1);
        EXPECT(kit.e.code == ERR_NOT_FOUND);
        EXPECT_STR(kit.e.param, "input[0].id");
    }
    kit_close_response();
}

static void ids_identify_their_owner(void)
{
    char out[RESPONSES_ID_MAX];

    EXPECT(responses_id_of_item(STR("msg_0af_12"), out));
    EXPECT_STR(out, "resp_0af");
    EXPECT(responses_id_of_item(STR("fc_0af_i3"), out));
    EXPECT_STR(out, "resp_0af");
    EXPECT(!responses_id_of_item(STR("msg_0af"), out) && !responses_id_of_item(STR(""), out));
    static char longest[1000];
    memset(longest, 'a', sizeof(longest));
    longest[1] = longest[990] = '_';
    EXPECT(!responses_id_of_item((struct str){ longest, sizeof(longest) }, out));
}

/* ---- responses */

/* Events of a stream in order: "type #number" for each; deltas are joined. */
static void expect_events(const char *want)
{
    static char got[8000];
    struct str rest = buf_str(&kit.sink.body);
    size_t n = 0;
    int number = 0;
    const struct str response = STR("response.");

    got[0] = 0;
    while (rest.n) {
        ptrdiff_t end_response = str_find(rest, STR("\n\n"));
        EXPECT(end_response > 0);
        struct str frame = { rest.p, (size_t)end_response };
        rest = str_skip(rest, (size_t)end_response + 2);
        ptrdiff_t line = str_find(frame, STR("\ndata: "));
        EXPECT(str_starts(frame, STR("event: ")) && line > 0);
        struct str name = { frame.p + 7, (size_t)line - 7 };
        struct json *j = NULL;
        EXPECT_EQ(json_parse(&j, str_skip(frame, (size_t)line + 7), kit.arena, NULL, &kit.e), 0);
        EXPECT(str_eq(json_get(j, "type")->s, name));
        char digits[20];
        snprintf(digits, sizeof(digits), "%d", number++);
        EXPECT(str_is(json_get(j, "sequence_number")->s, digits));
        const struct json *at = json_get(j, "output_index"), *delta = json_get(j, "delta");
        n += (size_t)snprintf(got + n, sizeof(got) - n, "%s" STR_FMT, n ? " " : "",
            STR_ARG(str_skip(name, str_starts(name, response) ? response.n : 0)));
        if (at)
            n += (size_t)snprintf(got + n, sizeof(got) - n, "@" STR_FMT, STR_ARG(at->s));
        if (delta)
            n += (size_t)snprintf(got + n, sizeof(got) - n, "(" STR_FMT ")", STR_ARG(delta->s));
        EXPECT(n < sizeof(got));
    }
    EXPECT_STR(got, want);
}

/* The value of output in the final object of a body or a stream. */
static const char *output(void)
{
    static char got[8000];
    struct str s = buf_str(&kit.sink.body);
    ptrdiff_t at;

    while ((at = str_find(s, STR("\"output\":"))) >= 0)
        s = str_skip(s, (size_t)at + 9);
    at = str_find(s, STR(",\"instructions\""));
    EXPECT(at > 0);
    snprintf(got, sizeof(got), "%.*s", (int)at, s.p);
    for (char *c = got; *c; c++)
        *c = *c == '"' ? '\'' : *c;
    return got;
}

static bool output_contains(const char *what)
{
    static char text[200];

    snprintf(text, sizeof(text), "%s", what);
    for (char *c = text; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    return str_find(buf_str(&kit.sink.body), str_of(text)) >= 0;
}

static void begin_response(const char *more, bool is_stream)
{
    char body[1000];

    snprintf(body, sizeof(body), "{'model':'m','input':'hi','tools':[" FN "],'stream':%s%s}",
        is_stream ? "true" : "false", more);
    kit_open_response(&dialect_responses, body);
    response_begin(kit.response);
    response_set_usage(kit.response, 5, 2);
}

static void end_response(enum finish finish)
{
    response_choice_end(kit.response, 0, finish, STR_NONE, -1);
    response_end(kit.response);
    EXPECT_EQ(kit.sink.n_ended, 1);
}

static void emit_call(int number, const char *name, const char *args)
{
    response_output_ops.call_begin(kit.response, 0, number, str_of(name));
    for (const char *c = args; *c; c++)
        response_output_ops.call_args(kit.response, 0, number, (struct str){ c, 1 });
}

static void text_is_a_message(void)
{
    static const char want[] =
        "[{'id':'msg_1_0','type':'message','status':'completed','role':'assistant','content':"
        "[{'type':'output_text','text':'Hello wor\\'q\\'\\n','annotations':[],'logprobs':[]}]}]";

    for (int is_stream = 0; is_stream < 2; is_stream++) {
        begin_response("", is_stream);
        kit_emit_token(0, 1);
        kit_emit_token(0, 2);
        kit_emit_token(0, 4);
        end_response(FINISH_STOP);
        if (is_stream)
            expect_events("created in_progress output_item.added@0 content_part.added@0 "
                          "output_text.delta@0(Hello) output_text.delta@0( wor) "
                          "output_text.delta@0(\"q\"\n) output_text.done@0 content_part.done@0 "
                          "output_item.done@0 completed");
        EXPECT_STR(output(), want);
        EXPECT(output_contains("'status':'completed','background':false,'error':null"));
        EXPECT(
            output_contains("'usage':{'input_tokens':5,'input_tokens_details':{'cached_tokens':2,"
                            "'cache_write_tokens':0},'output_tokens':3,"));
    }
    kit_close_response();
}

static void reasoning_and_calls_are_items(void)
{
    for (int is_stream = 0; is_stream < 2; is_stream++) {
        begin_response("", is_stream);
        response_output_ops.reasoning(kit.response, 0, STR("h"));
        response_output_ops.reasoning(kit.response, 0, STR("m"));
        kit_emit_token(0, 1);
        emit_call(0, "f", "{}");
        response_output_ops.call_end(kit.response, 0, 0);
        emit_call(1, "g", "[1]");
        response_output_ops.call_end(kit.response, 0, 1);
        end_response(FINISH_STOP);
        if (is_stream)
            expect_events(
                "created in_progress output_item.added@0 content_part.added@0 "
                "reasoning_text.delta@0(h) reasoning_text.delta@0(m) reasoning_text.done@0 "
                "content_part.done@0 output_item.done@0 output_item.added@1 "
                "content_part.added@1 output_text.delta@1(Hello) output_text.done@1 "
                "content_part.done@1 output_item.done@1 output_item.added@2 "
                "function_call_arguments.delta@2({) function_call_arguments.delta@2(}) "
                "function_call_arguments.done@2 output_item.done@2 output_item.added@3 "
                "function_call_arguments.delta@3([) function_call_arguments.delta@3(1) "
                "function_call_arguments.delta@3(]) function_call_arguments.done@3 "
                "output_item.done@3 completed");
        EXPECT(output_contains(
            "{'id':'rs_1_0','type':'reasoning','status':'completed','summary':[],'content':"
            "[{'type':'reasoning_text','text':'hm'}]}"));
        EXPECT(output_contains(
            "{'id':'fc_1_3','type':'function_call','status':'completed','call_id':'call_"));
        EXPECT(output_contains("'name':'g','arguments':'[1]'}"));
    }
    kit_close_response();
}

static void reasoning_may_be_a_summary_and_sealed(void)
{
    begin_response(
        ",'reasoning':{'summary':'auto'},'include':['reasoning.encrypted_content']", true);
    response_output_ops.reasoning(kit.response, 0, STR("hi"));
    end_response(FINISH_STOP);
    expect_events("created in_progress output_item.added@0 reasoning_summary_part.added@0 "
                  "reasoning_summary_text.delta@0(hi) reasoning_summary_text.done@0 "
                  "reasoning_summary_part.done@0 output_item.done@0 completed");
    EXPECT_STR(output(), "[{'id':'rs_1_0','type':'reasoning','status':'completed','summary':"
                         "[{'type':'summary_text','text':'hi'}],'encrypted_content':'v1.aGk='}]");
    kit_close_response();
}

static void broken_call_is_not_in_the_response(void)
{
    for (int is_stream = 0; is_stream < 2; is_stream++) {
        begin_response("", is_stream);
        emit_call(0, "f", "{x");
        response_output_ops.call_broken(kit.response, 0, 0);
        response_output_ops.content(kit.response, 0, STR("<f>{x"));
        end_response(FINISH_STOP);
        if (is_stream)
            expect_events("created in_progress output_item.added@0 "
                          "function_call_arguments.delta@0({) function_call_arguments.delta@0(x) "
                          "function_call_arguments.done@0 output_item.done@0 output_item.added@1 "
                          "content_part.added@1 output_text.delta@1(<f>{x) output_text.done@1 "
                          "content_part.done@1 output_item.done@1 error completed");
        EXPECT_EQ(output_contains(
                      "'code':'incomplete_tool_call','message':'The output contains a tool call "
                      "that is not valid.','param':null}"),
            is_stream);
        EXPECT_STR(output(),
            "[{'id':'msg_1_1','type':'message','status':'completed','role':'assistant','content':"
            "[{'type':'output_text','text':'<f>{x','annotations':[],'logprobs':[]}]}]");
    }
    kit_close_response();
}

/* The object of the stream equals that of a body; the error makes clients discard the call. */
static void response_that_ends_inside_a_call_is_incomplete(void)
{
    for (int is_stream = 0; is_stream < 2; is_stream++) {
        begin_response("", is_stream);
        emit_call(0, "f", "{");
        response_output_ops.call_broken(kit.response, 0, 0);
        response_output_ops.content(kit.response, 0, STR("<f>{"));
        response_set_ends_inside_call(kit.response, 0);
        end_response(FINISH_STOP);
        if (is_stream)
            expect_events("created in_progress output_item.added@0 "
                          "function_call_arguments.delta@0({) function_call_arguments.done@0 "
                          "output_item.done@0 output_item.added@1 content_part.added@1 "
                          "output_text.delta@1(<f>{) output_text.done@1 content_part.done@1 "
                          "output_item.done@1 error incomplete");
        EXPECT(output_contains("'incomplete_details':{'reason':'max_output_tokens'}"));
        EXPECT(output_contains("'status':'incomplete','background':false,'error':null"));
        EXPECT_EQ(output_contains("The output ended inside a tool call, which is incomplete."),
            is_stream);
        EXPECT_STR(output(),
            "[{'id':'msg_1_1','type':'message','status':'incomplete','role':'assistant','content':"
            "[{'type':'output_text','text':'<f>{','annotations':[],'logprobs':[]}]}]");
    }
    kit_close_response();
}

static void truncated_response_is_incomplete(void)
{
    begin_response("", true);
    kit_emit_token(0, 1);
    end_response(FINISH_LENGTH);
    EXPECT(output_contains("event: response.incomplete\n"));
    EXPECT(output_contains("'incomplete_details':{'reason':'max_output_tokens'}"));
    EXPECT(output_contains("'id':'msg_1_0','type':'message','status':'incomplete'"));
    begin_response("", false);
    end_response(FINISH_STOP); /* without output: an empty message */
    EXPECT(output_contains("'content':[{'type':'output_text','text':''"));
    kit_close_response();
}

static void errors_are_written(void)
{
    struct err e = { .code = ERR_TIMEOUT, .msg = "too late" };

    begin_response("", true);
    kit_emit_token(0, 1);
    response_error(kit.response, &e, NULL);
    EXPECT_EQ(kit.sink.n_ended, 1);
    EXPECT(output_contains("event: response.failed\n"));
    EXPECT(output_contains(
        "'status':'failed','background':false,'error':{'code':'server_error','message':"
        "'too late'}"));
    begin_response("", false);
    response_error(kit.response, &e, NULL);
    EXPECT_EQ(kit.sink.status, 504);
    EXPECT(output_contains("{'error':{'message':'too late'"));
    kit_close_response();
}

/* ---- background responses */

static void background_response_is_queued_first(void)
{
    for (int is_stream = 0; is_stream < 2; is_stream++) {
        begin_response(",'background':true", is_stream);
        response_set_running(kit.response);
        response_set_running(kit.response);
        kit_emit_token(0, 1);
        end_response(FINISH_STOP);
        if (is_stream) {
            expect_events("created queued in_progress output_item.added@0 content_part.added@0 "
                          "output_text.delta@0(Hello) output_text.done@0 content_part.done@0 "
                          "output_item.done@0 completed");
            EXPECT(output_contains("'status':'queued','background':true,'error':null"));
            EXPECT(output_contains("'status':'in_progress','background':true,'error':null"));
        }
        EXPECT(output_contains("'status':'completed','background':true,'error':null"));
    }
    /* the missing status event is written with the first output, or at the end */
    begin_response(",'background':true", true);
    kit_emit_token(0, 1);
    end_response(FINISH_STOP);
    expect_events("created queued in_progress output_item.added@0 content_part.added@0 "
                  "output_text.delta@0(Hello) output_text.done@0 content_part.done@0 "
                  "output_item.done@0 completed");
    begin_response("", true);
    response_set_running(kit.response); /* other responses are not queued */
    end_response(FINISH_STOP);
    expect_events("created in_progress output_item.added@0 content_part.added@0 output_text.done@0 "
                  "content_part.done@0 output_item.done@0 completed");
    kit_close_response();
}

/* Result of response_serialize, with ' for ". */
static const char *stored_now(void)
{
    static char text[4000];
    struct buf o, i;

    buf_init(&o, MB);
    buf_init(&i, MB);
    EXPECT(response_serialize(kit.response, &o, &i));
    snprintf(text, sizeof(text), STR_FMT, STR_ARG(buf_str(&o)));
    for (char *c = text; *c; c++)
        *c = *c == '"' ? '\'' : *c;
    buf_clear(&o);
    buf_clear(&i);
    return text;
}

static void cancelled_background_response_is_not_failed(void)
{
    struct err gone = { .code = ERR_CANCELLED, .msg = "gone" };
    struct err late = { .code = ERR_TIMEOUT, .msg = "late" };

    begin_response(",'background':true", true);
    response_error(kit.response, &gone, NULL);
    expect_events("created queued failed");
    EXPECT(output_contains("'status':'cancelled','background':true,'error':null"));
    EXPECT(strstr(stored_now(), "'status':'cancelled','background':true,'error':null"));
    begin_response(",'background':true", false);
    EXPECT(strstr(stored_now(), "'status':'queued','background':true,'error':null"));
    response_set_running(kit.response);
    EXPECT(strstr(stored_now(), "'status':'in_progress','background':true,'error':null"));
    kit_emit_token(0, 1);
    response_error(kit.response, &late, NULL);
    EXPECT(!kit.sink.n_begun && !kit.sink.body.n);
    EXPECT(strstr(stored_now(),
        "'status':'failed','background':true,'error':{'code':'server_error','message':'late'}"));
    kit_close_response();
}

static void queued_object_is_written_again_with_another_status(void)
{
    struct err e = { .code = ERR_MEMORY, .msg = "no \"room\"" };
    struct buf o, i, again;

    begin_response(",'background':true,'instructions':'\\'status\\':\\'queued\\'','metadata':"
                   "{'status':'queued','background':'true'}",
        false);
    buf_init(&o, MB);
    buf_init(&i, MB);
    buf_init(&again, MB);
    EXPECT(response_serialize(kit.response, &o, &i));
    response_set_running(kit.response);
    buf_clear(&i);
    struct buf now;
    buf_init(&now, MB);
    EXPECT(response_serialize(kit.response, &now, &i));
    responses_set_status(&again, buf_str(&o), "in_progress", NULL);
    EXPECT(str_eq(buf_str(&again), buf_str(&now)));
    buf_reset(&again);
    responses_set_status(&again, buf_str(&o), "failed", &e);
    EXPECT(str_find(buf_str(&again), STR("\"status\":\"failed\",\"background\":true,\"error\":"
                                         "{\"code\":\"server_error\",\"message\":"
                                         "\"no \\\"room\\\"\"}")) > 0);
    buf_clear(&o);
    buf_clear(&i);
    buf_clear(&now);
    buf_clear(&again);
    kit_close_response();
}

static void logprobs_stay_with_their_text(void)
{
    begin_response(",'include':['message.output_text.logprobs'],'top_logprobs':1", true);
    kit_emit_token(0, 1);
    end_response(FINISH_STOP);
    EXPECT(output_contains("'delta':'Hello','logprobs':[{'token':'Hello','logprob':-0.5,'bytes':"
                           "[72,101,108,108,111],'top_logprobs':[{'token':'Hello'"));
    EXPECT(output_contains("'text':'Hello','annotations':[],'logprobs':[{'token':'Hello'"));
    kit_close_response();
}

/* ---- stored responses */

static struct buf object, input;

static void store_response(const char *body)
{
    kit_open_response(&dialect_responses, body);
    response_begin(kit.response);
    kit_emit_token(0, 1);
    buf_init(&object, MB);
    buf_init(&input, MB);
    end_response(FINISH_STOP);
    EXPECT(response_serialize(kit.response, &object, &input));
}

static void expect_list(const struct responses_page *page, const char *want)
{
    struct buf b;

    buf_init(&b, MB);
    EXPECT_EQ(responses_list_input(&b, buf_str(&input), page, kit.arena, &kit.e), 0);
    buf_clear(&kit.sink.body);
    buf_puts(&kit.sink.body, buf_str(&b));
    kit_expect_body(want);
    buf_clear(&b);
}

static void stored_response_equals_the_sent_one(void)
{
    store_response(SAY(""));
    EXPECT(str_eq(buf_str(&object), buf_str(&kit.sink.body)));
    expect_list(&(struct responses_page){ .limit = 9 },
        "{'object':'list','data':[{'id':'msg_1_i0','type':'message','role':'user','status':"
        "'completed','content':[{'type':'input_text','text':'hi'}]}],'first_id':'msg_1_i0',"
        "'last_id':'msg_1_i0','has_more':false}");
    buf_clear(&object);
    buf_clear(&input);
    kit_close_response();
}

static void input_items_are_listed_in_pages(void)
{
    store_response(ITEMS("{'role':'user','content':'a'},{'role':'assistant','content':'b'},"
                         "{'id':'x','type':'function_call_output','call_id':'c','output':'d'}"));
    expect_list(&(struct responses_page){ .limit = 2, .is_ascending = true },
        "{'object':'list','data':[{'id':'msg_1_i0','type':'message','status':'completed','role':"
        "'user','content':[{'type':'input_text','text':'a'}]},{'id':'msg_1_i1','type':'message',"
        "'status':'completed','role':'assistant','content':[{'type':'output_text','text':'b',"
        "'annotations':[]}]}],'first_id':'msg_1_i0','last_id':'msg_1_i1','has_more':true}");
    expect_list(&(struct responses_page){ .limit = 1, .after = STR("x") },
        "{'object':'list','data':[{'id':'msg_1_i1','type':'message','status':'completed','role':"
        "'assistant','content':[{'type':'output_text','text':'b','annotations':[]}]}],'first_id':"
        "'msg_1_i1','last_id':'msg_1_i1','has_more':true}");
    expect_list(&(struct responses_page){ .limit = 9, .after = STR("msg_1_i0") },
        "{'object':'list','data':[],'first_id':'','last_id':'','has_more':false}");
    buf_clear(&object);
    buf_clear(&input);
    kit_close_response();
}

TESTS(TEST(body_is_accepted_or_the_wrong_field_is_named), TEST(every_field_arrives),
    TEST(items_become_messages), TEST(response_continues_a_previous_one),
    TEST(item_references_are_resolved), TEST(ids_identify_their_owner), TEST(text_is_a_message),
    TEST(reasoning_and_calls_are_items), TEST(reasoning_may_be_a_summary_and_sealed),
    TEST(broken_call_is_not_in_the_response), TEST(response_that_ends_inside_a_call_is_incomplete),
    TEST(truncated_response_is_incomplete), TEST(errors_are_written),
    TEST(logprobs_stay_with_their_text), TEST(background_response_is_queued_first),
    TEST(cancelled_background_response_is_not_failed),
    TEST(queued_object_is_written_again_with_another_status),
    TEST(stored_response_equals_the_sent_one), TEST(input_items_are_listed_in_pages))
