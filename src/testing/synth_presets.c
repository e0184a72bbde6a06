/* synth_presets.c: shapes of synthetic models by name: those of real models, for benchmarks, and
 * one tiny model of each family with sizes that are no powers of two, for tests. */
#include "testing/synth.h"

#include <string.h>

#define SETTINGS(...)                                                                              \
    .settings = (const char *const[]){ __VA_ARGS__ },                                              \
    .n_settings = ARRAY_LEN(((const char *const[]){ __VA_ARGS__ }))

#define GEMMA4                                                                                     \
    "attention.sliding_window=30", "attention.key_length_swa=32", "attention.value_length_swa=32", \
        "rope.dimension_count_swa=32", "final_logit_softcapping=6.0"

/* One row for tests: every size is small and most are no multiple of a block or a vector. `...` are
 * further members. */
#define TINY(architecture, preset, layers, heads, kv_heads, dim, ...)                              \
    {                                                                                              \
        .arch = architecture, .name = preset, .n_layers = layers, .d_model = 96, .n_heads = heads, \
        .n_kv_heads = kv_heads, .head_dim = dim, .d_ff = 112, .n_vocab = 307, .n_ctx = 512,        \
        .rms_eps = 1e-5f, .vector_sigma = 0.25f, __VA_ARGS__                                       \
    }

static const struct synth presets[] = {
    { .arch = "llama",
        .name = "tiny",
        .n_layers = 2,
        .d_model = 256,
        .n_heads = 4,
        .n_kv_heads = 2,
        .head_dim = 64,
        .d_ff = 256,
        .n_vocab = 512,
        .n_ctx = 512,
        .rope_base = 10000,
        .rms_eps = 1e-5f,
        .is_tied = true },
    { .arch = "llama",
        .name = "llama-3.2-1b",
        .n_layers = 16,
        .d_model = 2048,
        .n_heads = 32,
        .n_kv_heads = 8,
        .head_dim = 64,
        .d_ff = 8192,
        .n_vocab = 128256,
        .n_ctx = 131072,
        .rope_base = 500000,
        .rms_eps = 1e-5f,
        .rope_scale = 32,
        .is_tied = true },
    { .arch = "qwen2",
        .name = "qwen2.5-0.5b",
        .n_layers = 24,
        .d_model = 896,
        .n_heads = 14,
        .n_kv_heads = 2,
        .head_dim = 64,
        .d_ff = 4864,
        .n_vocab = 151936,
        .n_ctx = 32768,
        .rope_base = 1000000,
        .rms_eps = 1e-6f,
        .is_tied = true },
    { .arch = "qwen3",
        .name = "qwen3-0.6b",
        .n_layers = 28,
        .d_model = 1024,
        .n_heads = 16,
        .n_kv_heads = 8,
        .head_dim = 128,
        .d_ff = 3072,
        .n_vocab = 151936,
        .n_ctx = 40960,
        .rope_base = 1000000,
        .rms_eps = 1e-6f,
        .is_tied = true },
    { .arch = "qwen3moe", /* shape of no real model: a reduced Qwen3-30B-A3B */
        .name = "qwen3-moe-1b",
        .n_layers = 16,
        .d_model = 1024,
        .n_heads = 16,
        .n_kv_heads = 4,
        .head_dim = 64,
        .d_ff = 512,
        .n_experts = 32,
        .n_experts_used = 4,
        .n_vocab = 65536,
        .n_ctx = 40960,
        .rope_base = 1000000,
        .rms_eps = 1e-6f,
        .is_tied = true },
    { .arch = "qwen35moe", /* four of the 40 layers of Qwen3.5-35B-A3B, and a smaller vocabulary */
        .name = "qwen3.5-35b-a3b-4l",
        .n_layers = 4,
        .d_model = 2048,
        .n_heads = 16,
        .n_kv_heads = 2,
        .head_dim = 256,
        .d_ff = 512,
        .n_experts = 256,
        .n_experts_used = 8,
        .n_vocab = 65536,
        .n_ctx = 262144,
        .rope_base = 10000000,
        .rms_eps = 1e-6f,
        SETTINGS("rope.dimension_count=64", "rope.dimension_sections=[11,11,10,0]",
            "expert_shared_feed_forward_length=512", "ssm.conv_kernel=4", "ssm.state_size=128",
            "ssm.group_count=16", "ssm.time_step_rank=32", "ssm.inner_size=4096") },
    { .arch = "deepseek2", /* DeepSeek-V2-Lite with fewer layers and experts */
        .name = "deepseek-mla-2b",
        .n_layers = 9,
        .d_model = 2048,
        .n_heads = 16,
        .n_kv_heads = 1,
        .head_dim = 576,
        .d_ff = 10944,
        .n_experts = 24,
        .n_experts_used = 6,
        .n_vocab = 65536,
        .n_ctx = 32768,
        .rope_base = 10000,
        .rms_eps = 1e-6f,
        SETTINGS("attention.q_lora_rank=0", "attention.kv_lora_rank=512",
            "attention.value_length=512", "attention.key_length_mla=192",
            "attention.value_length_mla=128", "rope.dimension_count=64", "expert_gating_func=1",
            "expert_weights_norm=false", "expert_feed_forward_length=1408", "expert_shared_count=2",
            "leading_dense_block_count=1") },
    TINY("llama", "tiny-llama", 3, 6, 3, 24, .rope_scale = 8),
    TINY("qwen2", "tiny-qwen2", 3, 6, 1, 16, .is_tied = true),
    TINY("qwen3", "tiny-qwen3", 3, 6, 2, 32),
    /* Another seed has a tie of two experts. */
    TINY("qwen3moe", "tiny-qwen3moe", 3, 6, 2, 16, .seed = 2, .n_experts = 7, .n_experts_used = 3),
    TINY("qwen2moe", "tiny-qwen2moe", 3, 6, 2, 16, .n_experts = 6, .n_experts_used = 2,
        SETTINGS("expert_shared_feed_forward_length=80")),
    TINY("qwen35", "tiny-qwen35", 5, 6, 2, 24,
        SETTINGS("rope.dimension_count=12", "rope.dimension_sections=[2,2,2,0]",
            "full_attention_interval=3", "ssm.conv_kernel=4", "ssm.state_size=20",
            "ssm.group_count=2", "ssm.time_step_rank=6", "ssm.inner_size=120")),
    TINY("qwen35moe", "tiny-qwen35moe", 3, 6, 2, 16, .n_experts = 7, .n_experts_used = 3,
        SETTINGS("rope.dimension_count=8", "rope.dimension_sections=[2,1,1,0]",
            "attention.recurrent_layers=[1,0,1]", "expert_feed_forward_length=48",
            "expert_shared_feed_forward_length=80", "ssm.conv_kernel=3", "ssm.state_size=72",
            "ssm.group_count=2", "ssm.time_step_rank=4", "ssm.inner_size=288")),
    TINY("qwen3next", "tiny-qwen3next", 4, 6, 3, 16, .n_experts = 6, .n_experts_used = 2,
        SETTINGS("rope.dimension_count=8", "expert_shared_feed_forward_length=64",
            "ssm.conv_kernel=4", "ssm.state_size=24", "ssm.group_count=2", "ssm.time_step_rank=6",
            "ssm.inner_size=144")),
    TINY("qwen3next", "tiny-qwen3next-fused", 4, 6, 3, 16, .n_experts = 6, .n_experts_used = 2,
        .has_optional = true,
        SETTINGS("rope.dimension_count=8", "expert_shared_feed_forward_length=64",
            "ssm.conv_kernel=4", "ssm.state_size=24", "ssm.group_count=2", "ssm.time_step_rank=6",
            "ssm.inner_size=144")),
    TINY("lfm2", "tiny-lfm2", 5, 6, 2, 16, .is_tied = true,
        SETTINGS("attention.head_count_kv=[0,0,2,0,0]", "shortconv.l_cache=3")),
    TINY("lfm2moe", "tiny-lfm2moe", 4, 6, 2, 16, .is_tied = true, .n_experts = 6,
        .n_experts_used = 2,
        SETTINGS("attention.head_count_kv=[0,2,0,3]", "shortconv.l_cache=3",
            "expert_feed_forward_length=48", "leading_dense_block_count=1",
            "expert_gating_func=2")),
    TINY("mistral3", "tiny-mistral3", 3, 6, 2, 32,
        SETTINGS("rope.scaling.type=yarn", "rope.scaling.factor=8.0",
            "rope.scaling.original_context_length=40", "rope.scaling.yarn_beta_fast=32.0",
            "rope.scaling.yarn_beta_slow=1.0", "rope.scaling.yarn_log_multiplier=1.0",
            "attention.temperature_scale=0.1")),
    TINY("smollm3", "tiny-smollm3", 5, 6, 2, 16, .is_tied = true),
    TINY("phi3", "tiny-phi3", 3, 6, 2, 16,
        SETTINGS("rope.dimension_count=12", "rope.scaling.type=longrope",
            "rope.scaling.original_context_length=128", "rope.scaling.attn_factor=1.19")),
    TINY("phi3", "tiny-phi3-short", 3, 6, 2, 16,
        SETTINGS("rope.scaling.type=longrope", "rope.scaling.original_context_length=512",
            "rope.scaling.attn_factor=1.1")),
    TINY("granite", "tiny-granite", 3, 6, 2, 16, .is_tied = true,
        SETTINGS("attention.scale=0.125", "embedding_scale=3.5", "residual_scale=0.22",
            "logit_scale=2.5")),
    TINY("granitemoe", "tiny-granitemoe", 3, 6, 2, 16, .n_experts = 5, .n_experts_used = 2,
        SETTINGS("attention.scale=0.2", "embedding_scale=2.5", "residual_scale=0.3",
            "logit_scale=1.5", "expert_shared_feed_forward_length=48")),
    TINY("olmo2", "tiny-olmo2", 3, 6, 3, 16),
    TINY("olmo2", "tiny-olmo3", 4, 6, 3, 16,
        SETTINGS("attention.sliding_window=20", "rope.scaling.type=yarn", "rope.scaling.factor=8.0",
            "rope.scaling.original_context_length=64")),
    TINY("gemma2", "tiny-gemma2", 3, 4, 2, 32, .is_tied = true,
        SETTINGS("attention.sliding_window=30", "attn_logit_softcapping=4.0",
            "final_logit_softcapping=6.0")),
    TINY("gemma3", "tiny-gemma3", 7, 4, 1, 32, .rope_base = 1000000, .is_tied = true,
        SETTINGS(
            "attention.sliding_window=40", "rope.scaling.type=linear", "rope.scaling.factor=4.0")),
    /* Layers with a window have smaller heads; the others use their keys as values. */
    TINY("gemma4", "tiny-gemma4", 6, 4, 2, 48, .seed = 3, .rope_base = 1000000, .rope_scale = 8,
        .is_tied = true,
        SETTINGS(GEMMA4, "attention.sliding_window_pattern=[true,true,false,true,true,false]",
            "attention.head_count_kv=[2,2,1,2,2,1]", "embedding_length_per_layer_input=0")),
    /* Per-layer inputs; the last two layers use the keys and values of layers 2 and 3. */
    TINY("gemma4", "tiny-gemma4-e", 6, 4, 1, 48, .seed = 2, .rope_base = 1000000, .rope_scale = 8,
        .has_optional = true, .is_tied = true,
        SETTINGS(GEMMA4, "attention.sliding_window_pattern=[true,false,true,false,true,false]",
            "feed_forward_length=[112,112,112,112,224,224]", "attention.shared_kv_layers=2",
            "embedding_length_per_layer_input=32")),
    TINY("gemma4", "tiny-gemma4-moe", 4, 4, 2, 48, .seed = 7, .rope_base = 1000000, .rope_scale = 8,
        .n_experts = 6, .n_experts_used = 2, .fuses_experts = true, .is_tied = true,
        SETTINGS(GEMMA4, "attention.sliding_window_pattern=[true,true,true,false]",
            "attention.head_count_kv=[2,2,2,1]", "embedding_length_per_layer_input=0",
            "expert_feed_forward_length=48")),
    TINY("gpt-oss", "tiny-gpt-oss", 3, 8, 2, 32, .n_experts = 6, .n_experts_used = 3,
        SETTINGS("attention.sliding_window=24", "rope.scaling.type=yarn", "rope.scaling.factor=4.0",
            "rope.scaling.original_context_length=64", "expert_feed_forward_length=80")),
    TINY(
        "glm4", "tiny-glm4", 3, 6, 2, 16, .has_optional = true, SETTINGS("rope.dimension_count=8")),
    TINY("glm4moe", "tiny-glm4moe", 3, 6, 2, 16, .n_experts = 6, .n_experts_used = 2,
        .has_optional = true,
        SETTINGS("rope.dimension_count=8", "expert_shared_count=1", "expert_feed_forward_length=48",
            "leading_dense_block_count=1", "expert_gating_func=2", "expert_weights_norm=true",
            "expert_weights_scale=1.7")),
    TINY("deepseek2", "tiny-deepseek2", 3, 6, 1, 64, .n_experts = 12, .n_experts_used = 3,
        .has_optional = true,
        SETTINGS("attention.q_lora_rank=40", "attention.kv_lora_rank=48",
            "attention.value_length=48", "attention.key_length_mla=40",
            "attention.value_length_mla=32", "rope.dimension_count=16", "rope.scaling.type=yarn",
            "rope.scaling.factor=4.0", "rope.scaling.original_context_length=64",
            "rope.scaling.yarn_log_multiplier=0.0707", "expert_group_count=4",
            "expert_group_used_count=2", "expert_gating_func=2", "expert_weights_norm=true",
            "expert_weights_scale=2.5", "expert_feed_forward_length=48", "expert_shared_count=1",
            "leading_dense_block_count=1")),
    TINY("deepseek2", "tiny-deepseek2-lite", 3, 11, 1, 48, .n_experts = 6, .n_experts_used = 2,
        SETTINGS("attention.q_lora_rank=0", "attention.kv_lora_rank=32",
            "attention.value_length=32", "attention.key_length_mla=40",
            "attention.value_length_mla=16", "rope.dimension_count=16", "expert_gating_func=1",
            "expert_weights_norm=false", "expert_weights_scale=1.0",
            "expert_feed_forward_length=32", "expert_shared_count=2",
            "leading_dense_block_count=1")),
    TINY("deepseek2", "tiny-deepseek2-old", 3, 6, 6, 40, .n_experts = 6, .n_experts_used = 2,
        SETTINGS("attention.q_lora_rank=0", "attention.kv_lora_rank=48",
            "attention.value_length=32", "rope.dimension_count=16", "expert_feed_forward_length=32",
            "expert_shared_count=1", "leading_dense_block_count=1")),
    TINY("mistral4", "tiny-mistral4", 3, 6, 1, 64, .seed = 3, .n_experts = 6, .n_experts_used = 2,
        SETTINGS("attention.q_lora_rank=56", "attention.kv_lora_rank=48",
            "attention.value_length=48", "attention.key_length_mla=40",
            "attention.value_length_mla=32", "rope.dimension_count=16", "rope.scaling.type=yarn",
            "rope.scaling.factor=8.0", "rope.scaling.original_context_length=40",
            "rope.scaling.yarn_log_multiplier=0.05", "attention.temperature_scale=0.1",
            "attention.temperature_length=40", "expert_gating_func=1", "expert_weights_norm=true",
            "expert_feed_forward_length=32", "expert_shared_count=1")),
};

const char *synth_preset_name(size_t i)
{
    return i < ARRAY_LEN(presets) ? presets[i].name : NULL;
}

bool synth_preset(struct synth *s, const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(presets); i++) {
        if (strcmp(presets[i].name, name))
            continue;
        *s = presets[i];
        s->type = Q_Q4_0;
        s->head_type = Q_Q6_K;
        s->seed = s->seed ? s->seed : 1;
        s->rope_base = s->rope_base != 0 ? s->rope_base : 10000;
        return true;
    }
    return false;
}
