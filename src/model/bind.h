/* bind.h: loads the tensors of a model file: checked and packed weights.
 *
 * Every tensor of the family must be present, with the shape given by the hyper-parameters and a
 * supported type. A tensor that no family has is an error, since ignoring it would give wrong
 * results without a message. An error names the tensor, the expected value and the value found.
 *
 * All weights are in one block of memory. The thread pool shares the packing. The file pages of a
 * tensor are released as soon as it is packed, so the peak memory is the weights plus one tensor.
 * Alternatively the block is mapped from a file that an earlier start has written (packfile.h).
 * Nothing of the model file is used after loading, except a table of per-layer inputs, whose rows
 * are read from the mapped file: the weights hold a reference to the file. The caller may close it.
 *
 * Read-only after weights_bind: any thread. */
#pragma once

#include "kernel/gemm.h"
#include "os/thread_pool.h"
#include "model/hparams.h"
#include "model/packfile.h"

/* Feed-forward network, [rows][cols]. With experts: the rows of each expert, in turn. */
struct ffn {
    struct packed gate, up; /* [d_ff][d_model]; an empty gate: activation(up) */
    struct packed down;     /* [d_model][d_ff] */
};

struct recurrent_weights {     /* sizes: struct recurrent_params, hparams_dim() */
    struct packed in;          /* [DIM_CONV][d_model]: inputs of the convolution */
    struct packed factor;      /* [DIM_CONV][d_model]: factor of the input; empty: 1 */
    struct packed alpha, beta; /* [n_value_heads][d_model]: decay, and factor of the correction */
    const float *conv;         /* [n_taps][DIM_CONV] */
    const float *conv_bias;    /* [DIM_CONV], or NULL */
    const float *dt_bias;      /* [n_value_heads] */
    const float *a;            /* [n_value_heads]: decay is exp(a * softplus(alpha + dt_bias)) */
    const float *d;            /* [n_value_heads]: share of the value in the output; or NULL */
    const float *norm;         /* [DIM_STATE_NORMS][DIM_STATE_NORM] */
};

struct layer {              /* shapes are [rows][cols], cols contiguous in the file */
    const float *attn_norm; /* [d_model], or NULL: no norm before attention */
    struct packed q;        /* [n_heads * head_dim][d_model] */
    struct packed k, v;     /* [n_kv_heads * head_dim][d_model] */
    /* Latent attention: q is [n_heads * (nope_dim + n_rot)][q_rank], or [...][d_model] without q_a.
     * k is [kv_rank + n_rot][d_model], v is empty. k_b and v_b have the rows of each head in
     * turn. */
    struct packed q_a;            /* [q_rank][d_model]; empty: queries are not compressed */
    const float *q_a_norm;        /* [q_rank], or NULL */
    const float *kv_a_norm;       /* [kv_rank] */
    struct packed k_b;            /* [n_heads * kv_rank][nope_dim] */
    struct packed v_b;            /* [n_heads * value_dim][kv_rank] */
    const float *q_bias;          /* [n_heads * head_dim], or NULL */
    const float *k_bias, *v_bias; /* [n_kv_heads * head_dim], or NULL */
    /* [head_dim], of all heads if family->norms_whole_qk; or NULL */
    const float *q_norm, *k_norm;
    const float *sinks;                 /* [n_heads]: scores without values; or NULL */
    struct recurrent_weights recurrent; /* empty in attention layers */
    struct packed mix_gate;             /* [DIM_MIX][d_model]: gate of the output; empty: none */
    struct packed o;                    /* [d_model][DIM_MIX] */
    const float *o_bias;                /* [d_model], or NULL */
    const float *post_attn_norm;        /* [d_model]: of the output of Wo; or NULL */
    const float *ffn_norm;      /* [d_model], or NULL: no norm before the feed-forward network */
    const float *post_ffn_norm; /* [d_model]: of the output of W_down; or NULL */
    struct ffn ffn;             /* matrices of all experts, if there are experts */
    struct packed router;       /* [n_experts][d_model]; empty: a layer without experts */
    /* experts next to a dense network: [d_model]: norms of the inputs of the router and of the
     * experts, and of the outputs of the experts and of the dense network; or NULL */
    const float *router_norm, *expert_norm, *post_expert_norm, *post_dense_norm;
    const float *expert_scale; /* [n_experts]: factors of the expert outputs; or NULL */
    /* [n_experts], or NULL: added to the scores; added for the choice of the experts only */
    const float *router_score_bias, *router_bias;
    struct packed latent_down; /* [d_latent][d_model]: input of the experts; empty: the row */
    struct packed latent_up;   /* [d_model][d_latent]: of the sum of their outputs */
    /* [n_experts][d_ff], [n_experts][d_model], or NULL */
    const float *gate_bias, *up_bias, *down_bias;
    struct ffn shared;           /* the expert or dense network that all rows use; empty: none */
    struct packed shared_router; /* [1][d_model]: factor of the shared expert; empty: 1 */
    struct packed input_gate;    /* [d_input][d_model]: per-layer input; empty: none */
    struct packed input_proj;    /* [d_model][d_input] */
    const float *input_norm;     /* [d_model]: of the output of input_proj */
    const float *out_scale;      /* [1]: factor of the output of the layer; or NULL */
};

/* Rows of a tensor of the model file, read one by one from its mapping, or computed (gguf.h). */
struct row_table {
    const struct gguf_tensor *t; /* NULL: no table */
    int n_cols;
    size_t row_bytes;
};

struct weights {
    struct packed embd; /* [n_vocab][d_model]; embedding rows are gathered from it */
    struct packed head; /* [n_vocab][d_model]; the same bytes as embd if tied */
    bool is_tied;
    const float *out_norm;               /* [d_model] */
    const float *rope_factors;           /* [n_rot / 2], or NULL */
    const float *rope_long, *rope_short; /* longrope: [n_rot / 2], or NULL */
    struct row_table input_table;        /* [n_vocab][n_layers * d_input]: per-layer inputs */
    struct packed input_model_proj;      /* [n_layers * d_input][d_model] */
    const float *input_model_norm;       /* [d_input] */
    struct gguf *file_of_table;          /* reference to the model file; NULL: no table */
    struct layer *layers;                /* [n_layers] */
    uint8_t *block;                      /* memory of all weights; read-only if mapped */
    size_t bytes;                        /* size of the block */
    /* the mapped file that contains the block; empty: the block is allocated memory */
    struct packfile file;
    struct packfile_key key; /* key of bind_options.packfile */
    /* the packfile did not exist or did not match, and `key` is complete: the caller should write
     * it */
    bool wants_file;
    uint64_t n_params;
};

struct bind_options {
    /* 0 .. 1, called on the caller's thread; NULL: none */
    void (*progress)(void *arg, double share);
    void *progress_arg;
    const _Atomic bool *stop; /* true: the load ends with ERR_CANCELLED; NULL: never */
    const char *packfile;     /* used if it exists and matches; NULL: none */
    bool packfile_to_memory;
};

/* On error *w is empty. ERR_CORRUPT, ERR_UNSUPPORTED, ERR_MEMORY. */
int weights_bind(struct weights *w, const struct hparams *h, const struct gguf *g,
    struct thread_pool *thread_pool, const struct bind_options *o, struct err *e);
void weights_clear(struct weights *w); /* an empty one is allowed */
