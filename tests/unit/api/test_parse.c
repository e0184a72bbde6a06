/* /v1/parse: request body and response. Both are written with ' for ". */
#include "support/check.h"

#include "api/parse.h"
#include "base/mem.h"

static struct arena *arena;
static struct err e;

static struct str with_quotes(const char *text)
{
    struct str copy = arena_str(arena, str_of(text));

    EXPECT(copy.p);
    for (char *c = (char *)(uintptr_t)copy.p; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    return copy;
}

static void expect_response(const char *body, const char *want)
{
    struct parse_request request;
    struct buf out;

    arena = arena_new(MB);
    buf_init(&out, MB);
    EXPECT(arena && !parse_request_read(&request, with_quotes(body), arena, &e));
    EXPECT(!parse_put_response(&out, &request, &e));
    if (!str_eq(buf_str(&out), with_quotes(want)))
        fprintf(stderr, "got:  " STR_FMT "\nwant: %s\n", STR_ARG(out), with_quotes(want).p);
    EXPECT(str_eq(buf_str(&out), with_quotes(want)));
    buf_clear(&out);
    arena_free(arena);
}

static void expect_rejection(const char *body, enum errcode code, const char *param)
{
    struct parse_request request;
    struct buf out;

    arena = arena_new(MB);
    buf_init(&out, MB);
    memset(&e, 0, sizeof(e));
    EXPECT(arena && (parse_request_read(&request, with_quotes(body), arena, &e) ||
                        parse_put_response(&out, &request, &e)));
    EXPECT(e.code == code);
    EXPECT_STR(e.param, param);
    buf_clear(&out);
    arena_free(arena);
}

static void text_thinking_and_a_call(void)
{
    expect_response(
        "{'tool_parser':'hermes_json','thinking_parser':'think_tag','chunks':['<thi','nk>Hm',"
        "'.</think>\\n\\nLook','ing.\\n<tool','_call>{\\'name\\': \\'f\\', \\'arguments\\': ',"
        "'{\\'a\\': ','1}}</tool_call>']}",
        "{'content':'Looking.','reasoning':'Hm.','tool_calls':[{'id':'call_0','type':'function',"
        "'function':{'name':'f','arguments':'{\\'a\\': "
        "1}'}}],'finish_reason':'tool_calls','deltas':["
        "{'reasoning':'Hm'},{'reasoning':'.'},{'content':'Look'},{'content':'ing.'},"
        "{'tool_calls':[{'index':0,'id':'call_0','type':'function','function':{'name':'f',"
        "'arguments':''}}]},{'tool_calls':[{'index':0,'function':{'arguments':'{\\'a\\': '}}]},"
        "{'tool_calls':[{'index':0,'function':{'arguments':'1}'}}]}]}");
}

static void broken_call_is_returned_as_content(void)
{
    expect_response(
        "{'tool_parser':'hermes_json','text':'<tool_call>{\\'name\\':\\'f\\',\\'arguments\\':{'}",
        "{'content':'<tool_call>{\\'name\\':\\'f\\',\\'arguments\\':{','reasoning':null,'tool_"
        "calls':[],"
        "'finish_reason':'stop','deltas':[{'tool_calls':[{'index':0,'id':'call_0','type':'function'"
        ","
        "'function':{'name':'f','arguments':''}}]},{'tool_calls':[{'index':0,'function':{"
        "'arguments':'{'}}]},{'broken_call':0},"
        "{'content':'<tool_call>{\\'name\\':\\'f\\',\\'arguments\\':{'}]}");
}

static void start_state_and_tools_are_used(void)
{
    expect_response("{'thinking_parser':'think_tag','in_thinking':true,'chunks':['a</think>b']}",
        "{'content':'b','reasoning':'a','tool_calls':[],'finish_reason':'stop',"
        "'deltas':[{'reasoning':'a'},{'content':'b'}]}");
    expect_response("{'thinking_parser':'deepseek_r1','in_thinking':false,'chunks':[]}",
        "{'content':'','reasoning':null,'tool_calls':[],'finish_reason':'stop','deltas':[]}");
    expect_response(
        "{'tool_parser':'qwen3_coder','tools':[{'function':{'name':'f','parameters':{'properties':"
        "{'a':{'type':'string'}}}}}],'chunks':['<function=f><parameter=a>5</parameter>'"
        ",'</function>']}",
        "{'content':'','reasoning':null,'tool_calls':[{'id':'call_0','type':'function','function':"
        "{'name':'f','arguments':'{\\'a\\':\\'5\\'}'}}],'finish_reason':'tool_calls','deltas':["
        "{'tool_calls':[{'index':0,'id':'call_0','type':'function','function':{'name':'f',"
        "'arguments':''}}]},{'tool_calls':[{'index':0,'function':{'arguments':'{\\'a\\':\\'5\\''}}]"
        "},"
        "{'tool_calls':[{'index':0,'function':{'arguments':'}'}}]}]}");
}

static void errors_name_the_field(void)
{
    expect_rejection("{", ERR_SYNTAX, "");
    expect_rejection("[]", ERR_INVALID, "");
    expect_rejection("{}", ERR_MISSING, "chunks");
    expect_rejection("{'chunks':'a'}", ERR_INVALID, "chunks");
    expect_rejection("{'chunks':['a',1]}", ERR_INVALID, "chunks");
    expect_rejection("{'text':1}", ERR_INVALID, "text");
    expect_rejection("{'text':'a','tool_parser':1}", ERR_INVALID, "tool_parser");
    expect_rejection("{'text':'a','tool_parser':'x'}", ERR_INVALID, "tool_parser");
    EXPECT(strstr(e.msg, "hermes_json") && strstr(e.msg, "function_gemma"));
    expect_rejection("{'text':'a','thinking_parser':'x'}", ERR_INVALID, "thinking_parser");
    expect_rejection("{'text':'a','tools':{}}", ERR_INVALID, "tools");
    expect_rejection("{'text':'a','in_thinking':1}", ERR_INVALID, "in_thinking");
}

static void every_failed_allocation_is_reported(void)
{
    uint64_t nth;

    for (nth = 1;; nth++) {
        struct parse_request request;
        struct buf out;
        uint64_t before = mem_failures();
        arena = arena_new(MB);
        buf_init(&out, MB);
        struct str body = with_quotes("{'tool_parser':'hermes_json','text':'<tool_call>{\\'name\\':"
                                      "\\'f\\',\\'arguments\\':{\\'a\\':[1]}}</tool_call> so'}");
        mem_fail_after(nth);
        int rc =
            parse_request_read(&request, body, arena, &e) || parse_put_response(&out, &request, &e);
        mem_fail_after(0);
        bool failed = mem_failures() > before;
        EXPECT(failed || !rc);
        EXPECT(!rc || e.code == ERR_MEMORY);
        EXPECT(rc || !buf_ok(&out) || str_ends(buf_str(&out), STR("]}")));
        buf_clear(&out);
        arena_free(arena);
        if (!failed)
            break;
    }
    EXPECT(nth > (uint64_t)FAULTS_AT_LEAST(8));
}

TESTS(TEST(text_thinking_and_a_call), TEST(broken_call_is_returned_as_content),
    TEST(start_state_and_tools_are_used), TEST(errors_name_the_field),
    TEST(every_failed_allocation_is_reported))
