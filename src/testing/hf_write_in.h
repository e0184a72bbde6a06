/* hf_write_in.h: parts of hf_write.c, hf_write_delta.c, hf_write_gemma4.c and hf_write_quant.c
 * that only these files use. Owner: the caller of hf_write; one thread. */
#pragma once

#include "base/json.h"
#include "format/hf/hf_family.h"
#include "testing/hf_write.h"

enum { FILE_MAX = 1 << 30, SHARDS_MAX = 8, NAME_MAX_BYTES = 160 };

struct shard {
    struct buf header, data;
    struct jw w;
};

struct writer {
    const struct gguf *g;
    const char *dir;
    const struct hf_write_options *o;
    const struct hf_family *family;
    char arch[32];
    uint64_t n_heads, n_kv_heads, n_experts;
    struct shard shards[SHARDS_MAX];
    int n_shards;
    struct buf index;
    struct jw index_json;
    size_t n_written;
    struct buf row; /* hf_write_row */
};

/* Begins a tensor of n_dims dimensions, outermost first; the caller appends `bytes` bytes to the
 * returned buffer. */
struct buf *hf_write_begin(struct writer *w, const char *name, const char *dtype, int n_dims,
    const uint64_t *dims, uint64_t bytes);
/* Matrices first .. first + n - 1 of a tensor, which become the tensors stem.weight, ... */
struct hf_write_matrices {
    const char *stem;
    const struct hf_tensor_row *row;
    const struct gguf_tensor *t;
    uint64_t first, n;
};

/* Row r of the matrices, in the order of the directory; valid until the next call. */
const uint8_t *hf_write_row(struct writer *w, const struct hf_write_matrices *m, uint64_t r);

/* ---- hf_write_delta.c */

/* The index in GGUF terms of row, column or element `i` of n of a tensor of the directory, whose
 * value heads are grouped. */
uint64_t hf_write_value_index(
    const struct writer *w, const struct hf_tensor_row *row, uint64_t i, uint64_t n);
/* The members of config.json for DeltaNet. */
void hf_write_delta(const struct writer *w, struct jw *j);

/* ---- hf_write_gemma4.c: the members of config.json for the layers, heads and rotation */
void hf_write_gemma4(const struct writer *w, struct jw *j);

/* ---- hf_write_quant.c */

/* Writes the matrices with codes and scales; false: they are written as they are. */
bool hf_write_quantised(struct writer *w, const struct hf_write_matrices *m);
/* Whether the tensor has been written with that of gate: up of gpt-oss. */
bool hf_write_is_interleaved(const struct writer *w, const struct gguf_tensor *t);
/* The factors NAME.scale and NAME.input_scale of NVFP4, in the layout of ModelOpt. */
void hf_write_factor(struct writer *w, const struct hf_write_matrices *m, const char *end);
/* The member of config.json. */
void hf_write_quantization(const struct writer *w, struct jw *j);
