/* Model files without a chat template: the built-in template chosen by the tokens of the
 * vocabulary, compared with the prompts of the vendor's own template. */
#include "support/adapter_kit.h"

#include "registry/model.h"

#include <unistd.h>

#define BAR "\xEF\xBD\x9C"

/* Both columns of a row are what must be removed from the vendor's prompt to make it equal to
 * ours: "" = nothing, the prompts are equal; NULL = they differ in more than that, see `why`. */
struct family_case {
    const char *file, *arch;
    const char *tokens[8]; /* tokens of the real vocabulary that distinguish families */
    const char *eos;
    const char *family; /* NULL source: the file must contain a template */
    const char *extra_alone, *extra_talk;
    const char *why;
};

static const struct family_case family_cases[] = {
    { "Qwen-Qwen2.5-7B-Instruct", "qwen2", { "<|im_start|>", "<|im_end|>", "<|endoftext|>" },
        "<|im_end|>", "chatml",
        "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful "
        "assistant.<|im_end|>\n",
        "", "the vendor's system prompt, where there is none" },
    { "Qwen-Qwen3-0.6B", "qwen3", { "<|im_start|>", "<|im_end|>", "<think>", "</think>" },
        "<|im_end|>", "chatml", "", "", NULL },
    { "Qwen3-Coder", "qwen3moe", { "<|im_start|>", "<|im_end|>", "<tool_call>" }, "<|im_end|>",
        "chatml", "", "", NULL },
    { "HuggingFaceTB-SmolLM3-3B", "smollm3", { "<|im_start|>", "<|im_end|>" }, "<|im_end|>",
        "chatml", NULL, NULL, "a header of its own in front of what the system says" },
    { "NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "llama",
        { "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>",
            "<|end_header_id|>", "<|eot_id|>" },
        "<|im_end|>", "chatml", NULL, NULL,
        "a template for tools only, which tells of them always" },
    { "meta-llama-Llama-3.1-8B-Instruct", "llama",
        { "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
            "<|eom_id|>", "<|python_tag|>" },
        "<|eot_id|>", "llama",
        "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December "
        "2023\nToday Date: 21 Nov 2024\n\n<|eot_id|>",
        "Cutting Knowledge Date: December 2023\nToday Date: 21 Nov 2024\n\n",
        "dates in the vendor's system prompt" },
    { "meta-llama-Llama-3.2-3B-Instruct", "llama",
        { "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
            "<|eom_id|>", "<|python_tag|>" },
        "<|eot_id|>", "llama",
        "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December "
        "2023\nToday Date: 21 Nov 2024\n\n<|eot_id|>",
        "Cutting Knowledge Date: December 2023\nToday Date: 21 Nov 2024\n\n",
        "dates in the vendor's system prompt" },
    { "google-gemma-2-2b-it", "gemma2", { "<start_of_turn>", "<end_of_turn>" }, "<eos>", "gemma",
        "", "", NULL },
    { "microsoft-Phi-3.5-mini-instruct", "phi3",
        { "<|user|>", "<|assistant|>", "<|end|>", "<|system|>", "<|endoftext|>" }, "<|endoftext|>",
        "phi3", "", "", NULL },
    { "mistralai-Mistral-Nemo-Instruct-2407", "llama",
        { "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[TOOL_CALLS]", "<SPECIAL_20>" }, "</s>",
        "mistral_tekken", "", "", NULL },
    { "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "qwen2",
        { "<" BAR "User" BAR ">", "<" BAR "Assistant" BAR ">", "<think>", "</think>",
            "<|im_start|>", "<|im_end|>" },
        "<" BAR "end\xE2\x96\x81of\xE2\x96\x81sentence" BAR ">", "deepseek", "<think>\n</think>",
        "<think>\n</think>", "whether to think is told in the prompt" },
    { "deepseek-ai-DeepSeek-V3.1", "deepseek2",
        { "<" BAR "User" BAR ">", "<" BAR "Assistant" BAR ">", "<think>", "</think>" },
        "<" BAR "end\xE2\x96\x81of\xE2\x96\x81sentence" BAR ">", "deepseek", "<think></think>",
        "<think></think>", "whether to think is told in the prompt" },
    { "GLM-4.6", "glm4moe",
        { "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>" },
        "<|endoftext|>", "glm4", "", "\n<think></think>", "what was said had an empty thought" },
    { "GLM-4.7-Flash", "deepseek2",
        { "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>" },
        "<|endoftext|>", "glm4", NULL, NULL,
        "no line breaks behind the roles, and thinking begun" },
    { "CohereForAI-c4ai-command-r7b-12-2024-tool_use", "cohere2",
        { "<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>" },
        "<|END_OF_TURN_TOKEN|>", "command_r", NULL, NULL, "the file has to bring it" },
    { "Kimi-K2-Instruct", "deepseek2",
        { "<|im_user|>", "<|im_assistant|>", "<|im_middle|>", "<|im_system|>", "<|im_end|>" },
        "<|im_end|>", "kimi", NULL, NULL, "the file has to bring it" },
    { "LFM2-8B-A1B", "lfm2moe", { "<|im_start|>", "<|im_end|>", "<|tool_list_start|>" },
        "<|im_end|>", "lfm2", NULL, NULL, "the file has to bring it" },
    { "MiniMax-M2", "minimax-m2", { "]~b]", "[e~[", "]~!b[" }, "[e~[", "minimax", NULL, NULL,
        "the file has to bring it" },
    { "ibm-granite-granite-3.3-2B-Instruct", "granite",
        { "<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>" }, "<|end_of_text|>", "granite",
        NULL, NULL, "the file has to bring it" },
    { "openai-gpt-oss-120b", "gpt-oss",
        { "<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|return|>", "<|call|>" },
        "<|return|>", "gpt_oss", NULL, NULL, "the file has to bring it" },
};

static struct vocab *vocab_of(const struct family_case *r)
{
    struct kit_vocab k = { 0 };
    struct gguf_writer *w = gguf_writer_new(32);
    struct vocab *v;
    struct err e;
    int32_t eos = TOKEN_NONE;

    kit_add_bytes(&k, true);
    for (size_t i = 0; i < ARRAY_LEN(r->tokens) && r->tokens[i]; i++) {
        int32_t id = kit_add_token(&k, r->tokens[i], TOKEN_CONTROL);
        eos = strcmp(r->tokens[i], r->eos) ? eos : id;
    }
    if (eos == TOKEN_NONE)
        eos = kit_add_token(&k, r->eos, TOKEN_CONTROL);
    gguf_put_u32(w, "tokenizer.ggml.eos_token_id", (uint32_t)eos);
    EXPECT_EQ(kit_make_vocab(&v, &k, "gpt2", w, &e), 0);
    return v;
}

/* ---- prompts */

#define HEAD "{\"add_generation_prompt\":true,\"messages\":["
#define HI   "{\"role\":\"user\",\"content\":\"Hi\"}"
static const char single_message[] = HEAD HI "]}";
static const char conversation[] = HEAD "{\"role\":\"system\",\"content\":\"Be brief.\"}," HI
                                        ",{\"role\":\"assistant\",\"content\":\"Hello.\"},"
                                        "{\"role\":\"user\",\"content\":\"Bye\"}]}";

static char *prompt_of(const struct adapter_fixture *f, const char *request)
{
    struct arena *a = arena_new(64 * MB);
    struct convo c = kit_parse_convo(str_of(request), a);
    struct rendered r;

    EXPECT_EQ(kit_render_convo(&r, f->adapter, &c, a), 0);
    char *z = xmalloc(r.n_bytes + 1);
    memcpy(z, r.n_spans ? r.spans[0].text.p : "", r.n_bytes);
    z[r.n_bytes] = '\0';
    arena_free(a);
    return z;
}

static void remove_text(char *text, const char *what)
{
    size_t n = strlen(what);

    for (char *at = text; n && (at = strstr(at, what));)
        memmove(at, at + n, strlen(at + n) + 1);
}

static void compare(const struct family_case *r, const struct adapter_fixture *own,
    const struct adapter_fixture *vendor, const char *request, const char *extra)
{
    char *ours = prompt_of(own, request), *theirs = prompt_of(vendor, request);
    bool is_equal = !strcmp(ours, theirs);

    EXPECT(strstr(ours, "Hi"));
    if (extra && *extra) {
        EXPECT(strstr(theirs, extra));
        remove_text(theirs, extra);
    }
    if (extra) {
        if (strcmp(ours, theirs))
            fprintf(stderr, "%s\n", r->file);
        EXPECT_STR(ours, theirs);
    } else { /* keeps the table correct */
        EXPECT(!is_equal);
    }
    mem_free(ours);
    mem_free(theirs);
}

/* ---- choice of the family */

static void file_without_template_gets_that_of_its_family(void)
{
    for (size_t i = 0; i < ARRAY_LEN(family_cases); i++) {
        const struct family_case *r = &family_cases[i];
        struct vocab *v = vocab_of(r);
        const struct chat_family *f = chat_family_of_vocab(v);
        char *source = kit_template(r->file);
        if (!f || strcmp(f->name, r->family))
            fprintf(stderr, "%s\n", r->file);
        EXPECT_STR(f ? f->name : "none", r->family);
        EXPECT_EQ(f->source == NULL, r->why && !strcmp(r->why, "the file has to bring it"));
        if (source && f->source) {
            struct template_env env = {
                .bos_token = STR("<s>"), .eos_token = str_of(r->eos), .now = 1732155555
            };
            struct adapter_options o = { .arch = str_of(r->arch), .vocab = v, .env = &env };
            struct adapter_fixture own = adapter_fixture_open(f->source, &o),
                                   vendor = adapter_fixture_open(source, &o);
            EXPECT(!own.rc && !vendor.rc);
            compare(r, &own, &vendor, single_message, r->extra_alone);
            compare(r, &own, &vendor, conversation, r->extra_talk);
            for (int32_t id = 0; id < vocab_n_tokens(v); id++) {
                bool ends = vocab_is_end(v, id) || adapter_is_end(own.adapter, id);
                bool ends_there = vocab_is_end(v, id) || adapter_is_end(vendor.adapter, id);
                if (ends != ends_there)
                    fprintf(stderr, "%s: " STR_FMT "\n", r->file, STR_ARG(vocab_text(v, id)));
                EXPECT_EQ(ends, ends_there);
            }
            printf("%-46s %-14s %-12s %-12s (its own: %s, %s)\n", r->file, own.info->family,
                own.info->tool_parser, own.info->thinking_parser, vendor.info->tool_parser,
                vendor.info->thinking_parser);
            EXPECT(own.info->can_call_tools);
            adapter_fixture_close(&own);
            adapter_fixture_close(&vendor);
        }
        mem_free(source);
        vocab_close(v);
    }
}

/* The end marker of a built-in template ends a turn in every vocabulary: as a token, or else as
 * text. */
static void a_turn_of_a_built_in_template_always_ends(void)
{
    static const struct {
        const char *family, *marker; /* marker: NULL if the template writes the end token */
    } cases[] = { { "chatml", "<|im_end|>" }, { "qwen", "<|im_end|>" }, { "llama", "<|eot_id|>" },
        { "gemma", "<end_of_turn>" }, { "phi3", "<|end|>" }, { "glm4", "<|user|>" },
        { "deepseek", NULL }, { "mistral_v7", NULL }, { "mistral_tekken", NULL },
        { "mistral", NULL }, { "llama2", NULL }, { "zephyr", NULL }, { "vicuna", NULL } };
    size_t n = 0;

    for (size_t i = 0; chat_family_at(i); i++)
        n += chat_family_at(i)->source != NULL;
    EXPECT_EQ(n, ARRAY_LEN(cases));
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (int has_marker = 0; has_marker < 2; has_marker++) {
            const struct chat_family *f = chat_family_find(str_of(cases[i].family));
            struct family_case r = { .eos = "</s>", .tokens = { "<s>" } };
            if (has_marker && cases[i].marker)
                r.tokens[1] = cases[i].marker;
            struct vocab *v = vocab_of(&r);
            struct adapter_options o = { .arch = STR(""), .family = str_of(f->name), .vocab = v };
            struct adapter_fixture own = adapter_fixture_open(f->source, &o);
            struct str want = str_of(has_marker || !cases[i].marker ? "" : cases[i].marker);
            EXPECT(!own.rc && str_eq(adapter_turn_end(own.adapter), want));
            adapter_fixture_close(&own);
            vocab_close(v);
        }
}

/* ---- a complete file */

static void put_tensors(const struct gguf *g, struct gguf_writer *w)
{
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        gguf_put_tensor(w, t->name, t->type, t->n_dims, t->dims);
    }
}

/* Writes models/demo.gguf without its template: path ends in XXXXXX, the caller unlinks it. */
static void strip_template(char *path)
{
    struct gguf_writer *w = gguf_writer_new(0);
    struct gguf *g;
    struct err e;
    int fd = mkstemp(path);

    EXPECT(fd >= 0);
    close(fd);
    EXPECT_EQ(gguf_open(&g, "models/demo.gguf", &e), 0);
    EXPECT(gguf_find(g, "tokenizer.chat_template"));
    for (size_t i = 0; i < gguf_n_kv(g); i++)
        if (!str_is(gguf_kv_at(g, i)->key, "tokenizer.chat_template"))
            gguf_put_value(w, gguf_kv_at(g, i)->key, &gguf_kv_at(g, i)->value);
    put_tensors(g, w);
    EXPECT_EQ(gguf_writer_open(w, path, &e), 0);
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        EXPECT_EQ(gguf_writer_data(w, t->data, (size_t)t->bytes, &e), 0);
    }
    EXPECT_EQ(gguf_writer_finish(w, &e), 0);
    gguf_writer_free(w);
    gguf_close(g);
}

static void open_model(struct model *m, struct model_spec *spec, const char *path)
{
    struct err e = { 0 };

    *spec = model_spec_of("m", path);
    spec->threads = 1;
    spec->kv_bytes = 1 << 20;
    if (model_open(m, spec, &e))
        fprintf(stderr, "%s\n", e.msg);
    EXPECT_EQ((int)e.code, 0);
    EXPECT(m->template && m->adapter);
}

static void demo_model_works_without_its_template(void)
{
    static const char *const requests[] = { single_message, conversation };
    char path[] = "/tmp/inferflux-bare-XXXXXX";
    struct model_spec specs[2];
    struct model own = { 0 }, bare = { 0 };

    strip_template(path);
    open_model(&own, &specs[0], "models/demo.gguf");
    open_model(&bare, &specs[1], path);
    EXPECT_STR(adapter_info(bare.adapter)->tool_parser, adapter_info(own.adapter)->tool_parser);
    EXPECT_STR(
        adapter_info(bare.adapter)->thinking_parser, adapter_info(own.adapter)->thinking_parser);
    EXPECT(adapter_info(own.adapter)->has_native_tools);
    EXPECT(adapter_info(bare.adapter)->injects_tools && adapter_info(bare.adapter)->can_call_tools);
    EXPECT_EQ(own.n_end_ids, bare.n_end_ids);
    EXPECT(!memcmp(own.end_ids, bare.end_ids, (size_t)own.n_end_ids * sizeof(*own.end_ids)));
    for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
        char *theirs = prompt_of(&(struct adapter_fixture){ .adapter = own.adapter }, requests[i]);
        char *ours = prompt_of(&(struct adapter_fixture){ .adapter = bare.adapter }, requests[i]);
        EXPECT_STR(ours, theirs);
        mem_free(ours);
        mem_free(theirs);
    }
    model_close(&own);
    model_close(&bare);
    unlink(path);
}

TESTS(TEST(file_without_template_gets_that_of_its_family),
    TEST(a_turn_of_a_built_in_template_always_ends), TEST(demo_model_works_without_its_template))
