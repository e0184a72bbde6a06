/* Model family, parsers and stop tokens that are detected from architecture and chat template
 * only. */
#include "support/adapter_kit.h"

struct expected {
    const char *file, *arch;
    const char *family, *tool, *thinking;
    bool has_native_tools, can_reason, can_toggle;
};

static const struct expected models[] = {
    { "CohereForAI-c4ai-command-r7b-12-2024-tool_use", "cohere2", "command_r", "command_r",
        "command_r", true, true, true },
    { "GLM-4.6", "glm4moe", "glm4", "glm4_native", "think_tag", true, true, true },
    { "GLM-4.7-Flash", "deepseek2", "glm4", "glm4_native", "think_tag", true, true, true },
    { "HuggingFaceTB-SmolLM3-3B", "smollm3", "chatml", "hermes_json", "think_tag", false, true,
        true },
    { "Kimi-K2-Instruct", "deepseek2", "kimi", "kimi_k2", "null", true, false, false },
    { "LFM2-8B-A1B", "lfm2moe", "lfm2", "lfm2", "null", true, false, false },
    { "MiniMax-M2", "minimax-m2", "minimax", "minimax_m2", "minimax_m2", true, true, false },
    { "NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "llama", "chatml", "hermes_json", "null", true,
        false, false },
    { "Qwen-Qwen2.5-7B-Instruct", "qwen2", "qwen", "hermes_json", "null", true, false, false },
    { "Qwen-Qwen3-0.6B", "qwen3", "qwen", "hermes_json", "think_tag", true, true, true },
    { "Qwen3-Coder", "qwen3moe", "qwen", "qwen3_coder", "null", true, false, false },
    { "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "qwen2", "deepseek", "deepseek_v3", "deepseek_v3",
        false, true, true },
    { "deepseek-ai-DeepSeek-V3.1", "deepseek2", "deepseek", "deepseek_v31", "deepseek_v3", false,
        true, true },
    { "google-gemma-2-2b-it", "gemma2", "gemma", "hermes_json", "null", false, false, false },
    { "ibm-granite-granite-3.3-2B-Instruct", "granite", "granite", "granite", "granite", true, true,
        true },
    { "meta-llama-Llama-3.1-8B-Instruct", "llama", "llama", "llama3_json", "null", true, false,
        false },
    { "meta-llama-Llama-3.2-3B-Instruct", "llama", "llama", "llama3_json", "null", true, false,
        false },
    { "microsoft-Phi-3.5-mini-instruct", "phi3", "phi3", "hermes_json", "null", false, false,
        false },
    { "mistralai-Mistral-Nemo-Instruct-2407", "llama", "mistral", "mistral", "null", true, false,
        false },
    { "openai-gpt-oss-120b", "gpt-oss", "gpt_oss", "harmony", "harmony", true, true, false },
    /* The templates from here on are in the package llama-cpp-python (`make test-families`). */
    { "Qwen3.5-4B", "qwen35", "qwen", "qwen3_coder", "think_tag", true, true, true },
    { "NVIDIA-Nemotron-Nano-v2", "nemotron_h", "nemotron", "nemotron", "nemotron", true, true,
        true },
    { "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nemotron_h_moe", "chatml", "qwen3_coder", "think_tag",
        true, true, true },
    { "ibm-granite-granite-4.0", "granitehybrid", "granite", "hermes_json", "null", true, false,
        false },
    { "ibm-granite-granite-4.1", "granitehybrid", "granite", "hermes_json", "null", true, false,
        false },
    { "LFM2.5-8B-A1B", "lfm2moe", "chatml", "lfm2", "think_tag", true, true, false },
    { "mistralai-Ministral-3-14B-Reasoning-2512", "mistral3", "mistral", "mistral_v11", "mistral",
        true, true, false },
    { "Mistral-Small-3.2-24B-Instruct-2506", "llama", "mistral", "mistral_v11", "null", true, false,
        false },
    { "google-gemma-4-31B-it", "gemma4", "gemma4", "gemma4", "gemma4", true, true, true },
    { "google-gemma-4-31B-it-interleaved", "gemma4", "gemma4", "gemma4", "gemma4", true, true,
        true },
    { "Kimi-K2-Thinking", "deepseek2", "kimi", "kimi_k2", "kimi_k2", true, true, false },
    { "moonshotai-Kimi-K2", "deepseek2", "kimi", "kimi_k2", "null", true, false, false },
};

static void parsers_are_detected_from_templates(void)
{
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        const struct expected *m = &models[i];
        char *source = kit_template(m->file);
        if (!source)
            continue;
        struct adapter_fixture f =
            adapter_fixture_open(source, &(struct adapter_options){ .arch = str_of(m->arch) });
        EXPECT_EQ(f.rc, 0);
        fprintf(stderr, "%s\n", m->file);
        EXPECT_STR(f.info->family, m->family);
        EXPECT_STR(f.info->tool_parser, m->tool);
        EXPECT_STR(f.info->thinking_parser, m->thinking);
        EXPECT_EQ(f.info->has_native_tools, m->has_native_tools);
        EXPECT_EQ(f.info->can_reason, m->can_reason);
        EXPECT_EQ(f.info->can_toggle_reasoning, m->can_toggle);
        adapter_fixture_close(&f);
        mem_free(source);
    }
}

/* ---- formats of calls, by templates that write only them */

#define BAR "\xEF\xBD\x9C"

#define TEMPLATE(head, calls)                                                                      \
    head "{% if tools %}{{ tools | tojson }}{% endif %}"                                           \
         "{% for m in messages %}<|turn|>{{ m.role }}\n{{ m.content or '' }}"                      \
         "{% if m.tool_calls %}" calls "{% endif %}<|done|>\n{% endfor %}"                         \
         "{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
#define EACH_CALL(text)     "{% for c in m.tool_calls %}" WITH_FUNCTION text "{% endfor %}"
#define WITH_FUNCTION       "{% set f = c.function %}"
#define EACH_ARGUMENT(text) "{% for k, v in f.arguments.items() %}" text "{% endfor %}"
#define VALUE               "{{ v if v is string else v | tojson }}"
#define IS_STRING           "{{ 'true' if v is string else 'false' }}"
#define DSML_CALLS(tag, word)                                                                      \
    "<" tag word ">\n" EACH_CALL("<" tag "invoke name=\"{{ f.name }}\">\n" EACH_ARGUMENT(          \
        "<" tag "parameter name=\"{{ k }}\" string=\"" IS_STRING "\">" VALUE "</" tag              \
        "parameter>\n") "</" tag "invoke>\n") "</" tag word ">"
#define JSON_CALL "{\"name\": \"{{ f.name }}\", \"arguments\": {{ f.arguments | tojson }}}"
#define HUNYUAN_CALLS(s, sep)                                                                      \
    "<tool_calls" s ">" EACH_CALL("<tool_call" s ">{{ f.name }}" sep EACH_ARGUMENT(                \
        "<arg_key" s ">{{ k }}</arg_key" s "><arg_value" s ">" VALUE "</arg_value" s               \
        ">") "</tool_call" s ">") "</tool_calls" s ">"

#define M3 "]<]minimax[>["

static const struct {
    const char *source, *tool;
} written[] = {
    { TEMPLATE("", DSML_CALLS(BAR "DSML" BAR " ", "calls")), "deepseek_v41" },
    { TEMPLATE("", DSML_CALLS(BAR "GCML" BAR, "tool_calls")), "gigachat35" },
    { TEMPLATE("", EACH_CALL("<|message_sep|>\n\nfunction call<|role_sep|>\n" JSON_CALL)),
        "gigachat3" },
    { TEMPLATE(
          "", "<|open|>tools<|sep|>" EACH_CALL(
                  "<|open|>call tool=\"{{ f.name }}\" index=\"1\""
                  "<|sep|>" EACH_ARGUMENT(
                      "<|open|>argument key=\"{{ k }}\" type=\"{{ 'string' if v is string "
                      "else 'number' }}\"<|sep|>" VALUE
                      "<|close|>argument<|sep|>") "<|close|>call<|sep|>") "<|close|>tools<|sep|>"),
        "kimi_k3" },
    { TEMPLATE("", "Action:\n```json\n[\n" EACH_CALL(
                       "{\"tool_name\": \"{{ f.name }}\", "
                       "\"parameters\": {{ f.arguments | tojson }}}") "\n]```"),
        "command_r_plus" },
    { TEMPLATE("]~b][e~[",
          M3 "<tool_call>\n" EACH_CALL(M3 "<invoke name=\"{{ f.name }}\">\n" EACH_ARGUMENT(
              M3 "<{{ k }}>" VALUE M3 "</{{ k }}>\n") M3 "</invoke>\n") M3 "</tool_call>"),
        "minimax_m3" },
    { TEMPLATE("", "[" EACH_CALL(JSON_CALL) "]"), "xlam" },
    { TEMPLATE("<|start_header_id|><|end_header_id|>", "[" EACH_CALL(JSON_CALL) "]<|eot_id|>"),
        "xlam" },
    { TEMPLATE("", HUNYUAN_CALLS("", "<tool_sep>\n")), "hunyuan_v3" },
    { TEMPLATE("", HUNYUAN_CALLS(":opensource", "")), "hunyuan_v4" },
    { TEMPLATE("<|im_start|><|im_end|>",
          EACH_CALL("<function name=\"{{ f.name }}\">" EACH_ARGUMENT(
              "<param name=\"{{ k }}\">" VALUE "</param>") "</function>")),
        "minicpm5" },
    { TEMPLATE("", EACH_CALL("to={{ f.name }}<|message|><atem:function_calls>\n<atem:invoke "
                             "name=\"{{ f.name }}\">\n" EACH_ARGUMENT(
                                 "<atem:parameter name=\"{{ k }}\">" VALUE
                                 "</atem:parameter>\n") "</atem:invoke>\n</atem:function_calls>")),
        "muse" },
    { TEMPLATE("<|im_start|><|im_end|>",
          "<|tool_call_start|>[" EACH_CALL(
              "{{ f.name }}(zqxcity='"
              "{{ f.arguments.zqxcity }}', zqxdays=3)") "]<|tool_call_end|>"),
        "lfm2" },
    { TEMPLATE("", "<tool_calls>[" EACH_CALL(JSON_CALL) "]</tool_calls>"), "jamba" },
    { TEMPLATE("", EACH_CALL("<tool_call>\n" JSON_CALL "\n</tool_call>\n")), "hermes_json" },
};

static void format_is_the_one_that_the_template_writes(void)
{
    for (size_t i = 0; i < ARRAY_LEN(written); i++) {
        struct adapter_fixture f =
            adapter_fixture_open(written[i].source, &(struct adapter_options){ .arch = STR("") });
        EXPECT_EQ(f.rc, 0);
        EXPECT_STR(f.info->tool_parser, written[i].tool);
        EXPECT(f.info->can_call_tools && !f.info->has_unknown_calls);
        adapter_fixture_close(&f);
    }
}

/* ---- formats of calls and reasoning by family, by templates that write both like those of the
 * models */

/* before and after: around the role; `end` ends a message. */
#define TURNS(before, after, end, reasoning, calls)                                                \
    "{% if tools %}{{ tools | tojson }}{% endif %}"                                                \
    "{% for m in messages %}" before "{{ m.role }}" after "{% if m.reasoning_content %}" reasoning \
    "{% endif %}{{ m.content or '' }}"                                                             \
    "{% if m.tool_calls %}" calls "{% endif %}" end "{% endfor %}"                                 \
    "{% if add_generation_prompt %}" before "assistant" after "{% endif %}"
#define IM_TURNS(reasoning, calls) TURNS("<|im_start|>", "\n", "<|im_end|>\n", reasoning, calls)
#define THINK                      "<think>\n{{ m.reasoning_content }}\n</think>\n\n"
#define QWEN_CODER_CALLS                                                                           \
    EACH_CALL("<tool_call>\n<function={{ f.name }}>\n" EACH_ARGUMENT(                              \
        "<parameter={{ k }}>\n" VALUE "\n</parameter>\n") "</function>\n</tool_call>\n")
#define HERMES_CALLS EACH_CALL("<tool_call>\n" JSON_CALL "\n</tool_call>\n")
#define CALL_LIST                                                                                  \
    "{% for c in m.tool_calls %}" WITH_FUNCTION JSON_CALL                                          \
    "{% if not loop.last %}, {% endif %}{% endfor %}"

static const struct {
    const char *arch, *source, *tool, *thinking;
} family_formats[] = {
    { "qwen35", IM_TURNS(THINK, QWEN_CODER_CALLS), "qwen3_coder", "think_tag" },
    { "qwen35moe", IM_TURNS(THINK, QWEN_CODER_CALLS), "qwen3_coder", "think_tag" },
    { "qwen3next", IM_TURNS("", QWEN_CODER_CALLS), "qwen3_coder", "null" },
    { "qwen3next", IM_TURNS("", HERMES_CALLS), "hermes_json", "null" },
    { "qwen3next", IM_TURNS(THINK, HERMES_CALLS), "hermes_json", "think_tag" },
    { "qwen2moe", IM_TURNS("", HERMES_CALLS), "hermes_json", "null" },
    { "gemma3",
        "{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
        "{{ m.content }}<end_of_turn>\n{% endfor %}"
        "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}",
        "hermes_json", "null" },
    { "gemma4",
        TURNS("<|turn>", "\n", "<turn|>\n",
            "<|channel>thought\n{{ m.reasoning_content }}\n<channel|>",
            EACH_CALL("<|tool_call>call:{{ f.name }}{{ '{' }}" EACH_ARGUMENT(
                "{{ k }}:{% if v is string %}<|\"|>{{ v }}<|\"|>{% else %}{{ v | tojson }}{% endif "
                "%}"
                "{% if not loop.last %},{% endif %}") "}<tool_call|>")),
        "gemma4", "gemma4" },
    { "gpt-oss",
        "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}"
        "{% if m.tool_calls %}"
        "{% if m.reasoning_content %}<|start|>assistant<|channel|>analysis<|message|>"
        "{{ m.reasoning_content }}<|end|>{% endif %}" EACH_CALL(
            "<|start|>assistant to=functions.{{ f.name }}<|channel|>commentary json<|message|>"
            "{{ f.arguments | tojson }}<|call|>") "{% else %}<|start|>{{ m.role }}"
                                                  "{% if m.role == 'assistant' %}{% if "
                                                  "m.reasoning_content "
                                                  "%}<|channel|>analysis<|message|>"
                                                  "{{ m.reasoning_content "
                                                  "}}<|end|><|start|>assistant{% endif "
                                                  "%}<|channel|>final{% endif %}"
                                                  "<|message|>{{ m.content or '' }}<|end|>{% endif "
                                                  "%}{% endfor %}"
                                                  "{% if add_generation_prompt "
                                                  "%}<|start|>assistant{% endif %}",
        "harmony", "harmony" },
    { "nemotron_h",
        TURNS("<SPECIAL_11>", "\n", "\n<SPECIAL_12>\n", THINK,
            "<TOOLCALL>[" CALL_LIST "]</TOOLCALL>"),
        "nemotron", "nemotron" },
    { "nemotron_h_moe", IM_TURNS(THINK, QWEN_CODER_CALLS), "qwen3_coder", "think_tag" },
    { "granite",
        TURNS("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>\n",
            "<think>{{ m.reasoning_content }}</think><response>", "<|tool_call|>[" CALL_LIST "]"),
        "granite", "granite" },
    { "granitehybrid",
        TURNS("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>\n", "", HERMES_CALLS),
        "hermes_json", "null" },
    { "lfm2",
        IM_TURNS("", "<|tool_call_start|>[" EACH_CALL("{{ f.name }}(zqxcity='"
                                                      "{{ f.arguments.zqxcity }}', "
                                                      "zqxdays=3)") "]<|tool_call_end|>"),
        "lfm2", "null" },
    { "lfm2moe",
        IM_TURNS(THINK, "<|tool_call_start|>[" EACH_CALL("{{ f.name }}(zqxcity='"
                                                         "{{ f.arguments.zqxcity }}', "
                                                         "zqxdays=3)") "]<|tool_call_end|>"),
        "lfm2", "think_tag" },
    { "mistral3",
        TURNS("[INST]", "[/INST]", "</s>", "[THINK]{{ m.reasoning_content }}[/THINK]",
            EACH_CALL("[TOOL_CALLS]{{ f.name }}[ARGS]{{ f.arguments | tojson }}")),
        "mistral_v11", "mistral" },
    { "mistral4",
        TURNS("[INST]", "[/INST]", "</s>", "[THINK]{{ m.reasoning_content }}[/THINK]",
            EACH_CALL("[TOOL_CALLS]{{ f.name }}[ARGS]{{ f.arguments | tojson }}")),
        "mistral_v11", "mistral" },
    { "glm4moe",
        TURNS("<|", "|>\n", "", THINK,
            EACH_CALL("<tool_call>{{ f.name }}\n" EACH_ARGUMENT(
                "<arg_key>{{ k }}</arg_key>\n<arg_value>" VALUE
                "</arg_value>\n") "</tool_call>")) "<|user|><|assistant|><|observation|>",
        "glm4_native", "think_tag" },
    { "smollm3", IM_TURNS(THINK, HERMES_CALLS), "hermes_json", "think_tag" },
    { "olmo2",
        IM_TURNS(THINK, "<function_calls>\n" EACH_CALL("{{ f.name }}(zqxcity=\""
                                                       "{{ f.arguments.zqxcity }}\", "
                                                       "zqxdays=3)\n") "</function_calls>"),
        "olmo3", "think_tag" },
    { "deepseek2",
        TURNS("<" BAR, BAR ">", "", "<think>{{ m.reasoning_content }}</think>",
            "<" BAR "tool\xE2\x96\x81"
            "calls\xE2\x96\x81"
            "begin" BAR
            ">" EACH_CALL("<" BAR "tool\xE2\x96\x81"
                          "call\xE2\x96\x81"
                          "begin" BAR ">{{ f.name }}<" BAR "tool\xE2\x96\x81"
                          "sep" BAR ">{{ f.arguments | tojson }}<" BAR "tool\xE2\x96\x81"
                          "call\xE2\x96\x81"
                          "end" BAR ">") "<" BAR "tool\xE2\x96\x81"
                                         "calls\xE2\x96\x81"
                                         "end" BAR ">"),
        "deepseek_v31", "deepseek_v3" },
    { "phi3", TURNS("<|", "|>\n", "<|end|>\n", "", ""), "null", "null" },
};

static void formats_of_each_family_are_detected(void)
{
    for (size_t i = 0; i < ARRAY_LEN(family_formats); i++) {
        struct adapter_fixture f = adapter_fixture_open(family_formats[i].source,
            &(struct adapter_options){ .arch = str_of(family_formats[i].arch) });
        fprintf(stderr, "%s\n", family_formats[i].arch);
        EXPECT_EQ(f.rc, 0);
        EXPECT_STR(f.info->tool_parser, family_formats[i].tool);
        EXPECT_STR(f.info->thinking_parser, family_formats[i].thinking);
        EXPECT_EQ(f.info->can_reason, strcmp(family_formats[i].thinking, "null") != 0);
        adapter_fixture_close(&f);
    }
}

#define CHATML       "<|im_start|><|im_end|>"
#define UNKNOWN_CALL EACH_CALL("((call {{ f.name }} with {{ f.arguments | tojson }}))")

static void format_that_no_parser_reads_is_reported(void)
{
    static const struct {
        const char *source, *option, *tool;
        bool is_unknown, no_injection;
    } rows[] = {
        { TEMPLATE("", UNKNOWN_CALL), "", "null", true, false },
        { TEMPLATE(CHATML, UNKNOWN_CALL), "", "null", true, false },
        { TEMPLATE("]~b][e~[", UNKNOWN_CALL), "", "null", true, false },
        { TEMPLATE(CHATML, UNKNOWN_CALL), "hermes_json", "hermes_json", false, false },
        { TEMPLATE(CHATML, UNKNOWN_CALL), "null", "null", false, false },
        /* Calls are not rendered: the template must mention the format. */
        { TEMPLATE(CHATML, ""), "", "null", true, false },
        { TEMPLATE(CHATML "Write <tool_call>{name, arguments}</tool_call>.", ""), "", "hermes_json",
            false, false },
        { TEMPLATE("<|start_of_role|><|end_of_role|>", ""), "", "granite", false, false },
        /* Tools are not rendered: the system message requests the format, or there are none. */
        { CHATML "{% for m in messages %}{{ m.content }}{% endfor %}", "", "hermes_json", false,
            false },
        { CHATML "{% for m in messages %}{{ m.content }}{% endfor %}", "", "null", false, true },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct adapter_fixture f = adapter_fixture_open(rows[i].source,
            &(struct adapter_options){
                .arch = STR(""), .tool = rows[i].option, .no_injection = rows[i].no_injection });
        EXPECT_EQ(f.rc, 0);
        EXPECT_STR(f.info->tool_parser, rows[i].tool);
        EXPECT_EQ(f.info->has_unknown_calls, rows[i].is_unknown);
        EXPECT_EQ(f.info->can_call_tools, strcmp(rows[i].tool, "null") != 0);
        adapter_fixture_close(&f);
    }
}

static void reasoning_of_a_prompt_that_begins_it_is_recognised(void)
{
    static const struct {
        const char *source, *reasoning;
    } rows[] = {
        { "{% for m in messages %}{{ m.content }}\n{% endfor %}Here are my reasoning steps:\n",
            "apriel" },
        { "{% for m in messages %}<|open|>message<|sep|>{% if m.reasoning_content "
          "%}<|open|>think<|sep|>"
          "{{ m.reasoning_content }}<|close|>think<|sep|>{% endif %}{{ m.content }}{% endfor %}",
            "kimi_k3" },
        { "{% for m in messages %}\n{{ m.role }}:{% if m.reasoning_content %}<think>\n"
          "{{ m.reasoning_content }}\n</think>\n\n<response>\n{{ m.content }}\n</response>\n"
          "{% else %}{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt "
          "%}\nassistant:{% endif %}",
            "ernie45" },
        { "{% for m in messages %}<|start|>{{ m.role }}{% if m.reasoning_content %} "
          "to=self<|message|>"
          "{{ m.reasoning_content }}<|eom|><|start|>assistant{% endif %} to=user<|message|>"
          "{{ m.content }}<|eot|>{% endfor %}{% if add_generation_prompt %}<|start|>assistant"
          "{% endif %}",
            "muse" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct adapter_fixture f =
            adapter_fixture_open(rows[i].source, &(struct adapter_options){ .arch = STR("") });
        EXPECT_EQ(f.rc, 0);
        EXPECT_STR(f.info->thinking_parser, rows[i].reasoning);
        EXPECT(f.info->can_reason);
        adapter_fixture_close(&f);
    }
}

/* ---- every template shows every part of a request */

#define CALLS(id, city)                                                                            \
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"" id "\",\"type\":"        \
    "\"function\",\"function\":{\"name\":\"w7look\",\"arguments\":\"{\\\"w8city\\\": \\\"" city    \
    "\\\"}\"}}]}"

static const char everything[] =
    "{\"messages\":["
    "{\"role\":\"system\",\"content\":\"w1sys\"},{\"role\":\"system\",\"content\":\"w2sys\"},"
    "{\"role\":\"user\",\"content\":\"w3user\"},"
    "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"w4user\"},"
    "{\"type\":\"text\",\"text\":\"w5user\"}]}," CALLS("abcdefgh1",
        "w9city") ","
                  "{\"role\":\"tool\",\"tool_call_id\":\"abcdefgh1\",\"content\":\"w10result\"},"
                  "{\"role\":\"assistant\",\"content\":\"w11said\"},"
                  "{\"role\":\"developer\",\"content\":\"w12late\"},"
                  "{\"role\":\"user\",\"content\":\"w13user\"}],"
                  "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"w7look\","
                  "\"description\":\"w14tool\""
                  ",\"parameters\":{\"type\":\"object\",\"properties\":{\"w8city\":{\"type\":"
                  "\"string\","
                  "\"description\":\"w15argument\"}}}}}],\"add_generation_prompt\":true}";

static const char *const client_texts[] = { "w1sys", "w2sys", "w3user", "w4user", "w5user",
    "w7look", "w8city", "w9city", "w10result", "w11said", "w12late", "w13user", "w14tool",
    "w15argument" };

static void every_part_of_a_request_is_rendered(void)
{
    int n_bad = 0;

    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        char *source = kit_template(models[i].file);
        if (!source)
            continue;
        struct adapter_fixture f = adapter_fixture_open(
            source, &(struct adapter_options){ .arch = str_of(models[i].arch) });
        struct arena *a = arena_new(64 * MB);
        struct rendered r;
        struct convo c = kit_parse_convo(str_of(everything), a);
        int rc = kit_render_convo(&r, f.adapter, &c, a);
        if (rc)
            fprintf(stderr, "... of %s\n", models[i].file);
        n_bad += rc != 0;
        for (size_t k = 0; !rc && k < ARRAY_LEN(client_texts); k++) {
            struct str prompt = { r.spans[0].text.p, r.n_bytes };
            if (str_find(prompt, str_of(client_texts[k])) >= 0)
                continue;
            fprintf(stderr, "%s: no %s\n", models[i].file, client_texts[k]);
            n_bad++;
        }
        arena_free(a);
        adapter_fixture_close(&f);
        mem_free(source);
    }
    EXPECT_EQ(n_bad, 0);
}

/* ---- start state of the output parser */

static enum parser_start start_of(const struct adapter_fixture *f, const char *request)
{
    struct arena *a = arena_new(64 * MB);
    struct convo c = kit_parse_convo(str_of(request), a);
    struct rendered r;

    EXPECT_EQ(kit_render_convo(&r, f->adapter, &c, a), 0);
    enum parser_start start = adapter_start(f->adapter, &c, &r);
    arena_free(a);
    return start;
}

#define HI "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"add_generation_prompt\":true"
#define PREFILL(text)                                                                              \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":"   \
    "\"" text "\"}],\"continue_final_message\":true}"
#define KWARGS(k) ",\"chat_template_kwargs\":{" k "}}"

static void prompt_determines_whether_output_begins_in_reasoning(void)
{
    static const struct {
        const char *file, *request;
        enum parser_start want;
    } rows[] = {
        { "Qwen-Qwen3-0.6B", HI "}", PARSER_START_DEFAULT },
        { "Qwen-Qwen3-0.6B", HI KWARGS("\"enable_thinking\":false"), PARSER_START_CONTENT },
        { "Qwen-Qwen3-0.6B", PREFILL("<think>\\nLet me"), PARSER_START_REASONING },
        { "Qwen-Qwen3-0.6B", PREFILL("The answer"), PARSER_START_CONTENT },
        { "deepseek-ai-DeepSeek-V3.1", HI KWARGS("\"thinking\":true"), PARSER_START_REASONING },
        { "deepseek-ai-DeepSeek-V3.1", HI "}", PARSER_START_CONTENT },
        { "MiniMax-M2", HI "}", PARSER_START_REASONING },
        { "GLM-4.7-Flash", HI "}", PARSER_START_REASONING },
        { "GLM-4.7-Flash", HI KWARGS("\"enable_thinking\":false"), PARSER_START_CONTENT },
        { "openai-gpt-oss-120b", HI "}", PARSER_START_DEFAULT },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char *source = kit_template(rows[i].file);
        if (!source)
            continue;
        struct adapter_fixture f =
            adapter_fixture_open(source, &(struct adapter_options){ .arch = STR("") });
        fprintf(stderr, "%s %s\n", rows[i].file, rows[i].request);
        EXPECT_EQ((int)start_of(&f, rows[i].request), (int)rows[i].want);
        adapter_fixture_close(&f);
        mem_free(source);
    }
}

/* ---- stop tokens */

static void stop_tokens_are_those_of_the_family(void)
{
    static const struct {
        const char *file, *ends[3], *others[4];
    } rows[] = {
        { "GLM-4.6", { "<|user|>", "<|observation|>" }, { "<|assistant|>", "<tool_call>" } },
        { "MiniMax-M2", { "[e~[" }, { "]~b]", "</minimax:tool_call>" } },
        { "Qwen-Qwen3-0.6B", { "<|im_end|>" }, { "<|im_start|>", "</think>", "</tool_call>" } },
        /* These tokens end a message, not the turn. */
        { "openai-gpt-oss-120b", { "<|return|>", "<|call|>" }, { "<|end|>", "<|channel|>" } },
        { "CohereForAI-c4ai-command-r7b-12-2024-tool_use", { "<|END_OF_TURN_TOKEN|>" },
            { "<|END_RESPONSE|>", "<|END_ACTION|>", "<|END_THINKING|>" } },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char *source = kit_template(rows[i].file);
        struct kit_vocab k = { 0 };
        struct vocab *v;
        struct err e;
        if (!source)
            continue;
        kit_add_bytes(&k, true);
        for (int n = 0; n < 3 && rows[i].ends[n]; n++)
            kit_add_token(&k, rows[i].ends[n], TOKEN_CONTROL);
        for (int n = 0; n < 4 && rows[i].others[n]; n++)
            kit_add_token(&k, rows[i].others[n], TOKEN_CONTROL);
        EXPECT_EQ(kit_make_vocab(&v, &k, "gpt2", gguf_writer_new(32), &e), 0);
        struct adapter_fixture f =
            adapter_fixture_open(source, &(struct adapter_options){ .vocab = v });
        fprintf(stderr, "%s\n", rows[i].file);
        for (int n = 0; n < 3 && rows[i].ends[n]; n++)
            EXPECT(adapter_is_end(f.adapter, vocab_find(v, str_of(rows[i].ends[n]))));
        for (int n = 0; n < 4 && rows[i].others[n]; n++)
            EXPECT(!adapter_is_end(f.adapter, vocab_find(v, str_of(rows[i].others[n]))));
        adapter_fixture_close(&f);
        vocab_close(v);
        mem_free(source);
    }
}

TESTS(TEST(stop_tokens_are_those_of_the_family), TEST(parsers_are_detected_from_templates),
    TEST(format_is_the_one_that_the_template_writes), TEST(formats_of_each_family_are_detected),
    TEST(format_that_no_parser_reads_is_reported),
    TEST(reasoning_of_a_prompt_that_begins_it_is_recognised),
    TEST(every_part_of_a_request_is_rendered),
    TEST(prompt_determines_whether_output_begins_in_reasoning))
