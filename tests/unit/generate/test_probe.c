/* Capability probe: script models that generate the output of many kinds of models are detected
 * correctly. Everything except the network is real. */
#include "support/adapter_kit.h"

#include "support/tmpdir.h"
#include "registry/model_capabilities.h"
#include "generate/probe.h"

#define CITY "\"location\": \"Paris\""

struct model_case {
    const char *file; /* chat template */
    /* generated texts for native tools, injected tools and reasoning; "" = plain text */
    const char *native, *injected, *thinking;
    /* expected capabilities */
    const char *family, *tool, *format, *reasoning;
    bool thinks;
};

#define BAR     "\xEF\xBD\x9C"
#define LOW     "\xE2\x96\x81"
#define HERMES  "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {" CITY "}}\n</tool_call>"
#define THOUGHT "<think>\nTwo times seven.\n</think>\n\nFourteen."

static const struct model_case model_cases[] = {
    { "Qwen-Qwen3-0.6B", HERMES, "", THOUGHT, "qwen", "hermes_json", "native", "think_tag", true },
    /* generates another format than its template suggests */
    { "Qwen-Qwen3-0.6B", "<function=get_weather>{" CITY "}</function>", "",
        "<seed:think>Hm.</seed:think>Fourteen.", "qwen", "llama_xml", "native", "seed_oss", true },
    /* calls tools only if the system prompt describes them */
    { "Qwen-Qwen3-0.6B", "It rains.", HERMES, "Fourteen.", "qwen", "hermes_json", "injection",
        "think_tag", false },
    { "Qwen-Qwen2.5-7B-Instruct", HERMES, "", "Fourteen.", "qwen", "hermes_json", "native", "null",
        false },
    { "Qwen3-Coder",
        "<tool_call>\n<function=get_weather>\n<parameter=location>\nParis\n</parameter>\n"
        "</function>\n</tool_call>",
        "", "Fourteen.", "qwen", "qwen3_coder", "native", "null", false },
    { "GLM-4.6",
        "\n<tool_call>get_weather\n<arg_key>location</arg_key>\n<arg_value>Paris</arg_value>\n"
        "</tool_call>",
        "", "\n" THOUGHT, "glm4", "glm4_native", "native", "think_tag", true },
    { "meta-llama-Llama-3.1-8B-Instruct", "{\"name\": \"get_weather\", \"parameters\": {" CITY "}}",
        "", "Fourteen.", "llama", "llama3_json", "native", "null", false },
    { "mistralai-Mistral-Nemo-Instruct-2407",
        "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {" CITY "}, \"id\": "
        "\"abcdefghi\"}]",
        "", "[THINK]Seven.[/THINK]Fourteen.", "mistral", "mistral", "native", "mistral", true },
    { "Kimi-K2-Instruct",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
        "<|tool_call_argument_begin|>{" CITY "}<|tool_call_end|><|tool_calls_section_end|>",
        "", "Fourteen.", "kimi", "kimi_k2", "native", "null", false },
    { "MiniMax-M2",
        "Let me look.</think>\n<minimax:tool_call>\n<invoke name=\"get_weather\">\n"
        "<parameter name=\"location\">Paris</parameter>\n</invoke>\n</minimax:tool_call>",
        "", "Two times seven.</think>\nFourteen.", "minimax", "minimax_m2", "native", "minimax_m2",
        true },
    { "deepseek-ai-DeepSeek-V3.1", "",
        "<" BAR "tool" LOW "calls" LOW "begin" BAR "><" BAR "tool" LOW "call" LOW "begin" BAR
        ">get_weather<" BAR "tool" LOW "sep" BAR ">{" CITY "}<" BAR "tool" LOW "call" LOW "end" BAR
        "><" BAR "tool" LOW "calls" LOW "end" BAR ">",
        "Two times seven.</think>Fourteen.", "deepseek", "deepseek_v31", "injection", "deepseek_v3",
        true },
    { "google-gemma-2-2b-it", "", HERMES, "Fourteen.", "gemma", "hermes_json", "injection", "null",
        false },
    { "google-gemma-2-2b-it", "", "It rains in Paris.", "Fourteen.", "gemma", "null", "", "null",
        false },
    { "ibm-granite-granite-3.3-2B-Instruct",
        "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {" CITY "}}]", "",
        "<think>Seven.</think><response>Fourteen.</response>", "granite", "granite", "native",
        "granite", true },
    { "openai-gpt-oss-120b",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
        "to=functions.get_weather <|constrain|>json<|message|>{" CITY "}<|call|>",
        "",
        "<|channel|>analysis<|message|>Seven.<|end|><|start|>assistant<|channel|>final<|message|>"
        "Fourteen.",
        "gpt_oss", "harmony", "native", "harmony", true },
};

struct script_output {
    const struct model_case *model_case;
    int n_asked;
};

static struct str script_reply(void *ctx, enum probe_step step, const struct rendered *prompt)
{
    struct script_output *t = ctx;
    struct str text = { prompt->spans[0].text.p, prompt->n_bytes };

    t->n_asked++;
    EXPECT(step == PROBE_THINKING || str_find(text, STR("get_weather")) >= 0);
    return str_of(step == PROBE_NATIVE     ? t->model_case->native
                  : step == PROBE_INJECTED ? t->model_case->injected
                                           : t->model_case->thinking);
}

static struct model_spec spec_of(const char *template_path)
{
    struct model_spec spec = model_spec_of("probed", "models/demo.gguf");

    spec.backend = BACKEND_SCRIPT;
    spec.template_path = template_path;
    return spec;
}

static void expect_found(const struct model_case *k, const char *path)
{
    struct model_spec spec = spec_of(path);
    struct model *m = xcalloc(1, sizeof(*m));
    struct model_capabilities row;
    struct script_output script_output = { .model_case = k };
    struct err e;

    EXPECT_EQ(model_open(m, &spec, &e), 0);
    int rc = model_probe(
        &row, m, &(struct probe_options){ .script = script_reply, .ctx = &script_output }, &e);
    fprintf(stderr, "%s: %s\n", k->file, rc ? e.msg : "");
    EXPECT_EQ(rc, 0);
    EXPECT_STR(row.model_id, "probed");
    EXPECT_STR(row.model_type, "TEXT_GEN");
    EXPECT_STR(row.model_family, k->family);
    EXPECT_STR(row.tool_parser_id, k->tool);
    EXPECT_STR(row.tool_format, k->format);
    EXPECT_EQ(row.supports_native_tools, !strcmp(k->format, "native"));
    EXPECT_STR(row.thinking_parser_id, k->reasoning);
    EXPECT_EQ(row.supports_thinking, k->thinks);
    EXPECT_EQ(row.practical_max_tokens, m->n_ctx);
    EXPECT_EQ(row.probe_version, PROBE_VERSION);
    EXPECT(script_output.n_asked <= N_PROBE_STEPS && script_output.n_asked >= 2);
    model_close(m);
    mem_free(m);
}

static void probe_detects_the_formats_of_the_output(void)
{
    for (size_t i = 0; i < ARRAY_LEN(model_cases); i++) {
        char path[512], file[300];
        snprintf(file, sizeof(file), "templates/%s.jinja", model_cases[i].file);
        if (kit_data_path(path, file))
            expect_found(&model_cases[i], path);
    }
}

/* ---- with the store */

static void open_store(struct model_spec *spec, char dir[TMPDIR_NAME])
{
    char path[300];
    struct err e;

    tmpdir_make(dir);
    snprintf(path, sizeof(path), "%s/store.db", dir);
    EXPECT_EQ(capabilities_open(&spec->store, path, true, &e), 0);
}

static void stored_capabilities_are_used_at_the_next_load(void)
{
    struct model_spec spec = spec_of("");
    struct model *m = xcalloc(1, sizeof(*m));
    struct model_capabilities row;
    char dir[TMPDIR_NAME];
    struct err e;

    open_store(&spec, dir);

    EXPECT_EQ(model_open(m, &spec, &e), 0);
    EXPECT(!m->is_probed);
    EXPECT_STR(adapter_info(m->adapter)->tool_parser, "hermes_json");
    row = (struct model_capabilities){ .model_id = "probed",
        .model_type = "TEXT_GEN",
        .model_family = "qwen",
        .tool_parser_id = "llama_xml",
        .thinking_parser_id = "seed_oss",
        .tool_format = "injection",
        .supports_thinking = true,
        .is_normalized = UNKNOWN,
        .probe_version = PROBE_VERSION };
    model_fingerprint(m, row.fingerprint);
    model_close(m);
    EXPECT_EQ(capabilities_put(spec.store, &row, &e), 0);

    memset(m, 0, sizeof(*m));
    EXPECT_EQ(model_open(m, &spec, &e), 0);
    EXPECT(m->is_probed);
    EXPECT_STR(adapter_info(m->adapter)->tool_parser, "llama_xml");
    EXPECT_STR(adapter_info(m->adapter)->thinking_parser, "seed_oss");
    EXPECT(adapter_info(m->adapter)->injects_tools && adapter_info(m->adapter)->can_reason);
    model_close(m);

    spec.tool_parser = "mistral"; /* the configured parser has precedence */
    memset(m, 0, sizeof(*m));
    EXPECT_EQ(model_open(m, &spec, &e), 0);
    EXPECT_STR(adapter_info(m->adapter)->tool_parser, "mistral");
    model_close(m);
    spec.tool_parser = "";

    /* A row of another file, or with an unknown parser, is ignored. */
    for (int i = 0; i < 3; i++) {
        struct model_capabilities bad = row;
        if (i == 0)
            bad.fingerprint[3] ^= 1;
        else if (i == 1)
            snprintf(bad.tool_parser_id, sizeof(bad.tool_parser_id), "gone");
        else
            bad.probe_version = PROBE_VERSION - 1;
        EXPECT_EQ(capabilities_put(spec.store, &bad, &e), 0);
        memset(m, 0, sizeof(*m));
        EXPECT_EQ(model_open(m, &spec, &e), 0);
        EXPECT(!m->is_probed);
        EXPECT_STR(adapter_info(m->adapter)->tool_parser, "hermes_json");
        model_close(m);
    }
    capabilities_close(spec.store);
    mem_free(m);
    tmpdir_remove(dir);
}

/* The network of the demo file is probed itself: its result is stored, whatever it is. */
static void unknown_model_is_probed_once(void)
{
    struct model_spec spec = spec_of("");
    struct model *m = xcalloc(1, sizeof(*m));
    struct model_capabilities row;
    char dir[TMPDIR_NAME];
    struct err e;

    open_store(&spec, dir);
    spec.backend = BACKEND_NATIVE;
    spec.probe = model_probe_default;
    spec.kv_bytes = 64 * MB;
    for (int again = 0; again < 2; again++) {
        memset(m, 0, sizeof(*m));
        EXPECT_EQ(model_open(m, &spec, &e), 0);
        EXPECT(m->is_probed);
        EXPECT_EQ(capabilities_get(spec.store, "probed", &row, &e), 1);
        EXPECT_STR(row.tool_parser_id, adapter_info(m->adapter)->tool_parser);
        EXPECT_STR(row.thinking_parser_id, adapter_info(m->adapter)->thinking_parser);
        EXPECT_EQ(row.max_sequence_length, m->lm->n_ctx_train);
        EXPECT(row.probed_at != 0 && row.probed_at != 1);
        model_close(m);
        row.probed_at = 1; /* a second probe would set another time */
        EXPECT_EQ(capabilities_put(spec.store, &row, &e), 0);
        if (again == 0) {
            memset(m, 0, sizeof(*m));
            EXPECT_EQ(model_open(m, &spec, &e), 0);
            EXPECT_EQ(m->known.probed_at, 1);
            model_close(m);
            EXPECT_EQ(capabilities_delete(spec.store, "probed", &e), 0);
        }
    }
    capabilities_close(spec.store);
    mem_free(m);
    tmpdir_remove(dir);
}

static void probe_can_be_cancelled(void)
{
    static const _Atomic bool stop = true;
    static const struct model_case silent = { .native = "a", .injected = "b", .thinking = "c" };
    struct model_spec spec = spec_of("");
    struct model *m = xcalloc(1, sizeof(*m));
    struct model_capabilities row;
    struct script_output script_output = { .model_case = &silent };
    struct err e;

    spec.backend = BACKEND_NATIVE;
    spec.kv_bytes = 64 * MB;
    EXPECT_EQ(model_open(m, &spec, &e), 0);
    struct probe_options o = { .script = script_reply, .ctx = &script_output, .stop = &stop };
    EXPECT_EQ(model_probe(&row, m, &o, &e), -1);
    EXPECT_EQ((int)e.code, ERR_CANCELLED);
    model_close(m);
    mem_free(m);
}

TESTS(TEST(probe_detects_the_formats_of_the_output),
    TEST(stored_capabilities_are_used_at_the_next_load), TEST(unknown_model_is_probed_once),
    TEST(probe_can_be_cancelled))
