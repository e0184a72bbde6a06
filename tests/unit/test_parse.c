/* api/parse.c: the body of /v1/parse and its answer. Written with ' for ". */
#include "../check.h"

#include "api/parse.h"
#include "base/mem.h"

static struct arena *arena;
static struct err e;

static struct str quoted(const char *text)
{
    struct str copy = arena_str(arena, str_of(text));

    EXPECT(copy.p);
    for (char *c = (char *)(uintptr_t)copy.p; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    return copy;
}

static void answers(const char *body, const char *want)
{
    struct parse_ask ask;
    struct buf out;

    arena = arena_new(MB);
    buf_init(&out, MB);
    EXPECT(arena && !parse_ask_read(&ask, quoted(body), arena, &e));
    EXPECT(!parse_answer(&out, &ask, &e));
    if (!str_eq(buf_str(&out), quoted(want)))
        fprintf(stderr, "got:  " STR_FMT "\nwant: %s\n", STR_ARG(out), quoted(want).p);
    EXPECT(str_eq(buf_str(&out), quoted(want)));
    buf_clear(&out);
    arena_free(arena);
}

static void refuses(const char *body, enum errcode code, const char *param)
{
    struct parse_ask ask;
    struct buf out;

    arena = arena_new(MB);
    buf_init(&out, MB);
    memset(&e, 0, sizeof(e));
    EXPECT(
        arena && (parse_ask_read(&ask, quoted(body), arena, &e) || parse_answer(&out, &ask, &e)));
    EXPECT(e.code == code);
    EXPECT_STR(e.param, param);
    buf_clear(&out);
    arena_free(arena);
}

static void text_thinking_and_a_call(void)
{
    answers("{'tool_parser':'hermes_json','thinking_parser':'think_tag','chunks':['<thi','nk>Hm',"
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

static void a_call_that_breaks_is_taken_back(void)
{
    answers(
        "{'tool_parser':'hermes_json','text':'<tool_call>{\\'name\\':\\'f\\',\\'arguments\\':{'}",
        "{'content':'{\\'name\\':\\'f\\',\\'arguments\\':{','reasoning':null,'tool_calls':[],"
        "'finish_reason':'stop','deltas':[{'tool_calls':[{'index':0,'id':'call_0','type':'function'"
        ","
        "'function':{'name':'f','arguments':''}}]},{'tool_calls':[{'index':0,'function':{"
        "'arguments':'{'}}]},{'broken_call':0},"
        "{'content':'{\\'name\\':\\'f\\',\\'arguments\\':{'}]}");
}

static void where_it_begins_and_what_the_tools_say(void)
{
    answers("{'thinking_parser':'think_tag','in_thinking':true,'chunks':['a</think>b']}",
        "{'content':'b','reasoning':'a','tool_calls':[],'finish_reason':'stop',"
        "'deltas':[{'reasoning':'a'},{'content':'b'}]}");
    answers("{'thinking_parser':'deepseek_r1','in_thinking':false,'chunks':[]}",
        "{'content':'','reasoning':null,'tool_calls':[],'finish_reason':'stop','deltas':[]}");
    answers(
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

static void what_is_wrong_is_named(void)
{
    refuses("{", ERR_SYNTAX, "");
    refuses("[]", ERR_INVALID, "");
    refuses("{}", ERR_MISSING, "chunks");
    refuses("{'chunks':'a'}", ERR_INVALID, "chunks");
    refuses("{'chunks':['a',1]}", ERR_INVALID, "chunks");
    refuses("{'text':1}", ERR_INVALID, "text");
    refuses("{'text':'a','tool_parser':1}", ERR_INVALID, "tool_parser");
    refuses("{'text':'a','tool_parser':'x'}", ERR_INVALID, "tool_parser");
    EXPECT(strstr(e.msg, "hermes_json") && strstr(e.msg, "function_gemma"));
    refuses("{'text':'a','thinking_parser':'x'}", ERR_INVALID, "thinking_parser");
    refuses("{'text':'a','tools':{}}", ERR_INVALID, "tools");
    refuses("{'text':'a','in_thinking':1}", ERR_INVALID, "in_thinking");
}

static void every_allocation_may_fail(void)
{
    uint64_t nth;

    for (nth = 1;; nth++) {
        struct parse_ask ask;
        struct buf out;
        uint64_t before = mem_failures();
        arena = arena_new(MB);
        buf_init(&out, MB);
        struct str body = quoted("{'tool_parser':'hermes_json','text':'<tool_call>{\\'name\\':"
                                 "\\'f\\',\\'arguments\\':{\\'a\\':[1]}}</tool_call> so'}");
        mem_fail_after(nth);
        int rc = parse_ask_read(&ask, body, arena, &e) || parse_answer(&out, &ask, &e);
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

TESTS(TEST(text_thinking_and_a_call), TEST(a_call_that_breaks_is_taken_back),
    TEST(where_it_begins_and_what_the_tools_say), TEST(what_is_wrong_is_named),
    TEST(every_allocation_may_fail))
