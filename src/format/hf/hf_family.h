/* hf_family.h: families of Hugging Face models as table rows: the GGUF architecture, the tensor
 * names, and what the values of their config.json mean.
 *
 * Constant data; any thread. */
#pragma once

#include "base/str.h"

/* Rows of a source tensor that are the rows of the tensor in GGUF terms, in this order; or the
 * order of its columns. Value heads of DeltaNet are grouped by their key head in directories; in
 * GGUF terms value head h has the key head h % n_key_heads. */
enum hf_rows {
    HF_ROWS_ALL,
    HF_ROWS_Q, /* families with swaps_halves: row 2i + j of a head is row j * half + i */
    HF_ROWS_K,
    HF_ROWS_EVEN,
    HF_ROWS_ODD,
    HF_ROWS_FIRST_HALF,
    HF_ROWS_SECOND_HALF,
    HF_ROWS_VALUES,    /* all rows are of value heads */
    HF_ROWS_QK_VALUES, /* rows after the queries and keys are value heads */
    HF_COLS_VALUES,    /* all columns are of value heads */
};

/* Shape of the tensor in GGUF terms. All but the first one are F32. */
enum hf_form {
    HF_FORM_SAME,
    HF_FORM_COLUMN, /* a vector as rows of one element, under a name without ".weight" */
    HF_FORM_DECAY,  /* the same with -exp(x) of each element x */
    HF_FORM_VECTOR, /* a vector under a name without ".weight" */
    HF_FORM_DECAYS, /* a vector with -exp(x) of each element x, under a name without ".weight" */
    HF_FORM_GROUPS, /* a vector as one row per group of the Mamba2 layers */
    HF_FORM_CONV,   /* [channels, 1, taps] or [channels, taps, 1] as rows of taps */
};

/* Families whose layers are of several kinds (hf_hybrid.c). */
enum hf_hybrid { HF_NOT_HYBRID, HF_GRANITE_HYBRID, HF_NEMOTRON_H };

/* A tensor name: in the directory, and the GGUF name without ".weight" and ".bias". "%d" is the
 * layer, "%e" the expert, whose matrices are stacked. */
struct hf_tensor_row {
    const char *from, *to;
    enum hf_rows rows;
    bool is_norm;
    enum hf_form form;
};

struct hf_family {
    const char *model_type; /* model_type in config.json */
    bool has_text_type;     /* also MODEL_TYPE_text, of the language model alone */
    const char *arch;       /* general.architecture */
    const char *moe_arch;   /* the same of models with experts; NULL: arch */
    const char *activation; /* hidden_act, hidden_activation or mlp_hidden_act */
    /* Names that replace those of hf_common_rows; the last one is empty. NULL: none. */
    const struct hf_tensor_row *rows;
    const struct hf_tensor_row *dense_rows; /* the same without experts; NULL: rows */
    enum hf_hybrid hybrid;
    /* RoPE rotates the dimensions i and i + half of a head; in GGUF terms 2i and 2i + 1 */
    bool swaps_halves;
    /* Norms multiply by 1 + weight. MLX stores the sum in families with has_delta_net. */
    bool adds_one;
    bool has_experts;
    bool needs_norm_topk; /* the weights of experts are normalised only if norm_topk_prob is true */
    bool needs_use_window; /* sliding_window has no effect unless use_sliding_window is true */
    int head_dim;          /* unless config.json has it; 0: hidden_size / num_attention_heads */
    double rotated;        /* partial_rotary_factor unless config.json has it; 0: 1 */
    bool has_window_heads; /* Gemma 4: layers with a window have other heads (hf_gemma4.c) */
    int layer_input;       /* hidden_size_per_layer_input unless config.json has it */
    bool has_delta_net;    /* layers without attention: layer_types = linear_attention */
    bool has_short_conv;   /* layers without attention: layer_types = conv */
    bool has_latent_attn;  /* MLA: kv_lora_rank, qk_rope_head_dim, ... */
    const char *router; /* scoring_func unless config.json has it; NULL: the family has no choice */
    int n_dense;        /* layers without experts, unless config.json states them */
    int rope_period;    /* layer i has no RoPE if (i + 1) % rope_period == 0; 0: all layers have */
};

/* The rows of a model with this number of experts. */
static inline const struct hf_tensor_row *hf_family_rows(
    const struct hf_family *f, int64_t n_experts)
{
    return f->dense_rows && !n_experts ? f->dense_rows : f->rows;
}

const struct hf_family *hf_family_find(struct str model_type); /* NULL: not supported */
const struct hf_family *hf_family_at(size_t i);                /* NULL after the last */

extern const struct hf_tensor_row hf_common_rows[]; /* the last one is empty */

/* Tensors that are not part of the language model, or that are computed. */
bool hf_tensor_is_ignored(struct str name);
