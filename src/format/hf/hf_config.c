#include "format/hf/hf_config.h"
#include "base/utf8.h"
#include "format/hf/hf_hybrid.h"

#include <math.h>
#include <stdio.h>

/* ---- values */

#define RAW_MAX 80

static struct str shown(const struct json *j)
{
    struct str raw = j->raw;

    if (!utf8_is_printable(raw))
        raw = STR("(a value of several lines)");
    raw.n = MIN(raw.n, (size_t)RAW_MAX);
    return raw;
}

int hf_reject(const struct json *value, struct err *e)
{
    return err_set(e, ERR_UNSUPPORTED, "config.json: %.*s = " STR_FMT " is not supported",
        (int)MIN(value->key.n, (size_t)RAW_MAX), utf8_is_printable(value->key) ? value->key.p : "?",
        STR_ARG(shown(value)));
}

int hf_get_int(const struct json *object, const char *key, int64_t *out, struct err *e)
{
    const struct json *j = json_get(object, key);
    int64_t v;

    if (json_is_null(j))
        return 0;
    if (!json_i64(j, &v) || v < 0 || v > INT32_MAX)
        return err_set(e, ERR_CORRUPT,
            "config.json: %s = " STR_FMT " is not a whole number from 0 to %d", key,
            STR_ARG(shown(j)), INT32_MAX);
    *out = v;
    return 0;
}

int hf_get_number(const struct json *object, const char *key, double *out, struct err *e)
{
    const struct json *j = json_get(object, key);
    double v;

    if (json_is_null(j))
        return 0;
    if (!json_f64(j, &v) || !isfinite(v) || fabs(v) > 1e30)
        return err_set(e, ERR_CORRUPT, "config.json: %s = " STR_FMT " is not a number", key,
            STR_ARG(shown(j)));
    *out = v;
    return 0;
}

bool hf_get_str(const struct json *object, const char *key, struct str *out)
{
    const struct json *j = json_get(object, key);

    if (!j || j->kind != JSON_STRING)
        return false;
    *out = j->s;
    return true;
}

bool hf_is_true(const struct json *object, const char *key)
{
    const struct json *j = json_get(object, key);

    return j && j->kind == JSON_BOOL && j->b;
}

int hf_require_int(const struct json *object, const char *key, int64_t *out, struct err *e)
{
    if (json_is_null(json_get(object, key)))
        return err_set(e, ERR_CORRUPT, "config.json: %s is missing", key);
    return hf_get_int(object, key, out, e);
}

/* ---- the family and the sizes that other files need */

static int reject_family(struct str type, struct err *e)
{
    char names[640] = "";
    size_t n = 0;
    const struct hf_family *f;

    for (size_t i = 0; (f = hf_family_at(i)) && n < sizeof(names); i++)
        n += (size_t)snprintf(names + n, sizeof(names) - n, "%s%s", i ? ", " : "", f->model_type);
    return err_set(e, ERR_UNSUPPORTED,
        "config.json: model_type '%.*s' is not supported (supported: %s)",
        (int)MIN(type.n, (size_t)60), utf8_is_printable(type) ? type.p : "?", names);
}

static int find_family(struct hf_config *c, struct err *e)
{
    const struct json *inner = json_get(c->all, "text_config");
    struct str type = STR("");

    c->text = inner && inner->kind == JSON_OBJECT ? inner : c->all;
    if (!hf_get_str(c->text, "model_type", &type) && !hf_get_str(c->all, "model_type", &type))
        return err_set(e, ERR_CORRUPT, "config.json: model_type is missing");
    c->family = hf_family_find(type);
    return c->family ? 0 : reject_family(type, e);
}

/* tie_word_embeddings of a multimodal model is a value of the whole or of the language model. */
static void read_tied(struct hf_config *c)
{
    const struct json *j = json_get(c->text, "tie_word_embeddings");

    if (json_is_null(j))
        j = json_get(c->all, "tie_word_embeddings");
    c->states_tied = j && j->kind == JSON_BOOL;
    c->is_tied = c->states_tied && j->b;
}

/* The layers, and what depends on their kinds. */
static int read_layers(struct hf_config *c, struct err *e)
{
    c->arch = c->family->arch;
    c->n_groups = 1;
    return c->family->hybrid ? hf_hybrid_read(c, e)
                             : hf_require_int(c->text, "num_hidden_layers", &c->n_layers, e);
}

/* Number of experts, under the name that the family uses. */
static int read_experts(struct hf_config *c, struct err *e)
{
    static const char *const names[] = { "num_local_experts", "n_routed_experts" };

    if (!c->family->has_experts)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (json_get(c->text, names[i]))
            return hf_require_int(c->text, names[i], &c->n_experts, e);
    return hf_require_int(c->text, "num_experts", &c->n_experts, e);
}

int hf_config_read(struct hf_config *c, const struct json *all, struct err *e)
{
    *c = (struct hf_config){ .all = all };
    if (all->kind != JSON_OBJECT)
        return err_set(e, ERR_CORRUPT, "config.json is not an object");
    if (find_family(c, e) || read_layers(c, e) ||
        hf_require_int(c->text, "hidden_size", &c->d_model, e) ||
        hf_require_int(c->text, "num_attention_heads", &c->n_heads, e))
        return -1;
    c->n_kv_heads = c->n_heads;
    if (!c->n_heads || !c->n_layers || c->n_layers > 4096)
        return err_set(e, ERR_RANGE, "config.json: %lld layers with %lld attention heads",
            (long long)c->n_layers, (long long)c->n_heads);
    c->head_dim = c->family->head_dim ? c->family->head_dim : c->d_model / c->n_heads;
    if (hf_get_int(c->text, "num_key_value_heads", &c->n_kv_heads, e) ||
        hf_get_int(c->text, "head_dim", &c->head_dim, e) || read_experts(c, e) ||
        hf_get_int(c->text, "num_nextn_predict_layers", &c->n_mtp_layers, e) ||
        hf_get_int(c->text, "num_mtp_layers", &c->n_mtp_layers, e) ||
        (c->family->has_latent_attn &&
            hf_require_int(c->text, "qk_rope_head_dim", &c->head_dim, e)) ||
        (c->family->has_delta_net && hf_delta_net_read(c, e)) ||
        (c->family->has_window_heads && hf_gemma4_read(c, e)))
        return -1;
    if (!c->n_kv_heads || !c->head_dim || c->head_dim > 1 << 16)
        return err_set(e, ERR_RANGE, "config.json: %lld KV heads of %lld dimensions",
            (long long)c->n_kv_heads, (long long)c->head_dim);
    read_tied(c);
    return 0;
}

/* ---- refusal of values that would change the result */

static int check_activation(const struct hf_config *c, struct err *e)
{
    static const char *const keys[] = { "hidden_activation", "hidden_act", "mlp_hidden_act" };

    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const struct json *j = json_get(c->text, keys[i]);
        if (json_is_null(j))
            continue;
        if (j->kind != JSON_STRING ||
            (!str_is(j->s, c->family->activation) &&
                !(str_is(j->s, "swish") && !strcmp(c->family->activation, "silu"))))
            return hf_reject(j, e);
        return 0; /* the first of two values is used */
    }
    return 0;
}

/* Numbers that must have the value that the family implements, if they are present. */
static int check_constants(const struct hf_config *c, struct err *e)
{
    static const struct {
        const char *key;
        double value;
    } rows[] = { { "swiglu_limit", 7 }, { "decoder_sparse_step", 1 }, { "moe_layer_freq", 1 } };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        double v = rows[i].value;
        if (hf_get_number(c->text, rows[i].key, &v, e))
            return -1;
        if (v != rows[i].value)
            return hf_reject(json_get(c->text, rows[i].key), e);
    }
    return 0;
}

/* The layers without RoPE must be those of the family. */
static int check_rope_layers(const struct hf_config *c, struct err *e)
{
    const struct json *all = json_get(c->text, "no_rope_layers");
    int64_t i = 0, has_rope = 1;

    if (json_is_null(all))
        return 0;
    if (all->kind != JSON_ARRAY || (all->n && (int64_t)all->n != c->n_layers))
        return hf_reject(all, e);
    for (const struct json *j = all->child; j; j = j->next, i++)
        if (!json_i64(j, &has_rope) ||
            has_rope != (!c->family->rope_period || (i + 1) % c->family->rope_period != 0))
            return hf_reject(all, e);
    return 0;
}

static int check_values(const struct hf_config *c, struct err *e)
{
    static const struct {
        const char *key, *arch; /* the architecture that implements it; NULL: none */
    } empty[] = { { "mlp_only_layers", NULL }, { "clip_qkv", NULL }, { "alibi", NULL },
        { "use_qk_norm", "glm4moe" } };
    const struct json *interleave = json_get(c->text, "rope_interleave");

    if (c->family->has_latent_attn && !json_is_null(interleave) &&
        !hf_is_true(c->text, "rope_interleave"))
        return hf_reject(interleave, e);
    for (size_t i = 0; i < ARRAY_LEN(empty); i++) {
        const struct json *j = json_get(c->text, empty[i].key);
        if (empty[i].arch && !strcmp(c->family->arch, empty[i].arch))
            continue;
        if (!json_is_null(j) && !(j->kind == JSON_BOOL && !j->b) &&
            !(j->kind == JSON_ARRAY && !j->n))
            return hf_reject(j, e);
    }
    return check_activation(c, e) || check_constants(c, e) || check_rope_layers(c, e) ? -1 : 0;
}

/* ---- keys */

/* Values that are copied; the GGUF key has the prefix of the architecture. */
static const struct {
    const char *from, *to;
    /* families with layers of several kinds have other keys */
    bool is_per_layer;
} ints[] = {
    { "num_hidden_layers", ".block_count", true },
    { "hidden_size", ".embedding_length" },
    { "intermediate_size", ".feed_forward_length", true },
    { "num_attention_heads", ".attention.head_count" },
    { "num_key_value_heads", ".attention.head_count_kv", true },
    { "max_position_embeddings", ".context_length" },
    { "vocab_size", ".vocab_size" },
};

static const struct {
    const char *from, *to;
} numbers[] = {
    { "rms_norm_eps", ".attention.layer_norm_rms_epsilon" },
    { "embedding_multiplier", ".embedding_scale" },
    { "residual_multiplier", ".residual_scale" },
    { "attention_multiplier", ".attention.scale" },
    { "logits_scaling", ".logit_scale" },
    { "attn_logit_softcapping", ".attn_logit_softcapping" },
    { "final_logit_softcapping", ".final_logit_softcapping" },
};

static int put_copies(const struct hf_config *c, struct gguf_keys *k, struct err *e)
{
    for (size_t i = 0; i < ARRAY_LEN(ints); i++) {
        int64_t v = -1;
        if ((c->family->hybrid || c->family->has_short_conv || c->family->has_window_heads) &&
            ints[i].is_per_layer)
            continue;
        if (hf_get_int(c->text, ints[i].from, &v, e))
            return -1;
        if (v >= 0)
            gguf_keys_u32(k, ints[i].to, (uint32_t)v);
    }
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        double v = NAN;
        if (c->family->hybrid == HF_NEMOTRON_H && !strcmp(numbers[i].from, "rms_norm_eps"))
            continue;
        if (hf_get_number(c->text, numbers[i].from, &v, e))
            return -1;
        if (!isnan(v))
            gguf_keys_f32(k, numbers[i].to, (float)v);
    }
    return 0;
}

/* null means no soft cap, whereas a GGUF file without the key has the cap of the family. */
static void put_soft_caps(const struct hf_config *c, struct gguf_keys *k)
{
    static const char *const keys[] = { "attn_logit_softcapping", "final_logit_softcapping" };

    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const struct json *j = json_get(c->text, keys[i]);
        char to[64];
        snprintf(to, sizeof(to), ".%s", keys[i]);
        if (j && j->kind == JSON_NULL)
            gguf_keys_f32(k, to, 0);
    }
}

/* Dimensions of latent attention. */
static int read_latent(struct hf_config *c, struct err *e)
{
    if (!c->family->has_latent_attn)
        return 0;
    return hf_require_int(c->text, "qk_nope_head_dim", &c->nope_dim, e) ||
                   hf_require_int(c->text, "v_head_dim", &c->value_dim, e) ||
                   hf_require_int(c->text, "kv_lora_rank", &c->kv_rank, e) ||
                   hf_get_int(c->text, "q_lora_rank", &c->q_rank, e)
               ? -1
               : 0;
}

void hf_config_put_latent(const struct hf_config *c, bool has_kv_b, struct gguf_keys *k)
{
    const uint32_t n_rot = (uint32_t)c->head_dim, rank = (uint32_t)c->kv_rank;

    if (!c->family->has_latent_attn)
        return;
    gguf_keys_u32(k, ".attention.q_lora_rank", (uint32_t)c->q_rank);
    gguf_keys_u32(k, ".attention.kv_lora_rank", rank);
    /* numbers are bounded by 2^31 - 1 */
    gguf_keys_u32(k, has_kv_b ? ".attention.key_length" : ".attention.key_length_mla",
        (uint32_t)c->nope_dim + n_rot);
    gguf_keys_u32(k, has_kv_b ? ".attention.value_length" : ".attention.value_length_mla",
        (uint32_t)c->value_dim);
    if (!has_kv_b) {
        gguf_keys_u32(k, ".attention.key_length", rank + n_rot);
        gguf_keys_u32(k, ".attention.value_length", rank);
    }
    gguf_keys_u32(k, ".rope.dimension_count", n_rot);
}

static int put_heads(const struct hf_config *c, struct gguf_keys *k, struct err *e)
{
    double scale = 0;

    if (c->family->has_latent_attn)
        return 0;
    if (c->family->has_window_heads)
        return hf_gemma4_put(c, k, e);
    if (json_get(c->text, "head_dim") || c->family->head_dim) {
        gguf_keys_u32(k, ".attention.key_length", (uint32_t)c->head_dim);
        gguf_keys_u32(k, ".attention.value_length", (uint32_t)c->head_dim);
    }
    if (hf_get_number(c->text, "query_pre_attn_scalar", &scale, e))
        return -1;
    if (scale > 0)
        gguf_keys_f32(k, ".attention.scale", (float)(1 / sqrt(scale)));
    return 0;
}

/* Layers without experts: first_k_dense_replace, or the kind of each layer. */
static int put_dense_layers(const struct hf_config *c, struct gguf_keys *k, struct err *e)
{
    const struct json *types = json_get(c->text, "mlp_layer_types");
    int64_t n = c->family->n_dense, i = 0;

    if (!json_is_null(types)) {
        n = 0;
        for (const struct json *j = types->child; j; j = j->next, i++) {
            bool is_dense = j->kind == JSON_STRING && str_is(j->s, "dense");
            if (!is_dense && !(j->kind == JSON_STRING && str_is(j->s, "sparse")))
                return hf_reject(types, e);
            if (is_dense && n++ != i)
                return hf_reject(types, e);
        }
        if (types->kind != JSON_ARRAY || i != c->n_layers)
            return hf_reject(types, e);
    }
    if (hf_get_int(c->text, "first_k_dense_replace", &n, e) ||
        hf_get_int(c->text, "num_dense_layers", &n, e))
        return -1;
    if (n > 0)
        gguf_keys_u32(k, ".leading_dense_block_count", (uint32_t)n);
    return 0;
}

/* The function of the router, and groups of experts. */
static int put_router(const struct hf_config *c, struct gguf_keys *k, struct err *e)
{
    struct str function = str_of(c->family->router ? c->family->router : "");
    struct str method = STR("");
    int64_t n_groups = 1, used = 1, shared = 0;
    double scale = 0;

    if (!c->family->router)
        return 0;
    hf_get_str(c->text, "scoring_func", &function);
    hf_get_str(c->text, "topk_method", &method);
    if (!str_is(function, "softmax") && !str_is(function, "sigmoid"))
        return hf_reject(json_get(c->text, "scoring_func"), e);
    if (hf_get_int(c->text, "n_group", &n_groups, e) ||
        hf_get_int(c->text, "topk_group", &used, e) ||
        hf_get_int(c->text, "n_shared_experts", &shared, e) ||
        hf_get_number(c->text, "routed_scaling_factor", &scale, e))
        return -1;
    /* The score of a group is that of its best expert (DeepSeek V2) or the sum of its two best. */
    const bool is_v2 = !strcmp(c->arch, "deepseek2") && str_is(function, "softmax");
    const char *groups = is_v2 ? "group_limited_greedy" : "noaux_tc";
    const bool has_groups = n_groups > 1 && (str_is(method, groups) || (!method.n && !is_v2));
    if (n_groups > 1 && method.n && !has_groups && !str_is(method, "greedy"))
        return hf_reject(json_get(c->text, "topk_method"), e);
    gguf_keys_u32(k, ".expert_gating_func", str_is(function, "sigmoid") ? 2 : 1);
    gguf_keys_u32(k, ".expert_shared_count", (uint32_t)shared);
    if (scale > 0)
        gguf_keys_f32(k, ".expert_weights_scale", (float)scale);
    if (has_groups) {
        gguf_keys_u32(k, ".expert_group_count", (uint32_t)n_groups);
        gguf_keys_u32(k, ".expert_group_used_count", (uint32_t)used);
    }
    return put_dense_layers(c, k, e);
}

static int put_experts(const struct hf_config *c, struct gguf_keys *k, struct err *e)
{
    static const char *const used_names[] = { "num_experts_per_tok", "experts_per_token" };
    static const char *const shared_names[] = { "shared_expert_intermediate_size",
        "shared_intermediate_size" };
    int64_t used = -1, width = -1, shared = -1;

    if (!c->family->has_experts)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(used_names) && used < 0; i++)
        if (hf_get_int(c->text, used_names[i], &used, e))
            return -1;
    if (used < 0)
        return err_set(e, ERR_CORRUPT, "config.json: %s is missing", used_names[0]);
    for (size_t i = 0; i < ARRAY_LEN(shared_names); i++)
        if (hf_get_int(c->text, shared_names[i], &shared, e))
            return -1;
    if (hf_get_int(c->text, "moe_intermediate_size", &width, e))
        return -1;
    gguf_keys_u32(k, ".expert_count", (uint32_t)c->n_experts);
    gguf_keys_u32(k, ".expert_used_count", (uint32_t)used);
    if (width >= 0)
        gguf_keys_u32(k, ".expert_feed_forward_length", (uint32_t)width);
    if (shared >= 0)
        gguf_keys_u32(k, ".expert_shared_feed_forward_length", (uint32_t)shared);
    if (!strcmp(c->arch, "mistral4") && json_is_null(json_get(c->text, "norm_topk_prob")))
        return err_set(e, ERR_CORRUPT, "config.json: norm_topk_prob is missing");
    if (json_get(c->text, "norm_topk_prob") || c->family->needs_norm_topk)
        gguf_keys_bool(k, ".expert_weights_norm", hf_is_true(c->text, "norm_topk_prob"));
    return put_router(c, k, e);
}

/* One boolean per layer: whether it has the window. */
static int put_layer_types(
    const struct hf_config *c, const struct json *types, struct gguf_keys *k, struct err *e)
{
    if (types->kind != JSON_ARRAY || (int64_t)types->n != c->n_layers)
        return err_set(e, ERR_CORRUPT, "config.json: layer_types is not an array of %lld strings",
            (long long)c->n_layers);
    gguf_keys_arr(k, ".attention.sliding_window_pattern", GGUF_BOOL, types->n);
    for (const struct json *j = types->child; j; j = j->next) {
        bool has_window = j->kind == JSON_STRING && str_is(j->s, "sliding_attention");
        if (!has_window && !(j->kind == JSON_STRING && str_is(j->s, "full_attention")))
            return err_set(e, ERR_UNSUPPORTED,
                "config.json: layer_types contains " STR_FMT ", which is not supported",
                STR_ARG(shown(j)));
        buf_putc(&k->b, has_window);
    }
    return 0;
}

/* Width of the feed-forward network of LFM2: two thirds, times a factor, rounded up. */
static int put_adjusted_width(const struct hf_config *c, struct gguf_keys *k, struct err *e)
{
    int64_t width = 0, multiple = 256;
    double factor = 1;

    if (hf_get_int(c->text, "intermediate_size", &width, e) ||
        hf_get_int(c->text, "block_ff_dim", &width, e) ||
        hf_get_int(c->text, "block_multiple_of", &multiple, e) ||
        hf_get_number(c->text, "block_ffn_dim_multiplier", &factor, e))
        return -1;
    if (hf_is_true(c->text, "block_auto_adjust_ff_dim")) {
        if (multiple < 1 || !(factor > 0 && factor < 64))
            return hf_reject(json_get(c->text, "block_auto_adjust_ff_dim"), e);
        width = (int64_t)(factor * (double)(2 * width / 3));
        width = (width + multiple - 1) / multiple * multiple;
    }
    if (width < 1 || width > INT32_MAX)
        return err_set(e, ERR_RANGE, "config.json: a feed-forward network of %lld dimensions",
            (long long)width);
    gguf_keys_u32(k, ".feed_forward_length", (uint32_t)width);
    return 0;
}

/* Layers with a short convolution have 0 KV heads. */
static int put_short_conv(const struct hf_config *c, struct gguf_keys *k, struct err *e)
{
    const struct json *types = json_get(c->text, "layer_types");
    double eps = 0;
    int64_t taps = 0;

    if (!types || types->kind != JSON_ARRAY || (int64_t)types->n != c->n_layers)
        return err_set(e, ERR_CORRUPT, "config.json: layer_types is not an array of %lld strings",
            (long long)c->n_layers);
    if (hf_is_true(c->text, "conv_bias"))
        return hf_reject(json_get(c->text, "conv_bias"), e);
    if (hf_require_int(c->text, "conv_L_cache", &taps, e) || put_adjusted_width(c, k, e) ||
        hf_get_number(c->text, "norm_eps", &eps, e))
        return -1;
    if (eps > 0 && json_is_null(json_get(c->text, "rms_norm_eps")))
        gguf_keys_f32(k, ".attention.layer_norm_rms_epsilon", (float)eps);
    gguf_keys_u32(k, ".block_count", (uint32_t)c->n_layers);
    gguf_keys_u32(k, ".shortconv.l_cache", (uint32_t)taps);
    gguf_keys_arr(k, ".attention.head_count_kv", GGUF_I32, types->n);
    for (const struct json *j = types->child; j; j = j->next) {
        bool is_conv = j->kind == JSON_STRING && str_is(j->s, "conv");
        const int32_t n = is_conv ? 0 : (int32_t)c->n_kv_heads;
        if (!is_conv && !(j->kind == JSON_STRING && str_is(j->s, "full_attention")))
            return err_set(e, ERR_UNSUPPORTED,
                "config.json: layer_types contains " STR_FMT ", which is not supported",
                STR_ARG(shown(j)));
        buf_put(&k->b, &n, sizeof(n));
    }
    return 0;
}

/* The attention window: of all layers, of those of layer_types, of those from max_window_layers on
 * (Qwen), or of all but each n-th (sliding_window_pattern). */
static int put_window(const struct hf_config *c, struct gguf_keys *k, struct err *e)
{
    const struct json *types = json_get(c->text, "layer_types");
    const struct json *use = json_get(c->text, "use_sliding_window");
    bool is_off = json_is_null(use) ? c->family->needs_use_window : !use->b;
    int64_t window = 0, first = -1, period = -1;

    if (c->family->has_short_conv)
        return put_short_conv(c, k, e);
    if (c->family->has_delta_net)
        return hf_delta_net_put(c, k, e);
    if (hf_get_int(c->text, "sliding_window", &window, e) ||
        hf_get_int(c->text, "max_window_layers", &first, e) ||
        hf_get_int(c->text, "sliding_window_pattern", &period, e))
        return -1;
    if (json_get(c->text, "sliding_window") || is_off)
        gguf_keys_u32(k, ".attention.sliding_window", is_off ? 0 : (uint32_t)window);
    if (!json_is_null(types))
        return put_layer_types(c, types, k, e);
    if (first >= 0) {
        gguf_keys_arr(k, ".attention.sliding_window_pattern", GGUF_BOOL, (uint64_t)c->n_layers);
        for (int64_t i = 0; i < c->n_layers; i++)
            buf_putc(&k->b, i >= first);
    } else if (period > 0) {
        gguf_keys_u32(k, ".attention.sliding_window_pattern", (uint32_t)period);
    }
    return 0;
}

int hf_config_put(struct hf_config *c, struct gguf_keys *k, struct arena *a, struct err *e)
{
    k->arch = c->arch;
    gguf_keys_str(k, "general.architecture", str_of(c->arch));
    if (check_values(c, e) || put_copies(c, k, e) || read_latent(c, e) || put_heads(c, k, e))
        return -1;
    if (c->family->hybrid ? hf_hybrid_put(c, k, e) : put_experts(c, k, e) || put_window(c, k, e))
        return -1;
    put_soft_caps(c, k);
    return c->family->rope_period == 1 ? 0 : hf_rope_put(c, k, a, e);
}
