/* tensors.h: the tensors of models by their names in GGUF files, with their shapes in terms of
 * dimensions that the hyper-parameters give (hparams_dim).
 *
 * Constant data; any thread. */
#pragma once

#include "base/str.h"

enum tensor {
    TENSOR_EMBD,
    TENSOR_OUT_NORM,
    TENSOR_EMBD_NORM, /* another name of TENSOR_OUT_NORM */
    TENSOR_HEAD,
    TENSOR_ROPE_FREQS,
    TENSOR_ROPE_LONG, /* longrope: divisors of the frequencies for long contexts */
    TENSOR_ROPE_SHORT,
    TENSOR_INPUT_TABLE, /* per-layer inputs of each token, for all layers */
    TENSOR_INPUT_MODEL_PROJ,
    TENSOR_INPUT_MODEL_NORM,
    TENSOR_ATTN_NORM, /* from here on: one per layer */
    /* the rows of Q, K and V; in a recurrent layer those of the inputs of the convolution */
    TENSOR_QKV,
    TENSOR_Q,
    TENSOR_K,
    TENSOR_V,
    TENSOR_Q_BIAS,
    TENSOR_K_BIAS,
    TENSOR_V_BIAS,
    TENSOR_Q_NORM,
    TENSOR_K_NORM,
    TENSOR_SINKS,
    TENSOR_Q_A, /* latent attention (MLA) */
    TENSOR_Q_A_NORM,
    TENSOR_Q_B,
    TENSOR_KV_A,
    TENSOR_KV_A_NORM,
    TENSOR_K_B,
    TENSOR_V_B,
    TENSOR_KV_B, /* files of an older form: the rows of k_b, transposed, and of v_b */
    TENSOR_O,
    TENSOR_O_BIAS,
    TENSOR_MIX_GATE, /* gate of the output of a recurrent layer */
    /* the rows of TENSOR_QKV and TENSOR_MIX_GATE, by key heads; in a Mamba2 layer those of the
     * gate, of the inputs of the convolution, and of TENSOR_SSM_ALPHA */
    TENSOR_SSM_IN,
    TENSOR_SSM_ALPHA,
    TENSOR_SSM_BETA,
    TENSOR_SSM_BETA_ALPHA, /* the rows of both, by key heads */
    TENSOR_SSM_CONV,
    TENSOR_SSM_CONV_BIAS,
    TENSOR_SSM_DT_BIAS,
    TENSOR_SSM_A,
    TENSOR_SSM_D,
    TENSOR_SSM_NORM,
    TENSOR_SSM_OUT,
    TENSOR_SHORT_CONV_IN, /* the rows of the input, of the gate, and of a factor of the input */
    TENSOR_SHORT_CONV,
    TENSOR_SHORT_CONV_OUT,
    TENSOR_POST_ATTN_NORM,
    TENSOR_FFN_NORM,
    TENSOR_POST_FFN_NORM,
    TENSOR_INPUT_GATE, /* per-layer input */
    TENSOR_INPUT_PROJ,
    TENSOR_INPUT_NORM,
    TENSOR_OUT_SCALE,
    TENSOR_GATE,
    TENSOR_UP,
    TENSOR_DOWN,
    TENSOR_ROUTER, /* from here on: experts, mostly instead of the feed-forward matrices before */
    TENSOR_ROUTER_SCORE_BIAS, /* added to the scores */
    TENSOR_ROUTER_BIAS,       /* added for the choice of the experts only */
    TENSOR_GATE_UP_EXPERTS,   /* for each expert the rows of gate, then those of up */
    TENSOR_GATE_EXPERTS,
    TENSOR_UP_EXPERTS,
    TENSOR_DOWN_EXPERTS,
    TENSOR_GATE_EXPERTS_BIAS, /* one row per expert */
    TENSOR_UP_EXPERTS_BIAS,
    TENSOR_DOWN_EXPERTS_BIAS,
    TENSOR_DOWN_EXPERTS_SCALE, /* factor of the output of each expert */
    TENSOR_ROUTER_NORM,        /* experts next to a dense network: norms of each part */
    TENSOR_EXPERT_NORM,
    TENSOR_POST_EXPERT_NORM,
    TENSOR_POST_DENSE_NORM,
    TENSOR_LATENT_DOWN, /* experts of a narrower input: projection to it, and that of the output */
    TENSOR_LATENT_UP,
    TENSOR_SHARED_GATE, /* shared expert, which every row uses */
    TENSOR_SHARED_UP,
    TENSOR_SHARED_DOWN,
    TENSOR_SHARED_ROUTER,
    N_TENSORS,
    TENSOR_FIRST_OF_LAYER = TENSOR_ATTN_NORM,
};

enum dim {
    DIM_ONE,
    DIM_SINGLE, /* a matrix with one row */
    DIM_MODEL,
    DIM_Q,
    DIM_Q_ROWS, /* rows of Q, and those of the gate of attention */
    DIM_KV,
    DIM_HEADS,
    DIM_QKV,
    DIM_Q_NORM, /* one head, or all of them */
    DIM_K_NORM,
    DIM_FF,
    DIM_FF_UP, /* d_ff, or the rows of gate and up */
    DIM_FF_EXPERT,
    DIM_FF_EXPERT_UP, /* the rows of gate and up of one expert */
    DIM_FF_SHARED,
    DIM_EXPERT, /* input and output of an expert */
    DIM_VOCAB,
    DIM_PAIRS,
    DIM_EXPERTS,
    DIM_INPUT,  /* per-layer input */
    DIM_INPUTS, /* per-layer inputs of all layers */
    DIM_CONV,   /* channels of the convolution */
    DIM_3_CONV,
    DIM_CONV_TAPS,
    DIM_MIX,          /* output of attention or of a recurrent layer */
    DIM_STATE_VALUES, /* dimensions of all value heads */
    DIM_STATE_NORM,   /* ssm_norm: values that are normalised together, and rows of the tensor */
    DIM_STATE_NORMS,
    DIM_VALUE_HEADS,
    DIM_DECAY, /* ssm_a: one row of a number per value head, or rows of one number */
    DIM_DECAYS,
    DIM_BETA_ALPHA,
    DIM_SSM_IN,
    DIM_Q_RANK, /* from here on: latent attention */
    DIM_KV_RANK,
    DIM_LATENT_Q,   /* query heads before k_b */
    DIM_LATENT_KEY, /* a key */
    DIM_NOPE,       /* dimensions of a query head without RoPE */
    DIM_VALUE,      /* dimensions of a head's output, after v_b */
    DIM_KV_B,
    N_DIMS
};

/* The mixer is the first half of a layer, before the feed-forward network: attention, latent
 * attention (latent.c), an operation with a recurrent state instead of keys and values
 * (recurrent.c), or nothing. */
enum mixer {
    MIXER_ATTENTION,
    MIXER_LATENT,
    MIXER_DELTA_NET,
    MIXER_SHORT_CONV,
    MIXER_MAMBA2,
    MIXER_NONE
};

/* NEED_UNUSED: the file may have the tensor, which is not loaded */
enum need { NEED_DEFAULT, NEED_YES, NEED_MAYBE, NEED_NO, NEED_UNUSED };

struct tensor_row {
    const char *name;    /* "%d" is the layer index */
    enum dim cols, rows; /* rows == DIM_ONE: a vector, always F32 */
    enum need need;      /* in families whose row does not state it */
    bool is_per_expert;  /* this number of rows for each expert, one expert after the other */
    bool is_table;       /* stored as F32 rows, like a vector */
    bool is_transposed;  /* a table of which the columns become rows */
    /* a tensor NAME.scale has a factor of the outputs of the matrix, or one for each expert */
    bool has_scale;
    bool is_per_head; /* this number of rows for each query head, one after the other */
    unsigned mixers;  /* one bit per mixer whose layers have it; 0: all layers */
};

extern const struct tensor_row tensor_rows[N_TENSORS];

/* Layer of a tensor called `name`, known or not; -1 for a name without a layer. */
int tensor_layer(struct str name);

/* Finds the tensor called `name` and its layer (0 for tensors without a layer). False for a name of
 * no family. */
bool tensor_parse(struct str name, enum tensor *id, int *layer);

/* The same for NAME.scale, the factor of a matrix, and NAME.input_scale, of which the value is the
 * largest input in the calibration of NVFP4 files, and has no effect on the result. */
bool tensor_parse_scale(struct str name, enum tensor *id, int *layer, bool *is_of_input);
