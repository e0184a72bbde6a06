/* hf_rope.c: translates rope_theta, rope_scaling and rope_parameters of config.json to GGUF keys
 * and to the divisors of frequencies. Owner: one thread at a time. */
#include "format/hf/hf_config.h"

#include <math.h>

/* The scaling of the layers with full attention; NULL: none. Newer files have rope_parameters, also
 * with one object for each kind of layer, older ones rope_scaling. */
static const struct json *find_scaling(const struct hf_config *c)
{
    const struct json *all = json_get(c->text, "rope_parameters");

    if (json_is_null(all))
        all = json_get(c->text, "rope_scaling");
    const struct json *full = json_get(all, "full_attention");
    return full ? full : all;
}

static int put_bases(
    const struct hf_config *c, const struct json *scaling, struct gguf_keys *k, struct err *e)
{
    const struct json *window = json_get(json_get(c->text, "rope_parameters"), "sliding_attention");
    double base = 0, window_base = 0;

    if (hf_get_number(c->text, "rope_theta", &base, e) ||
        hf_get_number(scaling, "rope_theta", &base, e) ||
        hf_get_number(c->text, "rope_local_base_freq", &window_base, e) ||
        hf_get_number(window, "rope_theta", &window_base, e))
        return -1;
    if (base > 0)
        gguf_keys_f32(k, ".rope.freq_base", (float)base);
    if (window_base > 0)
        gguf_keys_f32(k, ".rope.freq_base_swa", (float)window_base);
    return 0;
}

/* Mistral 4 states the share of the rotated dimensions in all dimensions of a head. */
static int check_latent_share(const struct hf_config *c, const struct json *scaling, struct err *e)
{
    double share = -1, nope = 0;

    if (hf_get_number(scaling, "partial_rotary_factor", &share, e) ||
        hf_get_number(c->text, "qk_nope_head_dim", &nope, e))
        return -1;
    const double dims = share * (nope + (double)c->head_dim);
    return share != -1 && fabs(dims - (double)c->head_dim) > 1e-3
               ? hf_reject(json_get(scaling, "partial_rotary_factor"), e)
               : 0;
}

/* Partial rotation; with halves that are swapped, the order of rows would be another one. */
static int put_rotated(
    struct hf_config *c, const struct json *scaling, struct gguf_keys *k, struct err *e)
{
    double share = c->family->rotated > 0 ? c->family->rotated : 1;
    struct str type = STR("");

    hf_get_str(scaling, "rope_type", &type);
    if (!strcmp(c->arch, "mistral4")) {
        c->n_rope = (size_t)c->head_dim / 2;
        return check_latent_share(c, scaling, e);
    }
    if (str_is(type, "proportional")) { /* see set_proportional */
        c->n_rope = (size_t)c->head_dim / 2;
        return 0;
    }
    if (hf_get_number(c->text, "partial_rotary_factor", &share, e) ||
        hf_get_number(scaling, "partial_rotary_factor", &share, e))
        return -1;
    if (!(share > 0 && share <= 1) ||
        (share < 1 && (c->family->swaps_halves || c->family->has_latent_attn)))
        return err_set(
            e, ERR_UNSUPPORTED, "config.json: partial_rotary_factor = %g is not supported", share);
    int64_t n_rot = (int64_t)((double)c->head_dim * share);
    if (n_rot < 2)
        return err_set(e, ERR_RANGE, "config.json: %lld of %lld dimensions are rotated",
            (long long)n_rot, (long long)c->head_dim);
    c->n_rope = (size_t)n_rot / 2;
    if (share < 1)
        gguf_keys_u32(k, ".rope.dimension_count", (uint32_t)n_rot);
    return 0;
}

/* Gemma 4: the first pairs of a head are rotated, the others have a divisor of almost infinity. */
static int set_proportional(
    struct hf_config *c, const struct json *scaling, struct arena *a, struct err *e)
{
    double share = 1, factor = 1;
    float *to = arena_zalloc(a, MAX(c->n_rope, (size_t)1), sizeof(*to));

    if (!to)
        return err_set(e, ERR_MEMORY, "no memory for the RoPE factors");
    if (hf_get_number(scaling, "partial_rotary_factor", &share, e) ||
        hf_get_number(scaling, "factor", &factor, e))
        return -1;
    if (!c->family->has_window_heads || !(share > 0 && share <= 1) || !(factor > 0 && factor < 1e6))
        return hf_reject(scaling, e);
    const size_t n_rotated = (size_t)(share * (double)c->head_dim / 2);
    for (size_t i = 0; i < c->n_rope; i++)
        to[i] = i < n_rotated ? (float)factor : 1e30f;
    c->rope_freqs = to;
    return 0;
}

/* Llama 3: high frequencies are unchanged, low ones are divided by the factor, and those in between
 * are interpolated. The result is the tensor rope_freqs of GGUF files. */
static int set_llama3(
    struct hf_config *c, const struct json *scaling, struct arena *a, struct err *e)
{
    double base = 10000, factor = 0, low = 1, high = 4, n_ctx = 8192;
    float *to = arena_zalloc(a, MAX(c->n_rope, (size_t)1), sizeof(*to));

    if (!to)
        return err_set(e, ERR_MEMORY, "no memory for the RoPE factors");
    if (hf_get_number(c->text, "rope_theta", &base, e) ||
        hf_get_number(scaling, "rope_theta", &base, e) ||
        hf_get_number(scaling, "factor", &factor, e) ||
        hf_get_number(scaling, "low_freq_factor", &low, e) ||
        hf_get_number(scaling, "high_freq_factor", &high, e) ||
        hf_get_number(scaling, "original_max_position_embeddings", &n_ctx, e))
        return -1;
    if (!(base > 1 && factor >= 1 && low > 0 && high > low && n_ctx > 0))
        return hf_reject(scaling, e);
    for (size_t i = 0; i < c->n_rope; i++) {
        double wave = 2 * M_PI * pow(base, (double)i / (double)c->n_rope);
        double smooth = fmin(1, fmax(0, (n_ctx / wave - low) / (high - low)));
        to[i] = (float)(1 / ((1 - smooth) / factor + smooth));
    }
    c->rope_freqs = to;
    return 0;
}

static int read_divisors(const struct hf_config *c, const struct json *scaling, const char *key,
    struct arena *a, const float **out, struct err *e)
{
    const struct json *all = json_get(scaling, key);
    float *to = arena_zalloc(a, MAX(c->n_rope, (size_t)1), sizeof(*to));
    size_t n = 0;

    if (!to)
        return err_set(e, ERR_MEMORY, "no memory for the RoPE factors");
    if (!all || all->kind != JSON_ARRAY || all->n != c->n_rope)
        return err_set(
            e, ERR_CORRUPT, "config.json: %s is not an array of %zu numbers", key, c->n_rope);
    for (const struct json *j = all->child; j; j = j->next) {
        double v;
        if (!json_f64(j, &v) || !(v > 0 && v < 1e30))
            return err_set(e, ERR_CORRUPT, "config.json: %s[%zu] is not a positive number", key, n);
        to[n++] = (float)v;
    }
    *out = to;
    return 0;
}

/* Phi 3: divisors for short and for long contexts; the queries and keys grow with the context. */
static int put_longrope(struct hf_config *c, const struct json *scaling, struct gguf_keys *k,
    struct arena *a, struct err *e)
{
    double n_ctx = 0, original = 0, factor = 0;

    if (hf_get_number(c->text, "max_position_embeddings", &n_ctx, e) ||
        hf_get_number(c->text, "original_max_position_embeddings", &original, e) ||
        hf_get_number(scaling, "original_max_position_embeddings", &original, e) ||
        hf_get_number(scaling, "attention_factor", &factor, e))
        return -1;
    if (!(original > 1 && original < 1 << 30 && n_ctx > 0))
        return err_set(
            e, ERR_CORRUPT, "config.json: original_max_position_embeddings = %g", original);
    if (!(factor > 0))
        factor = n_ctx > original ? sqrt(1 + log(n_ctx / original) / log(original)) : 1;
    gguf_keys_str(k, ".rope.scaling.type", STR("longrope"));
    gguf_keys_u32(k, ".rope.scaling.original_context_length", (uint32_t)original);
    gguf_keys_f32(k, ".rope.scaling.attn_factor", (float)factor);
    return read_divisors(c, scaling, "long_factor", a, &c->rope_long, e) ||
                   read_divisors(c, scaling, "short_factor", a, &c->rope_short, e)
               ? -1
               : 0;
}

/* The factor of queries and keys, or of the scores in latent attention. */
static int put_yarn_magnitude(const struct hf_config *c, const struct json *scaling, double factor,
    struct gguf_keys *k, struct err *e)
{
    double magnitude = 0, scale = 0, scale_all = 0;

    if (hf_get_number(scaling, "attention_factor", &magnitude, e) ||
        hf_get_number(scaling, "mscale", &scale, e) ||
        hf_get_number(scaling, "mscale_all_dim", &scale_all, e))
        return -1;
    if (c->family->has_latent_attn) { /* GGUF files have a tenth of mscale */
        const bool is_one = scale == 1 || strcmp(c->arch, "mistral4") != 0;
        if (magnitude > 0 || !(scale > 0) || scale != scale_all || !is_one)
            return hf_reject(scaling, e);
        gguf_keys_f32(k, ".rope.scaling.yarn_log_multiplier", (float)(0.1 * scale));
        return 0;
    }
    if (scale > 0 && scale != 1 && scale != scale_all)
        return hf_reject(json_get(scaling, "mscale"), e);
    /* The forward pass multiplies by (1 + 0.1 ln factor) / (1 + 0.1 multiplier ln factor). */
    if (magnitude > 0)
        gguf_keys_f32(k, ".rope.scaling.attn_factor", (float)(magnitude / (1 + 0.1 * log(factor))));
    else if (scale > 0 && scale == scale_all)
        gguf_keys_f32(k, ".rope.scaling.yarn_log_multiplier", 1);
    else if (scale > 0 && scale_all > 0)
        gguf_keys_f32(k, ".rope.scaling.yarn_log_multiplier", (float)scale_all);
    return 0;
}

static int put_yarn(
    const struct hf_config *c, const struct json *scaling, struct gguf_keys *k, struct err *e)
{
    const struct json *truncate = json_get(scaling, "truncate");
    double factor = 0, n_ctx = 0, fast = 32, slow = 1;

    if (hf_get_number(c->text, "max_position_embeddings", &n_ctx, e) ||
        hf_get_number(scaling, "original_max_position_embeddings", &n_ctx, e) ||
        hf_get_number(scaling, "factor", &factor, e) ||
        hf_get_number(scaling, "beta_fast", &fast, e) ||
        hf_get_number(scaling, "beta_slow", &slow, e))
        return -1;
    if (!(factor >= 1 && n_ctx >= 1 && n_ctx < 1 << 30 && fast > 0 && slow > 0))
        return hf_reject(scaling, e);
    gguf_keys_str(k, ".rope.scaling.type", STR("yarn"));
    gguf_keys_f32(k, ".rope.scaling.factor", (float)factor);
    gguf_keys_u32(k, ".rope.scaling.original_context_length", (uint32_t)n_ctx);
    gguf_keys_f32(k, ".rope.scaling.yarn_beta_fast", (float)fast);
    gguf_keys_f32(k, ".rope.scaling.yarn_beta_slow", (float)slow);
    if (truncate && truncate->kind == JSON_BOOL && !truncate->b)
        gguf_keys_bool(k, ".rope.scaling.yarn_truncate", false);
    return put_yarn_magnitude(c, scaling, factor, k, e);
}

/* Queries multiplied by 1 + slope ln(1 + floor(position / original_max_position_embeddings)). */
static int put_query_scale(const struct json *scaling, struct gguf_keys *k, struct err *e)
{
    double slope = 0;

    if (hf_get_number(scaling, "llama_4_scaling_beta", &slope, e))
        return -1;
    if (slope > 0)
        gguf_keys_f32(k, ".attention.temperature_scale", (float)slope);
    return slope < 0 ? hf_reject(json_get(scaling, "llama_4_scaling_beta"), e) : 0;
}

int hf_rope_put(struct hf_config *c, struct gguf_keys *k, struct arena *a, struct err *e)
{
    const struct json *scaling = find_scaling(c);
    struct str type = STR("default");
    double factor = 0;

    if (put_bases(c, scaling, k, e) || put_rotated(c, scaling, k, e) ||
        put_query_scale(scaling, k, e))
        return -1;
    if (json_is_null(scaling))
        return 0;
    if (!hf_get_str(scaling, "rope_type", &type))
        hf_get_str(scaling, "type", &type);
    if (str_is(type, "default"))
        return 0;
    if (str_is(type, "llama3"))
        return set_llama3(c, scaling, a, e);
    if (str_is(type, "proportional"))
        return set_proportional(c, scaling, a, e);
    if (str_is(type, "yarn"))
        return put_yarn(c, scaling, k, e);
    if (str_is(type, "longrope") || str_is(type, "su"))
        return put_longrope(c, scaling, k, a, e);
    if (!str_is(type, "linear"))
        return hf_reject(scaling, e);
    if (hf_get_number(scaling, "factor", &factor, e))
        return -1;
    if (!(factor > 0))
        return hf_reject(scaling, e);
    gguf_keys_str(k, ".rope.scaling.type", STR("linear"));
    gguf_keys_f32(k, ".rope.scaling.factor", (float)factor);
    return 0;
}
