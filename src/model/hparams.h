/* hparams.h: hyper-parameters of a model, read from the file's metadata and checked against ranges.
 *
 * Every value that is later used in a multiplication, a division or an allocation is within a
 * range. An error names the key, the value found and the supported range. A feature that would
 * change the results and is not implemented (an unknown RoPE scaling) is rejected with its name,
 * never ignored.
 *
 * Keys: GGUF metadata, github.com/ggml-org/ggml docs/gguf.md, with the prefix `<arch>.`.
 *
 * Plain data; any thread. */
#pragma once

#include "base/err.h"
#include "format/gguf.h"
#include "kernel/attn.h"
#include "model/family.h"

enum {
    MAX_LAYERS = 1024,
    MAX_HEAD_DIM = 512,
    MAX_STATE_DIM = 256,
    MAX_EXPERTS = 1024,
    MAX_EXPERTS_USED = 32
};

enum rope_scaling { ROPE_PLAIN, ROPE_LINEAR, ROPE_YARN, ROPE_LONG };

struct rope_params {
    enum rope_scaling scaling;
    double base;
    double factor; /* positions are divided by it; 1 without scaling */
    double n_ctx_orig, beta_fast, beta_slow, log_multiplier; /* YaRN */
    double log_share;   /* YaRN: share of the logarithm of the factor in the magnitude; mostly 1 */
    double attn_factor; /* YaRN, longrope */
    int n_rot;          /* dimensions of a head that are rotated: even, at most head_dim */
    bool is_continuous; /* YaRN: the bounds of the interpolated pairs are not whole numbers */
};

/* Sizes of all recurrent layers. */
struct recurrent_params {
    int n_layers;           /* 0: none; the other values are then 0 */
    int n_taps, n_channels; /* taps and channels of the convolution */
    /* n_value_heads is a multiple of n_key_heads; 0: no state but inputs of the convolution */
    int n_key_heads, n_value_heads;
    int key_dim, value_dim; /* dimensions of a head, at most MAX_STATE_DIM */
    /* first channel of the queries, keys and values of all heads; in Mamba2 those of C, B and x */
    int query_channel, key_channel, value_channel;
};

struct layer_params {
    enum mixer mixer;
    int recurrent_index; /* number of a recurrent layer among the recurrent ones */
    /* Attention; 0 in layers with another mixer or none. n_heads is a multiple of n_kv_heads. All
     * heads of latent attention have the same key: there n_kv_heads is a number of groups of query
     * heads, into which the work is divided. */
    int n_heads, n_kv_heads;
    int head_dim;  /* dimensions of a key, even, at most KV_MAX_DIM */
    int value_dim; /* dimensions of a value in KV pages */
    int d_ff;      /* width of the feed-forward network, if the layer has no experts */
    bool has_ffn;  /* the layer has a feed-forward network or experts */
    float attn_scale;
    bool has_window; /* attention to hparams.window positions; RoPE is hparams.window_rope */
    bool has_rope;
    int kv_layer; /* layer whose keys and values this one reads: itself, or an earlier layer */
};

/* Query heads that share one KV head (GQA). */
static inline int layer_q_per_kv_head(const struct layer_params *p)
{
    return p->n_kv_heads ? p->n_heads / p->n_kv_heads : 0;
}

/* Latent attention: the key of a token is [c, k_pe], its value c. A query head is [k_b q_nope,
 * q_pe]; its output is multiplied by v_b. RoPE rotates q_pe and k_pe. */
struct latent_params {
    int q_rank;    /* length of the compressed query; 0: queries are not compressed */
    int kv_rank;   /* length of c */
    int nope_dim;  /* length of q_nope */
    int value_dim; /* dimensions of a head's output, after v_b */
    bool has_kv_b; /* older files: one tensor for k_b and v_b */
};

struct hparams {
    const struct family *family;
    int n_layers;
    int d_model;
    int n_experts;      /* 0: none */
    int n_experts_used; /* per row: top-k */
    /* groups of experts of the same size, in order; the experts of a row are of the best groups;
     * 1: no groups */
    int n_expert_groups, n_groups_used;
    int n_group_best;   /* the score of a group is the sum of this many best scores: 1 or 2 */
    int d_ff_expert;    /* width of one expert */
    int d_latent;       /* input and output of an expert, if it is not d_model; else 0 */
    int d_ff_shared;    /* width of the shared expert, which every row uses; 0: none */
    int n_dense_layers; /* the first layers, which have no experts */
    int d_input;        /* width of the per-layer input; 0: none */
    int n_mtp_layers;   /* layers of the file after n_layers, which are not loaded */
    enum router_fn router;
    bool norms_expert_weights; /* the weights of the experts that a row uses add up to 1 */
    float expert_weight_scale;
    int n_vocab;
    int n_ctx; /* context length of the training */
    float eps;
    /* factors of the embedding, of each output that is added to the residual stream, and of the
     * logits */
    float embd_scale, residual_scale, logit_scale;
    /* a score or logit s becomes cap * tanh(s / cap); 0: no soft cap */
    float attn_soft_cap, logit_soft_cap;
    /* queries at position p: factor 1 + slope * ln(1 + floor(p / query_scale_length)); 0: none */
    float query_scale_slope;
    double query_scale_length;
    int window; /* positions to which a row attends in layers with a window; 0: no layer has one */
    struct recurrent_params recurrent;
    struct latent_params latent;            /* if the family has latent attention */
    struct rope_params rope, window_rope;   /* layers without and with a window */
    struct layer_params layers[MAX_LAYERS]; /* [n_layers] */
};

int hparams_read(struct hparams *h, const struct gguf *g, struct err *e);
/* The same for metadata without tensors; n_vocab is that of the caller. */
int hparams_read_keys(struct hparams *h, const struct gguf *g, int n_vocab, struct err *e);

/* Whether a file with these hyper-parameters has the tensor, in this layer if it belongs to one. */
enum need hparams_need(const struct hparams *h, enum tensor t, int layer);

bool hparams_has_experts(const struct hparams *h, int layer);

/* Whether the layer has keys and values of its own. */
bool hparams_has_kv(const struct hparams *h, int layer);

/* Dimension in a layer; `layer` has no effect on dimensions that are the same in all layers. */
int hparams_dim(const struct hparams *h, enum dim d, int layer);
int hparams_max_dim(const struct hparams *h, enum dim d); /* the largest of all layers */
