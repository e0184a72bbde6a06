/* hf_recipe.h: how the rows of a tensor are computed from the tensors of a model directory. For the
 * files of this folder. Read-only after hf_tensors_end: any thread. */
#pragma once

#include "format/hf/hf_family.h"
#include "format/hf/hf_tensors.h"

/* The text of a name for "%.*s" in an error. */
#define SHORT_ARG(s) (int)MIN((s).n, (size_t)100), (s).p

enum hf_convert {
    HF_COPY,   /* the same elements */
    HF_TO_F32, /* F16, BF16 or F32 to F32, plus `add` */
    HF_DECAY,  /* the same, -exp(x) */
    HF_AFFINE, /* codes, scales and offsets to blocks of Q_AFFINE* */
    HF_MXFP4,  /* codes and scales to blocks of MXFP4 */
    HF_MXFP8,
    HF_NVFP4, /* a negative scale changes the signs of its codes, since UE4M3 has no sign */
    HF_FP8,   /* E4M3 numbers and scales to blocks of Q_FP8_* */
};

/* The sources of one matrix, or of all matrices if they are stacked in the directory as well. */
struct hf_source {
    const struct st_tensor *codes, *scales, *offsets, *factor; /* NULL: none */
};

/* Scales of a source with E4M3 numbers: [matrices][n_rows][n_cols]; each is the scale of `rows` x
 * `cols` elements. */
struct hf_scale_grid {
    uint64_t n_rows, n_cols, rows, cols;
};

struct hf_recipe {
    struct str name;    /* in GGUF terms */
    struct str from;    /* first source, for errors */
    bool is_bias;       /* rows of one element; a tensor row in GGUF terms has all of a matrix */
    bool is_per_expert; /* one source for each expert */
    bool is_norm;
    enum hf_rows rows;
    enum hf_form form;
    struct hf_quant quant;
    const struct hf_suffix *factor; /* how the factor is stored; NULL: none */
    struct hf_source *sources;      /* [n_sources] */
    size_t n_sources;
    /* set by hf_tensors_end */
    enum hf_convert convert;
    enum qtype type;
    uint64_t n_matrices, rows_in, rows_out, cols; /* rows_in of the sources */
    uint64_t head_rows; /* HF_ROWS_Q, HF_ROWS_K, HF_ROWS_VALUES...: rows of a head */
    uint64_t head_cols; /* HF_COLS_VALUES: columns of a head; otherwise all */
    uint64_t first_row; /* first row of the value heads */
    uint64_t n_key_heads, n_value_heads;
    struct hf_scale_grid grid; /* HF_FP8 */
    float add;
};

/* Sets the members after `n_sources` except `add`, from the sources. ERR_CORRUPT, ERR_UNSUPPORTED,
 * ERR_RANGE. */
int hf_recipe_complete(struct hf_recipe *r, const struct hf_config *c, struct err *e);
/* The tensor in GGUF terms; it refers to *r if its rows are computed. */
int hf_recipe_describe(const struct hf_recipe *r, struct gguf_tensor *t, struct err *e);
