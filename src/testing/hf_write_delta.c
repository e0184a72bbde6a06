/* hf_write_delta.c: directories of families with DeltaNet layers for hf_write.c: the inverse of
 * format/hf/hf_delta_net.c. Owner: the caller of hf_write; one thread. */
#include "testing/hf_write_in.h"

#include <stdio.h>

static uint64_t value_of(const struct writer *w, const char *tail)
{
    char key[96];
    uint64_t v = 0;

    snprintf(key, sizeof(key), "%s.%s", w->arch, tail);
    return gguf_get_u64(w->g, key, &v) ? v : 0;
}

uint64_t hf_write_value_index(
    const struct writer *w, const struct hf_tensor_row *row, uint64_t i, uint64_t n)
{
    const uint64_t n_keys = value_of(w, "ssm.group_count");
    const uint64_t n_values = value_of(w, "ssm.time_step_rank");

    if (row->rows < HF_ROWS_VALUES)
        return i;
    const uint64_t first =
        row->rows == HF_ROWS_QK_VALUES ? 2 * n_keys * value_of(w, "ssm.state_size") : 0;
    if (i < first)
        return i;
    const uint64_t size = (n - first) / n_values, head = (i - first) / size;
    const uint64_t key = head / (n_values / n_keys), k = head % (n_values / n_keys);
    return first + (k * n_keys + key) * size + (i - first) % size;
}

void hf_write_delta(const struct writer *w, struct jw *j)
{
    static const struct {
        const char *tail, *key;
    } rows[] = { { "ssm.conv_kernel", "linear_conv_kernel_dim" },
        { "ssm.state_size", "linear_key_head_dim" }, { "ssm.state_size", "linear_value_head_dim" },
        { "ssm.group_count", "linear_num_key_heads" },
        { "ssm.time_step_rank", "linear_num_value_heads" },
        { "full_attention_interval", "full_attention_interval" },
        { "expert_shared_feed_forward_length", "shared_expert_intermediate_size" } };
    char key[96];
    double base = 10000;
    int64_t is_recurrent;

    snprintf(key, sizeof(key), "%s.rope.freq_base", w->arch);
    (void)gguf_get_f64(w->g, key, &base);
    jw_key(j, "rope_parameters");
    jw_object(j);
    jw_member_str(j, "rope_type", STR("default"));
    jw_member_f32(j, "rope_theta", (float)base);
    jw_member_f32(j, "partial_rotary_factor",
        (float)value_of(w, "rope.dimension_count") / (float)value_of(w, "attention.key_length"));
    jw_key(j, "mrope_section");
    jw_raw(j, STR("[11,11,10]"));
    jw_end_object(j);

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (value_of(w, rows[i].tail))
            jw_member_u64(j, rows[i].key, value_of(w, rows[i].tail));
    if (!strcmp(w->arch, "qwen3next")) { /* mlx-lm requires these */
        jw_member_i64(j, "decoder_sparse_step", 1);
        jw_member_bool(j, "norm_topk_prob", true);
        jw_key(j, "mlp_only_layers");
        jw_raw(j, STR("[]"));
    }
    snprintf(key, sizeof(key), "%s.attention.recurrent_layers", w->arch);
    const struct gguf_value *list = gguf_find(w->g, key);
    if (!list)
        return;
    uint64_t interval = 1; /* mlx-lm does not read the list */
    while (gguf_arr_i64(list, interval - 1, &is_recurrent) && is_recurrent)
        interval++;
    jw_member_u64(j, "full_attention_interval", interval);
    jw_key(j, "layer_types");
    jw_array(j);
    for (uint64_t i = 0; gguf_arr_i64(list, i, &is_recurrent); i++)
        jw_z(j, is_recurrent ? "linear_attention" : "full_attention");
    jw_end_array(j);
}
