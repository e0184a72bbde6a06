/* Tools without the members that the APIs make optional: no chat template fails on them, and a
 * template that renders them gets them unchanged. */
#include "support/adapter_kit.h"

#define TOOL(members)    "{\"type\":\"function\",\"function\":{\"name\":\"zqxtool\"" members "}}"
#define PROPERTIES(each) ",\"parameters\":{\"type\":\"object\",\"properties\":{" each "}}"
#define WHOLE                                                                                      \
    TOOL(",\"description\":\"D\"" PROPERTIES(                                                      \
        "\"zqxcity\":{\"type\":\"string\",\"description\":\"c\"}") ",\"strict\":true")

static const char *const tools[] = {
    WHOLE,
    TOOL(""),
    TOOL(",\"description\":\"D\""),
    TOOL(",\"description\":null,\"parameters\":null,\"strict\":null"),
    TOOL(",\"parameters\":{}"),
    TOOL(",\"parameters\":{\"type\":\"object\"}"),
    TOOL(",\"description\":\"D\",\"parameters\":{\"properties\":{}}"),
    TOOL(PROPERTIES("")),
    TOOL(PROPERTIES("\"zqxcity\":{}")),
    TOOL(PROPERTIES("\"zqxcity\":{\"type\":\"string\"}")),
    TOOL(PROPERTIES("\"zqxcity\":{\"description\":\"c\"}")),
    TOOL(PROPERTIES("\"zqxcity\":{\"enum\":[\"a\",\"b\"]}")),
    TOOL(PROPERTIES("\"zqxcity\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}")),
    TOOL(PROPERTIES("\"zqxcity\":{\"type\":\"array\"}")),
    TOOL(PROPERTIES("\"zqxcity\":{\"type\":\"object\"}")),
    WHOLE "," TOOL(""),
    TOOL("") "," WHOLE,
};

static const char *const messages[] = {
    "{\"role\":\"user\",\"content\":\"hi\"}",
    "{\"role\":\"system\",\"content\":\"be brief\"},{\"role\":\"user\",\"content\":\"hi\"}",
};

static void check_template(const char *source, const char *name, void *ctx)
{
    struct adapter_fixture f = adapter_fixture_open(source, &(struct adapter_options){ 0 });
    char request[2048];

    EXPECT(!f.rc);
    for (size_t m = 0; m < ARRAY_LEN(messages); m++)
        for (size_t i = 0; i < ARRAY_LEN(tools); i++) {
            struct arena *a = arena_new(64 * MB);
            struct rendered r;
            struct err e;
            snprintf(request, sizeof(request),
                "{\"add_generation_prompt\":true,\"messages\":[%s],\"tools\":[%s]}", messages[m],
                tools[i]);
            struct convo c = kit_parse_convo(str_of(request), a);
            if (adapter_render(f.adapter, &c, &kit_when, a, &r, &e)) {
                fprintf(stderr, "%s: [%s]: %s\n", name, tools[i], e.msg);
                *(int *)ctx += 1;
            } else {
                EXPECT(str_find((struct str){ r.spans[0].text.p, r.n_bytes }, STR("zqxtool")) >= 0);
            }
            arena_free(a);
        }
    adapter_fixture_close(&f);
}

static void every_template_renders_tools_without_optional_members(void)
{
    int n_failed = 0;

    if (!kit_each_template(check_template, &n_failed))
        printf("skipped: no templates\n");
    EXPECT_EQ(n_failed, 0);
}

/* ---- single members */

static void expect_prompt(const char *source, const char *tool, const char *want)
{
    char request[2048];

    snprintf(request, sizeof(request), "{\"messages\":[%s],\"tools\":[%s]}", messages[0], tool);
    kit_expect_request(source, request, want);
}

static void a_template_that_renders_gets_the_tools_unchanged(void)
{
    static const char source[] = "{{ tools | tojson(separators=(',', ':')) }}"
                                 "{{ tools[0].function.description }}";
    char want[1024];

    for (size_t i = 1; i < ARRAY_LEN(tools) - 2; i++) {
        bool has_text = strstr(tools[i], ",\"description\":\"D\"");
        bool has_null = strstr(tools[i], ",\"description\":null");
        snprintf(want, sizeof(want), "[%s]%s", tools[i], has_text ? "D" : has_null ? "None" : "");
        expect_prompt(source, tools[i], want);
    }
}

/* Concatenation fails on an undefined or null member. */
static void absent_members_have_defaults_where_a_template_fails(void)
{
    static const char source[] =
        "{% for t in tools %}{% set f = t.function %}{% set p = f.parameters %}"
        "{{ '[' + f.description + '|' + p.type + '|' + p.properties | tojson + '|' }}"
        "{{ f.strict | tojson + ']' }}{% endfor %}";
    static const struct {
        const char *tool, *want;
    } cases[] = {
        { TOOL(""), "[|object|{}|false]" },
        { TOOL(",\"description\":null,\"parameters\":null,\"strict\":null"), "[|object|{}|false]" },
        { TOOL(",\"parameters\":{\"type\":\"object\"},\"strict\":true"), "[|object|{}|true]" },
        { TOOL(",\"parameters\":{\"properties\":{}}"), "[|object|{}|false]" },
        { TOOL(",\"description\":\"D\",\"parameters\":{\"type\":\"x\"}"), "[D|x|{}|false]" },
        { TOOL("") "," TOOL(",\"description\":\"D\""), "[|object|{}|false][D|object|{}|false]" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        expect_prompt(source, cases[i].tool, cases[i].want);
    expect_prompt("{{ '<' + tools[0].function.parameters.properties.c.description + '>' }}",
        TOOL(PROPERTIES("\"c\":{\"type\":\"string\"}")), "<>");
}

static void defaults_combine_with_the_other_variants(void)
{
    static const char source[] =
        "{% for m in messages %}"
        "{% if m.role == 'developer' %}{{ raise_exception('role') }}{% endif %}"
        "{% for c in m.tool_calls or [] %}{{ '<' + c.function.arguments + '>' }}{% endfor %}"
        "{% endfor %}{{ '[' + tools[0].function.description + ']' }}";

    kit_expect_request(source,
        "{\"messages\":[{\"role\":\"developer\",\"content\":\"x\"},{\"role\":\"assistant\","
        "\"content\":null,\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":"
        "{\"name\":\"f\",\"arguments\":\"{}\"}}]}],\"tools\":[" TOOL("") "]}",
        "<{}>[]");
}

static void the_error_of_the_first_attempt_is_reported(void)
{
    static const char request[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":[" TOOL("") "]}";
    static const char source[] = "{% if tools[0].function.description is defined %}"
                                 "{{ raise_exception('second') }}{% endif %}"
                                 "{{ raise_exception('first') }}";
    struct template_env exact = kit_env;

    struct rendering x = kit_render_with(source, request, &kit_env, &template_limits_default);
    EXPECT_EQ(x.rc, -1);
    EXPECT_STR(x.e.msg, "first");
    kit_free(&x);
    exact.no_variants = true;
    x = kit_render_with(
        "{{ '' + tools[0].function.description }}", request, &exact, &template_limits_default);
    EXPECT_EQ(x.rc, -1);
    kit_free(&x);
}

TESTS(TEST(every_template_renders_tools_without_optional_members),
    TEST(a_template_that_renders_gets_the_tools_unchanged),
    TEST(absent_members_have_defaults_where_a_template_fails),
    TEST(defaults_combine_with_the_other_variants),
    TEST(the_error_of_the_first_attempt_is_reported))
