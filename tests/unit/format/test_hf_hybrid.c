/* format/hf: config.json of families with layers of several kinds: the keys of each layer, and
 * values that are refused by name. */
#include "base/mem.h"
#include "format/gguf.h"
#include "format/hf/hf_config.h"
#include "support/check.h"

#define NEMOTRON                                                                                   \
    "{\"model_type\":\"nemotron_h\",\"hidden_size\":96,\"num_attention_heads\":6,"                 \
    "\"num_key_value_heads\":2,\"head_dim\":16,\"max_position_embeddings\":512,"                   \
    "\"hybrid_override_pattern\":\"ME*E\",\"mamba_num_heads\":6,\"mamba_head_dim\":20,"            \
    "\"n_groups\":3,\"ssm_state_size\":24,\"conv_kernel\":4,\"layer_norm_epsilon\":1e-5,"          \
    "\"mlp_hidden_act\":\"relu2\",\"n_routed_experts\":8,\"num_experts_per_tok\":3,"               \
    "\"moe_intermediate_size\":48,\"moe_shared_expert_intermediate_size\":80,"                     \
    "\"n_shared_experts\":1,\"n_group\":4,\"topk_group\":2,\"routed_scaling_factor\":2.5,"         \
    "\"time_step_limit\":[0.0,Infinity],\"sliding_window\":null,\"use_bias\":false}"

#define GRANITE                                                                                    \
    "{\"model_type\":\"granitemoehybrid\",\"hidden_size\":96,\"num_attention_heads\":6,"           \
    "\"num_key_value_heads\":2,\"max_position_embeddings\":512,\"num_hidden_layers\":3,"           \
    "\"layer_types\":[\"mamba\",\"attention\",\"mamba\"],\"mamba_n_heads\":8,"                     \
    "\"mamba_d_head\":\"auto\",\"mamba_expand\":2,\"mamba_n_groups\":1,\"mamba_d_state\":20,"      \
    "\"mamba_d_conv\":4,\"rms_norm_eps\":1e-5,\"intermediate_size\":48,"                           \
    "\"shared_intermediate_size\":64,\"num_local_experts\":5,\"num_experts_per_tok\":2,"           \
    "\"position_embedding_type\":\"nope\",\"hidden_act\":\"silu\"}"

#define QWEN                                                                                       \
    "{\"model_type\":\"qwen3_5_moe\",\"vision_config\":{},\"tie_word_embeddings\":true,"           \
    "\"text_config\":{\"model_type\":\"qwen3_5_moe_text\",\"hidden_size\":96,"                     \
    "\"num_attention_heads\":6,\"num_key_value_heads\":2,\"num_hidden_layers\":3,"                 \
    "\"layer_types\":[\"linear_attention\",\"linear_attention\",\"full_attention\"],"              \
    "\"linear_num_key_heads\":2,\"linear_num_value_heads\":6,\"linear_key_head_dim\":20,"          \
    "\"linear_value_head_dim\":20,\"linear_conv_kernel_dim\":4,\"num_experts\":8,"                 \
    "\"num_experts_per_tok\":2,\"moe_intermediate_size\":48,"                                      \
    "\"shared_expert_intermediate_size\":80,\"attn_output_gate\":true,\"hidden_act\":\"silu\","    \
    "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":10000000,"                      \
    "\"mrope_interleaved\":true,\"mrope_section\":[11,11,10]}}}"

#define GEMMA                                                                                      \
    "{\"model_type\":\"gemma4\",\"text_config\":{\"model_type\":\"gemma4_text\","                  \
    "\"hidden_size\":96,\"num_attention_heads\":4,\"num_key_value_heads\":2,"                      \
    "\"num_hidden_layers\":4,\"head_dim\":32,\"global_head_dim\":48,"                              \
    "\"num_global_key_value_heads\":1,\"attention_k_eq_v\":true,\"intermediate_size\":112,"        \
    "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\","             \
    "\"full_attention\"],\"num_kv_shared_layers\":2,\"use_double_wide_mlp\":true,"                 \
    "\"hidden_size_per_layer_input\":null,\"sliding_window\":30,\"final_logit_softcapping\":null," \
    "\"hidden_activation\":\"gelu_pytorch_tanh\",\"use_bidirectional_attention\":\"vision\","      \
    "\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"proportional\","                     \
    "\"partial_rotary_factor\":0.25,\"rope_theta\":1000000},\"sliding_attention\":{"               \
    "\"rope_type\":\"default\",\"rope_theta\":10000}}}}"

/* Parses a configuration in which the first occurrence of `from` is replaced. */
static struct json *parse(struct arena *a, const char *config, const char *from, const char *to)
{
    const struct json_limits limits = { 32, 1000, .has_infinity = true };
    const char *at = strstr(config, from);
    struct json *j = NULL;
    struct buf b;
    struct err e;

    if (!at)
        fprintf(stderr, "no %s\n", from);
    EXPECT(at);
    buf_init(&b, MB);
    buf_put(&b, config, (size_t)(at - config));
    buf_putz(&b, to);
    buf_putz(&b, at + strlen(from));
    struct str text = arena_str(a, buf_str(&b));
    buf_clear(&b);
    EXPECT(text.p && !json_parse(&j, text, a, &limits, &e));
    return j;
}

/* The GGUF keys of a configuration, in static memory; NULL: it is refused. */
static struct gguf *translate(
    const char *config, const char *from, const char *to, struct hf_config *c, struct err *e)
{
    static uint8_t keys[4096];
    struct arena *a = arena_new(MB);
    const struct json *j = parse(a, config, from, to);
    struct gguf *g = NULL;
    struct gguf_keys k;
    uint8_t *bytes = NULL;
    size_t n;

    gguf_keys_init(&k);
    if (!hf_config_read(c, j, e) && !hf_config_put(c, &k, a, e)) {
        EXPECT(!gguf_keys_end(&k, &bytes, &n, e) && n <= sizeof(keys));
        memcpy(keys, bytes, n);
        mem_free(bytes);
        EXPECT(!gguf_open_bytes(&g, keys, n, e));
    }
    gguf_keys_clear(&k);
    arena_free(a);
    return g;
}

static void expect_u64(const struct gguf *g, const char *key, uint64_t want)
{
    uint64_t got = 0;

    if (!gguf_get_u64(g, key, &got) || got != want)
        fprintf(stderr, "%s\n", key);
    EXPECT_EQ(got, want);
}

static void expect_array(const struct gguf *g, const char *key, const int *want, uint64_t n)
{
    const struct gguf_value *v = gguf_find(g, key);

    EXPECT(v && v->kind == GGUF_ARR && v->arr.n == n);
    for (uint64_t i = 0; i < n; i++) {
        int64_t x;
        EXPECT(gguf_arr_i64(v, i, &x) && x == want[i]);
    }
}

static void nemotron_has_a_value_for_each_layer(void)
{
    static const int widths[] = { 0, 48, 0, 48 }, n_kv[] = { 0, 0, 2, 0 };
    struct hf_config c;
    struct err e;
    struct gguf *g = translate(NEMOTRON, "{", "{", &c, &e);
    struct str s;
    bool norms = false;

    EXPECT(g && gguf_get_str(g, "general.architecture", &s) && str_is(s, "nemotron_h_moe"));
    expect_u64(g, "nemotron_h_moe.block_count", 4);
    expect_array(g, "nemotron_h_moe.feed_forward_length", widths, 4);
    expect_array(g, "nemotron_h_moe.attention.head_count_kv", n_kv, 4);
    expect_u64(g, "nemotron_h_moe.ssm.inner_size", 120);
    expect_u64(g, "nemotron_h_moe.expert_shared_feed_forward_length", 80);
    expect_u64(g, "nemotron_h_moe.expert_group_used_count", 2);
    EXPECT(gguf_get_bool(g, "nemotron_h_moe.expert_weights_norm", &norms) && norms);
    EXPECT(!gguf_find(g, "nemotron_h_moe.moe_latent_size"));
    gguf_close(g);
}

static void layers_may_be_named_in_a_list(void)
{
    static const int widths[] = { 0, 0, 21504 };
    struct hf_config c;
    struct err e;
    struct gguf *g = translate(NEMOTRON, "\"hybrid_override_pattern\":\"ME*E\"",
        "\"layers_block_type\":[\"linear_attention\",\"full_attention\",\"mlp\"],"
        "\"num_hidden_layers\":3",
        &c, &e);
    struct str s;

    EXPECT(g && gguf_get_str(g, "general.architecture", &s) && str_is(s, "nemotron_h"));
    expect_array(g, "nemotron_h.feed_forward_length", widths, 3);
    EXPECT(!gguf_find(g, "nemotron_h.expert_count"));
    gguf_close(g);
}

static void granite_without_experts_has_the_shared_width(void)
{
    static const int n_kv[] = { 0, 2, 0 };
    struct hf_config c;
    struct err e;
    struct gguf *g = translate(GRANITE, "{", "{", &c, &e);
    bool has_positions = true;

    EXPECT(g);
    expect_array(g, "granitehybrid.attention.head_count_kv", n_kv, 3);
    expect_u64(g, "granitehybrid.ssm.inner_size", 192);
    expect_u64(g, "granitehybrid.feed_forward_length", 48);
    expect_u64(g, "granitehybrid.expert_shared_feed_forward_length", 64);
    EXPECT(gguf_get_bool(g, "granitehybrid.rope.scaling.finetuned", &has_positions));
    EXPECT(!has_positions);
    gguf_close(g);
    g = translate(GRANITE, "\"num_local_experts\":5", "\"num_local_experts\":null", &c, &e);
    EXPECT(g && c.n_experts == 0);
    expect_u64(g, "granitehybrid.feed_forward_length", 64);
    EXPECT(!gguf_find(g, "granitehybrid.expert_count"));
    gguf_close(g);
}

/* Values of the language model of a multimodal one; a head has 256 dimensions, 64 are rotated. */
static void qwen_has_the_kinds_of_its_layers(void)
{
    static const int listed[] = { 1, 1, 0 }, spaced[] = { 1, 0, 1 };
    static const char types[] =
        "\"layer_types\":[\"linear_attention\",\"linear_attention\",\"full_attention\"]";
    struct hf_config c;
    struct err e;
    struct gguf *g = translate(QWEN, "{", "{", &c, &e);

    EXPECT(g && c.is_tied && c.n_key_heads == 2 && c.n_value_heads == 6 && c.state_dim == 20);
    expect_array(g, "qwen35moe.attention.recurrent_layers", listed, 3);
    expect_u64(g, "qwen35moe.attention.key_length", 256);
    expect_u64(g, "qwen35moe.rope.dimension_count", 64);
    expect_u64(g, "qwen35moe.ssm.conv_kernel", 4);
    expect_u64(g, "qwen35moe.ssm.group_count", 2);
    expect_u64(g, "qwen35moe.ssm.time_step_rank", 6);
    expect_u64(g, "qwen35moe.ssm.inner_size", 120);
    expect_u64(g, "qwen35moe.expert_shared_feed_forward_length", 80);
    EXPECT(!gguf_find(g, "qwen35moe.expert_weights_norm"));
    gguf_close(g);
    g = translate(QWEN, types, "\"full_attention_interval\":2", &c, &e);
    EXPECT(g);
    expect_array(g, "qwen35moe.attention.recurrent_layers", spaced, 3);
    gguf_close(g);
}

/* Normalised weights of experts are a choice in Qwen3-Next. */
static void qwen_next_may_keep_expert_weights(void)
{
    bool norms = true;
    struct hf_config c;
    struct err e;
    struct gguf *g =
        translate(QWEN, "\"qwen3_5_moe_text\"", "\"qwen3_next\",\"norm_topk_prob\":false", &c, &e);

    EXPECT(g && gguf_get_bool(g, "qwen3next.expert_weights_norm", &norms) && !norms);
    expect_u64(g, "qwen3next.rope.dimension_count", 64);
    gguf_close(g);
}

/* Without partial_rotary_factor, as in transformers. */
static void glm_rotates_half_of_a_head(void)
{
    static const char glm[] =
        "{\"model_type\":\"glm4\",\"hidden_size\":64,\"num_hidden_layers\":2,\"head_dim\":32,"
        "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":96,"
        "\"vocab_size\":320,\"rms_norm_eps\":1e-5,\"max_position_embeddings\":512,"
        "\"hidden_act\":\"silu\"}";
    struct hf_config c;
    struct err e;
    struct gguf *g = translate(glm, "{", "{", &c, &e);

    EXPECT(g);
    expect_u64(g, "glm4.rope.dimension_count", 16);
    gguf_close(g);
    g = translate(glm, "\"head_dim\":32", "\"head_dim\":32,\"partial_rotary_factor\":1", &c, &e);
    EXPECT(g && !gguf_find(g, "glm4.rope.dimension_count"));
    gguf_close(g);
}

static void gemma_has_other_heads_in_windows(void)
{
    static const int widths[] = { 112, 112, 224, 224 }, n_kv[] = { 2, 1, 2, 1 };
    static const int equal[] = { 2, 2, 2, 2 };
    struct hf_config c;
    struct err e;
    double cap = 1;
    struct gguf *g = translate(GEMMA, "{", "{", &c, &e);

    EXPECT(g && c.head_dim == 48 && c.window_head_dim == 32 && c.n_rope == 24 && c.rope_freqs);
    expect_array(g, "gemma4.feed_forward_length", widths, 4);
    expect_array(g, "gemma4.attention.head_count_kv", n_kv, 4);
    expect_u64(g, "gemma4.attention.key_length", 48);
    expect_u64(g, "gemma4.attention.key_length_swa", 32);
    expect_u64(g, "gemma4.rope.dimension_count_swa", 32);
    expect_u64(g, "gemma4.attention.shared_kv_layers", 2);
    expect_u64(g, "gemma4.embedding_length_per_layer_input", 0);
    EXPECT(gguf_get_f64(g, "gemma4.final_logit_softcapping", &cap) && !(cap > 0));
    EXPECT(!gguf_find(g, "gemma4.rope.dimension_count") && !gguf_find(g, "gemma4.expert_count"));
    gguf_close(g);
    /* only layers whose keys are values may have another number of KV heads */
    g = translate(GEMMA, "\"attention_k_eq_v\":true", "\"attention_k_eq_v\":false", &c, &e);
    EXPECT(g);
    expect_array(g, "gemma4.attention.head_count_kv", equal, 4);
    gguf_close(g);
    g = translate(GEMMA, "\"global_head_dim\":48",
        "\"per_layer_config\":{\"1\":{\"head_dim\":64,\"num_key_value_heads\":1},"
        "\"3\":{\"head_dim\":64,\"num_key_value_heads\":1}}",
        &c, &e);
    EXPECT(g && c.head_dim == 64 && c.n_full_kv_heads == 1);
    gguf_close(g);
}

static void values_are_refused_by_name(void)
{
    static const struct {
        const char *config, *from, *to, *message;
    } rows[] = {
        { NEMOTRON, "\"ME*E\"", "\"MEX\"", "hybrid_override_pattern = \"MEX\"" },
        { NEMOTRON, "\"ME*E\"", "\"ME-\"", "hybrid_override_pattern = \"ME-\"" },
        { NEMOTRON, "\"ME*E\"", "7", "hybrid_override_pattern = 7" },
        { NEMOTRON, "\"ME*E\"", "\"\"", "0 layers" },
        { NEMOTRON, "\"ME*E\"", "\"ME*E\",\"num_hidden_layers\":5", "num_hidden_layers = 5" },
        { NEMOTRON, "\"hybrid_override_pattern\":\"ME*E\",", "", "layer_types is missing" },
        { NEMOTRON, "\"use_bias\":false", "\"use_bias\":true", "use_bias = true" },
        { NEMOTRON, "\"use_bias\":false", "\"mlp_bias\":true", "mlp_bias = true" },
        { NEMOTRON, "\"use_bias\":false", "\"mamba_proj_bias\":true", "mamba_proj_bias = true" },
        { NEMOTRON, "\"use_bias\":false", "\"mamba_hidden_act\":\"gelu\"", "mamba_hidden_act" },
        { NEMOTRON, "\"use_bias\":false", "\"mamba_rms_norm\":false", "mamba_rms_norm = false" },
        { NEMOTRON, "\"use_bias\":false", "\"moe_layer_freq\":2", "moe_layer_freq = 2" },
        { NEMOTRON, "\"use_bias\":false", "\"ssm_multipliers\":[1]", "ssm_multipliers = [1]" },
        { NEMOTRON, "\"use_bias\":false", "\"block_configs\":[]", "block_configs = []" },
        { NEMOTRON, "\"relu2\"", "\"silu\"", "mlp_hidden_act = \"silu\"" },
        { NEMOTRON, "[0.0,Infinity]", "[0.0,0.1]", "time_step_limit = [0.0,0.1]" },
        { NEMOTRON, "[0.0,Infinity]", "[0.001,Infinity]", "time_step_limit = [0.001" },
        { NEMOTRON, "[0.0,Infinity]", "[0.0]", "time_step_limit = [0.0]" },
        { NEMOTRON, "[0.0,Infinity]", "[0.0,NaN]", "time_step_limit = [0.0,NaN]" },
        { NEMOTRON, "\"sliding_window\":null", "\"sliding_window\":64", "sliding_window = 64" },
        { NEMOTRON, "\"n_groups\":3", "\"n_groups\":0", "0 groups" },
        { NEMOTRON, "\"n_routed_experts\":8", "\"n_routed_experts\":0", "n_routed_experts = 0" },
        { NEMOTRON, "\"routed_scaling_factor\":2.5", "\"routed_scaling_factor\":0",
            "routed_scaling_factor = 0" },
        { NEMOTRON, "\"mamba_num_heads\":6", "\"mamba_num_heads\":2147483647",
            "2147483647 Mamba2" },
        { NEMOTRON, "\"mamba_head_dim\":20", "\"mamba_head_dim\":-1", "mamba_head_dim = -1" },
        { GRANITE, "[\"mamba\",\"attention\",\"mamba\"]", "[\"mamba\",\"moe\",\"mamba\"]",
            "layer_types = [\"mamba\",\"moe\"" },
        { GRANITE, "[\"mamba\",\"attention\",\"mamba\"]", "[1,2,3]", "layer_types = [1,2,3]" },
        { GRANITE, "\"nope\"", "\"alibi\"", "position_embedding_type = \"alibi\"" },
        { GRANITE, "\"num_hidden_layers\":3", "\"num_hidden_layers\":4", "num_hidden_layers = 4" },
        { GEMMA, "\"vision\"", "\"all\"", "use_bidirectional_attention = \"all\"" },
        { GEMMA, "\"sliding_window\":30", "\"query_pre_attn_scalar\":256",
            "query_pre_attn_scalar = 256" },
        { GEMMA, "\"final_logit_softcapping\":null,", "", "final_logit_softcapping is missing" },
        { GEMMA, "\"layer_types\"", "\"layers\"", "layer_types is missing" },
        { GEMMA, "\"full_attention\"]", "\"sliding_attention\"]", "layer_types = [" },
        { GEMMA, ",\"full_attention\"]", "]", "layer_types is not an array of 4 strings" },
        { GEMMA, "[\"sliding_attention\"", "[\"mamba\"", "layer_types contains \"mamba\"" },
        { GEMMA, "\"num_kv_shared_layers\":2", "\"num_kv_shared_layers\":4",
            "num_kv_shared_layers = 4" },
        { GEMMA, "\"intermediate_size\":112", "\"intermediate_size\":2147483647",
            "intermediate_size = 2147483647" },
        { GEMMA, "\"global_head_dim\":48", "\"global_head_dim\":0", "of 0 dimensions" },
        { GEMMA, "\"head_dim\":32", "\"head_dim\":0", "of 0 dimensions" },
        { GEMMA, "\"num_global_key_value_heads\":1", "\"num_global_key_value_heads\":0",
            "0 KV heads in full layers" },
        { GEMMA, "\"sliding_window\":30", "\"per_layer_config\":{\"1\":{\"head_dim\":64}}",
            "per_layer_config = {" },
        { GEMMA, "\"sliding_window\":30", "\"per_layer_config\":{\"0\":{\"head_dim\":64}}",
            "per_layer_config = {" },
        { GEMMA, "\"sliding_window\":30",
            "\"per_layer_config\":{\"1\":{\"head_dim\":64},\"3\":{\"head_dim\":32}}",
            "per_layer_config = {" },
        { GEMMA, "\"sliding_window\":30", "\"per_layer_config\":[1]", "per_layer_config = [1]" },
        { GEMMA, "\"sliding_window\":30", "\"enable_moe_block\":true", "num_experts is missing" },
        { GEMMA, "\"sliding_window\":30", "\"enable_moe_block\":true,\"num_experts\":4",
            "top_k_experts is missing" },
        { GEMMA, "\"proportional\"", "\"dynamic\"", "full_attention = {" },
        { GEMMA, "\"partial_rotary_factor\":0.25", "\"partial_rotary_factor\":2",
            "full_attention = {" },
        { GEMMA, "\"rope_type\":\"default\"", "\"rope_type\":\"linear\"", "sliding_attention = {" },
        { GEMMA, "\"rope_type\":\"default\"", "\"partial_rotary_factor\":0.5",
            "sliding_attention = {" },
        { GEMMA, "\"rope_parameters\"", "\"rope\"", "rope_parameters has no full_attention" },
        { QWEN, "qwen3_5_moe_text", "qwen3_next_text", "model_type 'qwen3_next_text'" },
        { QWEN, "qwen3_5_moe_text", "qwen3_text", "model_type 'qwen3_text' is not supported" },
        { QWEN, "[\"linear_attention\"", "[\"sliding_attention\"", "layer_types[0] is neither" },
        { QWEN, "[\"linear_attention\"", "[7", "layer_types[0] is neither" },
        { QWEN, "\"full_attention\"]", "\"linear_attention\"]", "3 of 3 layers" },
        { QWEN, ",\"full_attention\"]", "]", "layer_types is not an array of 3 strings" },
        { QWEN, "\"attn_output_gate\":true", "\"full_attention_interval\":0",
            "full_attention_interval = 0" },
        { QWEN, "\"attn_output_gate\":true", "\"attn_output_gate\":false",
            "attn_output_gate = false" },
        { QWEN, "\"attn_output_gate\":true", "\"norm_topk_prob\":false", "norm_topk_prob = false" },
        { QWEN, "\"attn_output_gate\":true", "\"use_sliding_window\":true",
            "use_sliding_window = true" },
        { QWEN, "\"attn_output_gate\":true", "\"linear_scale\":2", "linear_scale = 2" },
        { QWEN, "\"attn_output_gate\":true", "\"mlp_only_layers\":[1]", "mlp_only_layers = [1]" },
        { QWEN, "\"linear_num_key_heads\":2", "\"linear_num_key_heads\":0", "0 key heads" },
        { QWEN, "\"linear_num_key_heads\":2", "\"linear_num_key_heads\":4", "4 key heads and 6" },
        { QWEN, "\"linear_num_value_heads\":6", "\"linear_num_value_heads\":2147483646",
            "2147483646 value heads" },
        { QWEN, "\"linear_num_value_heads\":6,", "", "linear_num_value_heads is missing" },
        { QWEN, "\"linear_value_head_dim\":20", "\"linear_value_head_dim\":24",
            "linear_value_head_dim = 24" },
        { QWEN, "\"linear_key_head_dim\":20", "\"linear_key_head_dim\":2147483647",
            "of 2147483647 dimensions" },
        { QWEN, "\"linear_conv_kernel_dim\":4,", "", "linear_conv_kernel_dim is missing" },
        { QWEN, "\"mrope_interleaved\":true", "\"partial_rotary_factor\":2",
            "partial_rotary_factor = 2" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err e = { 0 };
        struct hf_config c;
        struct gguf *g = translate(rows[i].config, rows[i].from, rows[i].to, &c, &e);
        if (!g && strstr(e.msg, rows[i].message))
            continue;
        fprintf(stderr, "%s: expected '%s' in: %s\n", rows[i].to, rows[i].message, e.msg);
        fail();
    }
}

static void unlimited_time_steps_have_several_spellings(void)
{
    static const char *const spellings[] = { "[0.0,Infinity]", "[0,1e30]", "[0.0,\"Infinity\"]",
        "[0.0,{\"__float__\":\"Infinity\"}]", "null" };

    for (size_t i = 0; i < ARRAY_LEN(spellings); i++) {
        struct hf_config c;
        struct err e;
        struct gguf *g = translate(NEMOTRON, "[0.0,Infinity]", spellings[i], &c, &e);
        EXPECT(g);
        gguf_close(g);
    }
}

TESTS(TEST(nemotron_has_a_value_for_each_layer), TEST(layers_may_be_named_in_a_list),
    TEST(granite_without_experts_has_the_shared_width), TEST(qwen_has_the_kinds_of_its_layers),
    TEST(qwen_next_may_keep_expert_weights), TEST(glm_rotates_half_of_a_head),
    TEST(gemma_has_other_heads_in_windows), TEST(values_are_refused_by_name),
    TEST(unlimited_time_steps_have_several_spellings))
