/* hf_config.h: translates config.json to GGUF keys.
 *
 * A value that changes the result and has no GGUF key is rejected with its name and value. For a
 * multimodal model, the object text_config is the configuration of its language model.
 *
 * Owner: one thread at a time. */
#pragma once

#include "base/json.h"
#include "format/gguf_keys.h"
#include "format/hf/hf_family.h"

struct hf_config {
    const struct json *all;  /* config.json */
    const struct json *text; /* the same, or its text_config */
    const struct hf_family *family;
    const char *arch; /* general.architecture */
    int64_t n_groups; /* groups of Mamba2 heads, at least 1 */
    /* DeltaNet: numbers of heads, at least 1, and dimensions of a head */
    int64_t n_key_heads, n_value_heads, state_dim;
    int64_t n_layers, d_model, n_heads, n_kv_heads, n_experts;
    int64_t head_dim;        /* with latent attention: the rotated dimensions */
    int64_t window_head_dim; /* has_window_heads; head_dim is that of the other layers */
    int64_t n_full_kv_heads; /* has_window_heads: KV heads of layers without a window */
    /* latent attention: dimensions of a query without rotation, of a value, and of the compressed
     * keys and queries; 0: queries are not compressed */
    int64_t nope_dim, value_dim, kv_rank, q_rank;
    int64_t n_mtp_layers;      /* layers for drafts, after the others; not loaded */
    bool is_tied, states_tied; /* tie_word_embeddings, and whether the file has it */
    /* Divisors of RoPE frequencies, [head_dim / 2] in the arena; NULL: none. */
    const float *rope_freqs, *rope_long, *rope_short;
    size_t n_rope;
};

/* `all` and `a` are borrowed for the life of *c. ERR_UNSUPPORTED, ERR_CORRUPT. */
int hf_config_read(struct hf_config *c, const struct json *all, struct err *e);
/* Writes the keys, and sets the RoPE divisors in the arena. */
int hf_config_put(struct hf_config *c, struct gguf_keys *k, struct arena *a, struct err *e);

/* Writes the keys of latent attention; has_kv_b: the directory has one matrix for both k_b and v_b.
 * After hf_config_put. Nothing without latent attention. */
void hf_config_put_latent(const struct hf_config *c, bool has_kv_b, struct gguf_keys *k);

/* ---- for the files of this folder: values of an object; false or 0 with *out unchanged: absent or
 * null; -1: of another type, or not in the range 0 .. 2^31 - 1 */
int hf_get_int(const struct json *object, const char *key, int64_t *out, struct err *e);
int hf_require_int(const struct json *object, const char *key, int64_t *out, struct err *e);
int hf_get_number(const struct json *object, const char *key, double *out, struct err *e);
bool hf_get_str(const struct json *object, const char *key, struct str *out);
bool hf_is_true(const struct json *object, const char *key);
/* "config.json: KEY = VALUE is not supported" */
int hf_reject(const struct json *value, struct err *e);

/* hf_delta_net.c: sets the sizes of *c; writes the keys of the layers and of DeltaNet */
int hf_delta_net_read(struct hf_config *c, struct err *e);
int hf_delta_net_put(const struct hf_config *c, struct gguf_keys *k, struct err *e);

/* hf_gemma4.c: sets the heads and experts of *c; writes the keys of the layers and heads; checks
 * which layers have a tensor attn_v */
int hf_gemma4_read(struct hf_config *c, struct err *e);
int hf_gemma4_put(const struct hf_config *c, struct gguf_keys *k, struct err *e);
/* has_values: [n_layers] */
int hf_gemma4_check_values(const struct hf_config *c, const bool *has_values, struct err *e);

/* hf_rope.c: the keys rope.* and the divisors */
int hf_rope_put(struct hf_config *c, struct gguf_keys *k, struct arena *a, struct err *e);
