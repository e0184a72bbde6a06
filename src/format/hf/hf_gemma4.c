/* hf_gemma4.c: config.json of Gemma 4: heads of layers with and without a window, layers that share
 * keys and values, inputs of layers, experts next to a dense network. Owner: one thread at a time.
 */
#include "format/hf/hf_config.h"

/* Whether layer i has a window, as layer_types states. */
static bool has_window(const struct hf_config *c, int64_t i)
{
    const struct json *type = json_get(c->text, "layer_types")->child;

    while (i-- > 0)
        type = type->next;
    return type->kind == JSON_STRING && str_is(type->s, "sliding_attention");
}

/* The list must be complete, since its default is not the same in all programs. */
static int check_layer_types(const struct hf_config *c, struct err *e)
{
    const struct json *types = json_get(c->text, "layer_types");

    if (json_is_null(types))
        return err_set(e, ERR_CORRUPT, "config.json: layer_types is missing");
    if (types->kind != JSON_ARRAY || (int64_t)types->n != c->n_layers)
        return err_set(e, ERR_CORRUPT, "config.json: layer_types is not an array of %lld strings",
            (long long)c->n_layers);
    return has_window(c, c->n_layers - 1) ? hf_reject(types, e) : 0;
}

/* An entry of per_layer_config for each layer without a window, all with the same values. */
static int read_overrides(struct hf_config *c, const struct json *all, struct err *e)
{
    int64_t n_full = 0, n_found = 0;

    for (int64_t i = 0; i < c->n_layers; i++)
        n_full += !has_window(c, i);
    if (all->kind != JSON_OBJECT)
        return hf_reject(all, e);
    for (const struct json *j = all->child; j; j = j->next, n_found++) {
        int64_t head_dim = c->window_head_dim, n_kv_heads = c->n_kv_heads;
        uint64_t layer;
        if (!str_to_u64(j->key, &layer) || layer >= (uint64_t)c->n_layers ||
            has_window(c, (int64_t)layer))
            return hf_reject(all, e);
        if (hf_get_int(j, "head_dim", &head_dim, e) ||
            hf_get_int(j, "num_key_value_heads", &n_kv_heads, e))
            return -1;
        if (n_found && (head_dim != c->head_dim || n_kv_heads != c->n_full_kv_heads))
            return hf_reject(all, e);
        c->head_dim = head_dim;
        c->n_full_kv_heads = n_kv_heads;
    }
    return n_found == n_full ? 0 : hf_reject(all, e);
}

int hf_gemma4_read(struct hf_config *c, struct err *e)
{
    const struct json *overrides = json_get(c->text, "per_layer_config");

    if (check_layer_types(c, e))
        return -1;
    c->window_head_dim = c->head_dim;
    c->head_dim = 512;
    c->n_full_kv_heads = c->n_kv_heads;
    if (!json_is_null(overrides) ? read_overrides(c, overrides, e)
                                 : hf_get_int(c->text, "global_head_dim", &c->head_dim, e))
        return -1;
    if (json_is_null(overrides) && hf_is_true(c->text, "attention_k_eq_v") &&
        hf_get_int(c->text, "num_global_key_value_heads", &c->n_full_kv_heads, e))
        return -1;
    if (!c->window_head_dim || c->window_head_dim > 1 << 16 || !c->n_full_kv_heads)
        return err_set(e, ERR_RANGE,
            "config.json: %lld KV heads in full layers, windows with heads of %lld dimensions",
            (long long)c->n_full_kv_heads, (long long)c->window_head_dim);
    return hf_is_true(c->text, "enable_moe_block")
               ? hf_require_int(c->text, "num_experts", &c->n_experts, e)
               : 0;
}

int hf_gemma4_check_values(const struct hf_config *c, const bool *has_values, struct err *e)
{
    const bool are_keys = hf_is_true(c->text, "attention_k_eq_v");
    int64_t n_shared = 0;

    if (hf_get_int(c->text, "num_kv_shared_layers", &n_shared, e))
        return -1;
    for (int64_t i = 0; i < c->n_layers - n_shared; i++) {
        const bool should = !are_keys || has_window(c, i);
        if (has_values[i] != should)
            return err_set(e, ERR_CORRUPT,
                "tensor model.layers.%lld.self_attn.v_proj is %s: attention_k_eq_v = %s",
                (long long)i, should ? "missing" : "unexpected", are_keys ? "true" : "false");
    }
    return 0;
}

/* ---- keys */

/* Values that would change the result. */
static int check_known(const struct hf_config *c, struct err *e)
{
    const struct json *both = json_get(c->text, "use_bidirectional_attention");
    const struct json *rope = json_get(c->text, "rope_parameters");
    const struct json *window = json_get(rope, "sliding_attention");
    const struct json *scale = json_get(c->text, "query_pre_attn_scalar");
    struct str type = STR("default");
    double share = 1;

    if (!json_is_null(both) && !(both->kind == JSON_STRING && str_is(both->s, "vision")))
        return hf_reject(both, e);
    if (!json_is_null(scale))
        return hf_reject(scale, e);
    if (!window || !json_get(rope, "full_attention"))
        return err_set(e, ERR_CORRUPT,
            "config.json: rope_parameters has no full_attention and sliding_attention");
    hf_get_str(window, "rope_type", &type);
    if (hf_get_number(window, "partial_rotary_factor", &share, e))
        return -1;
    if (!str_is(type, "default") || share != 1)
        return hf_reject(window, e);
    /* transformers has no cap without the key, mlx-lm has 30 */
    if (!json_get(c->text, "final_logit_softcapping"))
        return err_set(e, ERR_CORRUPT, "config.json: final_logit_softcapping is missing");
    return 0;
}

static int put_experts(const struct hf_config *c, struct gguf_keys *k, struct err *e)
{
    int64_t n_used = 0, width = 0;

    if (!hf_is_true(c->text, "enable_moe_block"))
        return 0;
    if (hf_require_int(c->text, "top_k_experts", &n_used, e) ||
        hf_require_int(c->text, "moe_intermediate_size", &width, e))
        return -1;
    gguf_keys_u32(k, ".expert_count", (uint32_t)c->n_experts);
    gguf_keys_u32(k, ".expert_used_count", (uint32_t)n_used);
    gguf_keys_u32(k, ".expert_feed_forward_length", (uint32_t)width);
    return 0;
}

/* The layers that share keys and values may have networks of twice the width. */
static int put_layers(const struct hf_config *c, struct gguf_keys *k, struct err *e)
{
    const bool is_double = hf_is_true(c->text, "use_double_wide_mlp");
    int64_t width = 0, n_shared = 0;

    if (hf_require_int(c->text, "intermediate_size", &width, e) ||
        hf_get_int(c->text, "num_kv_shared_layers", &n_shared, e))
        return -1;
    if (width > INT32_MAX / 2 || n_shared >= c->n_layers)
        return hf_reject(json_get(c->text, n_shared >= c->n_layers ? "num_kv_shared_layers"
                                                                   : "intermediate_size"),
            e);
    gguf_keys_u32(k, ".block_count", (uint32_t)c->n_layers);
    gguf_keys_u32(k, ".attention.shared_kv_layers", (uint32_t)n_shared);
    gguf_keys_arr(k, ".feed_forward_length", GGUF_I32, (uint64_t)c->n_layers);
    for (int64_t i = 0; i < c->n_layers; i++) {
        const int32_t v = (int32_t)(is_double && i >= c->n_layers - n_shared ? 2 * width : width);
        buf_put(&k->b, &v, sizeof(v));
    }
    gguf_keys_arr(k, ".attention.head_count_kv", GGUF_I32, (uint64_t)c->n_layers);
    for (int64_t i = 0; i < c->n_layers; i++) {
        const int32_t v = (int32_t)(has_window(c, i) ? c->n_kv_heads : c->n_full_kv_heads);
        buf_put(&k->b, &v, sizeof(v));
    }
    return 0;
}

int hf_gemma4_put(const struct hf_config *c, struct gguf_keys *k, struct err *e)
{
    int64_t d_input = c->family->layer_input;

    if (check_known(c, e) || put_layers(c, k, e) || put_experts(c, k, e) ||
        hf_get_int(c->text, "hidden_size_per_layer_input", &d_input, e))
        return -1;
    const struct json *stated = json_get(c->text, "hidden_size_per_layer_input");
    if (stated && json_is_null(stated))
        d_input = 0;
    gguf_keys_u32(k, ".embedding_length_per_layer_input", (uint32_t)d_input);
    gguf_keys_u32(k, ".attention.key_length", (uint32_t)c->head_dim);
    gguf_keys_u32(k, ".attention.value_length", (uint32_t)c->head_dim);
    gguf_keys_u32(k, ".attention.key_length_swa", (uint32_t)c->window_head_dim);
    gguf_keys_u32(k, ".attention.value_length_swa", (uint32_t)c->window_head_dim);
    gguf_keys_u32(k, ".rope.dimension_count_swa", (uint32_t)c->window_head_dim);
    return 0;
}
