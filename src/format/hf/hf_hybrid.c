#include "format/hf/hf_hybrid.h"
#include "base/utf8.h"

#include <stdio.h>

/* ---- the kinds of the layers */

enum layer_kind { LAYER_NONE, LAYER_ATTENTION, LAYER_MAMBA2, LAYER_NETWORK, LAYER_EXPERTS };

static const struct {
    const char *name;
    char symbol; /* in hybrid_override_pattern */
    enum layer_kind kind;
} kinds[] = {
    { "attention", '*', LAYER_ATTENTION },
    { "full_attention", '*', LAYER_ATTENTION },
    { "mamba", 'M', LAYER_MAMBA2 },
    { "linear_attention", 'M', LAYER_MAMBA2 },
    { "mlp", '-', LAYER_NETWORK },
    { "moe", 'E', LAYER_EXPERTS },
};

/* The value that names the layers; NULL: none. */
static const struct json *layer_list(const struct hf_config *c)
{
    static const char *const keys[] = { "layers_block_type", "layer_types",
        "hybrid_override_pattern" };

    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const struct json *j = json_get(c->text, keys[i]);
        if (!json_is_null(j))
            return j;
    }
    return NULL;
}

struct layer_iter {
    const struct json *item; /* next element of a list */
    struct str pattern;      /* rest of a pattern */
};

static struct layer_iter layers_of(const struct json *list)
{
    struct layer_iter it = { .item = list->child };

    if (list->kind == JSON_STRING)
        it = (struct layer_iter){ .pattern = list->s };
    return it;
}

/* False: there is no further layer. LAYER_NONE: an unknown kind. */
static bool next_layer(struct layer_iter *it, enum layer_kind *kind)
{
    struct str name = { it->pattern.p, MIN(it->pattern.n, (size_t)1) };

    *kind = LAYER_NONE;
    if (!it->item && !name.n)
        return false;
    if (it->item) {
        name = it->item->kind == JSON_STRING ? it->item->s : STR_NONE;
        it->item = it->item->next;
    } else {
        it->pattern = str_skip(it->pattern, 1);
    }
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (str_is(name, kinds[i].name) || (name.n == 1 && name.p[0] == kinds[i].symbol))
            *kind = kinds[i].kind;
    return true;
}

/* Checks the kinds; sets the number of layers, and whether some have experts. */
static int read_layers(struct hf_config *c, bool *has_experts, struct err *e)
{
    const struct json *list = layer_list(c);
    bool has[LAYER_EXPERTS + 1] = { false };
    enum layer_kind kind;
    int64_t n_stated;

    if (!list)
        return err_set(e, ERR_CORRUPT, "config.json: layer_types is missing");
    if (list->kind != JSON_ARRAY && list->kind != JSON_STRING)
        return hf_reject(list, e);
    c->n_layers = 0;
    for (struct layer_iter it = layers_of(list); next_layer(&it, &kind); c->n_layers++)
        has[kind] = true;
    *has_experts = has[LAYER_EXPERTS];
    bool has_networks = has[LAYER_NETWORK] || has[LAYER_EXPERTS];
    if (has[LAYER_NONE] || (has_networks && c->family->hybrid == HF_GRANITE_HYBRID) ||
        (has[LAYER_NETWORK] && has[LAYER_EXPERTS]))
        return hf_reject(list, e);
    n_stated = c->n_layers;
    if (hf_get_int(c->text, "num_hidden_layers", &n_stated, e))
        return -1;
    if (n_stated != c->n_layers)
        return err_set(e, ERR_CORRUPT, "config.json: num_hidden_layers = %lld, but %.*s has %lld",
            (long long)n_stated, (int)list->key.n, list->key.p, (long long)c->n_layers);
    return 0;
}

/* ---- refusal of values that would change the result */

/* Parameters of the layers that are read, or that have no effect on the result. */
static const char *const known_keys[] = { "mamba_chunk_size", "mamba_conv_bias", "mamba_d_conv",
    "mamba_d_head", "mamba_d_state", "mamba_dt_init_floor", "mamba_dt_limit", "mamba_dt_max",
    "mamba_dt_min", "mamba_expand", "mamba_head_dim", "mamba_hidden_act", "mamba_n_groups",
    "mamba_n_heads", "mamba_num_heads", "mamba_proj_bias", "mamba_ssm_cache_dtype",
    "moe_intermediate_size", "moe_latent_size", "moe_shared_expert_intermediate_size",
    "moe_shared_expert_overlap", "ssm_state_size", "time_step_floor", "time_step_limit",
    "time_step_max", "time_step_min" };

static int check_known(const struct hf_config *c, struct err *e)
{
    static const struct str starts[] = { { "mamba_", 6 }, { "moe_", 4 }, { "ssm_", 4 },
        { "time_step_", 10 } };

    for (const struct json *j = c->text->child; j; j = j->next) {
        bool is_parameter = false, is_known = false;
        for (size_t i = 0; i < ARRAY_LEN(starts); i++)
            is_parameter |= str_starts(j->key, starts[i]);
        for (size_t i = 0; is_parameter && i < ARRAY_LEN(known_keys); i++)
            is_known |= str_is(j->key, known_keys[i]);
        if (is_parameter && !is_known)
            return hf_reject(j, e);
    }
    return 0;
}

/* A bound of infinity: as a number, as Python writes it, or as transformers writes it. */
static bool is_unlimited(const struct json *j)
{
    double v;

    if (j && j->kind == JSON_OBJECT)
        j = json_get(j, "__float__");
    if (j && j->kind == JSON_STRING)
        return str_is(j->s, "Infinity");
    return json_f64(j, &v) && v >= 1e18;
}

/* The time steps have no bounds. */
static int check_limit(const struct hf_config *c, const char *key, struct err *e)
{
    const struct json *all = json_get(c->text, key);
    double low = -1;

    if (json_is_null(all))
        return 0;
    if (all->kind != JSON_ARRAY || all->n != 2 || !json_f64(all->child, &low) || low > 0 ||
        !is_unlimited(all->child->next))
        return hf_reject(all, e);
    return 0;
}

static int check_values(const struct hf_config *c, struct err *e)
{
    static const char *const empty[] = { "use_bias", "mamba_proj_bias", "mlp_bias",
        "sliding_window", "block_configs" };
    struct str act = STR("silu");

    for (size_t i = 0; i < ARRAY_LEN(empty); i++) {
        const struct json *j = json_get(c->text, empty[i]);
        if (!json_is_null(j) && !(j->kind == JSON_BOOL && !j->b))
            return hf_reject(j, e);
    }
    hf_get_str(c->text, "mamba_hidden_act", &act);
    if (!str_is(act, "silu") && !str_is(act, "swish"))
        return hf_reject(json_get(c->text, "mamba_hidden_act"), e);
    return check_known(c, e) || check_limit(c, "time_step_limit", e) ||
                   check_limit(c, "mamba_dt_limit", e)
               ? -1
               : 0;
}

/* ---- reading */

/* Reads the first of two names that is present; on entry *out is the default. */
static int get_either(
    const struct hf_config *c, const char *name, const char *other, int64_t *out, struct err *e)
{
    const char *key = json_is_null(json_get(c->text, name)) ? other : name;

    return hf_get_int(c->text, key, out, e);
}

int hf_hybrid_read(struct hf_config *c, struct err *e)
{
    const bool is_nemotron = c->family->hybrid == HF_NEMOTRON_H;
    bool has_experts = false;

    c->n_groups = is_nemotron ? 8 : 1;
    if (read_layers(c, &has_experts, e) ||
        get_either(c, "n_groups", "mamba_n_groups", &c->n_groups, e))
        return -1;
    if (c->n_groups < 1)
        return err_set(
            e, ERR_RANGE, "config.json: %lld groups of Mamba2 heads", (long long)c->n_groups);
    if (!is_nemotron)
        return hf_get_int(c->text, "num_local_experts", &c->n_experts, e);
    c->n_experts = has_experts ? 8 : 0;
    if (has_experts && hf_get_int(c->text, "n_routed_experts", &c->n_experts, e))
        return -1;
    if (has_experts && !c->n_experts)
        return hf_reject(json_get(c->text, "n_routed_experts"), e);
    if (has_experts)
        c->arch = c->family->moe_arch;
    return 0;
}

/* ---- keys */

/* One number for each layer: `value` in those of this kind, 0 in the others. */
static void put_layer_values(const struct hf_config *c, struct gguf_keys *k, const char *key,
    enum layer_kind of, int64_t value)
{
    enum layer_kind kind;

    gguf_keys_arr(k, key, GGUF_I32, (uint64_t)c->n_layers);
    for (struct layer_iter it = layers_of(layer_list(c)); next_layer(&it, &kind);) {
        int32_t v = kind == of ? (int32_t)value : 0;
        buf_put(&k->b, &v, sizeof(v));
    }
}

/* "auto": what the expansion of the residual stream gives. */
static int read_head_dim(const struct hf_config *c, int64_t n_heads, int64_t *out, struct err *e)
{
    const struct json *j = json_get(c->text, "mamba_d_head");
    int64_t expand = 2;

    if (c->family->hybrid == HF_NEMOTRON_H) {
        *out = 64;
        return hf_get_int(c->text, "mamba_head_dim", out, e);
    }
    if (hf_get_int(c->text, "mamba_expand", &expand, e))
        return -1;
    *out = n_heads ? expand * c->d_model / n_heads : 0;
    if (j && j->kind == JSON_STRING && str_is(j->s, "auto"))
        return 0;
    return hf_get_int(c->text, "mamba_d_head", out, e);
}

static int put_mamba2(const struct hf_config *c, struct gguf_keys *k, struct err *e)
{
    const bool is_nemotron = c->family->hybrid == HF_NEMOTRON_H;
    int64_t taps = 4, state = is_nemotron ? 128 : 256, n_heads = 128, head_dim = 0;

    if (get_either(c, "conv_kernel", "mamba_d_conv", &taps, e) ||
        get_either(c, "ssm_state_size", "mamba_d_state", &state, e) ||
        get_either(c, "mamba_num_heads", "mamba_n_heads", &n_heads, e) ||
        read_head_dim(c, n_heads, &head_dim, e))
        return -1;
    if (n_heads > 1 << 20 || head_dim > 1 << 10)
        return err_set(e, ERR_RANGE, "config.json: %lld Mamba2 heads of %lld dimensions",
            (long long)n_heads, (long long)head_dim);
    gguf_keys_u32(k, ".ssm.conv_kernel", (uint32_t)taps);
    gguf_keys_u32(k, ".ssm.state_size", (uint32_t)state);
    gguf_keys_u32(k, ".ssm.group_count", (uint32_t)c->n_groups);
    gguf_keys_u32(k, ".ssm.time_step_rank", (uint32_t)n_heads);
    gguf_keys_u32(k, ".ssm.inner_size", (uint32_t)(n_heads * head_dim));
    return 0;
}

/* Copies an integer to a key; the default -1 means that the key is left out. */
static int put_int(const struct hf_config *c, struct gguf_keys *k, const char *from, const char *to,
    int64_t v, struct err *e)
{
    if (hf_get_int(c->text, from, &v, e))
        return -1;
    if (v >= 0)
        gguf_keys_u32(k, to, (uint32_t)v);
    return 0;
}

/* Without experts the shared expert is the only network, and has its width. */
static int put_granite(const struct hf_config *c, struct gguf_keys *k, struct err *e)
{
    int64_t width = 0, shared = 0;
    struct str positions = STR("");

    if (hf_get_int(c->text, "intermediate_size", &width, e))
        return -1;
    shared = c->n_experts ? 0 : width;
    if (hf_get_int(c->text, "shared_intermediate_size", &shared, e))
        return -1;
    gguf_keys_u32(k, ".feed_forward_length", (uint32_t)(c->n_experts ? width : shared));
    if (c->n_experts) {
        gguf_keys_u32(k, ".expert_count", (uint32_t)c->n_experts);
        gguf_keys_u32(k, ".expert_feed_forward_length", (uint32_t)width);
        gguf_keys_u32(k, ".expert_shared_feed_forward_length", (uint32_t)shared);
        if (put_int(c, k, "num_experts_per_tok", ".expert_used_count", 2, e))
            return -1;
    }
    if (hf_get_str(c->text, "position_embedding_type", &positions) && !str_is(positions, "rope") &&
        !str_is(positions, "nope"))
        return hf_reject(json_get(c->text, "position_embedding_type"), e);
    gguf_keys_bool(k, ".rope.scaling.finetuned", str_is(positions, "rope"));
    return 0;
}

static int put_nemotron_experts(const struct hf_config *c, struct gguf_keys *k, struct err *e)
{
    const struct json *norm = json_get(c->text, "norm_topk_prob");
    int64_t n_groups = 1, n_shared = 1, width = 7688, shared = 7688;
    double scale = 1;

    if (hf_get_int(c->text, "moe_intermediate_size", &width, e) ||
        hf_get_int(c->text, "moe_shared_expert_intermediate_size", &shared, e) ||
        hf_get_int(c->text, "n_shared_experts", &n_shared, e) ||
        hf_get_int(c->text, "n_group", &n_groups, e) ||
        hf_get_number(c->text, "routed_scaling_factor", &scale, e) ||
        put_int(c, k, "num_experts_per_tok", ".expert_used_count", 2, e) ||
        put_int(c, k, "moe_latent_size", ".moe_latent_size", -1, e) ||
        (n_groups > 1 && put_int(c, k, "topk_group", ".expert_group_used_count", 1, e)))
        return -1;
    if (!(scale > 0)) /* in GGUF terms, 0 means that there is no factor */
        return hf_reject(json_get(c->text, "routed_scaling_factor"), e);
    if (json_get(c->text, "n_shared_experts") &&
        json_is_null(json_get(c->text, "n_shared_experts")))
        n_shared = 0;
    put_layer_values(c, k, ".feed_forward_length", LAYER_EXPERTS, width);
    gguf_keys_u32(k, ".expert_count", (uint32_t)c->n_experts);
    gguf_keys_u32(k, ".expert_feed_forward_length", (uint32_t)width);
    gguf_keys_u32(k, ".expert_shared_feed_forward_length", n_shared ? (uint32_t)shared : 0);
    gguf_keys_u32(k, ".expert_group_count", (uint32_t)n_groups);
    gguf_keys_f32(k, ".expert_weights_scale", (float)scale);
    gguf_keys_bool(
        k, ".expert_weights_norm", json_is_null(norm) || hf_is_true(c->text, "norm_topk_prob"));
    return 0;
}

static int put_nemotron(const struct hf_config *c, struct gguf_keys *k, struct err *e)
{
    int64_t width = 21504;
    double eps = 1e-5;

    if (hf_get_number(c->text, "norm_eps", &eps, e) ||
        hf_get_number(c->text, "layer_norm_epsilon", &eps, e))
        return -1;
    gguf_keys_f32(k, ".attention.layer_norm_rms_epsilon", (float)eps);
    if (c->n_experts)
        return put_nemotron_experts(c, k, e);
    if (hf_get_int(c->text, "intermediate_size", &width, e))
        return -1;
    put_layer_values(c, k, ".feed_forward_length", LAYER_NETWORK, width);
    return 0;
}

int hf_hybrid_put(const struct hf_config *c, struct gguf_keys *k, struct err *e)
{
    if (check_values(c, e))
        return -1;
    gguf_keys_u32(k, ".block_count", (uint32_t)c->n_layers);
    put_layer_values(c, k, ".attention.head_count_kv", LAYER_ATTENTION, c->n_kv_heads);
    if (put_mamba2(c, k, e))
        return -1;
    return c->family->hybrid == HF_NEMOTRON_H ? put_nemotron(c, k, e) : put_granite(c, k, e);
}
