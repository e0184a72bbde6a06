/* hf_write_gemma4.c: directories of Gemma 4 for hf_write.c: the inverse of format/hf/hf_gemma4.c.
 * Owner: the caller of hf_write; one thread. */
#include "testing/hf_write_in.h"

#include <stdio.h>

/* Value of layer `i` of a key with a number, or an array with one for each layer. */
static int64_t value_at(const struct writer *w, const char *tail, uint64_t i)
{
    char key[96];
    uint64_t one = 0;
    int64_t v = 0;

    snprintf(key, sizeof(key), "%s.%s", w->arch, tail);
    const struct gguf_value *all = gguf_find(w->g, key);
    if (!all)
        return 0;
    if (all->kind == GGUF_ARR)
        return gguf_arr_i64(all, i, &v) ? v : 0;
    return gguf_get_u64(w->g, key, &one) ? (int64_t)one : 0;
}

/* Full layers are rotated as synth.c does with factor 8, or plainly. */
static void put_rope(const struct writer *w, struct jw *j)
{
    char key[96];
    double base = 10000;

    snprintf(key, sizeof(key), "%s.rope.freq_base", w->arch);
    (void)gguf_get_f64(w->g, key, &base);
    jw_key(j, "rope_parameters");
    jw_object(j);
    jw_key(j, "sliding_attention");
    jw_raw(j, STR("{\"rope_type\":\"default\",\"rope_theta\":10000.0}"));
    jw_key(j, "full_attention");
    jw_object(j);
    if (gguf_tensor(w->g, "rope_freqs.weight")) {
        jw_member_str(j, "rope_type", STR("llama3"));
        jw_member_i64(j, "factor", 8);
        jw_member_i64(j, "low_freq_factor", 1);
        jw_member_i64(j, "high_freq_factor", 4);
        jw_member_i64(j, "original_max_position_embeddings", 8192);
    }
    jw_member_f32(j, "rope_theta", (float)base);
    jw_end_object(j);
    jw_end_object(j);
}

void hf_write_gemma4(const struct writer *w, struct jw *j)
{
    const uint64_t n_layers = (uint64_t)value_at(w, "block_count", 0);
    uint64_t full = 0;
    char name[96];

    while (full + 1 < n_layers && value_at(w, "attention.sliding_window_pattern", full))
        full++;
    snprintf(name, sizeof(name), "blk.%d.attn_v.weight", (int)full);
    jw_member_i64(j, "head_dim", value_at(w, "attention.key_length_swa", 0));
    jw_member_i64(j, "global_head_dim", value_at(w, "attention.key_length", 0));
    jw_member_i64(j, "num_global_key_value_heads", value_at(w, "attention.head_count_kv", full));
    jw_member_bool(j, "attention_k_eq_v", !gguf_tensor(w->g, name));
    jw_member_i64(j, "intermediate_size", value_at(w, "feed_forward_length", 0));
    jw_member_bool(j, "use_double_wide_mlp",
        value_at(w, "feed_forward_length", n_layers - 1) > value_at(w, "feed_forward_length", 0));
    jw_member_i64(j, "num_kv_shared_layers", value_at(w, "attention.shared_kv_layers", 0));
    jw_member_i64(
        j, "hidden_size_per_layer_input", value_at(w, "embedding_length_per_layer_input", 0));
    jw_member_i64(j, "vocab_size_per_layer_input", value_at(w, "vocab_size", 0));
    jw_member_bool(j, "enable_moe_block", w->n_experts > 0);
    if (w->n_experts)
        jw_member_i64(j, "top_k_experts", value_at(w, "expert_used_count", 0));
    jw_key(j, "layer_types");
    jw_array(j);
    for (uint64_t i = 0; i < n_layers; i++)
        jw_z(j, value_at(w, "attention.sliding_window_pattern", i) ? "sliding_attention"
                                                                   : "full_attention");
    jw_end_array(j);
    put_rope(w, j);
}
