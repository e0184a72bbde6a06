#include "testing/hf_write_hybrid.h"

#include <stdio.h>

static const char *key_of(const struct gguf *g, const char *tail, char out[96])
{
    struct str arch = STR("");

    (void)gguf_get_str(g, "general.architecture", &arch);
    snprintf(out, 96, STR_FMT ".%s", STR_ARG(arch), tail);
    return out;
}

/* Value of layer `i` of a key with a number, or an array with one for each layer. */
static uint64_t value_at(const struct gguf *g, const char *tail, uint64_t i)
{
    char key[96];
    const struct gguf_value *v = gguf_find(g, key_of(g, tail, key));
    int64_t x = 0;
    uint64_t one = 0;

    if (!v)
        return 0;
    if (v->kind != GGUF_ARR)
        return gguf_get_u64(g, key, &one) ? one : 0;
    return gguf_arr_i64(v, i, &x) ? (uint64_t)x : 0;
}

static uint64_t n_layers_of(const struct gguf *g)
{
    return value_at(g, "block_count", 0);
}

uint64_t hf_write_largest(const struct gguf *g, const char *tail)
{
    uint64_t most = 0;

    for (uint64_t i = 0; i < MAX(n_layers_of(g), (uint64_t)1); i++)
        most = MAX(most, value_at(g, tail, i));
    return most;
}

bool hf_write_has_tensor(const struct gguf *g, const char *tail)
{
    char name[96];

    for (uint64_t i = 0; i < n_layers_of(g); i++) {
        snprintf(name, sizeof(name), "blk.%d.%s", (int)i, tail);
        if (gguf_tensor(g, name))
            return true;
    }
    return false;
}

static void put_int(struct jw *j, const char *key, const struct gguf *g, const char *tail)
{
    jw_member_u64(j, key, value_at(g, tail, 0));
}

static void put_number(struct jw *j, const char *key, const struct gguf *g, const char *tail)
{
    char name[96];
    double v = 0;

    if (gguf_get_f64(g, key_of(g, tail, name), &v))
        jw_member_f32(j, key, (float)v);
}

static void put_flag(struct jw *j, const char *key, const struct gguf *g, const char *tail)
{
    char name[96];
    bool v = false;

    (void)gguf_get_bool(g, key_of(g, tail, name), &v);
    jw_member_bool(j, key, v);
}

/* Sizes of the Mamba2 layers, by the names of both families. */
static void put_mamba2(struct jw *j, const struct gguf *g, bool is_nemotron)
{
    const uint64_t n_heads = MAX(value_at(g, "ssm.time_step_rank", 0), (uint64_t)1);
    const uint64_t head_dim = value_at(g, "ssm.inner_size", 0) / n_heads;
    const bool has_bias = hf_write_has_tensor(g, "ssm_conv1d.bias");

    put_int(j, is_nemotron ? "conv_kernel" : "mamba_d_conv", g, "ssm.conv_kernel");
    put_int(j, is_nemotron ? "ssm_state_size" : "mamba_d_state", g, "ssm.state_size");
    put_int(j, is_nemotron ? "n_groups" : "mamba_n_groups", g, "ssm.group_count");
    jw_member_u64(j, is_nemotron ? "mamba_num_heads" : "mamba_n_heads", n_heads);
    jw_member_u64(j, is_nemotron ? "mamba_head_dim" : "mamba_d_head", head_dim);
    jw_member_bool(j, is_nemotron ? "use_conv_bias" : "mamba_conv_bias", has_bias);
    jw_member_bool(j, "mamba_proj_bias", false);
    jw_key(j, "time_step_limit");
    jw_raw(j, STR("[0.0,Infinity]"));
}

static void put_granite(struct jw *j, const struct gguf *g)
{
    char key[96];
    bool has_positions = true;

    (void)gguf_get_bool(g, key_of(g, "rope.scaling.finetuned", key), &has_positions);
    jw_member_str(j, "position_embedding_type", has_positions ? STR("rope") : STR("nope"));
    jw_key(j, "layer_types");
    jw_array(j);
    for (uint64_t i = 0; i < n_layers_of(g); i++)
        jw_z(j, value_at(g, "attention.head_count_kv", i) ? "attention" : "mamba");
    jw_end_array(j);
    put_int(j, "num_local_experts", g, "expert_count");
    put_int(j, "shared_intermediate_size", g,
        value_at(g, "expert_count", 0) ? "expert_shared_feed_forward_length"
                                       : "feed_forward_length");
}

static void put_nemotron(struct jw *j, const struct gguf *g)
{
    const bool has_experts = value_at(g, "expert_count", 0) > 0;
    char pattern[128] = "";
    const uint64_t n = MIN(n_layers_of(g), sizeof(pattern) - 1);

    for (uint64_t i = 0; i < n; i++)
        pattern[i] = value_at(g, "feed_forward_length", i)       ? has_experts ? 'E' : '-'
                     : value_at(g, "attention.head_count_kv", i) ? '*'
                                                                 : 'M';
    jw_member_str(j, "hybrid_override_pattern", str_of(pattern));
    jw_member_u64(j, "intermediate_size", hf_write_largest(g, "feed_forward_length"));
    jw_member_bool(j, "use_bias", false);
    put_number(j, "layer_norm_epsilon", g, "attention.layer_norm_rms_epsilon");
    if (!has_experts)
        return;
    put_int(j, "n_routed_experts", g, "expert_count");
    put_int(j, "n_shared_experts", g, "expert_shared_count");
    put_int(j, "moe_shared_expert_intermediate_size", g, "expert_shared_feed_forward_length");
    put_number(j, "routed_scaling_factor", g, "expert_weights_scale");
    put_flag(j, "norm_topk_prob", g, "expert_weights_norm");
    jw_member_u64(j, "n_group", MAX(value_at(g, "expert_group_count", 0), (uint64_t)1));
    jw_member_u64(j, "topk_group", MAX(value_at(g, "expert_group_used_count", 0), (uint64_t)1));
    if (value_at(g, "moe_latent_size", 0))
        put_int(j, "moe_latent_size", g, "moe_latent_size");
}

void hf_write_hybrid(struct jw *j, const struct gguf *g, const struct hf_family *f)
{
    put_mamba2(j, g, f->hybrid == HF_NEMOTRON_H);
    if (f->hybrid == HF_NEMOTRON_H)
        put_nemotron(j, g);
    else
        put_granite(j, g);
}
