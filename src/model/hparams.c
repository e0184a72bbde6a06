#include "model/hparams.h"
#include "kernel/recurrent.h"

#include <math.h>
#include <stdio.h>

struct hparams_reader {
    const struct gguf *g;
    const struct family *family;
    int n_layers; /* layers of the file: the length of an array with a value for each layer */
    char key[96]; /* key of the last lookup, for error messages */
};

static const char *key_of(struct hparams_reader *r, const char *tail)
{
    snprintf(r->key, sizeof(r->key), "%s.%s", r->family->arch, tail);
    return r->key;
}

struct int_range {
    int lo, hi;
};

/* On entry *out is the default, or -1 if the key is required. */
static int get_int(
    struct hparams_reader *r, const char *tail, struct int_range ok, int *out, struct err *e)
{
    const char *key = key_of(r, tail);
    uint64_t v;

    if (!gguf_find(r->g, key)) {
        if (*out < 0)
            return err_set(e, ERR_CORRUPT, "%s is missing", key);
        v = (uint64_t)*out;
    } else if (!gguf_get_u64(r->g, key, &v)) {
        return err_set(e, ERR_UNSUPPORTED, "%s is not a whole number", key);
    }
    if (v < (uint64_t)ok.lo || v > (uint64_t)ok.hi)
        return err_set(e, ERR_RANGE, "%s = %llu, supported are %d to %d", key,
            (unsigned long long)v, ok.lo, ok.hi);
    *out = (int)v;
    return 0;
}

/* The value of one layer: the key has one number for all layers, or an array with one for each. On
 * entry *out is the default, or -1 if the key is required. */
static int get_layer_int(struct hparams_reader *r, const char *tail, struct int_range ok, int layer,
    int *out, struct err *e)
{
    const struct gguf_value *v = gguf_find(r->g, key_of(r, tail));
    int64_t x;

    if (!v || v->kind != GGUF_ARR)
        return get_int(r, tail, ok, out, e);
    if (v->arr.n != (uint64_t)r->n_layers)
        return err_set(e, ERR_CORRUPT, "%s has %llu values, expected one for each of %d layers",
            r->key, (unsigned long long)v->arr.n, r->n_layers);
    if (!gguf_arr_i64(v, (uint64_t)layer, &x))
        return err_set(e, ERR_UNSUPPORTED, "%s is not an array of whole numbers", r->key);
    if (x < ok.lo || x > ok.hi)
        return err_set(e, ERR_RANGE, "%s = %lld in layer %d, supported are %d to %d", r->key,
            (long long)x, layer, ok.lo, ok.hi);
    *out = (int)x;
    return 0;
}

/* Reads a positive finite number; on entry *out is the default. */
static int get_positive(struct hparams_reader *r, const char *tail, double *out, struct err *e)
{
    const char *key = key_of(r, tail);

    if (!gguf_find(r->g, key))
        return 0;
    if (!gguf_get_f64(r->g, key, out))
        return err_set(e, ERR_UNSUPPORTED, "%s is not a number", key);
    if (!(*out > 0 && *out < 1e30))
        return err_set(e, ERR_RANGE, "%s = %g is not a positive number", key, *out);
    return 0;
}

/* Keys of features that change the result, each with the only value that is supported. */
static int reject_unsupported_keys(struct hparams_reader *r, struct err *e)
{
    static const struct {
        const char *tail;
        double neutral;
    } rows[] = {
        { "attention.causal", 1 },
        { "attention.clamp_kqv", 0 },
        { "attention.max_alibi_bias", 0 },
        { "use_parallel_residual", 0 },
        { "rope.scaling.yarn_ext_factor", 1 },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *key = key_of(r, rows[i].tail);
        double v = rows[i].neutral;
        bool b;
        if (gguf_get_bool(r->g, key, &b))
            v = b;
        else
            gguf_get_f64(r->g, key, &v);
        if (v != rows[i].neutral)
            return err_set(e, ERR_UNSUPPORTED, "%s = %g is not supported", key, v);
    }
    return 0;
}

static int read_scaling_type(struct hparams *h, struct hparams_reader *r, struct err *e)
{
    const char *key = key_of(r, "rope.scaling.type");
    struct str type = STR("none");

    if (gguf_find(r->g, key) && !gguf_get_str(r->g, key, &type))
        return err_set(e, ERR_UNSUPPORTED, "%s is not a string", key);
    /* llama3: scaling by the tensor rope_freqs */
    if (str_is(type, "none") || str_is(type, "llama3"))
        h->rope.scaling = ROPE_PLAIN;
    else if (str_is(type, "linear"))
        h->rope.scaling = ROPE_LINEAR;
    else if (str_is(type, "yarn"))
        h->rope.scaling = ROPE_YARN;
    else if (str_is(type, "longrope") && h->family->needs[TENSOR_ROPE_LONG] == NEED_MAYBE)
        h->rope.scaling = ROPE_LONG;
    else
        return err_set(
            e, ERR_UNSUPPORTED, "%s = '" STR_FMT "' is not supported", key, STR_ARG(type));
    return 0;
}

static int read_rope(struct hparams *h, struct hparams_reader *r, struct err *e)
{
    struct rope_params *p = &h->rope;
    *p = (struct rope_params){ .base = 10000,
        .factor = 1,
        .beta_fast = 32,
        .beta_slow = 1,
        .attn_factor = 1,
        .log_share = 1,
        .n_ctx_orig = h->n_ctx,
        .n_rot = p->n_rot };

    if (read_scaling_type(h, r, e) || get_positive(r, "rope.freq_base", &p->base, e))
        return -1;
    if (gguf_find(r->g, key_of(r, "rope.scale_linear"))) { /* an older name than rope.scaling.* */
        p->scaling = ROPE_LINEAR;
        if (get_positive(r, "rope.scale_linear", &p->factor, e))
            return -1;
    }
    if (get_positive(r, "rope.scaling.factor", &p->factor, e) ||
        get_positive(r, "rope.scaling.original_context_length", &p->n_ctx_orig, e) ||
        get_positive(r, "rope.scaling.attn_factor", &p->attn_factor, e) ||
        get_positive(r, "rope.scaling.yarn_attn_factor", &p->attn_factor, e) ||
        get_positive(r, "rope.scaling.yarn_log_multiplier", &p->log_multiplier, e) ||
        get_positive(r, "rope.scaling.yarn_beta_fast", &p->beta_fast, e) ||
        get_positive(r, "rope.scaling.yarn_beta_slow", &p->beta_slow, e))
        return -1;
    bool truncates = true; /* a key of translated models only */
    gguf_get_bool(r->g, key_of(r, "rope.scaling.yarn_truncate"), &truncates);
    p->is_continuous = !truncates;
    if (p->scaling == ROPE_PLAIN || p->scaling == ROPE_LONG)
        p->factor = 1;
    if (h->family->has_latent_attn)
        p->log_multiplier *= 10; /* the files contain a tenth of it */
    if (h->family->has_plain_yarn_rotation && p->log_multiplier > 0)
        p->log_share = p->log_multiplier;
    int window_n_rot = h->window_rope.n_rot;
    h->window_rope = *p;
    h->window_rope.n_rot = window_n_rot;
    if (h->family->has_plain_window_rope) {
        h->window_rope.scaling = ROPE_PLAIN;
        h->window_rope.factor = 1;
    }
    if (h->family->window_rope_base > 0)
        h->window_rope.base = (double)h->family->window_rope_base;
    if (get_positive(r, "rope.freq_base_swa", &h->window_rope.base, e))
        return -1;
    if (p->scaling == ROPE_YARN && !(p->base > 1))
        return err_set(e, ERR_RANGE, "%s = %g, YaRN requires more than 1",
            key_of(r, "rope.freq_base"), p->base);
    return 0;
}

/* The keys of layers without and with a window. */
static const struct head_keys {
    const char *key_length, *value_length, *n_rot;
} head_keys[2] = {
    { "attention.key_length", "attention.value_length", "rope.dimension_count" },
    { "attention.key_length_swa", "attention.value_length_swa", "rope.dimension_count_swa" },
};

/* On entry *head_dim and *n_rot are the defaults. */
static int read_head_dim(struct hparams_reader *r, const struct head_keys *keys, int *head_dim,
    int *n_rot, struct err *e)
{
    if (get_int(r, keys->key_length, (struct int_range){ 2, MAX_HEAD_DIM }, head_dim, e))
        return -1;
    int v_dim = *head_dim;
    if (get_int(r, keys->value_length, (struct int_range){ v_dim, v_dim }, &v_dim, e))
        return -1;
    if (*n_rot < 0)
        *n_rot = *head_dim;
    if (get_int(r, keys->n_rot, (struct int_range){ 2, *head_dim }, n_rot, e))
        return -1;
    if (*head_dim % 2 || *n_rot % 2)
        return err_set(e, ERR_UNSUPPORTED,
            "the head dimension %d and the RoPE dimension %d must be even", *head_dim, *n_rot);
    return 0;
}

/* Number of groups of query heads in latent attention: at most 8 heads share the keys that a thread
 * reads. */
static int n_latent_groups(int n_heads)
{
    int size = 8;

    while (n_heads % size)
        size--;
    return n_heads / size;
}

/* Keys of newer files: key_length and value_length are those of the KV cache, key_length_mla and
 * value_length_mla those of a head. Older files have the lengths of a head only. */
static int read_latent_dims(struct hparams *h, struct hparams_reader *r, struct err *e)
{
    struct latent_params *p = &h->latent;
    int key_dim, head_dim = -1;

    p->has_kv_b = !gguf_find(r->g, key_of(r, "attention.key_length_mla"));
    p->kv_rank = h->rope.n_rot = p->value_dim = -1;
    if (get_int(
            r, "attention.kv_lora_rank", (struct int_range){ 16, KV_MAX_DIM }, &p->kv_rank, e) ||
        get_int(r, "attention.q_lora_rank", (struct int_range){ 0, 1 << 16 }, &p->q_rank, e) ||
        get_int(r, "rope.dimension_count",
            (struct int_range){ 2, MIN(KV_MAX_DIM - p->kv_rank, MAX_HEAD_DIM) }, &h->rope.n_rot,
            e) ||
        get_int(r, p->has_kv_b ? "attention.key_length" : "attention.key_length_mla",
            (struct int_range){ h->rope.n_rot + 1, 1 << 12 }, &head_dim, e) ||
        get_int(r, p->has_kv_b ? "attention.value_length" : "attention.value_length_mla",
            (struct int_range){ 1, 1 << 12 }, &p->value_dim, e))
        return -1;
    key_dim = p->kv_rank + h->rope.n_rot;
    if (p->kv_rank % 16 || h->rope.n_rot % 16 || p->value_dim % 16)
        return err_set(e, ERR_UNSUPPORTED,
            "latent attention with %d + %d dimensions of keys and %d of values: the dimensions "
            "must "
            "be multiples of 16",
            p->kv_rank, h->rope.n_rot, p->value_dim);
    if (!p->has_kv_b) {
        int key = key_dim, value = p->kv_rank;
        if (get_int(r, "attention.key_length", (struct int_range){ key, key }, &key, e) ||
            get_int(r, "attention.value_length", (struct int_range){ value, value }, &value, e))
            return -1;
    }
    p->nope_dim = head_dim - h->rope.n_rot;
    h->window_rope.n_rot = h->rope.n_rot;
    for (int i = 0; i < h->n_layers; i++) {
        struct layer_params *layer = &h->layers[i];
        layer->mixer = MIXER_LATENT;
        layer->head_dim = key_dim;
        layer->value_dim = p->kv_rank;
        layer->n_kv_heads = n_latent_groups(layer->n_heads);
    }
    return 0;
}

/* Layers with a window have the dimensions of the others, unless the file has keys for them. */
static int read_head_dims(struct hparams *h, struct hparams_reader *r, struct err *e)
{
    int first = 0, dims[2], n_rot = -1;

    if (h->family->has_latent_attn)
        return read_latent_dims(h, r, e);
    while (first < h->n_layers - 1 && h->layers[first].mixer != MIXER_ATTENTION)
        first++;
    const int n_heads = h->layers[first].n_heads;
    if (!n_heads)
        return err_set(e, ERR_UNSUPPORTED, "a model without attention layers is not supported");

    if (!gguf_find(r->g, key_of(r, head_keys[0].key_length)) && h->d_model % n_heads)
        return err_set(e, ERR_CORRUPT, "the embedding size %d is not divisible by %d heads",
            h->d_model, n_heads);
    dims[0] = h->d_model / n_heads;
    if (read_head_dim(r, &head_keys[0], &dims[0], &n_rot, e))
        return -1;
    h->rope.n_rot = n_rot;
    dims[1] = dims[0];
    if (read_head_dim(r, &head_keys[1], &dims[1], &n_rot, e))
        return -1;
    h->window_rope.n_rot = n_rot;
    for (int i = 0; i < h->n_layers; i++)
        if (h->layers[i].mixer == MIXER_ATTENTION)
            h->layers[i].head_dim = h->layers[i].value_dim = dims[h->layers[i].has_window];
    return 0;
}

static void set_recurrent(struct hparams *h, int layer)
{
    h->layers[layer].mixer = h->family->recurrent;
    h->layers[layer].recurrent_index = h->recurrent.n_layers++;
}

/* A layer without KV heads is recurrent. */
static int read_layer_without_kv(
    struct hparams *h, struct hparams_reader *r, int layer, struct err *e)
{
    int n_kv_heads = 1;

    if (get_layer_int(
            r, "attention.head_count_kv", (struct int_range){ 0, 1024 }, layer, &n_kv_heads, e))
        return -1;
    if (!n_kv_heads)
        set_recurrent(h, layer);
    return 0;
}

/* A recurrent layer is marked in a list, or is not each `interval`-th layer. */
static int read_mixer(struct hparams *h, struct hparams_reader *r, int layer, struct err *e)
{
    int interval = 4, is_recurrent;

    if (h->family->recurrent == MIXER_ATTENTION)
        return 0;
    if (h->family->splits_layers && h->layers[layer].has_ffn) {
        h->layers[layer].mixer = MIXER_NONE;
        return 0;
    }
    if (h->family->recurrent != MIXER_DELTA_NET)
        return read_layer_without_kv(h, r, layer, e);
    if (get_int(r, "full_attention_interval", (struct int_range){ 1, MAX_LAYERS }, &interval, e))
        return -1;
    is_recurrent = (layer + 1) % interval != 0;
    if (get_layer_int(
            r, "attention.recurrent_layers", (struct int_range){ 0, 1 }, layer, &is_recurrent, e))
        return -1;
    if (!is_recurrent)
        return 0;
    set_recurrent(h, layer);
    return 0;
}

/* Experts have a width of their own. */
static int read_ff_width(struct hparams *h, struct hparams_reader *r, int layer, struct err *e)
{
    const bool has_experts = h->family->experts == NEED_YES, splits = h->family->splits_layers;
    struct layer_params *p = &h->layers[layer];

    p->d_ff = has_experts && !splits ? 0 : -1;
    if (get_layer_int(r, "feed_forward_length",
            (struct int_range){ !has_experts && !splits, 1 << 20 }, layer, &p->d_ff, e))
        return -1;
    p->has_ffn = !splits || p->d_ff > 0;
    return 0;
}

static int read_layer(struct hparams *h, struct hparams_reader *r, int layer, struct err *e)
{
    struct layer_params *p = &h->layers[layer];

    if (read_ff_width(h, r, layer, e) || read_mixer(h, r, layer, e))
        return -1;
    if (p->mixer != MIXER_ATTENTION)
        return 0;
    p->n_heads = -1;
    if (get_layer_int(
            r, "attention.head_count", (struct int_range){ 1, 1024 }, layer, &p->n_heads, e))
        return -1;
    p->n_kv_heads = p->n_heads;
    if (get_layer_int(r, "attention.head_count_kv", (struct int_range){ 1, p->n_heads }, layer,
            &p->n_kv_heads, e))
        return -1;
    if (p->n_heads % p->n_kv_heads)
        return err_set(e, ERR_CORRUPT, "%d attention heads are not divisible by %d KV heads",
            p->n_heads, p->n_kv_heads);
    return 0;
}

static int read_layers(struct hparams *h, struct hparams_reader *r, struct err *e)
{
    bool has_rope = true;

    if (h->family->may_lack_rope)
        gguf_get_bool(r->g, key_of(r, "rope.scaling.finetuned"), &has_rope);
    for (int i = 0; i < h->n_layers; i++) {
        const int period = h->family->rope_period;
        if (read_layer(h, r, i, e))
            return -1;
        h->layers[i].has_rope = has_rope && (!period || (i + 1) % period != 0);
    }
    return 0;
}

/* The order of the channels of the convolution is q, k, v; of Mamba2 x, B, C. */
static void place_channels(struct recurrent_params *p, bool is_mamba2)
{
    const int keys = p->n_key_heads * p->key_dim, values = p->n_value_heads * p->value_dim;

    p->n_channels = 2 * keys + values;
    p->query_channel = is_mamba2 ? values + keys : 0;
    p->key_channel = is_mamba2 ? values : keys;
    p->value_channel = is_mamba2 ? 0 : 2 * keys;
}

static int read_recurrent(struct hparams *h, struct hparams_reader *r, struct err *e)
{
    const bool is_mamba2 = h->family->recurrent == MIXER_MAMBA2;
    const struct int_range heads = { 1, 1024 }, dim = { 1, MAX_STATE_DIM };
    struct recurrent_params *p = &h->recurrent;
    int inner = -1;

    if (!p->n_layers)
        return 0;
    if (h->family->recurrent == MIXER_SHORT_CONV) {
        p->n_taps = -1;
        p->n_channels = h->d_model;
        return get_int(
            r, "shortconv.l_cache", (struct int_range){ 2, CONV_MAX_TAPS }, &p->n_taps, e);
    }
    p->n_taps = p->n_key_heads = p->n_value_heads = p->key_dim = -1;
    if (get_int(r, "ssm.conv_kernel", (struct int_range){ 2, CONV_MAX_TAPS }, &p->n_taps, e) ||
        get_int(r, "ssm.state_size", dim, &p->key_dim, e) ||
        get_int(r, "ssm.group_count", heads, &p->n_key_heads, e) ||
        get_int(r, "ssm.time_step_rank", heads, &p->n_value_heads, e) ||
        get_int(r, "ssm.inner_size", (struct int_range){ 1, 1 << 20 }, &inner, e))
        return -1;
    if (p->n_value_heads % p->n_key_heads)
        return err_set(e, ERR_CORRUPT, "%s = %d is not divisible by ssm.group_count = %d",
            key_of(r, "ssm.time_step_rank"), p->n_value_heads, p->n_key_heads);
    p->value_dim = is_mamba2 ? inner / p->n_value_heads : p->key_dim;
    if (inner != p->n_value_heads * p->value_dim)
        return err_set(e, ERR_CORRUPT, "%s = %d, expected %d heads of %d dimensions",
            key_of(r, "ssm.inner_size"), inner, p->n_value_heads, p->value_dim);
    if (p->value_dim > MAX_STATE_DIM)
        return err_set(e, ERR_RANGE, "%s = %d: heads of %d dimensions, supported are up to %d",
            key_of(r, "ssm.inner_size"), inner, p->value_dim, MAX_STATE_DIM);
    place_channels(p, is_mamba2);
    return 0;
}

/* Reads a pattern of layers with a window: a period, or a boolean for each layer. */
static int read_window_pattern(struct hparams *h, struct hparams_reader *r, struct err *e)
{
    const char *tail = "attention.sliding_window_pattern";
    const struct gguf_value *v = gguf_find(r->g, key_of(r, tail));
    int period = h->family->window_period;

    if (v && v->kind == GGUF_ARR) {
        for (int i = 0; i < h->n_layers; i++) {
            int is_set;
            if (get_layer_int(r, tail, (struct int_range){ 0, 1 }, i, &is_set, e))
                return -1;
            h->layers[i].has_window = is_set;
        }
        return 0;
    }
    if (get_int(r, tail, (struct int_range){ 0, MAX_LAYERS }, &period, e))
        return -1;
    for (int i = 0; i < h->n_layers; i++)
        h->layers[i].has_window = !period || (i + 1) % period != 0;
    return 0;
}

static int read_context(struct hparams *h, struct hparams_reader *r, struct err *e)
{
    const struct int_range any = { 1, 1 << 30 };
    h->n_ctx = -1;
    h->window = h->family->window;
    if (get_int(r, "context_length", any, &h->n_ctx, e) ||
        get_int(r, "attention.sliding_window", (struct int_range){ 0, INT32_MAX }, &h->window, e))
        return -1;
    return h->window ? read_window_pattern(h, r, e) : 0;
}

/* The last layers may read the keys and values of the last layer before them of the same kind, with
 * or without a window. */
static int read_shared_kv(struct hparams *h, struct hparams_reader *r, struct err *e)
{
    const char *tail = "attention.shared_kv_layers";
    int last[2] = { -1, -1 }, n_shared = 0;
    const int most = h->family->may_share_kv ? h->n_layers - 1 : 0;

    if (get_int(r, tail, (struct int_range){ 0, most }, &n_shared, e))
        return -1;
    for (int i = 0; i < h->n_layers; i++) {
        struct layer_params *p = &h->layers[i];
        if (i < h->n_layers - n_shared)
            last[p->has_window] = i;
        p->kv_layer = i < h->n_layers - n_shared ? i : last[p->has_window];
        if (p->kv_layer < 0)
            return err_set(e, ERR_CORRUPT, "%s = %d: layer %d has no layer of its kind before it",
                key_of(r, tail), n_shared, i);
        if (h->layers[p->kv_layer].n_kv_heads != p->n_kv_heads)
            return err_set(e, ERR_CORRUPT,
                "%s = %d: layers %d and %d differ in the number of KV heads", key_of(r, tail),
                n_shared, p->kv_layer, i);
    }
    return 0;
}

static int read_layer_inputs(struct hparams *h, struct hparams_reader *r, struct err *e)
{
    const int most = h->family->needs[TENSOR_INPUT_TABLE] == NEED_YES ? 1 << 13 : 0;

    return get_int(
        r, "embedding_length_per_layer_input", (struct int_range){ 0, most }, &h->d_input, e);
}

/* Positive factor, 1 if the key is missing. */
static int get_factor(struct hparams_reader *r, const char *tail, float *out, struct err *e)
{
    double v = 1;

    if (get_positive(r, tail, &v, e))
        return -1;
    *out = (float)v;
    return 0;
}

/* 0 and 1 groups: no groups. */
static int read_expert_groups(struct hparams *h, struct hparams_reader *r, struct err *e)
{
    const struct int_range most = { 0, MAX(h->n_experts / 2, 1) };

    h->n_expert_groups = h->n_groups_used = 1;
    if (get_int(r, "expert_group_count", most, &h->n_expert_groups, e))
        return -1;
    if (h->n_expert_groups <= 1) {
        h->n_expert_groups = 1;
        return 0;
    }
    h->n_groups_used = -1;
    if (get_int(r, "expert_group_used_count", (struct int_range){ 1, h->n_expert_groups },
            &h->n_groups_used, e))
        return -1;
    const int per_group = h->n_experts / h->n_expert_groups;
    if (h->n_experts % h->n_expert_groups || h->n_experts_used > h->n_groups_used * per_group)
        return err_set(e, ERR_CORRUPT, "%d of %d experts, of %d of %d groups, are not possible",
            h->n_experts_used, h->n_experts, h->n_groups_used, h->n_expert_groups);
    return 0;
}

/* Older files of models with latent attention lack the key; those with a bias use the sigmoid. */
static enum router_fn default_router(const struct hparams *h, const struct gguf *g)
{
    char name[64];

    snprintf(name, sizeof(name), tensor_rows[TENSOR_ROUTER_BIAS].name, h->n_dense_layers);
    return h->family->has_latent_attn && gguf_tensor(g, name) ? ROUTER_SIGMOID : h->family->router;
}

static int read_router(struct hparams *h, struct hparams_reader *r, struct err *e)
{
    double scale = 0;
    int function = 0;

    if (get_int(r, "expert_gating_func", (struct int_range){ 0, 3 }, &function, e) ||
        read_expert_groups(h, r, e))
        return -1;
    h->router = function ? (enum router_fn)(function - 1) : default_router(h, r->g);
    h->norms_expert_weights = !h->family->keeps_expert_weights;
    gguf_get_bool(r->g, key_of(r, "expert_weights_norm"), &h->norms_expert_weights);
    h->n_group_best = h->router == ROUTER_SOFTMAX && h->family->ranks_groups_by_best ? 1 : 2;
    /* The softmax of the chosen scores is the normalised softmax of all of them. Scores of groups
     * are sums of the latter. */
    if (h->router == ROUTER_SOFTMAX && h->norms_expert_weights && h->n_expert_groups == 1)
        h->router = ROUTER_SOFTMAX_CHOSEN;
    gguf_get_f64(r->g, key_of(r, "expert_weights_scale"), &scale);
    if (!(scale >= 0 && scale < 1e6))
        return err_set(e, ERR_RANGE, "%s = %g is not a positive number", r->key, scale);
    h->expert_weight_scale = scale > 0 ? (float)scale : 1; /* 0: the file has no scale */
    return 0;
}

/* The shared expert has the width that the file states, or that of expert_shared_count experts. */
static int read_shared_expert(struct hparams *h, struct hparams_reader *r, struct err *e)
{
    const struct int_range width = { 0, 1 << 20 };
    int count = 0;

    if (get_int(r, "expert_shared_count", (struct int_range){ 0, 64 }, &count, e))
        return -1;
    h->d_ff_shared = count * h->d_ff_expert;
    return get_int(r, "expert_shared_feed_forward_length", width, &h->d_ff_shared, e);
}

/* The dense network next to the experts is computed like a shared expert. */
static int check_dense_with_experts(struct hparams *h, struct err *e)
{
    if (h->d_ff_shared || h->n_dense_layers)
        return err_set(e, ERR_UNSUPPORTED,
            "a shared expert or leading dense layers are not supported in family %s",
            h->family->arch);
    for (int i = 0; i < h->n_layers; i++)
        h->d_ff_shared = MAX(h->d_ff_shared, h->layers[i].d_ff);
    return 0;
}

/* Experts whose input is a projection of the row, and whose output is projected back. */
static int read_latent_experts(struct hparams *h, struct hparams_reader *r, struct err *e)
{
    const int most = h->family->needs[TENSOR_LATENT_DOWN] == NEED_YES ? 1 << 17 : 0;

    return get_int(r, "moe_latent_size", (struct int_range){ 0, most }, &h->d_latent, e);
}

static int read_experts(struct hparams *h, struct hparams_reader *r, struct err *e)
{
    /* the rows of gate and up of all experts are counted in an int */
    const struct int_range width = { 1, 1 << 19 };

    if (get_int(r, "expert_count", (struct int_range){ 0, MAX_EXPERTS }, &h->n_experts, e))
        return -1;
    if (h->family->experts == NEED_YES && !h->n_experts)
        return err_set(e, ERR_CORRUPT, "%s is missing", key_of(r, "expert_count"));
    if (h->family->experts == NEED_NO && h->n_experts)
        return err_set(e, ERR_UNSUPPORTED, "%s = %d is not supported", key_of(r, "expert_count"),
            h->n_experts);
    h->n_experts_used = h->n_experts ? -1 : 0;
    if (get_int(r, "expert_used_count",
            (struct int_range){ MIN(h->n_experts, 1), MIN(h->n_experts, MAX_EXPERTS_USED) },
            &h->n_experts_used, e))
        return -1;
    if (!h->n_experts)
        return 0;
    h->d_ff_expert = h->layers[0].d_ff ? h->layers[0].d_ff : -1;
    if (get_int(r, "expert_feed_forward_length", width, &h->d_ff_expert, e) ||
        get_int(r, "leading_dense_block_count", (struct int_range){ 0, h->n_layers },
            &h->n_dense_layers, e) ||
        read_shared_expert(h, r, e) || read_latent_experts(h, r, e) ||
        (h->family->has_dense_with_experts && check_dense_with_experts(h, e)))
        return -1;
    const int d_expert = hparams_dim(h, DIM_EXPERT, 0);
    if (h->d_ff_expert % 16 || d_expert % 16)
        return err_set(e, ERR_UNSUPPORTED,
            "experts of %d x %d: the dimensions must be multiples of 16", d_expert, h->d_ff_expert);
    return read_router(h, r, e);
}

/* The file counts the layers for drafts, which are the last ones. */
static int read_mtp_layers(struct hparams *h, struct hparams_reader *r, struct err *e)
{
    const int most = h->family->has_mtp_layers ? h->n_layers - 1 : 0;

    r->n_layers = h->n_layers;
    if (get_int(r, "nextn_predict_layers", (struct int_range){ 0, most }, &h->n_mtp_layers, e))
        return -1;
    h->n_layers -= h->n_mtp_layers;
    return 0;
}

/* 0 in the file: no soft cap. */
static int read_soft_caps(struct hparams *h, struct hparams_reader *r, struct err *e)
{
    static const char *const tails[] = { "attn_logit_softcapping", "final_logit_softcapping" };
    float *const caps[] = { &h->attn_soft_cap, &h->logit_soft_cap };

    h->attn_soft_cap = h->family->attn_soft_cap;
    h->logit_soft_cap = h->family->logit_soft_cap;
    for (size_t i = 0; i < ARRAY_LEN(caps); i++) {
        double cap;
        if (!gguf_get_f64(r->g, key_of(r, tails[i]), &cap))
            continue;
        if (!(cap >= 0 && cap < 1e6))
            return err_set(e, ERR_RANGE, "%s = %g is not a positive number", r->key, cap);
        *caps[i] = (float)cap;
    }
    return 0;
}

/* YaRN of latent attention scales the whole key, also the dimensions that are not rotated. */
static double latent_scale(const struct hparams *h)
{
    const struct rope_params *p = &h->rope;
    double scale = 1 / sqrt(h->latent.nope_dim + p->n_rot);

    if (p->scaling == ROPE_YARN && p->factor > 1)
        scale *= pow(p->attn_factor * (1 + 0.1 * p->log_share * log(p->factor)), 2);
    return scale;
}

static int read_attn_scales(struct hparams *h, struct hparams_reader *r, struct err *e)
{
    const bool is_wide = h->n_layers == h->family->n_wide_scale_layers;

    for (int i = 0; i < h->n_layers; i++) {
        struct layer_params *p = &h->layers[i];
        if (p->n_kv_heads == 0)
            continue;
        double scale = 1 / sqrt(is_wide ? (double)h->d_model / p->n_heads : p->head_dim);
        if (p->mixer == MIXER_LATENT)
            scale = latent_scale(h);
        if (h->family->attn_scale > 0)
            scale = (double)h->family->attn_scale;
        if (get_positive(r, "attention.scale", &scale, e))
            return -1;
        p->attn_scale = (float)scale;
    }
    return 0;
}

static int read_scales(struct hparams *h, struct hparams_reader *r, struct err *e)
{
    double logit_scale = 1, slope = 0;

    h->query_scale_length = h->rope.n_ctx_orig;

    if (read_attn_scales(h, r, e) || get_positive(r, "logit_scale", &logit_scale, e) ||
        get_positive(r, "attention.temperature_scale", &slope, e) ||
        get_positive(r, "attention.temperature_length", &h->query_scale_length, e) ||
        get_factor(r, "embedding_scale", &h->embd_scale, e) ||
        get_factor(r, "residual_scale", &h->residual_scale, e) || read_soft_caps(h, r, e))
        return -1;
    if (h->family->scales_embedding)
        h->embd_scale *= (float)sqrt(h->d_model);
    if (logit_scale != 1 && !h->family->divides_logits)
        return err_set(
            e, ERR_UNSUPPORTED, "%s = %g is not supported", key_of(r, "logit_scale"), logit_scale);
    h->logit_scale = (float)(1 / logit_scale);
    h->query_scale_slope = (float)slope;
    return 0;
}

static int reject_family(struct str arch, struct err *e)
{
    char names[480] = "";
    size_t n = 0;
    const struct family *f;

    for (size_t i = 0; (f = family_at(i)) && n < sizeof(names); i++)
        n += (size_t)snprintf(names + n, sizeof(names) - n, "%s%s", i ? ", " : "", f->arch);
    return err_set(e, ERR_UNSUPPORTED, "architecture '%.*s' is not supported (supported: %s)",
        (int)MIN(arch.n, (size_t)60), arch.p, names);
}

int hparams_read_keys(struct hparams *h, const struct gguf *g, int n_vocab, struct err *e)
{
    struct str arch;
    struct hparams_reader r = { .g = g };
    double eps = 1e-5;

    *h = (struct hparams){ .n_layers = -1, .d_model = -1, .n_vocab = n_vocab };
    if (!gguf_get_str(g, "general.architecture", &arch))
        return err_set(e, ERR_CORRUPT, "general.architecture is missing");
    h->family = r.family = family_find(arch);
    if (!h->family)
        return reject_family(arch, e);

    if (reject_unsupported_keys(&r, e) ||
        get_int(&r, "block_count", (struct int_range){ 1, MAX_LAYERS }, &h->n_layers, e) ||
        get_int(&r, "embedding_length", (struct int_range){ 1, 1 << 17 }, &h->d_model, e) ||
        read_mtp_layers(h, &r, e) || read_layers(h, &r, e) || read_recurrent(h, &r, e) ||
        read_experts(h, &r, e) || read_context(h, &r, e) || read_head_dims(h, &r, e) ||
        read_shared_kv(h, &r, e) || read_rope(h, &r, e) || read_scales(h, &r, e) ||
        read_layer_inputs(h, &r, e) ||
        /* Nemotron-H files may have only the first one, for the same norms */
        get_positive(&r, "attention.layer_norm_epsilon", &eps, e) ||
        get_positive(&r, "attention.layer_norm_rms_epsilon", &eps, e))
        return -1;
    h->eps = (float)eps;
    return 0;
}

/* The vocabulary has as many tokens as the embedding has rows. */
int hparams_read(struct hparams *h, const struct gguf *g, struct err *e)
{
    const struct gguf_tensor *t = gguf_tensor(g, tensor_rows[TENSOR_EMBD].name);
    const uint64_t rows = t && t->n_dims == 2 ? t->dims[1] : 0;
    struct hparams_reader r = { .g = g };

    if (hparams_read_keys(h, g, 0, e))
        return -1;
    if (!t)
        return err_set(e, ERR_CORRUPT, "tensor %s is missing", tensor_rows[TENSOR_EMBD].name);
    if (rows < 1 || rows > 1 << 24)
        return err_set(e, ERR_RANGE, "tensor %s: %llu rows, supported are 1 to %d",
            tensor_rows[TENSOR_EMBD].name, (unsigned long long)rows, 1 << 24);
    h->n_vocab = (int)rows;
    r.family = h->family;

    int found = h->n_vocab;
    return get_int(&r, "vocab_size", (struct int_range){ h->n_vocab, h->n_vocab }, &found, e);
}
