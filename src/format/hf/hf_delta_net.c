/* hf_delta_net.c: config.json of families with layers of gated DeltaNet and of attention (Qwen 3.5
 * and Qwen3-Next). Owner: one thread at a time. */
#include "format/hf/hf_config.h"

/* Parameters of the layers; another one is refused by name, also if it may be without effect. */
static int check_known(const struct hf_config *c, struct err *e)
{
    static const char *const known[] = { "linear_conv_kernel_dim", "linear_key_head_dim",
        "linear_num_key_heads", "linear_num_value_heads", "linear_value_head_dim" };

    for (const struct json *j = c->text->child; j; j = j->next) {
        bool is_known = !str_starts(j->key, STR("linear_"));
        for (size_t i = 0; i < ARRAY_LEN(known); i++)
            is_known |= str_is(j->key, known[i]);
        if (!is_known)
            return hf_reject(j, e);
    }
    return 0;
}

/* Values that must be true, or false, if they are present. */
static int check_flags(const struct hf_config *c, struct err *e)
{
    static const struct {
        const char *key, *arch; /* NULL: of all architectures */
        bool value;
    } rows[] = { { "attn_output_gate", NULL, true }, { "norm_topk_prob", "qwen35moe", true },
        { "use_sliding_window", NULL, false } };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct json *j = json_get(c->text, rows[i].key);
        if (rows[i].arch && strcmp(c->arch, rows[i].arch) != 0)
            continue;
        if (!json_is_null(j) && (j->kind != JSON_BOOL || j->b != rows[i].value))
            return hf_reject(j, e);
    }
    return 0;
}

int hf_delta_net_read(struct hf_config *c, struct err *e)
{
    int64_t value_dim = 0;

    if (hf_require_int(c->text, "linear_num_key_heads", &c->n_key_heads, e) ||
        hf_require_int(c->text, "linear_num_value_heads", &c->n_value_heads, e) ||
        hf_require_int(c->text, "linear_key_head_dim", &c->state_dim, e) ||
        hf_require_int(c->text, "linear_value_head_dim", &value_dim, e))
        return -1;
    if (!c->n_key_heads || !c->n_value_heads || c->n_value_heads % c->n_key_heads ||
        c->n_value_heads > 1 << 16 || !c->state_dim || c->state_dim > 1 << 12)
        return err_set(e, ERR_RANGE,
            "config.json: %lld key heads and %lld value heads of %lld dimensions",
            (long long)c->n_key_heads, (long long)c->n_value_heads, (long long)c->state_dim);
    if (value_dim != c->state_dim)
        return hf_reject(json_get(c->text, "linear_value_head_dim"), e);
    return check_known(c, e) || check_flags(c, e) ? -1 : 0;
}

/* Sets whether layer `i`, of which `type` is the entry of layer_types, is one of DeltaNet. Without
 * a list, each `interval`-th layer has attention. */
static int read_kind(
    const struct json *type, int64_t interval, int64_t i, bool *is_linear, struct err *e)
{
    *is_linear = (i + 1) % interval != 0;
    if (!type)
        return 0;
    *is_linear = type->kind == JSON_STRING && str_is(type->s, "linear_attention");
    if (!*is_linear && !(type->kind == JSON_STRING && str_is(type->s, "full_attention")))
        return err_set(e, ERR_UNSUPPORTED,
            "config.json: layer_types[%lld] is neither linear_attention nor full_attention",
            (long long)i);
    return 0;
}

static int put_kinds(const struct hf_config *c, struct gguf_keys *k, struct err *e)
{
    const struct json *types = json_get(c->text, "layer_types"), *type;
    int64_t interval = 4, n_linear = 0;

    if (hf_get_int(c->text, "full_attention_interval", &interval, e))
        return -1;
    if (!interval)
        return hf_reject(json_get(c->text, "full_attention_interval"), e);
    if (!json_is_null(types) && (types->kind != JSON_ARRAY || (int64_t)types->n != c->n_layers))
        return err_set(e, ERR_CORRUPT, "config.json: layer_types is not an array of %lld strings",
            (long long)c->n_layers);
    type = json_is_null(types) ? NULL : types->child;
    gguf_keys_arr(k, ".attention.recurrent_layers", GGUF_BOOL, (uint64_t)c->n_layers);
    for (int64_t i = 0; i < c->n_layers; i++, type = type ? type->next : NULL) {
        bool is_linear;
        if (read_kind(type, interval, i, &is_linear, e))
            return -1;
        buf_putc(&k->b, is_linear);
        n_linear += is_linear;
    }
    /* the shape of a convolution states whether the norms are those of MLX */
    if (!n_linear || n_linear == c->n_layers)
        return err_set(e, ERR_UNSUPPORTED,
            "config.json: %lld of %lld layers are linear_attention, required are both kinds",
            (long long)n_linear, (long long)c->n_layers);
    return 0;
}

int hf_delta_net_put(const struct hf_config *c, struct gguf_keys *k, struct err *e)
{
    int64_t n_taps = 0;

    if (hf_require_int(c->text, "linear_conv_kernel_dim", &n_taps, e) || put_kinds(c, k, e))
        return -1;
    gguf_keys_u32(k, ".ssm.conv_kernel", (uint32_t)n_taps);
    gguf_keys_u32(k, ".ssm.state_size", (uint32_t)c->state_dim);
    gguf_keys_u32(k, ".ssm.group_count", (uint32_t)c->n_key_heads);
    gguf_keys_u32(k, ".ssm.time_step_rank", (uint32_t)c->n_value_heads);
    gguf_keys_u32(k, ".ssm.inner_size", (uint32_t)(c->n_value_heads * c->state_dim));
    return 0;
}
