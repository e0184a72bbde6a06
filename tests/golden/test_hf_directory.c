/* A model as a GGUF file, as a Hugging Face directory and as an MLX directory gives the same logits
 * and tokens, bit for bit; and the weights of all of them have the same packfile content. */
#include "base/mem.h"
#include "format/model_file.h"
#include "model/content.h"
#include "model/llama.h"
#include "model/tensor_bytes.h"
#include "support/check.h"
#include "support/tmpdir.h"
#include "testing/hf_write.h"
#include "testing/synth.h"
#include "tokenizer/vocab.h"

#include <sys/stat.h>

enum { N_TOKENS = 90 };

static char folder[TMPDIR_NAME], gguf_path[TMPDIR_NAME + 16], hf_path[TMPDIR_NAME + 16],
    values_path[TMPDIR_NAME + 16];

static void fail_with(const char *what, const struct err *e)
{
    fprintf(stderr, "%s: %s\n", what, e->msg);
    fail();
}

static void make_paths(void)
{
    tmpdir_make(folder);
    snprintf(gguf_path, sizeof(gguf_path), "%s/m.gguf", folder);
    snprintf(hf_path, sizeof(hf_path), "%s/hf", folder);
    snprintf(values_path, sizeof(values_path), "%s/values", folder);
    EXPECT(!mkdir(hf_path, 0700) && !mkdir(values_path, 0700));
}

/* Latent attention with kv_b as one matrix, as in directories, and a router with groups. */
static void preset_deepseek3(struct synth *s)
{
    static const char *const settings[] = { "attention.q_lora_rank=64", "attention.kv_lora_rank=32",
        "attention.value_length=32", "rope.dimension_count=16", "rope.scaling.type=yarn",
        "rope.scaling.factor=4.0", "rope.scaling.original_context_length=32",
        "rope.scaling.yarn_log_multiplier=0.1", "expert_group_count=4", "expert_group_used_count=2",
        "expert_gating_func=2", "expert_weights_norm=true", "expert_weights_scale=2.5",
        "expert_feed_forward_length=32", "expert_shared_count=1", "leading_dense_block_count=1" };

    EXPECT(synth_preset(s, "tiny-deepseek2-old"));
    s->n_experts = 12;
    s->n_experts_used = 3;
    s->has_optional = true;
    s->settings = settings;
    s->n_settings = ARRAY_LEN(settings);
}

/* The same of Mistral 4, whose queries grow with the position. */
static void preset_mistral4(struct synth *s)
{
    static const char *const settings[] = { "attention.q_lora_rank=64", "attention.kv_lora_rank=32",
        "attention.value_length=32", "rope.dimension_count=16", "rope.scaling.type=yarn",
        "rope.scaling.factor=8.0", "rope.scaling.original_context_length=40",
        "rope.scaling.yarn_log_multiplier=0.1", "attention.temperature_scale=0.1",
        "expert_gating_func=1", "expert_weights_norm=true", "expert_feed_forward_length=32",
        "expert_shared_count=1" };

    EXPECT(synth_preset(s, "tiny-mistral4"));
    s->n_kv_heads = s->n_heads;
    s->head_dim = 40;
    s->settings = settings;
    s->n_settings = ARRAY_LEN(settings);
}

/* Latent attention with k_b and v_b, of which all rows are whole blocks of quantised types. */
static void preset_wide_latent(struct synth *s)
{
    static const char *const settings[] = { "attention.q_lora_rank=64", "attention.kv_lora_rank=64",
        "attention.value_length=64", "attention.key_length_mla=80", "attention.value_length_mla=64",
        "rope.dimension_count=16", "rope.scaling.type=yarn", "rope.scaling.factor=8.0",
        "rope.scaling.original_context_length=40", "rope.scaling.yarn_log_multiplier=0.1",
        "attention.temperature_scale=0.1", "expert_gating_func=1", "expert_weights_norm=true",
        "expert_feed_forward_length=64", "expert_shared_count=1" };

    EXPECT(synth_preset(s, "tiny-mistral4"));
    s->head_dim = 80;
    s->settings = settings;
    s->n_settings = ARRAY_LEN(settings);
}

/* The same with kv_b as one matrix, and a factor for each matrix. */
static void preset_latent_factors(struct synth *s)
{
    static const char *const settings[] = { "attention.q_lora_rank=64", "attention.kv_lora_rank=64",
        "attention.value_length=32", "rope.dimension_count=16", "expert_gating_func=1",
        "expert_weights_norm=false", "expert_feed_forward_length=64", "expert_shared_count=1",
        "leading_dense_block_count=1" };

    EXPECT(synth_preset(s, "tiny-deepseek2-old"));
    s->has_scales = true;
    s->settings = settings;
    s->n_settings = ARRAY_LEN(settings);
}

/* All layers with attention have the same number of KV heads. */
static void preset_lfm2moe(struct synth *s)
{
    static const char *const settings[] = { "attention.head_count_kv=[0,2,0,2]",
        "shortconv.l_cache=3", "expert_feed_forward_length=48", "leading_dense_block_count=1",
        "expert_gating_func=2", "expert_weights_norm=true" };

    s->settings = settings;
    s->n_settings = ARRAY_LEN(settings);
}

/* Value heads of 64 dimensions, so that columns of quantised types are whole blocks. */
static void preset_wide_delta_net(struct synth *s)
{
    static const char *const settings[] = { "rope.dimension_count=16",
        "rope.dimension_sections=[2,2,2,0]", "full_attention_interval=3", "ssm.conv_kernel=4",
        "ssm.state_size=64", "ssm.group_count=2", "ssm.time_step_rank=6", "ssm.inner_size=384" };

    EXPECT(synth_preset(s, "tiny-qwen35"));
    s->head_dim = 32;
    s->settings = settings;
    s->n_settings = ARRAY_LEN(settings);
}

/* Writes the same model in both formats, and with `quant` also a directory with the rounded values.
 * Rows of quantised types are multiples of 64 elements. */
static void write_both(const char *preset, enum qtype type, const struct hf_write_options *o)
{
    const bool is_quantised = type == Q_Q4_1 || type == Q_MXFP4 || type == Q_NVFP4;
    struct synth s;
    struct gguf *g = NULL;
    struct err e = { 0 };

    if (!strcmp(preset, "tiny-deepseek3"))
        preset_deepseek3(&s);
    else if (!strcmp(preset, "tiny-mistral4-old"))
        preset_mistral4(&s);
    else if (!strcmp(preset, "tiny-mistral4-wide"))
        preset_wide_latent(&s);
    else if (!strcmp(preset, "tiny-deepseek2-factors"))
        preset_latent_factors(&s);
    else if (!strcmp(preset, "tiny-qwen35-wide"))
        preset_wide_delta_net(&s);
    else
        EXPECT(synth_preset(&s, preset));
    if (!strcmp(preset, "tiny-lfm2moe"))
        preset_lfm2moe(&s);
    s.type = type;
    s.head_type = is_quantised ? Q_F16 : type;
    if (s.n_experts && !strcmp(s.arch, "gemma4"))
        s.fuses_experts = !o->is_mlx;
    if (type == Q_NVFP4 || o->quant) {
        s.d_model = 128;
        s.d_ff = 192;
        s.head_dim = strncmp(preset, "tiny-deepseek", 13) && strncmp(preset, "tiny-mistral4", 13)
                         ? 32
                         : s.head_dim;
    }
    if (!strncmp(preset, "tiny-gemma", 10) || !strncmp(preset, "tiny-qwen35", 11) ||
        !strncmp(preset, "tiny-qwen3next", 14))
        s.vector_sigma = 0.02f; /* w - 1 + 1 is w for w from 0.5 to 2 */
    if (synth_write(&s, gguf_path, &e) || gguf_open(&g, gguf_path, &e))
        fail_with(preset, &e);
    if (hf_write(g, hf_path, o, &e))
        fail_with(preset, &e);
    struct hf_write_options values = *o;
    values.writes_values = true;
    if (o->quant && hf_write(g, values_path, &values, &e))
        fail_with(preset, &e);
    gguf_close(g);
}

/* Logits of N_TOKENS tokens; *v is the vocabulary. */
static float *compute(const char *path, struct vocab **v, int *n_vocab)
{
    struct llama_options o = { .n_threads = 2,
        .n_pages = N_TOKENS / PAGE_TOKENS + 1,
        .n_states = 2,
        .max_rows = 96,
        .max_logits = 96 };
    int32_t tokens[N_TOKENS];
    page_id pages[N_TOKENS];
    struct gguf *g = NULL;
    struct lm *m;
    struct err e = { 0 };

    if (model_file_open(&g, path, &e) || vocab_open(v, g, &e) || lm_open_llama(&m, g, &o, &e))
        fail_with(path, &e);
    gguf_close(g);
    for (int i = 0; i < N_TOKENS; i++) {
        tokens[i] = (i * 7919 + i * i * 31 + 17) % m->n_vocab;
        pages[i].i = (uint32_t)MIN(i, (int)m->n_pages - 1);
    }
    struct lm_run run = {
        .tokens = tokens, .n = N_TOKENS, .pages = pages, .n_logits = N_TOKENS, .state = STATE_NONE
    };
    EXPECT(m->ops->forward(m, &run, 1, NULL));
    size_t bytes = sizeof(float) * N_TOKENS * (size_t)m->n_vocab;
    float *out = xmalloc(bytes);
    memcpy(out, run.logits, bytes);
    *n_vocab = m->n_vocab;
    m->ops->close(m);
    return out;
}

static void expect_same_vocab(const struct vocab *a, const struct vocab *b)
{
    EXPECT_EQ(vocab_n_tokens(a), vocab_n_tokens(b));
    EXPECT(!strcmp(vocab_pre(a), vocab_pre(b)));
    EXPECT(vocab_bos(a) == vocab_bos(b) && vocab_eos(a) == vocab_eos(b));
    EXPECT(vocab_add_bos(a) == vocab_add_bos(b) && vocab_add_eos(a) == vocab_add_eos(b));
    for (int32_t i = 0; i < vocab_n_tokens(a); i++) {
        EXPECT(str_eq(vocab_text(a, i), vocab_text(b, i)));
        EXPECT(str_eq(vocab_bytes(a, i), vocab_bytes(b, i)));
        EXPECT(vocab_attr(a, i) == vocab_attr(b, i) && vocab_is_end(a, i) == vocab_is_end(b, i));
    }
}

static void expect_same_model(const char *preset, const char *path)
{
    struct vocab *a, *b;
    int n, n_hf;
    float *want = compute(path, &a, &n), *got = compute(hf_path, &b, &n_hf);
    float most = 0;

    EXPECT_EQ(n, n_hf);
    for (int i = 0; i < n * N_TOKENS; i++)
        most = MAX(most, want[i] > got[i] ? want[i] - got[i] : got[i] - want[i]);
    if (memcmp(want, got, sizeof(float) * (size_t)n * N_TOKENS) != 0)
        fprintf(stderr, "%s: the logits differ by %g\n", preset, (double)most);
    EXPECT(!memcmp(want, got, sizeof(float) * (size_t)n * N_TOKENS));
    expect_same_vocab(a, b);
    vocab_close(a);
    vocab_close(b);
    mem_free(want);
    mem_free(got);
}

static void check_preset(const char *preset, enum qtype type, struct hf_write_options o)
{
    make_paths();
    write_both(preset, type, &o);
    expect_same_model(preset, o.quant ? values_path : gguf_path);
    tmpdir_remove(folder);
}

/* Families with layers of several kinds. */
static const char *const hybrids[] = { "tiny-granitehybrid", "tiny-granitehybrid-moe",
    "tiny-nemotron-h", "tiny-nemotron-h-moe", "tiny-nemotron-h-latent" };

/* Families with DeltaNet layers. */
static const char *const delta_nets[] = { "tiny-qwen35", "tiny-qwen35moe", "tiny-qwen35-wide",
    "tiny-qwen3next-fused" };

static enum qtype float_type(size_t i)
{
    return i % 3 == 0 ? Q_F32 : i % 3 == 1 ? Q_BF16 : Q_F16;
}

static void families_give_the_same_bits(void)
{
    static const char *const presets[] = { "tiny-llama", "tiny-qwen2", "tiny-qwen3",
        "tiny-qwen3moe", "tiny-qwen2moe", "tiny-smollm3", "tiny-phi3", "tiny-phi3-short",
        "tiny-granite", "tiny-granitemoe", "tiny-mistral3", "tiny-olmo2", "tiny-olmo3",
        "tiny-gemma2", "tiny-gemma3", "tiny-gpt-oss", "tiny-glm4", "tiny-glm4moe", "tiny-lfm2",
        "tiny-lfm2moe", "tiny-deepseek2-old", "tiny-deepseek3" };

    for (size_t i = 0; i < ARRAY_LEN(presets); i++)
        check_preset(
            presets[i], float_type(i), (struct hf_write_options){ .n_shards = i % 2 ? 3 : 1 });
    for (size_t i = 0; i < 2 * ARRAY_LEN(hybrids); i++)
        check_preset(hybrids[i / 2], float_type(i), (struct hf_write_options){ .n_shards = 1 });
}

static void mlx_directories_give_the_same_bits(void)
{
    check_preset("tiny-qwen3moe", Q_F16, (struct hf_write_options){ .is_mlx = true });
    check_preset("tiny-qwen2", Q_BF16, (struct hf_write_options){ .is_mlx = true, .n_shards = 2 });
    /* codes of 4 bits in groups of 32, as Q4_1 */
    check_preset("tiny-llama", Q_Q4_1, (struct hf_write_options){ .is_mlx = true });
    check_preset("tiny-qwen3moe", Q_Q4_1, (struct hf_write_options){ .is_mlx = true });
    for (size_t i = 0; i < ARRAY_LEN(hybrids); i++)
        check_preset(
            hybrids[i], i % 2 ? Q_BF16 : Q_Q4_1, (struct hf_write_options){ .is_mlx = true });
}

/* Value heads have another order in directories than in the files of Qwen 3.5. */
static void delta_net_directories_give_the_same_bits(void)
{
    for (size_t i = 0; i < 3 * ARRAY_LEN(delta_nets); i++) {
        check_preset(delta_nets[i / 3], float_type(i),
            (struct hf_write_options){ .n_shards = i % 2 ? 2 : 1 });
        check_preset(delta_nets[i / 3], float_type(i), (struct hf_write_options){ .is_mlx = true });
    }
    for (size_t i = 0; i < 3; i++)
        check_preset("tiny-qwen3next-fused", float_type(i),
            (struct hf_write_options){ .n_shards = 2, .stacks_experts = true });
    check_preset("tiny-qwen35-wide", Q_Q4_1, (struct hf_write_options){ .is_mlx = true });
    check_preset("tiny-qwen35-wide", Q_MXFP4, (struct hf_write_options){ .is_mlx = true });
    check_preset("tiny-qwen35-wide", Q_NVFP4, (struct hf_write_options){ .n_shards = 1 });
    check_preset("tiny-qwen35-wide", Q_NVFP4, (struct hf_write_options){ .is_mlx = true });
    check_preset(
        "tiny-qwen35-wide", Q_F32, (struct hf_write_options){ .quant = HF_WRITE_FP8_ROWS });
    check_preset("tiny-qwen35-wide", Q_F32,
        (struct hf_write_options){ .is_mlx = true, .quant = HF_WRITE_MXFP8 });
}

/* Layers with a window have other heads; the last layers of tiny-gemma4-e share keys and values. */
static void gemma4_directories_give_the_same_bits(void)
{
    static const char *const presets[] = { "tiny-gemma4", "tiny-gemma4-e", "tiny-gemma4-moe" };

    for (size_t i = 0; i < 3 * ARRAY_LEN(presets); i++) {
        check_preset(
            presets[i / 3], float_type(i), (struct hf_write_options){ .n_shards = i % 2 ? 2 : 1 });
        check_preset(presets[i / 3], float_type(i), (struct hf_write_options){ .is_mlx = true });
    }
    check_preset("tiny-gemma4", Q_Q4_1, (struct hf_write_options){ .is_mlx = true });
    check_preset("tiny-gemma4-moe", Q_Q4_1, (struct hf_write_options){ .is_mlx = true });
    /* the rows of the table of per-layer inputs are computed from codes and scales */
    check_preset("tiny-gemma4-e", Q_Q4_1, (struct hf_write_options){ .is_mlx = true });
}

/* The digest of a model does not depend on whether the bytes of a tensor are computed at once. */
static void a_digest_of_computed_rows_is_that_of_their_bytes(void)
{
    struct synth s;
    struct gguf *g = NULL;
    struct thread_pool *pool = NULL;
    struct content c[2];
    uint8_t digests[2][CONTENT_BYTES];
    struct err e = { 0 };
    size_t n_computed = 0;

    make_paths();
    EXPECT(synth_preset(&s, "tiny-gemma4-e"));
    s.n_vocab = 20000; /* several chunks of a table, with parts of rows */
    s.type = s.head_type = Q_Q4_1;
    EXPECT(!synth_write(&s, gguf_path, &e) && !gguf_open(&g, gguf_path, &e));
    EXPECT(!hf_write(g, hf_path, &(struct hf_write_options){ .is_mlx = true }, &e));
    gguf_close(g);
    EXPECT(!model_file_open(&g, hf_path, &e) && !thread_pool_open(&pool, 2, &e));
    EXPECT(!content_init(&c[0], g, pool, &e) && !content_init(&c[1], g, pool, &e));
    struct tensor_bytes bytes = { .g = g, .thread_pool = pool };
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        const bool is_computed = !t->data && t->n_dims > 1;
        const uint8_t *data;
        EXPECT(!tensor_bytes_get(&bytes, t, &data, &e));
        content_add(&c[0], t, data);
        n_computed += is_computed;
        if (is_computed)
            EXPECT(!content_add_rows(&c[1], t, &e));
        else
            content_add(&c[1], t, data);
    }
    EXPECT(n_computed > 10);
    for (int i = 0; i < 2; i++) {
        content_end(&c[i], digests[i]);
        content_clear(&c[i]);
    }
    EXPECT(!memcmp(digests[0], digests[1], CONTENT_BYTES));
    tensor_bytes_clear(&bytes);
    thread_pool_close(pool);
    gguf_close(g);
    tmpdir_remove(folder);
}

static void mistral4_directories_give_the_same_bits(void)
{
    for (size_t i = 0; i < 3; i++)
        check_preset(
            "tiny-mistral4-old", float_type(i), (struct hf_write_options){ .n_shards = 2 });
    /* kv_b is split when it is loaded, and k_b becomes F32 */
    check_preset("tiny-mistral4", Q_F32, (struct hf_write_options){ .n_shards = 1 });
    check_preset("tiny-deepseek2", Q_F32, (struct hf_write_options){ .n_shards = 1 });
    /* the scales of stacked experts have the name NAME_scale_inv */
    check_preset(
        "tiny-mistral4-old", Q_F32, (struct hf_write_options){ .quant = HF_WRITE_FP8_MATRIX });
}

/* mlx-lm splits kv_b into one matrix per head for queries and one for values, and stacks experts;
 * it keeps kv_b in DeepSeek V2. */
static void mlx_directories_of_latent_attention_give_the_same_bits(void)
{
    static const char *const presets[] = { "tiny-deepseek2", "tiny-mistral4" };
    static const enum qtype types[] = { Q_Q4_1, Q_MXFP4, Q_NVFP4 };

    for (size_t i = 0; i < 3 * ARRAY_LEN(presets); i++)
        check_preset(presets[i / 3], float_type(i),
            (struct hf_write_options){ .is_mlx = true, .n_shards = i % 2 ? 2 : 1 });
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        check_preset("tiny-mistral4-wide", types[i], (struct hf_write_options){ .is_mlx = true });
    check_preset("tiny-mistral4-wide", Q_F32,
        (struct hf_write_options){ .is_mlx = true, .quant = HF_WRITE_MXFP8 });
    check_preset("tiny-deepseek2-old", Q_Q4_1, (struct hf_write_options){ .is_mlx = true });
}

/* Types that GGUF files have as well; gpt-oss alternates the rows of gate and up. */
static void repacked_directories_give_the_same_bits(void)
{
    check_preset("tiny-gpt-oss", Q_MXFP4, (struct hf_write_options){ .n_shards = 2 });
    check_preset("tiny-gpt-oss", Q_MXFP4, (struct hf_write_options){ .is_mlx = true });
    check_preset("tiny-llama", Q_MXFP4, (struct hf_write_options){ .is_mlx = true });
    check_preset("tiny-qwen3moe", Q_NVFP4, (struct hf_write_options){ .is_mlx = true });
    check_preset("tiny-llama", Q_NVFP4, (struct hf_write_options){ .n_shards = 1 });
    /* with a factor for each matrix and each expert */
    check_preset("tiny-qwen3moe-scales", Q_NVFP4, (struct hf_write_options){ .n_shards = 1 });
    check_preset("tiny-lfm2-scales", Q_NVFP4, (struct hf_write_options){ .n_shards = 1 });
    check_preset("tiny-deepseek2-factors", Q_NVFP4, (struct hf_write_options){ .n_shards = 1 });
}

/* E4M3 numbers with scales give the bits of their values in F32. */
static void fp8_directories_give_the_bits_of_their_values(void)
{
    static const char *const presets[] = { "tiny-llama", "tiny-qwen3moe", "tiny-glm4",
        "tiny-deepseek3" };
    static const enum hf_write_quant quants[] = { HF_WRITE_FP8, HF_WRITE_FP8_ROWS,
        HF_WRITE_FP8_MATRIX };

    for (size_t i = 0; i < ARRAY_LEN(presets); i++) {
        for (size_t k = 0; k < ARRAY_LEN(quants); k++)
            check_preset(presets[i], Q_F32, (struct hf_write_options){ .quant = quants[k] });
        check_preset(presets[i], Q_F32,
            (struct hf_write_options){ .is_mlx = true, .quant = HF_WRITE_MXFP8 });
    }
}

TESTS(TEST(families_give_the_same_bits), TEST(mlx_directories_give_the_same_bits),
    TEST(delta_net_directories_give_the_same_bits), TEST(gemma4_directories_give_the_same_bits),
    TEST(a_digest_of_computed_rows_is_that_of_their_bytes),
    TEST(mistral4_directories_give_the_same_bits),
    TEST(mlx_directories_of_latent_attention_give_the_same_bits),
    TEST(repacked_directories_give_the_same_bits),
    TEST(fp8_directories_give_the_bits_of_their_values))
