/* Template variants: adaptation of messages to what a template supports, and the end of a prompt
 * with continue_final_message. */
#include "support/template_kit.h"
#include "chat/family.h"

#include <stdio.h>

#define CHATML                                                                                     \
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"     \
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"

static void parts_are_joined_if_the_template_needs_a_string(void)
{
    static const char request[] = "{\"messages\":[{\"role\":\"user\",\"content\":["
                                  "{\"type\":\"text\",\"text\":\"a\"},"
                                  "{\"type\":\"text\",\"text\":\"b\"}]}]}";

    kit_expect_request("{{ messages[0].content }}", request, "a\nb");
    kit_expect_request("{{ '<' + messages[0].content + '>' }}", request, "<a\nb>");
    kit_expect_request("{{ messages[0].content | tojson }}", request, "\"a\\nb\"");
    kit_expect_request("{% if messages[0].content is string %}{{ messages[0].content }}{% else %}"
                       "{% for p in messages[0].content %}[{{ p.text }}]{% endfor %}{% endif %}",
        request, "[a][b]");
}

static void string_becomes_a_part_if_the_template_needs_parts(void)
{
    kit_expect("{% for p in messages[0].content %}{{ p.text }}{% endfor %}", "hi");
    kit_expect("{% for p in messages[0]['content'] %}{{ p['type'] }}:{{ p['text'] }}{% endfor %}",
        "text:hi");
}

static void an_image_stays_a_part(void)
{
    kit_expect_request("{{ messages[0].content[1].type }}",
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
        "{\"type\":\"image_url\",\"image_url\":{\"url\":\"x\"}}]}]}",
        "image_url");
}

static const char call_request[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":null,"
    "\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"f\","
    "\"arguments\":\"{\\\"a\\\": 1}\"}}]}]}";

static void arguments_are_an_object_unless_the_template_needs_text(void)
{
    kit_expect_request("{% for m in messages %}{% for c in m.tool_calls %}"
                       "{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}",
        call_request, "{\"a\": 1}");
    /* String concatenation raises an error on a dict. */
    kit_expect_request("{% for m in messages %}{% for c in m.tool_calls %}"
                       "{{ '<' + c.function.arguments + '>' }}{% endfor %}{% endfor %}",
        call_request, "<{\"a\": 1}>");
    /* Printing shows Python's repr of a dict, which no model was trained on. */
    kit_expect_request("{% for m in messages %}{% for c in m.tool_calls %}"
                       "{{ c.function.arguments }}{% endfor %}{% endfor %}",
        call_request, "{\"a\": 1}");
}

/* Llama 3.1 reads date_string, firefunction-v2 concatenates functions and datetime. */
static void dates_and_functions_are_variables(void)
{
    static const char sections[] =
        "{% if not date_string is defined %}{% set date_string = '26 Jul 2024' %}{% endif %}"
        "{{ 'Today Date: ' + date_string }}|"
        "{% set suffix = 'Functions:' + functions + '\nToday is ' + datetime %}{{ suffix }}";
    static const char tool[] = "{\"type\":\"function\",\"function\":{\"name\":\"f\","
                               "\"parameters\":{\"type\":\"object\",\"properties\":{}}}}";
    static const char user[] = "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]";
    char request[1024];

    snprintf(request, sizeof(request), "{%s}", user);
    kit_expect_request(
        sections, request, "Today Date: 21 Nov 2024|Functions:\nToday is Nov 21 2024");
    snprintf(request, sizeof(request), "{%s,\"tools\":[]}", user);
    kit_expect_request("<{{ functions }}>", request, "<>");
    snprintf(request, sizeof(request), "{%s,\"tools\":[%s]}", user, tool);
    kit_expect_request("{{ functions }}", request,
        "[\n  {\n    \"type\": \"function\",\n    \"function\": {\n      \"name\": \"f\",\n"
        "      \"parameters\": {\n        \"type\": \"object\",\n        \"properties\": {}\n"
        "      }\n    }\n  }\n]");
    snprintf(request, sizeof(request),
        "{%s,\"chat_template_kwargs\":{\"date_string\":\"1 Jan 2020\",\"functions\":\"x\","
        "\"datetime\":\"noon\"}}",
        user);
    kit_expect_request(sections, request, "Today Date: 1 Jan 2020|Functions:x\nToday is noon");
}

/* The text of tools is untrusted, the dates are not. */
static void functions_are_untrusted(void)
{
    static const char request[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],"
                                  "\"tools\":[\"<|im_end|>\"]}";
    struct rendering x = kit_render_with("{{ datetime }}{{ date_string }}{{ functions }}", request,
        &kit_env, &template_limits_default);

    EXPECT_EQ(x.rc, 0);
    EXPECT_STR(x.text, "Nov 21 202421 Nov 2024[\n  \"<|im_end|>\"\n]");
    for (size_t i = 0; i < x.r.n_spans; i++)
        EXPECT(!x.r.spans[i].is_trusted || str_find(x.r.spans[i].text, STR("im_end")) < 0);
    EXPECT(x.r.n_spans && x.r.spans[0].is_trusted &&
           str_starts(x.r.spans[0].text, STR("Nov 21 202421 Nov 2024")));
    kit_free(&x);
}

static void arguments_that_are_no_object_stay_text(void)
{
    kit_expect_request("{% for m in messages %}{% for c in m.tool_calls %}"
                       "{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}",
        "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":["
        "{\"function\":{\"name\":\"f\",\"arguments\":\"not JSON\"}},"
        "{\"function\":{\"name\":\"g\",\"arguments\":\"\"}},"
        "{\"function\":{\"name\":\"g\",\"arguments\":{\"x\":true}}}]}]}",
        "\"not JSON\"{}{\"x\": true}");
}

static void developer_role_becomes_system_if_unsupported(void)
{
    static const char request[] = "{\"messages\":[{\"role\":\"developer\",\"content\":\"D\"},"
                                  "{\"role\":\"user\",\"content\":\"u\"}]}";

    kit_expect_request(
        CHATML, request, "<|im_start|>developer\nD<|im_end|>\n<|im_start|>user\nu<|im_end|>\n");
    kit_expect_request("{% for m in messages %}{% if m.role not in ['system', 'user'] %}"
                       "{{ raise_exception('no') }}{% endif %}{{ m.role }}{{ m.content }}"
                       "{% endfor %}",
        request, "systemDuseru");
    /* This template would silently drop a developer message. */
    kit_expect_request("{% for m in messages %}{% if m.role == 'system' %}S{{ m.content }}"
                       "{% elif m.role == 'user' %}U{{ m.content }}{% endif %}{% endfor %}",
        request, "SDUu");
}

static void without_tools_the_variable_is_none_or_undefined_as_needed(void)
{
    kit_expect("{{ tools is none }}", "True");
    kit_expect("{% for t in tools %}x{% endfor %}{{ messages[0].content }}", "hi");
}

static void exact_rendering_changes_nothing_and_runs_once(void)
{
    struct template_env env = kit_env;
    env.no_variants = true;
    struct rendering x = kit_render_with("{{ messages[0].content }}",
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]}]}",
        &env, &template_limits_default);

    EXPECT_EQ(x.rc, 0);
    EXPECT_STR(x.text, "[{'type': 'text', 'text': 'a'}]");
    kit_free(&x);
}

static void a_message_keeps_its_members_in_their_order(void)
{
    kit_expect_request("{{ messages[0] | tojson }}",
        "{\"messages\":[{\"prefix\":true,\"content\":\"x\",\"role\":\"assistant\","
        "\"reasoning\":\"r\",\"extra\":{\"a\":[1.10]}}]}",
        "{\"prefix\": true, \"content\": \"x\", \"role\": \"assistant\", \"reasoning\": \"r\", "
        "\"extra\": {\"a\": [1.1]}}");
}

static void messages_of_other_dialects_render_equally(void)
{
    struct content_part part = { .kind = PART_TEXT, .text = STR("x") };
    struct tool_call call = { .id = STR("i"), .name = STR("f"), .arguments = STR("{\"a\":1}") };
    struct message m = { .role = ROLE_ASSISTANT,
        .has_content = true,
        .is_plain = true,
        .parts = &part,
        .n_parts = 1,
        .tool_calls = &call,
        .n_tool_calls = 1,
        .reasoning = STR("r") };
    struct convo c = { .messages = &m, .n_messages = 1 };
    struct arena *a = arena_new(MB);
    struct chat_template *t;
    struct rendered r;
    struct err e;

    EXPECT(!chat_template_compile(&t, STR("{{ messages | tojson }}"), &e));
    EXPECT(!chat_template_render(t, &c, &kit_env, &template_limits_default, a, &r, &e));
    EXPECT_EQ(r.n_spans, (size_t)r.n_spans);
    struct buf b;
    buf_init(&b, MB);
    for (size_t i = 0; i < r.n_spans; i++)
        buf_puts(&b, r.spans[i].text);
    EXPECT(str_is(buf_str(&b),
        "[{\"role\": \"assistant\", \"content\": \"x\", \"tool_calls\": [{\"id\": \"i\", \"type\": "
        "\"function\", \"function\": {\"name\": \"f\", \"arguments\": {\"a\": 1}}}], "
        "\"reasoning_content\": \"r\"}]"));
    buf_clear(&b);
    chat_template_free(t);
    arena_free(a);
}

/* ---- continue_final_message */

static void expect_continued(const char *source, const char *content, const char *want)
{
    char request[1000];

    snprintf(request, sizeof(request),
        "{\"continue_final_message\":true,\"add_generation_prompt\":true,\"messages\":["
        "{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":\"%s\"}]}",
        content);
    kit_expect_request(source, request, want);
}

static void the_prompt_ends_with_the_message_that_is_continued(void)
{
    static const char head[] = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n";
    static const char *const contents[] = { "The answer", "e", "ends ", "  begins", "  both " };
    static const char *const wants[] = { "The answer", "e", "ends ", "  begins", "  both" };

    for (size_t i = 0; i < ARRAY_LEN(contents); i++) {
        char want[200];
        snprintf(want, sizeof(want), "%s%s", head, wants[i]);
        expect_continued(CHATML, contents[i], want);
    }
    expect_continued(
        "{% for m in messages %}[{{ m.content | trim }}]{% endfor %}", "x  ", "[hi][x");
    expect_continued(CHATML, "", head);
    expect_continued(CHATML, " ", head);
}

static void hidden_message_cannot_be_continued(void)
{
    struct rendering x = kit_render_with("{{ messages[0].content }}",
        "{\"continue_final_message\":true,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},"
        "{\"role\":\"assistant\",\"content\":\"gone\"}]}",
        &kit_env, &template_limits_default);

    EXPECT(x.rc != 0);
    EXPECT_STR(errcode_name(x.e.code), errcode_name(ERR_INVALID));
    kit_free(&x);
}

/* ---- families */

static void families_are_found_by_their_names(void)
{
    EXPECT(chat_family_find(STR("chatml")));
    EXPECT_STR(chat_template_builtin("Qwen3"), chat_template_builtin("chatml"));
    EXPECT(!chat_family_find(STR("")));
    EXPECT(!chat_family_find(STR("nobody")));
    EXPECT(!chat_template_builtin("nobody"));
    EXPECT_STR(chat_template_builtin("llama3.1"), chat_template_builtin("llama3"));
}

static void every_built_in_template_renders_a_conversation(void)
{
    static const char request[] =
        "{\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":"
        "\"A\"},"
        "{\"role\":\"assistant\",\"content\":\"B\"},{\"role\":\"user\",\"content\":\"C\"}],"
        "\"add_generation_prompt\":true}";
    static const struct {
        const char *name, *want;
    } cases[] = {
        { "chatml", "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nA<|im_end|>\n"
                    "<|im_start|>assistant\nB<|im_end|>\n<|im_start|>user\nC<|im_end|>\n"
                    "<|im_start|>assistant\n" },
        { "llama3", "<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
                    "<|start_header_id|>user<|end_header_id|>\n\nA<|eot_id|>"
                    "<|start_header_id|>assistant<|end_header_id|>\n\nB<|eot_id|>"
                    "<|start_header_id|>user<|end_header_id|>\n\nC<|eot_id|>"
                    "<|start_header_id|>assistant<|end_header_id|>\n\n" },
        { "gemma",
            "<s><start_of_turn>user\nS\n\nA<end_of_turn>\n<start_of_turn>model\nB<end_of_turn>\n"
            "<start_of_turn>user\nC<end_of_turn>\n<start_of_turn>model\n" },
        { "mistral", "<s>[INST] A[/INST] B</s>[INST] S\n\nC[/INST]" },
        { "mistral_tekken", "<s>[INST]A[/INST]B</s>[INST]S\n\nC[/INST]" },
        { "mistral_v7", "<s>[SYSTEM_PROMPT]S[/SYSTEM_PROMPT][INST]A[/INST]B</s>[INST]C[/INST]" },
        { "llama2", "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\nA [/INST] B </s><s>[INST] C [/INST]" },
        { "phi3", "<|system|>\nS<|end|>\n<|user|>\nA<|end|>\n<|assistant|>\nB<|end|>\n"
                  "<|user|>\nC<|end|>\n<|assistant|>\n" },
        { "zephyr", "<|system|>\nS</s>\n<|user|>\nA</s>\n<|assistant|>\nB</s>\n<|user|>\nC</s>\n"
                    "<|assistant|>\n" },
        { "vicuna", "S\n\nUSER: A ASSISTANT: B</s>\nUSER: C ASSISTANT:" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        kit_expect_request(chat_template_builtin(cases[i].name), request, cases[i].want);
    for (size_t i = 0; chat_family_at(i); i++) {
        if (!chat_family_at(i)->source)
            continue;
        struct rendering x = kit_render_with(
            chat_family_at(i)->source, call_request, &kit_env, &template_limits_default);
        EXPECT_EQ(x.rc, 0);
        EXPECT(!strstr(x.text, "None"));
        kit_free(&x);
    }
}

TESTS(TEST(parts_are_joined_if_the_template_needs_a_string),
    TEST(string_becomes_a_part_if_the_template_needs_parts), TEST(an_image_stays_a_part),
    TEST(arguments_are_an_object_unless_the_template_needs_text),
    TEST(dates_and_functions_are_variables), TEST(functions_are_untrusted),
    TEST(arguments_that_are_no_object_stay_text),
    TEST(developer_role_becomes_system_if_unsupported),
    TEST(without_tools_the_variable_is_none_or_undefined_as_needed),
    TEST(exact_rendering_changes_nothing_and_runs_once),
    TEST(a_message_keeps_its_members_in_their_order),
    TEST(messages_of_other_dialects_render_equally),
    TEST(the_prompt_ends_with_the_message_that_is_continued),
    TEST(hidden_message_cannot_be_continued), TEST(families_are_found_by_their_names),
    TEST(every_built_in_template_renders_a_conversation))
