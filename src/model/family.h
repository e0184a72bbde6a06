/* family.h: model families as table rows.
 *
 * A family is an architecture in GGUF terms (general.architecture, also the prefix of its keys).
 * The row lists which tensors it has, which variants of the operations it uses, and
 * the values of keys that its files omit. All families use the same forward pass. A family of the
 * same structure needs only a row and a test.
 *
 * Constant data; any thread. */
#pragma once

#include "model/tensors.h"

/* Weights of the chosen experts: the softmax of all scores; the sigmoid of each score; the softmax
 * of the chosen scores. */
enum router_fn { ROUTER_SOFTMAX, ROUTER_SIGMOID, ROUTER_SOFTMAX_CHOSEN };

/* hidden = function of gate and up; RELU_SQR: max(up, 0)^2 */
enum activation { ACTIVATION_SILU, ACTIVATION_GELU, ACTIVATION_SWIGLU_OAI, ACTIVATION_RELU_SQR };

struct family {
    const char *arch;
    bool is_rope_neox; /* RoPE pairs are (i, i + n/2); else (2i, 2i + 1) */
    enum need experts; /* experts instead of one feed-forward network for all tokens */
    enum need needs[N_TENSORS];
    enum router_fn router; /* unless the file has the key expert_gating_func */
    /* the weights of the chosen experts are not divided by their sum, unless the file has the key
     * expert_weights_norm */
    bool keeps_expert_weights;
    /* with ROUTER_SOFTMAX the score of a group of experts is that of its best one (DeepSeek V2),
     * not the sum of its two best */
    bool ranks_groups_by_best;
    bool norms_whole_qk; /* QK-norm over all heads together, not over each head */
    bool fuses_gate_up;  /* ffn_up has the rows of gate, then those of up */
    /* the norm before the feed-forward network is called post_attention_norm */
    bool has_ffn_norm_after_attn;
    enum activation activation;
    bool scales_embedding; /* multiplies the embedding by sqrt(d_model) */
    /* number of layers of the model whose attention is scaled by 1/sqrt(d_model / n_heads), not by
     * 1/sqrt(head_dim); 0: none */
    int n_wide_scale_layers;
    float attn_scale;  /* unless the file has the key attention.scale; 0: 1/sqrt(head_dim) */
    bool may_share_kv; /* the last layers may read the keys and values of an earlier one */
    bool norms_values; /* RMSNorm of each value head, without weights */
    /* layers with experts also have a dense network; the sum of both outputs is normalised */
    bool has_dense_with_experts;
    /* unless the file has the key attention.sliding_window; -1: the key is required */
    int window;
    float window_rope_base; /* unless the file has rope.freq_base_swa; 0: rope.freq_base */
    float attn_soft_cap, logit_soft_cap; /* unless the file has the keys; 0: none */
    bool divides_logits;                 /* divides the logits by the key logit_scale */
    bool has_mtp_layers;  /* layers for drafts after the others: nextn_predict_layers */
    bool has_latent_attn; /* multi-head latent attention (MLA) */
    /* YaRN with a log multiplier does not scale the rotated dimensions */
    bool has_plain_yarn_rotation;
    /* layer i attends to all positions if (i + 1) % window_period == 0, unless the file has the key
     * attention.sliding_window_pattern; 0: all layers have the window, if there is one; -1: the
     * key is required */
    int window_period;
    bool has_plain_window_rope; /* RoPE of layers with a window is not scaled */
    bool may_lack_rope;         /* in files with rope.scaling.finetuned = false */
    /* Layers of this kind: those of which attention.recurrent_layers is true, without that key all
     * but each full_attention_interval-th; MIXER_SHORT_CONV, MIXER_MAMBA2: those without KV heads.
     * MIXER_ATTENTION: none */
    enum mixer recurrent;
    /* value head h uses key head h % n_key_heads; else h / (n_value_heads / n_key_heads) */
    bool has_tiled_value_heads;
    bool gates_attention; /* attn_q has for each head its query, then a gate of its output */
    int rope_period; /* layer i has no RoPE if (i + 1) % rope_period == 0; 0: all layers have */
    /* a layer is either a mixer or a feed-forward network: the latter if its feed_forward_length is
     * not 0; in both cases attn_norm is the norm of its input */
    bool splits_layers;
};

/* Whether the feed-forward network has a gate: hidden = activation(W_gate x, W_up x), not
 * activation(W_up x). */
static inline bool family_has_gate(const struct family *f)
{
    return f->activation != ACTIVATION_RELU_SQR;
}

const struct family *family_find(struct str arch); /* NULL: not supported */
const struct family *family_at(size_t i);          /* NULL after the last */
