/* hf_quant.h: quantisation of the tensors of a model directory, as config.json states it, and the
 * names of the tensors that contain codes, scales and factors.
 *
 * Read: `quantization` of MLX (mode affine, mxfp4, mxfp8, nvfp4; entries per module), and
 * `quantization_config` with quant_method mxfp4, mxfp8, fp8, fbgemm_fp8, modelopt (FP8, NVFP4) or
 * compressed-tensors (float-quantized, nvfp4-pack-quantized, mxfp4-pack-quantized). Any other one
 * is refused with its name and value. Modules that stay unquantised (modules_to_not_convert,
 * ignore) are recognised by the type of their weights.
 *
 * Owner: one thread at a time. */
#pragma once

#include "base/arena.h"
#include "base/json.h"
#include "base/map.h"

enum hf_mode {
    HF_MODE_NONE,
    HF_MODE_AFFINE,
    HF_MODE_MXFP4,
    HF_MODE_MXFP8,
    HF_MODE_NVFP4,
    HF_MODE_FP8, /* E4M3 numbers with a scale per block, row or matrix */
};

/* Quantisation of one tensor: of the whole model, or the entry of its module. */
struct hf_quant {
    enum hf_mode mode;
    int64_t bits, group;
    int64_t block_rows, block_cols; /* HF_MODE_FP8: elements with one scale; 0: not stated */
};

struct hf_quants {
    struct hf_quant model;
    struct str_map *modules; /* modules with an entry of their own; NULL: none */
    const struct json **entries;
};

/* `all` is config.json, `text` the configuration of its language model; both and `a` outlive *q.
 * ERR_MEMORY, ERR_UNSUPPORTED, ERR_CORRUPT. Call hf_quants_clear after an error too. */
int hf_quants_read(struct hf_quants *q, const struct json *all, const struct json *text,
    struct arena *a, struct err *e);
void hf_quants_clear(struct hf_quants *q);
/* The quantisation of the module of this name. ERR_UNSUPPORTED, ERR_CORRUPT. */
int hf_quants_of(const struct hf_quants *q, struct str module, struct hf_quant *out, struct err *e);

/* Part of a matrix that a tensor contains, by the end of its name. */
enum hf_role {
    HF_CODES,
    HF_SCALES,
    HF_OFFSETS,
    HF_FACTOR, /* one number per matrix, which multiplies all weights */
    HF_BIAS,
    HF_UNUSED, /* calibration of activations and of the KV cache; no effect on the result */
    N_HF_ROLES
};

struct hf_suffix {
    const char *end;
    enum hf_role role;
    float multiplier, divisor; /* HF_FACTOR: the factor is x * multiplier, or divisor / x */
};

const struct hf_suffix *hf_suffix_find(struct str end); /* NULL: none */
