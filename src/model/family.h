/* family.h: model families as table rows, and the tensor names of GGUF files.
 *
 * A family is an architecture in GGUF terms (general.architecture, also the prefix of its keys).
 * The row lists which of the tensors below it has and how RoPE pairs the elements of queries and
 * keys. All families use the same forward pass. A family of the same structure needs only a row and
 * a test.
 *
 * Constant data; any thread. */
#pragma once

#include "base/str.h"

enum tensor {
    TENSOR_EMBD,
    TENSOR_OUT_NORM,
    TENSOR_HEAD,
    TENSOR_ROPE_FREQS,
    TENSOR_ATTN_NORM, /* from here on: one per layer */
    TENSOR_Q,
    TENSOR_K,
    TENSOR_V,
    TENSOR_Q_BIAS,
    TENSOR_K_BIAS,
    TENSOR_V_BIAS,
    TENSOR_Q_NORM,
    TENSOR_K_NORM,
    TENSOR_O,
    TENSOR_FFN_NORM,
    TENSOR_GATE,
    TENSOR_UP,
    TENSOR_DOWN,
    TENSOR_ROUTER, /* from here on: experts, instead of the three before */
    TENSOR_GATE_EXPERTS,
    TENSOR_UP_EXPERTS,
    TENSOR_DOWN_EXPERTS,
    N_TENSORS,
    TENSOR_FIRST_OF_LAYER = TENSOR_ATTN_NORM,
};

enum dim {
    DIM_ONE,
    DIM_MODEL,
    DIM_Q,
    DIM_KV,
    DIM_HEAD,
    DIM_FF,
    DIM_VOCAB,
    DIM_PAIRS,
    DIM_EXPERTS,
    N_DIMS
};

struct tensor_row {
    const char *name;    /* "%d" is the layer index */
    enum dim cols, rows; /* rows == DIM_ONE: a vector, always F32 */
    bool is_per_expert;  /* this number of rows for each expert, one expert after the other */
};

enum need { NEED_YES, NEED_MAYBE, NEED_NO };

struct family {
    const char *arch;
    bool is_rope_neox; /* RoPE pairs are (i, i + n/2); else (2i, 2i + 1) */
    enum need experts; /* experts instead of one feed-forward network for all tokens */
    enum need needs[N_TENSORS];
};

extern const struct tensor_row tensor_rows[N_TENSORS];

const struct family *family_find(struct str arch); /* NULL: not supported */
const struct family *family_at(size_t i);          /* NULL after the last */

/* Finds the tensor called `name` and its layer (0 for tensors without a layer). False for a name of
 * no family. */
bool tensor_parse(struct str name, enum tensor *id, int *layer);
