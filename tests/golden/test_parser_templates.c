/* A model learns to write tool calls in the form in which its chat template renders them: a
 * rendered assistant message, cut out and parsed by the model's parsers, gives the same calls. */
#include "support/parser_kit.h"
#include "support/template_kit.h"

#include <stdlib.h>

#define ASSISTANT                                                                                  \
    "<\xEF\xBD\x9C"                                                                                \
    "Assistant\xEF\xBD\x9C>"

struct template_case {
    const char *file, *tool, *thinking;
    const char *head, *tail; /* the output is after the last head and before the last tail */
    bool one;                /* the template accepts one call per message */
    bool wants_null;         /* absent content must be null, otherwise it is rendered */
};

static const struct template_case models[] = {
    { "CohereForAI-c4ai-command-r7b-12-2024-tool_use", "command_r", "command_r",
        "<|CHATBOT_TOKEN|><|START_THINKING|>", "<|END_OF_TURN_TOKEN|>", false },
    { "GLM-4.6", "glm45", "think_tag", "<|assistant|>", "", false },
    { "GLM-4.7-Flash", "glm4_native", "think_tag", "<|assistant|>", "", false },
    { "Kimi-K2-Instruct", "kimi_k2", "kimi_k2", "<|im_assistant|>assistant<|im_middle|>",
        "<|im_end|>", false },
    { "MiniMax-M2", "minimax_m2", "minimax_m2", "]~b]ai\n", "[e~[", false },
    { "NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "hermes_json", "null", "<|im_start|>assistant",
        "<|im_end|>", false },
    { "Qwen-Qwen2.5-7B-Instruct", "hermes_json", "null", "<|im_start|>assistant", "<|im_end|>",
        false },
    { "Qwen-Qwen3-0.6B", "hermes_json", "think_tag", "<|im_start|>assistant", "<|im_end|>", false },
    { "Qwen3-Coder", "qwen3_coder", "null", "<|im_start|>assistant", "<|im_end|>", false },
    { "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek_v3", "think_tag", ASSISTANT,
        "<\xEF\xBD\x9C"
        "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
        false, true },
    { "deepseek-ai-DeepSeek-V3.1", "deepseek_v31", "deepseek_v3", ASSISTANT,
        "<\xEF\xBD\x9C"
        "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
        false, true },
    { "meta-llama-Llama-3.1-8B-Instruct", "llama3_json", "null", "<|end_header_id|>\n\n",
        "<|eot_id|>", true },
    { "meta-llama-Llama-3.2-3B-Instruct", "llama3_json", "null", "<|end_header_id|>\n\n",
        "<|eot_id|>", true },
    { "mistralai-Mistral-Nemo-Instruct-2407", "mistral", "null", "[/INST]", "</s>", false },
    { "openai-gpt-oss-120b", "harmony", "harmony", "<|start|>assistant", "", true },
};

#define CALL(id, args)                                                                             \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"get_weather\","             \
    "\"arguments\":" args "}}"

#define TOOLS                                                                                      \
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":\"Tells "      \
    "it.\","                                                                                       \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\","           \
    "\"description\":\"Where.\"},\"days\":{\"type\":\"integer\",\"description\":\"How "            \
    "many.\"}}}}}]"

static const char *const arguments[] = {
    "{\"city\": \"S\\u00e3o \\\"Paulo\\\" \\ud83d\\ude00\\nand <b>more</b>\", \"days\": 3}",
    "{\"city\": \"\", \"tags\": [\"a\", {\"b\": 1.5}], \"deep\": {\"x\": [], \"y\": {}}}",
};

static char *read_template(const char *name)
{
    const char *shared = getenv("SHARED_DATA");
    char path[512], *text = calloc(1, 64 * 1024);

    snprintf(path, sizeof(path), "%s/templates/%s.jinja", shared ? shared : "../shared/data", name);
    FILE *in = fopen(path, "rb");
    EXPECT(text != NULL);
    if (!in) {
        free(text);
        return NULL;
    }
    EXPECT(fread(text, 1, 64 * 1024 - 1, in) > 0);
    fclose(in);
    return text;
}

/* Returns the text after the last head that has a tail after it, up to that tail. */
static struct str last_between(const char *text, const char *head, const char *tail)
{
    const char *from = NULL, *to = NULL;

    for (const char *p = text; (p = strstr(p, head)); p++) {
        const char *end = strstr(p + strlen(head), tail);
        if (!end)
            break;
        from = p + strlen(head);
        to = tail[0] ? end : from + strlen(from);
    }
    EXPECT(from != NULL);
    return (struct str){ from, (size_t)(to - from) };
}

static void expect_read_back(const struct template_case *m, struct str answer, int n_calls)
{
    struct parser_format *f = NULL;
    struct json *tools = NULL, *got = NULL, *want = NULL;
    struct arena *a = arena_new(MB);
    struct parsed r;
    struct err e;

    EXPECT(a && !json_parse(&tools, STR(TOOLS), a, NULL, &e));
    bool has_thought = strstr(m->head, "THINKING") != NULL;
    struct parser_options o = { tools,
        has_thought ? PARSER_START_REASONING : PARSER_START_CONTENT };
    EXPECT(!parser_format_new(&f, str_of(m->tool), str_of(m->thinking), &e));
    EXPECT(!parse_text(&r, f, &o, answer, &e));
    if (r.n_calls != n_calls || r.content.n)
        fprintf(stderr, "%s: " STR_FMT "\n", m->file, STR_ARG(answer));
    EXPECT_EQ(r.n_calls, n_calls);
    EXPECT(!r.content.n);
    for (int i = 0; i < n_calls; i++) {
        EXPECT(str_is(r.calls[i].name, "get_weather"));
        EXPECT(!json_parse(&got, r.calls[i].arguments, a, NULL, &e));
        EXPECT(!json_parse(&want, str_of(arguments[i]), a, NULL, &e));
        if (!json_equal(got, want))
            fprintf(stderr, "%s: " STR_FMT "\n", m->file, STR_ARG(r.calls[i].arguments));
        EXPECT(json_equal(got, want));
    }
    parsed_clear(&r);
    parser_format_free(f);
    arena_free(a);
}

static void make_request(char *to, size_t size, const struct template_case *m, int n_calls)
{
    const char *content = m->wants_null ? "null" : "\"\"";
    char head[256];

    snprintf(head, sizeof(head),
        "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},"
        "{\"role\":\"assistant\",\"content\":%s,"
        "\"reasoning_content\":\"Hm.\",\"tool_calls\":[",
        content);

    if (n_calls == 1)
        snprintf(
            to, size, "%s" CALL("abcdefghi", "%s") "]}],\"tools\":%s}", head, arguments[0], TOOLS);
    else
        snprintf(to, size,
            "%s" CALL("abcdefghi", "%s") "," CALL("abcdefghj", "%s") "]}],\"tools\":%s}", head,
            arguments[0], arguments[1], TOOLS);
}

static void rendered_calls_are_parsed_back(void)
{
    int n = 0;

    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        const struct template_case *m = &models[i];
        char request[4096], *source = read_template(m->file);
        if (!source)
            continue;
        for (int n_calls = 1; n_calls <= (m->one ? 1 : 2); n_calls++) {
            make_request(request, sizeof(request), m, n_calls);
            struct rendering x =
                kit_render_with(source, request, &kit_env, &template_limits_default);
            if (x.rc)
                fprintf(stderr, "%s: %s\n", m->file, x.e.msg);
            EXPECT_EQ(x.rc, 0);
            expect_read_back(m, last_between(x.text, m->head, m->tail), n_calls);
            kit_free(&x);
            n++;
        }
        free(source);
    }
    printf("%d messages%s\n", n, n ? "" : ": no test data, skipped");
}

TESTS(TEST(rendered_calls_are_parsed_back))
