/* Normalisation of tool lists and tool_choice. Bodies are written with ' for ". */
#include "support/dialect_kit.h"

#include "api/common/tools.h"

#define HI   "'messages':[{'role':'user','content':'hi'}]"
#define F(x) "{'type':'function','function':{'name':'" x "'}}"
#define FGH  "'tools':[" F("f") "," F("g") "," F("h") "]"

static int parse_tools(const char *more)
{
    char body[4000];

    snprintf(body, sizeof(body), "{" HI ",%s}", more);
    return kit_parse_request(&dialect_openai_chat, body);
}

static const char *json_z(const struct json *j)
{
    static char out[2000];
    struct buf b;
    struct jw w;

    buf_init(&b, sizeof(out));
    jw_init(&w, &b);
    if (j)
        jw_json(&w, j);
    snprintf(out, sizeof(out), STR_FMT, STR_ARG(b));
    buf_clear(&b);
    for (char *c = out; *c; c++)
        *c = *c == '"' ? '\'' : *c;
    return out;
}

/* "f,g": names of the tools that the template receives. */
static const char *visible_tools(void)
{
    static char out[200];
    const struct json *tools = kit.request.convo.tools;
    size_t n = 0;

    out[0] = 0;
    for (const struct json *t = tools ? tools->child : NULL; t; t = t->next)
        n += (size_t)snprintf(out + n, sizeof(out) - n, "%s%s", n ? "," : "",
            kit_cstr(json_get(json_get(t, "function"), "name")->s));
    return out;
}

static void tools_keep_their_members_and_get_parameters(void)
{
    EXPECT_EQ(parse_tools(
                  "'tools':[{'type':'function','function':{'description':'d','name':'f','strict':"
                  "true,'parameters':{'type':'object','$defs':{'x':1},'properties':{}}},'own':1}]"),
        0);
    EXPECT_STR(json_z(kit.request.tools),
        "[{'type':'function','function':{'description':'d','name':'f','strict':true,'parameters':"
        "{'type':'object','$defs':{'x':1},'properties':{}}},'own':1}]");
    EXPECT_EQ(
        parse_tools(
            "'tools':[{'function':{'name':'f','parameters':null}},{'function':{'name':'g'}}]"),
        0);
    EXPECT_STR(json_z(kit.request.tools),
        "[{'type':'function','function':{'name':'f','parameters':{'type':'object','properties':{}}"
        "}},{'type':'function','function':{'name':'g','parameters':{'type':'object','properties':"
        "{}}}}]");
    EXPECT_EQ((int)kit.request.tools->n, 2);
    EXPECT(kit.request.tools->raw.n > 20);
}

static void tool_choice_is_normalised(void)
{
    static const struct {
        const char *more;
        enum tool_choice choice;
        const char *name, *visible;
    } rows[] = {
        { "'n':1", TOOL_CHOICE_NONE, "", "" },
        { "'tools':[]", TOOL_CHOICE_NONE, "", "" },
        { "'tools':[],'tool_choice':'auto'", TOOL_CHOICE_NONE, "", "" },
        { FGH, TOOL_CHOICE_AUTO, "", "f,g,h" },
        { FGH ",'tool_choice':null", TOOL_CHOICE_AUTO, "", "f,g,h" },
        { FGH ",'tool_choice':'none'", TOOL_CHOICE_NONE, "", "" },
        { FGH ",'tool_choice':'required'", TOOL_CHOICE_REQUIRED, "", "f,g,h" },
        { FGH ",'tool_choice':'any'", TOOL_CHOICE_REQUIRED, "", "f,g,h" },
        { FGH ",'tool_choice':" F("g"), TOOL_CHOICE_NAMED, "g", "f,g,h" },
        { FGH ",'tool_choice':{'type':'function','name':'g'}", TOOL_CHOICE_NAMED, "g", "f,g,h" },
        { FGH ",'tool_choice':{'type':'allowed_tools','allowed_tools':{'mode':'auto','tools':"
              "[" F("h") "," F("f") "]}}",
            TOOL_CHOICE_AUTO, "", "f,h" },
        { FGH ",'tool_choice':{'type':'allowed_tools','mode':'required','tools':"
              "[{'type':'function','name':'h'}]}",
            TOOL_CHOICE_REQUIRED, "", "h" },
        { "'functions':[{'name':'f'},{'name':'g'}]", TOOL_CHOICE_AUTO, "", "f,g" },
        { "'functions':[{'name':'f'}],'function_call':'none'", TOOL_CHOICE_NONE, "", "" },
        { "'functions':[{'name':'f'}],'function_call':{'name':'f'}", TOOL_CHOICE_NAMED, "f", "f" },
        { FGH ",'functions':[{'name':'x'}]", TOOL_CHOICE_AUTO, "", "f,g,h" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        EXPECT_EQ(parse_tools(rows[i].more), 0);
        if (kit.request.tool_choice != rows[i].choice)
            fprintf(stderr, "%s\n", rows[i].more);
        EXPECT(kit.request.tool_choice == rows[i].choice);
        EXPECT_STR(kit_cstr(kit.request.tool_name), rows[i].name);
        EXPECT_STR(visible_tools(), rows[i].visible);
    }
}

static void impossible_tool_choice_is_rejected(void)
{
    static const struct kit_row rows[] = {
        { "{" HI ",'tool_choice':'required'}", ERR_INVALID, "tool_choice" },
        { "{" HI ",'tools':[],'tool_choice':" F("f") "}", ERR_INVALID, "tool_choice" },
        { "{" HI "," FGH ",'tool_choice':" F("x") "}", ERR_INVALID, "tool_choice" },
        { "{" HI "," FGH
          ",'tool_choice':{'type':'allowed_tools','mode':'auto','tools':[" F("x") "]}}",
            ERR_INVALID, "tool_choice" },
        { "{" HI "," FGH ",'tool_choice':{'type':'allowed_tools','mode':'auto','tools':[]}}",
            ERR_INVALID, "tool_choice.tools" },
        { "{" HI "," FGH ",'tool_choice':{'type':'allowed_tools','mode':'all','tools':[]}}",
            ERR_INVALID, "tool_choice.mode" },
        { "{" HI "," FGH ",'tool_choice':{'type':'custom','custom':{'name':'f'}}}", ERR_UNSUPPORTED,
            "tool_choice.type" },
        { "{" HI ",'functions':[{'name':'f'}],'function_call':{'name':'g'}}", ERR_INVALID,
            "tool_choice" },
        { "{" HI ",'functions':[{'name':'f'}],'function_call':{}}", ERR_MISSING,
            "function_call.name" },
        { "{" HI ",'tools':[{'type':'function','function':{'name':'a\\nb'}}]}", ERR_INVALID,
            "tools[0].function.name" },
    };

    kit_check_rows(&dialect_openai_chat, rows, ARRAY_LEN(rows));
}

static void too_many_tools_are_refused(void)
{
    struct buf b;

    buf_init(&b, MB);
    buf_putz(&b, "{" HI ",'tools':[");
    for (int i = 0; i <= REQUEST_TOOLS_MAX; i++)
        buf_putz(&b, i ? "," F("f") : F("f"));
    buf_putz(&b, "]}");
    buf_putc(&b, 0);
    EXPECT_EQ(kit_parse_request(&dialect_openai_chat, b.p), -1);
    EXPECT(kit.e.code == ERR_RANGE);
    EXPECT_STR(kit.e.param, "tools");
    buf_clear(&b);
}

static void callable_tools_are_listed(void)
{
    EXPECT_EQ(parse_tools(FGH), 0);
    EXPECT(tools_is_allowed(&kit.request, STR("f")) && tools_is_allowed(&kit.request, STR("x")));
    EXPECT_EQ(parse_tools(FGH ",'tool_choice':'required'"), 0);
    EXPECT(tools_is_allowed(&kit.request, STR("f")) && !tools_is_allowed(&kit.request, STR("x")));
    EXPECT_EQ(parse_tools(FGH ",'tool_choice':" F("g")), 0);
    EXPECT(!tools_is_allowed(&kit.request, STR("f")) && tools_is_allowed(&kit.request, STR("g")));
    EXPECT_EQ(parse_tools(FGH ",'tool_choice':'none'"), 0);
    EXPECT(!tools_is_allowed(&kit.request, STR("f")));
    kit_close_response();
}

TESTS(TEST(tools_keep_their_members_and_get_parameters), TEST(tool_choice_is_normalised),
    TEST(impossible_tool_choice_is_rejected), TEST(too_many_tools_are_refused),
    TEST(callable_tools_are_listed))
