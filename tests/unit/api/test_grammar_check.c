/* /v1/grammar/check: request body and response. Both are written with ' for ". */
#include "support/check.h"

#include "api/grammar_check.h"
#include "base/mem.h"

static struct arena *arena;
static struct grammar_check request;
static struct err e;

static char *swap(struct str text, char from, char to)
{
    char *copy = (char *)(uintptr_t)arena_str(arena, text).p;

    for (char *c = copy; *c; c++)
        *c = *c == from ? to : *c;
    return copy;
}

static int read_body(const char *body)
{
    arena_free(arena);
    arena = arena_new(16 * MB);
    e = (struct err){ 0 };
    return grammar_check_read(&request, str_of(swap(str_of(body), '\'', '"')), arena, &e);
}

static void expect_text(const char *body, const char *want)
{
    if (read_body(body))
        fprintf(stderr, "%s: %s\n", body, e.msg);
    EXPECT_STR(swap(request.text, '"', '\''), want);
}

static void an_instance_is_written_compactly(void)
{
    expect_text("{'schema':{},'instance':{ 'a' : [ 1.0, 1e2, 2.50, true , null], 'b':{},'c':[]}}",
        "{'a':[1,100,2.50,true,null],'b':{},'c':[]}");
    EXPECT(request.source.any_order && request.source.whitespace == JSON_WS_COMPACT);
    expect_text("{'schema':true,'instance':null}", "null");
    expect_text("{'schema':{},'instance':'a\\nb\\u00e9'}", "'a\\nb\xC3\xA9'");
    expect_text("{'schema':{},'instance':[[],[{}],{'a':{'b':1}},[1,[2]]]}",
        "[[],[{}],{'a':{'b':1}},[1,[2]]]");
    expect_text("{'schema':{},'instance':123456789012345678901234567890}",
        "123456789012345678901234567890");
}

static void every_source_is_read(void)
{
    static const struct {
        const char *body, *field;
        enum constraint_kind kind;
    } rows[] = {
        { "{'schema':{},'text':'x'}", "schema", CONSTRAINT_JSON_SCHEMA },
        { "{'gbnf':'a','text':'x'}", "gbnf", CONSTRAINT_GBNF },
        { "{'lark':'a','text':'x'}", "lark", CONSTRAINT_LARK },
        { "{'regex':'a','text':'x'}", "regex", CONSTRAINT_REGEX },
        { "{'choice':['a'],'text':'x'}", "choice", CONSTRAINT_CHOICE },
        { "{'structural_tag':{},'text':'x'}", "structural_tag", CONSTRAINT_STRUCTURAL_TAG },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        expect_text(rows[i].body, "x");
        EXPECT(request.source.kind == rows[i].kind);
        EXPECT_STR(request.field, rows[i].field);
    }
    expect_text("{'model':'m','regex':'a','text':'','any_order':true,'closed_objects':true,"
                "'whitespace':'any'}",
        "");
    EXPECT(request.source.any_order && request.source.closed_objects &&
           request.source.whitespace == JSON_WS_ANY && str_is(request.model, "m"));
}

static void wrong_member_is_named(void)
{
    static const struct {
        const char *body;
        enum errcode code;
        const char *param;
    } rows[] = {
        { "{}", ERR_MISSING, "schema" },
        { "[]", ERR_INVALID, "" },
        { "{'regex':'a'}", ERR_MISSING, "text" },
        { "{'schema':{},'text':'a','instance':1}", ERR_INVALID, "text" },
        { "{'regex':'a','instance':1}", ERR_INVALID, "instance" },
        { "{'regex':7,'text':'a'}", ERR_INVALID, "regex" },
        { "{'schema':'{}','text':'a'}", ERR_INVALID, "schema" },
        { "{'choice':'a','text':'a'}", ERR_INVALID, "choice" },
        { "{'regex':'a','gbnf':'b','text':'a'}", ERR_INVALID, "regex" },
        { "{'regex':'a','text':7}", ERR_INVALID, "text" },
        { "{'regex':'a','text':'a','whitespace':'none'}", ERR_INVALID, "whitespace" },
        { "{'regex':'a','text':'a','any_order':1}", ERR_INVALID, "any_order" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        EXPECT_EQ(read_body(rows[i].body), -1);
        if (e.code != rows[i].code || strcmp(e.param, rows[i].param))
            fprintf(stderr, "%s: %s '%s'\n", rows[i].body, errcode_name(e.code), e.param);
        EXPECT(e.code == rows[i].code);
        EXPECT_STR(e.param, rows[i].param);
    }
}

static void expect_response(struct grammar_check_result r, const char *want)
{
    struct buf out;

    buf_init(&out, MB);
    grammar_check_put_response(&out, &request, &r);
    EXPECT_STR(swap(buf_str(&out), '"', '\''), want);
    buf_clear(&out);
}

static void a_rejection_has_its_place_and_reason(void)
{
    expect_text("{'regex':'a','text':'ab'}", "ab");
    expect_response((struct grammar_check_result){ true, 2, 5000, 1999 },
        "{'accepted':true,'at':null,'reason':null,'compile_us':5,'mask_us_max':1}");
    expect_response((struct grammar_check_result){ false, 1, 0, 0 },
        "{'accepted':false,'at':1,'reason':'the byte at this offset is not permitted',"
        "'compile_us':0,'mask_us_max':0}");
    expect_response((struct grammar_check_result){ false, 2, 0, 0 },
        "{'accepted':false,'at':2,'reason':'the text ends before it is complete',"
        "'compile_us':0,'mask_us_max':0}");
    arena_free(arena);
    arena = NULL;
}

TESTS(TEST(an_instance_is_written_compactly), TEST(every_source_is_read),
    TEST(wrong_member_is_named), TEST(a_rejection_has_its_place_and_reason))
