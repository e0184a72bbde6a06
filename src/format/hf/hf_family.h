/* hf_family.h: families of Hugging Face models as table rows: the GGUF architecture, the tensor
 * names, and what the values of their config.json mean.
 *
 * Constant data; any thread. */
#pragma once

#include "base/str.h"

/* Rows of a source tensor that are the rows of the tensor in GGUF terms, in this order. */
enum hf_rows {
    HF_ROWS_ALL,
    HF_ROWS_Q, /* of families with swaps_halves: row 2i + j of a head is row j * half + i */
    HF_ROWS_K,
    HF_ROWS_EVEN,
    HF_ROWS_ODD,
};

/* A tensor name: in the directory, and the GGUF name without ".weight" and ".bias". "%d" is the
 * layer, "%e" the expert, whose matrices are stacked. */
struct hf_tensor_row {
    const char *from, *to;
    enum hf_rows rows;
    bool is_norm;
};

struct hf_family {
    const char *model_type; /* of config.json */
    const char *arch;       /* general.architecture */
    const char *activation; /* hidden_act or hidden_activation */
    /* Names that replace those of hf_common_rows; the last one is empty. NULL: none. */
    const struct hf_tensor_row *rows;
    /* RoPE rotates the dimensions i and i + half of a head; in GGUF terms 2i and 2i + 1 */
    bool swaps_halves;
    bool adds_one; /* norms multiply by 1 + weight */
    bool has_experts;
    bool needs_norm_topk; /* the weights of experts are normalised only if norm_topk_prob is true */
    bool needs_use_window; /* sliding_window has no effect unless use_sliding_window is true */
    int rope_period; /* layer i has no RoPE if (i + 1) % rope_period == 0; 0: all layers have */
};

const struct hf_family *hf_family_find(struct str model_type); /* NULL: not supported */
const struct hf_family *hf_family_at(size_t i);                /* NULL after the last */

extern const struct hf_tensor_row hf_common_rows[]; /* the last one is empty */

/* Tensors that are not part of the language model, or that are computed. */
bool hf_tensor_is_ignored(struct str name);
