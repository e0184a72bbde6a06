/* format/describe.c: the description of a model file, as text and as JSON; no string of the file
 * can move the cursor of a terminal. */
#include "support/check.h"

#include "base/json.h"
#include "base/mem.h"
#include "format/describe.h"
#include "testing/gguf_write.h"
#include "model/family.h"

#include <stdio.h>

static struct gguf *opened;
static struct buf file, text;

static void open_sample(struct gguf_writer *w)
{
    struct err e = { 0 };

    buf_init(&file, MB);
    buf_init(&text, MB);
    EXPECT_EQ(gguf_writer_header(w, &file, &e), 0);
    size_t n = gguf_writer_data_bytes(w);
    char *p = n ? buf_reserve(&file, n) : NULL;
    if (p) {
        memset(p, 0, n);
        file.n += n;
    }
    gguf_writer_free(w);
    if (gguf_open_bytes(&opened, (uint8_t *)file.p, file.n, &e))
        fprintf(stderr, "%s\n", e.msg);
    EXPECT(opened);
}

static void close_sample(void)
{
    gguf_close(opened);
    opened = NULL;
    buf_clear(&file);
    buf_clear(&text);
}

static struct gguf_writer *write_sample(const char *arch, const char *vocabulary, enum qtype type)
{
    static const struct str words[] = { { "a", 1 }, { "\x1B[2J", 4 } };
    static const uint32_t many[100] = { 7, 8, 9 };
    struct gguf_writer *w = gguf_writer_new(0);

    gguf_put_str(w, "general.architecture", str_of(arch));
    gguf_put_str(w, "general.name", STR("evil\n\x1B[31m\xFF name"));
    gguf_put_str(w, "tokenizer.ggml.model", str_of(vocabulary));
    gguf_put_u64(w, "big", UINT64_MAX);
    gguf_put_i32(w, "minus", -3);
    gguf_put_f32(w, "eps", 1e-5f);
    gguf_put_bool(w, "yes", true);
    gguf_put_strs(w, "words", words, 2);
    gguf_put_arr(w, "many", GGUF_U32, many, 100);
    if (type != Q_I8)
        gguf_put_tensor(w, STR("w"), type, 2, (uint64_t[]){ 256, 3 });
    return w;
}

static bool expect_description(const char *what)
{
    return str_find(buf_str(&text), str_of(what)) >= 0;
}

static void text_form_is_complete(void)
{
    open_sample(write_sample("llama", "gpt2", Q_Q4_K));
    gguf_describe(opened, &(struct gguf_facts){ .kv_bytes_per_token = 1536 }, false, &text);
    EXPECT(buf_ok(&text));
    EXPECT(expect_description(
        "memory        weights 432 B, KV cache 1536 B per token (f16)\ntemplate      none\n"));
    EXPECT(expect_description("architecture  llama\n"));
    EXPECT(expect_description("supported     yes\n"));
    EXPECT(expect_description("parameters    768\n"));
    EXPECT(expect_description("evil\\n\\u001b[31m\\xff name"));
    EXPECT(expect_description("\"a\", \"\\u001b[2J\""));
    EXPECT(expect_description("7, 8, 9, 0, ... (100)"));
    EXPECT(expect_description("Q4_K    256 x 3"));
    EXPECT(expect_description("1 tensors, 768 parameters, 432 B\n"));
    for (size_t i = 0; i < text.n; i++)
        EXPECT((unsigned char)text.p[i] >= 0x20 || text.p[i] == '\n');
    close_sample();
}

static void windowed_layers_have_a_size_of_their_own(void)
{
    const struct gguf_facts facts = {
        .kv_bytes_per_token = 1536, .window = 1024, .window_kv_bytes_per_token = 768
    };

    open_sample(write_sample("llama", "gpt2", Q_Q4_K));
    gguf_describe(opened, &facts, false, &text);
    EXPECT(expect_description("KV cache 1536 B per token (f16), windowed KV 768 B per token of the "
                              "last 1024\n"));
    close_sample();
}

static struct gguf_experts experts_with(const char *arch, const char *prefix, uint32_t n)
{
    struct gguf_writer *w = write_sample(arch, "gpt2", Q_Q4_K);
    char key[64];

    snprintf(key, sizeof(key), "%s.expert_count", prefix);
    gguf_put_u64(w, key, n);
    snprintf(key, sizeof(key), "%s.expert_used_count", prefix);
    gguf_put_u64(w, key, 4);
    open_sample(w);
    struct gguf_experts found = gguf_experts_of(opened);
    gguf_describe(opened, &(struct gguf_facts){ .state_bytes = 2048 }, false, &text);
    EXPECT_EQ(expect_description("experts       64, of which a token uses 4\n"), found.n == 64);
    EXPECT(expect_description(", state 2048 B per sequence"));
    close_sample();
    return found;
}

static void experts_are_counted(void)
{
    struct gguf_experts e = experts_with("llama", "llama", 64);
    EXPECT(e.n == 64 && e.n_active == 4);
    e = experts_with("llama", "llm", 64);
    EXPECT(e.n == 64 && e.n_active == 4);
    e = experts_with("llama", "other", 64);
    EXPECT(e.n == 0 && e.n_active == 0);
    e = experts_with("llama", "llama", 2);
    EXPECT(e.n == 2 && e.n_active == 2);
}

static void json_form_is_complete(void)
{
    struct arena *a = arena_new(MB);
    struct json *j = NULL;
    struct err e = { 0 };
    double f;

    open_sample(write_sample("llama", "gpt2", Q_Q4_K));
    gguf_describe(opened, &(struct gguf_facts){ 0 }, true, &text);
    EXPECT_EQ(json_parse(&j, buf_str(&text), a, &json_limits_default, &e), 0);
    const struct json *meta = json_get(j, "metadata"), *tensor = json_get(j, "tensors")->child;
    EXPECT(json_get(j, "served")->b && json_is_null(json_get(j, "reason")));
    EXPECT(json_is_null(json_get(j, "kv_bytes_per_token")) && !json_get(j, "template")->b);
    EXPECT(str_is(json_get(j, "weights_bytes")->s, "432"));
    EXPECT(str_is(json_get(meta, "big")->s, "18446744073709551615"));
    EXPECT(json_f64(json_get(meta, "eps"), &f) && f == 1e-5);
    EXPECT(str_is(json_get(meta, "minus")->s, "-3") && json_get(meta, "yes")->b);
    EXPECT_EQ(json_get(meta, "words")->n, 2u);
    EXPECT(str_is(json_get(json_get(meta, "many"), "n")->s, "100"));
    EXPECT_EQ(json_get(json_get(meta, "many"), "first")->n, 4u);
    EXPECT(str_is(json_get(tensor, "type")->s, "Q4_K"));
    EXPECT(str_is(json_get(tensor, "shape")->child->s, "256"));
    EXPECT(str_is(json_get(json_get(j, "types")->child, "bytes")->s, "432"));
    arena_free(a);
    close_sample();
}

static void reason_of_the_caller_is_shown(void)
{
    open_sample(write_sample("llama", "gpt2", Q_Q4_K));
    gguf_describe(opened, &(struct gguf_facts){ .reason = "llama.x = 1" }, false, &text);
    EXPECT(expect_description("supported     no: llama.x = 1\n"));
    close_sample();
}

static void unsupported_features_are_named(void)
{
    static const struct {
        const char *arch, *vocabulary;
        enum qtype type;
        const char *why;
    } rows[] = {
        { "gpt9", "gpt2", Q_F32, "architecture gpt9" },
        { "llama", "bert", Q_F32, "vocabulary of kind bert" },
        { "llama", "llama", (enum qtype)15, "weights of type Q8_K" },
        { "qwen2", "gpt2", Q_I8, "no weights" },
        { "", "", Q_F32, "no architecture" },
        { "qwen3", "gpt2", Q_Q6_K, "" },
        { "gemma4", "gemma4", Q_Q6_K, "" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        open_sample(write_sample(rows[i].arch, rows[i].vocabulary, rows[i].type));
        EXPECT_EQ(gguf_is_supported(opened, &text), !*rows[i].why);
        EXPECT(str_is(buf_str(&text), rows[i].why));
        close_sample();
    }
}

/* The list is in a lower layer than the model families, so it cannot use their table. */
static void family_list_equals_the_model_families(void)
{
    size_t n = 0;

    for (; family_at(n); n++)
        EXPECT(gguf_supported_arch(n) && !strcmp(family_at(n)->arch, gguf_supported_arch(n)));
    EXPECT(!gguf_supported_arch(n));
}

static void a_full_buffer_is_only_full(void)
{
    struct buf small;

    open_sample(write_sample("llama", "gpt2", Q_F32));
    for (size_t max = 0; max < 400; max += 7) {
        buf_init(&small, max);
        gguf_describe(opened, &(struct gguf_facts){ 0 }, max & 1, &small);
        EXPECT(!buf_ok(&small));
        buf_clear(&small);
    }
    close_sample();
}

TESTS(TEST(text_form_is_complete), TEST(windowed_layers_have_a_size_of_their_own),
    TEST(json_form_is_complete), TEST(experts_are_counted), TEST(reason_of_the_caller_is_shown),
    TEST(unsupported_features_are_named), TEST(family_list_equals_the_model_families),
    TEST(a_full_buffer_is_only_full))
